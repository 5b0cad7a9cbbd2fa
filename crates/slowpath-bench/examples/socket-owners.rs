// SPDX-License-Identifier: Apache-2.0
//! What one scan for the owners of sockets costs, in both tiers: `socket-owners [SOCKETS]`, 10,000
//! by default, held by a few processes beside those of this machine. A line of JSON a tier.

use serde_json::json;
use slowpath_agent::{Agent, Config, TierChoice};
use slowpath_bench::farm::{self, Farm};
use std::error::Error;
use std::time::Duration;

/// Scans in each tier.
const SCANS: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [farm::ARGUMENT, pairs, number, place] =
        *arguments.iter().map(String::as_str).collect::<Vec<_>>()
    {
        return Ok(farm::child(pairs.parse()?, number.parse()?, place)?);
    }
    let sockets = arguments.first().map_or(Ok(10_000), |n| n.parse())?;
    let farm = Farm::plant(sockets)?;
    for tier in [TierChoice::Bpf, TierChoice::InetDiag] {
        let mut agent = Agent::start(Config {
            tier,
            area: farm.sockets() as u32 + 1_000,
            interval: Duration::from_millis(100),
            verdicts: false,
            ..Config::default()
        })?;
        while agent.owner_scans().count < SCANS {
            std::thread::sleep(agent.until_next_poll());
            agent.poll()?;
        }
        let scans = agent.owner_scans();
        let of_one = scans.cpu.0 as f64 / scans.count as f64;
        let result = json!({
            "tier": format!("{tier:?}"),
            "sockets": farm.sockets(),
            "processes": std::fs::read_dir("/proc")?
                .flatten()
                .filter(|e| e.file_name().to_string_lossy().parse::<u32>().is_ok())
                .count(),
            "looks": scans.count,
            "mean_us": of_one,
            "longest_us": scans.longest.0,
            "mean_ns_a_socket": of_one * 1e3 / farm.sockets() as f64,
        });
        println!("{result}");
    }
    Ok(())
}
