// SPDX-License-Identifier: Apache-2.0
//! `slowpath path neck` in emulated chains: positions, rates, silent routers, both families; and as a command.

mod emulated;
mod printed;

use emulated::up;
use printed::{printed, takes};
use serde_json::Value;
use slowpath_lab::emulator::Lab;
use slowpath_path::command::CommandError;

/// A busy machine delays the emulator, which may then hide a neck. A wrong one it does not make.
const ATTEMPTS: usize = 4;

/// What the command prints.
fn output(arguments: &str) -> Result<String, CommandError> {
    printed("neck", arguments)
}

/// Hosts a and b with seven routers between, 100 Mbit/s each but for one link; and more lines of TOML.
fn chain(test: &str, narrow: usize, rate: &str, more: &str) -> Option<Lab> {
    let routers: Vec<String> = (1..8).map(|router| format!("r{router}")).collect();
    let nodes: Vec<&str> = std::iter::once("a")
        .chain(routers.iter().map(String::as_str))
        .chain(["b"])
        .collect();
    let link = |(number, ends): (usize, &[&str])| {
        let rate = match number == narrow {
            true => format!(", rate = \"{rate}\""),
            false => String::new(),
        };
        format!("{{ ends = [\"{}\", \"{}\"]{rate} }}", ends[0], ends[1])
    };
    let links: Vec<String> = (1..).zip(nodes.windows(2)).map(link).collect();
    let text = format!(
        "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = {routers:?}\n\
         links = {{ rate = \"100 Mbit/s\", delay = \"300 us\" }}\nlink = [{}]\n\
         [switch]\nbuffer = \"200 packets\"\n{more}",
        links.join(", ")
    );
    up(test, &text)
}

/// The JSON that host a prints of host b; tried again while there is no verdict.
fn measured(lab: &Lab, v6: bool, options: &str) -> Value {
    let peer = match v6 {
        true => lab.hosts()[1].ipv6().to_string(),
        false => lab.hosts()[1].ipv4().to_string(),
    };
    let arguments = format!("{peer} --json {options}");
    let mut found = Value::Null;
    for _ in 0..ATTEMPTS {
        let text = lab.hosts()[0].run(|| output(&arguments)).expect("enters");
        found = serde_json::from_str(&text.expect("a measurement")).expect("one object");
        if found["verdict"] == "link" {
            break;
        }
    }
    found
}

#[test]
fn the_narrow_link_and_its_rate_are_found_by_both_families() {
    let name = "the_narrow_link_and_its_rate_are_found_by_both_families";
    let Some(lab) = chain(name, 5, "40 Mbit/s", "") else {
        return;
    };
    for v6 in [false, true] {
        let found = measured(&lab, v6, "");
        assert_eq!(found["verdict"], "link", "{found}");
        let link = &found["link"];
        let routers: Vec<String> = lab
            .routers()
            .map(|(_, v4, six)| match v6 {
                true => six.to_string(),
                false => v4.to_string(),
            })
            .collect();
        // Hop 5 is the router r5, hop 4 the router r4.
        assert_eq!(
            (&link["hop"], &link["from"], &link["to"]),
            (
                &5.into(),
                &routers[3].as_str().into(),
                &routers[4].as_str().into()
            ),
            "{found}"
        );
        let rate = found["rate_bound_bps"].as_f64().expect("a rate");
        assert!((rate / 40e6 - 1.0).abs() < 0.25, "{found}");
        // Hop 0 is this host, hop 8 the destination.
        assert_eq!(found["hops"].as_array().expect("hops").len(), 9);
        let methods = found["methods"].as_array().expect("two");
        assert!(methods.iter().all(|method| method["hop"] == 5), "{found}");
        assert!(found["sent_bytes"].as_u64().expect("a count") < 12_000_000);
    }
}

#[test]
fn a_silent_router_at_the_narrow_link_makes_it_an_interval() {
    let name = "a_silent_router_at_the_narrow_link_makes_it_an_interval";
    let silent = "[[router]]\non = \"r3\"\nsilent = true\n";
    let Some(lab) = chain(name, 4, "30 Mbit/s", silent) else {
        return;
    };
    let found = measured(&lab, false, "");
    let link = &found["link"];
    // Link 4 joins the silent hop 3 and hop 4.
    assert_eq!(
        (&link["hop"], &link["hop_least"], &link["hop_most"]),
        (&Value::Null, &3.into(), &4.into()),
        "{found}"
    );
    let silent = serde_json::json!({ "note": "silent_hops", "hops": [3] });
    let notes = found["notes"].as_array().expect("notes");
    assert!(notes.contains(&silent), "{found}");
}

#[test]
fn a_router_that_limits_its_icmp_does_not_move_the_neck() {
    let name = "a_router_that_limits_its_icmp_does_not_move_the_neck";
    let limited = "[[router]]\non = \"r4\"\nicmp-rate = 5\n";
    let Some(lab) = chain(name, 4, "30 Mbit/s", limited) else {
        return;
    };
    let found = measured(&lab, false, "");
    let links = [&found["link"]["hop_least"], &found["link"]["hop_most"]];
    let [least, most] = links.map(|hop| hop.as_u64().expect("a link"));
    // Without enough gaps of hop 4 it is link 4 or 5.
    assert!(least == 4 && (4..=5).contains(&most), "{found}");
    // Of its probes it answered five a second.
    let hop = &found["hops"][4];
    let count = |key: &str| hop[key].as_u64().expect("a count");
    assert!(count("answered") < count("asked"), "{found}");
}

#[test]
fn the_load_keeps_to_the_rate_and_the_count_that_are_allowed() {
    let name = "the_load_keeps_to_the_rate_and_the_count_that_are_allowed";
    let Some(lab) = chain(name, 4, "30 Mbit/s", "") else {
        return;
    };
    let peer = lab.hosts()[1].ipv4();
    // Ten times less than the link carries: no queue fills, and there is no verdict.
    let arguments =
        format!("{peer} --json --max-rate 3000000 --trains 4 --load-packets 20 --size 1000");
    let text = lab.hosts()[0].run(|| output(&arguments)).expect("enters");
    let found: Value = serde_json::from_str(&text.expect("a measurement")).expect("one object");
    assert_eq!(found["verdict"], "cannot_tell", "{found}");
    assert_eq!(found["link"], Value::Null);
    let held = serde_json::json!({ "note": "load_held_back", "rate_bps": 3_000_000 });
    let notes = found["notes"].as_array().expect("notes");
    assert!(notes.contains(&held), "{found}");
    assert!(notes.contains(&serde_json::json!({ "note": "load_finds_none" })));
    // Four trains of 20 + 16 packets of 1,000 octets; eight bursts of 120 ms at 3 Mbit/s are 45,000 octets each; the
    // rest are small probes, fewer than 1,000 of 60 octets.
    let sent = found["sent_bytes"].as_u64().expect("a count");
    assert!(sent < 4 * 36_000 + 8 * 45_000 + 60_000, "{found}");
}

#[test]
fn wrong_arguments_are_named() {
    for wrong in ["a --trains 0", "a --size 100", "a -4 -6", "a --max-ttl 65"] {
        assert!(!takes("neck", wrong), "{wrong}");
    }
    let error = output("127.0.0.1 -S ::1").expect_err("two families");
    assert_eq!(error.code(), 2);
    let error = output("-6 127.0.0.1").expect_err("no such address");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}
