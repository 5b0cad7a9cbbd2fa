// SPDX-License-Identifier: Apache-2.0
//! DETER's figure 8: how near replayed queues are to those that were.
//!
//! `check-queues SCENARIO LOAD...` runs the scenario in the simulator at each load (as "0.3", or
//! "0.3@7" with another seed than the scenario's),
//! keeps of it what recordings would, replays the queues, and compares. The last line is
//! JSON: for each load the seed, mean and 99th percentile of the queue content difference in packets of
//! 1,500 bytes, the drop error, and the share of packets that were sampled.

use slowpath_netsim::engine::{Settings, Simulation};
use slowpath_netsim::scenario::Scenario;
use slowpath_queues::{Margin, compare, replay, sampled, settled};
use slowpath_recording::sampling::DEFAULT_THRESHOLD;
use slowpath_switch::Span;
use std::error::Error;
use std::path::Path;

/// How far clocks differ at most, in nanoseconds (DETER section 5.4).
const CLOCKS: u64 = 5_000;
const MTU: f64 = 1_500.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which scenario?")?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("reading {file}: {e}"))?;
    let folder = Path::new(&file).parent().unwrap_or(Path::new("."));
    let mut results = serde_json::Map::new();
    for point in arguments {
        let (load, seed) = point.split_once('@').unwrap_or((&point, "1"));
        let text = text
            .replace("load = 0.3", &format!("load = {load}"))
            .replace("seed = 1\n", &format!("seed = {seed}\n"));
        let files = |name: &str| std::fs::read_to_string(folder.join(name));
        let scenario = Scenario::parse(&text, &files)?;
        let network = scenario.network();
        let settings = Settings {
            packets: true,
            ..scenario.settings()
        };
        eprintln!("load {load}, seed {seed}: the run");
        let run = Simulation::new(&network, settings)?.run(scenario.flows(), |_| {})?;
        let log = run.packets.ok_or("the run kept no packets")?;
        eprintln!("load {load}: the replay of {} packets", log.sent.len());
        let kept = sampled(&network, &log, DEFAULT_THRESHOLD, CLOCKS, scenario.seed);
        let clocks = Span::from_nanos(CLOCKS);
        let packets = settled(&network, kept.packets, clocks, Margin::default())?;
        let outcome = replay(&network, &packets, Margin::default())?;
        let difference = compare(&log, &outcome);
        println!("load {load}: {:?}", difference.drops);
        let line = serde_json::json!({
            "seed": scenario.seed,
            "mean_mtu": difference.mean() / MTU,
            "p99_mtu": difference.quantile(0.99) as f64 / MTU,
            "drop_error": difference.drops.share(),
            "sampled": kept.samples as f64 / log.sent.len() as f64,
            "packets": log.sent.len(),
        });
        results.insert(point, line);
    }
    println!("{}", serde_json::Value::from(results));
    Ok(())
}
