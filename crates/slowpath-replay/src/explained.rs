// SPDX-License-Identifier: Apache-2.0
//! Why messages of recorded connections were slow: each connection replayed, and [`slowpath_explain`] asked about what came out.

use super::replay::{FIRST_PORT, ReplayError, ReplayOptions, replay};
use super::result::{Difference, Replayed};
use slowpath_explain::{self as explain, Explanation, Facts, Sent, State, Unexplained};
use slowpath_lab::virtual_time::Kernel;
use slowpath_lab::virtual_time::Progress;
use slowpath_lab::virtual_time::RunError;
use slowpath_recording::headers::{self, CaptureError, Header};
use slowpath_recording::{RecorderKind, Recording};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The recording has fewer connections.
    #[error("the recording has no connection {number}: it has {count}")]
    Missing {
        /// What was asked for.
        number: usize,
        /// What there is.
        count: usize,
    },
    /// What was replayed is not what was recorded: nothing can be said of it.
    #[error("connection {number} cannot be explained: its replay is not exact, it differs at run {} of the {}: {}", difference.run, ["client", "server"][usize::from(difference.end & 1)], difference.how)]
    Differs {
        /// Which.
        number: usize,
        /// Where.
        difference: Difference,
    },
    /// The kernel's capture is none.
    #[error("what the replay sent cannot be read: {0}")]
    Capture(#[from] CaptureError),
    /// Headers and recording do not fit each other.
    #[error("connection {number} cannot be explained: {error}")]
    Unexplained {
        /// Which.
        number: usize,
        /// Why.
        error: Unexplained,
    },
}

/// Headers at both ends of each replayed connection, in the order in which they were asked for; none without captures.
///
/// # Errors
/// A capture is not there, or none.
pub fn headers_of(replayed: &Replayed) -> Result<Vec<[Vec<Header>; 2]>, ExplainError> {
    let all = replayed.results.iter();
    let mut found: Vec<[Vec<Header>; 2]> = all.map(|_| Default::default()).collect();
    for (end, path) in replayed.captures.iter().flatten().enumerate() {
        let bytes =
            std::fs::read(path).map_err(|error| ReplayError::from(RunError::file(path, error)))?;
        for (pair, headers) in headers::read(&bytes)? {
            let place = usize::from(pair[0].port()).checked_sub(usize::from(FIRST_PORT));
            if let Some(ends) = place.and_then(|place| found.get_mut(place)) {
                ends[end] = headers;
            }
        }
    }
    Ok(found)
}

/// What was found of each connection, or why nothing was.
pub type Explained = Vec<Result<Vec<Explanation>, ExplainError>>;

/// Captures of both hosts of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captures {
    /// The connections that were replayed, by their places in the recording: the one at place *n* here has the port [`FIRST_PORT`] + *n*.
    pub places: Vec<usize>,
    /// The files: of the host of the ends that connected, and of the other.
    pub files: [PathBuf; 2],
}

/// Replays connections of a recording, by their places in it, in a folder that is there and empty, and explains their messages. The captures are in
/// that folder.
///
/// # Errors
/// There is no such connection, or no replay of any.
pub fn explain(
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    folder: &Path,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(Explained, Option<Captures>), ExplainError> {
    let count = recording.connections.len();
    if let Some(number) = chosen.iter().copied().find(|number| *number >= count) {
        return Err(ExplainError::Missing { number, count });
    }
    let options = ReplayOptions {
        probe: true,
        ..ReplayOptions::default()
    };
    let whole = |number: &usize| recording.connections[*number].replayable().is_ok();
    let whole: Vec<usize> = chosen.iter().copied().filter(whole).collect();
    let replayed = replay(kernel, recording, &whole, &options, folder, progress)?;
    let shown = Shown::of(&replayed)?;
    let one = |number: usize| {
        let Some(place) = whole.iter().position(|it| *it == number) else {
            let reason = recording.connections[number].replayable();
            let reason = reason.map_err(|reason| ReplayError::Unreplayable { number, reason });
            return reason.map(|()| Vec::new()).map_err(ExplainError::from);
        };
        let facts = shown.facts(recording, number, place)?;
        let explained = explain::explain(&facts);
        explained.map_err(|error| ExplainError::Unexplained { number, error })
    };
    let explained = chosen.iter().copied().map(one).collect();
    let captures = replayed.captures.map(|files| Captures {
        places: whole.clone(),
        files,
    });
    Ok((explained, captures))
}

/// What both ends of each connection of a replay with captures and probes sent, in the order in which they were asked for; or why that is not known.
///
/// # Errors
/// A capture is not there, or none.
pub fn sent(
    recording: &Recording,
    places: &[usize],
    replayed: &Replayed,
) -> Result<Vec<Result<[Sent; 2], ExplainError>>, ExplainError> {
    let shown = Shown::of(replayed)?;
    let one = |(place, number): (usize, &usize)| {
        let facts = shown.facts(recording, *number, place)?;
        let sent = explain::sent(&facts);
        let number = *number;
        sent.map_err(|error| ExplainError::Unexplained { number, error })
    };
    Ok(places.iter().enumerate().map(one).collect())
}

/// What a replay shows of its connections.
struct Shown<'a> {
    replayed: &'a Replayed,
    headers: Vec<[Vec<Header>; 2]>,
    /// By place and end.
    states: BTreeMap<(u32, u8), Vec<State>>,
}

impl<'a> Shown<'a> {
    fn of(replayed: &'a Replayed) -> Result<Self, ExplainError> {
        let mut states: BTreeMap<(u32, u8), Vec<State>> = BTreeMap::new();
        for probe in &replayed.probes {
            let end = states.entry((probe.connection, probe.end)).or_default();
            end.push(State::new(*probe.fields));
        }
        Ok(Shown {
            replayed,
            headers: headers_of(replayed)?,
            states,
        })
    }

    /// Of the connection with that number, which was replayed at that place, exactly.
    fn facts<'s>(
        &'s self,
        recording: &'s Recording,
        number: usize,
        place: usize,
    ) -> Result<Facts<'s>, ExplainError> {
        let result = self.replayed.results.get(place);
        if let Some(difference) = result.and_then(|it| it.difference.clone()) {
            return Err(ExplainError::Differs { number, difference });
        }
        let state = |end: u8| {
            let found = self.states.get(&(place as u32, end));
            found.map_or(&[][..], |states| states.as_slice())
        };
        Ok(Facts {
            connection: &recording.connections[number],
            headers: [&self.headers[place][0], &self.headers[place][1]],
            states: [state(0), state(1)],
            // Only its hosts have one clock.
            one_clock: recording.origin.recorder == RecorderKind::Laboratory,
        })
    }
}
