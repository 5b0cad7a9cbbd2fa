// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab virtual --record` and `slowpath replay` from end to end.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::fs;
use std::path::Path;

fn json(arguments: &[&str]) -> Value {
    let output = slowpath(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Twenty answers to one host at once over a small buffer.
const SCENARIO: &str = "seed = 3\nduration = \"50 ms\"\ndrain = \"5 s\"\n[topology]\nkind = \"leaf-spine\"\n\
    leaves = 2\nspines = 1\nhosts-per-leaf = 6\n[topology.links]\nrate = \"1 Gbit/s\"\ndelay = \"3 us\"\n[switch]\n\
    buffer = \"30 packets\"\n[tcp]\nrto-min = \"8 ms\"\nhandshake = true\n[[workload]]\nkind = \"incast\"\n\
    rate = \"40 /s\"\ncount = 2\narrivals = \"periodic\"\ndegree = 10\nresponse = \"60 kB\"\n";

#[test]
fn what_was_recorded_is_replayed() {
    if let Err(missing) = Kernel::find(SOURCE, HZ) {
        println!("SKIPPED what_was_recorded_is_replayed: {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (scenario, recording, out) = (at("incast.toml"), at("run.rec"), at("out"));
    fs::write(&scenario, SCENARIO).unwrap();
    let run = json(&[
        "lab", "virtual", &scenario, "--record", &recording, "--json", "--quiet",
    ]);
    assert!(run["packets"]["dropped"].as_u64().unwrap_or(1) > 0, "{run}");
    let all = json(&["replay", &recording, "--json", "--quiet"]);
    let count = all["connections"].as_u64().unwrap();
    assert!(count >= 20, "{all}");
    assert_eq!(all["exact"], count, "{all}");
    assert_eq!(all["diverged"], Value::Array(Vec::new()));
    // One with its packets and its state.
    let one = json(&[
        "replay",
        &recording,
        "--connection",
        "3",
        "--out",
        &out,
        "--probe",
        "snd_cwnd,state",
        "--json",
        "--quiet",
    ]);
    assert_eq!((&one["connections"], &one["exact"]), (&1.into(), &1.into()));
    for end in ["client", "server"] {
        let path = Path::new(&out).join(end).with_extension("pcapng");
        let trace = slowpath(&["trace", path.to_str().unwrap(), "--json"]);
        assert!(trace.status.success(), "{}", text(&trace.stderr));
        // The listener's port, not a port of the replay.
        assert!(
            text(&trace.stdout).contains(":5000"),
            "{}",
            text(&trace.stdout)
        );
    }
    let probes = fs::read(Path::new(&out).join("probes.parquet")).unwrap();
    assert_eq!(&probes[..4], b"PAR1");
    // What the kernel did with the answer to the SYN: tcp_v4_do_rcv, tcp_rcv_state_process, an acknowledgment.
    let told = json(&[
        "replay",
        &recording,
        "--connection",
        "3",
        "--out",
        &out,
        "--functions",
        "client:1",
        "--json",
        "--quiet",
    ]);
    assert_eq!(told["exact"], 1);
    let functions = fs::read_to_string(Path::new(&out).join("functions.txt")).unwrap();
    assert!(functions.starts_with("client run 1, "), "{functions}");
    for name in ["tcp_rcv_state_process", "tcp_send_ack"] {
        assert!(functions.contains(&format!(" {name}\n")), "{functions}");
    }
    let wrong = slowpath(&[
        "replay",
        &recording,
        "--out",
        &out,
        "--functions",
        "client:1",
    ]);
    assert_eq!(wrong.status.code(), Some(2), "more than one connection");
    // Broken in the middle: never a replay of something else.
    let mut bytes = fs::read(&recording).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let broken = at("broken.rec");
    fs::write(&broken, bytes).unwrap();
    let failed = slowpath(&["replay", &broken, "--quiet", "--exit-code"]);
    assert_ne!(failed.status.code(), Some(0), "{}", text(&failed.stdout));
    let unknown = slowpath(&["replay", &recording, "--connection", "9999"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("9999"),
        "{}",
        text(&unknown.stderr)
    );
    let unknown = slowpath(&["replay", &recording, "--out", &out, "--probe", "cwnd"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("snd_cwnd"),
        "{}",
        text(&unknown.stderr)
    );
}
