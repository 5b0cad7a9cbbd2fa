// SPDX-License-Identifier: Apache-2.0
//! The short form of `make check-truth`: one run a problem, from a fixed seed.

use slowpath_diagnose::InteractionKind;
use slowpath_testbed::{Need, attempts, missing_requirements};
use slowpath_truth::plan::{Group, INJECTED, INTERACTIONS, OF_LISTENERS, draw};
use slowpath_truth::schedule::{Job, Limits, Runs};
use slowpath_truth::tally::{Tally, Verdict};
use slowpath_truth::truth::Label;
use slowpath_truth::watch::Watch;

const SEED: u64 = 20;

/// The shortest of a group's first runs. A receiver acknowledges at once while a connection is
/// young (quick ACKs, `tcp_enter_quickack_mode`): for a delayed ACK after a timeout, the longest.
fn choose(group: Group) -> Job {
    let length = |number: &u32| draw(SEED, group, *number).length_ms;
    let number = match group {
        Group::Interaction(InteractionKind::TimeoutThenDelayedAck) => (0..20).max_by_key(length),
        _ => (0..20).min_by_key(length),
    };
    Job {
        group,
        number: number.unwrap_or(0),
    }
}

#[test]
fn what_is_injected_is_found_and_little_else() {
    const TEST: &str = "what_is_injected_is_found_and_little_else";
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {TEST}: {reason}");
        return;
    }
    attempts(TEST, || {
        let watch = match Watch::start(SEED) {
            Ok(watch) => watch,
            Err(error) => {
                println!("SKIPPED {TEST}: {error}");
                return;
            }
        };
        // A process that passes data on is this program again: not from a test.
        let interactions = INTERACTIONS
            .iter()
            .filter(|kind| **kind != InteractionKind::PipelinedProxy);
        let problems = INJECTED.iter().chain(OF_LISTENERS);
        let jobs: Vec<Job> = problems
            .map(|p| Group::Problem(*p))
            .chain(interactions.map(|kind| Group::Interaction(*kind)))
            .map(choose)
            .collect();
        let limits = Limits {
            runs: 8,
            packets: 6_000,
        };
        let runs = Runs::start(jobs, SEED, &watch.watcher(), limits).expect("starts");
        let mut tally = Tally::default();
        let (mut wrong, mut missed) = (Vec::new(), Vec::new());
        for done in runs {
            let group = done.job.group;
            let outcome = done.result.unwrap_or_else(|e| panic!("{group}: {e}"));
            for (judgement, verdict) in tally.add(group, &outcome) {
                let what = format!("{} at {} of {group}", judgement.class, judgement.of);
                println!("{verdict:?}: {what}: {:?}", judgement.truth);
                match verdict {
                    Verdict::Wrong => wrong.push(what),
                    Verdict::Missed => {
                        let injected = judgement.class.name() == group.to_string();
                        missed.push((injected, what));
                    }
                }
            }
            // True, or too little of it in so short a run.
            let judgements = outcome.judgements();
            let mut of_group = judgements
                .iter()
                .filter(|j| j.class.name() == group.to_string());
            assert!(
                of_group.any(|j| j.truth.label != Label::False),
                "{group} was not there"
            );
        }
        assert!(missed.iter().all(|(injected, _)| !injected), "{missed:?}");
        // Of some four hundred judgements; one may be off in the company of SenderAppLimited.
        assert!(wrong.len() + missed.len() <= 4, "{wrong:?} {missed:?}");
    });
}
