// SPDX-License-Identifier: Apache-2.0
//! Other networks, other settings, other harm: all of them are replayed exactly, and an event less or other in any of their connections is noticed, from the file.

use super::{Random, Recorded, is_exact, kernel, record_of, replayed, variants};
use slowpath_lab::virtual_time::Kernel;
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_recording::{self as recording, Recording};

/// What is between the hosts; what happens there and how TCP is set, with semicolons between; the congestion control if it is not the scenario's.
///
/// Doubled, damaged and late packets, either of two of which may be the one that arrives; the same undamaged; timestamps, and packets that
/// overtake each other; what Linux 4.4 had, without SACK, and small packets; large packets and classic ECN; an application that takes its time,
/// and a small window; timestamps and BBR.
const NETWORKS: &str = r#"
dumbbell | duplication = "1 %"; corruption = "0.5 %"; reordering = { share = "1 %", by = "200 us" } | |
leaf-spine | duplication = "2 %"; loss = "0.5 %"; reordering = { share = "1 %", by = "200 us" } | |
leaf-spine | loss = "0.5 %"; jitter = { most = "300 us", overtaking = true } | header = "52 B"; mss = "1448 B" |
dumbbell | loss = "0.5 %" | mss = "536 B"; sack = false; loss-detection = "duplicate-acks"; tail-loss-probe = false |
fat-tree | loss = "0.2 %" | mss = "8960 B"; ecn = "classic" |
leaf-spine | loss = "0.2 %" | receive-window = { initial = "32 kB", max = "64 kB" }; reading = { bytes = "16 kB", every = "700 us" } |
dumbbell | loss = "0.5 %" | header = "52 B"; mss = "1448 B" | bbr
"#;

/// A line of it.
struct Network {
    topology: &'static str,
    lines: String,
    tcp: String,
    algorithm: Option<&'static str>,
}

impl Network {
    fn read(line: &str) -> Network {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [topology, lines, tcp, algorithm] = parts[..] else {
            panic!("{line}")
        };
        Network {
            topology: match topology {
                "dumbbell" => "kind = \"dumbbell\"\nleft = 6\nright = 6",
                "leaf-spine" => "kind = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts-per-leaf = 3",
                _ => "kind = \"fat-tree\"\nk = 4",
            },
            lines: lines.replace(';', "\n"),
            tcp: tcp.replace(';', "\n"),
            algorithm: (algorithm == "bbr").then_some("bbr"),
        }
    }

    fn scenario(&self, seed: usize) -> Scenario {
        let Network {
            topology,
            lines,
            tcp,
            ..
        } = self;
        let text = format!(
            "seed = {seed}\nduration = \"150 ms\"\ndrain = \"10 s\"\n[topology]\n{topology}\n[topology.links]\nrate = \"1 Gbit/s\"\n\
             delay = \"20 us\"\n[switch]\nbuffer = \"30 packets\"\nmarking = \"15 packets\"\n[[line]]\non = \"* -> *\"\n{lines}\n[tcp]\n\
             preset = \"linux\"\nhandshake = true\nrto-min = \"8 ms\"\n{tcp}\n[[workload]]\nkind = \"poisson\"\nname = \"middle\"\n\
             rate = \"400 /s\"\nsizes = \"60 kB\"\n[[workload]]\nkind = \"incast\"\nname = \"queries\"\nrate = \"40 /s\"\ndegree = 5\n\
             response = \"20 kB\"\n"
        );
        let none = |name: &str| Err(std::io::Error::other(format!("no file {name}")));
        Scenario::parse_for(&text, &none, Substrate::VirtualTime).expect("a scenario")
    }
}

/// Changed recordings of each network.
const CHANGED: usize = 500;

/// What a recording may express in a file and this one does: connections with a run less, two exchanged, or one changed, here and there.
fn changed(recorded: &Recorded, random: &mut Random) -> Recording {
    let whole = &recorded.recording.connections;
    let mut connections = Vec::new();
    while connections.len() < CHANGED {
        let one = &whole[random.below(whole.len())];
        let mut some = variants(one);
        for _ in 0..10 {
            connections.push(some.swap_remove(random.below(some.len())).1);
        }
    }
    Recording {
        origin: recorded.recording.origin.clone(),
        connections,
        one_sided: Vec::new(),
    }
}

fn from_file(recording: &Recording) -> Recording {
    let file = recording::encode(recording).expect("a file");
    recording::decode(&file).expect("what was written")
}

fn is_replayed(kernel: &Kernel, network: &Network, seed: usize) {
    let recorded = record_of(kernel, &network.scenario(seed), network.algorithm);
    assert!(recorded.recording.connections.len() > 50);
    let folder = tempfile::tempdir().expect("a folder");
    let whole = from_file(&recorded.recording);
    let again = replayed(kernel, &whole, folder.path());
    if network.lines.contains("corruption") {
        // Captures have what came in damaged, and a replay does not.
        assert!(again.results.iter().all(|it| it.difference.is_none()));
    } else {
        is_exact(&recorded, &again);
    }

    let mut random = Random(seed as u64);
    let changed = from_file(&changed(&recorded, &mut random));
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(kernel, &changed, folder.path());
    let mut same = 0;
    for (connection, result) in changed.connections.iter().zip(&again.results) {
        // What the file does not keep of a change (most checks) is no change.
        let is_whole = whole.connections.iter().any(|it| it == connection);
        same += usize::from(is_whole);
        assert_eq!(
            result.difference.is_none(),
            is_whole,
            "{result:?} of {:?}",
            connection.addresses
        );
    }
    assert!(same * 2 < CHANGED, "{same}");
}

#[test]
fn any_network_is_replayed_and_any_change_is_noticed() {
    let Some(kernel) = kernel("any_network_is_replayed_and_any_change_is_noticed") else {
        return;
    };
    for (number, line) in NETWORKS.trim().lines().enumerate() {
        is_replayed(&kernel, &Network::read(line), 31 + number);
    }
}
