// SPDX-License-Identifier: Apache-2.0
//! Filters select what tcpdump selects, and the kernel takes their programs.

mod frames;

use frames::{USUAL, menagerie, timed};
use slowpath_trace::filter::Filter;
use slowpath_trace::read::open;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXPRESSIONS: &[&str] = &[
    "",
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "esp",
    "not tcp",
    "ip proto 6",
    "ip6 proto 6",
    "proto 17",
    "ip proto \\udp",
    "host 10.0.0.1",
    "src host 10.0.0.1",
    "dst 10.0.0.1",
    "src and dst host 10.0.0.1",
    "ip host 10.0.0.2",
    "arp host 10.0.0.2",
    "host 10.0.0.1 or 192.168.7.9",
    "host 10.0.0.1 and not 10.0.0.2",
    "host 2001:db8::1",
    "ip6 src host 2001:db8::2",
    "net 10.0.0.0/8",
    "src net 192.168",
    "net 192.168.7.8/31",
    "net 10.0.0.0 mask 255.0.0.0",
    "net 2001:db8::/32",
    "dst net 2001:db8::/127",
    "port 80",
    "tcp port 80",
    "udp port 53",
    "src port 80",
    "dst port 80 or 53",
    "src or dst port 8080",
    "portrange 50-90",
    "tcp dst portrange 8000-9000",
    "tcp and (port 80 or port 53)",
    "tcp or udp and port 53",
    "! (port 80) && ip",
    "less 60",
    "greater 60",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:02",
    "ether proto 0x88cc",
    "ether proto \\arp",
    "vlan",
    "vlan 100",
    "vlan and ip",
    "vlan 100 and vlan 7 and tcp port 80",
    "vlan 200 and host 2001:db8::1",
    "ip or vlan",
    "tcp[13] & 2 != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-rst) != 0",
    "tcp[tcpflags] == tcp-syn",
    "ip[8] > 63",
    "ip[2:2] <= 45",
    "ip6[6] = 44",
    "udp[0:2] = 5353",
    "icmp[icmptype] = icmp-echo",
    "ether[0] & 1 = 0",
    "tcp[4:4] >= 999",
];

/// The times of the frames in a capture, in microseconds.
fn times(path: &Path, filter: Option<&Filter>) -> Vec<i64> {
    let mut capture = open(path).expect("it opens");
    let mut times = Vec::new();
    while let Some(p) = capture.next().expect("it reads") {
        if filter.is_none_or(|f| f.matches(p.link(), p.data(), p.wire_length())) {
            times.push(p.time().0 / 1000);
        }
    }
    times
}

/// `None`: tcpdump is not here.
fn by_tcpdump(path: &Path, expression: &str, out: &Path) -> Option<Vec<i64>> {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump
        .args(["-r".as_ref(), path, "-w".as_ref(), out])
        .arg(expression);
    let run = tcpdump.output().ok()?;
    assert!(
        run.status.success(),
        "{expression}: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    Some(times(out, None))
}

fn check(path: &Path) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for expression in EXPRESSIONS {
        let filter: Filter = expression.parse().expect(expression);
        let ours = times(path, Some(&filter));
        let Some(theirs) = by_tcpdump(path, expression, &folder.path().join("selected")) else {
            println!("SKIPPED filter: no tcpdump here");
            return;
        };
        assert_eq!(ours, theirs, "{expression} on {}", path.display());
    }
}

#[test]
fn selects_what_tcpdump_selects() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("made.pcap");
    std::fs::write(&path, USUAL.pcap(1, &timed(menagerie()))).expect("it writes");
    check(&path);
}

#[test]
fn selects_what_tcpdump_selects_of_others_captures() {
    let captures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    for name in ["packets/http_espn.pcapng", "packets/tcp_ports.pcapng"] {
        let path = captures.join(name);
        if path.exists() {
            check(&path);
        } else {
            println!("SKIPPED {name}: shared/captures is not here");
        }
    }
}

#[test]
fn says_what_it_does_not_understand() {
    for (expression, at) in [
        ("tcp port http", "http"),
        ("host example.org", "example.org"),
        ("tcp port", "the end"),
        ("tcp host 10.0.0.1", "10.0.0.1"),
        ("(tcp", "the end"),
        ("tcp)", ")"),
        ("tcp udp", "udp"),
        ("net 10.0.0.1/8", "10.0.0.1/8"),
        ("port 70000", "70000"),
        ("vlan 5000", "5000"),
        ("tcp[13] & 2", "the end"),
    ] {
        let error = expression.parse::<Filter>().expect_err(expression);
        assert_eq!(error.at, at, "{expression}: {error}");
    }
    let deep = "(".repeat(100_000);
    assert!(deep.parse::<Filter>().is_err());
    let long = vec!["port 80"; 10_000].join(" or ");
    assert!(long.parse::<Filter>().is_err());
}
