// SPDX-License-Identifier: Apache-2.0
//! What scenarios may not say: each error with its line, its key and its kind.

use super::tests::{BASE, changed, files, parse};
use super::{Problem, Scenario, ScenarioError, Substrate, UnitError};
use crate::tcp::TcpConfigError;
use crate::topology::TopologyError;
use crate::workload::{CdfError, CdfProblem, EndpointError, TraceError, TraceProblem};
use std::io::ErrorKind;

fn error(text: &str) -> ScenarioError {
    match Scenario::parse(text, &files) {
        Ok(_) => panic!("it was read:\n{text}"),
        Err(error) => error,
    }
}

fn unknown(known: &[&'static str]) -> Problem {
    Problem::UnknownKey {
        known: known.to_vec(),
    }
}

fn given(given: &str, least: &str, most: &str) -> Problem {
    Problem::Range {
        given: given.to_owned(),
        least: least.to_owned(),
        most: most.to_owned(),
    }
}

#[track_caller]
fn refused(text: &str, line: usize, key: &str, problem: Problem) {
    let expected = ScenarioError {
        line,
        key: key.to_owned(),
        problem,
    };
    assert_eq!(error(text), expected);
}

#[test]
fn unknown_keys_are_named_with_those_there_are() {
    let link = ["aqm", "buffer", "delay", "marking", "rate"];
    let text = changed("delay = \"5 us\"", "delay = \"5 us\"\nlatency = \"5 us\"");
    refused(&text, 9, "topology.links.latency", unknown(&link));
    let text = format!("tpc = 1\n{BASE}");
    let top = [
        "description",
        "drain",
        "duration",
        "host",
        "line",
        "measure",
        "route",
        "router",
        "seed",
        "switch",
        "tcp",
        "topology",
        "workload",
    ];
    refused(&text, 1, "tpc", unknown(&top));
    // Keys of another shape or kind mean nothing either.
    let text = changed("left = 2", "k = 4\nleft = 2");
    let shape = ["fabric-links", "kind", "left", "links", "right"];
    refused(&text, 4, "topology.k", unknown(&shape));
    let text = changed("load = 0.3", "load = 0.3\ndegree = 5");
    assert_eq!(error(&text).key, "workload[0].degree");
    for (section, key) in [
        ("[switch.detour]\nx = 1", "switch.detour.x"),
        ("[host]\nx = 1", "host.x"),
        ("[tcp]\nx = 1", "tcp.x"),
        (
            "[tcp]\nreceive-window = { initial = \"1 MB\", max = \"1 MB\", x = 1 }",
            "tcp.receive-window.x",
        ),
        ("[measure]\nx = 1", "measure.x"),
        ("[switch]\nx = 1", "switch.x"),
    ] {
        let text = if section.starts_with("[switch]") {
            changed("buffer =", "x = 1\nbuffer =")
        } else {
            changed("[[workload]]", &format!("{section}\n[[workload]]"))
        };
        let error = error(&text);
        assert_eq!(error.key, key);
        assert!(
            matches!(error.problem, Problem::UnknownKey { .. }),
            "{error}"
        );
    }
}

#[test]
fn impossible_rates_are_named() {
    let rate = |text: &str| changed("1 Gbit/s", text);
    let key = "topology.links.rate";
    refused(
        &rate("0 Gbit/s"),
        7,
        key,
        given("'0 Gbit/s'", "1 kbit/s", "100 Tbit/s"),
    );
    refused(
        &rate("101 Tbit/s"),
        7,
        key,
        given("'101 Tbit/s'", "1 kbit/s", "100 Tbit/s"),
    );
    let quantity = |given: &str, error| Problem::Quantity {
        given: given.to_owned(),
        error,
    };
    let not_whole = UnitError::NotWhole("bits a second");
    refused(
        &rate("0.0000000001 Gbit/s"),
        7,
        key,
        quantity("0.0000000001 Gbit/s", not_whole),
    );
    refused(
        &rate("fast"),
        7,
        key,
        quantity("fast", UnitError::NoNumber("1 Gbit/s")),
    );
    let units = vec!["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    refused(
        &rate("1 GB"),
        7,
        key,
        quantity("1 GB", UnitError::Unit(units)),
    );
    let text = changed("\"1 Gbit/s\"", "1000");
    let wrong = Problem::NoUnit {
        given: "1000".to_owned(),
        example: "1 Gbit/s",
    };
    refused(&text, 7, key, wrong);
}

/// What people write who know what they want.
#[test]
fn errors_name_the_way_out() {
    let link = "delay = \"5 us\"";
    let queue = "[host]\nqueue = \"3 packets\"\n[[workload]]";
    for (text, says) in [
        (
            changed("\"100 packets\"", "150"),
            "150 of what? Write it with its unit, as in \"100 packets\"",
        ),
        (
            changed("buffer =", "bufer ="),
            "switch.bufer: unknown key. Did you mean 'buffer'?",
        ),
        (
            changed(link, "dealy = \"5 us\""),
            "topology.links.dealy: unknown key. Did you mean 'delay'?",
        ),
        (
            changed("load = 0.3", "laod = 0.3"),
            "workload[0].laod: unknown key. Did you mean 'load'?",
        ),
        (
            changed("\"poisson\"", "\"poison\""),
            "Did you mean 'poisson'?",
        ),
        (
            changed("duration = \"1 s\"", "duration = 60"),
            "60 of what? Write it with its unit, as in \"10 us\"",
        ),
        (changed("dumbbell", "dumbell"), "Did you mean 'dumbbell'?"),
        (
            changed("[[workload]]", queue),
            "host.queue: the simulator cannot do this, but `slowpath lab virtual` and `slowpath lab up` can",
        ),
        (
            format!("tcp.algoritm = \"cubic\"\n{BASE}"),
            "Did you mean 'algorithm'?",
        ),
    ] {
        let error = error(&text).to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    // Nothing is like it.
    let text = changed("buffer =", "x = 1\nbuffer =");
    assert!(!error(&text).to_string().contains("Did you mean"));
}

#[test]
fn impossible_buffers_are_named() {
    let buffer = |text: &str| changed("\"100 packets\"", text);
    let key = "switch.buffer";
    refused(
        &buffer("\"0 packets\""),
        10,
        key,
        given("'0 packets'", "1", "4294967295"),
    );
    refused(&buffer("\"0 kB\""), 10, key, given("'0 kB'", "1", "2^50"));
    assert_eq!(error(&buffer("[]")).key, key);
    let error_key = error(&buffer("[\"1 packets\", \"2 packets\"]"));
    assert_eq!(
        (error_key.key.as_str(), error_key.problem),
        ("switch.buffer[1]", Problem::TooMany(1))
    );
    assert_eq!(error(&buffer("\"100\"")).key, key);
    let text = changed("[switch]\nbuffer = \"100 packets\"", "[switch]\nalpha = 1");
    refused(
        &text,
        10,
        "switch.alpha",
        Problem::OneOf(&["shared-buffer"]),
    );
    let text = changed("buffer = \"100 packets\"", "");
    refused(
        &text,
        9,
        "switch",
        Problem::OneOf(&["buffer", "shared-buffer", "pfc"]),
    );
    let text = changed("buffer =", "shared-buffer = \"1 MB\"\nalpha = 0\nbuffer =");
    refused(
        &text,
        11,
        "switch.alpha",
        given("'0'", "1/4294967295", "4294967295"),
    );
}

#[test]
fn impossible_loads_are_named() {
    let load = |text: &str| changed("load = 0.3", text);
    let key = "workload[0].load";
    for bad in ["0.0", "-0.1", "1.01", "nan", "inf"] {
        refused(
            &load(&format!("load = {bad}")),
            13,
            key,
            given(bad, "0 (excluded)", "1"),
        );
    }
    refused(
        &load("load = \"101 %\""),
        13,
        key,
        given("101 %", "0 (excluded)", "1"),
    );
    assert_eq!(error(&load("rate = \"0 /s\"")).key, "workload[0].rate");
    let both = Problem::Conflict("rate or gap");
    refused(&load("load = 0.3\nrate = \"1 /s\""), 13, key, both);
    let none = Problem::OneOf(&["load", "rate", "gap"]);
    refused(&load(""), 11, "workload[0]", none);
}

#[test]
fn impossible_durations_and_topologies_are_named() {
    let text = changed("\"1 s\"", "\"0 s\"");
    refused(&text, 1, "duration", given("'0 s'", "1 ps", "86400 s"));
    let text = changed("duration = \"1 s\"\n", "");
    refused(&text, 1, "duration", Problem::Missing);
    let text = changed("delay = \"5 us\"\n", "");
    refused(&text, 6, "topology.links.delay", Problem::Missing);
    let choices = vec!["fat-tree", "leaf-spine", "dumbbell", "custom"];
    let choice = Problem::Choice {
        given: "ring".to_owned(),
        choices,
    };
    refused(&changed("dumbbell", "ring"), 3, "topology.kind", choice);
    refused(
        &changed("left = 2", "left = 0"),
        4,
        "topology.left",
        given("0", "1", "65536"),
    );
    let odd = "kind = \"fat-tree\"\nk = 5";
    let text = changed("kind = \"dumbbell\"\nleft = 2\nright = 2", odd);
    refused(&text, 4, "topology.k", TopologyError::FatTree(5).into());
    let huge = "kind = \"leaf-spine\"\nleaves = 60000\nspines = 60000\nhosts-per-leaf = 1";
    let text = changed("kind = \"dumbbell\"\nleft = 2\nright = 2", huge);
    refused(&text, 2, "topology", TopologyError::TooLarge.into());
}

#[test]
fn impossible_networks_are_named() {
    let custom = |links: &str| {
        format!(
            "duration = \"1 s\"\n[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\n\
            switches = [\"s\", \"t\"]\nlinks = {{ rate = \"1 Gbit/s\", delay = \"1 us\" }}\n\
            link = [\n{links}\n]\n[switch]\nbuffer = \"9 packets\"\n[[workload]]\n\
            kind = \"permutation\"\n"
        )
    };
    let whole = "{ ends = [\"a\", \"s\"] },\n{ ends = [\"b\", \"t\"] },\n{ ends = [\"s\", \"t\"] }";
    parse(&custom(whole));
    let name = |text: &str| text.to_owned();
    let case = |links: &str, line, key: &str, problem: TopologyError| {
        refused(&custom(links), line, key, problem.into());
    };
    case(
        "{ ends = [\"a\", \"a\"] }",
        8,
        "topology.link[0].ends",
        TopologyError::SelfLink(name("a")),
    );
    case(
        "{ ends = [\"a\", \"s\"] },\n{ ends = [\"a\", \"t\"] }",
        9,
        "topology.link[1].ends",
        TopologyError::SecondLink(name("a")),
    );
    case(
        "{ ends = [\"a\", \"x\"] }",
        8,
        "topology.link[0].ends[1]",
        TopologyError::NoSuchNode {
            name: name("x"),
            known: name("a, b, s, t"),
        },
    );
    case(
        "{ ends = [\"a\", \"s\"] }",
        2,
        "topology",
        TopologyError::NoLink(name("b")),
    );
    let unreachable = TopologyError::Unreachable {
        from: name("a"),
        to: name("b"),
    };
    case(
        "{ ends = [\"a\", \"s\"] },\n{ ends = [\"b\", \"t\"] }",
        2,
        "topology",
        unreachable,
    );
    let text = custom(whole).replace("hosts = [\"a\", \"b\"]", "hosts = [\"a\", \"s\"]");
    let twice = TopologyError::NameTwice(name("s"));
    refused(&text, 5, "topology.switches[0]", twice.into());
    let text = custom(whole).replace("[\"a\", \"s\"]", "[\"a\"]");
    assert_eq!(error(&text).key, "topology.link[0].ends");
}

#[test]
fn impossible_workloads_are_named() {
    let with = |lines: &str| changed("kind = \"poisson\"\nload = 0.3\nsizes = \"20 kB\"", lines);
    let incast = "kind = \"incast\"\nrate = \"1 /s\"\nresponse = \"1 kB\"\n";
    let text = with(&format!("{incast}degree = 4"));
    refused(&text, 15, "workload[0].degree", given("4", "1", "3"));
    let text = with(&format!("{incast}degree = 2\nfrom = [\"left-*\"]\n"));
    let few = EndpointError::TooFew {
        host: "left-0".to_owned(),
        there: 1,
        wanted: 2,
    };
    refused(&text, 15, "workload[0].degree", few.into());
    let text = with(&format!("{incast}degree = 2\namong = \"other-pod\""));
    refused(&text, 11, "workload[0]", EndpointError::NoPods.into());
    let text = with(&format!("{incast}degree = 2\nto = [\"middle-*\"]"));
    let no_such_host = Problem::NoSuchHost {
        given: "middle-*".to_owned(),
        hosts: "left-0, left-1, right-0, right-1".to_owned(),
    };
    refused(&text, 16, "workload[0].to[0]", no_such_host);
    let text = with(&format!("{incast}degree = 2\nclass = 1"));
    refused(&text, 16, "workload[0].class", given("1", "0", "0"));
    for (line, key, hosts) in [
        (
            13,
            "workload[0].from",
            "\"bulk\"\nfrom = []\nto = [\"left-0\"]",
        ),
        (13, "workload[0].from", "\"bulk\"\nfrom = []\nto = []"),
        (13, "workload[0].hosts", "\"permutation\"\nhosts = []"),
        (11, "workload[0]", "\"permutation\"\nhosts = [\"left-0\"]"),
        (13, "workload[0].from", "\"poisson\"\nfrom = []"),
        (13, "workload[0].from", "\"poisson\"\nfrom = []\nto = []"),
    ] {
        let text = with(&format!("kind = {hosts}"));
        refused(&text, line, key, EndpointError::NoHosts.into());
    }
    let text = with("kind = \"bulk\"\nfrom = [\"*\"]\nto = [\"left-*\"]");
    refused(
        &text,
        14,
        "workload[0].to",
        Problem::Pairs { from: 4, to: 2 },
    );
    let text = with("kind = \"bulk\"\nfrom = [\"left-0\"]\nto = [\"*\"]");
    refused(
        &text,
        14,
        "workload[0].to",
        EndpointError::NoPeer("left-0".to_owned()).into(),
    );
    let text = changed("load = 0.3", "load = 0.3\ndatagram = \"1500 B\"\ntcp = {}");
    refused(&text, 14, "workload[0].datagram", Problem::Conflict("tcp"));
    let none = BASE.split("[[workload]]").next().unwrap_or_default();
    refused(none, 1, "", Problem::NoWorkload);
    let many = format!(
        "{BASE}{}",
        "[[workload]]\nkind = \"permutation\"\n".repeat(8)
    );
    refused(&many, 11, "workload", Problem::TooMany(8));
}

#[test]
fn more_flows_than_a_run_keeps_are_refused() {
    // BASE lasts 1 s; 2^24 flows a second are the most.
    let rate = |rate: &str| changed("load = 0.3", &format!("rate = \"{rate}\""));
    let too_many = |flows| Problem::TooManyFlows {
        flows,
        most: 16_777_216,
    };
    assert!(Scenario::parse(&rate("16777000 /s"), &files).is_ok());
    refused(
        &rate("16778000 /s"),
        11,
        "workload[0]",
        too_many(16_778_000),
    );
    let refusal = error(&changed("load = 0.3", "gap = \"1 ps\""));
    assert!(
        refusal.to_string().contains("at most 16777216"),
        "{refusal}"
    );
    // Of a network for itself no flow begins.
    let network = changed("load = 0.3", "gap = \"1 ps\"").replace("duration = \"1 s\"\n", "");
    assert!(Scenario::parse_for(&network, &files, Substrate::Network).is_ok());
}

#[test]
fn impossible_files_of_workloads_are_named() {
    let with = |lines: &str| changed("kind = \"poisson\"\nload = 0.3\nsizes = \"20 kB\"", lines);
    let file = "workload[0].sizes.file";
    let sizes = |name: &str| changed("\"20 kB\"", &format!("{{ file = \"{name}\" }}"));
    let missing = Problem::File {
        file: "no.txt".to_owned(),
        kind: ErrorKind::NotFound,
    };
    refused(&sizes("no.txt"), 14, file, missing);
    let endless = Problem::File {
        file: "endless.txt".to_owned(),
        kind: ErrorKind::FileTooLarge,
    };
    assert!(
        endless.to_string().contains("more than 256 MiB"),
        "{endless}"
    );
    refused(&sizes("endless.txt"), 14, file, endless);
    let cdf = CdfError {
        line: 2,
        problem: CdfProblem::Incomplete,
    };
    let bad = Problem::Cdf {
        file: "bad.txt".to_owned(),
        error: cdf,
    };
    refused(&sizes("bad.txt"), 14, file, bad);
    let trace = TraceError {
        line: 2,
        problem: TraceProblem::NoSuchHost("right-7".to_owned()),
    };
    let bad = Problem::Trace {
        file: "bad.csv".to_owned(),
        error: trace,
    };
    refused(
        &with("kind = \"trace\"\nfile = \"bad.csv\""),
        13,
        "workload[0].file",
        bad,
    );
}

#[test]
fn impossible_tcp_is_named() {
    let tcp = |keys: &str| format!("{BASE}[tcp]\n{keys}\n");
    let conflict = "an algorithm other than cubic";
    let text = tcp("algorithm = \"newreno\"\nhystart = true");
    refused(&text, 17, "tcp.hystart", Problem::Conflict(conflict));
    let conflict = "a loss-detection other than duplicate-acks";
    refused(
        &tcp("duplicate-ack-threshold = 9"),
        16,
        "tcp.duplicate-ack-threshold",
        Problem::Conflict(conflict),
    );
    refused(
        &tcp("sack = false"),
        15,
        "tcp",
        TcpConfigError::RackWithoutSack.into(),
    );
    refused(
        &tcp("rto-min = \"500 s\""),
        15,
        "tcp",
        TcpConfigError::Timeout.into(),
    );
    refused(
        &tcp("algorithm = \"dctcp\"\necn = \"off\""),
        15,
        "tcp",
        TcpConfigError::DctcpEcn.into(),
    );
    refused(
        &tcp("mss = \"0 B\""),
        16,
        "tcp.mss",
        given("'0 B'", "1 B", "65535 B"),
    );
    // A workload's own, named there.
    let text = changed("load = 0.3", "load = 0.3\ntcp = { sack = false }");
    refused(
        &text,
        14,
        "workload[0].tcp",
        TcpConfigError::RackWithoutSack.into(),
    );
}

#[test]
fn what_is_not_toml_is_an_error_with_its_line() {
    let error = error("duration = \"1 s\"\n[topology\n");
    assert_eq!((error.line, error.key.as_str()), (2, ""));
    assert!(matches!(error.problem, Problem::Toml(_)));
    assert!(error.to_string().starts_with("line 2: "), "{error}");
    assert_eq!(
        refused_text("description = 7\n"),
        "line 1: description: a string is wanted, not integer"
    );
}

fn refused_text(text: &str) -> String {
    error(text).to_string()
}

#[test]
fn what_cannot_be_written_down_is_named() {
    let with = |measure: &str| format!("{BASE}\n[measure]\n{measure}\n");
    for (text, says) in [
        ("every = \"1 ms\"", "one of queues, flows, links is needed"),
        ("flows = [\"*\"]", "one of every is needed"),
        (
            "every = \"1 ms\"\nflows = [\"other\"]",
            "no workload is called 'other'; there are ",
        ),
        (
            "every = \"1 ms\"\nlinks = [\"left\"]",
            "no link is called 'left'; it is 'FROM -> TO'",
        ),
        (
            "warm-up = \"1000 s\"",
            "1000 s is not between 0 s and the duration",
        ),
    ] {
        let error = error(&with(text)).to_string();
        assert!(error.contains(says), "{error}");
    }
}
