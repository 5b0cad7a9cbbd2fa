// SPDX-License-Identifier: Apache-2.0
//! Listeners with more clients than their queues hold.

use super::{ListenerLoad, Plan};
use crate::random::RandomStream;

/// More than any run has clients.
const MANY: u32 = 4_096;

fn load(random: &mut RandomStream, backlog: u32, clients: u32) -> ListenerLoad {
    ListenerLoad {
        clients,
        gap_us: (random.log_uniform(0.1, 10.0) * 1000.0) as u64,
        backlog,
        most_half_open: MANY,
        cookies: random.chance(0.5),
        idle_ms: 0,
        pause_us: 0,
        mute_ms: 0,
    }
}

/// Twice as many clients as the accept queue holds and more, and an application that accepts
/// nothing until all have come, or one connection while three come.
pub(super) fn accept(plan: &mut Plan, random: &mut RandomStream) {
    let backlog = random.integer(1, 32);
    // A queue of backlog n holds n + 1.
    let clients = 2 * (backlog + 1) + random.integer(6, 24);
    let mut load = load(random, backlog, clients);
    let all_ms = u64::from(load.clients) * load.gap_us / 1000 + 2 * plan.path.rtt_us / 1000;
    if random.chance(0.5) {
        load.idle_ms = all_ms + random.integer(300, 2_500) as u64;
    } else {
        load.pause_us = 3 * load.gap_us.max(2_000) * random.integer(1, 4) as u64;
    }
    plan.length_ms = load.idle_ms + all_ms + 1_500;
    plan.listener_load = Some(load);
}

/// More clients than the SYN queue holds, whose answers are lost until all have come.
pub(super) fn half_open(plan: &mut Plan, random: &mut RandomStream) {
    let small = random.chance(0.3);
    // Without cookies a quarter of `tcp_max_syn_backlog` is kept for known peers.
    let (backlog, room) = match small {
        true => (128, 12),
        false => {
            let backlog = random.integer(2, 64);
            (backlog, backlog)
        }
    };
    let clients = room + 1 + random.integer(4, 24);
    let mut load = load(random, backlog, clients);
    if small {
        (load.most_half_open, load.cookies) = (16, false);
    }
    load.gap_us = load.gap_us.min(400_000 / u64::from(load.clients));
    let all_ms = u64::from(load.clients) * load.gap_us / 1000 + 2 * plan.path.rtt_us / 1000;
    load.mute_ms = all_ms + random.integer(300, 2_000) as u64;
    plan.length_ms = load.mute_ms + all_ms + 1_500;
    plan.listener_load = Some(load);
}

/// As many as either queue holds, accepted at once.
pub(super) fn fits(load: &mut ListenerLoad) {
    let room = load.backlog.min(load.most_half_open / 4 * 3);
    load.clients = load.clients.min(room);
    (load.idle_ms, load.pause_us, load.mute_ms) = (0, 0, 0);
}
