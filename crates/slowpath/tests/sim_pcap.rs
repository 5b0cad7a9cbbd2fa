// SPDX-License-Identifier: Apache-2.0
//! The packets of simulated hosts as captures: what `slowpath queues`, `slowpath trace` and tshark make of
//! them is what the simulator counted.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn scenario(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/sim");
    folder.join(name).to_str().unwrap().to_owned()
}

/// The objects of a command's JSON lines.
fn objects(arguments: &[&str]) -> Vec<Value> {
    let output = slowpath(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let read = |line| serde_json::from_str(line).unwrap();
    lines.lines().map(read).collect()
}

/// A run with captures in `folder`.
fn run(folder: &Path, name: &str, more: &[&str]) -> Value {
    let (file, out) = (scenario(name), folder.to_str().unwrap());
    let mut arguments = vec!["sim", &file, "--json", "--out", out];
    if !more.iter().any(|argument| argument.starts_with("--pcap")) {
        arguments.push("--pcap");
    }
    for argument in more {
        if argument.contains('=') && !argument.starts_with("--") {
            arguments.push("--set");
        }
        arguments.push(argument);
    }
    objects(&arguments).remove(0)
}

/// The names of the captures in a folder.
fn captures(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".pcap")).collect();
    names.sort();
    names
}

/// The packets of a capture, from IP on.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let mut rest = &bytes[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let kept = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        packets.push(rest[16..16 + kept].to_vec());
        rest = &rest[16 + kept..];
    }
    packets
}

const CUBIC: [&str; 1] = ["duration=1 s"];
/// One of the SYNs is lost and sent again after a second.
const OPTIONS: [&str; 3] = ["duration=2 s", "tcp.header=52 B", "tcp.handshake=true"];

/// The queues that follow from the captures: an implementation of its own, on another model of the
/// hosts, finds every packet again, and every drop at the queue that dropped it.
#[test]
fn queues_that_follow_from_the_captures_are_the_simulators() {
    for (name, settings) in [
        ("dumbbell.toml", &CUBIC[..]),
        ("dumbbell.toml", &OPTIONS[..]),
        ("incast.toml", &["duration=20 ms"][..]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let simulated = run(folder.path(), name, settings);
        let counts = &simulated["packets"];
        let found = objects(&[
            "queues",
            folder.path().to_str().unwrap(),
            "--topology",
            &scenario(name),
            "--json",
        ]);
        assert_eq!(found[0]["packets"], counts["sent"], "{name}");
        assert_eq!(found[0]["lost"], counts["dropped"], "{name}");
        assert_eq!(found[0]["unknown"], counts["in_network"], "{name}");
        assert!(counts["dropped"].as_u64().unwrap() > 100, "{name}");
        if name == "dumbbell.toml" {
            // In a fat-tree it depends on the ways that flows take, which captures do not show.
            assert_eq!(found[0]["dropped"], counts["dropped_buffer_full"]);
            assert_eq!(found[0]["nowhere"], 0);
            // The bottleneck was full: 425 packets of that length.
            let bytes = if settings.len() > 1 { 1512 } else { 1500 };
            let queue = &found[0]["queues"][0];
            assert_eq!(queue["switch"], "left");
            assert_eq!(queue["max_bytes"], 425 * bytes);
        }
    }
}

#[test]
fn a_trace_finds_what_was_sent_again() {
    // The simulator does not count a SYN that was sent again.
    for (settings, syns) in [(&CUBIC[..], 0), (&OPTIONS, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let simulated = run(folder.path(), "dumbbell.toml", settings);
        let mut again = 0;
        for sender in ["left-0.pcap", "left-1.pcap"] {
            let capture = folder.path().join(sender);
            let traced = objects(&["trace", capture.to_str().unwrap(), "--json"]);
            assert_eq!(traced[0]["tcp"]["packets"], traced[0]["packets"]);
            let mut connections = traced.iter().filter(|it| it["type"] == "connection");
            let evidence = &connections.next().unwrap()["client_verdict"]["evidence"];
            again += evidence["retransmitted_segments"].as_u64().unwrap();
            assert!(connections.next().is_none(), "{sender}");
        }
        let counted = simulated["packets"]["retransmissions"].as_u64().unwrap();
        assert_eq!(again, counted + syns);
    }
}

/// The marks of switches are in the IP headers of what arrives, and their echoes in the TCP headers of
/// what goes back.
#[test]
fn marks_are_in_the_headers() {
    let folder = tempfile::tempdir().unwrap();
    let simulated = run(
        folder.path(),
        "dumbbell.toml",
        &[
            "duration=1 s",
            "tcp.preset=dctcp",
            "switch.marking=20 packets",
        ],
    );
    let all: Vec<Vec<u8>> = ["right-0.pcap", "right-1.pcap"]
        .iter()
        .flat_map(|name| packets(&folder.path().join(name)))
        .collect();
    let marked = all.iter().filter(|packet| packet[1] & 3 == 3).count() as u64;
    let echoes = all.iter().filter(|packet| packet[33] & 0x40 != 0).count();
    // Some marked packets have not arrived yet, a queue of them.
    let marks = simulated["packets"]["marked"].as_u64().unwrap();
    assert!(
        marked <= marks && marked + 100 > marks,
        "{marked} of {marks}"
    );
    assert!(echoes > 100);
}

/// tshark finds nothing malformed and every checksum of IP right. Each connection begins with SYNs that
/// agree on timestamps, SACK and the scale of windows.
#[test]
fn tshark_reads_every_header() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "dumbbell.toml", &OPTIONS);
    let fields = |filter: &str, field: &str| {
        let capture = folder.path().join("left-0.pcap");
        let read = Command::new("tshark")
            .args(["-o", "ip.check_checksum:TRUE", "-Y", filter, "-T", "fields"])
            .args(["-e", field, "-r"])
            .arg(&capture)
            .output()
            .ok()?;
        assert!(read.status.success(), "{}", text(&read.stderr));
        Some(
            text(&read.stdout)
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    let Some(wrong) = fields("_ws.malformed || ip.checksum.status == 0", "frame.number") else {
        eprintln!("skipped: no tshark");
        return;
    };
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(
        fields("tcp.flags.syn == 1", "tcp.options.wscale.shift").unwrap(),
        ["10", "10"]
    );
    assert_eq!(
        fields("tcp.flags.syn == 1", "tcp.options.mss_val").unwrap(),
        ["1460", "1460"]
    );
    let stamped = fields("tcp.options.timestamp.tsval", "frame.number").unwrap();
    assert_eq!(
        stamped.len(),
        packets(&folder.path().join("left-0.pcap")).len()
    );
    assert!(fields("tcp.options.sack_le", "frame.number").unwrap().len() > 100);
}

#[test]
fn hosts_are_chosen_by_name() {
    let folder = tempfile::tempdir().unwrap();
    run(
        folder.path(),
        "dumbbell.toml",
        &["duration=10 ms", "--pcap=right-*"],
    );
    assert_eq!(captures(folder.path()), ["right-0.pcap", "right-1.pcap"]);
    let (file, out) = (scenario("dumbbell.toml"), folder.path().to_str().unwrap());
    let sweep = format!("{out}/sweep");
    for (arguments, code, wanted) in [
        (
            &["--out", out, "--pcap=middle"][..],
            1,
            "'middle'; there is 'left-0'",
        ),
        (
            &["--out", &sweep, "--pcap", "--seeds", "2"],
            2,
            "of one run",
        ),
        (&["--pcap"], 2, "--out"),
        (
            &[
                "--out",
                out,
                "--pcap",
                "--set",
                "topology.left=600",
                "--set",
                "topology.right=600",
            ],
            1,
            "--pcap='left-0'",
        ),
    ] {
        let output = slowpath(&[&["sim", &file], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}
