// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab virtual --record` and `slowpath replay` from end to end.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use slowpath_recording as recording;
use slowpath_table::{self as table, Reader};
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
    variables(&recording, Path::new(&out));
    functions_of_a_run_are_listed(&recording, &out);
    a_missing_event_diverges(&recording, &at("altered.rec"));
    // Broken in the middle: never a replay of something else.
    let mut bytes = fs::read(&recording).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let broken = at("broken.rec");
    fs::write(&broken, bytes).unwrap();
    let failed = slowpath(&["replay", &broken, "--quiet", "--exit-code"]);
    assert_ne!(failed.status.code(), Some(0), "{}", text(&failed.stdout));
    what_is_not_there_is_refused(&recording, &out);
}

/// `--functions` lists the kernel functions of one run, of one connection only.
fn functions_of_a_run_are_listed(recording: &str, out: &str) {
    // What the kernel did with the answer to the SYN: tcp_v4_do_rcv, tcp_rcv_state_process, an acknowledgment.
    let answer = json(&[
        "replay",
        recording,
        "--connection",
        "3",
        "--out",
        out,
        "--functions",
        "client:1",
        "--json",
        "--quiet",
    ]);
    assert_eq!(answer["exact"], 1);
    let functions = fs::read_to_string(Path::new(out).join("functions.txt")).unwrap();
    assert!(functions.starts_with("client run 1, "), "{functions}");
    for name in ["tcp_rcv_state_process", "tcp_send_ack"] {
        assert!(functions.contains(&format!(" {name}\n")), "{functions}");
    }
    let wrong = slowpath(&["replay", recording, "--out", out, "--functions", "client:1"]);
    assert_eq!(wrong.status.code(), Some(2), "more than one connection");
}

/// A recording without one of its events, written to `altered`: its replay reports where it diverges.
fn a_missing_event_diverges(recording: &str, altered: &str) {
    // An event less, as a file says it: where it is noticed, and both ends' state there.
    let mut less = recording::decode(&fs::read(recording).unwrap()).unwrap();
    less.connections.truncate(4);
    less.connections[3].ends[0].runs.remove(8);
    fs::write(altered, recording::encode(&less).unwrap()).unwrap();
    let differs = slowpath(&["replay", altered, "--quiet", "--exit-code"]);
    assert_eq!(differs.status.code(), Some(3), "{}", text(&differs.stderr));
    let said = text(&differs.stdout);
    for part in [
        "3 of 4 connections replayed exactly",
        "connection 3, ",
        ": diverged at run ",
        "\n  client: state 1, ",
        "\n  server: state 1, ",
    ] {
        assert!(said.contains(part), "no '{part}' in: {said}");
    }
    let output = slowpath(&["replay", altered, "--quiet", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let state = &answer["diverged"][0]["state"];
    assert_eq!(answer["exact"], 3, "{answer}");
    assert!(
        state["client"]["snd_cwnd"].as_u64().unwrap() > 0,
        "{answer}"
    );
    assert!(
        state["server"]["bytes_received"].as_u64().is_some(),
        "{answer}"
    );
    let explained = slowpath(&["explain", altered, "--connection", "3"]);
    assert!(
        text(&explained.stdout).contains("cannot be explained: its replay is not exact"),
        "{}",
        text(&explained.stdout)
    );
}

/// Connections, variables and runs that a recording does not have.
fn what_is_not_there_is_refused(recording: &str, out: &str) {
    let unknown = slowpath(&["replay", recording, "--connection", "9999"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("9999"),
        "{}",
        text(&unknown.stderr)
    );
    let unknown = slowpath(&["replay", recording, "--out", out, "--probe", "cwnd,cwmd"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr)
            .contains("'cwmd' cannot be probed. Did you mean 'cwnd'? There are state, ")
            && text(&unknown.stderr).contains(", undo_marker, "),
        "{}",
        text(&unknown.stderr)
    );
    for beyond in [["--functions", "server:99999"], ["--gdb", "client:99999"]] {
        let mut all = vec!["replay", recording, "--connection", "3"];
        all.extend(beyond);
        if beyond[0] == "--functions" {
            all.extend(["--out", out]);
        }
        let beyond = slowpath(&all);
        assert_eq!(beyond.status.code(), Some(2));
        let said = text(&beyond.stderr);
        assert!(said.contains("there is no run 99999 of the "), "{said}");
    }
}

/// A column of `probes.parquet`, of the end that sends the answer.
fn column(probes: &Reader, name: &str) -> Vec<Option<i64>> {
    assert!(probes.columns().contains(&name), "no column {name}");
    let mut rows = probes.rows(&["end", name]).unwrap();
    let mut values = Vec::new();
    while rows.advance().unwrap() {
        if rows.value(0).unwrap() == table::Value::Text("client") {
            values.push(match rows.value(1).unwrap() {
                table::Value::Null => None,
                table::Value::UInt(number) => Some(i64::try_from(number).unwrap()),
                table::Value::Int(number) => Some(number),
                other => panic!("{name}: {other:?}"),
            });
        }
    }
    values
}

/// The paper's names, Linux's and ours, and what they must say.
fn variables(recording: &str, out: &Path) {
    let names =
        "cwnd,snd_cwnd,ssthresh,reordering,flag,snd_una,write_seq,state,delivered,bytes_sent";
    let folder = out.join("variables").display().to_string();
    let one = json(&[
        "replay",
        recording,
        "--connection",
        "3",
        "--out",
        &folder,
        "--probe",
        names,
        "--json",
        "--quiet",
    ]);
    assert_eq!(one["exact"], 1);
    let file = fs::File::open(Path::new(&folder).join("probes.parquet")).unwrap();
    let probes = Reader::new(file).unwrap();
    let of = |name: &str| column(&probes, name);
    assert_eq!(of("cwnd"), of("snd_cwnd"));
    // TCP_INIT_CWND, TCP_INFINITE_SSTHRESH and the default of tcp_reordering (include/net/tcp.h).
    let (cwnd, ssthresh, reordering) = (of("cwnd"), of("ssthresh"), of("reordering"));
    let opened = of("state")
        .iter()
        .position(|state| *state == Some(1))
        .unwrap();
    assert_eq!(
        [cwnd[opened], ssthresh[opened], reordering[opened]],
        [Some(10), Some(0x7fff_ffff), Some(3)]
    );
    // The SYN is 0, the first byte 1; all 60 kB were written and acknowledged.
    assert_eq!(of("snd_una").last(), Some(&Some(60_001)));
    assert_eq!(of("write_seq").last(), Some(&Some(60_001)));
    assert!(of("bytes_sent").last().unwrap().unwrap() >= 60_000);
    // FLAG_DATA_ACKED (0x04) is set where the first byte not acknowledged moves, and only there; FLAG_SYN_ACKED (0x10) once.
    let (flag, una) = (of("flag"), of("snd_una"));
    let has = |place: usize, bit: i64| flag[place].is_some_and(|flag| flag & bit != 0);
    for place in opened + 1..flag.len() {
        assert_eq!(has(place, 0x04), una[place] > una[place - 1], "run {place}");
    }
    assert_eq!((0..flag.len()).filter(|place| has(*place, 0x10)).count(), 1);
    // No acknowledgment in the call that connects.
    assert_eq!(flag[0], None);
}
