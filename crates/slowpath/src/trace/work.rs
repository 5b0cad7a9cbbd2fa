// SPDX-License-Identifier: Apache-2.0
//! Passes over the capture, with their progress.

use super::Numbered;
use super::error::TraceError;
use super::input::Source;
use crate::render::bytes;
use slowpath_model::Micros;
use slowpath_trace::engine::{self, Began, Finished, Follow, Progress, Summary};
use slowpath_trace::picture::{Recorder, Recording};
use slowpath_trace::segment::Segment;
use slowpath_trace::tcp::{Connection, Options, Side};
use slowpath_trace::verdict::{self, Judged, Trial};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Work shorter than this shows no progress.
const WORTH: Duration = Duration::from_secs(2);

/// Points kept for drawing, all connections together.
const POINTS: usize = 2 << 20;

/// What a pass over the whole capture gave.
pub struct Analysis {
    /// What there was beside the connections.
    pub summary: Summary,
    /// The connections that were kept, worst first.
    pub connections: Vec<Numbered>,
    /// Whether any connection had a problem, kept or not.
    pub troubled: bool,
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

/// What connections are ranked by, the worst first: the time they had problems, then their
/// data, then their first frame.
type Rank = (Reverse<Option<Duration>>, Reverse<u64>, u64);

fn rank(judged: &Judged, first_frame: u64) -> Rank {
    let both = [Side::Client, Side::Server];
    let worst = both.iter().map(|s| trouble(judged, *s)).max();
    let bytes = both.iter().map(|s| judged.report.sent_by(*s).data.bytes);
    (Reverse(worst), Reverse(bytes.sum::<u64>()), first_frame)
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

    fn finish(self) -> Outcome {
        let judged = self.trial.finish();
        let rank = rank(&judged, self.first_frame);
        let both = [Side::Client, Side::Server];
        let found = |s: &Side| !judged.verdicts.sent_by(*s).findings.is_empty();
        Outcome {
            rank,
            troubled: both.iter().any(found),
            judged: (self.worst.takes(rank)).then(|| Box::new(judged)),
        }
    }
}

/// Analyses everything and keeps so many connections, the worst.
pub fn analyse(
    source: &mut Source,
    options: &engine::Options,
    keep: usize,
) -> Result<Analysis, TraceError> {
    let mut kept: Vec<(Rank, Finished<Box<Judged>>)> = Vec::new();
    let mut firsts = Vec::new();
    let mut troubled = false;
    let mut bar = Bar::new("reading");
    let worst = Worst {
        keep,
        ranks: Mutex::default(),
    };
    let summary = engine::run(
        source.inputs()?,
        options,
        |first, began| Ranked {
            trial: Trial::of(begin(first, began), &verdict::Options::default()),
            first_frame: first.frame,
            worst: &worst,
        },
        |finished: Finished<Outcome>| {
            troubled |= finished.report.troubled;
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
        |progress| bar.at(progress),
    )?;
    firsts.sort_unstable();
    kept.sort_unstable_by_key(|(rank, _)| *rank);
    kept.truncate(keep);
    let number = |first: u64| firsts.partition_point(|f| *f < first) as u64 + 1;
    let connections = kept.into_iter().map(|(_, finished)| Numbered {
        number: number(finished.first_frame),
        finished,
    });
    Ok(Analysis {
        summary,
        connections: connections.collect(),
        troubled,
    })
}

/// Follows a connection only if it is wanted.
pub enum Wanted<F> {
    /// It is, by this.
    Yes(Box<F>),
    /// It is not.
    No,
}

impl<F: Follow> Follow for Wanted<F> {
    type Report = Option<F::Report>;

    fn segment(&mut self, segment: &Segment<'_>) {
        if let Wanted::Yes(follower) = self {
            follower.segment(segment);
        }
    }

    fn finish(self) -> Option<F::Report> {
        match self {
            Wanted::Yes(follower) => Some(follower.finish()),
            Wanted::No => None,
        }
    }
}

/// Records the connections that begin with these frames, each with its first frame.
pub fn record(
    source: &mut Source,
    options: &engine::Options,
    first_frames: &BTreeSet<u64>,
) -> Result<Vec<(u64, Recording)>, TraceError> {
    let limit = POINTS / first_frames.len().max(1);
    let mut recordings = Vec::new();
    let mut bar = Bar::new("drawing");
    engine::run(
        source.inputs()?,
        options,
        |first, began| {
            if first_frames.contains(&first.frame) {
                Wanted::Yes(Box::new(Recorder::new(begin(first, began), limit)))
            } else {
                Wanted::No
            }
        },
        |finished| recordings.extend(finished.report.map(|r| (finished.first_frame, r))),
        |progress| bar.at(progress),
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
    source: &mut Source,
    options: &engine::Options,
    first_frame: u64,
) -> Result<Vec<u64>, TraceError> {
    let mut frames = Vec::new();
    let mut bar = Bar::new("extracting");
    engine::run(
        source.inputs()?,
        options,
        |first, _| {
            if first.frame == first_frame {
                Frames::Of(Vec::new())
            } else {
                Frames::Other
            }
        },
        |finished| frames.extend(finished.report.unwrap_or_default()),
        |progress| bar.at(progress),
    )?;
    Ok(frames)
}

/// Progress by bytes on standard error, on a terminal only.
pub struct Bar {
    what: &'static str,
    began: Instant,
    on: bool,
    shown: bool,
}

impl Bar {
    /// Of work that begins now.
    pub fn new(what: &'static str) -> Self {
        Bar {
            what,
            began: Instant::now(),
            on: std::io::stderr().is_terminal(),
            shown: false,
        }
    }

    /// So far it is.
    pub fn at(&mut self, progress: Progress) -> ControlFlow<()> {
        let elapsed = self.began.elapsed();
        if self.on && elapsed > WORTH {
            self.shown = true;
            eprint!("\r\x1b[K{}", line(self.what, elapsed, progress));
            // A terminal that is gone shows no progress.
            let _ = std::io::stderr().flush();
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }
}

fn line(what: &str, elapsed: Duration, progress: Progress) -> String {
    const CELLS: usize = 20;
    let done = progress.bytes;
    let Some(total) = progress.total.filter(|total| *total > 0) else {
        return format!("{what} {}, {} packets", bytes(done), progress.frames);
    };
    let share = (done as f64 / total as f64).min(1.0);
    let full = (share * CELLS as f64) as usize;
    let left = if share > 0.0 {
        let seconds = elapsed.as_secs_f64() * (1.0 / share - 1.0);
        format!("{} left", Micros((seconds * 1e6) as u64))
    } else {
        String::new()
    };
    format!(
        "{what} [{}{}] {left}  {} of {}, {} packets",
        "#".repeat(full),
        ".".repeat(CELLS - full),
        bytes(done),
        bytes(total),
        progress.frames,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_bytes() {
        let at = |bytes, total| Progress {
            bytes,
            total,
            frames: 7,
        };
        let text = line("reading", Duration::from_secs(5), at(250, Some(1000)));
        assert!(text.contains("15.0s left"), "{text}");
        assert_eq!(text.matches('#').count(), 5);
        assert!(line("reading", WORTH, at(2048, None)).contains("2.0 KiB, 7 packets"));
    }
}
