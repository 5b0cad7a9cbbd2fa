// SPDX-License-Identifier: Apache-2.0
//! What `slowpath trace` says of each end of a run, from the captures that the run made.
//!
//! What enters: a capture of all that passed a host's interface. What leaves: of each problem
//! that packets can show, a [`TraceVerdict`]. The library judges as the command does, with the
//! same options; it runs when the run's network is down, on one thread, as the oracle does.
//!
//! 1. An end is the direction of a connection that one side sends. It is judged in the capture of the
//!    sender's host, where the live classifier measures too. *Reordering* is judged in that of
//!    the receiver's host: the sender's packets leave in order.
//! 2. Found is what the trace has among its findings: losses whenever they happen, the rest from
//!    1 % of the connection's time on. Of what it only observes (`CongestionWindowLimited`,
//!    `SmallWrites`, `ZeroWindow`) the same 1 % counts, and each event where it counts events.
//! 3. *DelayedAck*: the finding. In a one-way stream the live classifier and the oracle count each
//!    late ACK of a lone segment, as SNAP does, whether it held something back or not; the trace
//!    reports only the late ACKs that did, and counts those of lone segments beside them
//!    ([`DirectionVerdict::delayed_acks`]). There the same quantity is compared: it is found if the
//!    trace reports it or counts one.
//! 4. *IdleBurst*: the trace counts bursts whether or not any of it was lost; it is found if the
//!    direction also had a loss that was repaired (the live classifier's rule 3).
//! 5. *SenderAppLimited* is found where none of the others is, as of the live classifier.

use crate::packet::{FILE_HEADER, records};
use serde::Serialize;
use slowpath_diagnose::Thresholds;
use slowpath_model::{FourTuple, Problem, ProblemSet};
use slowpath_trace::engine;
use slowpath_trace::read::{Input, Inputs, ReadError};
use slowpath_trace::report::analysis::begin;
use slowpath_trace::segment::Endpoint;
use slowpath_trace::tcp::{Moment, Side};
use slowpath_trace::verdict::{
    DirectionVerdict, Judged, Limit, Observation, Options, TraceProblem, Trial, Wait,
};
use std::io::Cursor;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

/// Problems that packets do not show: they are about a host's sockets.
const OF_HOSTS: [Problem; 3] = [
    Problem::ReceiverAppSlow,
    Problem::AcceptQueueOverflow,
    Problem::SynQueueOverflow,
];

/// The problems that packets show, `SenderAppLimited` first.
pub fn of_packets() -> impl Iterator<Item = Problem> {
    Problem::ALL.into_iter().filter(|p| !OF_HOSTS.contains(p))
}

/// What packets show of one problem of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TraceVerdict {
    /// Whether it was found; `None`: these packets do not show whether there is one.
    pub found: Option<bool>,
    /// How long, microseconds, where it has a duration.
    pub time_us: u64,
    /// That time's part of the connection's, in 0..=1.
    pub share: f64,
    /// How often, where it is counted.
    pub events: u64,
    /// The first and the last frame that show it.
    pub frames: Option<(u64, u64)>,
}

/// Every connection of a capture, judged by its packets up to a moment of the capture's clock
/// (nanoseconds): what the live classifier did not observe any more is not compared.
///
/// # Errors
/// It is no capture.
pub fn judge(pcap: &[u8], until: u64) -> Result<Vec<Judged>, ReadError> {
    let stream = Cursor::new(up_to(pcap, until).to_vec());
    let input = Input::Stream("the capture of a run".to_owned(), Box::new(stream));
    let options = engine::Options {
        threads: 1,
        ..engine::Options::default()
    };
    let mut judged = Vec::new();
    engine::run(
        Inputs::new(vec![input])?,
        &options,
        |first, began| Trial::of(begin(first, began), &Options::default()),
        |finished| judged.push(finished.report),
        |_| ControlFlow::Continue(()),
    )?;
    Ok(judged)
}

/// The capture's packets up to then.
fn up_to(pcap: &[u8], until: u64) -> &[u8] {
    let last = records(pcap).take_while(|record| record.at <= until).last();
    let header = pcap.len().min(FILE_HEADER);
    &pcap[..last.map_or(header, |record| record.end)]
}

/// The verdicts on the end whose addresses are these, for each of [`of_packets`]: from the
/// connections of its own host's capture and of its peer's. `hidden`: problems of which packets
/// do not show what decides about them at this end.
pub fn of_end(
    near: &[Judged],
    far: &[Judged],
    tuple: FourTuple,
    hidden: ProblemSet,
) -> Vec<(Problem, TraceVerdict)> {
    let near = find(near, tuple);
    let far = find(far, tuple);
    let verdict = |problem| {
        let from = match problem {
            Problem::Reordering => far,
            _ => near,
        };
        let mut verdict = from.map_or(TraceVerdict::default(), |(judged, side)| {
            of_problem(judged, side, problem)
        });
        if hidden.contains(problem) {
            verdict.found = None;
        }
        (problem, verdict)
    };
    let mut verdicts: Vec<_> = of_packets().skip(1).map(verdict).collect();
    let application = application(&verdicts, hidden);
    verdicts.insert(0, (Problem::SenderAppLimited, application));
    verdicts
}

/// Rule 5. What is not known of another problem may be what limits.
fn application(others: &[(Problem, TraceVerdict)], hidden: ProblemSet) -> TraceVerdict {
    let any = |found| others.iter().any(|(_, verdict)| verdict.found == found);
    let found = match (any(Some(true)), any(None)) {
        _ if hidden.contains(Problem::SenderAppLimited) => None,
        (true, _) => Some(false),
        (false, true) => None,
        (false, false) => Some(true),
    };
    TraceVerdict {
        found,
        ..TraceVerdict::default()
    }
}

/// The connection between these addresses, and the side of it that is the local one.
fn find(connections: &[Judged], tuple: FourTuple) -> Option<(&Judged, Side)> {
    let socket = |end: Endpoint| SocketAddr::new(end.address, end.port);
    let side = |judged: &Judged| {
        let (client, server) = (socket(judged.report.client), socket(judged.report.server));
        if FourTuple::new(client, server) == tuple {
            Some(Side::Client)
        } else if FourTuple::new(server, client) == tuple {
            Some(Side::Server)
        } else {
            None
        }
    };
    connections
        .iter()
        .find_map(|judged| Some((judged, side(judged)?)))
}

/// Rules 2 to 4.
fn of_problem(judged: &Judged, side: Side, problem: Problem) -> TraceVerdict {
    let verdict = judged.verdicts.sent_by(side);
    let observed = |observation| {
        let found = verdict
            .observed
            .iter()
            .find(|o| o.observation == observation);
        found.and_then(|o| o.events).unwrap_or(0)
    };
    match problem {
        Problem::CongestionWindowLimited => lasting(verdict, problem, Limit::CongestionWindow),
        Problem::SmallWrites => lasting(verdict, problem, Limit::SmallWrites),
        Problem::ZeroWindow => lasting(verdict, problem, Limit::ZeroWindow),
        Problem::SynRetransmit => {
            counted(judged, side, problem, observed(Observation::SynRetransmit))
        }
        Problem::Reordering => counted(judged, side, problem, observed(Observation::Reordering)),
        Problem::EcnMarked => counted(judged, side, problem, observed(Observation::EcnMarked)),
        Problem::IdleBurst => {
            let lost = [Problem::FastRetransmit, Problem::Timeout];
            let lost = lost.into_iter().any(|p| verdict.finding(p).is_some());
            let bursts = observed(Observation::IdleBurst);
            counted(judged, side, problem, if lost { bursts } else { 0 })
        }
        Problem::DelayedAck if judged.report.sent_by(side.peer()).data.bytes == 0 => {
            delayed_ack(verdict)
        }
        _ => of_finding(verdict, problem),
    }
}

/// Rule 3, of a one-way stream.
fn delayed_ack(verdict: &DirectionVerdict) -> TraceVerdict {
    let reported = of_finding(verdict, Problem::DelayedAck);
    let waits = verdict.delayed_acks.waits.iter().filter(|w| w.delayed);
    let (Some(false), Some(first)) = (reported.found, waits.clone().next()) else {
        return reported;
    };
    let counted = TraceVerdict {
        found: Some(true),
        events: waits.clone().count() as u64,
        frames: Some(numbers((first.sent, first.acked))),
        ..TraceVerdict::default()
    };
    timed(
        waits.map(Wait::duration).sum(),
        verdict.line.shares().total(),
        counted,
    )
}

/// What the trace reports, with the time that the problem took.
fn of_finding(verdict: &DirectionVerdict, problem: Problem) -> TraceVerdict {
    let finding = verdict.finding(problem);
    let found = TraceVerdict {
        found: (!verdict.unmeasured.contains(problem)).then_some(finding.is_some()),
        events: finding.and_then(|f| f.events).unwrap_or(0),
        frames: verdict.proof(problem).map(numbers),
        ..TraceVerdict::default()
    };
    let shares = verdict.line.shares();
    timed(shares.of_problem(problem), shares.total(), found)
}

/// Of a limit that the trace has no finding for.
fn lasting(verdict: &DirectionVerdict, problem: Problem, limit: Limit) -> TraceVerdict {
    let shares = verdict.line.shares();
    let (time, total) = (shares.of(limit), shares.total());
    let least = total.mul_f64(Thresholds::default().min_share);
    let window = problem == Problem::ZeroWindow;
    let unknown = verdict.unmeasured.contains(problem)
        || window && verdict.unmeasured.contains(Problem::ReceiverWindowLimited);
    let found = TraceVerdict {
        found: (!unknown).then_some(time > Duration::ZERO && time >= least),
        frames: (verdict.line.longest(limit)).map(|i| numbers((i.from, i.to))),
        ..TraceVerdict::default()
    };
    timed(time, total, found)
}

fn timed(time: Duration, total: Duration, other: TraceVerdict) -> TraceVerdict {
    TraceVerdict {
        time_us: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
        share: time.as_secs_f64() / total.as_secs_f64().max(1e-9),
        ..other
    }
}

fn counted(judged: &Judged, side: Side, problem: Problem, events: u64) -> TraceVerdict {
    let name = TraceProblem::of_live(problem);
    let mut findings = judged.verdicts.findings.iter();
    let finding = findings.find(|f| Some(f.problem) == name && f.from == Some(side));
    TraceVerdict {
        found: Some(events > 0),
        events,
        frames: finding.and_then(|f| f.frames).map(numbers),
        ..TraceVerdict::default()
    }
}

fn numbers((first, last): (Moment, Moment)) -> (u64, u64) {
    (first.frame, last.frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_after_the_observation_are_left_out() {
        let mut file = vec![0; FILE_HEADER];
        for seconds in [7_u32, 8, 9] {
            // Seconds, nanoseconds, captured and whole length, one byte.
            for word in [seconds, 5, 1, 1] {
                file.extend(word.to_le_bytes());
            }
            file.push(0);
        }
        let lengths =
            [6, 7_000_000_005, 8_999_999_999, 9_000_000_005].map(|at| up_to(&file, at).len());
        assert_eq!(lengths, [24, 24 + 17, 24 + 34, 24 + 51]);
        assert_eq!(up_to(&file[..10], u64::MAX).len(), 10);
    }
}
