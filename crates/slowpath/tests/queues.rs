// SPDX-License-Identifier: Apache-2.0
//! `slowpath queues` from end to end: on captures whose queues can be worked out by hand, on damaged ones, and on those of a laboratory kernel.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Two senders and a receiver at one switch, which has room for five packets a port. A packet
/// of 1,500 bytes takes 12 us on a line, and 1 us to the other end.
const TOPOLOGY: &str = "seed = 1\nduration = \"1 ms\"\n[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\", \"c\"]\n\
    switches = [\"s\"]\nlinks = { rate = \"1 Gbit/s\", delay = \"1 us\" }\nlink = [\n{ ends = [\"a\", \"s\"] },\n\
    { ends = [\"b\", \"s\"] },\n{ ends = [\"c\", \"s\"] },\n]\n[switch]\nbuffer = \"5 packets\"\n\
    [[workload]]\nkind = \"bulk\"\nfrom = [\"a\"]\nto = [\"c\"]\n";

/// Second 0, in microseconds since 1970.
const ORIGIN: u64 = 1_700_000_000_000_000;
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;

/// What a host saw: when (microseconds after second 0), whose, and which of its packets.
type Packet = (u64, u8, u32);

/// IPv4 and TCP, 1,460 bytes of data, to port 80 of C; only headers are kept.
fn frame(from: u8, number: u32) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend([10, 9, 8, from, 10, 9, 8, C]);
    ip.extend([0x9c, 0x40 + from, 0, 80]);
    ip.extend((1 + 1460 * number).to_be_bytes());
    ip.extend([0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    ip
}

/// A pcap of raw IP.
fn capture(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, from, number) in packets {
        let (at, frame) = (ORIGIN + at, frame(*from, *number));
        let times = [at / 1_000_000, at % 1_000_000].map(|part| part as u32);
        for word in [times[0], times[1], frame.len() as u32, 1500] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

/// Each sender sends eight packets as fast as its line takes them, B a microsecond later, and
/// one more after a millisecond. Of B's eight the last three do not arrive. What the switch
/// does follows:
///
/// - the first packet of A leaves at once at 13 us; B's waits: 1
/// - every 12 us one leaves, and one of each comes: at 14 + 12k us k + 1 wait
/// - at 62 us five wait: B's from number 2 on, A's from number 3 on, and it is full
/// - from then on A's packet takes the place that is free, and B's finds none
fn captures(folder: &Path) -> (PathBuf, PathBuf) {
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..8u32 {
        let at = 12 * u64::from(number);
        a.push((at, A, number));
        b.push((at + 1, B, number));
        c.push((at + 26, A, number));
        if number < 5 {
            c.push((at + 38, B, number));
        }
    }
    for (host, late) in [(&mut a, A), (&mut b, B)] {
        host.push((1_000, late, 8));
        c.push((1_030 + u64::from(late), late, 8));
    }
    c.sort_unstable();
    let into = folder.join("captures");
    fs::create_dir(&into).unwrap();
    for (name, packets) in [("a", a), ("b", b), ("c", c)] {
        fs::write(into.join(name).with_extension("pcap"), capture(&packets)).unwrap();
    }
    let topology = folder.join("rack.toml");
    fs::write(&topology, TOPOLOGY).unwrap();
    (into, topology)
}

fn run(captures: &Path, topology: &Path, more: &[&str]) -> Output {
    let (captures, topology) = (captures.to_str().unwrap(), topology.to_str().unwrap());
    let first = ["queues", captures, "--topology", topology];
    slowpath(&[&first[..], more].concat())
}

const ADDRESSES: [&str; 6] = [
    "--address",
    "a=10.9.8.1",
    "--address",
    "b=10.9.8.2",
    "--address",
    "c=10.9.8.3",
];

#[test]
fn queues_that_were_worked_out_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let (captures, topology) = captures(folder.path());
    let (tables, page) = (folder.path().join("tables"), folder.path().join("q.html"));
    let files = [
        "--out",
        tables.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
        "--json",
    ];
    let output = run(&captures, &topology, &[&ADDRESSES[..], &files].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["type"], "queues");
    assert_eq!(answer["origin_unix_ns"], ORIGIN * 1_000);
    for (key, expected) in [
        ("captures", 3),
        ("packets", 18),
        ("lost", 3),
        ("dropped", 3),
        ("nowhere", 0),
        ("unknown", 0),
        ("unmatched", 0),
        ("elsewhere", 0),
    ] {
        assert_eq!(answer[key], expected, "{key}: {answer}");
    }
    assert_eq!(answer["hosts_without_capture"], Value::Array(Vec::new()));
    // A full queue is not more than a full queue.
    assert_eq!(answer["findings"], Value::Array(Vec::new()));
    let queue = &answer["queues"][0];
    assert_eq!(
        (&queue["switch"], &queue["neighbour"]),
        (&"s".into(), &"c".into())
    );
    assert_eq!(queue["dropped"], 3);
    assert_eq!(queue["max_bytes"], 5 * 1500);
    let at = queue["max_at_seconds"].as_f64().unwrap();
    assert!((at - 62e-6).abs() < 1e-9, "{at}");
    let of = |list: &Value, host: &str| -> u64 {
        let all = list.as_array().unwrap().iter();
        let amount = |one: &Value| one["amount"].as_u64().unwrap();
        all.filter(|one| one["host"] == host).map(amount).sum()
    };
    let held = ["a", "b"].map(|host| of(&queue["bytes_at_max"], host));
    assert_eq!(held, [2 * 1500, 3 * 1500]);
    assert_eq!(["a", "b"].map(|host| of(&queue["drops"], host)), [0, 3]);
    let ends = &queue["drops"][0];
    assert_eq!(
        (&ends["source"], &ends["destination"]),
        (&"10.9.8.2:40002".into(), &"10.9.8.3:80".into())
    );
    for table in ["queues.parquet", "drops.parquet"] {
        let bytes = fs::read(tables.join(table)).unwrap();
        assert_eq!(&bytes[..4], b"PAR1", "{table}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("<svg") && page.contains("s \u{2192} c"),
        "{page}"
    );

    let output = run(&captures, &topology, &ADDRESSES);
    let said = text(&output.stdout);
    assert!(
        said.starts_with("18 packets of 3 captures; 3 lost: 3 dropped at full queues, 0 at none"),
        "{said}"
    );
    assert!(
        said.contains(" 60 % b: 10.9.8.2:40002 -> 10.9.8.3:80"),
        "{said}"
    );
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let (captures, topology) = captures(folder.path());
    let refused = |output: Output, parts: &[&str]| {
        assert!(!output.status.success());
        let said = text(&output.stderr);
        for part in parts {
            assert!(said.contains(part), "no '{part}' in: {said}");
        }
    };
    let none = folder.path().join("none");
    refused(run(&none, &topology, &[]), &["cannot read", "none"]);
    fs::create_dir(&none).unwrap();
    refused(
        run(&none, &topology, &[]),
        &["no .pcap or .pcapng file", "slowpath lab virtual --out DIR"],
    );
    refused(
        run(&captures, &folder.path().join("no.toml"), &[]),
        &["no.toml", "No such file"],
    );
    // A single capture: all its packets have both addresses.
    let single = folder.path().join("single");
    fs::create_dir(&single).unwrap();
    fs::copy(captures.join("a.pcap"), single.join("a.pcap")).unwrap();
    refused(
        run(&single, &topology, &[]),
        &["capture of 'a'", "say --address a=ADDRESS"],
    );
    for (said, why) in [
        ("a", "say HOST=ADDRESS"),
        ("x=10.9.8.1", "no host of the topology is called 'x'"),
        ("a=ten", "cannot read --address a=ten"),
    ] {
        refused(run(&captures, &topology, &["--address", said]), &[why]);
    }
    fs::rename(captures.join("a.pcap"), captures.join("stranger.pcap")).unwrap();
    refused(
        run(&captures, &topology, &ADDRESSES),
        &[
            "no host of the topology is called 'stranger'",
            "name the file after its host",
        ],
    );
}

/// Damaged captures are refused or read as far as they make sense.
#[test]
fn damaged_captures_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let (captures, topology) = captures(folder.path());
    let path = captures.join("c.pcap");
    let whole = fs::read(&path).unwrap();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut outcomes = [0u32; 2];
    for round in 0..120 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(next(whole.len())),
            1 => (0..8).for_each(|_| bytes[next(whole.len())] ^= 1 << next(8)),
            // Lengths and times of records.
            2 => (0..3).for_each(|_| bytes[24 + 56 * next(15) + next(16)] = next(256) as u8),
            _ => bytes
                .iter_mut()
                .skip(next(64))
                .for_each(|byte| *byte = next(256) as u8),
        }
        fs::write(&path, bytes).unwrap();
        let output = run(
            &captures,
            &topology,
            &[&ADDRESSES[..], &["--json"]].concat(),
        );
        let said = text(&output.stderr);
        match output.status.code() {
            Some(0) => {
                let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
                // What the senders' captures show is sent, whatever the receiver's says.
                assert!(answer["packets"].as_u64().unwrap() >= 18, "{answer}");
                outcomes[0] += 1;
            }
            Some(1 | 2) => {
                assert!(
                    said.contains("c.pcap") || said.contains("--address"),
                    "{said}"
                );
                outcomes[1] += 1;
            }
            other => panic!("round {round}: {other:?}: {said}"),
        }
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 0, "{outcomes:?}");
}

/// DETER section 5.6, on Linux: what the scenario says of itself is found by name.
#[test]
fn the_black_hole_is_found() {
    if let Err(missing) = Kernel::find(SOURCE, HZ) {
        println!("SKIPPED the_black_hole_is_found: {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/replay/black-hole.toml");
    let (scenario, run_folder) = (scenario.to_str().unwrap(), out.to_str().unwrap());
    let [recording, again] = ["run.rec", "again"].map(|name| folder.path().join(name));
    let (recording, again_folder) = (recording.to_str().unwrap(), again.to_str().unwrap());
    let lab = slowpath(&[
        "lab", "virtual", scenario, "--out", run_folder, "--record", recording, "--quiet", "--json",
    ]);
    assert!(lab.status.success(), "{}", text(&lab.stderr));
    let lab: Value = serde_json::from_slice(&lab.stdout).unwrap();
    let output = run(&out, Path::new(scenario), &["--json", "--exit-code"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Every drop of the laboratory's switch has its place, and what was under way when the run ended is not taken for lost.
    let packets = &lab["packets"];
    assert_eq!(answer["dropped"], packets["dropped"], "{packets}");
    assert_eq!(answer["nowhere"], 0, "{answer}");
    assert_eq!(answer["unknown"], packets["in_network"], "{packets}");
    let found = &answer["findings"][0];
    assert_eq!(
        found["name"],
        "dynamic threshold fell because another queue filled"
    );
    let place = ["switch", "neighbour", "filled_neighbour"].map(|key| found[key].clone());
    assert_eq!(place, ["s", "a", "b"].map(Value::from));
    let fell = |key: &str| found[key][0].as_u64() > found[key][1].as_u64();
    assert!(
        fell("threshold_bytes") && fell("own_bytes") && !fell("other_bytes"),
        "{found}"
    );
    assert!(found["drops"].as_u64().unwrap() >= 10, "{found}");
    // What a recording is replayed to has the packets of both ends of every connection, whatever hosts these are of: the answer is the same.
    let replay = slowpath(&["replay", recording, "--out", again_folder, "--quiet"]);
    assert!(replay.status.success(), "{}", text(&replay.stderr));
    let output = run(&again, Path::new(scenario), &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let from_replay: Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["dropped", "packets", "lost", "findings", "origin_unix_ns"] {
        assert_eq!(from_replay[key], answer[key], "{key}");
    }
}
