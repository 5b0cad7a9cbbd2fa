// SPDX-License-Identifier: Apache-2.0
//! `slowpath path route` as it is called.

mod emulated;
mod network;
mod pair;
mod printed;

use emulated::up;
use network::{network, row};
use pair::server;
use printed::printed;
use serde_json::Value;
use slowpath_path::command::CommandError;
use slowpath_path::serve::Serving;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

/// What the command prints.
fn output(arguments: &str) -> Result<String, CommandError> {
    printed("route", arguments)
}

#[test]
fn json_has_the_keys_that_the_reference_names() {
    let json = output("127.0.0.1 --json --echo 10 --rounds 1").expect("a trace");
    let route: Value = serde_json::from_str(&json).expect("one object");
    let keys: BTreeSet<&str> = route
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let page = include_str!("../../../docs/reference/path-route.md");
    for key in &keys {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
    for key in [
        "peer", "hops", "flows", "loss", "mtu", "ecn", "dscp", "changes",
    ] {
        assert!(keys.contains(key), "{key}");
    }
    assert_eq!(route["protocol"], "udp");
    assert_eq!(route["hops"][0]["ttl"], 1);
    assert_eq!(route["hops"][0]["kind"], "destination");
    assert_eq!(route["hops"][0]["addresses"][0]["address"], "127.0.0.1");
}

#[test]
fn text_says_what_was_found_in_sentences() {
    let more =
        "[[line]]\non = \"r2 -> r3\"\necn = \"clear\"\n[[router]]\non = \"r4\"\nsilent = true\n";
    let Some(lab) = up("text_says_what_was_found_in_sentences", &row(more)) else {
        return;
    };
    let (a, b) = (
        lab.host("a").expect("a host"),
        lab.host("b").expect("a host"),
    );
    let arguments = format!("{} --echo 20", b.ipv4());
    let text = a
        .run(|| output(&arguments))
        .expect("enters")
        .expect("a trace");
    println!("{text}");
    assert!(text.contains("  4  *  answers nothing\n"), "{text}");
    assert!(
        text.contains("ECN changes from ECT(0) to not ECT on the link before hop 3"),
        "{text}"
    );
    assert!(
        text.contains("The way loses nothing: 20 of 20 echo requests were answered."),
        "{text}"
    );
    assert!(text.contains("The path MTU is 1500 octets."), "{text}");
}

#[test]
fn wrong_arguments_are_usage() {
    let error = output("127.0.0.1 --confidence 2").expect_err("no share");
    assert_eq!(error.code(), 2);
    let error = output("::1 -4").expect_err("the other family");
    assert_eq!(error.code(), 1);
    assert!(error.to_string().contains("::1"), "{error}");
}

#[test]
fn the_peer_says_which_way_its_packets_take_to_here() {
    let name = "the_peer_says_which_way_its_packets_take_to_here";
    let routers = ["west", "east", "north"];
    let links = [
        ("a", "west"),
        ("west", "east"),
        ("east", "b"),
        ("east", "north"),
        ("north", "west"),
    ];
    let more = "[[route]]\non = \"east\"\nto = [\"a\"]\nvia = [\"north\"]\n";
    let Some(lab) = up(name, &network(&routers, &links, more)) else {
        return;
    };
    let host = |name| lab.host(name).expect("a host");
    let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 8863);
    let serving = host("b").run(|| Serving::start(server(listen, "10.0.0.0/8")));
    let mut serving = serving.expect("enters").expect("a server");
    let arguments = format!("{} --from-peer --json --echo 10", host("b").ipv4());
    let json = host("a").run(|| output(&arguments));
    let json = json.expect("enters").expect("both routes");
    serving.stop();
    let both: Value = serde_json::from_str(&json).expect("one object");
    let address = |name: &str| {
        let mut all = lab.routers();
        let found = all.find(|(router, _, _)| *router == name);
        found.expect("a router").1.to_string()
    };
    let way = |route: &Value| -> Vec<String> {
        let hops = route["hops"].as_array().expect("hops");
        let first = |hop: &Value| hop["addresses"][0]["address"].as_str().map(str::to_owned);
        hops.iter().filter_map(first).collect()
    };
    let there = [
        address("west"),
        address("east"),
        host("b").ipv4().to_string(),
    ];
    assert_eq!(way(&both), there);
    let back = [
        address("east"),
        address("north"),
        address("west"),
        host("a").ipv4().to_string(),
    ];
    assert_eq!(way(&both["from_peer"]), back);
    assert_eq!(both["from_peer"]["complete"], true);
}
