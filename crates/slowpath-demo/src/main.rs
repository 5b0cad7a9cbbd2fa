// SPDX-License-Identifier: Apache-2.0
//! `slowpath-demo`: injects every problem of SNAP's Table 2, and some past it, on real TCP in network
//! namespaces and shows what slowpath says of each.

use slowpath_agent::{Agent, Config};
use slowpath_demo::{find, watch};
use slowpath_diagnose::{AdviceContext, Thresholds, advise};
use slowpath_model::{IntervalVerdict, Micros, Problem};
use slowpath_testbed::{Need, Role, Scenario, Side, missing_requirements};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

const SCENARIOS: [&str; 11] = [
    "sender-app-limited",
    "send-buffer-limited",
    "fast-retransmit",
    "timeout",
    "tail-loss-probe",
    "delayed-ack",
    "delayed-ack-one-way",
    "receiver-window-limited",
    "zero-window",
    "congestion-window-limited",
    "small-writes",
];

fn main() -> ExitCode {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        eprintln!("slowpath-demo: {reason}");
        return ExitCode::FAILURE;
    }
    let mut right = 0;
    for (i, name) in SCENARIOS.iter().enumerate() {
        if std::io::stderr().is_terminal() {
            let left = 4 * (SCENARIOS.len() - i);
            eprint!(
                "\r{name}: {} of {}, about {left} s left ",
                i + 1,
                SCENARIOS.len()
            );
        }
        match show(name) {
            Ok(found) => right += u32::from(found),
            Err(error) => eprintln!("slowpath-demo: {name}: {error}"),
        }
    }
    println!("{right} of {} found", SCENARIOS.len());
    if right as usize == SCENARIOS.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs one scenario and prints what was injected and what was found; whether they agree.
fn show(name: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let scenario = Scenario::builtin(name)?;
    let mut agent = Agent::start(Config {
        interval: Duration::from_millis(250),
        history: 1_000,
        ..Config::default()
    })?;
    let mut running = scenario.start()?;
    let outcome = watch(&mut agent, &mut running)?;
    let injected = running.connection(Role::Injected, Side::A);
    let connection = find(&agent, &running, injected).ok_or("the connection was not observed")?;
    let thresholds = Thresholds::default();
    let dominating = connection.totals.dominating(&thresholds);
    let expected = scenario.expect.dominating;
    let clear = if std::io::stderr().is_terminal() {
        "\r\x1b[K"
    } else {
        ""
    };
    println!("{clear}{name}: {}", scenario.description);
    println!("  injected  {expected} on {}", connection.snapshot.tuple);
    let verdict = if dominating == expected {
        "found"
    } else {
        "NOT FOUND"
    };
    println!(
        "  {verdict:<9} {dominating}, {:.0} % of {}, by {} (pid {})",
        100.0 * connection.totals.share(dominating),
        connection.totals.observed,
        connection.owner.command().map_or("unknown", |c| c),
        connection.owner.pid().unwrap_or(0),
    );
    let receiver = running.connection(Role::Injected, Side::B);
    let receiver = find(&agent, &running, receiver).ok_or("the receiving end was not observed")?;
    let mut beside = true;
    for (end, problems, totals) in [
        ("beside it", &scenario.expect.found, &connection.totals),
        ("receiver", &scenario.expect.receiver, &receiver.totals),
    ] {
        for problem in problems {
            let share = 100.0 * totals.share(*problem);
            println!("  {end:<9} {problem}, {share:.0} %");
            beside &= share > 0.0;
        }
    }
    if !outcome.dropped.is_empty() {
        let stats = &connection.snapshot.stats;
        println!(
            "  evidence  {} segments dropped; {} retransmitted, {} fast recoveries, {} timeouts",
            outcome.dropped.len(),
            stats.retransmitted,
            stats.recovery.map_or(0, |r| r.fast_recoveries),
            stats.rto_stats.map_or(0, |r| r.timeouts),
        );
    }
    if let Some(verdict) = worst(connection.latest.as_deref(), dominating)
        && let Some(finding) = verdict.finding(dominating)
    {
        let context = AdviceContext::of(&connection.snapshot.stats);
        let advice = advise(finding, verdict, &context);
        println!("  advice    {} ({})", advice.what, advice.source);
    }
    let control = running.connection(Role::Control, Side::A);
    let control = find(&agent, &running, control).ok_or("the control was not observed")?;
    let healthy = control.totals.dominating(&thresholds);
    println!("  control   {healthy} on {}", control.snapshot.tuple);
    println!();
    running.finish()?;
    Ok(dominating == expected && beside && healthy == Problem::SenderAppLimited)
}

/// The verdict, if it has a finding of that problem that took time.
fn worst(verdict: Option<&IntervalVerdict>, problem: Problem) -> Option<&IntervalVerdict> {
    let verdict = verdict?;
    let finding = verdict.finding(problem)?;
    (finding.share.time_of(verdict.interval()) > Micros::ZERO).then_some(verdict)
}
