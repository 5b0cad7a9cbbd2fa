// SPDX-License-Identifier: Apache-2.0
//! What scenarios say, and what they may not say.

use super::units::{FREQUENCY, RATE, SHARE, SIZE, TIME, fraction};
use super::{Scenario, UnitError};
use crate::engine::{Application, QueueSeries, Simulation, SwitchId, Transport};
use crate::tcp::{
    Algorithm, DelayedAck, Ecn, LossDetection, ReceiveWindow, RtoEstimator, TcpConfig,
};
use crate::workload::{Arrivals, Intensity, Kind};
use slowpath_switch::{
    Alpha, Detour, Limit, PortId, PortKind, Shared, Span, Switch, Threshold, Time,
};
use std::io::{Error, ErrorKind};

/// Two hosts a side, queries and flows. Line numbers below count from its first line.
pub(super) const BASE: &str = r#"duration = "1 s"
[topology]
kind = "dumbbell"
left = 2
right = 2
[topology.links]
rate = "1 Gbit/s"
delay = "5 us"
[switch]
buffer = "100 packets"
[[workload]]
kind = "poisson"
load = 0.3
sizes = "20 kB"
"#;

pub(super) fn files(name: &str) -> std::io::Result<String> {
    match name {
        "sizes.txt" => Ok("0 0\n10000 50\n20000 100\n".to_owned()),
        "bad.txt" => Ok("0 0\n10000 0.5\n".to_owned()),
        "flows.csv" => {
            Ok("time,from,to,bytes\n0.5,left-0,right-1,7\n0.75,right-1,left-0,8\n".to_owned())
        }
        "bad.csv" => Ok("time,from,to,bytes\n0.5,left-0,right-7,7\n".to_owned()),
        "endless.txt" => Err(Error::from(ErrorKind::FileTooLarge)),
        _ => Err(Error::from(ErrorKind::NotFound)),
    }
}

pub(super) fn parse(text: &str) -> Scenario {
    Scenario::parse(text, &files).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The base with a piece exchanged, which must be there.
pub(super) fn changed(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from}");
    BASE.replacen(from, to, 1)
}

#[test]
fn integers_are_written_as_toml_has_them() {
    for (text, seed) in [
        ("1_000", 1_000),
        ("0x2A", 42),
        ("0o17", 15),
        ("0b101", 5),
        ("+3", 3),
    ] {
        assert_eq!(
            parse(&format!("seed = {text}\n{BASE}")).seed,
            seed,
            "{text}"
        );
    }
    let load = parse(&changed("0.3", "2.5e-1"));
    let Kind::Poisson(poisson) = &load.workloads[0].kind else {
        panic!("{:?}", load.workloads);
    };
    assert_eq!(poisson.intensity, Intensity::Load(0.25));
}

#[test]
fn what_is_not_said_is_usual() {
    let scenario = parse(BASE);
    assert_eq!((scenario.seed, scenario.ttl), (1, 255));
    assert_eq!(scenario.duration, Span::from_secs(1));
    assert_eq!(scenario.until, Time::ZERO + Span::from_secs(1));
    assert_eq!(scenario.tcp, [TcpConfig::linux()]);
    assert_eq!(scenario.queues, QueueSeries::Off);
    assert_eq!(scenario.switch.buffer, Limit::packets(100));
    assert_eq!(scenario.switch.shared, None);
    assert_eq!(scenario.switch.detour, None);
    assert!(scenario.switch.decrement_ttl && !scenario.switch.count_flows);
    let workload = &scenario.workloads[0];
    assert_eq!(workload.name, "poisson");
    assert_eq!(workload.transport, Transport::Tcp(0));
    assert_eq!(workload.duration(), Span::from_secs(1));
}

/// Every key but those that exclude others.
pub(super) const EVERYTHING: &str = r#"
description = "a tree with detours"
seed = 0x2a
duration = "2.5 s"
drain = "100 ms"
[topology]
kind = "fat-tree"
k = 4
links = { rate = "1 Gbit/s", delay = "1.5 us" }
fabric-links = { rate = "2.5 Gbit/s", buffer = ["64 packets", "96 kB"], marking = "30 kB" }
[switch]
buffer = "100 packets"
shared-buffer = "2 MB"
alpha = "1/4"
marking = "20 packets"
classes = 2
decrement-ttl = false
count-flows = true
detour = { arrival-port = false, mark = false }
[host]
ttl = 24
[tcp]
preset = "rfc-newreno"
algorithm = "cubic"
hystart = true
ecn = "classic"
sack = false
loss-detection = "duplicate-acks"
duplicate-ack-threshold = 45
tail-loss-probe = true
proportional-rate-reduction = true
frto = true
limited-transmit = false
pacing = true
max-pacing-rate = "2 Gbit/s"
mss = "1448 B"
header = "52 B"
initial-window = 4
initial-ssthresh = 100
slow-start-limit = 2
slow-start-after-idle = false
rto-estimator = "linux"
rto-min = "10 ms"
rto-max = "60 s"
rto-initial = "100 ms"
delayed-ack = "40 ms"
receive-window = { initial = "64 KiB", max = "6 MiB" }
handshake = true
[[workload]]
kind = "incast"
name = "queries"
class = 1
start = "100 ms"
stop = "2 s"
rate = "300 /s"
arrivals = "periodic"
degree = 6
response = "20 kB"
jitter = "10 us"
count = 1000
among = "other-pod"
from = ["host-1-*", "host-2-0-0", "host-3-*"]
to = ["host-0-0-0"]
keep-connections = true
tcp = { algorithm = "dctcp" }
[[workload]]
kind = "poisson"
gap = "120 ms"
sizes = { file = "sizes.txt" }
datagram = "1500 B"
[[workload]]
kind = "bulk"
from = ["host-0-0-*"]
to = ["host-3-0-0", "host-3-0-1"]
flows = 3
bytes = "1 MiB"
stagger = "1 ms"
write = { bytes = "2 kB", every = "10 ms" }
[[workload]]
kind = "permutation"
[measure]
queues = ["edge-0-0 -> *", "core-0 -> aggregation-1-0"]
every = "100 us"
paths = true
warm-up = "20 ms"
"#;

#[test]
fn every_key_of_switches_and_measurements_is_read() {
    let scenario = parse(EVERYTHING);
    assert_eq!((scenario.seed, scenario.ttl), (42, 24));
    assert_eq!(scenario.warm_up, Span::from_millis(20));
    assert_eq!(scenario.until, Time::ZERO + Span::from_millis(2_600));
    let quarter = Alpha::new(1, 4).expect("not 0");
    let switch = scenario.switch;
    assert_eq!(
        switch.shared,
        Some(Shared {
            total: Limit::bytes(2_000_000),
            alpha: quarter
        })
    );
    assert_eq!(
        switch.detour,
        Some(Detour {
            arrival_port: false,
            mark: false
        })
    );
    assert_eq!(switch.marking, Some(Threshold::Packets(20)));
    assert_eq!(
        (switch.classes, switch.decrement_ttl, switch.count_flows),
        (2, false, true)
    );
    // Core switches come first; number 4 is the first pod's first edge switch.
    assert_eq!(scenario.topology.switches()[4].name, "edge-0-0");
    let config = scenario.switch_config(4);
    assert_eq!((config.seed, config.number, config.classes), (42, 4, 2));
    let [down, _, up, _] = config.ports[..] else {
        panic!("{config:?}");
    };
    assert_eq!(
        (down.kind, down.limit),
        (PortKind::Host, Limit::packets(100))
    );
    assert_eq!(
        (down.rate.bits_per_second(), down.propagation),
        (1_000_000_000, Span(1_500_000))
    );
    assert_eq!(down.marking, Some(Threshold::Packets(20)));
    let both = Limit {
        packets: Some(64),
        bytes: Some(96_000),
    };
    assert_eq!((up.kind, up.limit), (PortKind::Switch, both));
    assert_eq!(
        (up.rate.bits_per_second(), up.propagation),
        (2_500_000_000, Span(1_500_000))
    );
    assert_eq!(up.marking, Some(Threshold::Bytes(30_000)));
    let ports = [(0, 1), (4, 0), (4, 1), (4, 2), (4, 3)];
    let ports = ports
        .map(|(switch, port)| (SwitchId(switch), PortId(port)))
        .to_vec();
    assert_eq!(
        scenario.queues,
        QueueSeries::Sampled {
            every: Span::from_micros(100),
            ports
        }
    );
    assert!(scenario.paths);
}

#[test]
fn every_key_of_tcp_is_read() {
    let scenario = parse(EVERYTHING);
    let tcp = TcpConfig {
        algorithm: Algorithm::Cubic { hystart: true },
        ecn: Ecn::Classic,
        sack: false,
        loss_detection: LossDetection::DuplicateAcks(45),
        tail_loss_probe: true,
        proportional_rate_reduction: true,
        frto: true,
        dsack_undo: false,
        kernel_tick: None,
        limited_transmit: false,
        mss: 1448,
        header: 52,
        pacing: true,
        max_pacing_rate: slowpath_switch::Rate::from_bits_per_second(2_000_000_000),
        initial_window: 4,
        initial_ssthresh: 100,
        slow_start_limit: Some(2),
        slow_start_after_idle: false,
        rto_estimator: RtoEstimator::Linux,
        rto_min: Span::from_millis(10),
        // Not the simulator's.
        receiver_rto_min: None,
        reading: None,
        rto_max: Span::from_secs(60),
        rto_initial: Span::from_millis(100),
        delayed_ack: DelayedAck::Fixed(Span::from_millis(40)),
        receive_window: ReceiveWindow::Autotuned {
            initial: 65_536,
            max: 6 << 20,
        },
        handshake: true,
    };
    let dctcp = TcpConfig {
        algorithm: Algorithm::Dctcp,
        ecn: Ecn::Dctcp,
        ..tcp.clone()
    };
    assert_eq!(scenario.tcp, [tcp, dctcp]);
}

#[test]
fn every_key_of_workloads_is_read() {
    let scenario = parse(EVERYTHING);
    let [queries, poisson, bulk, permutation] = &scenario.workloads[..] else {
        panic!("{:?}", scenario.workloads);
    };
    assert_eq!((queries.name.as_str(), queries.class), ("queries", 1));
    assert_eq!(queries.transport, Transport::Tcp(1));
    assert!(queries.keep_connections);
    assert_eq!(queries.duration(), Span::from_millis(1_900));
    let Kind::Incast(incast) = &queries.kind else {
        panic!("{queries:?}");
    };
    assert_eq!(
        (incast.rate, incast.degree, incast.response),
        (300.0, 6, 20_000)
    );
    assert_eq!(
        (incast.arrivals, incast.jitter),
        (Arrivals::Periodic, Span::from_micros(10))
    );
    assert_eq!((incast.count, incast.endpoints.senders()), (Some(1000), 9));
    assert_eq!(poisson.transport, Transport::Datagrams(1500));
    let Kind::Poisson(poisson) = &poisson.kind else {
        panic!("{poisson:?}");
    };
    assert_eq!(poisson.intensity, Intensity::Gap(Span::from_millis(120)));
    assert_eq!(poisson.sizes.mean(), 10_000.0);
    let every = Span::from_millis(10);
    assert_eq!(
        bulk.application,
        Application::Periodic {
            chunk: 2_000,
            every
        }
    );
    let Kind::Bulk(bulk) = &bulk.kind else {
        panic!("{bulk:?}");
    };
    assert_eq!(bulk.pairs, [(0, 12), (1, 13)]);
    assert_eq!((bulk.flows, bulk.bytes), (3, Some(1 << 20)));
    let Kind::Permutation(permutation) = &permutation.kind else {
        panic!("{permutation:?}");
    };
    assert_eq!((permutation.hosts.len(), permutation.bytes), (16, None));
}

#[test]
fn links_are_listed_one_by_one() {
    let scenario = parse(
        r#"
duration = "1 s"
[topology]
kind = "custom"
hosts = ["a", "b"]
switches = ["s", "t", "u"]
links = { delay = "1 ms" }
[[topology.link]]
ends = ["a", "s"]
rate = "10 Mbit/s"
[[topology.link]]
ends = ["b", "t"]
rate = "20 Mbit/s"
delay = "2 ms"
# A loop of switches is a network like another.
[[topology.link]]
ends = ["s", "t"]
rate = "1 Mbit/s"
buffer = "425 packets"
[[topology.link]]
ends = ["t", "u"]
rate = "1 Mbit/s"
[[topology.link]]
ends = ["u", "s"]
rate = "1 Mbit/s"
[switch]
shared-buffer = "100 packets"
[[workload]]
kind = "bulk"
from = ["a"]
to = ["b"]
"#,
    );
    assert_eq!(scenario.topology.hop_counts(0), [0, 3]);
    let config = scenario.switch_config(0);
    assert_eq!(config.ports[0].propagation, Span::from_millis(1));
    assert_eq!(config.ports[0].limit, Limit::NONE);
    assert_eq!(config.ports[1].limit, Limit::packets(425));
    let total = Limit::packets(100);
    assert_eq!(
        config.shared,
        Some(Shared {
            total,
            alpha: Alpha::ONE
        })
    );
    assert!(Switch::<slowpath_switch::Header>::new(&config).is_ok());
}

#[test]
fn flows_come_as_the_engine_takes_them() {
    let text = changed(
        "kind = \"poisson\"\nload = 0.3\nsizes = \"20 kB\"",
        r#"kind = "trace"
file = "flows.csv"
start = "100 ms"
keep-connections = true
[[workload]]
kind = "incast"
rate = "10 /s"
arrivals = "periodic"
degree = 3
response = "5 kB"
[[workload]]
kind = "bulk"
from = ["left-*"]
to = ["right-0"]"#,
    );
    let scenario = parse(&text);
    let flows: Vec<_> = scenario.flows().collect();
    assert!(flows.is_sorted_by_key(|flow| flow.start));
    assert!(flows.iter().zip(0..).all(|(flow, id)| flow.id == id));
    let trace: Vec<_> = flows.iter().filter(|flow| flow.label == 0).collect();
    assert_eq!(trace.len(), 2);
    assert_eq!(trace[0].start, Time::ZERO + Span::from_millis(600));
    assert_eq!(
        (trace[0].source.0, trace[0].destination.0, trace[0].bytes),
        (0, 3, 7)
    );
    assert_eq!(trace[0].connection, Some(0));
    let answers: Vec<_> = flows.iter().filter(|flow| flow.label == 1).collect();
    assert_eq!(answers.len(), 30);
    for (number, answer) in answers.iter().enumerate() {
        let query = answer.query.expect("an answer");
        assert_eq!((query.id, query.flows), ((1 << 32) + number as u64 / 3, 3));
        assert_eq!((query.asked, answer.connection), (answer.start, None));
    }
    let bulk: Vec<_> = flows.iter().filter(|flow| flow.label == 2).collect();
    assert_eq!(
        bulk.iter().map(|flow| flow.source.0).collect::<Vec<_>>(),
        [0, 1]
    );
    // More than 100 Tbit/s carry in a day would need 1e18 bytes; a link of 1 Tbit/s needs
    // half an hour for these.
    assert!(bulk.iter().all(|flow| flow.bytes == 1 << 48));
    let settings = scenario.settings();
    assert_eq!((settings.until, settings.ttl), (scenario.until, 255));
    assert_eq!(scenario.network().switches.len(), 2);
}

#[test]
fn quantities_are_exact() {
    for (text, picoseconds) in [
        ("10 us", 10_000_000),
        ("10us", 10_000_000),
        ("0.5 ns", 500),
        ("1.500 ns", 1_500),
        ("80 ps", 80),
        ("2 min", 120_000_000_000_000),
        ("5 \u{b5}s", 5_000_000),
    ] {
        assert_eq!(TIME.read(text), Ok(picoseconds), "{text}");
    }
    assert_eq!(RATE.read("1.5 Gbit/s"), Ok(1_500_000_000));
    assert_eq!(SIZE.read("2 MB"), Ok(2_000_000));
    assert_eq!(SIZE.read("2 MiB"), Ok(2 << 20));
    assert_eq!(SIZE.read("0.5 KiB"), Ok(512));
    assert_eq!(FREQUENCY.read("2.4 k/s"), Ok(2_400_000_000));
    assert_eq!(SHARE.read("12.5 %"), Ok(125_000));
    assert_eq!(SIZE.read("0.1 KiB"), Err(UnitError::NotWhole("bytes")));
    assert_eq!(TIME.read("0.1 ps"), Err(UnitError::NotWhole("picoseconds")));
    assert_eq!(TIME.read("99999999999 s"), Err(UnitError::TooLarge));
    let digits = "9".repeat(60);
    assert_eq!(TIME.read(&format!("{digits} s")), Err(UnitError::TooLarge));
    assert_eq!(
        TIME.read(&format!("0.{digits} s")),
        Err(UnitError::TooLarge)
    );
    for bad in ["", "s", ".5 s", "1. s", "1.2.3 s", "-1 s", "+1 s", "1e3 s"] {
        let error = TIME.read(bad).expect_err(bad);
        assert!(
            matches!(error, UnitError::NoNumber(_) | UnitError::Unit(_)),
            "{bad}: {error}"
        );
    }
    for (text, expected) in [
        ("1/2", Some((1, 2))),
        ("2", Some((2, 1))),
        ("0.25", Some((25, 100))),
        ("1/", None),
        ("half", None),
        ("0.12345678901", None),
    ] {
        assert_eq!(fraction(text), expected, "{text}");
    }
}

/// The format as the module's documentation gives it.
#[test]
fn the_documented_format_is_read() {
    let text: String = include_str!("mod.rs")
        .lines()
        .skip_while(|line| *line != "//! ```toml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| line.strip_prefix("//! ").unwrap_or("").to_owned() + "\n")
        .collect();
    assert!(text.len() > 1_000);
    // The queue that is written down there is a dumbbell's.
    let text = text.replace("left -> right", "core-0 -> aggregation-0-0");
    let scenario = parse(&text);
    assert_eq!(scenario.workloads.len(), 2);
    assert_eq!(scenario.switch.detour, Some(Detour::default()));
    let Kind::Poisson(poisson) = &scenario.workloads[0].kind else {
        panic!("{:?}", scenario.workloads);
    };
    assert_eq!(poisson.intensity, Intensity::Load(0.3));
    assert_eq!(poisson.endpoints.senders(), 16);
}

/// Five hosts answer the sixth, over five switches as in the slides' test bed.
const TESTBED: &str = r#"
duration = "10 ms"
drain = "2 s"
[topology]
kind = "leaf-spine"
leaves = 3
spines = 2
hosts-per-leaf = 2
links = { rate = "1 Gbit/s", delay = "5 us" }
[switch]
buffer = "20 packets"
marking = "10 packets"
detour = DETOUR
[tcp]
preset = "dctcp"
loss-detection = "timeout-only"
tail-loss-probe = false
rto-min = "10 ms"
[[workload]]
kind = "incast"
rate = "100 /s"
arrivals = "periodic"
count = 1
degree = 5
response = "100 kB"
to = ["host-0-0"]
"#;

#[test]
fn a_scenario_runs_as_the_engine_and_the_switches_have_it() {
    let run = |detour: &str| {
        let scenario = parse(&TESTBED.replace("DETOUR", detour));
        let simulation = Simulation::new(&scenario.network(), scenario.settings());
        let simulation = simulation.expect("the reader checked it");
        simulation
            .run(scenario.flows(), |_| {})
            .expect("every packet is accounted for")
    };
    for detour in ["false", "true"] {
        let results = run(detour);
        assert!(results.conservation.holds(), "{}", results.conservation);
        let [query] = &results.queries[..] else {
            panic!("{:?}", results.queries);
        };
        assert_eq!((query.flows, results.flows.len()), (5, 5));
        // 500,000 bytes in 345 segments of at most 1,460, with 40 bytes of header each, go
        // through one link of 1 Gbit/s.
        let least = Span::from_nanos((500_000 + 345 * 40) * 8);
        assert!(
            query.completion().is_some_and(|time| time >= least),
            "{query:?}"
        );
        let label = results.labels[0];
        assert!(label.marked > 0, "{label:?}");
        let dropped: u64 = label.dropped.iter().sum();
        // Without detours, 50 packets at once do not fit into 20; with them they do, as two
        // neighbours have room for 40 more.
        assert_eq!(
            (dropped > 0, label.detours > 0),
            (detour == "false", detour == "true")
        );
        assert_eq!(run(detour).flows, results.flows);
    }
}
