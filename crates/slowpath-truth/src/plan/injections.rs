// SPDX-License-Identifier: Apache-2.0
//! What is done to a run so that it has a problem, and the inequality that makes sure that it
//! has. Every inequality is in docs/reference/accuracy.md.

use super::draws::{any, exchange, most_rate, settle};
use super::{Group, Loss, Pace, Plan, Traffic};
use super::{further, interactions, listener_loads};
use crate::random::RandomStream;
use slowpath_model::Problem;

/// The problems that are injected, one class each.
// All but those of listening sockets, which come last.
pub const INJECTED: &[Problem] = Problem::ALL.split_at(Problem::SynRetransmit as usize + 1).0;

/// The pairs that are injected at once.
pub const PAIRS: &[(Problem, Problem)] = &[
    (Problem::FastRetransmit, Problem::ReceiverWindowLimited),
    (Problem::Timeout, Problem::ReceiverWindowLimited),
    (Problem::Timeout, Problem::DelayedAck),
    (Problem::SendBufferLimited, Problem::Timeout),
    (Problem::FastRetransmit, Problem::Timeout),
    (Problem::EcnMarked, Problem::FastRetransmit),
    (Problem::SynRetransmit, Problem::SendBufferLimited),
];

/// A buffer's bytes as the kernel counts them are at most this part of what the path holds:
/// payload is less than that.
const PART_OF_BDP: f64 = 0.5;

/// The smallest buffer, as the kernel counts it: some segments.
const LEAST_BUFFER: f64 = 16_384.0;

/// A run with one problem, or two.
pub(super) fn inject(group: Group, random: &mut RandomStream) -> Plan {
    let mut plan = any(random);
    match group {
        Group::Problem(problem) => one(problem, &mut plan, random),
        Group::Interaction(kind) => interactions::bring_about(kind, &mut plan, random),
        Group::Pair(one_of, other) => {
            // The second changes what the first left open.
            one(one_of, &mut plan, random);
            and(other, &mut plan, random);
        }
        _ => {}
    }
    plan
}

fn one(problem: Problem, plan: &mut Plan, random: &mut RandomStream) {
    match problem {
        Problem::SenderAppLimited => {
            plan.traffic = exchange(random, plan.tcp.mss, (5.0, 300.0));
        }
        Problem::SendBufferLimited => {
            // A last buffer is filled up to 64 KiB, whatever SO_SNDBUF says, unless buffers
            // are segments.
            let more = if plan.path.single { 0.0 } else { 65_536.0 };
            plan.tcp.send_buffer = Some(buffer_below_bdp(plan, random, more));
        }
        Problem::ReceiverWindowLimited => receiver_window(plan, random),
        Problem::FastRetransmit => fast_retransmit(plan, random),
        Problem::Timeout => timeout(plan, random),
        Problem::DelayedAck => delayed_ack(plan, random),
        Problem::CongestionWindowLimited => further::window(plan, random),
        Problem::SmallWrites => further::small_writes(plan, random),
        Problem::IdleBurst => further::idle_burst(plan, random),
        Problem::ZeroWindow => further::zero_window(plan, random),
        Problem::Reordering => further::reordering(plan, random),
        Problem::EcnMarked => further::marks(plan, random),
        Problem::ReceiverAppSlow => further::slow_application(plan, random),
        Problem::SynRetransmit => further::opening(plan, random),
        Problem::AcceptQueueOverflow => listener_loads::accept(plan, random),
        Problem::SynQueueOverflow => listener_loads::half_open(plan, random),
    }
}

/// Bulk over a path that holds more than a buffer: draws rate and RTT until it does, and gives
/// SO_SNDBUF or SO_RCVBUF, half of what the kernel makes of it. `more` is what the buffer may
/// hold above that.
pub(super) fn buffer_below_bdp(plan: &mut Plan, random: &mut RandomStream, more: f64) -> u32 {
    let least_bdp = 1.2 * (LEAST_BUFFER + more) / PART_OF_BDP;
    let most = most_rate(plan.tcp.mss);
    // Bytes in a millisecond of a Mbit/s: 125.
    let rtt_ms = random.log_uniform(1.1 * least_bdp / (125.0 * most), 200.0);
    let rate = random.log_uniform(least_bdp / (125.0 * rtt_ms), most);
    plan.path.rtt_us = (rtt_ms * 1000.0) as u64;
    plan.path.rate_kbit = (rate * 1000.0) as u64;
    let factor = random.uniform(1.0, 2.5);
    settle(plan, factor);
    plan.traffic = bulk(random);
    let bdp = plan.path.bdp() as f64;
    let doubled = random.log_uniform(LEAST_BUFFER, PART_OF_BDP * bdp - more);
    (doubled / 2.0) as u32
}

pub(super) fn bulk(random: &mut RandomStream) -> Traffic {
    Traffic::Bulk {
        write: random.log_uniform(1_000.0, 65_536.0) as u32,
    }
}

/// A window below the bandwidth-delay product, or a reader at half of the path's rate or less
/// with a buffer that is full within half a second.
fn receiver_window(plan: &mut Plan, random: &mut RandomStream) {
    if random.chance(0.5) {
        plan.tcp.receive_buffer = Some(buffer_below_bdp(plan, random, 0.0));
        return;
    }
    plan.traffic = bulk(random);
    // Bytes a second: kbit/s times 125.
    slow_reader(plan, random, plan.path.rate_kbit as f64 * 125.0);
}

/// Reads at half of what comes, or less; `path` is what could come, bytes a second.
pub(super) fn slow_reader(plan: &mut Plan, random: &mut RandomStream, path: f64) {
    let read = path * random.uniform(0.2, 0.5);
    let buffer = random.log_uniform(8_192.0, (path / 8.0).clamp(10_000.0, 65_536.0));
    plan.tcp.receive_buffer = Some(buffer as u32);
    let bytes = random.log_uniform(1_000.0, 16_000.0);
    plan.pace = Pace::Slow {
        bytes: bytes as u32,
        pause_us: (bytes / read * 1e6) as u64,
    };
}

/// Bulk that loses single segments, so far from each other that the window between two losses is eight
/// segments and more (Mathis: 1.22 / sqrt(p)), three of them at least in the run.
pub(super) fn fast_retransmit(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = bulk(random);
    let every = random.log_uniform(60.0, 200.0);
    // Half as fast as that, three losses away, and a third of it more.
    let length = 4.0 * every / (0.5 * packets_with_losses(plan, every)) + 2.0;
    plan.length_ms = plan.length_ms.max((length * 1000.0) as u64);
    plan.path.loss = Some(if random.chance(0.5) {
        Loss::Every {
            every: every as u32,
            first: random.integer(20, 60),
        }
    } else {
        Loss::Random((1e6 / every) as u32)
    });
}

/// Segments a second of bulk that loses one in `every`.
fn packets_with_losses(plan: &Plan, every: f64) -> f64 {
    let rtt = (plan.path.rtt_us as f64 / 1e6).max(1e-4);
    let window = (1.5 * every).sqrt();
    (plan.packets_a_second() as f64).min(window / rtt)
}

/// The longest retransmission timeout to reckon with, milliseconds: Linux's least variation
/// (200 ms) on top of the RTT with a full queue, or four times a variation of that.
fn rto_ms(plan: &Plan) -> u64 {
    let rtt = (plan.path.rtt_us + plan.path.queue_us()) / 1000;
    250 + 3 * rtt
}

/// The path is cut for three timeouts and more while data is under way; or a request, its
/// probe and the first retransmission are lost.
fn timeout(plan: &mut Plan, random: &mut RandomStream) {
    if random.chance(0.5) {
        plan.traffic = if random.chance(0.5) {
            bulk(random)
        } else {
            exchange(random, plan.tcp.mss, (0.0, 100.0))
        };
        cuts(plan, random);
        return;
    }
    let segments = random.integer(1, 4);
    let bytes = segments * (plan.tcp.mss - 12) - random.integer(0, 100);
    plan.traffic = Traffic::Exchange {
        parts: vec![bytes],
        response: random.integer(20, 500),
        think_us: 0,
        pause_us: (random.uniform(5.0, 60.0) * 1000.0) as u64,
    };
    lost_requests(plan, random, segments);
}

/// All segments of a request, the tail loss probe, and one to two retransmissions are lost,
/// twice. Answers are shorter than what counts.
pub(super) fn lost_requests(plan: &mut Plan, random: &mut RandomStream, segments: u32) {
    let first = segments * random.integer(4, 12) + 1;
    let more = random.integer(2, 3);
    let last = first + segments + more - 1;
    // After the repair: the rest of that request again, then whole ones.
    let second = last + segments * random.integer(8, 15) + 1;
    plan.path.loss = Some(Loss::Runs(vec![
        (first, last),
        (second, second + segments + more - 1),
    ]));
    plan.length_ms += 4 * rto_ms(plan);
}

fn cuts(plan: &mut Plan, random: &mut RandomStream) {
    let cut = 3 * rto_ms(plan);
    let first = 500 + random.integer(0, 500) as u64 + 10 * plan.path.rtt_us / 1000;
    // The timer's back-off doubles: after the cut it may wait as long as that again.
    let second = first + 3 * cut + random.integer(0, 300) as u64;
    plan.path.cuts_ms = vec![(first, cut), (second, cut)];
    plan.length_ms = second + 3 * cut;
}

/// Two small writes and an answer with Nagle on, or a stream of small messages; the receiver
/// insists on delaying.
fn delayed_ack(plan: &mut Plan, random: &mut RandomStream) {
    plan.tcp.delay_acks = true;
    plan.tcp.nodelay = false;
    if random.chance(0.6) {
        plan.traffic = write_write_read(random);
        return;
    }
    // What is written while one segment waits for its ACK stays below a segment.
    let bytes = random.integer(20, 200);
    let wait_us = plan.path.rtt_us + 60_000;
    let least_us = u64::from(bytes) * wait_us * 5 / 4 / u64::from(plan.tcp.mss - 12);
    plan.traffic = Traffic::Messages {
        bytes,
        pause_us: least_us.max(2_000) + random.integer(0, 10_000) as u64,
    };
}

fn write_write_read(random: &mut RandomStream) -> Traffic {
    Traffic::Exchange {
        parts: vec![random.integer(1, 400), random.integer(1, 400)],
        response: random.integer(20, 1000),
        think_us: 0,
        pause_us: random.integer(0, 20_000) as u64,
    }
}

/// Adds a second problem to a run that has one.
fn and(problem: Problem, plan: &mut Plan, random: &mut RandomStream) {
    match problem {
        Problem::ReceiverWindowLimited => slow_reader_too(plan, random),
        Problem::DelayedAck => {
            plan.path.loss = None;
            plan.tcp.delay_acks = true;
            plan.tcp.nodelay = false;
            plan.traffic = write_write_read(random);
            cuts(plan, random);
        }
        Problem::FastRetransmit => fast_retransmit(plan, random),
        Problem::SendBufferLimited => one(problem, plan, random),
        _ => later_cuts(plan, random),
    }
}

/// A slow reader beside losses, which keep their number, or beside cuts.
fn slow_reader_too(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = bulk(random);
    let every = match plan.path.loss {
        Some(Loss::Every { every, .. }) => f64::from(every),
        Some(Loss::Random(millionths)) => 1e6 / f64::from(millionths.max(1)),
        _ => {
            plan.path.loss = None;
            slow_reader(plan, random, plan.path.rate_kbit as f64 * 125.0);
            cuts(plan, random);
            return;
        }
    };
    let path = packets_with_losses(plan, every) * f64::from(plan.tcp.mss);
    slow_reader(plan, random, 0.7 * path);
    plan.length_ms *= 3;
}

/// Cuts after a first part that stays as it is.
fn later_cuts(plan: &mut Plan, random: &mut RandomStream) {
    let before = plan.length_ms;
    cuts(plan, random);
    for (at, _) in &mut plan.path.cuts_ms {
        *at += before;
    }
    plan.length_ms += before;
}

/// The same without what was injected.
pub(super) fn healthy(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.path.loss = None;
    plan.path.cuts_ms.clear();
    plan.path.closed_ms = 0;
    plan.path.marking = None;
    plan.path.late = None;
    plan.tcp.send_buffer = None;
    plan.tcp.receive_buffer = None;
    plan.tcp.delay_acks = false;
    plan.pace = Pace::Quick;
    if let Traffic::Exchange { parts, .. } = &mut plan.traffic {
        *parts = vec![parts.iter().sum()];
    }
    plan.length_ms = plan.length_ms.min(4_000 + 20 * plan.path.rtt_us / 1000);
    if let Some(load) = &mut plan.listener_load {
        listener_loads::fits(load);
    }
    if let Some(relay) = &mut plan.relay {
        (relay.send_buffer, relay.receive_buffer) = (None, None);
        plan.traffic = interactions::slow_source(&plan.path);
    }
    plan
}
