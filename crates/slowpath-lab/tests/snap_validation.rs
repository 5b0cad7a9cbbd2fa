// SPDX-License-Identifier: Apache-2.0
//! SNAP's validation (section 4.1) on Linux's own TCP: the timeouts that the classifier of live
//! connections reads from `tcp_info` are those that packets show, connection by connection.
//! docs/journal/snap-validation.md has the figures, and which rules of the wire they rest on.

use slowpath_diagnose::{Thresholds, Totals, classify, opened};
use slowpath_lab::virtual_time::plan::Plan;
use slowpath_lab::virtual_time::{HZ, Kernel, Options, Run, SOURCE, run};
use slowpath_model::{ConnectionId, FourTuple, Micros, MonoNanos, Origin, Problem, Snapshot, Tier};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_observe::tcp_info::{SocketQueues, TcpInfo};
use slowpath_switch::Span;
use slowpath_trace::engine::{self, Began, Finished, Follow};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use slowpath_trace::tcp::{self, Cause, Event, Kind, Side};
use slowpath_trace::verdict::{self, Judged, Trial};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::PathBuf;

const SNAP: &str = include_str!("../../../scenarios/lab/snap-validation.toml");

/// Where captures and the scenario begin: 2000-01-01 00:00 UTC, in nanoseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000_000;
/// From one `tcp_info` to the next.
const INFO: Micros = Micros::from_millis(1);
/// How often the agent polls.
const POLL: Micros = Micros::from_millis(500);
/// Linux's TCP_RTO_MIN (include/net/tcp.h): no timer runs out sooner.
const RTO_MIN: Span = Span::from_millis(200);

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

/// What one connection's timeouts are, by each account.
struct Row {
    host: String,
    /// The classifier's, from `tcp_info` every millisecond and every half second.
    live: [u64; 2],
    /// The classifier could not judge some interval.
    unmeasured: bool,
    /// What the kernel says as each flow is done.
    kernel: u64,
    /// What packets show.
    packets: u64,
    /// When the kernel had counted them, and when packets show them, in nanoseconds.
    counted: Vec<i64>,
    observed: Vec<i64>,
}

/// When slowpath-trace sees a retransmission timer run out.
type Expiration = i64;

/// A connection, judged and watched.
struct Watched {
    trial: Trial,
    again: Vec<Expiration>,
}

impl Watched {
    fn new(first: &Segment<'_>) -> Self {
        Watched {
            trial: Trial::new(
                first,
                &tcp::Options::default(),
                &verdict::Options::default(),
            ),
            again: Vec::new(),
        }
    }
}

impl Follow for Watched {
    type Report = (Judged, Vec<Expiration>);

    fn segment(&mut self, segment: &Segment<'_>) {
        let again = &mut self.again;
        self.trial.segment_with(segment, &mut |event: &Event<'_>| {
            if event.side == Side::Client && event.kind == Kind::Retransmission(Cause::Timeout) {
                again.push(event.time.0 - EPOCH);
            }
        });
    }

    fn finish(self) -> Self::Report {
        (self.trial.finish(), self.again)
    }
}

fn timeouts(judged: &Judged, _again: &[Expiration]) -> u64 {
    let found = judged.verdicts.from_client.finding(Problem::Timeout);
    found.and_then(|finding| finding.events).unwrap_or(0)
}

/// When they were, and when a lone segment was sent again, which may have been a probe.
fn moments(again: &[Expiration]) -> Vec<i64> {
    again.to_vec()
}

fn address(host: u32) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)) + host).into()
}

/// A connection's snapshots as the agent's inet_diag tier gives them.
fn snapshots(run: &Run, plan: &Plan, number: usize) -> Vec<Snapshot> {
    let connection = plan.connections[number];
    let local = SocketAddr::new(address(connection.from), connection.port);
    let remote = SocketAddr::new(address(connection.to), 5000 + u16::from(connection.kind));
    let rows = run.series.iter();
    let rows = rows.filter(|row| row.connection as usize == number);
    rows.map(|row| Snapshot {
        id: ConnectionId {
            boot_id: 1,
            netns: connection.from,
            cookie: number as u64 + 1,
            // 0 would be: older than the agent.
            start: MonoNanos(1),
        },
        tuple: FourTuple::new(local, remote),
        at: MonoNanos(row.at.0 / 1000 + 1),
        origin: Origin::Opened,
        closed: false,
        tier: Tier::InetDiag,
        owner: None,
        stats: TcpInfo::read(&row.info)
            .expect("a tcp_info")
            .stats(SocketQueues::default()),
        sends: None,
        receives: None,
        waits: slowpath_model::Waits::UNOBSERVED,
        facts: slowpath_model::SocketFacts::default(),
        turns: slowpath_model::Turns::UNOBSERVED,
    })
    .collect()
}

/// The classifier's verdicts on polls at such distances, added up.
fn judge(snapshots: &[Snapshot], every: Micros) -> Totals {
    let mut totals = Totals::default();
    let mut before = snapshots.first().map(opened);
    for (index, after) in snapshots.iter().enumerate() {
        let last = index + 1 == snapshots.len();
        if let Some(earlier) = &before
            && (last || after.at.since(earlier.at) >= every)
        {
            totals.add(&classify(earlier, after, None, &Thresholds::default()));
            before = Some(after.clone());
        }
    }
    totals
}

/// When the kernel's counter had gone up.
fn counted(snapshots: &[Snapshot]) -> Vec<i64> {
    let count = |s: &Snapshot| s.stats.rto_stats.expect("Linux 6.7 and later").timeouts;
    let mut before = 0;
    let mut moments = Vec::new();
    for snapshot in snapshots {
        moments.extend((before..count(snapshot)).map(|_| snapshot.at.0 as i64 - 1));
        before = count(snapshot);
    }
    moments
}

/// Connections by their sender's address and port.
type ByClient = BTreeMap<(IpAddr, u16), (Judged, Vec<Expiration>)>;

/// What the connections that a host began look like in its capture.
fn observed(host: u32, capture: PathBuf, observed: &mut ByClient) {
    let begin = |first: &Segment<'_>, _: Began| Watched::new(first);
    let each = |finished: Finished<(Judged, Vec<Expiration>)>| {
        let client = finished.report.0.report.client;
        if client.address == address(host) {
            observed.insert((client.address, client.port), finished.report);
        }
    };
    let options = engine::Options {
        threads: 1,
        ..engine::Options::default()
    };
    let inputs = Inputs::new(vec![Input::File(capture)]).expect("a capture");
    let go_on = |_| ControlFlow::Continue(());
    engine::run(inputs, &options, begin, each, go_on).expect("a capture");
}

/// Runs a scenario and counts each connection's timeouts by every account.
fn compare(kernel: &Kernel, text: &str, algorithm: Option<&str>) -> (Run, Vec<Row>) {
    let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(text, &none, Substrate::VirtualTime).expect("a scenario");
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        algorithm: algorithm.map(str::to_owned),
        events: false,
        info_every: Some(Span::from_micros(INFO.0)),
        ..Options::default()
    };
    let plan = Plan::new(&scenario, &options, kernel.hz).expect("a plan");
    let run = run(kernel, &scenario, &options, folder.path(), &mut |_| {}).expect("a run");
    let mut wire = ByClient::new();
    for (host, capture) in (0..).zip(&run.captures) {
        observed(host, capture.clone(), &mut wire);
    }
    let row = |(number, connection): (usize, &slowpath_lab::virtual_time::plan::Connection)| {
        let snapshots = snapshots(&run, &plan, number);
        let totals = [INFO, POLL].map(|every| judge(&snapshots, every));
        let flows = run.results.flows.iter().zip(&run.carried_by);
        let own = flows.filter(|(_, carrier)| **carrier as usize == number);
        let (judged, again) = &wire[&(address(connection.from), connection.port)];
        Row {
            host: scenario.topology.hosts()[connection.from as usize]
                .name
                .clone(),
            live: totals.map(|totals| totals.problem_events[Problem::Timeout as usize]),
            unmeasured: totals
                .iter()
                .any(|totals| totals.unmeasured.contains(Problem::Timeout)),
            kernel: own.map(|(flow, _)| u64::from(flow.timeouts)).sum(),
            packets: timeouts(judged, again),
            counted: counted(&snapshots),
            observed: moments(again),
        }
    };
    let rows = plan.connections.iter().enumerate().map(row).collect();
    (run, rows)
}

/// The table, and the totals below it.
fn print(name: &str, rows: &[Row]) {
    let sum = |count: fn(&Row) -> u64| rows.iter().map(count).sum::<u64>();
    let with = rows.iter().filter(|row| row.kernel > 0).count();
    println!("{name}: {} connections, {with} with timeouts", rows.len());
    println!(
        "{:<12}{:>8}{:>8}{:>8}{:>8}",
        "host", "1 ms", "500 ms", "kernel", "packets"
    );
    let line = |host: &str, counts: [u64; 4]| {
        let [a, b, c, d] = counts;
        println!("{host:<12}{a:>8}{b:>8}{c:>8}{d:>8}");
    };
    for row in rows.iter().filter(|row| row.kernel + row.packets > 0) {
        line(
            &row.host,
            [row.live[0], row.live[1], row.kernel, row.packets],
        );
    }
    let totals = [
        sum(|row| row.live[0]),
        sum(|row| row.live[1]),
        sum(|row| row.kernel),
        sum(|row| row.packets),
    ];
    line("all", totals);
}

/// Every account says the same of every connection.
fn assert_equal(name: &str, rows: &[Row]) {
    print(name, rows);
    for row in rows {
        let host = &row.host;
        assert!(!row.unmeasured, "{name} {host}");
        assert_eq!(row.live, [row.kernel; 2], "{name} {host}: the classifier");
        assert_eq!(row.packets, row.kernel, "{name} {host}: packets");
    }
}

#[test]
fn snaps_timeouts_are_those_of_the_packets() {
    let Some(kernel) = kernel() else { return };
    let (run, rows) = compare(&kernel, SNAP, None);
    assert_equal("as SNAP", &rows);
    // 35 connections asked 20 times; some meet timeouts and some do not.
    assert_eq!(rows.len(), 35);
    assert_eq!(run.results.queries.len(), 20);
    let with = rows.iter().filter(|row| row.kernel > 0).count();
    assert!((1..35).contains(&with), "{with}");
    // Each when the packets show it: between one tcp_info and the next.
    for row in &rows {
        for counted in &row.counted {
            let before = |observed: &i64| (0..=1_000_000).contains(&(counted - observed));
            assert!(row.observed.iter().any(before), "{} {counted}", row.host);
        }
    }
    // SNAP's application log: answers with a timeout take much longer. Others as long as that
    // had a probe of their lone last segment, which waits as long and is no timeout.
    let mut slow = 0;
    for flow in &run.results.flows {
        let took = flow.completion().expect("it is done");
        assert!(flow.timeouts == 0 || took >= RTO_MIN, "{flow:?}");
        assert!(took < RTO_MIN || flow.retransmissions > 0, "{flow:?}");
        slow += u32::from(took >= RTO_MIN && flow.timeouts == 0);
    }
    let late = run.results.flows.iter().filter(|flow| flow.timeouts > 0);
    println!(
        "{} answers had timeouts, {slow} more were as late",
        late.count()
    );
    // The next question comes when everything is answered, as SNAP's aggregator has it.
    for query in &run.results.queries {
        let finish = query.finish.expect("it is done");
        assert!(finish - query.start < Span::from_millis(2000), "{query:?}");
    }
}

/// The scenario with something else in place of what is there.
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(SNAP.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

const TCP: &str = "preset = \"linux\"";
const BUFFER: &str = "buffer = \"200 packets\"";

/// Other buffers, answers, congestion controls and options: the same rules hold.
#[test]
fn timeouts_are_those_of_the_packets_elsewhere() {
    let Some(kernel) = kernel() else { return };
    let newreno = format!("{TCP}\nalgorithm = \"newreno\"");
    let fresh = [
        (TCP, &*format!("{TCP}\nhandshake = true")),
        ("keep-connections = true", ""),
    ];
    let small = [(BUFFER, "buffer = \"64 packets\"")];
    let longer = [small[0], ("10 us", "100 us")];
    let bare = [("\"52 B\"", "\"40 B\""), ("\"1448 B\"", "\"1460 B\"")];
    for (name, changes) in [
        ("64 packets", &small[..]),
        ("20 kB", &[("100 kB", "20 kB")][..]),
        ("500 kB", &[("100 kB", "500 kB")][..]),
        ("RTT 0.4 ms, 64 packets", &longer[..]),
        ("NewReno", &[(TCP, &*newreno)][..]),
        ("DCTCP", &[(TCP, "preset = \"dctcp\"")][..]),
        ("no timestamps", &bare[..]),
        ("a connection for each answer", &fresh[..]),
    ] {
        let (_, rows) = compare(&kernel, &with(changes), None);
        assert_equal(name, &rows);
    }
    // BBR's pacing may take longer than RACK's timer: a few of its retransmissions look like a
    // timer's. All others are what the kernel counts.
    let (_, rows) = compare(&kernel, SNAP, Some("bbr"));
    print("BBR", &rows);
    for row in &rows {
        assert_eq!(
            row.live, [row.kernel; 2],
            "BBR {}: the classifier",
            row.host
        );
        assert!(row.packets >= row.kernel, "BBR {}: packets", row.host);
    }
}

/// A path that loses, doubles and holds packets up: timeouts that were needless count too.
#[test]
fn timeouts_are_those_of_the_packets_on_bad_lines() {
    let Some(kernel) = kernel() else { return };
    let line = |rest: &str| format!("{BUFFER}\n[[line]]\non = \"tor -> aggregator\"\n{rest}");
    let lost = line("loss = \"10 %\"");
    let doubled = line("duplication = \"5 %\"\nreordering = { share = \"5 %\", by = \"3 ms\" }");
    // Twice in a query nothing comes through for a while: longer than a timer waits.
    let held = (0..20).fold(BUFFER.to_owned(), |text, query| {
        let at = |ms: u32| format!("at = \"{}.{ms:03} s\"", 2 * query);
        let (from, to) = (at(5), at(7));
        let on = "\n[[line]]\non = \"tor -> aggregator\"\n";
        text + on + &from + "\nextra-delay = \"400 ms\"" + on + &to + "\nextra-delay = \"0 ms\""
    });
    for (name, to) in [("loss", lost), ("doubled", doubled), ("held up", held)] {
        let (_, rows) = compare(&kernel, &with(&[(BUFFER, &*to)]), None);
        assert_equal(name, &rows);
    }
}
