// SPDX-License-Identifier: Apache-2.0
//! `slowpath queues`: the queues of switches, from the packets of hosts.

use crate::failure::{Failure, Outcome};
use crate::results;
use crate::sim::{self, Loaded};
use clap::Args;
use slowpath_lab::virtual_time::HZ;
use slowpath_lab::virtual_time::plan::{Options as PlanOptions, Plan};
use slowpath_netsim::scenario::{Scenario, Substrate, named_text};
use slowpath_netsim_report::table::Metadata;
use slowpath_queues_report::{Answer, ErrorBounds, Wire, addresses, captures, page, tables};
use slowpath_text::Paint;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `slowpath queues`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/replay/black-hole.toml --out run
  slowpath queues run --topology scenarios/replay/black-hole.toml --html queues.html
  slowpath queues captures --topology rack.toml --clock-error 5us --out tables --json
  slowpath queues captures --topology rack.toml --address web1=10.1.0.7 --address db=10.1.0.9
A capture (pcap, pcapng) or its interface is named after its host; or the captures are the two
that slowpath replay RECORDING --out DIR wrote. docs/reference/queues.md says what the
answer rests on.")]
pub struct Queues {
    /// Where the captures of the hosts are
    pub captures: PathBuf,
    /// A scenario file that describes the network; its other sections are ignored
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// The largest difference between the clocks of hosts
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = humantime::parse_duration)]
    pub clock_error: Duration,
    /// The largest difference between a time in a capture and when the packet was sent
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = humantime::parse_duration)]
    pub time_error: Duration,
    /// The address of a host, where the captures do not show it (repeat for more)
    #[arg(long, value_name = "HOST=ADDRESS")]
    pub address: Vec<String>,
    /// Write queues and drops into this directory, as Parquet files, in place of an earlier run's
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write a page with plots, one file that needs nothing else, replacing it
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// Exit with status 3 if something other than full queues is found
    #[arg(long)]
    pub exit_code: bool,
}

/// Reads captures, replays the queues, and writes the requested outputs.
///
/// # Errors
/// The scenario or a capture cannot be read, or an output cannot be written.
pub fn run(args: &Queues) -> Result<Outcome, Failure> {
    let loaded = sim::load(&args.topology, &[], Substrate::Network)?;
    let wire = wire(&args.topology, &loaded);
    let Loaded {
        name,
        text,
        scenario,
    } = loaded;
    let answer = answer(args, scenario, &wire)?;
    if let Some(folder) = results::open(args.out.as_ref(), results::QUEUES)? {
        let metadata = Metadata {
            family: "queues",
            name: &name,
            text: &text,
            seed: answer.scenario.seed,
            warm_up_ps: 0,
            csv: false,
        };
        tables::write(folder.draft(), metadata, &answer)
            .map_err(|error| Failure::Write(error.to_string()))?;
        folder.commit()?;
    }
    if let Some(path) = &args.html {
        slowpath_files::write(path, page::page(&answer))
            .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))?;
    }
    let out = &mut stdout().lock();
    if args.json {
        writeln!(out, "{}", answer.report.json())?;
    } else {
        answer.report.write(Paint::for_stdout(), out)?;
    }
    out.flush()?;
    Ok(Outcome::of(
        args.exit_code,
        !answer.report.findings.is_empty(),
    ))
}

fn answer(args: &Queues, scenario: Scenario, wire: &Wire) -> Result<Answer, Failure> {
    let impossible = |reason: String| Failure::Scenario {
        file: args.topology.clone(),
        reason,
    };
    let usage = |error: &dyn std::error::Error| Failure::Usage(error.to_string());
    let addresses = addresses(&args.address, &scenario).map_err(|error| usage(&error))?;
    let captures = captures::read(&args.captures, &scenario.topology, &addresses)
        .map_err(|error| usage(&error))?;
    let errors = ErrorBounds {
        times_ns: nanoseconds(args.time_error),
        clocks_ns: nanoseconds(args.clock_error),
    };
    Answer::new(scenario, captures, wire, errors).map_err(|error| impossible(error.to_string()))
}

/// What a laboratory's switches hash and its hosts add to packets follows from the flows.
fn wire(file: &Path, loaded: &Loaded) -> Wire {
    let folder = file.parent().unwrap_or(Path::new(""));
    let files = |name: &str| named_text(&folder.join(name));
    let scenario = Scenario::parse_for(&loaded.text, &files, Substrate::VirtualTime);
    let Ok(scenario) = scenario else {
        return Wire::default();
    };
    let plan = Plan::new(&scenario, &PlanOptions::default(), HZ);
    let connections = plan.map(|plan| plan.connections).unwrap_or_default();
    let keys = connections
        .iter()
        .map(|it| ((it.from, it.to, it.port), it.key));
    Wire::new(keys.collect(), scenario.tcp.iter().map(|tcp| tcp.header))
}

/// Bounded so that picoseconds fit 64 bits.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 1_000)
}
