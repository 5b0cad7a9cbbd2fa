// SPDX-License-Identifier: Apache-2.0
//! The short form of `make check-truth`: one run a problem, from a fixed seed.

use slowpath_model::Problem;
use slowpath_testbed::{Need, attempts, missing_requirements};
use slowpath_truth::plan::{Group, INJECTED, draw};
use slowpath_truth::schedule::{Job, Limits, Runs};
use slowpath_truth::tally::{Tally, Verdict};
use slowpath_truth::truth::Label;
use slowpath_truth::watch::Watch;

const SEED: u64 = 20;

/// The shortest of a problem's first runs.
fn shortest(problem: Problem) -> Job {
    let group = Group::Problem(problem);
    let length = |number: &u32| draw(SEED, group, *number).length_ms;
    let number = (0..20).min_by_key(length).unwrap_or(0);
    Job { group, number }
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
        let jobs: Vec<Job> = INJECTED.iter().map(|p| shortest(*p)).collect();
        let limits = Limits {
            runs: 8,
            packets: 6_000,
        };
        let runs = Runs::start(jobs, SEED, &watch.watcher(), limits).expect("starts");
        let (mut tally, mut judged) = (Tally::default(), 0);
        let (mut wrong, mut missed) = (Vec::new(), Vec::new());
        for done in runs {
            let Group::Problem(problem) = done.job.group else {
                panic!("nothing else was asked for");
            };
            let ends = done
                .result
                .unwrap_or_else(|e| panic!("{problem}: {e}"))
                .ends;
            judged += ends.iter().map(|end| end.truths.len()).sum::<usize>();
            for (end, other, verdict) in tally.add(done.job.group, &ends) {
                let what = format!("{other} at end {end} of {problem}");
                println!("{verdict:?}: {what}: {:?}", ends[end].truths);
                match verdict {
                    Verdict::Wrong => wrong.push(what),
                    Verdict::Missed => missed.push((other == problem, what)),
                }
            }
            // True, or too little of it in so short a run.
            let there = |label: &Label| *label != Label::False;
            let labels = ends.iter().flat_map(|end| &end.truths);
            let mut labels = labels.filter(|(p, _)| *p == problem).map(|(_, t)| &t.label);
            assert!(labels.any(there), "{problem} was not there");
        }
        // Both ends of every connection, each problem and SenderAppLimited.
        assert_eq!(judged, 2 * INJECTED.len() * INJECTED.len());
        assert!(missed.iter().all(|(injected, _)| !injected), "{missed:?}");
        // Of some four hundred judgements; one may be off in the company of SenderAppLimited.
        assert!(wrong.len() + missed.len() <= 4, "{wrong:?} {missed:?}");
    });
}
