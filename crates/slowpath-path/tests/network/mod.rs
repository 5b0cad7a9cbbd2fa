// SPDX-License-Identifier: Apache-2.0
//! Emulated networks between hosts a and b, and traces through them.
#![allow(dead_code)]

use slowpath_lab::emulator::Lab;
use slowpath_path::route::result::Hop;
use slowpath_path::route::{Route, TraceOptions, trace};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Hosts a and b, routers, links of 100 Mbit/s and 1 ms, and more lines of TOML.
pub fn network(routers: &[&str], links: &[(&str, &str)], more: &str) -> String {
    let links: Vec<String> = links
        .iter()
        .map(|(a, b)| format!("{{ ends = [\"{a}\", \"{b}\"] }}"))
        .collect();
    format!(
        "seed = 7\n[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = {routers:?}\n\
         links = {{ rate = \"100 Mbit/s\", delay = \"1 ms\" }}\nlink = [{}]\n[switch]\n\
         buffer = \"1000 packets\"\n{more}",
        links.join(", ")
    )
}

/// Hosts a and b with five routers in a row.
pub fn row(more: &str) -> String {
    let routers = ["r1", "r2", "r3", "r4", "r5"];
    let links = [
        ("a", "r1"),
        ("r1", "r2"),
        ("r2", "r3"),
        ("r3", "r4"),
        ("r4", "r5"),
        ("r5", "b"),
    ];
    network(&routers, &links, more)
}

/// Two routers with four of equal cost between them.
pub fn four_ways() -> String {
    let routers = ["r1", "m1", "m2", "m3", "m4", "r2"];
    let links = [
        ("a", "r1"),
        ("r1", "m1"),
        ("r1", "m2"),
        ("r1", "m3"),
        ("r1", "m4"),
        ("m1", "r2"),
        ("m2", "r2"),
        ("m3", "r2"),
        ("m4", "r2"),
        ("r2", "b"),
    ];
    network(&routers, &links, "")
}

/// Traces from a to b.
pub fn traced(lab: &Lab, options: &TraceOptions, v6: bool) -> Route {
    let (a, b) = (
        lab.host("a").expect("a host"),
        lab.host("b").expect("a host"),
    );
    let target: IpAddr = if v6 { b.ipv6().into() } else { b.ipv4().into() };
    let run = || trace(options, ("b", target), &AtomicBool::new(false), &mut |_| {});
    let route = a.run(run).expect("enters").expect("traces");
    // It can be asked for from elsewhere.
    let json = serde_json::to_string(&route).expect("plain data");
    let back: Route = serde_json::from_str(&json).expect("the same data");
    assert_eq!(back, route, "{json}");
    route
}

pub fn router(lab: &Lab, name: &str, v6: bool) -> IpAddr {
    let found = lab.routers().find(|(router, _, _)| *router == name);
    let (_, v4, own6) = found.expect("a router");
    if v6 { own6.into() } else { v4.into() }
}

pub fn routers(lab: &Lab, names: &[&str], v6: bool) -> BTreeSet<IpAddr> {
    names.iter().map(|name| router(lab, name, v6)).collect()
}

pub fn addresses(hop: &Hop) -> BTreeSet<IpAddr> {
    hop.addresses.iter().map(|it| it.address).collect()
}
