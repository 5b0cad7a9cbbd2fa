// SPDX-License-Identifier: Apache-2.0
//! What monitoring costs; the last line is one JSON object.

use serde_json::json;
use slowpath_agent::TierChoice;
use slowpath_bench::{
    budget, events, farm, loss, median, median_within, memory, namespaces, polls, transactions,
};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [farm::ARGUMENT, pairs, number, place] => match (pairs.parse(), number.parse()) {
            (Ok(pairs), Ok(number)) => farm::child(pairs, number, place).map_err(Into::into),
            _ => Err("farm-child PAIRS NUMBER here|separate".into()),
        },
        [budget::ARGUMENT, pairs, rate] => match (pairs.parse(), rate.parse()) {
            (Ok(pairs), Ok(rate)) => budget::child(pairs, rate).map_err(Into::into),
            _ => Err("busy-child PAIRS RATE".into()),
        },
        [memory::ARGUMENT, number] => match number.parse() {
            Ok(number) => memory::child(number).map_err(Into::into),
            Err(_) => Err("churn-child NUMBER".into()),
        },
        ["memory", churned, many, seconds] => memory_only(churned, many, seconds),
        ["budget", sockets, seconds, ref rest @ ..] => budget_only(sockets, seconds, rest),
        ["namespaces", rounds] => match rounds.parse() {
            Ok(rounds) => ratios(rounds).map(drop),
            Err(_) => Err("bench-poll namespaces ROUNDS".into()),
        },
        [transactions::ARGUMENT] => transactions::child().map_err(Into::into),
        ["events", rounds] => match rounds.parse() {
            Ok(rounds) => event_costs(rounds).map(drop),
            Err(_) => Err("bench-poll events ROUNDS".into()),
        },
        ["loss", pairs] => match pairs.parse() {
            Ok(pairs) => losses(pairs).map(drop),
            Err(_) => Err("bench-poll loss PAIRS".into()),
        },
        ["polls", sockets, rounds] => match (sockets.parse(), rounds.parse()) {
            (Ok(sockets), Ok(rounds)) => polls::measure(sockets, rounds).map(|c| print_polls(&c)),
            _ => Err("bench-poll polls SOCKETS ROUNDS".into()),
        },
        ["agent", sockets, rounds] => match (sockets.parse(), rounds.parse()) {
            (Ok(sockets), Ok(rounds)) => measure_agent(sockets, rounds),
            _ => Err("bench-poll agent SOCKETS ROUNDS".into()),
        },
        [] => bench(false),
        ["--quick"] => bench(true),
        _ => Err("usage: bench-poll [--quick | polls SOCKETS ROUNDS | agent SOCKETS ROUNDS | events ROUNDS | loss PAIRS | namespaces ROUNDS | budget SOCKETS SECONDS | memory SOCKETS SOCKETS SECONDS]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-poll: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(quick: bool) -> Result<(), Box<dyn Error>> {
    let rounds = if quick { 7 } else { 25 };
    let event = event_costs(if quick { 3 } else { 9 })?;
    let pairs = if quick { 5 } else { 15 };
    let [pinned, free, many] = losses(pairs)?;
    let ten = polls::measure(10_000, rounds)?;
    print_polls(&ten);
    let hundred = polls::measure(100_000, rounds / 2 + 1)?;
    print_polls(&hundred);
    let [ratio, ratio_inet_diag] = ratios(if quick { 3 } else { 9 })?;
    let run = run_under_budget(20_000, if quick { 40 } else { 75 }, TierChoice::Bpf)?;
    print_budget(&run);
    let volume = slowpath_bench::volume::measure(quick)?;
    println!("log: {volume:.2} MB a host a day");
    let memory = memory_of(10_000, 100_000, 60)?;
    println!(
        "{}",
        json!({
            "sockets": ten.sockets,
            "ns_per_socket": round(ten.agent),
            "ns_per_socket_100k": round(hundred.agent),
            "cpu_percent_of_one_core_at_500ms": round(ten.agent * 10_000.0 / 500e6 * 100.0),
            "ss_ratio": round(ten.ss / ten.agent),
            "call_event_ns": round(event.call),
            "segment_event_ns": round(event.segment),
            "call_event_bare_ns": round(event.call_bare),
            "segment_event_bare_ns": round(event.segment_bare),
            "throughput_loss_percent": round(pinned.percent),
            "throughput_loss_bound_percent": round(pinned.bound),
            "throughput_loss_bare_percent": round(pinned.bare_percent),
            "throughput_loss_bare_bound_percent": round(pinned.bare_bound),
            "throughput_loss_unpinned_percent": round(free.percent),
            "throughput_loss_unpinned_bound_percent": round(free.bound),
            "throughput_loss_unpinned_bare_percent": round(free.bare_percent),
            "throughput_loss_unpinned_bare_bound_percent": round(free.bare_bound),
            "throughput_loss_1000_percent": round(many.percent),
            "throughput_loss_1000_bound_percent": round(many.bound),
            "throughput_loss_1000_bare_percent": round(many.bare_percent),
            "throughput_loss_1000_bare_bound_percent": round(many.bare_bound),
            "collect_ns_per_socket": round(ten.collect),
            "walk_ns_per_socket": round(ten.walk),
            "ss_ns_per_socket": round(ten.ss),
            "namespace_ratio": round(ratio),
            "namespace_ratio_inet_diag": round(ratio_inet_diag),
            "budget_cpu_percent": run.settled().iter().map(|p| round(*p)).collect::<Vec<_>>(),
            "budget_cpu_percent_min": run.settled().iter().copied().reduce(f64::min).map(round),
            "budget_cpu_percent_max": run.settled().iter().copied().reduce(f64::max).map(round),
            "budget_events_percent": run.state.events.map(|share| round(share * 100.0)),
            "problem_rate_ratio": round(run.ratio),
            "mb_per_day": round(volume),
            "rss_mib_10k_churn": round(memory.churn),
            "rss_mib_100k": round(memory.many),
            "rss_mib_after": round(memory.after),
        })
    );
    Ok(())
}

/// `bench-poll memory SOCKETS SOCKETS SECONDS`; the last line is JSON.
fn memory_only(churned: &str, many: &str, seconds: &str) -> Result<(), Box<dyn Error>> {
    let memory = memory_of(churned.parse()?, many.parse()?, seconds.parse()?)?;
    println!(
        "{}",
        json!({
            "rss_mib_churn": round(memory.churn),
            "rss_mib_many": round(memory.many),
            "rss_mib_after": round(memory.after),
        })
    );
    Ok(())
}

fn memory_of(churned: usize, many: usize, seconds: u64) -> Result<memory::Memory, Box<dyn Error>> {
    let memory = memory::measure(memory::Load {
        churned,
        many,
        longest: Duration::from_secs(seconds),
    })?;
    println!(
        "memory: {:.0} MiB with {churned} sockets under churn, {:.0} with {many}, {:.0} a minute after they closed",
        memory.churn, memory.many, memory.after
    );
    Ok(memory)
}

fn event_costs(rounds: usize) -> Result<events::EventCost, Box<dyn Error>> {
    let event = events::measure(rounds)?;
    println!(
        "events: call {:.0} ns (bare {:.0}), segment {:.0} ns (bare {:.0}); kernel's own run-time statistics, their cost included",
        event.call, event.call_bare, event.segment, event.segment_bare
    );
    Ok(event)
}

/// `bench-poll budget SOCKETS SECONDS [inet-diag]`.
fn budget_only(sockets: &str, seconds: &str, rest: &[&str]) -> Result<(), Box<dyn Error>> {
    let tier = match rest {
        [] => TierChoice::Bpf,
        ["inet-diag"] => TierChoice::InetDiag,
        _ => return Err("bench-poll budget SOCKETS SECONDS [inet-diag]".into()),
    };
    print_budget(&run_under_budget(sockets.parse()?, seconds.parse()?, tier)?);
    Ok(())
}

/// Under a budget of 1 to 2 %, each connection exchanging a message every two seconds.
fn run_under_budget(
    sockets: usize,
    seconds: u64,
    tier: TierChoice,
) -> Result<budget::BudgetRun, Box<dyn Error>> {
    let length = Duration::from_secs(seconds);
    budget::measure(sockets, 0.5, length, tier, "1,2".parse()?)
}

fn print_budget(run: &budget::BudgetRun) {
    println!(
        "budget 1,2: {:.2?} % of one core in each 5 s; {} connections with problems looked at {:.2} times a second, {} others {:.3} times, ratio {:.1}; {:?}",
        run.percent,
        run.numbers[1],
        run.rates[1],
        run.numbers[0],
        run.rates[0],
        run.ratio,
        run.state
    );
}

/// Of the BPF tier and of the inet_diag tier.
fn ratios(rounds: usize) -> Result<[f64; 2], Box<dyn Error>> {
    let bpf = namespaces::ratio(10_000, rounds, TierChoice::Bpf)?;
    let inet_diag = namespaces::ratio(10_000, rounds, TierChoice::InetDiag)?;
    println!(
        "50 namespaces, 40 of them empty, 10,000 sockets: {bpf:.2} times the cost of one (inet_diag {inet_diag:.2})"
    );
    Ok([bpf, inet_diag])
}

/// Median and spread of the agent's own cost.
fn measure_agent(sockets: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let samples = polls::agent(sockets, rounds)?;
    let (low, high) = median_within(samples.clone());
    println!(
        "{sockets} sockets, half changed, nothing else watching: agent {:.0} ns a socket (median; 95 %: {low:.0} to {high:.0})",
        median(samples)
    );
    Ok(())
}

fn print_polls(cost: &polls::PollCost) {
    println!(
        "{} sockets, half changed: agent {:.0} ns a socket (probes {:.0}, walking {:.0}), ss -tin {:.0}",
        cost.sockets, cost.agent, cost.collect, cost.walk, cost.ss
    );
}

/// Three significant digits are more than the machine repeats.
fn round(value: f64) -> f64 {
    let scale = 10f64.powi(2 - value.abs().max(1e-9).log10().floor() as i32);
    (value * scale).round() / scale
}

/// Request/response on one processor, on two, and over 1,000 connections.
fn losses(pairs: usize) -> Result<[loss::Loss; 3], Box<dyn Error>> {
    let pinned = loss::measure(1, true, pairs)?;
    let free = loss::measure(1, false, pairs)?;
    let many = loss::measure(1_000, false, pairs)?;
    for (name, l) in [
        ("pinned", pinned),
        ("unpinned", free),
        ("1,000 connections", many),
    ] {
        println!(
            "request/response, {name}: {:.0} a second, loss {:.1} % (95 %: {:.1} to {:.1}), bound {:.1} %; a bare counting program {:.1} % (its own bound {:.1} %); nothing {:.1} to {:.1} %",
            l.rate,
            l.percent,
            l.within.0,
            l.within.1,
            l.bound,
            l.bare_percent,
            l.bare_bound,
            l.nothing_within.0,
            l.nothing_within.1
        );
    }
    Ok([pinned, free, many])
}
