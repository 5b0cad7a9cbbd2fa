// SPDX-License-Identifier: Apache-2.0
//! A day's log of random connections whose summaries agree with their intervals.

use slowpath_model::*;
use slowpath_store::{HostIdentity, LogWriter, Options};
use slowpath_views::scripted;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const HOUR: i64 = 3_600_000_000;
const HOURS: i64 = 24;
const CONNECTIONS: u64 = 60;
const BOOT: u128 = 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A connection and what the log has of it.
struct Connection {
    summary: ConnectionSummary,
    /// Hours of the day in which it lives.
    hours: std::ops::Range<i64>,
    logged_in: u32,
}

fn connection(random: &mut Random, cookie: u64, begins: WallMicros) -> Connection {
    let id = ConnectionId {
        boot_id: BOOT,
        netns: 4_026_531_840,
        cookie,
        start: MonoNanos(1_000_003 * cookie),
    };
    let first = random.below(HOURS as u64 - 1) as i64;
    let hours = first..first + 1 + random.below((HOURS - first) as u64) as i64;
    let owner = match cookie % 5 {
        0 => Owner::unknown(UnknownOwner::ALL[cookie as usize % 4]),
        n => Owner::named(
            100 + n as u32,
            ["web", "db", "cache", "batch"][n as usize - 1],
        ),
    };
    // Every third connection is of a tier that cannot measure delayed ACKs.
    let unmeasured: ProblemSet = cookie
        .is_multiple_of(3)
        .then_some(Problem::DelayedAck)
        .into_iter()
        .collect();
    let local = format!("10.9.0.{}:{}", 1 + cookie % 2, 40_000 + cookie);
    let remote = format!("10.0.{}.1:443", cookie % 7);
    let summary = ConnectionSummary {
        connection: id,
        tuple: FourTuple::new(
            local.parse().expect("an address"),
            remote.parse().expect("an address"),
        ),
        owner,
        first_observed: begins + Micros((first * HOUR) as u64 + 1),
        last_observed: begins,
        observed: Micros::ZERO,
        polls: 0,
        problem_time: Default::default(),
        problem_events: Default::default(),
        unmeasured,
        closed: false,
        ..scripted::summary(cookie, "", Problem::Timeout, 0)
    };
    Connection {
        summary,
        hours,
        logged_in: 0,
    }
}

impl Connection {
    /// An interval with one or two problems, charged to the summary too.
    fn trouble(&mut self, random: &mut Random, end: WallMicros) -> ProblemInterval {
        use Problem::*;
        let duration = Micros(300_000 + random.below(700_000));
        let mut findings: Vec<Finding> = Vec::new();
        for _ in 0..1 + random.below(2) {
            let choice = [
                SendBufferLimited,
                FastRetransmit,
                Timeout,
                DelayedAck,
                ReceiverAppSlow,
            ];
            let problem = choice[random.below(5) as usize];
            let known = findings.iter().any(|f| f.problem == problem);
            if known || self.summary.unmeasured.contains(problem) {
                continue;
            }
            findings.push(Finding {
                problem,
                share: match random.below(4) {
                    0 => Share::Coarse,
                    1 => Share::Measured(duration),
                    _ => Share::Measured(Micros(1 + random.below(duration.0))),
                },
                events: problem.has_events().then(|| 1 + random.below(3)),
            });
        }
        if findings.is_empty() {
            findings.push(Finding {
                problem: Timeout,
                share: Share::Measured(duration),
                events: Some(1),
            });
        }
        for finding in &findings {
            let i = finding.problem as usize;
            self.summary.problem_time[i] += finding.share.time_of(duration);
            self.summary.problem_events[i] += finding.events.unwrap_or(0);
        }
        self.summary.observed += duration;
        ProblemInterval {
            connection: self.summary.connection,
            end,
            duration,
            findings,
            unmeasured: self.summary.unmeasured,
            deltas: Deltas {
                retransmitted: Some(random.below(9)),
                send_mss: 1_448,
                ..Deltas::default()
            },
        }
    }

    /// What a checkpoint says at that moment.
    fn observe_until(&mut self, random: &mut Random, at: WallMicros) {
        let s = &mut self.summary;
        s.last_observed = at;
        s.observed += Micros(600_000_000);
        s.polls += 100;
        s.stats.bytes_acked += random.below(1 << 30);
        s.stats.bytes_received += random.below(1 << 20);
    }
}

/// Writes the log of a day that ended an hour ago or more; gives its hours as the report's
/// `--since` takes them.
pub fn write(log: &Path) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("is after 1970").as_micros() as i64;
    let begins = WallMicros((now / HOUR - HOURS - 1) * HOUR);
    let host = HostIdentity {
        host: "day".to_owned(),
        boot_id: BOOT,
    };
    let mut writer = LogWriter::open(log, host, Options::default()).expect("a new log");
    let mut random = Random(34);
    let mut connections: Vec<Connection> = (0..CONNECTIONS)
        .map(|cookie| connection(&mut random, cookie, begins))
        .collect();
    for hour in 0..HOURS {
        let start = begins + Micros((hour * HOUR) as u64);
        writer.tick(start);
        for c in connections.iter_mut().filter(|c| c.hours.contains(&hour)) {
            write_hour(&mut writer, &mut random, c, hour, start);
        }
        write_host(&mut writer, &mut random, start);
    }
    let status = writer.close();
    assert_eq!((status.last_error, status.records_dropped), (None, 0));
    (0..HOURS)
        .map(|hour| {
            let time =
                UNIX_EPOCH + std::time::Duration::from_micros((begins.0 + hour * HOUR) as u64);
            humantime::format_rfc3339_seconds(time).to_string()
        })
        .collect()
}

/// One connection's hour: problems, then a checkpoint, or its end.
fn write_hour(
    log: &mut LogWriter,
    random: &mut Random,
    c: &mut Connection,
    hour: i64,
    start: WallMicros,
) {
    for k in 0..1 + random.below(6) {
        let end = start + Micros(60_000_000 * (k + 1) + random.below(1_000_000));
        let interval = c.trouble(random, end);
        c.summary.last_observed = end;
        if c.logged_in == log.segment() {
            log.problem(&interval);
        } else {
            c.logged_in = log.segment();
            assert!(log.problem_of(&c.summary, &interval));
        }
    }
    c.observe_until(random, start + Micros(3_000_000_000));
    // Some live on after their last checkpoint.
    c.summary.closed = hour + 1 == c.hours.end && !c.summary.connection.cookie.is_multiple_of(4);
    let traffic = TrafficInterval {
        connection: c.summary.connection,
        end: c.summary.last_observed,
        duration: Micros(3_000_000_000),
        data_segments_out: Some(random.below(100_000)),
        data_segments_in: Some(random.below(1_000)),
        retransmitted: Some(random.below(50)),
    };
    log.traffic_of(&c.summary, &traffic);
}

/// The host's hour: coverage, a listener's round, an interaction.
fn write_host(log: &mut LogWriter, random: &mut Random, start: WallMicros) {
    for ten in 1..=6 {
        log.coverage(&Coverage {
            end: start + Micros(600_000_000 * ten - 1),
            duration: Micros(600_000_000),
            polls: 1_000 + random.below(100),
            sockets: random.below(500),
            missed: random.below(2),
            unmeasured: [Problem::EcnMarked, Problem::Timeout]
                .into_iter()
                .take(random.below(3) as usize)
                .collect(),
            clock: (random.below(4) > 0).then(|| ClockStatus {
                state: ClockState::Ok,
                synchronised: true,
                max_error: Micros(1_000 + random.below(9_000)),
            }),
            ..Coverage::default()
        });
    }
    let number = random.below(3);
    log.listener(&ListenerInterval {
        listener: ListenerId {
            boot_id: BOOT,
            netns: 4_026_531_840,
            cookie: 1_000 + number,
        },
        local: format!("10.9.0.1:{}", 80 + number)
            .parse()
            .expect("an address"),
        owner: Owner::named(7, "web"),
        tier: Tier::Bpf,
        end: start + Micros(500_000_000),
        duration: Micros(1_000_000 + random.below(1_000)),
        findings: vec![Finding {
            problem: [Problem::AcceptQueueOverflow, Problem::SynQueueOverflow]
                [random.below(2) as usize],
            share: Share::Coarse,
            events: (random.below(4) > 0).then(|| random.below(50)),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: ListenerDeltas::default(),
    });
    let cookie = random.below(4);
    let tuple = FourTuple::new(
        format!("10.9.0.1:{}", 50_000 + cookie)
            .parse()
            .expect("an address"),
        "10.0.8.1:80".parse().expect("an address"),
    );
    let id = scripted::id(2_000 + cookie);
    log.interaction(&InteractionInterval {
        kind: InteractionKind::TimeoutThenDelayedAck,
        connection: id,
        tuple,
        owner: Owner::named(7, "web"),
        cause: id,
        cause_tuple: tuple,
        connections: 1,
        end: start + Micros(700_000_000),
        duration: Micros(2_000_000 + random.below(1_000)),
        rounds: 2,
        evidence: InteractionEvidence::TimeoutThenDelayedAck {
            timeouts: 1,
            delayed_acks: 1,
            retransmitted_segments: 1,
        },
    });
}
