// SPDX-License-Identifier: Apache-2.0
//! The simulator judged by Linux's TCP: the quick ones of the scenarios of `docs/journal/lab-judge.md`.

mod judging;

use judging::{SCENARIOS, judge};
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};

fn is_within(name: &str) {
    let kernel = match Kernel::find(SOURCE, HZ) {
        Ok(kernel) => kernel,
        Err(missing) => {
            println!("SKIPPED {name}: {missing}");
            return;
        }
    };
    let judged = SCENARIOS.iter().find(|judged| judged.name == name);
    let judged = judged.expect("one of the list");
    let verdict = judge(&kernel, judged, 1).expect("both run");
    assert!(
        verdict.flows > 0 && verdict.is_within(),
        "{name}: {verdict:?}"
    );
}

#[test]
fn one_newreno_flow_is_as_linuxs() {
    is_within("newreno");
}

#[test]
fn one_dctcp_flow_is_as_linuxs() {
    is_within("dctcp");
}

#[test]
fn one_bbr_flow_is_as_linuxs() {
    is_within("bbr");
}

#[test]
fn short_flows_are_as_linuxs() {
    is_within("short-flows");
}
