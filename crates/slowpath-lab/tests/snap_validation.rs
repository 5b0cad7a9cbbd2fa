// SPDX-License-Identifier: Apache-2.0
//! SNAP's validation (section 4.1) on Linux's own TCP: timeouts that the classifier of live
//! connections reads from `tcp_info` are those that packets show, connection by connection.

use slowpath_diagnose::{Thresholds, Totals, classify, opened};
use slowpath_lab::virtual_time::plan::Plan;
use slowpath_lab::virtual_time::{HZ, Kernel, Options, Run, SOURCE, run};
use slowpath_model::{
    ConnectionId, FourTuple, Micros, MonoNanos, Origin, Problem, Snapshot, TcpStats, Tier,
};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_observe::tcp_info::{SocketQueues, TcpInfo};
use slowpath_switch::{Span, Time};
use slowpath_trace::engine::{self, Began, Follow};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use slowpath_trace::tcp::{self, Cause, Event, Kind, Side};
use slowpath_trace::verdict::{self, Judged, Trial};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;

const SNAP: &str = include_str!("../../../scenarios/lab/snap-validation.toml");

/// Where captures and the scenario begin: 2000-01-01 00:00 UTC, in nanoseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000_000;

/// The kernel, or the reason why the test is skipped.
fn kernel() -> Option<Kernel> {
    match Kernel::find(SOURCE, HZ) {
        Ok(kernel) => Some(kernel),
        Err(missing) => {
            println!("SKIPPED: {missing}");
            None
        }
    }
}

/// The scenario with other values of some keys.
fn with(changes: &[(&str, &str)]) -> String {
    let mut text = SNAP.to_owned();
    for (before, after) in changes {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, after);
    }
    text
}

/// What one connection's timeouts are by each account.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    host: String,
    /// The classifier's, `tcp_info` read every millisecond.
    fine: u64,
    /// The same, read every half second as the agent does.
    coarse: u64,
    /// Some interval could not be judged.
    unmeasured: bool,
    /// What the kernel says at the end of each flow.
    kernel: u64,
    /// slowpath-trace's figures.
    figures: u64,
    /// slowpath-trace's verdict.
    verdict: u64,
    probes: u64,
    syns: u64,
    /// When the kernel counted, to a millisecond, and when packets show it.
    counted: Vec<i64>,
    seen: Vec<i64>,
    again: Vec<Again>,
}

/// One follower: figures, verdicts and when it was sent again, and why.
struct Watched {
    trial: Trial,
    again: Vec<Again>,
    una: i64,
    ack_at: i64,
    sacks: usize,
    data_at: i64,
    next: i64,
    srtt: i64,
}

/// One retransmission.
#[derive(Clone, Debug, PartialEq)]
struct Again {
    at: i64,
    cause: Cause,
    sequence: i64,
    una: i64,
    next: i64,
    since_ack: i64,
    since_data: i64,
    sacks: usize,
    srtt: i64,
}

impl Follow for Watched {
    type Report = (Judged, Vec<Again>);

    fn segment(&mut self, segment: &Segment<'_>) {
        let Watched {
            trial,
            again,
            una,
            ack_at,
            sacks,
            data_at,
            next,
            srtt,
        } = self;
        trial.segment_with(segment, &mut |event: &Event<'_>| {
            let at = event.time.0 - EPOCH;
            if let (Side::Client, Kind::Retransmission(cause)) = (event.side, event.kind) {
                again.push(Again {
                    at,
                    cause,
                    sequence: event.sequence,
                    una: *una,
                    next: *next,
                    since_ack: at - *ack_at,
                    since_data: at - *data_at,
                    sacks: *sacks,
                    srtt: *srtt,
                });
            }
            if event.side == Side::Client {
                if event.length > 0 {
                    *data_at = at;
                    *next = (*next).max(event.end);
                }
            } else {
                *ack_at = at;
                let ack = event.acknowledgement.unwrap_or(0);
                if ack > *una {
                    *sacks = 0;
                }
                *una = (*una).max(ack);
                if !event.sack.is_empty() {
                    *sacks = event.sack.len();
                }
                if let Some(rtt) = event.rtt {
                    *srtt = rtt.as_nanos() as i64;
                }
            }
        });
    }

    fn finish(self) -> Self::Report {
        (self.trial.finish(), self.again)
    }
}

fn address(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(
        u32::from(Ipv4Addr::new(10, 0, 0, 0)) + host + 1,
    ))
}

/// A connection's snapshots as the inet_diag tier gives them.
fn snapshots(run: &Run, plan: &Plan, number: usize) -> Vec<Snapshot> {
    let connection = plan.connections[number];
    let local = SocketAddr::new(address(connection.from), connection.port);
    let remote = SocketAddr::new(address(connection.to), 5000 + u16::from(connection.kind));
    let rows = run
        .series
        .iter()
        .filter(|row| row.connection as usize == number);
    rows.map(|row| Snapshot {
        id: ConnectionId {
            boot_id: 1,
            netns: connection.from,
            cookie: number as u64 + 1,
            start: MonoNanos(1),
        },
        tuple: FourTuple::new(local, remote),
        at: MonoNanos(row.at.0 / 1000 + 1),
        origin: Origin::Opened,
        closed: false,
        tier: Tier::InetDiag,
        owner: None,
        stats: stats(&row.info),
        sends: None,
        receives: None,
    })
    .collect()
}

fn stats(info: &[u8]) -> TcpStats {
    let info = TcpInfo::read(info).expect("a tcp_info");
    info.stats(SocketQueues::default())
}

/// Verdicts on polls that are so far apart.
fn judge(snapshots: &[Snapshot], every: Micros) -> Totals {
    let thresholds = Thresholds::default();
    let mut totals = Totals::default();
    let Some(first) = snapshots.first() else {
        return totals;
    };
    let mut before = opened(first);
    for (index, after) in snapshots.iter().enumerate() {
        let last = index + 1 == snapshots.len();
        if last || after.at.since(before.at) >= every {
            totals.add(&classify(&before, after, None, &thresholds));
            before = after.clone();
        }
    }
    totals
}

fn compare(kernel: &Kernel, text: &str, algorithm: Option<&str>) -> (Run, Vec<Row>) {
    let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(text, &none, Substrate::VirtualTime).expect("a scenario");
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        algorithm: algorithm.map(str::to_owned),
        ..Options::default()
    };
    let plan = Plan::new(&scenario, &options, kernel.hz).expect("a plan");
    let run = run(kernel, &scenario, &options, folder.path(), &mut |_| {}).expect("a run");
    let mut seen = BTreeMap::new();
    for (host, capture) in run.captures.iter().enumerate() {
        let inputs = Inputs::new(vec![Input::File(capture.clone())]).expect("a capture");
        let begin = |first: &Segment<'_>, _: Began| Watched {
            trial: Trial::new(
                first,
                &tcp::Options::default(),
                &verdict::Options::default(),
            ),
            again: Vec::new(),
            una: 0,
            ack_at: 0,
            sacks: 0,
            data_at: 0,
            next: 0,
            srtt: 0,
        };
        let each = |finished: engine::Finished<(Judged, Vec<_>)>| {
            let report = finished.report;
            let client = report.0.report.client;
            if client.address == address(host as u32) {
                let before = seen.insert((client.address, client.port), report);
                assert!(before.is_none());
            }
        };
        let threads = engine::Options {
            threads: 1,
            ..engine::Options::default()
        };
        engine::run(inputs, &threads, begin, each, |_| ControlFlow::Continue(()))
            .expect("a capture");
    }
    let mut rows = Vec::new();
    for (number, connection) in plan.connections.iter().enumerate() {
        let snapshots = snapshots(&run, &plan, number);
        let fine = judge(&snapshots, Micros(1));
        let coarse = judge(&snapshots, Micros::from_millis(500));
        let timeouts = |totals: &Totals| totals.problem_events[Problem::Timeout as usize];
        let counter = |s: &Snapshot| s.stats.rto_stats.expect("Linux 6.7").timeouts;
        let counted = snapshots.windows(2).flat_map(|pair| {
            let more = counter(&pair[1]) - counter(&pair[0]);
            (0..more).map(|_| pair[1].at.0 as i64 - 1)
        });
        let (judged, again) = seen
            .remove(&(address(connection.from), connection.port))
            .expect("it is in its host's capture");
        let flows = run.results.flows.iter().zip(&run.carried_by);
        let own = flows.filter(|(_, carrier)| **carrier as usize == number);
        let resent = &judged.report.from_client.retransmitted;
        let found = &judged.verdicts.from_client;
        rows.push(Row {
            host: scenario.topology.hosts()[connection.from as usize]
                .name
                .clone(),
            fine: timeouts(&fine),
            coarse: timeouts(&coarse),
            unmeasured: [&fine, &coarse]
                .iter()
                .any(|totals| totals.unmeasured.contains(Problem::Timeout)),
            kernel: own.map(|(flow, _)| u64::from(flow.timeouts)).sum(),
            figures: resent.timeouts,
            verdict: found
                .finding(Problem::Timeout)
                .and_then(|finding| finding.events)
                .unwrap_or(0),
            probes: resent.tail_loss_probes,
            syns: resent.syns,
            counted: counted.collect(),
            seen: again
                .iter()
                .filter(|one| one.cause == Cause::Timeout)
                .map(|one| one.at)
                .collect(),
            again,
        });
    }
    (run, rows)
}

fn print(name: &str, rows: &[Row]) {
    println!("{name}");
    println!("host        fine coarse kernel figures verdict probes syns");
    for row in rows {
        println!(
            "{:<10} {:>5} {:>6} {:>6} {:>7} {:>7} {:>6} {:>4}",
            row.host,
            row.fine,
            row.coarse,
            row.kernel,
            row.figures,
            row.verdict,
            row.probes,
            row.syns
        );
    }
}

#[test]
fn explore() {
    let Some(kernel) = kernel() else { return };
    let none: &[(&str, &str)] = &[];
    for (name, changes, algorithm) in [
        ("as it is", none, None),
        (
            "newreno",
            &[(
                "preset = \"linux\"",
                "preset = \"linux\"\nalgorithm = \"newreno\"",
            )][..],
            None,
        ),
        ("64 packets", &[("128 packets", "64 packets")][..], None),
        ("200 packets", &[("128 packets", "200 packets")][..], None),
        ("300 packets", &[("128 packets", "300 packets")][..], None),
        ("rtt 20 ms", &[("10 us", "5 ms")][..], None),
        ("20 kB", &[("100 kB", "20 kB")][..], None),
        ("2 kB", &[("100 kB", "2 kB")][..], None),
        ("500 kB", &[("100 kB", "500 kB")][..], None),
        (
            "dctcp",
            &[("preset = \"linux\"", "preset = \"dctcp\"")][..],
            None,
        ),
        ("bbr", none, Some("bbr")),
        (
            "no timestamps",
            &[("52 B", "40 B"), ("1448 B", "1460 B")][..],
            None,
        ),
        (
            "no sack",
            &[
                ("52 B", "40 B"),
                ("1448 B", "1460 B"),
                (
                    "preset = \"linux\"",
                    "preset = \"linux\"\nsack = false\nloss-detection = \"duplicate-acks\"\ntail-loss-probe=false",
                ),
            ][..],
            None,
        ),
        (
            "classic",
            &[(
                "preset = \"linux\"",
                "preset = \"linux\"\nloss-detection = \"duplicate-acks\"\ntail-loss-probe=false",
            )][..],
            None,
        ),
        (
            "rto-min 12 ms",
            &[(
                "preset = \"linux\"",
                "preset = \"linux\"\nrto-min = \"12 ms\"",
            )][..],
            None,
        ),
        (
            "handshake",
            &[
                ("preset = \"linux\"", "preset = \"linux\"\nhandshake=true"),
                ("keep-connections = true", ""),
            ][..],
            None,
        ),
    ] {
        let (run, rows) = compare(&kernel, &with(changes), algorithm);
        let sum = |f: fn(&Row) -> u64| rows.iter().map(f).sum::<u64>();
        let unequal = |f: fn(&Row) -> u64| rows.iter().filter(|r| f(r) != r.kernel).count();
        println!(
            "{name}: {} connections, {} with timeouts, kernel {}, fine {}({}) coarse {}({}) figures {}({}) verdict {}({}) probes {} syns {} unmeasured {} done {} wall {:?}",
            rows.len(),
            rows.iter().filter(|r| r.kernel > 0).count(),
            sum(|r| r.kernel),
            sum(|r| r.fine),
            unequal(|r| r.fine),
            sum(|r| r.coarse),
            unequal(|r| r.coarse),
            sum(|r| r.figures),
            unequal(|r| r.figures),
            sum(|r| r.verdict),
            unequal(|r| r.verdict),
            sum(|r| r.probes),
            sum(|r| r.syns),
            rows.iter().filter(|r| r.unmeasured).count(),
            run.results
                .flows
                .iter()
                .filter(|f| f.finish.is_some())
                .count(),
            run.wall,
        );
        for r in &rows {
            let near = |t: i64, list: &[i64]| list.iter().any(|c| *c >= t && *c - t <= 1_000_000);
            for a in r.again.iter().filter(|a| a.cause == Cause::Timeout) {
                if r.verdict != r.kernel && near(a.at, &r.counted) && a.next - a.sequence <= 1448 && a.sacks == 0 {
                    println!("  LONE COUNTED {} {a:?}", r.host);
                    for b in r.again.iter().filter(|b| b.at < a.at && a.at - b.at < 400_000_000) {
                        println!("      before: {b:?}");
                    }
                }
                if !near(a.at, &r.counted) {
                    println!("  NOT COUNTED {} {a:?}", r.host);
                }
            }
            for c in &r.counted {
                if !r.seen.iter().any(|t| *c >= *t && *c - *t <= 1_000_000) {
                    println!("  NOT SEEN {} {c}", r.host);
                    for a in &r.again {
                        if a.at <= *c && *c - a.at <= 1_000_000 {
                            println!("       {a:?}");
                        }
                    }
                }
            }
        }
    }
    let _ = (Time::ZERO, Span::ZERO, print as fn(&str, &[Row]));
}
