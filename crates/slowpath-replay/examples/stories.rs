// SPDX-License-Identifier: Apache-2.0
//! The stories of DETER's sections 2.1, 5.2 and 5.3, run, recorded, replayed and explained; and the butterfly of its section 2.2.
//!
//!     stories table                                   each story as it was and with today's defaults
//!     stories butterfly RUNS                          re-runs with noise that keep the problem of section 2.1; the last line is JSON
//!     stories one SCENARIO [OLD=>NEW ...]             the messages of its last workload, explained
//!     stories look SCENARIO FIRST LAST [OLD=>NEW ...] what became of its last workload with each seed

#[path = "../tests/story_runs/mod.rs"]
mod story_runs;

use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use story_runs::{Failure, Reported, TODAY, butterfly, report, scenario, slowest};

/// The stories, each with the section that it is from.
const STORIES: [(&str, &str); 6] = [
    ("2.1", "story-2.1.toml"),
    ("5.2 (Spark)", "story-5.2-spark.toml"),
    ("5.2 (long flows)", "story-5.2-zero-window.toml"),
    ("5.2 (RPC)", "story-5.2-rpc.toml"),
    ("5.3, first", "story-5.3-dupacks.toml"),
    ("5.3, second", "story-5.3-window-updates.toml"),
];

fn edits(arguments: &[String]) -> Vec<(&str, &str)> {
    let edits = arguments.iter();
    edits.filter_map(|edit| edit.split_once("=>")).collect()
}

fn show(reported: &Reported) {
    println!(
        "{:.3} ms, {} timeouts, {} retransmissions",
        reported.milliseconds, reported.timeouts, reported.retransmissions
    );
    for message in &reported.messages {
        println!(
            "  message {}: {} bytes, {:?}, unimpeded {:?}: {}",
            message.message.number,
            message.message.bytes.end - message.message.bytes.start,
            message.message.duration(),
            message.unimpeded,
            message.category.words()
        );
        for wait in &message.waits {
            println!("    {:?} for {}", wait.duration(), wait.waited.words());
            for link in &wait.links {
                println!("      {link}");
            }
        }
    }
}

fn table(kernel: &Kernel) -> Result<(), Failure> {
    println!("| section | as it was | | today | |\n|---|---|---|---|---|");
    for (section, name) in STORIES {
        print!("| {section} |");
        // RACK needs SACK.
        let selective = [TODAY, &[("sack = false", "sack = true")]].concat();
        let today = match name {
            "story-5.3-window-updates.toml" => &selective[..],
            _ => TODAY,
        };
        for edits in [&[][..], today] {
            let reported = report(kernel, &scenario(name, edits)?, true, true)?;
            let Some(message) = slowest(&reported) else {
                continue;
            };
            let took = message.message.duration().unwrap_or_default();
            let mut names: Vec<&str> = message.chain().map(|link| link.name()).collect();
            names.dedup();
            print!(
                " {:.2} ms, {} | {} |",
                took.as_secs_f64() * 1e3,
                message.category.words(),
                names.join(", ").replace('_', " ")
            );
        }
        println!();
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let kernel = Kernel::find(SOURCE, HZ)?;
    match words[..] {
        ["one", name, ..] => {
            for reported in report(
                &kernel,
                &scenario(name, &edits(&arguments[2..]))?,
                true,
                true,
            )? {
                show(&reported);
            }
        }
        ["look", name, first, last, ..] => {
            for seed in first.parse::<u64>()?..=last.parse::<u64>()? {
                let mut scenario = scenario(name, &edits(&arguments[4..]))?;
                scenario.seed = seed;
                for reported in report(&kernel, &scenario, false, false)? {
                    print!("seed {seed}: ");
                    show(&reported);
                }
            }
        }
        ["table"] => table(&kernel)?,
        ["butterfly", runs] => {
            let runs = runs.parse()?;
            println!("| noise, ns | re-runs that keep the problem |\n|---|---|");
            let mut kept = Vec::new();
            for sigma in [0.0, 1.0, 10.0, 100.0, 1000.0] {
                let share = butterfly::reruns(&kernel, sigma, runs)?;
                println!("| {sigma} | {share} of {runs} |");
                kept.push(format!("\"{sigma}\":{share}"));
            }
            let replayed = butterfly::replays(&kernel, runs)?;
            println!("| replays | {replayed} of {runs} |");
            println!(
                "{{\"runs\":{runs},\"kept_by_ns\":{{{}}},\"replays_kept\":{replayed}}}",
                kept.join(",")
            );
            if replayed < runs {
                return Err("a replay lost the problem".into());
            }
        }
        _ => return Err("usage: stories one|look SCENARIO ...".into()),
    }
    Ok(())
}
