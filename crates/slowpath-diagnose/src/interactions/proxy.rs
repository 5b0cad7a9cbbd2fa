// SPDX-License-Identifier: Apache-2.0
//! PipelinedProxy: a process passes data on from one connection to another, and one of them
//! slows the other (SNAP section 6.2, Figure 7).
//!
//! 1. One process owns both; data came in on *from* and went out on *to*, at least ten
//!    segments, and not more than twice as much one way as the other.
//! 2. A proxy accepts one side and opens the other: two accepted connections are two
//!    clients of a server, two opened ones two servers of a client. Where it is not known who opened
//!    one, they must have different peers.
//! 3. *Backed up*: what arrived on *from* waits unread (ReceiverAppSlow for 30 % of the
//!    window, or at the end of every interval more than a segment and a quarter of the receive buffer), and
//!    *to* is limited by something other than its application for 30 %. The cause is *to*.
//! 4. *Starved*: *to* is limited by nothing, nothing waits on *from*, and the other end of
//!    *from* is on this host and is limited for 30 %. The cause is that other end.
//! 5. If the cause's own limit is its receiver, and that receiver is a process on this host
//!    that is backed up itself, the cause lies behind it: the chain is followed to its end, through each
//!    process once. Data that comes back to a process makes the chain no longer.

use super::{Interaction, InteractionEvidence, InteractionKind, Interactions, LIMITS, PIECES};
use super::{Piece, ProxyFlow, Recent};
use crate::{Actor, Advice};
use slowpath_model::{FourTuple, Origin, Problem, TcpStats};
use std::collections::BTreeMap;

/// Segments that make a flow.
const FLOW_SEGMENTS: u64 = 10;
/// Connections of one process that are paired: the busiest each way.
const PAIRED: usize = 64;
/// Processes that a chain is followed through.
const LONGEST_CHAIN: usize = 16;

/// A pair that is a proxy's, with its cause.
struct ProxyPair<'a> {
    pid: u32,
    flow: ProxyFlow,
    suffers: &'a Recent,
    cause: &'a Recent,
    problem: Problem,
    bytes_in: u64,
    bytes_out: u64,
}

/// The connections of a host by their addresses, to find other ends.
struct Ends<'a> {
    by_namespace: BTreeMap<(u32, FourTuple), &'a Recent>,
    by_tuple: BTreeMap<FourTuple, Vec<&'a Recent>>,
}

impl<'a> Ends<'a> {
    fn of(host: &'a Interactions) -> Self {
        let mut ends = Ends {
            by_namespace: BTreeMap::new(),
            by_tuple: BTreeMap::new(),
        };
        for recent in host.connections.values() {
            let key = (recent.id.netns, recent.tuple);
            ends.by_namespace.insert(key, recent);
            ends.by_tuple.entry(recent.tuple).or_default().push(recent);
        }
        ends
    }

    /// The other end: in the same namespace, or else in the only other one that has these
    /// addresses.
    fn other(&self, recent: &Recent) -> Option<&'a Recent> {
        let tuple = recent.tuple.reversed();
        let here = self.by_namespace.get(&(recent.id.netns, tuple)).copied();
        here.or_else(|| match self.by_tuple.get(&tuple).map(Vec::as_slice) {
            Some(&[only]) => Some(only),
            _ => None,
        })
    }
}

type BackedUp<'a> = BTreeMap<u32, Vec<ProxyPair<'a>>>;

pub(super) fn proxies(host: &Interactions) -> Vec<Interaction> {
    let mut by_pid: BTreeMap<u32, Vec<&Recent>> = BTreeMap::new();
    for recent in host.connections.values() {
        let least = least_flow(recent);
        if let Some(pid) = recent.pid
            && (recent.sum(|p| p.bytes_received) >= least || recent.sum(|p| p.bytes_sent) >= least)
        {
            by_pid.entry(pid).or_default().push(recent);
        }
    }
    by_pid.retain(|_, connections| connections.len() > 1);
    if by_pid.is_empty() {
        return Vec::new();
    }
    let ends = Ends::of(host);
    let mut backed_up = BackedUp::new();
    let mut starved = Vec::new();
    for (pid, connections) in &by_pid {
        let incoming = busiest(connections, |p| p.bytes_received);
        let outgoing = busiest(connections, |p| p.bytes_sent);
        for (from, bytes_in) in &incoming {
            for (to, bytes_out) in &outgoing {
                if !passes_on(from, to) || *bytes_in > 2 * bytes_out || *bytes_out > 2 * bytes_in {
                    continue;
                }
                let pair = |flow, suffers, cause, problem| ProxyPair {
                    pid: *pid,
                    flow,
                    suffers,
                    cause,
                    problem,
                    bytes_in: *bytes_in,
                    bytes_out: *bytes_out,
                };
                match (waits(from), limit(to)) {
                    (true, Some(problem)) => {
                        let pair = pair(ProxyFlow::BackedUp, *from, *to, problem);
                        backed_up.entry(*pid).or_default().push(pair);
                    }
                    (false, None) if !queued(from) => {
                        if let Some(sender) = ends.other(from)
                            && sender.pid != Some(*pid)
                            && let Some(problem) = limit(sender)
                        {
                            starved.push(pair(ProxyFlow::Starved, *to, sender, problem));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    let pairs = backed_up.values().flatten().chain(&starved);
    pairs.map(|pair| explain(pair, &ends, &backed_up)).collect()
}

/// Condition 5: follows a pair that is backed up through further proxies to the cause.
fn explain<'a>(pair: &ProxyPair<'a>, ends: &Ends<'a>, backed_up: &BackedUp<'a>) -> Interaction {
    let (mut cause, mut problem) = (pair.cause, pair.problem);
    let mut processes = vec![pair.pid];
    while pair.flow == ProxyFlow::BackedUp
        && matches!(
            problem,
            Problem::ReceiverWindowLimited | Problem::ZeroWindow
        )
        && processes.len() < LONGEST_CHAIN
        && let Some(receiver) = ends.other(cause)
        && let Some(next) = receiver
            .pid
            .filter(|pid| !processes.contains(pid))
            .and_then(|pid| backed_up.get(&pid))
            .into_iter()
            .flatten()
            .find(|next| next.suffers.id == receiver.id)
    {
        (cause, problem) = (next.cause, next.problem);
        processes.push(next.pid);
    }
    interaction(pair, cause, problem, processes.len() as u32)
}

/// Bytes that make a flow.
fn least_flow(recent: &Recent) -> u64 {
    FLOW_SEGMENTS * u64::from(recent.send_mss.max(1))
}

/// Whether an interval carried enough, one way or the other, for its connection to be a flow:
/// with less in each of the intervals that are kept it is none.
pub fn may_flow(before: &TcpStats, after: &TcpStats) -> bool {
    let least = FLOW_SEGMENTS * u64::from(after.send_mss.max(1)) / PIECES as u64;
    let much = |before: u64, after: u64| after.saturating_sub(before) >= least;
    much(before.bytes_received, after.bytes_received)
        || much(before.bytes_acked, after.bytes_acked)
        || (before.bytes_sent.zip(after.bytes_sent)).is_some_and(|(from, to)| much(from, to))
}

/// The connections with most bytes one way, of those that make a flow.
fn busiest<'a>(
    connections: &[&'a Recent],
    bytes: impl Fn(&Piece) -> u64,
) -> Vec<(&'a Recent, u64)> {
    let mut flows: Vec<(&Recent, u64)> = connections
        .iter()
        .map(|r| (*r, r.sum(&bytes)))
        .filter(|(r, bytes)| *bytes >= least_flow(r))
        .collect();
    flows.sort_by_key(|(r, bytes)| (std::cmp::Reverse(*bytes), r.id));
    flows.truncate(PAIRED);
    flows
}

/// Conditions 1 and 2, volumes aside.
fn passes_on(from: &Recent, to: &Recent) -> bool {
    let sides = match (from.origin, to.origin) {
        (Origin::Accepted, Origin::Opened) | (Origin::Opened, Origin::Accepted) => true,
        (Origin::Unknown, _) | (_, Origin::Unknown) => from.tuple.remote != to.tuple.remote,
        _ => false,
    };
    from.id != to.id && sides && from.tuple != to.tuple.reversed()
}

/// Whether something is unread at the end of any interval.
fn queued(from: &Recent) -> bool {
    from.pieces.iter().any(|p| p.receive_queue > 0)
}

/// Whether what arrives waits for the application.
fn waits(from: &Recent) -> bool {
    let full = from.receive_buffer.unwrap_or(0) / 4;
    let much = full.max(from.send_mss);
    from.share(Problem::ReceiverAppSlow) >= LIMITS
        || (much > 0 && from.pieces.iter().all(|p| p.receive_queue > much))
}

/// What limits a sender, other than its application.
fn limit(to: &Recent) -> Option<Problem> {
    [
        Problem::SendBufferLimited,
        Problem::FastRetransmit,
        Problem::Timeout,
        Problem::DelayedAck,
        Problem::ReceiverWindowLimited,
        Problem::CongestionWindowLimited,
        Problem::ZeroWindow,
        Problem::EcnMarked,
    ]
    .into_iter()
    .map(|problem| (problem, to.share(problem)))
    .filter(|(_, share)| *share >= LIMITS)
    // The first of equal ones.
    .fold(None, |best: Option<(Problem, f64)>, next| match best {
        Some(best) if best.1 >= next.1 => Some(best),
        _ => Some(next),
    })
    .map(|(problem, _)| problem)
}

fn interaction(
    found: &ProxyPair<'_>,
    cause: &Recent,
    problem: Problem,
    processes: u32,
) -> Interaction {
    let mut connections = vec![found.suffers.id];
    if found.cause.id != cause.id {
        connections.push(found.cause.id);
    }
    connections.push(cause.id);
    let pid = found.pid;
    let what = match found.flow {
        ProxyFlow::BackedUp => format!(
            "Process {pid} passes on what it receives from {}, and what arrives waits because {} is \
             limited ({problem}). Act on that connection; the sender at {} is not the cause.",
            found.suffers.tuple.remote, cause.tuple, found.suffers.tuple.remote
        ),
        ProxyFlow::Starved => format!(
            "Process {pid} sends to {} only what it receives, and that is slow because {} is \
             limited ({problem}). Act on that connection.",
            found.suffers.tuple.remote, cause.tuple
        ),
    };
    let who = match problem {
        Problem::SendBufferLimited => Actor::SenderDeveloper,
        Problem::ReceiverWindowLimited | Problem::ZeroWindow | Problem::DelayedAck => {
            Actor::ReceiverSide
        }
        _ => Actor::NetworkOperator,
    };
    Interaction {
        kind: InteractionKind::PipelinedProxy,
        connections,
        evidence: InteractionEvidence::PipelinedProxy {
            pid,
            flow: found.flow,
            problem,
            share: cause.share(problem),
            cause: cause.tuple,
            bytes_in: found.bytes_in,
            bytes_out: found.bytes_out,
            processes,
        },
        advice: Advice {
            who,
            what,
            source: "SNAP section 6.2, Figure 7",
        },
    }
}
