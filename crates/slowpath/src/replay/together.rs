// SPDX-License-Identifier: Apache-2.0
//! Recordings of several machines, read and joined. What could not be joined is told by name, and what it needs.

use crate::failure::Failure;
use crate::recording::{RecordingError, alone, load};
use slowpath_recorder::join::{Joined, join};
use slowpath_recording::Recording;
use std::path::PathBuf;

/// More ends that are alone are counted, not named.
const MOST_NAMED: usize = 8;

/// What files were read, and what came of them.
pub(crate) struct Together {
    pub files: Vec<PathBuf>,
    pub recordings: Vec<Recording>,
    pub joined: Joined,
}

/// Folders stand for the recordings in them.
fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |reason: String| Failure::Recording {
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
pub(crate) fn gather(paths: &[PathBuf], wanted: &[usize]) -> Result<Together, Failure> {
    let files = expand(paths)?;
    // Of several, numbers are those of what was joined.
    let wanted = if files.len() == 1 { wanted } else { &[] };
    let recordings: Result<Vec<Recording>, RecordingError> =
        files.iter().map(|it| load(it, wanted)).collect();
    let recordings = recordings?;
    let joined = join(&recordings);
    Ok(Together {
        files,
        recordings,
        joined,
    })
}

/// Connections with both ends, of one recording or joined of several, or those that are `wanted` of one that is too large; what is left out is told on standard error.
///
/// # Errors
/// A file that cannot be read; recordings with nothing that could be replayed.
pub(crate) fn read(paths: &[PathBuf], wanted: &[usize]) -> Result<Recording, Failure> {
    let together = gather(paths, wanted)?;
    let notes = together.notes();
    let nothing = together.joined.recording.connections.is_empty();
    if let (true, Some(first)) = (nothing, notes.first()) {
        let others = match notes.len() {
            1 => String::new(),
            many => format!(" (and {} more like it)", many - 1),
        };
        return Err(Failure::Recording {
            file: together.files.first().cloned().unwrap_or_default(),
            reason: format!("{first}{others}"),
        });
    }
    for note in &notes {
        eprintln!("slowpath: {note}");
    }
    Ok(together.joined.recording)
}

impl Together {
    fn file(&self, place: usize) -> String {
        let file = self.files.get(place);
        file.map_or_else(String::new, |file| file.display().to_string())
    }

    /// An end that is still alone, and why.
    pub(crate) fn unmatched(&self) -> impl Iterator<Item = (String, String)> {
        self.joined.unmatched.iter().map(|it| {
            let recording = &self.recordings[it.file];
            let first = recording.connections.len();
            let end = recording.one_sided.get(it.number - first);
            let name = end.map_or_else(String::new, alone::name);
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

    /// All that is not as somebody may think.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let all = self.joined.unmatched.len();
        for (name, why) in self.unmatched().take(MOST_NAMED) {
            notes.push(format!("{name}: {why}"));
        }
        if all > MOST_NAMED {
            let more = all - MOST_NAMED;
            notes.push(format!(
                "{more} more ends are alone; slowpath recording dump names them"
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
