// SPDX-License-Identifier: Apache-2.0
//! Ten scenarios as someone writes them who has read `docs/reference/simulator.md`, each with five mistakes that such a person makes: every
//! error names the line, the key, and the way out.

use slowpath_netsim::scenario::{Scenario, Substrate};
use std::io::{Error, ErrorKind};

/// What stands in the scenario, what was written instead, the key that the error names, what it says of the way out.
type Mistake = (&'static str, &'static str, &'static str, &'static str);

struct Written {
    name: &'static str,
    text: &'static str,
    mistakes: [Mistake; 5],
}

const ALL: [Written; 10] = [
    Written {
        name: "two senders share a link",
        text: r#"seed = 1
duration = "2 s"
drain = "500 ms"
[topology]
kind = "dumbbell"
left = 2
right = 2
[topology.links]
rate = "100 Mbit/s"
delay = "2 ms"
[switch]
buffer = "60 packets"
[[workload]]
name = "long"
kind = "bulk"
from = ["left-*"]
to = ["right-*"]
"#,
        mistakes: [
            (
                "\"100 Mbit/s\"",
                "\"100 Mbps\"",
                "topology.links.rate",
                "Mbit/s",
            ),
            ("\"2 ms\"", "2", "topology.links.delay", "\"10 us\""),
            ("buffer =", "bufer =", "switch.bufer", "'buffer'"),
            ("[[workload]]", "[workload]", "workload", "[[workload]]"),
            ("\"left-*\"", "\"sender-*\"", "workload[0].from", "left-0"),
        ],
    },
    Written {
        name: "a fat-tree with an incast",
        text: r#"duration = "100 ms"
drain = "100 ms"
[topology]
kind = "fat-tree"
k = 4
[topology.links]
rate = "10 Gbit/s"
delay = "1 us"
[switch]
buffer = "100 packets"
marking = "20 packets"
[tcp]
preset = "dctcp"
rto-min = "10 ms"
[[workload]]
name = "queries"
kind = "incast"
degree = 10
response = "20 kB"
rate = "300 /s"
"#,
        mistakes: [
            ("k = 4", "k = 5", "topology.k", "even"),
            ("degree = 10", "degree = 40", "workload[0].degree", "15"),
            (
                "preset = \"dctcp\"",
                "preset = \"dtcp\"",
                "tcp.preset",
                "'dctcp'",
            ),
            (
                "rto-min = \"10 ms\"",
                "rto_min = \"10 ms\"",
                "tcp.rto_min",
                "'rto-min'",
            ),
            (
                "rate = \"300 /s\"",
                "rate = \"300\"",
                "workload[0].rate",
                "/s",
            ),
        ],
    },
    Written {
        name: "web search in a leaf-spine network",
        text: r#"seed = 3
duration = "40 ms"
drain = "40 ms"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts-per-leaf = 4
[topology.links]
rate = "10 Gbit/s"
delay = "1 us"
[switch]
shared-buffer = "1 MB"
alpha = 1
marking = "65 packets"
[tcp]
preset = "dctcp"
[[workload]]
name = "web search"
kind = "poisson"
load = 0.4
sizes = { file = "web-search.txt" }
among = "other-rack"
"#,
        mistakes: [
            (
                "hosts-per-leaf",
                "hosts",
                "topology.hosts",
                "'hosts-per-leaf'",
            ),
            (
                "load = 0.4",
                "load = 40",
                "workload[0].load",
                "0.4 or \"40 %\"",
            ),
            (
                "\"web-search.txt\"",
                "\"websearch.txt\"",
                "workload[0].sizes.file",
                "beside the scenario",
            ),
            (
                "\"other-rack\"",
                "\"other rack\"",
                "workload[0].among",
                "'other-rack'",
            ),
            ("\"1 MB\"", "\"1 Mb\"", "switch.shared-buffer", "MB"),
        ],
    },
    Written {
        name: "a network of one's own",
        text: r#"duration = "1 s"
[topology]
kind = "custom"
hosts = ["a", "b", "c"]
switches = ["s"]
[topology.links]
rate = "1 Gbit/s"
delay = "10 us"
[[topology.link]]
ends = ["a", "s"]
[[topology.link]]
ends = ["b", "s"]
[[topology.link]]
ends = ["c", "s"]
rate = "100 Mbit/s"
[switch]
buffer = "50 packets"
[[workload]]
name = "to c"
kind = "bulk"
from = ["a"]
to = ["c"]
bytes = "10 MB"
"#,
        mistakes: [
            (
                "ends = [\"b\", \"s\"]",
                "ends = [\"b\", \"switch\"]",
                "topology.link[1].ends[1]",
                "a, b, c, s",
            ),
            ("to = [\"c\"]", "to = [\"d\"]", "workload[0].to", "c"),
            (
                "from = [\"a\"]",
                "from = \"a\"",
                "workload[0].from",
                "[\"a\"",
            ),
            (
                "bytes = \"10 MB\"",
                "bytes = 10000000",
                "workload[0].bytes",
                "\"20 kB\"",
            ),
            ("switches =", "switch =", "topology.switch", "'switches'"),
        ],
    },
    Written {
        name: "everyone to one other",
        text: r#"seed = 9
duration = "50 ms"
[topology]
kind = "fat-tree"
k = 4
[topology.links]
rate = "1 Gbit/s"
delay = "5 us"
[switch]
buffer = "100 packets"
[switch.detour]
mark = false
[tcp]
algorithm = "newreno"
ecn = "off"
[[workload]]
name = "shuffle"
kind = "permutation"
bytes = "1 MB"
[measure]
queues = ["edge-0-* -> host-0-*"]
every = "100 us"
"#,
        mistakes: [
            (
                "algorithm = \"newreno\"",
                "algorithm = \"reno\"",
                "tcp.algorithm",
                "'newreno'",
            ),
            ("ecn = \"off\"", "ecn = false", "tcp.ecn", "\"off\""),
            (
                "mark = false",
                "mark = \"no\"",
                "switch.detour.mark",
                "true or false",
            ),
            (
                "edge-0-* -> host-0-*",
                "edge-0-0",
                "measure.queues[0]",
                "SWITCH -> NEIGHBOUR",
            ),
            (
                "kind = \"permutation\"",
                "kind = \"permutations\"",
                "workload[0].kind",
                "'permutation'",
            ),
        ],
    },
    Written {
        name: "two algorithms beside each other",
        text: r#"duration = "5 s"
[topology]
kind = "dumbbell"
left = 2
right = 2
[topology.links]
rate = "1 Gbit/s"
delay = "1 ms"
[topology.fabric-links]
rate = "50 Mbit/s"
[switch]
buffer = "200 KiB"
[tcp]
preset = "linux"
[[workload]]
name = "cubic"
kind = "bulk"
from = ["left-0"]
to = ["right-0"]
tcp = { algorithm = "cubic" }
[[workload]]
name = "newreno"
kind = "bulk"
from = ["left-1"]
to = ["right-1"]
tcp = { algorithm = "newreno" }
start = "1 s"
"#,
        mistakes: [
            (
                "{ algorithm = \"cubic\" }",
                "\"cubic\"",
                "workload[0].tcp",
                "{ KEY = VALUE }",
            ),
            (
                "{ algorithm = \"newreno\" }",
                "{ algorithm = \"bbr2\" }",
                "workload[1].tcp.algorithm",
                "Did you mean 'bbr'",
            ),
            (
                "start = \"1 s\"",
                "start = \"1 second\"",
                "workload[1].start",
                "s, ms",
            ),
            (
                "[topology.fabric-links]",
                "[topology.core-links]",
                "topology.core-links",
                "fabric-links",
            ),
            ("to = [\"right-1\"]", "to = []", "workload[1].to", "host"),
        ],
    },
    Written {
        name: "requests by a schedule",
        text: r#"duration = "1 s"
drain = "1 s"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 1
hosts-per-leaf = 2
[topology.links]
rate = "1 Gbit/s"
delay = "10 us"
[switch]
buffer = "100 packets"
[tcp]
preset = "rfc-newreno"
[[workload]]
name = "schedule"
kind = "trace"
file = "flows.csv"
"#,
        mistakes: [
            (
                "file = \"flows.csv\"",
                "file = \"bad.csv\"",
                "workload[0].file",
                "time,from,to,bytes",
            ),
            (
                "file = \"flows.csv\"",
                "files = \"flows.csv\"",
                "workload[0].files",
                "'file'",
            ),
            (
                "preset = \"rfc-newreno\"",
                "preset = \"newreno\"",
                "tcp.preset",
                "'rfc-newreno'",
            ),
            (
                "duration = \"1 s\"",
                "durations = \"1 s\"",
                "durations",
                "'duration'",
            ),
            ("spines = 1", "spines = 0", "topology.spines", "between 1"),
        ],
    },
    Written {
        name: "small writes in one connection",
        text: r#"duration = "500 ms"
[topology]
kind = "dumbbell"
left = 1
right = 1
[topology.links]
rate = "100 Mbit/s"
delay = "10 ms"
[switch]
buffer = "50 packets"
[tcp]
preset = "linux"
initial-window = 10
rto-min = "200 ms"
[[workload]]
name = "updates"
kind = "bulk"
from = ["left-0"]
to = ["right-0"]
bytes = "100 kB"
write = { bytes = "1 kB", every = "5 ms" }
"#,
        mistakes: [
            (
                "every = \"5 ms\"",
                "interval = \"5 ms\"",
                "workload[0].write",
                "every",
            ),
            (
                "rto-min = \"200 ms\"",
                "rto-min = 200",
                "tcp.rto-min",
                "\"10 us\"",
            ),
            (
                "initial-window = 10",
                "initial-window = \"10\"",
                "tcp.initial-window",
                "integer",
            ),
            (
                "from = [\"left-0\"]",
                "from = [left-0]",
                "",
                "must be quoted",
            ),
            ("\"500 ms\"", "\"500\"", "duration", "ms"),
        ],
    },
    Written {
        name: "background and queries",
        text: r#"seed = 4
duration = "200 ms"
drain = "200 ms"
[topology]
kind = "fat-tree"
k = 4
[topology.links]
rate = "1 Gbit/s"
delay = "1 us"
buffer = "200 packets"
[switch]
buffer = "100 packets"
classes = 2
[host]
ttl = 64
[tcp]
preset = "dctcp"
[[workload]]
name = "background"
kind = "poisson"
gap = "20 ms"
sizes = "250 kB"
class = 1
[[workload]]
name = "queries"
kind = "incast"
degree = 8
response = "20 kB"
arrivals = "periodic"
rate = "50 /s"
"#,
        mistakes: [
            (
                "class = 1",
                "class = 2",
                "workload[0].class",
                "between 0 and 1",
            ),
            ("ttl = 64", "ttl = 300", "host.ttl", "255"),
            (
                "gap = \"20 ms\"",
                "gap = \"20 ms\"\nload = 0.1",
                "workload[0].load",
                "gap",
            ),
            (
                "arrivals = \"periodic\"",
                "arrivals = \"regular\"",
                "workload[1].arrivals",
                "periodic",
            ),
            (
                "sizes = \"250 kB\"",
                "sizes = \"web-search.txt\"",
                "workload[0].sizes",
                "{ file = \"web-search.txt\" }",
            ),
        ],
    },
    Written {
        name: "a lossy line",
        text: r#"duration = "1 s"
[topology]
kind = "dumbbell"
left = 1
right = 1
[topology.links]
rate = "100 Mbit/s"
delay = "10 ms"
[switch]
buffer = "100 packets"
[[workload]]
name = "transfer"
kind = "bulk"
from = ["left-0"]
to = ["right-0"]
bytes = "2 MB"
"#,
        mistakes: [
            (
                "[[workload]]",
                "[host]\nqueue = \"100 packets\"\n[[workload]]",
                "host.queue",
                "`slowpath lab virtual`",
            ),
            (
                "bytes = \"2 MB\"",
                "size = \"2 MB\"",
                "workload[0].size",
                "bytes",
            ),
            (
                "delay = \"10 ms\"",
                "delay = \"10 ms\"\nloss = \"1 %\"",
                "topology.links.loss",
                "[[line]]",
            ),
            (
                "delay = \"10 ms\"",
                "delay = \"-10 ms\"",
                "topology.links.delay",
                "as in",
            ),
            ("[switch]", "[switches]", "switches", "'switch'"),
        ],
    },
];

fn files(name: &str) -> Result<String, Error> {
    match name {
        "web-search.txt" => Ok("1000 0\n10000 0.5\n100000 1\n".to_owned()),
        "flows.csv" => Ok("time,from,to,bytes\n0.1,host-0-0,host-1-0,1000\n".to_owned()),
        "bad.csv" => Ok("0.1,host-0-0,host-1-0,1000\n".to_owned()),
        _ => Err(ErrorKind::NotFound.into()),
    }
}

/// The line that the changed text begins or ends in; where a line was added, it.
fn lines(text: &str, at: usize, changed: &str) -> std::ops::RangeInclusive<usize> {
    let line = |end: usize| text[..end].matches('\n').count() + 1;
    line(at)..=line(at + changed.len())
}

#[test]
fn every_mistake_has_its_line_its_key_and_the_way_out() {
    let mut wrong = Vec::new();
    for Written {
        name,
        text,
        mistakes,
    } in ALL
    {
        if let Err(error) = Scenario::parse_for(text, &files, Substrate::Simulator) {
            panic!("{name}: {error}");
        }
        for (right, written, key, way) in mistakes {
            assert_eq!(text.matches(right).count(), 1, "{name}: {right}");
            let changed = text.replacen(right, written, 1);
            let at = lines(&changed, text.find(right).expect("it is there"), written);
            match Scenario::parse_for(&changed, &files, Substrate::Simulator) {
                Ok(_) => wrong.push(format!("{name}: {written}: no error")),
                Err(error) => {
                    let said = error.to_string();
                    let is_there = at.contains(&error.line) && said.contains(key);
                    if !is_there || !said.contains(way) {
                        wrong.push(format!(
                            "{name}: {written} (lines {at:?}, {key}, {way}): {said}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
