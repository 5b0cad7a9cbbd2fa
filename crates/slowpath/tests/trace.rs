// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace` as a process: statuses, messages, forms of output, against other tools.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn slowpath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.arg("trace").args(arguments).stdin(Stdio::null());
    command
}

fn trace(arguments: &[&str]) -> Output {
    slowpath(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
        .collect()
}

/// `None`: the captures are not on this machine.
fn shared(name: &str) -> Option<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let path = folder.join(name);
    if !path.exists() {
        println!("SKIPPED {name}: shared/captures is not here");
        return None;
    }
    Some(path.to_str()?.to_owned())
}

fn other(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("SKIPPED {program}: {error}");
            None
        }
    }
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["x.pcap", "--connection", "0"],
        &["x.pcap", "--connection", "10.0.0.1-10.0.0.2"],
        &["x.pcap", "--filter", "tcp prt 80"],
        &["x.pcap", "--json", "--csv"],
        &["x.pcap", "--top", "0"],
        &["x.pcap", "--duration", "1s"],
        &["--interface", "lo", "x.pcap"],
        &["x.pcap", "--extract", "1"],
        &["x.pcap", "--top", "0"],
    ] {
        let output = trace(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let none = text(&trace(&["x.pcap", "--top", "0"]).stderr);
    assert!(none.contains("give 1 or more"), "{none}");
    let help = trace(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("slowpath trace ring.pcapng --html ring.html"));
}

#[test]
fn what_cannot_be_read_is_1_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none.pcap");
    std::fs::write(&none, "this is no capture, but long enough to look at").unwrap();
    let snoop = folder.path().join("solaris.snoop");
    std::fs::write(&snoop, "snoop\0\0\0\0\0\0\u{2}\0\0\0\u{4}").unwrap();
    let snoop = snoop.to_str().unwrap();
    let (none, folder) = (none.to_str().unwrap(), folder.path().to_str().unwrap());
    for (arguments, wanted) in [
        (&["/nosuch/file.pcap"][..], "/nosuch/file.pcap"),
        (&[folder], "directory"),
        (&[none], "neither a pcap nor a pcapng"),
        (&[snoop], "in the format of snoop"),
        (&["--interface", "nosuch0"], "nosuch0"),
    ] {
        let output = trace(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn refusals_name_the_way_out() {
    let Some(capture) = shared("packets/tcp_dupack.pcapng") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.pcapng");
    std::fs::copy(&capture, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    for (arguments, code, wanted) in [
        (&[&capture, "--connection", "9"][..], 1, "1 connection"),
        (
            &[&capture, "--html", "/nosuch/out.html"],
            1,
            "/nosuch/out.html",
        ),
        (&[&capture, "--log", "/nosuch/log"], 1, "/nosuch/log"),
        (&[&capture, "--pair", "/nosuch/pair"], 1, "/nosuch/pair"),
        (&[&capture, "--extract", "7", "/tmp/x"], 1, "1 connection"),
        (&[&capture, "--extract", "x", "/tmp/x"], 2, "A:PORT-B:PORT"),
        (&[copy, "--annotate", copy], 2, "name another file"),
    ] {
        let output = trace(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
    // And the capture is still whole.
    assert_eq!(
        std::fs::read(copy).unwrap(),
        std::fs::read(&capture).unwrap()
    );
}

/// Packets, TCP and UDP as tshark counts them.
#[test]
fn totals_are_tsharks() {
    for name in ["packets/http_espn.pcapng", "packets/tcp_ports.pcapng"] {
        let Some(capture) = shared(name) else { return };
        let objects = objects(&trace(&[&capture, "--json"]));
        let capture_object = &objects[0];
        assert_eq!(capture_object["type"], "capture");
        for (filter, ours) in [
            ("frame", &capture_object["packets"]),
            ("tcp", &capture_object["tcp"]["packets"]),
            ("udp && !icmp", &capture_object["udp"]["packets"]),
        ] {
            let Some(said) = other(
                "tshark",
                &[
                    "-r",
                    &capture,
                    "-Y",
                    filter,
                    "-T",
                    "fields",
                    "-e",
                    "frame.len",
                ],
            ) else {
                return;
            };
            assert_eq!(*ours, said.lines().count() as u64, "{name}: {filter}");
        }
        // tshark's number of conversations, and the segments of all of them.
        let connections = objects.iter().filter(|o| o["type"] == "connection");
        let packets = connections.clone().map(|c| c["packets"].as_u64().unwrap());
        assert_eq!(
            packets.sum::<u64>(),
            capture_object["tcp"]["packets"].as_u64().unwrap()
        );
        let streams = other(
            "tshark",
            &[
                "-r",
                &capture,
                "-Y",
                "tcp",
                "-T",
                "fields",
                "-e",
                "tcp.stream",
            ],
        );
        let streams: std::collections::BTreeSet<String> = streams
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(connections.count(), streams.len(), "{name}");
    }
}

/// Figures that the authors of tcptrace print for this connection.
#[test]
fn every_form_has_the_same_figures() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let objects = objects(&trace(&[&capture, "--json"]));
    let sent = &objects[1]["from_client"];
    for (key, value) in [
        ("packets", 240),
        ("seen_before_packets", 32),
        ("retransmitted_packets", 32),
        ("sacks", 0),
        ("window_scale", 2),
    ] {
        assert_eq!(sent[key], value, "{key}");
    }
    let csv = text(&trace(&[&capture, "--csv"]).stdout);
    let lines: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].len(), lines[1].len());
    let column = |name| lines[0].iter().position(|c| *c == name).unwrap();
    assert_eq!(lines[1][column("client_packets")], "240");
    assert_eq!(lines[1][column("client_retransmitted_packets")], "32");
    let long = text(&trace(&[&capture, "--long"]).stdout);
    let row = long
        .lines()
        .find(|l| l.contains("packets sent again"))
        .unwrap();
    assert!(row.split_whitespace().any(|w| w == "32"), "{row}");
}

/// 593 of its 879 ms psc.fddi waits for its retransmission timer: no client data between
/// packets 219 and 220, 0.499 s, and the repair after it.
#[test]
fn the_first_screen_says_who_is_limited_by_what() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let output = trace(&[&capture, "--exit-code"]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stdout);
    for wanted in [
        "529 packets",
        "1 TCP connection",
        "Timeout",
        "Limited by the network",
        "evidence",
        "advice",
    ] {
        assert!(said.contains(wanted), "{wanted} lacks in\n{said}");
    }
    assert!(!said.contains('\x1b'), "colours in a pipe");
    // The silence is 57 % of the time, with all of the repair 67 %; the connection did not fail.
    for (options, status) in [
        (["--problem", "timeout", "--min-share", "50%"], 3),
        (["--problem", "Timeout", "--min-share", "70%"], 0),
        (["--problem", "Refused,Reset", "--min-share", "0"], 0),
    ] {
        let arguments = [&[&*capture, "--exit-code"], &options[..]].concat();
        assert_eq!(trace(&arguments).status.code(), Some(status), "{options:?}");
    }
    // Without --exit-code they would change nothing, and a wrong name selects nothing.
    for wrong in [
        ["--problem", "Timeout"],
        ["--min-share", "101"],
        ["--problem", "Slow"],
    ] {
        let arguments = [&[&*capture], &wrong[..]].concat();
        assert_eq!(trace(&arguments).status.code(), Some(2), "{wrong:?}");
    }
    // A normal exchange ends with 0.
    if let Some(capture) = shared("packets/tcp_handshake.pcapng") {
        assert_eq!(trace(&[&capture, "--exit-code"]).status.code(), Some(0));
    }
}

/// Three SYNs in 9 s without an answer, and three that are each answered by a RST.
#[test]
fn failed_connections_are_problems_in_every_form() {
    for (name, problem, frames) in [
        ("verdicts/ftpclientdenied.pcap", "Unanswered", [1, 3]),
        ("verdicts/nowebaccess2.pcapng", "Refused", [3, 8]),
    ] {
        let Some(capture) = shared(name) else {
            return;
        };
        let output = trace(&[&capture, "--exit-code"]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        let said = text(&output.stdout);
        let headline = said.lines().nth(1).unwrap_or_default();
        assert!(headline.starts_with(problem), "{said}");
        assert!(said.contains("act"), "{said}");
        let lines = objects(&trace(&[&capture, "--json"]));
        assert_eq!(lines[0]["headline"]["problem"], problem);
        assert_eq!(lines[0]["failures"][0]["connections"], 1);
        let failure = &lines[1]["failures"][0];
        assert_eq!(failure["problem"], problem);
        assert_eq!(failure["first_frame"], frames[0]);
        assert_eq!(failure["last_frame"], frames[1]);
        let csv = text(&trace(&[&capture, "--csv"]).stdout);
        let ending = format!("{problem},{problem}");
        assert!(csv.lines().nth(1).unwrap().ends_with(&ending), "{csv}");
        let page =
            std::env::temp_dir().join(format!("slowpath-{}-{problem}.html", std::process::id()));
        let path = page.to_str().unwrap();
        assert!(trace(&[&capture, "--html", path]).status.success());
        let written = std::fs::read_to_string(&page).unwrap();
        std::fs::remove_file(&page).unwrap();
        assert!(
            written.contains(&format!("{problem}: connection #1")),
            "{name}"
        );
    }
    // One connection is selected: the headline is about it.
    if let Some(capture) = shared("verdicts/synscan.pcapng") {
        let lines = objects(&trace(&[&capture, "--json", "--connection", "12"]));
        assert_eq!(lines[0]["headline"]["problem"], "Refused");
        assert_eq!(lines[0]["headline"]["connection"], 12);
    }
}

#[test]
fn a_connection_is_chosen_by_number_or_ends() {
    let Some(capture) = shared("packets/http_espn.pcapng") else {
        return;
    };
    let all = objects(&trace(&[&capture, "--json"]));
    let third = all.iter().find(|o| o["connection"] == 3).unwrap();
    let ends = [&third["client"], &third["server"]].map(|e| e.as_str().unwrap());
    for which in [
        "3".to_owned(),
        format!("{}-{}", ends[0], ends[1]),
        format!("{}-{}", ends[1], ends[0]),
    ] {
        let chosen = objects(&trace(&[&capture, "--json", "--connection", &which]));
        assert_eq!(chosen.len(), 2, "{which}");
        assert_eq!(&chosen[1], third);
    }
}

/// `-r FILE -Y tcp.stream==2`: the third connection of tshark, which counts from 0.
#[test]
fn an_extracted_connection_has_tsharks_packets() {
    let Some(capture) = shared("packets/http_espn.pcapng") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("three.pcapng");
    let out = out.to_str().unwrap();
    assert_eq!(
        trace(&[&capture, "--extract", "3", out]).status.code(),
        Some(0)
    );
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.len",
        "-e",
        "tcp.seq_raw",
    ];
    let mine = other("tshark", &[&["-r", out][..], &fields].concat());
    let stream = ["-r", &capture, "-Y", "tcp.stream==2"];
    let theirs = other("tshark", &[&stream[..], &fields].concat());
    assert_eq!(mine, theirs);
}

#[test]
fn pictures_and_comments_are_written() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [html, svg, xpl, annotated] = ["a.html", "a.svg", "xpl", "a.pcapng"].map(path);
    // From a pipe: what flows by once is read as often as it takes.
    let mut child = slowpath(&[
        "-",
        "--html",
        &html,
        "--svg",
        &svg,
        "--xpl",
        &xpl,
        "--annotate",
        &annotated,
    ])
    .stdin(Stdio::piped())
    .stdout(Stdio::null())
    .spawn()
    .unwrap();
    let bytes = std::fs::read(&capture).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(
        page.contains("\"text\":\"Timeout"),
        "findings lead to their place"
    );
    assert!(std::fs::read_to_string(&svg).unwrap().ends_with("</svg>\n"));
    for name in [
        "a2b_tsg.xpl",
        "b2a_tsg.xpl",
        "a2b_rtt.xpl",
        "a2b_tput.xpl",
        "a2b_owin.xpl",
        "a2b_ssize.xpl",
        "a_b_tline.xpl",
    ] {
        assert!(Path::new(&xpl).join(name).exists(), "{name}");
    }
    let comments = [
        "-r",
        &annotated,
        "-Y",
        "frame.comment",
        "-T",
        "fields",
        "-e",
        "frame.comment",
    ];
    if let Some(said) = other("tshark", &comments) {
        assert!(said.contains("slowpath #1: Timeout"), "{said}");
    }
}

#[test]
fn several_files_are_one_capture() {
    let (Some(a), Some(b)) = (
        shared("packets/latency1.pcapng"),
        shared("packets/tcp_dupack.pcapng"),
    ) else {
        return;
    };
    let packets = |files: &[&str]| {
        let arguments = [files, &["--json"]].concat();
        objects(&trace(&arguments))[0]["packets"].as_u64().unwrap()
    };
    assert_eq!(packets(&[&a, &b]), packets(&[&a]) + packets(&[&b]));
}

#[test]
fn a_filter_leaves_out_and_counts() {
    let Some(capture) = shared("packets/http_espn.pcapng") else {
        return;
    };
    let all = objects(&trace(&[&capture, "--json"]));
    let some = objects(&trace(&[&capture, "--json", "--filter", "udp"]));
    assert_eq!(some[0]["udp"], all[0]["udp"]);
    assert_eq!(some[0]["tcp"]["packets"], 0);
    assert_eq!(some[0]["filtered_out"]["packets"], all[0]["tcp"]["packets"]);
    assert_eq!(some[0]["packets"], all[0]["packets"]);
}

/// A connection's capture paired with itself was made at one place.
#[test]
fn a_pair_from_one_place_is_refused_and_said() {
    let Some(capture) = shared("packets/tcp_dupack.pcapng") else {
        return;
    };
    let objects = objects(&trace(&[&capture, "--json", "--pair", &capture]));
    let pair = objects.iter().find(|o| o["type"] == "pair").unwrap();
    assert!(
        pair["error"]
            .as_str()
            .is_some_and(|e| e.contains("same place")),
        "{pair}"
    );
}

#[test]
fn a_reader_that_goes_is_no_failure() {
    let Some(capture) = shared("packets/http_espn.pcapng") else {
        return;
    };
    let mut child = slowpath(&[&capture, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// 600 SYNs of one client, from as many ports, 2 ms from one to the next.
fn flood() -> Vec<u8> {
    let words = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 96, 1];
    let mut file: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
    for n in 0..600u32 {
        let words = [1_700_000_000 + n / 500, n % 500 * 2_000_000, 54, 54];
        file.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        file.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 40]);
        file.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        file.extend([(10_000 + n as u16).to_be_bytes(), 80u16.to_be_bytes()].concat());
        file.extend([0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    }
    file
}

#[test]
fn of_a_flood_some_are_listed_and_each_can_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flood.pcap");
    std::fs::write(&file, flood()).unwrap();
    let path = file.to_str().unwrap();
    let all = objects(&trace(&[path, "--json"]));
    assert_eq!(all[0]["connections"], 600);
    assert_eq!(all[0]["unanswered_not_listed"], 88);
    assert_eq!(all.len(), 1 + 512);
    let csv = trace(&[path, "--csv"]);
    assert_eq!(text(&csv.stdout).lines().count(), 1 + 512);
    let said = text(&csv.stderr);
    assert!(said.contains("88 unanswered connections beyond"), "{said}");
    // The last of them, by number and by its ends, from a file and a pipe.
    for which in ["600", "10.0.0.1:10599-10.0.0.2:80"] {
        let arguments = ["--json", "--connection", which];
        let chosen = objects(&trace(&[&[path][..], &arguments].concat()));
        assert_eq!(chosen.len(), 2, "{which}");
        assert_eq!(chosen[0]["unanswered_not_listed"], 0);
        assert_eq!(chosen[1]["connection"], 600);
        assert_eq!(chosen[1]["client"], "10.0.0.1:10599");
        assert_eq!(chosen[1]["first_frame"], 600);
        let mut piped = slowpath(&[&["-"][..], &arguments].concat());
        piped.stdin(std::fs::File::open(&file).unwrap());
        assert_eq!(objects(&piped.output().unwrap()), {
            let mut expected = chosen.clone();
            expected[0]["name"] = "standard input".into();
            expected
        });
    }
    let out = folder.path().join("one.pcapng");
    let out = out.to_str().unwrap();
    let extracted = trace(&[path, "--extract", "600", out]);
    assert_eq!(extracted.status.code(), Some(0));
    let one = objects(&trace(&[out, "--json"]));
    assert_eq!(
        (one.len(), &one[1]["client"]),
        (2, &Value::from("10.0.0.1:10599"))
    );
}
