// SPDX-License-Identifier: Apache-2.0
//! Numbers against a packet capture of the same run: retransmissions, timeouts and zero
//! windows as tcptrace and tshark see them, limited times within one polling interval of
//! what the capture allows. And the two tiers, on the same socket at the same time, against
//! each other.

mod packets;

use packets::Account;
use slowpath_agent::{Agent, Config, LiveConnection, StartError, TierChoice};
use slowpath_model::{FourTuple, Problem};
use slowpath_testbed::workload::{DriveOptions, ServeOptions};
use slowpath_testbed::{
    Capture, Dropper, Family, Namespace, Need, Scenario, Side, Testbed, attempts,
    missing_requirements, oracle,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The mean polling interval, and what limited times may differ by.
const INTERVAL: Duration = Duration::from_millis(200);

/// One scenario's injected connection, run once and observed from four sides.
struct Observed {
    what: String,
    bytes_written: u64,
    /// The sending end as the agent knows it, by tier.
    bpf: LiveConnection,
    inet_diag: LiveConnection,
    tcptrace: oracle::TcptraceDirection,
    /// What the receiver sent.
    tcptrace_back: oracle::TcptraceDirection,
    tshark: oracle::TsharkDirection,
    tshark_back: oracle::TsharkDirection,
    packets: Account,
}

fn agent(tier: TierChoice) -> Config {
    Config {
        interval: INTERVAL,
        tier,
        history: 1,
        seed: Some(1),
        ..Config::default()
    }
}

/// The agent's view of the connection with these ends, from `local`.
fn find(
    agent: &Agent,
    namespace: &Namespace,
    (local, remote): (SocketAddr, SocketAddr),
) -> LiveConnection {
    let netns = namespace.inode().expect("the namespace is there");
    let tuple = FourTuple::new(local, remote);
    agent
        .connections()
        .find(|c| c.snapshot.id.netns == netns && c.snapshot.tuple == tuple)
        .expect("it is live")
        .clone()
}

/// Unlike [`Scenario::start`], the capture is there before the connection is opened: the
/// handshake shows the window scale. There is no control.
fn observe(scenario: &Scenario) -> Option<Observed> {
    let what = format!("{} {:?}", scenario.name, scenario.family);
    let needs = [
        Need::Namespaces,
        Need::Capture,
        Need::Tcptrace,
        Need::Tshark,
    ];
    if let Some(reason) = missing_requirements(&needs) {
        println!("SKIPPED {what}: {reason}");
        return None;
    }
    let folder = tempfile::tempdir().expect("makes a folder");
    let file = folder.path().join("sender.pcap");
    let mut testbed = Testbed::new(&what).expect("makes namespaces");
    for (name, value) in &scenario.sysctls {
        testbed.sysctl(name, value).expect("sets");
    }
    let link = testbed.add_link(&scenario.link).expect("adds a link");
    // inet_diag sees the namespace it is opened in.
    let a = testbed.namespace(Side::A);
    let watched = a
        .run(|| watch(scenario, &testbed, link, &file))
        .expect("enters");
    let watched = match watched {
        Ok(watched) => watched,
        Err(error) => {
            println!("SKIPPED {what}: {error}");
            return None;
        }
    };
    let (sender, receiver) = {
        let tuple = FourTuple::new(watched.ends.0, watched.ends.1);
        (tuple.local, tuple.remote)
    };
    let tcptrace = oracle::tcptrace(&file).expect("runs");
    let by_tcptrace = |end| *tcptrace.iter().find_map(|c| c.sent_by(end)).expect("there");
    let tshark = oracle::tshark(&file).expect("runs");
    let by_tshark = |end| *tshark.iter().find_map(|c| c.sent_by(end)).expect("there");
    let observed = Observed {
        bytes_written: watched.bytes_written,
        bpf: watched.bpf,
        inet_diag: watched.inet_diag,
        tcptrace: by_tcptrace(sender),
        tcptrace_back: by_tcptrace(receiver),
        tshark: by_tshark(sender),
        tshark_back: by_tshark(receiver),
        packets: packets::sender(&packets::read(&file), sender, watched.cwnd),
        what,
    };
    println!(
        "{}: capture {:?}; BPF {:?} rwnd {:?} sndbuf {:?}; inet_diag rwnd {:?} sndbuf {:?}",
        observed.what,
        observed.packets,
        observed.bpf.totals,
        observed.bpf.snapshot.stats.rwnd_limited,
        observed.bpf.snapshot.stats.sndbuf_limited,
        observed.inet_diag.snapshot.stats.rwnd_limited,
        observed.inet_diag.snapshot.stats.sndbuf_limited,
    );
    Some(observed)
}

/// What both agents saw.
struct Watched {
    ends: (SocketAddr, SocketAddr),
    bytes_written: u64,
    /// By the driver's own account, in segments.
    cwnd: u32,
    bpf: LiveConnection,
    inet_diag: LiveConnection,
}

/// Runs the scenario's injected connection observed by an agent of each tier, which
/// poll at the same times.
fn watch(
    scenario: &Scenario,
    testbed: &Testbed,
    link: usize,
    file: &Path,
) -> Result<Watched, StartError> {
    let mut bpf = Agent::start(agent(TierChoice::Bpf))?;
    let mut inet_diag = Agent::start(agent(TierChoice::InetDiag))?;
    let capture = Capture::start(testbed, Side::A, link, file).expect("captures");
    let address = testbed.link(link).b_address(scenario.family);
    let mut server = testbed
        .serve(&ServeOptions {
            bind: (scenario.family != Family::Mapped).then_some(address),
            ..scenario.serve.clone()
        })
        .expect("serves");
    let _dropper = scenario.drop.clone().map(|mut rule| {
        rule.port = Some(server.ready().port);
        let interface = testbed.link(link).interface();
        Dropper::attach(testbed.namespace(Side::B), interface, rule).expect("attaches")
    });
    let mut driver = testbed
        .drive(&DriveOptions {
            connect: SocketAddr::new(address, server.ready().port),
            ..scenario.drive.clone()
        })
        .expect("connects");
    let ends = driver.ready().connections[0];

    let mut poll = || {
        bpf.poll().expect("polls");
        inet_diag.poll().expect("polls");
        bpf.until_next_poll()
    };
    let mut wait = poll();
    driver.go().expect("goes");
    let report = std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let driver = &mut driver;
        let waiting = scope.spawn(move || {
            let report = driver.report();
            drop(done);
            report
        });
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = poll();
        }
        waiting.join().expect("no panic").expect("reports")
    });
    server.stop().expect("stops");
    server.report().expect("reports");
    // Nothing moves any more; the sockets are open.
    poll();
    assert_eq!(capture.stop().expect("stops").lost, 0);
    let a = testbed.namespace(Side::A);
    Ok(Watched {
        ends,
        bytes_written: report.bytes_written,
        cwnd: report.tcp.expect("the kernel states it").snd_cwnd,
        bpf: find(&bpf, a, ends),
        inet_diag: find(&inet_diag, a, ends),
    })
}

fn events(connection: &LiveConnection, problem: Problem) -> u64 {
    connection.totals.problem_events[problem as usize]
}

fn time(connection: &LiveConnection, problem: Problem) -> Duration {
    Duration::from_micros(connection.totals.problem_time[problem as usize].0)
}

/// The kernel's own counter of the time limited by `problem`.
fn counter(connection: &LiveConnection, problem: Problem) -> Duration {
    let stats = &connection.snapshot.stats;
    let time = match problem {
        Problem::SendBufferLimited => stats.sndbuf_limited,
        Problem::ReceiverWindowLimited => stats.rwnd_limited,
        _ => None,
    };
    Duration::from_micros(time.expect("this kernel counts it").0)
}

/// What holds in every scenario.
fn counts_agree(observed: &Observed) {
    let what = &observed.what;
    for (tier, connection) in [("BPF", &observed.bpf), ("inet_diag", &observed.inet_diag)] {
        let stats = &connection.snapshot.stats;
        assert_eq!(
            stats.retransmitted, observed.tcptrace.retransmitted_packets,
            "{what}: {tier} retransmitted"
        );
        assert_eq!(
            stats.bytes_retransmitted,
            Some(observed.tcptrace.retransmitted_bytes),
            "{what}: {tier} bytes retransmitted"
        );
        assert_eq!(
            stats.data_segments_out, observed.tcptrace.data_packets,
            "{what}: {tier} segments with payload"
        );
        assert_eq!(
            stats.bytes_sent,
            Some(observed.bytes_written + observed.tcptrace.retransmitted_bytes),
            "{what}: {tier} bytes sent"
        );
        // The capture distinguishes a timer from a probe by the silence before it, and now and then
        // a timer comes early: it may see fewer, never more. scenarios.rs asserts the exact
        // number, from what was dropped.
        let timeouts = events(connection, Problem::Timeout);
        assert!(
            (observed.packets.timeouts..=observed.packets.timeouts + 2).contains(&timeouts),
            "{what}: {tier} {timeouts} timeouts, {:?}",
            observed.packets
        );
        assert_eq!(
            time(connection, Problem::ReceiverWindowLimited) > Duration::ZERO,
            observed.tcptrace_back.zero_window_advertisements > 0,
            "{what}: {tier} {:?} {:?}",
            connection.totals,
            observed.tcptrace_back
        );
    }
    assert_eq!(
        observed.packets.retransmitted, observed.tcptrace.retransmitted_packets,
        "{what}"
    );
    assert_eq!(
        observed.packets.segments, observed.tcptrace.data_packets,
        "{what}"
    );
    assert_eq!(
        observed.tshark.retransmissions + observed.tshark.out_of_order,
        observed.packets.retransmitted,
        "{what}: tshark"
    );
    assert_eq!(
        observed.tshark_back.zero_windows, observed.tcptrace_back.zero_window_advertisements,
        "{what}: tshark"
    );
}

/// The two tiers read the same socket, one right after the other.
fn tiers_agree(observed: &Observed) {
    let what = &observed.what;
    let (b, i) = (&observed.bpf.snapshot, &observed.inet_diag.snapshot);
    assert_eq!(b.id.cookie, i.id.cookie, "{what}");
    let exact = |c: &LiveConnection| {
        let s = &c.snapshot.stats;
        (
            (s.bytes_sent, s.bytes_acked, s.bytes_received),
            // Not segments_out: a delayed ACK may leave between the two polls.
            (s.data_segments_out, s.segments_in, s.data_segments_in),
            (s.retransmitted, s.delivered, s.rto_stats),
            events(c, Problem::Timeout),
        )
    };
    assert_eq!(exact(&observed.bpf), exact(&observed.inet_diag), "{what}");
    for problem in [Problem::SendBufferLimited, Problem::ReceiverWindowLimited] {
        let times: [fn(&LiveConnection, Problem) -> Duration; 2] = [counter, time];
        for of in times {
            let (b, i) = (of(&observed.bpf, problem), of(&observed.inet_diag, problem));
            assert!(b.abs_diff(i) <= INTERVAL, "{what}: {problem} {b:?} {i:?}");
        }
    }
}

/// `time` lies within `least` and `most`, give or take an interval.
fn within(what: &str, time: Duration, least: Duration, most: Duration) {
    assert!(
        time + INTERVAL >= least && time <= most + INTERVAL,
        "{what}: {time:?} is not within {least:?} and {most:?}"
    );
}

fn check(name: &str, family: Family) -> Option<Observed> {
    let scenario = Scenario::builtin(name).expect("parses").with_family(family);
    let observed = observe(&scenario)?;
    counts_agree(&observed);
    tiers_agree(&observed);
    Some(observed)
}

#[test]
fn fast_retransmissions() {
    attempts("fast_retransmissions", || {
        for family in [Family::Ipv4, Family::Ipv6] {
            let Some(observed) = check("fast-retransmit", family) else {
                return;
            };
            assert!(observed.packets.retransmitted > 0);
            assert_eq!(observed.packets.timeouts, 0);
        }
    });
}

#[test]
fn timeouts() {
    attempts("timeouts", || {
        let Some(observed) = check("timeout", Family::Ipv4) else {
            return;
        };
        assert!(observed.packets.timeouts > 0);
        // tshark puts down to a timer whatever comes late: probes as well.
        assert!(
            observed.tshark.timers >= observed.packets.timeouts,
            "{:?}",
            observed.tshark
        );
    });
}

#[test]
fn tail_loss_probes() {
    attempts("tail_loss_probes", || {
        let Some(observed) = check("tail-loss-probe", Family::Ipv4) else {
            return;
        };
        assert!(observed.packets.retransmitted > 0);
        assert_eq!(observed.packets.timeouts, 0);
    });
}

#[test]
fn receiver_window() {
    attempts("receiver_window", || {
        let Some(observed) = check("receiver-window-limited", Family::Ipv4) else {
            return;
        };
        let closed = observed.packets.window_closed;
        assert!(closed > INTERVAL * 5, "{closed:?}");
        for connection in [&observed.bpf, &observed.inet_diag] {
            let problem = Problem::ReceiverWindowLimited;
            within("counter", counter(connection, problem), closed, closed);
            within("verdicts", time(connection, problem), closed, closed);
        }
    });
}

#[test]
fn send_buffer() {
    attempts("send_buffer", || {
        let Some(observed) = check("send-buffer-limited", Family::Ipv4) else {
            return;
        };
        let (least, most) = (
            observed.packets.buffer_full_least,
            observed.packets.buffer_full_most,
        );
        assert!(most > INTERVAL * 5, "{most:?}");
        for connection in [&observed.bpf, &observed.inet_diag] {
            let problem = Problem::SendBufferLimited;
            within("counter", counter(connection, problem), least, most);
            within("verdicts", time(connection, problem), least, most);
        }
    });
}
