// SPDX-License-Identifier: Apache-2.0
//! What the DIBS slides claim: on the test bed and on a small fat-tree run here, and for the
//! slides' fat-tree from what the study wrote down (scenarios/dibs/results.jsonl).

#[path = "../examples/dibs-study/breaking.rs"]
#[allow(dead_code, reason = "the example's half")]
mod breaking;
#[path = "../examples/dibs-study/experiment.rs"]
mod experiment;

use breaking::{FRESH, SECOND_FRESH, fitted, found, measured};
use experiment::{flows, folder, overflowed, percentile, queries, run, scenario};
use serde_json::Value as Json;
use slowpath_netsim::results::Results;
use toml::Value;

const QUERIES: usize = 0;
const BACKGROUND: u8 = 1;
/// Of 20: all.
const WITHIN: usize = 20;

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn detoured(results: &Results) -> u64 {
    let labels = results.labels.iter();
    labels.map(|label| label.detoured_packets).sum()
}

/// "DIBS: 27 ms QCT, close to optimal 25 ms": within a tenth of what the last link needs.
#[test]
fn an_incast_on_the_test_bed_is_near_the_optimum() {
    // 50 flows of 60 kB: 41 segments of 1,460 bytes and one of 140, 40 bytes more each, at
    // 1 Gbit/s. The first packet comes over four links before.
    let optimum_ms = f64::from(50 * (60_000 + 42 * 40) * 8) / 1e6;
    assert!((optimum_ms - 24.672).abs() < 1e-9);
    for seed in 1..=5 {
        let scenario =
            scenario("testbed.toml", &[("seed", Value::Integer(seed))]).expect("a scenario");
        let with = run(&scenario, true).expect("a run");
        let took = percentile(flows(&with, 0, u64::MAX), 100.0);
        assert!(
            took >= optimum_ms && took <= 1.1 * optimum_ms,
            "seed {seed}: {took} ms of {optimum_ms} ms"
        );
        assert_eq!(with.conservation.dropped, 0, "seed {seed}");
        assert!(with.flows.iter().all(|flow| flow.timeouts == 0));

        // Without, 50 initial windows of 10 are more than the buffer of 100 takes.
        let without = run(&scenario, false).expect("a run");
        assert!(overflowed(&without) > 0);
        assert!(without.flows.iter().any(|flow| flow.timeouts > 0));
    }
}

/// The slides' setting on 16 hosts: as many queries a host, as many bursts a buffer.
#[test]
fn a_small_fat_tree_gains_what_the_slides_say() {
    // A query has 12 x 14 packets, of which the buffer holds 100 / 560 as in the slides; each
    // host asks 300 x 40 / 128 / 12 times a second.
    let settings = [
        ("topology.k", Value::Integer(4)),
        ("switch.buffer", text("30 packets")),
        ("switch.marking", text("6 packets")),
        ("workload.0.degree", Value::Integer(12)),
        ("workload.0.rate", text("125 /s")),
        ("duration", text("1500 ms")),
    ];
    let scenario = scenario("fat-tree.toml", &settings).expect("a scenario");
    let without = run(&scenario, false).expect("a run");
    let with = run(&scenario, true).expect("a run");
    let tail = |results: &Results| percentile(queries(results), 99.0);
    // A lost last packet waits for the least timeout, 10 ms, at least.
    assert!(
        tail(&with) + 10.0 < tail(&without),
        "{} ms and {} ms",
        tail(&with),
        tail(&without)
    );
    assert!(detoured(&with) * 5 < with.conservation.sent);
    assert!(with.labels[QUERIES].detoured_packets * 10 > detoured(&with) * 8);
    assert!(overflowed(&with) * 100 < overflowed(&without));
    // Small flows of the background wait behind detoured packets, but not for timeouts.
    let small = |results: &Results| percentile(flows(results, BACKGROUND, 10_000), 50.0);
    assert!(small(&with) < small(&without) + 2.0);
}

/// The lines of the study with exactly these settings that differ from fat-tree.toml.
fn written(settings: &[(&str, &str)]) -> Vec<Json> {
    let text = std::fs::read_to_string(folder().join("results.jsonl")).expect("the study");
    let lines = text.lines();
    let lines = lines.map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let wanted = |line: &Json| {
        line["scenario"] == "fat-tree.toml"
            && line["settings"].as_object().is_some_and(|have| {
                have.len() == settings.len()
                    && settings
                        .iter()
                        .all(|(key, value)| have.get(*key).is_some_and(|have| have == value))
            })
    };
    let mut found: Vec<Json> = lines.filter(wanted).collect();
    found.sort_by_key(|line| line["seed"].as_u64());
    assert!(!found.is_empty(), "nothing with {settings:?}");
    found
}

fn both(settings: &[(&str, &str)]) -> (Vec<Json>, Vec<Json>) {
    let with = |detour| {
        let detour = [("switch.detour", detour)];
        let settings = settings.iter().chain(&detour);
        written(&settings.copied().collect::<Vec<_>>())
    };
    (with("false"), with("true"))
}

fn number(json: &Json) -> f64 {
    json.as_f64().expect("a number")
}

fn qct(line: &Json) -> f64 {
    number(&line["workloads"][0]["qct"]["p99_us"]) / 1e3
}

/// "DIBS improves QCT significantly with smaller buffer sizes", and with shared memory.
#[test]
fn the_smaller_the_buffer_the_more_is_gained() {
    let gains = ["25 packets", "50 packets", "100 packets", "400 packets"].map(|buffer| {
        let (without, with) = both(&[("duration", "3 s"), ("switch.buffer", buffer)]);
        qct(&without[0]) - qct(&with[0])
    });
    assert!(gains.is_sorted_by(|a, b| a > b), "{gains:?}");
    let shared = [
        ("duration", "3 s"),
        ("switch.buffer", "800 packets"),
        ("switch.shared-buffer", "800 packets"),
        ("workload[0].degree", "100"),
    ];
    let (without, with) = both(&shared);
    assert!(qct(&with[0]) < qct(&without[0]));
}

/// "When does DIBS break": where switches drop one packet in a hundred after all. The bound
/// was fixed before the held-out points were run. One of the first set breaks below the least
/// load that is searched, where the bound puts it too, but not by how much.
#[test]
fn the_bound_predicts_where_dibs_breaks() {
    let found = found().expect("the study");
    let model = fitted(&found);
    for (set, within) in [(FRESH, 19), (SECOND_FRESH, WITHIN)] {
        let points = measured(&found, set);
        assert_eq!(points.len(), 20);
        let near = points.iter();
        let near = near.filter(|(_, point, load)| load.is_some() && model.is_near(point, *load));
        assert!(near.count() >= within, "{set}");
    }
    let slices = measured(&found, "slice");
    assert!(slices.len() >= 40);
    for (name, point, load) in slices {
        assert!(model.is_near(&point, load), "{name}");
    }
}
