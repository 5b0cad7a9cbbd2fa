// SPDX-License-Identifier: Apache-2.0
//! Makes recordings small: times that are near the true ones, and that a replay cannot distinguish from them.
//!
//! 1. The recording is replayed as it is; the kernel reports what each run sent and left, and what came of every comparison of clocks (RACK's window, the end of slow start,
//!    segments of a piece, an estimate in ticks: `lab/kernel/patches/0009*`).
//! 2. Connections get times that take few bits ([`InexactTimes`]), and are replayed again, with what came of the comparisons. The kernel reports which of them would have come out
//!    otherwise; of those the outcome is recorded, the others follow from the times.
//! 3. What is left is replayed once more. Where every run sent the same headers and left the same state, but for clocks, these are the connection's times, and the checks of
//!    this replay its checks.
//! 4. Where a run did not, the connection is tried again with a bound half as large. What no bound helps keeps its true times, as those have whose congestion control goes
//!    by them.

use super::replay::{ReplayError, ReplayOptions, batches, replay};
use super::result::{Replayed, RunReport};
use slowpath_lab::virtual_time::Kernel;
use slowpath_lab::virtual_time::Progress;
use slowpath_recording::{Connection, InexactTimes, Recording};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How small, and how.
#[derive(Clone, Debug)]
pub struct ShrinkOptions {
    /// No time is further from the true one, in nanoseconds.
    pub within: u32,
    /// A kernel is killed after so much silence.
    pub patience: Duration,
}

impl Default for ShrinkOptions {
    fn default() -> Self {
        ShrinkOptions {
            within: slowpath_recording::sampling::DEFAULT_THRESHOLD,
            patience: Duration::from_secs(60),
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Shrunk {
    /// The same connections, smaller.
    pub recording: Recording,
    /// Those that no replay could distinguish from the true ones, by the bound of their times in nanoseconds, the largest first: 0 keeps the true ones.
    pub within: Vec<(u32, usize)>,
    /// Connections that were not replayed as they were recorded, could not be, or have near times already: left as they are.
    pub untouched: Vec<usize>,
    /// Replays of connections, in all.
    pub replays: usize,
    /// What the kernels' processes took.
    pub wall: Duration,
}

/// Their times are what they go by.
const EXACT: [&str; 1] = ["bbr"];
/// Bounds are halved so often.
const HALVINGS: u32 = 4;
/// How much a time in the middle of the bound is worth, in bits.
const CENTRED: f64 = 3.0;
/// Runs that are reported at once.
const AT_ONCE: usize = 1 << 19;

/// Makes a recording smaller, in a folder that is there and empty.
///
/// # Errors
/// As [`replay`].
pub fn shrink(
    kernel: &Kernel,
    recording: &Recording,
    options: &ShrinkOptions,
    folder: &Path,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Shrunk, ReplayError> {
    let mut work = Work {
        kernel,
        options,
        folder,
        progress,
        replays: 0,
        wall: Duration::ZERO,
    };
    let mut out = recording.clone();
    let mut untouched: Vec<usize> = Vec::new();
    let runs = |place: &usize| -> usize {
        let ends = &recording.connections[*place].ends;
        ends.iter().map(|end| end.runs.len()).sum()
    };
    // As exact as a recording can be, and whole.
    let is_true = |place: &usize| {
        let connection = &recording.connections[*place];
        connection.replayable().is_ok() && connection.ends.iter().all(|end| end.within == 0)
    };
    let (all, others): (Vec<usize>, _) = (0..recording.connections.len()).partition(is_true);
    untouched.extend(others);
    let mut all = all.into_iter().peekable();
    while all.peek().is_some() {
        let mut chosen: Vec<usize> = Vec::new();
        let mut sum = 0;
        while let Some(place) = all.next_if(|place| sum == 0 || sum + runs(place) <= AT_ONCE) {
            sum += runs(&place);
            chosen.push(place);
        }
        work.shrink(recording, &chosen, &mut out, &mut untouched)?;
    }
    untouched.sort_unstable();
    let mut within = BTreeMap::new();
    for connection in &out.connections {
        let bound = connection.ends.iter().map(|end| end.within).max();
        *within.entry(Reverse(bound.unwrap_or(0))).or_insert(0) += 1;
    }
    Ok(Shrunk {
        recording: out,
        within: within
            .into_iter()
            .map(|(bound, count)| (bound.0, count))
            .collect(),
        untouched,
        replays: work.replays,
        wall: work.wall,
    })
}

/// A connection that has no times yet that do.
struct Pending {
    place: usize,
    truth: Effects,
}

/// Those with times that may do.
type Candidates = Vec<(Pending, Connection)>;

struct Work<'a> {
    kernel: &'a Kernel,
    options: &'a ShrinkOptions,
    folder: &'a Path,
    progress: &'a mut dyn FnMut(&Progress),
    replays: usize,
    wall: Duration,
}

/// What each run left.
type Effects = [Vec<RunReport>; 2];

impl Work<'_> {
    fn replay(
        &mut self,
        recording: &Recording,
        chosen: &[usize],
    ) -> Result<Vec<(usize, Effects, bool)>, ReplayError> {
        let mut all = Vec::new();
        for batch in batches(recording, chosen, 1) {
            let options = ReplayOptions {
                capture: None,
                report: true,
                patience: self.options.patience,
                ..ReplayOptions::default()
            };
            let Replayed {
                results,
                reported,
                wall,
                ..
            } = replay(
                self.kernel,
                recording,
                &batch,
                &options,
                self.folder,
                self.progress,
            )?;
            self.replays += batch.len();
            self.wall += wall;
            let found = results.into_iter().zip(reported);
            for (place, (result, reported)) in batch.into_iter().zip(found) {
                all.push((place, reported, result.difference.is_none()));
            }
        }
        Ok(all)
    }

    fn shrink(
        &mut self,
        recording: &Recording,
        chosen: &[usize],
        out: &mut Recording,
        untouched: &mut Vec<usize>,
    ) -> Result<(), ReplayError> {
        let mut pending = Vec::new();
        for (place, truth, exact) in self.replay(recording, chosen)? {
            let socket = &recording.connections[place].settings.socket[0];
            let algorithm = socket.get("congestion");
            let by_time = algorithm.is_some_and(|name| EXACT.contains(&name.as_str()));
            if !exact {
                untouched.push(place);
            } else if !by_time {
                pending.push(Pending { place, truth });
            }
        }
        for halving in 0..=HALVINGS {
            let bound = self.options.within >> halving;
            if pending.is_empty() || bound == 0 {
                break;
            }
            let learnt = pending.iter().map(|it| &recording.connections[it.place]);
            let mut near = InexactTimes::learn(learnt, bound, CENTRED);
            let (found, mut left) = self.attempt(pending, recording, &mut near)?;
            pending = self.prove(found, recording, out)?;
            pending.append(&mut left);
        }
        Ok(())
    }

    /// Replaces the connections that a replay distinguishes only if it is given more than is recorded; the others come back.
    fn prove(
        &mut self,
        found: Candidates,
        recording: &Recording,
        out: &mut Recording,
    ) -> Result<Vec<Pending>, ReplayError> {
        let (mut pending, connections): (Vec<Pending>, _) = found.into_iter().unzip();
        let mut kept = Recording {
            origin: recording.origin.clone(),
            connections,
            one_sided: Vec::new(),
        };
        let all: Vec<usize> = (0..pending.len()).collect();
        let mut same = vec![false; all.len()];
        for (place, reported, exact) in self.replay(&kept, &all)? {
            let it = &pending[place];
            if exact && is_same(&it.truth, &reported) {
                adopt(&mut kept.connections[place], &reported);
                out.connections[it.place] = std::mem::replace(
                    &mut kept.connections[place],
                    recording.connections[it.place].clone(),
                );
                same[place] = true;
            }
        }
        let mut same = same.into_iter();
        pending.retain(|_| same.next() != Some(true));
        Ok(pending)
    }

    /// Finds times with which a replay does the same, if it is given what came of comparisons; and what has none.
    fn attempt(
        &mut self,
        pending: Vec<Pending>,
        recording: &Recording,
        near: &mut InexactTimes,
    ) -> Result<(Candidates, Vec<Pending>), ReplayError> {
        let led = pending
            .iter()
            .map(|it| led(&recording.connections[it.place], &it.truth, near));
        let led = Recording {
            origin: recording.origin.clone(),
            connections: led.collect(),
            one_sided: Vec::new(),
        };
        let all: Vec<usize> = (0..pending.len()).collect();
        let mut reported = vec![None; all.len()];
        for (place, effects, exact) in self.replay(&led, &all)? {
            reported[place] = Some((effects, exact));
        }
        let (mut found, mut left) = (Vec::new(), Vec::new());
        let led = led.connections.into_iter().zip(reported);
        for (it, (mut connection, reported)) in pending.into_iter().zip(led) {
            match reported.filter(|(reported, exact)| *exact && is_same(&it.truth, reported)) {
                Some((reported, _)) => {
                    prune(&mut connection, &reported);
                    found.push((it, connection));
                }
                None => left.push(it),
            }
        }
        Ok((found, left))
    }
}

/// With times near the true ones, and all that came of comparisons.
fn led(truth: &Connection, reported: &Effects, near: &mut InexactTimes) -> Connection {
    let mut connection = truth.clone();
    for ((end, truth), reported) in connection.ends.iter_mut().zip(&truth.ends).zip(reported) {
        *end = near.end(truth);
        end.digest = 0;
        for (run, reported) in end.runs.iter_mut().zip(reported) {
            run.check = None;
            run.outcomes = reported
                .decided
                .iter()
                .map(|(outcome, _)| *outcome)
                .collect();
        }
    }
    connection
}

/// Without the outcomes that follow from the times.
fn prune(connection: &mut Connection, reported: &Effects) {
    for (end, reported) in connection.ends.iter_mut().zip(reported) {
        for (run, reported) in end.runs.iter_mut().zip(reported) {
            let needed = reported.decided.iter().filter(|(_, needed)| *needed);
            run.outcomes = needed.map(|(outcome, _)| *outcome).collect();
        }
    }
}

/// Whether every run did what the true one did.
fn is_same(truth: &Effects, reported: &Effects) -> bool {
    truth.iter().zip(reported).all(|(truth, reported)| {
        let mut both = truth.iter().zip(reported);
        truth.len() == reported.len()
            && both.all(|(truth, reported)| truth.effect == reported.effect)
    })
}

/// The checks of this replay are the connection's.
fn adopt(connection: &mut Connection, reported: &Effects) {
    for (end, reported) in connection.ends.iter_mut().zip(reported) {
        for (run, reported) in end.runs.iter_mut().zip(reported) {
            run.check = Some(reported.check);
        }
        end.digest = reported.last().map_or(0, |reported| reported.check);
    }
}
