// SPDX-License-Identifier: Apache-2.0
//! A network's plan as bytes, as the laboratory kernel gets it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_switch::fabric::{Fabric, Plan};
use std::io::{Error, ErrorKind};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let Ok(plan) = Plan::decode(data) else { return };
        assert_eq!(plan.encode(), data, "what was read is written the same");
        // A network or none.
        let _ = Fabric::new(&plan);
    }
);

fn seeds() -> Vec<Vec<u8>> {
    let network = "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\n\
        switches = [\"s\"]\nlinks = { rate = \"1 Gbit/s\", delay = \"1 us\" }\n\
        link = [{ ends = [\"a\", \"s\"] }, { ends = [\"b\", \"s\"] }]\n\
        [switch]\nbuffer = \"20 packets\"\n";
    let lines = [
        "",
        "[[line]]\non = \"a <-> s\"\njitter = \"4 ms\"\nloss = \"1 %\"\n\
            [[line]]\non = \"s -> b\"\nat = \"10 ms\"\nrate = \"2 Mbit/s\"\n",
    ];
    let seed = |line: &str| {
        let files = |_: &str| Err(Error::from(ErrorKind::NotFound));
        let text = [network, line].concat();
        match Scenario::parse_for(&text, &files, Substrate::Network) {
            Ok(scenario) => scenario.plan().encode(),
            Err(error) => panic!("{error}\n{text}"),
        }
    };
    lines.into_iter().map(seed).collect()
}
