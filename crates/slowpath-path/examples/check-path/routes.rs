// SPDX-License-Identifier: Apache-2.0
//! Four ways at a router, MTU black holes, bleached ECN and remarked DSCP: does `path route` find them?

use crate::chain::Chain;
use crate::network::{Failure, Network};
use crate::random::Draw;
use serde_json::Value;
use std::collections::BTreeSet;

const KIND: u64 = 3;

/// Of each kind.
pub const RUNS_EACH: usize = 4;

/// What is planted.
pub const KINDS: [&str; 5] = [
    "four ways",
    "black hole",
    "bleached ECN",
    "remarked DSCP",
    "nothing",
];

/// How a trial ended.
pub struct Outcome {
    pub right: bool,
    pub text: String,
}

fn chain(draw: &mut Draw) -> Chain {
    let links = draw.whole(5, 9);
    Chain::new((0..links).map(|_| draw.by_factor(100.0, 3000.0)).collect())
}

/// A diamond: m1 to m4 between the routers at both ends of a link.
fn diamond(chain: &Chain, link: usize) -> String {
    let (near, far) = (chain.near(link), chain.far(link));
    let text = chain.text();
    let (before, after) = text.split_once("switches = [").unwrap_or((&text, ""));
    let direct = format!("  {{ ends = [\"{near}\", \"{far}\"]");
    let after: Vec<&str> = after
        .lines()
        .filter(|line| !line.starts_with(&direct))
        .collect();
    let middle = |m: usize| {
        format!("  {{ ends = [\"{near}\", \"m{m}\"] }},\n  {{ ends = [\"m{m}\", \"{far}\"] }},\n")
    };
    let ways: String = (1..=4).map(middle).collect();
    format!(
        "{before}switches = [\"m1\", \"m2\", \"m3\", \"m4\", {}\n",
        after.join("\n")
    )
    .replace("link = [\n", &format!("link = [\n{ways}"))
}

/// Addresses at a hop.
fn addresses(json: &Value, ttl: usize) -> BTreeSet<String> {
    let hops = json["hops"].as_array().into_iter().flatten();
    let hop = hops.filter(|hop| hop["ttl"].as_u64() == Some(ttl as u64));
    let addresses = hop.flat_map(|hop| hop["addresses"].as_array().into_iter().flatten());
    addresses
        .filter_map(|address| address["address"].as_str().map(str::to_owned))
        .collect()
}

/// The hops at which a field of the IP header first differs.
fn changes(json: &Value, field: &str) -> Vec<(Option<u64>, Value)> {
    let changes = json[field]["changes"].as_array().into_iter().flatten();
    changes
        .map(|change| (change["hop"].as_u64(), change["to"].clone()))
        .collect()
}

/// Runs one trial.
pub fn run(number: usize, seed: u64) -> Result<Outcome, Failure> {
    let kind = KINDS[number % KINDS.len()];
    let mut draw = Draw::new(seed, KIND, number);
    let mut chain = chain(&mut draw);
    // Both ends of the link are routers.
    let link = draw.whole(2, chain.links() - 1);
    let on = format!(
        "[[line]]\non = \"{} -> {}\"\n",
        chain.near(link),
        chain.far(link)
    );
    let mtu = draw.whole(1000, 1450);
    match kind {
        "black hole" => chain.more = format!("{on}mtu = {mtu}\nmtu-icmp = false\n"),
        "bleached ECN" => chain.more = format!("{on}ecn = \"clear\"\n"),
        "remarked DSCP" => chain.more = format!("{on}dscp = 8\n"),
        _ => {}
    }
    let text = match kind {
        "four ways" => diamond(&chain, link),
        _ => chain.text(),
    };
    let network = Network::up(&text)?;
    let json = network.measure(&["route", "@b", "--dscp", "46", "--ecn", "ect0", "--json"])?;
    let ecn = changes(&json, "ecn");
    let dscp = changes(&json, "dscp");
    let hole = &json["mtu"]["black_hole"];
    let there = [
        ecn.is_empty(),
        dscp.is_empty(),
        hole.is_null(),
        json["ways"] == 1,
    ];
    // A router reads what the line to it has done.
    let hop = link as u64;
    let right = match kind {
        "four ways" => {
            let middle = (1..=4).filter_map(|m| network.router(&format!("m{m}")));
            let middle: BTreeSet<String> = middle.map(|address| address.to_string()).collect();
            addresses(&json, link) == middle && json["ways"] == 4 && there[..3] == [true; 3]
        }
        "black hole" => {
            let named = hole["hop"].as_u64() == Some(hop)
                && json["mtu"]["bytes"].as_u64() == Some(mtu as u64);
            named && there == [true, true, false, true]
        }
        "bleached ECN" => {
            ecn == [(Some(hop), Value::from("not_ect"))] && there == [false, true, true, true]
        }
        "remarked DSCP" => {
            dscp == [(Some(hop), Value::from(8))] && there == [true, false, true, true]
        }
        _ => there == [true; 4] && json["complete"] == true,
    };
    let text = format!(
        "{kind} {number}, link {link} of {}{}: ways {}, mtu {}, ecn {}, dscp {}{}",
        chain.links(),
        if kind == "black hole" {
            format!(", {mtu} bytes")
        } else {
            String::new()
        },
        json["ways"],
        json["mtu"],
        json["ecn"]["changes"],
        json["dscp"]["changes"],
        network
            .complaint()
            .map_or(String::new(), |why| format!(" ({why})")),
    );
    Ok(Outcome { right, text })
}
