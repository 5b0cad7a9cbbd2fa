// SPDX-License-Identifier: Apache-2.0
//! Recordings of several machines, read and joined. Notes name what could not be joined, and
//! what it needs.

use crate::file::{RecordingError, load};
use crate::one_sided;
use slowpath_recorder::join::{Joined, join};
use slowpath_recording::Recording;
use std::path::PathBuf;

/// Why recordings cannot be read and joined.
#[derive(Debug, thiserror::Error)]
pub enum CollectionError {
    /// A file cannot be read.
    #[error("{0}")]
    File(#[from] RecordingError),
    /// There is nothing to replay in them.
    #[error("cannot replay {file}: {reason}")]
    Unusable {
        /// Which file or folder.
        file: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Further one-sided recordings are counted, not named.
const MOST_NAMED: usize = 8;

/// Recordings of several files, joined.
#[derive(Debug)]
pub struct Collection {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The recording of each.
    pub recordings: Vec<Recording>,
    /// All of them, joined.
    pub joined: Joined,
}

/// Folders stand for the recordings in them.
fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CollectionError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |reason: String| CollectionError::Unusable {
            file: path.clone(),
            reason,
        };
        let entries = std::fs::read_dir(path).map_err(|error| failed(error.to_string()))?;
        let entries: Result<Vec<_>, _> = entries.map(|entry| entry.map(|it| it.path())).collect();
        let mut here = entries.map_err(|error| failed(error.to_string()))?;
        here.retain(|file| file.extension().is_some_and(|it| it == "rec"));
        if here.is_empty() {
            return Err(failed(
                "there is no recording (*.rec) in this folder".to_owned(),
            ));
        }
        here.sort();
        files.append(&mut here);
    }
    Ok(files)
}

/// Reads and joins. Of a file that is too large only the connections that are `wanted`.
///
/// # Errors
/// A file that cannot be read, or makes no sense.
pub fn gather(paths: &[PathBuf], wanted: &[usize]) -> Result<Collection, CollectionError> {
    let files = expand(paths)?;
    // Of several, numbers are those of what was joined.
    let wanted = if files.len() == 1 { wanted } else { &[] };
    let recordings: Result<Vec<Recording>, RecordingError> =
        files.iter().map(|it| load(it, wanted)).collect();
    let recordings = recordings?;
    let joined = join(&recordings);
    Ok(Collection {
        files,
        recordings,
        joined,
    })
}

/// Connections with both ends, of one recording or joined of several, or those that are `wanted` of one that is too large; and notes on what is left out.
///
/// # Errors
/// A file that cannot be read; recordings with nothing that could be replayed.
pub fn read(
    paths: &[PathBuf],
    wanted: &[usize],
) -> Result<(Recording, Vec<String>), CollectionError> {
    let collection = gather(paths, wanted)?;
    let notes = collection.notes();
    let nothing = collection.joined.recording.connections.is_empty();
    if let (true, Some(first)) = (nothing, notes.first()) {
        let others = match notes.len() {
            1 => String::new(),
            many => format!(" (and {} more like it)", many - 1),
        };
        return Err(CollectionError::Unusable {
            file: collection.files.first().cloned().unwrap_or_default(),
            reason: format!("{first}{others}"),
        });
    }
    Ok((collection.joined.recording, notes))
}

impl Collection {
    fn file(&self, place: usize) -> String {
        let file = self.files.get(place);
        file.map_or_else(String::new, |file| file.display().to_string())
    }

    /// The one-sided recordings that were not joined, and why.
    pub fn unmatched(&self) -> impl Iterator<Item = (String, String)> {
        self.joined.unmatched.iter().map(|it| {
            let recording = &self.recordings[it.file];
            let first = recording.connections.len();
            let end = recording.one_sided.get(it.number - first);
            let name = end.map_or_else(String::new, one_sided::name);
            let name = format!("{}, end {}: {name}", self.file(it.file), it.number);
            (name, self.named(&it.why.to_string()))
        })
    }

    /// Recordings are places where they are joined, files here.
    fn named(&self, why: &str) -> String {
        let mut text = why.to_owned();
        for place in (0..self.files.len()).rev() {
            text = text.replace(&format!("recording {place}"), &self.file(place));
        }
        text
    }

    /// What was not joined or left out.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let all = self.joined.unmatched.len();
        for (name, why) in self.unmatched().take(MOST_NAMED) {
            notes.push(format!("{name}: {why}"));
        }
        if all > MOST_NAMED {
            let more = all - MOST_NAMED;
            notes.push(format!(
                "{more} more ends are one-sided; slowpath recording dump names them"
            ));
        }
        for (place, short) in &self.joined.short {
            notes.push(format!("connection {place}: {short}"));
        }
        for (file, count) in &self.joined.whole {
            let file = self.file(*file);
            notes.push(format!(
                "left out: {count} connections with both ends in {file}; replay that file by itself"
            ));
        }
        if let Some([client, server]) = &self.joined.kernels {
            notes.push(format!(
                "the ends ran Linux {client} and {server}: one kernel replays both, and may differ from either"
            ));
        }
        notes
    }
}
