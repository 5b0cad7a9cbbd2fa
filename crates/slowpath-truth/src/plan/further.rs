// SPDX-License-Identifier: Apache-2.0
//! What is done to a run so that it has one of the problems past SNAP's, and the inequality
//! that makes sure of it.

use super::injections::{bulk, fast_retransmit, slow_reader};
use super::{Loss, Pace, Plan, Traffic};
use crate::random::RandomStream;

/// Bulk without any limit but the path's.
pub(super) fn window(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = bulk(random);
}

/// Bulk by writes of at most a quarter of a segment, 10,000 of them a second and more: each
/// that could have been spared counts for 4 us, and that makes 4 % of the time. Or messages
/// that Nagle's algorithm holds: two and more in a round trip of 20 ms and more.
pub(super) fn small_writes(plan: &mut Plan, random: &mut RandomStream) {
    let segment = f64::from(plan.tcp.mss - 12);
    if random.chance(0.5) {
        // Bytes a second: kbit/s times 125.
        let path = plan.path.rate_kbit as f64 * 125.0;
        let most = (path / 10_000.0).min(segment / 5.0);
        plan.traffic = Traffic::Bulk {
            write: random.log_uniform(8.0, most.max(9.0)) as u32,
        };
        // Losses would leave the path empty for a while.
        plan.path.rtt_us = plan.path.rtt_us.min(20_000);
        return;
    }
    plan.tcp.nodelay = false;
    plan.path.rtt_us = (random.log_uniform(20.0, 200.0) * 1000.0) as u64;
    let pause_us = plan.path.rtt_us as f64 / random.uniform(2.0, 5.0);
    // Less than a segment in a round trip and a delayed ACK.
    let messages = (plan.path.rtt_us as f64 + 60_000.0) / pause_us + 1.0;
    plan.traffic = Traffic::Messages {
        bytes: random.log_uniform(10.0, 0.8 * segment / messages) as u32,
        pause_us: pause_us as u64,
    };
}

/// Messages of 30 to 60 segments with pauses longer than a timeout, a window that is kept (not
/// BBR's, which is two bandwidth-delay products), and single losses in the first ten segments
/// of two late messages.
pub(super) fn idle_burst(plan: &mut Plan, random: &mut RandomStream) {
    let segments = random.integer(30, 60);
    let segment = plan.tcp.mss - 12;
    plan.path.keep_window = true;
    plan.tcp.control = random.pick(&["cubic", "reno"]);
    // The queue holds a message, and is empty again within a quarter of a second.
    plan.path.rate_kbit = plan.path.rate_kbit.max(6_000);
    // The card, four times as fast as the path, has passed thirty segments on before the first
    // is acknowledged.
    let card_us = u64::from(segment + 72) * 30 * 2_000 / plan.path.rate_kbit;
    plan.path.rtt_us = plan.path.rtt_us.clamp(card_us, 60_000);
    plan.path.queue_bytes = u64::from(2 * segments * (segment + 60));
    let rtt_ms = (plan.path.rtt_us + plan.path.queue_us()) / 1000;
    let pause_ms = 500 + 3 * rtt_ms;
    plan.traffic = Traffic::Messages {
        bytes: segments * segment,
        pause_us: pause_ms * 1000,
    };
    // The window has grown to a message after four of them (10, 20, 40, 80 segments).
    let lost = |message: u32, random: &mut RandomStream| {
        let number = message * segments + random.integer(1, 10);
        (number, number)
    };
    let (first, second) = (lost(4, random), lost(6, random));
    // One segment is sent again in between.
    plan.path.loss = Some(Loss::Runs(vec![first, (second.0 + 1, second.1 + 1)]));
    plan.length_ms = 9 * (pause_ms + 4 * rtt_ms) + 1000;
}

/// A reader that empties its buffer and then pauses for longer than it takes to fill.
pub(super) fn zero_window(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = bulk(random);
    // Bytes a second: kbit/s times 125.
    let path = plan.path.rate_kbit as f64 * 125.0;
    let buffer = random.log_uniform(8_192.0, (path / 8.0).clamp(10_000.0, 65_536.0));
    plan.tcp.receive_buffer = Some(buffer as u32);
    // The kernel doubles it; three round trips for the window to open again.
    let fill_us = (2.0 * buffer / path * 1e6) as u64 + 3 * plan.path.rtt_us;
    plan.pace = Pace::Slow {
        bytes: (2.0 * buffer) as u32,
        pause_us: 2 * fill_us + random.integer(200_000, 600_000) as u64,
    };
    plan.length_ms += 3 * fill_us / 1000;
}

/// Bulk, of which one segment in fifty to two hundred comes later than three behind it.
pub(super) fn reordering(plan: &mut Plan, random: &mut RandomStream) {
    let every = random.log_uniform(50.0, 200.0);
    // Long enough for as many as losses of that number would need.
    fast_retransmit(plan, random);
    plan.path.loss = None;
    let segment_us = u64::from(plan.tcp.mss + 40) * 8_000 / plan.path.rate_kbit;
    let most = (plan.path.rtt_us as f64 / 2.0).max(5.0 * segment_us as f64);
    let by = random.log_uniform(4.0 * segment_us as f64, most.max(4.1 * segment_us as f64));
    plan.path.late = Some(((1e6 / every) as u32, by as u64));
}

/// Bulk through a queue that marks from a third of its length on.
pub(super) fn marks(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = bulk(random);
    let packets = plan.path.queue_bytes as f64 / f64::from(plan.tcp.mss + 40);
    plan.path.marking = Some(random.log_uniform(3.0, (packets / 3.0).max(4.0)) as u32);
}

/// The slow reader of ReceiverWindowLimited.
pub(super) fn slow_application(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = bulk(random);
    slow_reader(plan, random, plan.path.rate_kbit as f64 * 125.0);
}

/// The path is cut while the connection is being opened, so that the first SYN is lost.
pub(super) fn opening(plan: &mut Plan, random: &mut RandomStream) {
    plan.traffic = super::draws::exchange(random, plan.tcp.mss, (5.0, 300.0));
    plan.path.closed_ms = random.integer(300, 2_500).into();
}
