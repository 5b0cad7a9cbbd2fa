// SPDX-License-Identifier: Apache-2.0
//! How often `slowpath path neck` is right: chains of routers in the emulator with a narrow or a congested link at a position
//! and of a rate that a seed draws.
//!
//!     cargo run -p slowpath-path --example bench-neck -- [--seed N] [--first RUN] [--runs N] [--kind narrow|congested|tcp|silent|limited|linux] [--v6]
//!
//! It needs root. A line a run; the last line is JSON.

mod chain;

use chain::{Chain, Kind};
use slowpath_path::neck::{NeckOptions, NeckReport, measure};
use std::sync::atomic::AtomicBool;

/// What is asked for.
struct Arguments {
    seed: u64,
    first: usize,
    runs: usize,
    kind: Kind,
    v6: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut given = Arguments {
        seed: 1,
        first: 0,
        runs: 10,
        kind: Kind::Narrow,
        v6: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => given.seed = value()?.parse().map_err(|_| "a bad seed")?,
            "--first" => given.first = value()?.parse().map_err(|_| "a bad number")?,
            "--runs" => given.runs = value()?.parse().map_err(|_| "a bad count")?,
            "--kind" => given.kind = value()?.parse()?,
            "--v6" => given.v6 = true,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(given)
}

/// What became of the runs.
#[derive(Default)]
struct Score {
    right: usize,
    wrong: usize,
    within: usize,
    unknown: usize,
    rate_errors: Vec<f64>,
    capacity_errors: Vec<f64>,
    available_errors: Vec<f64>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = arguments()?;
    let mut score = Score::default();
    for run in given.first..given.first + given.runs {
        let chain = Chain::drawn(given.seed, run, given.kind);
        let network = chain.up()?;
        let cross = chain.start_cross(&network)?;
        let peer = network.host("b").ok_or("no host b")?;
        let peer = match given.v6 {
            true => peer.ipv6().into(),
            false => peer.ipv4().into(),
        };
        let options = NeckOptions {
            name: "b".to_owned(),
            peer,
            source: None,
            trains: 10,
            load_packets: None,
            size: 1_400,
            max_rate_bps: 1_000_000_000,
            max_ttl: 30,
        };
        let stop = AtomicBool::new(false);
        let host = network.host("a").ok_or("no host a")?;
        let report = host.run(|| measure(&options, &stop, &|_| ()))??;
        drop(cross);
        judge(run, &chain, &report, &mut score);
        let done = network.down();
        if let Some(complaint) = done.complaint() {
            println!("    the emulator: {complaint}");
        }
    }
    let median = |errors: &mut Vec<f64>| {
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied()
    };
    println!(
        "{}",
        serde_json::json!({
            "seed": given.seed, "kind": given.kind.name(), "runs": given.runs, "right": score.right,
            "interval_holds_it": score.within, "wrong": score.wrong, "cannot_tell": score.unknown,
            "rate_error_median": median(&mut score.rate_errors),
            "capacity_error_median": median(&mut score.capacity_errors),
            "available_error_median": median(&mut score.available_errors),
        })
    );
    Ok(())
}

fn judge(run: usize, chain: &Chain, report: &NeckReport, score: &mut Score) {
    let outcome = match report.link {
        Some(link) if link.hop == Some(chain.position) => {
            score.right += 1;
            "right"
        }
        Some(link)
            if link.hop.is_none()
                && (link.links.least..=link.links.most).contains(&chain.position) =>
        {
            score.within += 1;
            "interval"
        }
        Some(_) => {
            score.wrong += 1;
            "WRONG"
        }
        None => {
            score.unknown += 1;
            "no verdict"
        }
    };
    let error = report
        .rate_bound_bps
        .map(|rate| (rate as f64 / chain.rate_bound() - 1.0).abs());
    score.rate_errors.extend(error);
    println!(
        "run {run}: {} hops, {} link {} at {:.1} Mbit/s: {outcome}; {:?} rate {:?} confidence {:.2}",
        chain.hops,
        chain.kind.name(),
        chain.position,
        chain.rate_bound() / 1e6,
        report.link.map(|link| link.links),
        report.rate_bound_bps,
        report.confidence,
    );
    let near =
        |value: Option<u64>, truth: f64| value.map(|value| (value as f64 / truth - 1.0).abs());
    let (capacity, available) = chain.capacity();
    score
        .capacity_errors
        .extend(near(report.capacity_bps, capacity));
    score
        .available_errors
        .extend(near(report.available_bps, available));
    println!(
        "    capacity {:?} of {:.1}, available {:?} of {:.1}",
        report.capacity_bps,
        capacity / 1e6,
        report.available_bps,
        available / 1e6
    );
    if !chain.faulty.is_empty() {
        println!("    routers: {:?}", chain.faulty);
    }
    for method in &report.methods {
        println!("    {method:?}");
    }
    if outcome != "right" {
        print!("{}", slowpath_path::neck::report::text(report));
    }
}
