// SPDX-License-Identifier: Apache-2.0
//! What a fleet's server takes; the last line is one JSON object.
//!
//! `bench-ingest [--quick] SLOWPATH`, with the path of the command, or `bench-ingest agent-cost
//! SLOWPATH RUNS SECONDS`: what shipping costs an agent.

use serde_json::json;
use slowpath_bench::farm::{self, Farm};
use slowpath_bench::ingest::{self, Plan};
use slowpath_bench::{budget, children_cpu, median, seed};
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Sockets that `ss -tin` is measured over, and how often.
const SOCKETS: usize = 10_000;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [farm::ARGUMENT, pairs, number, place] => match (pairs.parse(), number.parse()) {
            (Ok(pairs), Ok(number)) => farm::child(pairs, number, place).map_err(Into::into),
            _ => Err("farm-child PAIRS NUMBER here|separate".into()),
        },
        [ingest::load::ARGUMENT, task] => ingest::load::child(task),
        [budget::ARGUMENT, pairs, rate] => match (pairs.parse(), rate.parse()) {
            (Ok(pairs), Ok(rate)) => budget::child(pairs, rate).map_err(Into::into),
            _ => Err("busy-child PAIRS RATE".into()),
        },
        ["agent-cost", program, runs, seconds] => match (runs.parse(), seconds.parse()) {
            (Ok(runs), Ok(seconds)) => agent_cost(program, runs, seconds),
            _ => Err("bench-ingest agent-cost SLOWPATH RUNS SECONDS".into()),
        },
        [program] => bench(program, Plan::WHOLE),
        ["--quick", program] => bench(program, Plan::QUICK),
        _ => {
            Err("usage: bench-ingest [--quick] SLOWPATH | agent-cost SLOWPATH RUNS SECONDS".into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-ingest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(program: &str, plan: Plan) -> Result<(), Box<dyn Error>> {
    let seed = seed()?;
    println!("SEED={seed}");
    let ss = ss_ns_per_socket()?;
    let figures = ingest::measure(Path::new(program), plan, seed)?;
    println!(
        "{}",
        json!({
            "agents": figures.agents,
            "rows_per_second": figures.rows_per_second.round(),
            "p99_ms": tenths(figures.p99_ms),
            "cpu_percent": tenths(figures.cpu_percent),
            "rss_mib": figures.rss_mib.round(),
            "herd_seconds": tenths(figures.herd_seconds),
            "catch_up_ratio": tenths(figures.catch_up_ratio),
            "bytes_per_row": tenths(figures.bytes_per_row),
            "ss_ns_per_socket": ss.round(),
        })
    );
    Ok(())
}

fn agent_cost(program: &str, runs: usize, seconds: u64) -> Result<(), Box<dyn Error>> {
    let length = Duration::from_secs(seconds);
    let cost = ingest::ship_cost(Path::new(program), runs, length)?;
    let thousandths = |value: f64| (value * 1e3).round() / 1e3;
    println!(
        "{}",
        json!({
            "sockets": cost.sockets,
            "runs": runs,
            "rows_per_second": tenths(cost.rows_per_second),
            "logging_us_per_poll": tenths(cost.logging),
            "shipping_us_per_poll": tenths(cost.shipping),
            "ship_ratio": thousandths(cost.ratio),
            "ship_thread_ratio": thousandths(cost.thread_ratio),
            "ship_ratio_low": thousandths(cost.within.0),
            "ship_ratio_high": thousandths(cost.within.1),
        })
    );
    Ok(())
}

/// What `ss -tin` takes of a processor, for machines differ.
fn ss_ns_per_socket() -> Result<f64, Box<dyn Error>> {
    let mut farm = Farm::plant(SOCKETS)?;
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        farm.move_data()?;
        let before = children_cpu();
        let ss = Command::new("ss")
            .arg("-tin")
            .stdout(Stdio::null())
            .status();
        let status = ss.map_err(|error| format!("running ss: {error}"))?;
        if !status.success() {
            return Err(format!("ss -tin: {status}").into());
        }
        let cost = children_cpu().saturating_sub(before);
        samples.push(cost.0 as f64 * 1e3 / farm.sockets() as f64);
    }
    Ok(median(samples))
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
