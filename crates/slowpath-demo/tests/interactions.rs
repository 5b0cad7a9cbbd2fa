// SPDX-License-Identifier: Apache-2.0
//! Problems that explain each other, on real TCP: each is found where it was made, with
//! numbers that follow from how it was made, and not in the same traffic without its cause.
//! What Linux does not do to Linux, a delayed ACK after a timeout, is not found.

use slowpath_agent::{Agent, Config};
use slowpath_demo::watch_each;
use slowpath_diagnose::{
    Interaction, InteractionEvidence, InteractionKind, Interactions, Observation, ProxyFlow,
};
use slowpath_model::{ConnectionId, FourTuple, InteractionInterval, Problem};
use slowpath_store::{LogReader, TimeRange};
use slowpath_testbed::workload::{DriveMode, DriveOptions, ServeMode, ServeOptions};
use slowpath_testbed::{
    Family, LinkOptions, Need, Role, Scenario, Side, Testbed, attempts, missing_requirements,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use InteractionKind::*;

fn agent(test: &str) -> Option<Agent> {
    configured(test, Config::default())
}

fn configured(test: &str, config: Config) -> Option<Agent> {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {test}: {reason}");
        return None;
    }
    let config = Config {
        interval: Duration::from_millis(200),
        seed: Some(1),
        ..config
    };
    match Agent::start(config) {
        Ok(agent) => Some(agent),
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            None
        }
    }
}

/// Verdicts of some namespaces, and what was found among them at any poll.
struct Joined {
    namespaces: Vec<u32>,
    recent: Interactions,
    found: BTreeMap<(InteractionKind, Vec<ConnectionId>), Interaction>,
}

impl Joined {
    fn new(testbed: &Testbed) -> Self {
        let inode = |side| testbed.namespace(side).inode().expect("has a number");
        Joined {
            namespaces: vec![inode(Side::A), inode(Side::B)],
            recent: Interactions::default(),
            found: BTreeMap::new(),
        }
    }

    fn look(&mut self, agent: &Agent) {
        for live in agent.recently_closed().chain(agent.connections()) {
            if self.namespaces.contains(&live.snapshot.id.netns)
                && let Some(verdict) = &live.latest
            {
                self.recent.observe(&Observation {
                    tuple: live.snapshot.tuple,
                    pid: live.owner.pid(),
                    origin: live.snapshot.origin,
                    stats: &live.snapshot.stats,
                    verdict,
                });
            }
        }
        for interaction in self.recent.find() {
            let key = (interaction.kind, interaction.connections.clone());
            self.found.insert(key, interaction);
        }
    }

    /// Those of that kind.
    fn of(&self, kind: InteractionKind) -> Vec<&Interaction> {
        self.found.values().filter(|i| i.kind == kind).collect()
    }
}

/// What a scenario's injected connection took part in.
fn of_scenario(agent: &mut Agent, scenario: &Scenario) -> Vec<Interaction> {
    let mut running = scenario.start().expect("starts");
    let mut joined = Joined::new(running.testbed());
    watch_each(agent, &mut running, |agent| joined.look(agent)).expect("ends");
    let end = running.connection(Role::Injected, Side::A);
    let tuple = FourTuple::new(end.local, end.remote);
    let netns = running.testbed().namespace(Side::A).inode().expect("has");
    let id = agent
        .connections()
        .find(|c| c.snapshot.id.netns == netns && c.snapshot.tuple == tuple)
        .map(|c| c.snapshot.id)
        .expect("it is live");
    joined
        .found
        .into_values()
        .filter(|i| i.connections.contains(&id))
        .collect()
}

fn kinds(found: &[Interaction]) -> Vec<InteractionKind> {
    let mut kinds: Vec<_> = found.iter().map(|i| i.kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_small_send_buffer_is_below_the_paths_product() {
    attempts("below-bdp", || {
        let Some(mut agent) = agent("below-bdp") else {
            return;
        };
        let mut scenario = Scenario::builtin("send-buffer-limited").expect("is there");
        scenario.drive.seconds = Some(2.0);
        let found = of_scenario(&mut agent, &scenario);
        assert_eq!(kinds(&found), [SendBufferBelowBdp], "{found:#?}");
        let InteractionEvidence::SendBufferBelowBdp {
            capacity_bytes,
            bandwidth_low,
            product_low_bytes,
            product_high_bytes,
            ..
        } = found[0].evidence
        else {
            panic!("{found:#?}");
        };
        // The path: 20 Mbit/s and 40 ms, 100,000 bytes.
        assert!(bandwidth_low <= 2_600_000, "{bandwidth_low}");
        assert!(product_low_bytes <= 110_000, "{product_low_bytes}");
        assert!(capacity_bytes < product_high_bytes && capacity_bytes < 100_000);

        // As large as Linux makes it.
        let mut control = scenario.clone();
        control.drive.sndbuf = None;
        control.drive.seconds = Some(1.5);
        let found = of_scenario(&mut agent, &control);
        assert!(found.is_empty(), "{found:#?}");
    });
}

#[test]
fn an_agent_without_a_view_logs_what_it_finds() {
    attempts("logged", || {
        let log = tempfile::tempdir().expect("makes a folder");
        let config = Config {
            log: Some(log.path().to_owned()),
            verdicts: false,
            ..Config::default()
        };
        let Some(mut agent) = configured("logged", config) else {
            return;
        };
        let mut scenario = Scenario::builtin("send-buffer-limited").expect("is there");
        scenario.drive.seconds = Some(2.5);
        let mut running = scenario.start().expect("starts");
        watch_each(&mut agent, &mut running, |_| {}).expect("ends");
        let end = running.connection(Role::Injected, Side::A);
        let tuple = FourTuple::new(end.local, end.remote);
        let netns = running.testbed().namespace(Side::A).inode().expect("has");
        assert_eq!(agent.finish().log_error, None);
        let reader = LogReader::open(log.path()).expect("is a log");
        let read = reader.interactions(TimeRange::ALL).expect("reads");
        let mine = |i: &&InteractionInterval| i.tuple == tuple && i.connection.netns == netns;
        let found: Vec<_> = read.rows.iter().filter(mine).collect();
        assert!(!found.is_empty(), "{:#?}", read.rows);
        assert!(
            found.iter().all(|i| i.kind == SendBufferBelowBdp),
            "{found:#?}"
        );
        // Within the 2.5 s that it lasted.
        let time: u64 = found.iter().map(|i| i.duration.0).sum();
        assert!((500_000..=3_500_000).contains(&time), "{found:#?}");
        assert!(found.iter().all(|i| i.owner.pid().is_some()));
    });
}

#[test]
fn single_segments_in_flight_wait_for_the_timer() {
    attempts("too-few", || {
        let Some(mut agent) = agent("too-few") else {
            return;
        };
        // Requests of five segments: a mean write that is long enough, whichever of its
        // segments is lost.
        let mut long = Scenario::builtin("timeout").expect("is there");
        long.drive.requests = Some(6);
        let found = of_scenario(&mut agent, &long);
        assert!(
            !kinds(&found).contains(&TooFewForFastRetransmit),
            "{found:#?}"
        );
        // Requests of two segments, of which the second is lost.
        let mut short = long.clone();
        short.drive.request_bytes = Some(2_000);
        short.drop.as_mut().expect("it drops").message_bytes = Some(2_000);
        let found = of_scenario(&mut agent, &short);
        assert_eq!(kinds(&found), [TooFewForFastRetransmit], "{found:#?}");
        for interaction in &found {
            let InteractionEvidence::TooFewForFastRetransmit {
                average_write_bytes,
                spread_over_connections,
                ..
            } = interaction.evidence
            else {
                panic!("{interaction:#?}");
            };
            assert_eq!((average_write_bytes, spread_over_connections), (2_000, 1));
        }
    });
}

/// SNAP's Figure 6 with a receiver that is Linux: messages of two segments; of some the
/// second is lost, and lost again as a tail loss probe. The timer sends only it once more.
const FIGURE_6: &str = r#"
description = "One segment sent again after a timeout, to a receiver that delays ACKs where it may."

[serve]
mode = "sink"
delay_acks = true

[drive]
mode = "one-way"
request_bytes = 2896
pause_ms = 500
requests = 6

[drop]
every = 3
message_bytes = 2896
transmissions = 2

[expect]
dominating = "Timeout"
"#;

#[test]
fn linux_acknowledges_a_segment_after_a_timeout_at_once() {
    attempts("figure-6", || {
        let Some(mut agent) = agent("figure-6") else {
            return;
        };
        // After a pause longer than its RTO the receiver acknowledges quickly
        // (tcp_event_data_recv), whatever the application set: the interaction that
        // tests/interactions.rs of slowpath-diagnose finds on a timeline is not there, the
        // timeouts are.
        let scenario = Scenario::parse("figure-6", FIGURE_6).expect("is a scenario");
        let found = of_scenario(&mut agent, &scenario);
        assert_eq!(kinds(&found), [TooFewForFastRetransmit], "{found:#?}");
    });
}

/// Reads from one and writes to the other until the end.
fn relay(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 16_384];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// A client in side A sends to this process in side A, which passes it on to a server in
/// side B: what was found there.
fn proxied(agent: &mut Agent, test: &str, serve: ServeOptions, rate: Option<u64>) -> Joined {
    let mut testbed = Testbed::new(test).expect("builds");
    let link = testbed.add_link(&LinkOptions::default()).expect("links");
    let server = testbed.serve(&serve).expect("serves");
    let to = SocketAddr::new(
        testbed.link(link).b_address(Family::Ipv4),
        server.ready().port,
    );
    let (listener, out) = testbed
        .namespace(Side::A)
        .run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
            (listener, TcpStream::connect(to).expect("connects"))
        })
        .expect("enters");
    let mut joined = Joined::new(&testbed);
    let mut client = testbed
        .drive(&DriveOptions {
            mode: DriveMode::Bulk,
            connect: listener.local_addr().expect("is bound"),
            seconds: Some(3.5),
            rate,
            ..DriveOptions::default()
        })
        .expect("connects");
    let (from, _) = listener.accept().expect("accepts");
    agent.poll().expect("polls");
    std::thread::scope(|scope| {
        scope.spawn(|| relay(from, out));
        client.go().expect("listens");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(3_300) {
            std::thread::sleep(agent.until_next_poll());
            agent.poll().expect("polls");
            joined.look(agent);
        }
        client.kill().expect("ends");
    });
    drop(server);
    joined
}

#[test]
fn a_proxy_is_slow_because_of_its_slow_server() {
    attempts("proxy", || {
        let Some(mut agent) = agent("proxy") else {
            return;
        };
        let slow = ServeOptions {
            mode: ServeMode::Sink,
            rcvbuf: Some(16_384),
            read_rate: Some(300_000),
            read_bytes: Some(4_096),
            ..ServeOptions::default()
        };
        let joined = proxied(&mut agent, "proxy", slow, None);
        let found = joined.of(PipelinedProxy);
        assert!(!found.is_empty(), "{:#?}", joined.found);
        for interaction in found {
            let InteractionEvidence::PipelinedProxy {
                pid,
                flow,
                problem,
                cause,
                ..
            } = &interaction.evidence
            else {
                panic!("{interaction:#?}");
            };
            assert_eq!((*pid, *flow), (std::process::id(), ProxyFlow::BackedUp));
            assert!(
                matches!(
                    problem,
                    Problem::ReceiverWindowLimited | Problem::ZeroWindow
                ),
                "{problem}"
            );
            // The side that goes out to the server.
            assert!(!cause.remote.ip().is_loopback(), "{cause}");
        }
    });
}

#[test]
fn a_proxy_that_keeps_up_is_none() {
    attempts("proxy-control", || {
        let Some(mut agent) = agent("proxy-control") else {
            return;
        };
        let joined = proxied(&mut agent, "proxyc", ServeOptions::default(), Some(500_000));
        assert!(joined.of(PipelinedProxy).is_empty(), "{:#?}", joined.found);
    });
}
