// SPDX-License-Identifier: Apache-2.0
//! `check-truth`: how often slowpath is right.

use clap::Parser;
use serde_json::json;
use slowpath_diagnose::InteractionKind;
use slowpath_model::Problem;
use slowpath_testbed::{Need, missing_requirements};
use slowpath_truth::agreement::{Agreements, Comparison};
use slowpath_truth::expected::Expected;
use slowpath_truth::judgement::Class;
use slowpath_truth::plan::{Group, INJECTED, INTERACTIONS, OF_LISTENERS, PAIRS};
use slowpath_truth::relay;
use slowpath_truth::run::{Judged, Outcome};
use slowpath_truth::schedule::{Done, Job, Limits, Runs};
use slowpath_truth::tally::{Tally, Verdict};
use slowpath_truth::watch::Watch;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measures how often slowpath's verdicts are right: random connections on real Linux TCP over
/// emulated paths, each problem injected, judged by one agent and by `slowpath trace`, and
/// compared with what packets at both ends and the applications themselves say. Needs root.
///
/// The last line is one JSON object: {class: {runs, precision, recall, answer, ...}, "pairs": {...},
/// "trace": {class: {decided, agree, ...}}, "trace_agreement": the least of its classes}.
///
/// Examples:
///   check-truth                              everything, 30 runs a class, about 20 minutes
///   check-truth --class Timeout --runs 10    one class
///   check-truth --seed 7 --class Timeout --only 3 --keep /tmp/out   one run again, with captures
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// Seed of all parameters; default: from the clock. It is printed first.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this class (a problem, an interaction, `pairs` or `controls`); may be given more
    /// than once.
    #[arg(long)]
    class: Vec<String>,
    /// Runs a class; a third as many of each kind of control and of each pair.
    #[arg(long, default_value_t = 30)]
    runs: u32,
    /// Only the run of this number of each class.
    #[arg(long)]
    only: Option<u32>,
    /// Runs at once.
    #[arg(long, default_value_t = 12)]
    parallel: usize,
    /// Packets a second that runs may carry at once, all of them.
    #[arg(long, default_value_t = 10_000)]
    packets: u64,
    /// Print every end of every connection as a line of JSON.
    #[arg(long)]
    json: bool,
    /// Keep the captures of runs with a disagreement in this folder (of all with --only).
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Put the table into this Markdown file, between its two `check-truth` comments.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    // One of the applications of a run, in a process of its own.
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(relay::PLAY) {
        return match relay::play(&words.next().unwrap_or_default()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match check(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("check-truth: {error}");
            ExitCode::FAILURE
        }
    }
}

type AnyError = Box<dyn std::error::Error>;

fn check(arguments: &Arguments) -> Result<(), AnyError> {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        return Err(reason.into());
    }
    let seed = arguments.seed.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_secs())
    });
    println!("seed {seed}");
    let jobs = jobs(arguments)?;
    let watch = Watch::start(seed)?;
    let limits = Limits {
        runs: arguments.parallel.max(1),
        packets: arguments.packets.max(1),
    };
    let mut progress = Progress::new(jobs.len());
    let runs = Runs::start(jobs, seed, &watch.watcher(), limits)?;
    let mut sums = Sums::default();
    for done in runs {
        progress.step();
        sums.take(&done, arguments, seed)?;
    }
    progress.end();
    let Sums { tally, agreements } = sums;
    let table = format!(
        "`make check-truth`, seed {seed}, Linux {}.\n\n{}\n{BESIDE}\n\n{}",
        release(),
        tally.table(),
        agreements.table(),
    );
    println!("\n{table}");
    if let Some(path) = &arguments.write {
        write_table(path, &table)?;
    }
    let mut json = tally.json();
    if let Some(object) = json.as_object_mut() {
        agreements.add_to(object);
    }
    println!("{json}");
    Ok(())
}

/// What comes between the two tables.
const BESIDE: &str = "Live classifier, `slowpath trace` on the same runs' captures, and oracle ([below](#live-trace-and-oracle)):";

/// What all runs gave.
#[derive(Default)]
struct Sums {
    tally: Tally,
    agreements: Agreements,
}

/// The runs, those of all groups mixed so that heavy ones do not meet.
fn jobs(arguments: &Arguments) -> Result<Vec<Job>, AnyError> {
    let third = arguments.runs.div_ceil(3);
    let mut groups: Vec<(Group, u32)> = Vec::new();
    let wanted = |name: &str| {
        let named = |class: &String| class.eq_ignore_ascii_case(name);
        arguments.class.is_empty() || arguments.class.iter().any(named)
    };
    for class in &arguments.class {
        let known = Class::all().map(Class::name).chain(["pairs", "controls"]);
        if !known.clone().any(|name| name.eq_ignore_ascii_case(class)) {
            let names: Vec<_> = known.collect();
            let names = names.join(", ");
            return Err(format!("no class `{class}`; there are {names}").into());
        }
    }
    for &problem in INJECTED.iter().chain(OF_LISTENERS) {
        let below_bdp = problem == Problem::SendBufferLimited
            && wanted(InteractionKind::SendBufferBelowBdp.name());
        if wanted(problem.name()) || below_bdp {
            groups.push((Group::Problem(problem), arguments.runs));
        }
        // The application's limit is what a control has.
        if wanted("controls") && problem != Problem::SenderAppLimited {
            groups.push((Group::Control(problem), third));
        }
    }
    for &kind in INTERACTIONS {
        if wanted(kind.name()) {
            groups.push((Group::Interaction(kind), arguments.runs));
        }
        // Without its losses nothing is left of the others.
        if wanted("controls") && kind == InteractionKind::PipelinedProxy {
            groups.push((Group::Without(kind), third));
        }
    }
    if wanted("controls") {
        let others = [Group::Idle, Group::Streaming, Group::Short];
        groups.extend(others.map(|group| (group, third)));
    }
    if wanted("pairs") {
        groups.extend(PAIRS.iter().map(|(a, b)| (Group::Pair(*a, *b), third)));
    }
    let most = groups.iter().map(|(_, runs)| *runs).max().unwrap_or(0);
    let mut jobs = Vec::new();
    for number in 0..most {
        for &(group, runs) in &groups {
            if number < runs && arguments.only.is_none_or(|only| only == number) {
                jobs.push(Job { group, number });
            }
        }
    }
    Ok(jobs)
}

impl Sums {
    fn take(&mut self, done: &Done, arguments: &Arguments, seed: u64) -> Result<(), AnyError> {
        let Sums { tally, agreements } = self;
        tally.disturbed += u64::from(done.disturbed);
        let Job { group, number } = done.job;
        let outcome = match &done.result {
            Ok(outcome) => outcome,
            Err(error) => {
                tally.failed += 1;
                println!("no result: {group} {number}: {error}");
                return Ok(());
            }
        };
        let disagreements = tally.add(group, outcome);
        for (judgement, verdict) in &disagreements {
            let verdict = match verdict {
                Verdict::Wrong => "wrong",
                Verdict::Missed => "missed",
            };
            println!(
                "{verdict}: {} at {} of '{group}' {number}: found {} us, {} events; truth {:?}",
                judgement.class, judgement.of, judgement.time_us, judgement.events, judgement.truth,
            );
        }
        let right = tally.add_answer(group, &done.plan, outcome);
        let wrong_answer = !right.is_empty();
        if wrong_answer {
            println!("{}", answered(done, outcome, &right));
        }
        let mut differ = 0;
        for (end, judged) in outcome.ends.iter().enumerate() {
            for comparison in Comparison::of_end(end, judged) {
                if let Some(disagreement) = agreements.add(seed, done.job, &comparison) {
                    differ += 1;
                    println!("differ: {disagreement}");
                }
            }
        }
        if arguments.json {
            for (end, judged) in outcome.ends.iter().enumerate() {
                println!("{}", line(done, end, judged, outcome));
            }
            for judgement in &outcome.others {
                let plan = &done.plan;
                println!(
                    "{}",
                    json!({"group": group.to_string(), "number": number, "of": judgement.of.to_string(),
                "class": judgement.class.name(), "truth": judgement.truth, "found": judgement.found,
                "events": judgement.events, "plan": plan, "kernel": outcome.counters[1]})
                );
            }
        }
        if let Some(folder) = &arguments.keep
            && (!disagreements.is_empty() || differ > 0 || wrong_answer || arguments.only.is_some())
        {
            keep(folder, &format!("{seed}-{group}-{number}"), outcome)?;
        }
        Ok(())
    }
}

/// A wrong answer, and what would have been right.
fn answered(done: &Done, outcome: &Outcome, right: &[Expected]) -> String {
    let Job { group, number } = done.job;
    let right: Vec<String> = right.iter().map(Expected::to_string).collect();
    let given = outcome.answer.as_ref().map_or_else(
        || "none".to_owned(),
        |answer| {
            let act = &answer.act;
            let address = act.address.as_deref().unwrap_or("nowhere");
            let pid = act.process.as_ref().and_then(|process| process.pid);
            let (limiter, who, text) = (answer.limiter, act.who, &answer.text);
            let because = answer.because.iter();
            let because = because.map(|b| format!("{} {} us", b.problem, b.time_us));
            let because = because.collect::<Vec<_>>().join(", ");
            format!("{limiter:?}/{who:?} {address} process {pid:?} ({text}; {because})")
        },
    );
    let right = right.join(" or ");
    format!("answer: '{group}' {number}: {given}; right: {right}")
}

/// Writes both captures of a run into a folder.
fn keep(folder: &Path, run: &str, outcome: &Outcome) -> Result<(), AnyError> {
    std::fs::create_dir_all(folder)?;
    for (host, pcap) in ["a", "b"].iter().zip(&outcome.captures) {
        let name = format!("{run}-{host}.pcap").replace(' ', "_");
        std::fs::write(folder.join(name), pcap)?;
    }
    Ok(())
}

fn line(done: &Done, end: usize, judged: &Judged, outcome: &Outcome) -> serde_json::Value {
    let totals = &judged.observed.totals;
    let truths = judged.truths.iter().map(|(problem, truth)| {
        let found = json!({
            "truth": truth,
            "found": judged.found(*problem),
            "time_us": totals.problem_time[*problem as usize].0,
            "events": totals.problem_events[*problem as usize],
            "trace": judged.traced.iter().find(|(p, _)| p == problem).map(|(_, verdict)| verdict),
        });
        (problem.name().to_owned(), found)
    });
    json!({
        "group": done.job.group.to_string(),
        "number": done.job.number,
        "end": end,
        "opened": judged.opened,
        "sends": judged.sends,
        "connection": judged.observed.tuple.to_string(),
        "observed_us": totals.observed.0,
        "polls": totals.polls,
        "together": judged.interactions,
        "interactions": judged.observed.interactions,
        "problems": truths.collect::<serde_json::Map<_, _>>(),
        "findings": judged.observed.findings,
        "plan": done.plan,
        "kernel": outcome.counters[end % 2],
        "disturbed": done.disturbed,
    })
}

/// The kernel's release.
fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let short = text.trim().split('-').next().unwrap_or("unknown");
    short.to_owned()
}

/// Replaces what stands between the two comments.
fn write_table(path: &Path, table: &str) -> Result<(), AnyError> {
    const BEGIN: &str = "<!-- check-truth: begin -->\n";
    const END: &str = "<!-- check-truth: end -->";
    let text = std::fs::read_to_string(path)?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else {
        let path = path.display();
        return Err(format!("{path} lacks {BEGIN:?} and {END:?}").into());
    };
    std::fs::write(path, format!("{head}{BEGIN}{table}{END}{tail}"))?;
    Ok(())
}

/// How far it is and how long it still takes, on a terminal or every half minute.
struct Progress {
    began: Instant,
    reported: Instant,
    done: usize,
    all: usize,
    terminal: bool,
}

impl Progress {
    fn new(all: usize) -> Self {
        Progress {
            began: Instant::now(),
            reported: Instant::now(),
            done: 0,
            all,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn step(&mut self) {
        self.done += 1;
        let elapsed = self.began.elapsed();
        let left = elapsed.mul_f64((self.all - self.done) as f64 / self.done as f64);
        let text = format!(
            "{} of {} runs, about {} s left",
            self.done,
            self.all,
            left.as_secs()
        );
        if self.terminal {
            eprint!("\r\x1b[K{text}");
        } else if self.reported.elapsed() > Duration::from_secs(30) {
            self.reported = Instant::now();
            eprintln!("{text}");
        }
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
