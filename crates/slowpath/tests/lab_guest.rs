// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab guest`: the command, and slowpath itself under Debian's stock kernel.

#![cfg(target_arch = "x86_64")]

use serde_json::Value;
use slowpath_lab::guest::Guest;
use std::path::Path;
use std::process::{Command, Output};

const SLOWPATH: &str = env!("CARGO_BIN_EXE_slowpath");

fn guest(arguments: &[&str]) -> Output {
    Command::new(SLOWPATH)
        .args(["lab", "guest"])
        .args(arguments)
        .output()
        .expect("starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two namespaces, 10 ms and losses one segment at a time, a bulk transfer; then what the
/// kernel of that namespace counted when port 5001 (1389 in hexadecimal) is neither
/// established nor in FIN-WAIT-1 nor closing: nothing is sent again any more.
const SCRIPT: &str = "set -eu
ip netns add a; ip netns add b
ip link add va netns a type veth peer name vb netns b
ip -n a link set va gso_max_segs 1
ip -n a addr add 10.9.0.1/24 dev va; ip -n a link set va up
ip -n b addr add 10.9.0.2/24 dev vb; ip -n b link set vb up
tc -n a qdisc add dev va root netem delay 10ms loss 2%
sleep infinity | ip netns exec b workload serve --port 5001 >/tmp/ready &
until [ -s /tmp/ready ]; do sleep 0.1; done
{ echo go; until grep -q bytes_written /tmp/driven; do sleep 0.1; done; } |
    ip netns exec a workload drive --mode bulk --connect 10.9.0.2:5001 --bytes 2000000 >/tmp/driven
while ip netns exec a cat /proc/net/tcp | grep -q ':1389 0[14B]'; do sleep 0.1; done
ip netns exec a cat /proc/net/snmp >/out/snmp
";

/// RetransSegs of /proc/net/snmp: names in one line, values in the next.
fn retransmitted(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next(), lines.next());
    let mut pairs = names.into_iter().flat_map(str::split_whitespace);
    let place = pairs.position(|name| name == "RetransSegs");
    let mut values = values.into_iter().flat_map(str::split_whitespace);
    let value = values.nth(place.expect("is there")).expect("is there");
    value.parse().expect("a number")
}

/// BPF on a kernel that is not this machine's: `slowpath watch` follows a transfer over a
/// lossy path, and counts what that kernel counts.
#[test]
fn slowpath_watches_a_command_under_another_kernel() {
    let test = "slowpath_watches_a_command_under_another_kernel";
    let workload = Path::new(SLOWPATH).with_file_name("slowpath-workload");
    let missing = Guest::missing().or_else(|| {
        let tools = ["/usr/sbin/tc", "/sbin/tc"].map(Path::new);
        let no_tool = !tools.iter().any(|path| path.is_file());
        no_tool.then(|| "tc is not installed (Debian package iproute2)".to_owned())
    });
    let missing = missing.or_else(|| {
        let built = workload.is_file();
        (!built).then(|| "slowpath-workload is not built (cargo build --bins)".to_owned())
    });
    if let Some(reason) = missing {
        println!("SKIPPED {test}: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    std::fs::write(&script, SCRIPT).expect("writes");
    let out = folder.path().join("out");
    let output = guest(&[
        "--with",
        &format!("{}:/usr/local/bin/workload", workload.display()),
        "--with",
        &format!("{}:/srv/script", script.display()),
        "--tool",
        "sh,ip,tc,cat,sleep,grep",
        "--out",
        &out.display().to_string(),
        "--timeout",
        "2m",
        "--",
        "slowpath",
        "watch",
        "--json",
        "--",
        "sh",
        "/srv/script",
    ]);
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let snmp = std::fs::read_to_string(out.join("snmp"));
    let counted = retransmitted(&snmp.unwrap_or_else(|error| panic!("{error}: {said}")));
    assert!(counted > 0, "{said}");

    let printed = text(&output.stdout);
    let lines: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["type"], "summary", "{said}");
    assert_eq!(summary["capabilities"]["tier"], "bpf", "{said}");
    for feature in summary["capabilities"]["features"]
        .as_array()
        .expect("a list")
    {
        // The guest has no nf_conntrack.
        if feature["name"] != "conntrack" {
            assert_eq!(feature["active"], true, "{feature}");
        }
    }
    let printed: u64 = lines
        .iter()
        .filter(|line| {
            line["local"]
                .as_str()
                .is_some_and(|end| end.starts_with("10.9.0.1:"))
        })
        .filter_map(|line| line["evidence"]["retransmitted_segments"].as_u64())
        .sum();
    assert_eq!(printed, counted, "{said}");
}

#[test]
fn what_cannot_be_is_wrong_usage() {
    if let Some(reason) = Guest::missing() {
        println!("SKIPPED what_cannot_be_is_wrong_usage: {reason}");
        return;
    }
    let refused = |arguments: &[&str]| {
        let output = guest(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = refused(&["--module", "netem", "--", "true"]);
    assert!(said.contains("no module netem; it has sch_netem"), "{said}");
    let said = refused(&["--env", "NAME", "--", "true"]);
    assert!(said.contains("NAME=VALUE"), "{said}");
    let said = refused(&["--with", "/etc/hostname:relative", "--", "true"]);
    assert!(said.contains("does not begin with a slash"), "{said}");
}
