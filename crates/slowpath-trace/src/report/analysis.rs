// SPDX-License-Identifier: Apache-2.0
//! Passes over a capture: one that ranks its connections, one that records those to be drawn,
//! one that collects a connection's frames.

use super::overview::{Digest, Overview};
use super::translated::{Opened, Translated};
use super::{Artefacts, RankedConnection};
use crate::engine::{self, Began, Finished, Follow, Progress, Summary};
use crate::picture::{Recorder, Recording};
use crate::read::{Inputs, ReadError};
use crate::segment::{Segment, Timestamp};
use crate::tcp::{Connection, Moment, Options, Side};
use crate::verdict::{self, Judged, Trial};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Points kept for drawing, all connections combined.
const POINTS: usize = 2 << 20;

/// What a pass over the whole capture gave.
pub struct Analysis {
    /// What there was beside the connections.
    pub summary: Summary,
    /// The connections that were kept, worst first.
    pub connections: Vec<RankedConnection>,
    /// Whether any connection had a problem, kept or not.
    pub troubled: bool,
    /// What the capturing did to the packets of all connections, kept or not.
    pub artefacts: Artefacts,
    /// What all connections amount to, kept or not.
    pub overview: Overview,
}

/// A connection as the engine begins it.
pub fn begin(first: &Segment<'_>, began: Began) -> Connection {
    let options = Options::default();
    match began {
        Began::Fresh => Connection::new(first, &options),
        Began::OnReusedPorts => Connection::on_reused_ports(first, &options),
    }
}

/// Time that the data of one side had problems.
pub fn trouble(judged: &Judged, side: Side) -> Duration {
    let verdict = judged.verdicts.sent_by(side);
    let shares = verdict.line.shares();
    let times = verdict
        .findings
        .iter()
        .map(|f| shares.of_problem(f.problem));
    times.sum()
}

/// What connections are ranked by, the worst first: what their worst problem cost, then their
/// data, then their first frame.
type Rank = (Reverse<Option<Duration>>, Reverse<u64>, u64);

fn rank(judged: &Judged, digest: &Digest, first_frame: u64) -> Rank {
    let both = [Side::Client, Side::Server];
    let bytes = both.iter().map(|s| judged.report.sent_by(*s).data.bytes);
    (
        Reverse(digest.cost()),
        Reverse(bytes.sum::<u64>()),
        first_frame,
    )
}

/// The ranks of the worst connections so far. Workers ask it, so that what is not among
/// the worst is dropped where it was made.
struct Worst {
    keep: usize,
    ranks: Mutex<BinaryHeap<Rank>>,
}

impl Worst {
    /// Whether a connection is among the worst so far; a later one may displace it.
    fn takes(&self, rank: Rank) -> bool {
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        if ranks.len() < self.keep {
            ranks.push(rank);
            return true;
        }
        match ranks.peek_mut() {
            Some(mut best) if rank < *best => {
                *best = rank;
                true
            }
            _ => false,
        }
    }
}

/// A connection on trial that is kept only if it is among the worst.
struct Ranked<'a> {
    trial: Trial,
    first_frame: u64,
    worst: &'a Worst,
}

/// What becomes of it.
struct Outcome {
    rank: Rank,
    troubled: bool,
    artefacts: Artefacts,
    opened: Option<Opened>,
    digest: Digest,
    judged: Option<Box<Judged>>,
}

impl Follow for Ranked<'_> {
    type Report = Outcome;

    fn segment(&mut self, segment: &Segment<'_>) {
        self.trial.segment(segment);
    }

    fn prefetch(&self) {
        self.trial.prefetch();
    }

    fn unreachable(&mut self, at: Moment, refused: bool) {
        self.trial.unreachable(at, refused);
    }

    fn silent_until(&mut self, time: Timestamp) {
        self.trial.silent_until(time);
    }

    fn finish(self) -> Outcome {
        let judged = self.trial.finish();
        let digest = Digest::of(&judged, self.first_frame);
        let rank = rank(&judged, &digest, self.first_frame);
        Outcome {
            rank,
            digest,
            troubled: judged.verdicts.is_troubled(),
            artefacts: Artefacts::of(&judged.report),
            opened: Opened::of(
                &judged.report,
                judged.verdicts.vantage.initial,
                self.first_frame,
            ),
            judged: (self.worst.takes(rank)).then(|| Box::new(judged)),
        }
    }
}

/// Analyses everything and keeps so many connections, the worst.
pub fn analyse(
    inputs: Inputs,
    options: &engine::Options,
    keep: usize,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Analysis, ReadError> {
    analyse_all(inputs, options, keep, &mut progress)
}

/// The same, not generic: what runs for each segment is compiled here, with all that it calls.
fn analyse_all(
    inputs: Inputs,
    options: &engine::Options,
    keep: usize,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Analysis, ReadError> {
    let mut kept: Vec<(Rank, Finished<Box<Judged>>)> = Vec::new();
    let mut firsts = Vec::new();
    let mut troubled = false;
    let mut artefacts = Artefacts::default();
    let mut translated = Translated::default();
    let mut overview = Overview::default();
    let worst = Worst {
        keep,
        ranks: Mutex::default(),
    };
    let summary = engine::run(
        inputs,
        options,
        |first, began| Ranked {
            trial: Trial::of(begin(first, began), &verdict::Options::default()),
            first_frame: first.frame,
            worst: &worst,
        },
        |finished: Finished<Outcome>| {
            troubled |= finished.report.troubled;
            artefacts += finished.report.artefacts;
            translated.add(finished.report.opened);
            overview.add(&finished.report.digest);
            firsts.push(finished.first_frame);
            let rank = finished.report.rank;
            if let Some(finished) = finished.filter_map(|outcome| outcome.judged) {
                kept.push((rank, finished));
            }
            if kept.len() > keep.saturating_mul(2).saturating_add(256) {
                kept.sort_unstable_by_key(|(rank, _)| *rank);
                kept.truncate(keep);
            }
        },
        progress,
    )?;
    firsts.sort_unstable();
    kept.sort_unstable_by_key(|(rank, _)| *rank);
    kept.truncate(keep);
    let number = |first: u64| firsts.partition_point(|f| *f < first) as u64 + 1;
    overview.number(number);
    artefacts.translated(&translated.pairs(), number);
    let connections = kept.into_iter().map(|(_, finished)| RankedConnection {
        number: number(finished.first_frame),
        finished,
    });
    Ok(Analysis {
        summary,
        connections: connections.collect(),
        troubled,
        artefacts,
        overview,
    })
}

/// A connection that is followed only if it is selected.
pub enum Selected<F> {
    /// It is selected; this follows it.
    Follow(Box<F>),
    /// It is not selected.
    Skip,
}

impl<F: Follow> Follow for Selected<F> {
    type Report = Option<F::Report>;

    fn segment(&mut self, segment: &Segment<'_>) {
        if let Selected::Follow(follower) = self {
            follower.segment(segment);
        }
    }

    fn silent_until(&mut self, time: Timestamp) {
        if let Selected::Follow(follower) = self {
            follower.silent_until(time);
        }
    }

    fn finish(self) -> Option<F::Report> {
        match self {
            Selected::Follow(follower) => Some(follower.finish()),
            Selected::Skip => None,
        }
    }
}

/// Records the connections that begin with these frames, each with its first frame.
pub fn record(
    inputs: Inputs,
    options: &engine::Options,
    first_frames: &BTreeSet<u64>,
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<(u64, Recording)>, ReadError> {
    let limit = POINTS / first_frames.len().max(1);
    let mut recordings = Vec::new();
    engine::run(
        inputs,
        options,
        |first, began| {
            if first_frames.contains(&first.frame) {
                Selected::Follow(Box::new(Recorder::new(begin(first, began), limit)))
            } else {
                Selected::Skip
            }
        },
        |finished| recordings.extend(finished.report.map(|r| (finished.first_frame, r))),
        progress,
    )?;
    Ok(recordings)
}

/// Collects the frames of one connection.
enum Frames {
    Of(Vec<u64>),
    Other,
}

impl Follow for Frames {
    type Report = Option<Vec<u64>>;

    fn segment(&mut self, segment: &Segment<'_>) {
        if let Frames::Of(frames) = self {
            frames.push(segment.frame);
        }
    }

    fn finish(self) -> Option<Vec<u64>> {
        match self {
            Frames::Of(frames) => Some(frames),
            Frames::Other => None,
        }
    }
}

/// The frames of the connection that begins with this one, in order.
pub fn frames(
    inputs: Inputs,
    options: &engine::Options,
    first_frame: u64,
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<u64>, ReadError> {
    let mut frames = Vec::new();
    engine::run(
        inputs,
        options,
        |first, _| {
            if first.frame == first_frame {
                Frames::Of(Vec::new())
            } else {
                Frames::Other
            }
        },
        |finished| frames.extend(finished.report.unwrap_or_default()),
        progress,
    )?;
    Ok(frames)
}
