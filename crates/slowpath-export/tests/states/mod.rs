// SPDX-License-Identifier: Apache-2.0
//! Agents that are played: snapshots by script, and the states that come of them.
#![allow(dead_code)]

use slowpath_agent::{BudgetState, RecorderState, ScriptedAgent, WriterStatus};
use slowpath_export::{LogState, Polls, ProcessUse, State, Turnover};
use slowpath_model::*;
use slowpath_ship::batch::ClockOffset;
use slowpath_ship::shipper::ShipStatus;
use std::sync::LazyLock;

/// The wall clock's time when the monotonic clock began.
pub const EPOCH: i64 = 1_700_000_000_000_000;

pub fn wall(now: MonoNanos) -> WallMicros {
    WallMicros(EPOCH + (now.0 / 1_000) as i64)
}

/// A connection that has just been opened.
pub fn opened(cookie: u64, at: MonoNanos) -> Snapshot {
    let port = 1024 + (cookie % 60_000) as u16;
    let peer = (cookie % 200_000) as u32;
    let address = |ip: std::net::Ipv4Addr, port: u16| std::net::SocketAddr::from((ip, port));
    let tuple = FourTuple::new(
        address([10, 0, 0, 1].into(), port),
        address((0x0b00_0000 + peer).into(), 443),
    );
    let mut snapshot = Snapshot {
        id: ConnectionId {
            cookie,
            start: at,
            ..TEMPLATE.id
        },
        tuple,
        at,
        ..TEMPLATE.clone()
    };
    snapshot.stats.rto_stats = Some(RtoStats::default());
    snapshot
}

/// A connection that has done nothing: what kernels may lack is lacking, the rest is zero.
static TEMPLATE: LazyLock<Snapshot> = LazyLock::new(|| {
    let mut value = serde_json::json!({
        "id": {"boot_id": 7, "netns": 4_026_531_840_u64, "cookie": 0, "start": 0},
        "tuple": {"local": "0.0.0.0:0", "remote": "0.0.0.0:0"},
        "origin": "opened", "closed": false, "tier": "bpf",
        "stats": {"state": "established", "ca_state": "open"},
    });
    loop {
        match serde_json::from_value::<Snapshot>(value.clone()) {
            Ok(snapshot) => return snapshot,
            Err(error) => {
                let said = error.to_string();
                let field = said
                    .split('`')
                    .nth(1)
                    .filter(|_| said.contains("missing field"))
                    .unwrap_or_else(|| panic!("{said}"));
                let object = if field == "at" {
                    &mut value
                } else {
                    &mut value["stats"]
                };
                object[field] = 0.into();
            }
        }
    }
});

pub fn owner(command: &str) -> Owner {
    Owner::named(7, command)
}

/// The state of a played agent.
pub fn state(agent: &ScriptedAgent, now: MonoNanos) -> State {
    let host_totals = agent.host_totals().unwrap().snapshot();
    State {
        version: "0.1.0",
        started: wall(MonoNanos(0)),
        at: wall(now),
        tier: Tier::Bpf,
        features: vec![("snapshot", true), ("calls", false)],
        unmeasured: ProblemSet::EMPTY.with(Problem::DelayedAck),
        turnover: Turnover {
            opened: Some(host_totals.opened),
            closed: host_totals.closed,
        },
        host_totals,
        polls: Polls {
            done: 3,
            sockets: agent.connections().count() as u64,
            ..Polls::default()
        },
        coverage: Some(Coverage {
            owners_unknown: 2,
            missed: 1,
            ..Coverage::default()
        }),
        losses: LossCounters {
            closes_dropped: 9,
            ..LossCounters::default()
        },
        log: Some(LogState {
            status: WriterStatus::default(),
        }),
        budget: Some(BudgetState {
            budget: "1,2".parse().unwrap(),
            used: 0.012,
            events: None,
            polls: 3.0,
            quiet_rate: 1.0,
            problem_rate: 4.0,
            worst_rate: 8.0,
            left_out: 0,
            exceeded: false,
        }),
        recorder: Some(RecorderState {
            ring_bytes: 4096,
            ..RecorderState::default()
        }),
        ship: Some(ShipStatus {
            lag_us: 2_000_000,
            clock_offset: Some(ClockOffset {
                offset_us: -1_500,
                error_us: 400,
            }),
            ..ShipStatus::default()
        }),
        process: ProcessUse::read(),
    }
}

/// An agent that has observed connections of these applications, each with a timeout of a second.
pub fn played(applications: &[&str]) -> ScriptedAgent {
    let mut agent = ScriptedAgent::new(100, MonoNanos(0));
    let second = |s: u64| MonoNanos(s * 1_000_000_000);
    let mut connections: Vec<Snapshot> = Vec::new();
    for cookie in 0..applications.len() as u64 {
        connections.push(opened(cookie + 1, second(1)));
    }
    agent.poll(second(1), wall(second(1)), &connections);
    agent.owners(
        (1..)
            .zip(applications)
            .map(|(cookie, name)| (cookie, owner(name))),
    );
    for connection in &mut connections {
        time_out(connection, second(2));
    }
    agent.poll(second(2), wall(second(2)), &connections);
    agent.round();
    agent
}

/// A second with a timeout.
pub fn time_out(connection: &mut Snapshot, at: MonoNanos) {
    connection.at = at;
    let stats = &mut connection.stats;
    stats.retransmitted += 1;
    stats.segments_out += 3;
    stats.data_segments_out += 3;
    stats.bytes_acked += 2_000;
    stats.srtt = Some(Micros(20_000));
    stats.busy = Some(stats.busy.unwrap_or_default() + Micros(900_000));
    let mut rto = stats.rto_stats.unwrap_or_default();
    rto.timeouts += 1;
    rto.recoveries += 1;
    rto.time += Micros(500_000);
    stats.rto_stats = Some(rto);
}
