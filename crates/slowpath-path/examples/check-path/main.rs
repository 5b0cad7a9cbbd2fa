// SPDX-License-Identifier: Apache-2.0
//! `check-path`: how often `slowpath path neck`, `loss` and `route` are right, on drawn networks of the emulator.
//!
//! The last line is one JSON object: `seed`; `neck_runs`, `neck_right`, `neck_wrong`, `neck_rate_error_median` of
//! narrow and congested links; `signature_runs`, `signature_right`, `signature_wrong`; `route_runs`, `route_right`.
//! What is neither right nor wrong is `cannot_tell`. `limited_runs`, `limited_right` and `limited_wrong` are of chains whose routers are
//! silent or answer rarely. Trials of one seed are the same networks; the machine's load is not.

mod chain;
mod necks;
mod network;
mod random;
mod routes;
mod signatures;

use clap::{Parser, ValueEnum};
use necks::{POSITIONS, Planted};
use network::Failure;
use serde_json::json;
use std::process::ExitCode;

/// Which trials.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Neck,
    Loss,
    Route,
}

/// How often `slowpath path neck`, `loss` and `route` are right. Needs root.
#[derive(Parser)]
struct Arguments {
    /// Decides every network; from the clock unless given
    #[arg(long)]
    seed: Option<u64>,
    /// These only
    #[arg(long)]
    kind: Vec<Kind>,
    /// Only the trial of this number of each kind
    #[arg(long)]
    only: Option<usize>,
}

impl Arguments {
    fn numbers(&self, count: usize) -> Vec<usize> {
        (0..count)
            .filter(|number| self.only.is_none_or(|only| only == *number))
            .collect()
    }

    fn wants(&self, kind: Kind) -> bool {
        self.kind.is_empty() || self.kind.contains(&kind)
    }
}

/// Right, wrong, and neither.
#[derive(Default)]
struct Counts {
    runs: usize,
    right: usize,
    wrong: usize,
}

impl Counts {
    fn add(&mut self, right: Option<bool>) {
        self.runs += 1;
        self.right += usize::from(right == Some(true));
        self.wrong += usize::from(right == Some(false));
    }
}

fn word(right: Option<bool>) -> &'static str {
    match right {
        Some(true) => "right ",
        Some(false) => "WRONG ",
        None => "cannot",
    }
}

fn necks(arguments: &Arguments, seed: u64) -> Result<(Counts, Counts, Option<f64>), Failure> {
    let (mut plain, mut limited, mut errors) = (Counts::default(), Counts::default(), Vec::new());
    for planted in [Planted::Narrow, Planted::Congested, Planted::Limited] {
        for number in arguments.numbers(POSITIONS) {
            let outcome = necks::run(planted, number, seed)?;
            println!("{} {}", word(outcome.right), outcome.text);
            match outcome.planted {
                Planted::Limited => limited.add(outcome.right),
                _ => {
                    plain.add(outcome.right);
                    errors.extend(outcome.rate_error);
                }
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let median = errors.get(errors.len() / 2).copied();
    Ok((plain, limited, median))
}

fn check(arguments: &Arguments, seed: u64) -> Result<(), Failure> {
    let (mut plain, mut limited, mut error) = (Counts::default(), Counts::default(), None);
    if arguments.wants(Kind::Neck) {
        (plain, limited, error) = necks(arguments, seed)?;
    }
    let mut signatures = Counts::default();
    if arguments.wants(Kind::Loss) {
        for number in arguments.numbers(signatures::SIGNATURES.len() * signatures::RUNS_EACH) {
            let outcome = signatures::run(number, seed)?;
            println!("{} {}", word(outcome.right), outcome.text);
            signatures.add(outcome.right);
        }
    }
    let mut routes = Counts::default();
    if arguments.wants(Kind::Route) {
        for number in arguments.numbers(routes::KINDS.len() * routes::RUNS_EACH) {
            let outcome = routes::run(number, seed)?;
            println!("{} {}", word(Some(outcome.right)), outcome.text);
            routes.add(Some(outcome.right));
        }
    }
    let line = json!({
        "seed": seed,
        "neck_runs": plain.runs,
        "neck_right": plain.right,
        "neck_wrong": plain.wrong,
        "neck_rate_error_median": error,
        "limited_runs": limited.runs,
        "limited_right": limited.right,
        "limited_wrong": limited.wrong,
        "signature_runs": signatures.runs,
        "signature_right": signatures.right,
        "signature_wrong": signatures.wrong,
        "route_runs": routes.runs,
        "route_right": routes.right,
    });
    println!("{line}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = arguments
        .seed
        .unwrap_or_else(|| since.map_or(1, |since| since.as_secs()));
    println!("seed {seed}");
    match check(&arguments, seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("check-path: {error}");
            ExitCode::FAILURE
        }
    }
}
