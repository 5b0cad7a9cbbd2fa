// SPDX-License-Identifier: Apache-2.0
//! Keeps `ship` within its limit.

use super::form::{Form, Remains};
use super::removal::{Removal, Stored, next_removal};
use super::thinned::Thinning;
use super::{Offer, Queue, is_full};
use crate::batch::{Content, GapReason};
use std::fs;
use std::io;
use std::ops::ControlFlow;

/// The most bytes that `ship/refused` takes.
const MOST_REFUSED: u64 = 16 << 20;

impl Queue {
    /// Makes what `ship` has no more than the limit; see `removal` for what gives way first. Where a
    /// disk is full, room is made by renames and removals only.
    ///
    /// # Errors
    /// A file cannot be read, written or removed.
    pub fn make_room(&mut self) -> io::Result<()> {
        // Each step takes something from one segment; a file that does not shrink ends it.
        for _ in 0..=3 * self.segments.len() {
            let ids: Vec<String> = self
                .oldest_first()
                .into_iter()
                .filter(|id| self.segments[id].class() == super::Class::Waiting)
                .collect();
            let stored: Vec<Stored> = ids.iter().map(|id| self.stored(id)).collect();
            match next_removal(&stored, self.limit) {
                None => return Ok(()),
                Some(Removal::Acknowledged(at)) => self.remove(&ids[at])?,
                Some(Removal::Details(at)) => match self.thin(&ids[at]) {
                    Err(e) if is_full(&e) => self.drop_rest(&ids[at])?,
                    result => result?,
                },
                Some(Removal::Rest(at)) => self.drop_rest(&ids[at])?,
            }
        }
        Ok(())
    }

    fn stored(&self, id: &str) -> Stored {
        let segment = &self.segments[id];
        let (bytes, whole) = match &segment.form {
            Some(Form::Whole(_)) => (segment.length, !segment.foreign),
            Some(Form::Thinned(path, _)) => (path.metadata().map_or(0, |m| m.len()), false),
            _ => (0, false),
        };
        Stored {
            bytes,
            complete: segment.kept.complete,
            whole: whole && !segment.kept.conflict,
        }
    }

    /// Removes what the server has, all of it; whether there was something.
    pub(super) fn remove_acknowledged(&mut self) -> io::Result<bool> {
        let complete: Vec<String> = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.kept.complete)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &complete {
            self.remove(id)?;
        }
        Ok(!complete.is_empty())
    }

    fn remove(&mut self, id: &str) -> io::Result<()> {
        if let Some(path) = self.segments.get(id).and_then(|s| s.form.as_ref()?.path()) {
            self.disk.remove(path)?;
        }
        self.segments.remove(id);
        Ok(())
    }

    /// Writes the segment anew without its intervals, interactions and listeners behind what was
    /// acknowledged.
    fn thin(&mut self, id: &str) -> io::Result<()> {
        let Some(segment) = self.segments.get_mut(id) else {
            return Ok(());
        };
        let Some(Form::Whole(path)) = segment.form.clone() else {
            return Ok(());
        };
        let length = segment.length;
        let kept = segment.kept.acknowledged;
        let facts = segment.kept.facts;
        let thinned = self.folder.thinned(id, length);
        self.disk.write_flushed(&thinned, |out| {
            let mut thinning = Thinning::new(out);
            let mut result = Ok(());
            Form::Whole(path.clone()).walk(facts.as_ref(), 0, &mut |offset, content| {
                result = thinning.piece(offset, content, kept);
                match result {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            result?;
            thinning.end(length)
        })?;
        self.disk.remove(&path)?;
        segment.form = Some(Form::Thinned(thinned, length));
        Ok(())
    }

    /// Removes what is left of a segment; its name stays and says how much it was. What is in
    /// conflict, and so would not be taken as a gap either, is counted at once.
    fn drop_rest(&mut self, id: &str) -> io::Result<()> {
        let Some(segment) = self.segments.get_mut(id) else {
            return Ok(());
        };
        let Some(form) = segment.form.clone() else {
            return Ok(());
        };
        let Some(path) = form.path() else {
            return Ok(());
        };
        if segment.kept.conflict {
            let lost = segment.waiting_bytes();
            self.disk.remove(path)?;
            self.segments.remove(id);
            *self.lost_bytes.entry(GapReason::Dropped).or_default() += lost;
            return self.save();
        }
        let from = segment.kept.acknowledged;
        let mut records = 0u32;
        let counted = form.walk(segment.facts(), from, &mut |_, content| {
            records = records.saturating_add(match content {
                Content::Record(_) => 1,
                Content::Gap(gap) => gap.records.unwrap_or(0),
                Content::Header(_) => 0,
            });
            ControlFlow::Continue(())
        });
        let remains = Remains {
            from,
            length: segment.length,
            records: counted.is_ok().then_some(records),
            reason: GapReason::Dropped,
        };
        let stub = self.folder.gone(id, &remains);
        self.disk.rename(path, &stub)?;
        segment.kept.gone = Some(remains);
        segment.form = Some(Form::Gone(remains));
        self.disk.empty(&stub)?;
        self.save()
    }

    /// Keeps what the server refused, for whoever looks into it, while there is room for it.
    pub(super) fn keep_refused(&mut self, sent: &Offer, body: &[u8]) {
        let folder = self.folder.refused();
        let Ok(()) = slowpath_files::create_folder(&folder) else {
            return;
        };
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        let taken: u64 = files
            .filter_map(|file| file.metadata().ok())
            .map(|metadata| metadata.len())
            .sum();
        if taken + body.len() as u64 <= MOST_REFUSED {
            // Without it only an explanation is missing.
            let _ = self.disk.write(
                &folder.join(format!("{}-{}.batch", sent.segment, sent.offset)),
                body,
            );
        }
    }
}
