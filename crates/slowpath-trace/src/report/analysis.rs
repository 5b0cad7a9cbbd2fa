// SPDX-License-Identifier: Apache-2.0
//! Passes over a capture: one that ranks its connections, one that records those to be drawn,
//! one that collects a connection's frames.

use super::overview::{Digest, Overview};
use super::selection::{Choice, Class, Keep, Rank, Selection, rank};
use super::translated::{Opened, Translated};
use super::{Artefacts, RankedConnection};
use crate::engine::{self, Began, Finished, Follow, Progress, Summary};
use crate::picture::{Recorder, Recording};
use crate::read::{Inputs, ReadError};
use crate::segment::{Segment, Timestamp};
use crate::tcp::{Connection, Moment, Options, Side};
use crate::verdict::{self, Judged, Trial};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
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
    /// Unanswered connections that were not kept though all were to be.
    pub unlisted: u64,
    /// All connections' first frames, in order.
    firsts: Vec<u64>,
}

impl Analysis {
    /// The first frames of those of these connections that were not kept.
    pub fn missing(&self, numbers: &[u64]) -> BTreeSet<u64> {
        let kept = |n: &u64| self.connections.iter().any(|c| c.number == *n);
        let first = |n: u64| self.firsts.get(usize::try_from(n.checked_sub(1)?).ok()?);
        let missing = numbers.iter().filter(|n| !kept(n));
        missing.filter_map(|n| first(*n).copied()).collect()
    }

    /// Reads the capture again to add the connections that begin with these frames.
    ///
    /// # Errors
    /// An input cannot be read.
    pub fn add(
        &mut self,
        inputs: Inputs,
        options: &engine::Options,
        first_frames: &BTreeSet<u64>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let begin = |first: &Segment<'_>, began| {
            if first_frames.contains(&first.frame) {
                let connection = begin(first, began);
                let trial = Trial::of(connection, &verdict::Options::default());
                Selected::Follow(Box::new(trial))
            } else {
                Selected::Skip
            }
        };
        let mut found = Vec::new();
        let each = |finished: Finished<Option<Judged>>| {
            found.extend(finished.filter_map(|judged| judged.map(Box::new)));
        };
        engine::run(inputs, options, begin, each, progress)?;
        let number = |first: u64| number(&self.firsts, first);
        let found = found.into_iter().map(|finished| RankedConnection {
            number: number(finished.first_frame),
            finished,
        });
        self.connections.extend(found);
        self.connections.sort_by_cached_key(|ranked| {
            let (judged, first) = (&ranked.finished.report, ranked.finished.first_frame);
            rank(judged, &Digest::of(judged, first), first)
        });
        // Only unanswered ones are left out.
        let added = first_frames.len() as u64;
        self.unlisted = self.unlisted.saturating_sub(added);
        Ok(())
    }
}

/// The number of the connection with that first frame, of all first frames in order.
fn number(firsts: &[u64], first: u64) -> u64 {
    firsts.partition_point(|f| *f < first) as u64 + 1
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

/// A connection on trial that is kept only if it is among the worst.
struct Ranked<'a> {
    trial: Trial,
    first_frame: u64,
    choice: &'a Choice<'a>,
}

/// What becomes of it.
struct Outcome {
    rank: Rank,
    class: Class,
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
        let (class, kept) = self.choice.takes(&judged, rank);
        Outcome {
            rank,
            class,
            digest,
            troubled: judged.verdicts.is_troubled(),
            artefacts: Artefacts::of(&judged.report),
            opened: Opened::of(
                &judged.report,
                judged.verdicts.vantage.initial,
                self.first_frame,
            ),
            judged: kept.then(|| Box::new(judged)),
        }
    }
}

/// Analyses everything and keeps some of the connections.
///
/// # Errors
/// An input cannot be read or is no capture.
pub fn analyse(
    inputs: Inputs,
    options: &engine::Options,
    keep: &Keep,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Analysis, ReadError> {
    analyse_all(inputs, options, keep, &mut progress)
}

/// The same, not generic: what runs for each segment is compiled here, with all that it calls.
fn analyse_all(
    inputs: Inputs,
    options: &engine::Options,
    keep: &Keep,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Analysis, ReadError> {
    let choice = Choice::new(keep);
    let mut kept = Selection::new(keep);
    let mut firsts = Vec::new();
    let mut troubled = false;
    let mut artefacts = Artefacts::default();
    let mut translated = Translated::default();
    let mut overview = Overview::default();
    let summary = engine::run(
        inputs,
        options,
        |first, began| Ranked {
            trial: Trial::of(begin(first, began), &verdict::Options::default()),
            first_frame: first.frame,
            choice: &choice,
        },
        |finished: Finished<Outcome>| {
            troubled |= finished.report.troubled;
            artefacts += finished.report.artefacts;
            translated.add(finished.report.opened);
            overview.add(&finished.report.digest);
            firsts.push(finished.first_frame);
            let (class, rank) = (finished.report.class, finished.report.rank);
            kept.add(class, rank, finished.filter_map(|outcome| outcome.judged));
        },
        progress,
    )?;
    firsts.sort_unstable();
    let number = |first: u64| number(&firsts, first);
    overview.number(number);
    artefacts.translated(&translated.pairs(), number);
    let (connections, unlisted) = kept.ranked(number);
    Ok(Analysis {
        summary,
        connections,
        troubled,
        artefacts,
        overview,
        unlisted,
        firsts,
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

    fn unreachable(&mut self, at: Moment, refused: bool) {
        if let Selected::Follow(follower) = self {
            follower.unreachable(at, refused);
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
