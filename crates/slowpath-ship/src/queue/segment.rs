// SPDX-License-Identifier: Apache-2.0
//! One segment of the queue: its form on the disk, and how far the server has it.

use super::Class;
use super::form::{Form, Remains, SpoolFacts, SpoolStart, over, start_of};
use super::offer::{Collector, Offer};
use super::state::SegmentState;
use crate::batch::{GapReason, Prefix};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Segment {
    /// `None` until the folders were looked at.
    pub form: Option<Form>,
    pub kept: SegmentState,
    /// It is not offered before; it is in conflict, or the server is too old for it.
    held_until: Option<Duration>,
    /// The server is too old for it.
    pub newer: bool,
    /// Times that it went back without an advance.
    rewinds: u32,
    /// Its length when it was last looked at, bytes.
    pub length: u64,
    /// A newer slowpath wrote it: this one cannot read it.
    pub foreign: bool,
}

/// How long a segment in conflict, or that the server is too old for, is left as it is.
const HOLD: Duration = Duration::from_secs(3600);
/// A segment that goes back so often without an advance is in conflict.
const MOST_REWINDS: u32 = 8;

impl Segment {
    /// As `ship/state` has it.
    pub(super) fn kept(kept: SegmentState) -> Self {
        Segment {
            form: kept.gone.map(Form::Gone),
            length: kept.gone.map_or(0, |remains| remains.length),
            kept,
            ..Segment::default()
        }
    }

    /// What the folders say of it.
    pub(super) fn take_form(&mut self, form: Form) -> io::Result<()> {
        match form.length() {
            Ok(length) => self.length = length,
            // It moved meanwhile: the next look finds it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        }
        let is_gone = matches!(form, Form::Gone(_));
        if self.kept.facts.is_none() && !is_gone {
            self.read_facts(&form)?;
        }
        self.kept.gone = match form {
            Form::Gone(remains) => Some(remains),
            _ => None,
        };
        self.form = Some(form);
        Ok(())
    }

    fn read_facts(&mut self, form: &Form) -> io::Result<()> {
        let Some(path) = form.path() else {
            return Ok(());
        };
        match File::open(path).and_then(|mut file| start_of(&mut file)) {
            Ok(SpoolStart::Header(facts, _)) => {
                self.kept.facts = Some(facts);
                self.foreign = false;
            }
            Ok(start) => self.foreign = matches!(start, SpoolStart::Newer),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Its file is no longer there; whether the segment stays all the same, as a gap: someone
    /// deleted it before the server had all of it.
    pub(super) fn lose_file(&mut self) -> bool {
        if let Some(Form::Gone(_)) = self.form {
            return !self.kept.complete;
        }
        if self.kept.complete || self.kept.facts.is_none() || self.length <= self.kept.acknowledged
        {
            return false;
        }
        let remains = Remains {
            from: self.kept.acknowledged,
            length: self.length,
            records: None,
            reason: GapReason::Damaged,
        };
        self.kept.gone = Some(remains);
        self.form = Some(Form::Gone(remains));
        true
    }

    pub(super) fn class(&self) -> Class {
        match self.form {
            Some(Form::Live(_)) => Class::Live,
            _ => Class::Waiting,
        }
    }

    /// When it began, microseconds since 1970 by the host's clock; 0 if that is not known.
    pub(super) fn begun_us(&self) -> i64 {
        self.kept.facts.map_or(0, |facts| facts.begun_us)
    }

    /// Whether there may be something to offer.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        !self.kept.complete && !self.foreign && self.held_until.is_none_or(|until| now >= until)
    }

    /// Bytes that the server has not flushed.
    pub(super) fn waiting_bytes(&self) -> u64 {
        match self.kept.complete {
            true => 0,
            false => self.length.saturating_sub(self.kept.acknowledged),
        }
    }

    /// Whether `ship/state` says more of it than the folders do.
    pub(super) fn is_worth_keeping(&self) -> bool {
        self.kept != SegmentState::default()
    }

    /// The next items of it, of `most` bytes at most.
    pub(super) fn offer(&mut self, id: &str, most: usize) -> io::Result<Option<Offer>> {
        let Some(form) = &self.form else {
            return Ok(None);
        };
        let mut collector = Collector::new(&self.kept, most);
        let walk = form.walk(
            self.kept.facts.as_ref(),
            self.kept.acknowledged,
            &mut |offset, content| collector.piece(offset, content),
        )?;
        Ok(collector.offer(id, walk.ended))
    }

    /// The server has flushed what was sent. Gives what was lost in it for good, by reason.
    pub(super) fn advance(&mut self, sent: &Offer) -> Vec<(GapReason, u64)> {
        let kept = &mut self.kept;
        let lost = sent.gaps.iter().filter(|gap| gap.end > kept.counted);
        let lost = lost.map(|gap| (gap.reason, gap.length)).collect();
        kept.counted = kept.counted.max(sent.end);
        kept.acknowledged = sent.end;
        kept.prefix = sent.end_prefix;
        kept.complete |= sent.last;
        kept.conflict = false;
        self.newer = false;
        self.held_until = None;
        self.rewinds = 0;
        lost
    }

    /// Goes on from where the server stands, if its bytes up to there are this segment's.
    pub(super) fn go_back(&mut self, offset: u64, crc: Prefix) -> io::Result<bool> {
        if offset > self.length || self.rewinds >= MOST_REWINDS || !self.has(offset, crc)? {
            return Ok(false);
        }
        self.rewinds += 1;
        self.kept.acknowledged = offset;
        self.kept.prefix = crc;
        self.kept.complete = false;
        self.kept.conflict = false;
        self.held_until = None;
        Ok(true)
    }

    /// Whether the bytes up to `offset` may be those that the server has. Where some are gone or
    /// damaged since they were sent, no one can say otherwise.
    fn has(&self, offset: u64, crc: Prefix) -> io::Result<bool> {
        let Some(form) = &self.form else {
            return Ok(true);
        };
        if !form.is_original() {
            return Ok(true);
        }
        let mut prefix = Prefix::default();
        let mut collector = Collector::new(&self.kept, usize::MAX);
        let mut at = 0;
        let walk = form.walk(self.kept.facts.as_ref(), 0, &mut |begin, content| {
            collector.refined(begin, content, &mut |piece_at, content| {
                if piece_at >= offset {
                    return ControlFlow::Break(());
                }
                prefix = over(prefix, content);
                at = piece_at + super::form::covered(content);
                ControlFlow::Continue(())
            })
        })?;
        // A record that was sent whole and looks torn now is damaged in its length.
        let is_torn = at < offset;
        Ok(walk.damage || is_torn || (at, prefix) == (offset, crc))
    }

    pub(super) fn hold_in_conflict(&mut self, now: Duration) {
        self.kept.conflict = true;
        self.rewinds = 0;
        self.held_until = Some(now + HOLD);
    }

    pub(super) fn hold_newer(&mut self, now: Duration) {
        self.newer = true;
        self.held_until = Some(now + HOLD);
    }

    /// What its batches repeat of its spool's header.
    pub(super) fn facts(&self) -> Option<&SpoolFacts> {
        self.kept.facts.as_ref()
    }
}
