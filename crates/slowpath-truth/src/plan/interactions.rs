// SPDX-License-Identifier: Apache-2.0
//! What brings interactions about.

use super::injections::{buffer_below_bdp, bulk, lost_requests, slow_reader};
use super::{PathSettings, Plan, Relay, Traffic};
use crate::random::RandomStream;
use slowpath_diagnose::InteractionKind;

pub(super) fn bring_about(kind: InteractionKind, plan: &mut Plan, random: &mut RandomStream) {
    match kind {
        InteractionKind::TimeoutThenDelayedAck => delayed_repair(plan, random),
        InteractionKind::TooFewForFastRetransmit => few(plan, random),
        InteractionKind::PipelinedProxy => relay(plan, random),
        InteractionKind::SendBufferBelowBdp => {}
    }
}

/// All of a request of two to four segments is lost, and its probe: the timer sends one segment,
/// and the receiver, which insists on delaying, waits for more of the request.
fn delayed_repair(plan: &mut Plan, random: &mut RandomStream) {
    let segments = random.integer(2, 4);
    requests(plan, random, segments);
    plan.tcp.delay_acks = true;
    plan.tcp.nodelay = true;
    lost_requests(plan, random, segments);
}

/// All of a request of one to three segments is lost, and its probe.
fn few(plan: &mut Plan, random: &mut RandomStream) {
    let segments = random.integer(1, 3);
    requests(plan, random, segments);
    lost_requests(plan, random, segments);
}

fn requests(plan: &mut Plan, random: &mut RandomStream, segments: u32) {
    plan.traffic = Traffic::Exchange {
        parts: vec![segments * (plan.tcp.mss - 12) - random.integer(0, 100)],
        response: random.integer(20, 500),
        think_us: 0,
        pause_us: (random.uniform(5.0, 60.0) * 1000.0) as u64,
    };
}

/// A process that passes on what it gets: to a slow reader, through a send buffer below the
/// bandwidth-delay product, or from a sender that has such a buffer.
fn relay(plan: &mut Plan, random: &mut RandomStream) {
    let mut relay = Relay {
        send_buffer: None,
        receive_buffer: None,
    };
    // Buffers of single segments are what their limit says (docs/reference/accuracy.md).
    plan.path.single = true;
    match random.integer(0, 2) {
        0 => {
            plan.traffic = bulk(random);
            slow_reader(plan, random, plan.path.rate_kbit as f64 * 125.0);
            relay.receive_buffer = plan.tcp.receive_buffer.take();
        }
        1 => relay.send_buffer = Some(buffer_below_bdp(plan, random, 0.0)),
        _ => plan.tcp.send_buffer = Some(buffer_below_bdp(plan, random, 0.0)),
    }
    // A buffer that fills, and what it holds that is passed on later.
    plan.length_ms += 3_000;
    plan.relay = Some(relay);
}

/// What a relay carries without any limit: a fifth of the path's rate.
pub(super) fn slow_source(path: &PathSettings) -> Traffic {
    let pause_us = 20_000 + 2 * path.rtt_us;
    let bytes = path.rate_kbit * pause_us / 8_000 / 5;
    Traffic::Messages {
        bytes: bytes.clamp(200, 60_000) as u32,
        pause_us,
    }
}
