// SPDX-License-Identifier: Apache-2.0
//! Light recordings, fitted: where the replay of a connection diverges from what was observed, what was inferred before is inferred otherwise ([`super::fit`]).
//!
//! 1. All are replayed as they were recorded. Those that do not diverge stay as they are.
//! 2. Of each of the others some candidates are replayed, all in the same kernels; the search learns where they diverged, and goes on with the best.
//! 3. Until none has any left.
//!
//! A fitted connection goes further than the unfitted one, or it is the unfitted one. Recordings of other recorders are never fitted.

use super::fit::{Change, RunPosition, Search};
use super::observed;
use super::replay::{ReplayError, ReplayOptions, batches, replay};
use super::result::Result as Replayed;
use slowpath_lab::virtual_time::{Kernel, RunError};
use slowpath_recording::{Connection, Recording};
use std::path::Path;
use std::time::Duration;

/// Candidates of one connection that are replayed at once.
const OF_ONE: usize = 48;
/// Runs that are replayed at once: the state after each is kept for a while, 184 bytes.
const AT_ONCE: usize = 1 << 18;

/// Runs that are replayed in all: a minute or two.
const MOST_RUNS: usize = 1 << 24;

/// How much may be tried.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// Kernels at a time.
    pub jobs: usize,
    /// Replays of connections, in all.
    pub most: usize,
    /// A kernel is killed after so much silence.
    pub patience: Duration,
}

impl Default for FitOptions {
    fn default() -> Self {
        FitOptions {
            jobs: 1,
            most: 50_000,
            patience: Duration::from_secs(60),
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Fitted {
    /// The same connections, those that could be fitted with what was changed.
    pub recording: Recording,
    /// What was changed, by the connection's place: of those of which something was.
    pub changes: Vec<(usize, Vec<Change>)>,
    /// Replays of connections, in all.
    pub replays: usize,
}

/// How far it is: what was replayed, and what is left.
#[derive(Clone, Copy, Debug, Default)]
pub struct FitProgress {
    /// Times that candidates were replayed.
    pub round: usize,
    /// Replays of connections.
    pub replays: usize,
    /// Most connections.
    pub most: usize,
    /// Connections for which something is left to try.
    pub searched: usize,
}

/// Fits some connections of a recording, by their places in it, in a folder that is there and empty.
///
/// # Errors
/// As [`replay`].
pub fn fit(
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    options: &FitOptions,
    folder: &Path,
    progress: &mut dyn FnMut(&FitProgress),
) -> std::result::Result<Fitted, ReplayError> {
    let mut fitted = Fitted {
        recording: recording.clone(),
        ..Fitted::default()
    };
    if !observed::is_light(recording) {
        return Ok(fitted);
    }
    let mut work = Work {
        kernel,
        options,
        folder,
        replays: 0,
        runs: 0,
    };
    let all = chosen
        .iter()
        .filter_map(|place| recording.connections.get(*place));
    let all = work.replay(recording, &all.collect::<Vec<_>>())?;
    let mut searches: Vec<(usize, Search)> = Vec::new();
    for (place, parted) in chosen.iter().zip(all) {
        if let (Some(parted), Some(connection)) = (parted, recording.connections.get(*place)) {
            searches.push((*place, Search::new(connection, parted)));
        }
    }
    let mut round = 0;
    while work.replays < options.most && work.runs < MOST_RUNS {
        let mut asked: Vec<&Connection> = Vec::new();
        let mut counts = Vec::with_capacity(searches.len());
        let mut runs = 0;
        for (_, search) in &mut searches {
            let own = search
                .best()
                .ends
                .iter()
                .map(|end| end.runs.len())
                .sum::<usize>();
            let room = AT_ONCE.saturating_sub(runs) / own.max(1);
            let most = if asked.is_empty() { room.max(1) } else { room };
            let before = asked.len();
            asked.extend(search.candidates(OF_ONE.min(most)));
            counts.push(asked.len() - before);
            runs += own * (asked.len() - before);
        }
        if asked.is_empty() {
            break;
        }
        let parted = work.replay(recording, &asked)?;
        let mut parted = parted.as_slice();
        for ((_, search), count) in searches.iter_mut().zip(counts.iter().copied()) {
            let (own, others) = parted.split_at(count.min(parted.len()));
            search.report(own);
            parted = others;
        }
        round += 1;
        progress(&FitProgress {
            round,
            replays: work.replays,
            most: options.most,
            searched: counts.iter().filter(|count| **count > 0).count(),
        });
    }
    for (place, search) in searches {
        if !search.changes().is_empty() {
            fitted.recording.connections[place] = search.best().clone();
            fitted.changes.push((place, search.changes().to_vec()));
        }
    }
    fitted.replays = work.replays;
    Ok(fitted)
}

struct Work<'a> {
    kernel: &'a Kernel,
    options: &'a FitOptions,
    folder: &'a Path,
    replays: usize,
    runs: usize,
}

impl Work<'_> {
    /// Where each diverges from what was observed.
    fn replay(
        &mut self,
        recording: &Recording,
        connections: &[&Connection],
    ) -> std::result::Result<Vec<Option<RunPosition>>, ReplayError> {
        self.replays += connections.len();
        let ends = connections.iter().flat_map(|it| &it.ends);
        self.runs += ends.map(|end| end.runs.len()).sum::<usize>();
        let asked = Recording {
            origin: recording.origin.clone(),
            connections: connections.iter().map(|it| (*it).clone()).collect(),
            one_sided: Vec::new(),
        };
        let all: Vec<usize> = (0..connections.len()).collect();
        let batches = batches(&asked, &all, self.options.jobs);
        let options = ReplayOptions {
            capture: None,
            patience: self.options.patience,
            ..ReplayOptions::default()
        };
        let one = |number: usize| -> std::result::Result<Vec<Replayed>, ReplayError> {
            let folder = self.folder.join(format!("fit-{number}"));
            let failed = |error| ReplayError::from(RunError::file(&folder, error));
            std::fs::create_dir(&folder).map_err(failed)?;
            let batch = &batches[number];
            let again = replay(self.kernel, &asked, batch, &options, &folder, &mut |_| {});
            let removed = std::fs::remove_dir_all(&folder).map_err(failed);
            let again = again?;
            removed?;
            Ok(again.results)
        };
        let mut parted = vec![None; connections.len()];
        for group in (0..batches.len())
            .collect::<Vec<_>>()
            .chunks(self.options.jobs.max(1))
        {
            let done = std::thread::scope(|scope| {
                let started: Vec<_> = group
                    .iter()
                    .map(|number| scope.spawn(|| one(*number)))
                    .collect();
                let done = started.into_iter().map(std::thread::ScopedJoinHandle::join);
                done.collect::<Vec<_>>()
            });
            for (number, results) in group.iter().zip(done) {
                let results = results.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                for (place, result) in batches[*number].iter().zip(results) {
                    parted[*place] = result.difference.map(|it| RunPosition {
                        end: it.end,
                        run: it.run,
                    });
                }
            }
        }
        Ok(parted)
    }
}
