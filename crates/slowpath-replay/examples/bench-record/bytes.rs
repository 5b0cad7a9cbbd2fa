// SPDX-License-Identifier: Apache-2.0
//! Scenarios of the laboratory with congestion, recorded and captured at once: the recording's bytes, with exact times and shrunk, beside those of the
//! hosts' captures (headers and timestamps, all hosts') after zstd -19.

use slowpath_lab::virtual_time::{HZ, Kernel, Options, SOURCE, run};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_recording::encode;
use slowpath_replay::{ShrinkOptions, shrink};
use std::error::Error;
use std::path::Path;

/// What is measured against (DETER, section 5.1: 2.1 to 3.1 %).
const LEVEL: i32 = 19;
const SCENARIOS: [&str; 2] = ["exact", "web-search"];

/// Of the scenario where it is most.
pub struct Worst {
    /// Bytes of the recording for each packet that a host sent.
    pub per_packet: f64,
    /// Bytes of the recording beside those of the compressed capture.
    pub ratio: f64,
    /// The same before times were made near.
    pub exact_ratio: f64,
}

pub fn measure() -> Result<Worst, Box<dyn Error>> {
    let kernel = Kernel::find(SOURCE, HZ)?;
    let mut worst = Worst {
        per_packet: 0.0,
        ratio: 0.0,
        exact_ratio: 0.0,
    };
    for name in SCENARIOS {
        let path = format!(
            "{}/../../scenarios/replay/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let scenario = Scenario::load_for(Path::new(&path), Substrate::VirtualTime)?;
        let folder = tempfile::tempdir()?;
        let options = Options {
            record: true,
            events: false,
            info_every: None,
            ..Options::default()
        };
        let mut run = run(&kernel, &scenario, &options, folder.path(), &mut |_| {})?;
        let recording = run.recording.take().ok_or("nothing was recorded")?;
        let mut captures = Vec::new();
        for path in &run.captures {
            captures.extend(std::fs::read(path)?);
        }
        let compressed = zstd::bulk::compress(&captures, LEVEL)?.len() as f64;
        let exact = encode(&recording)?.len() as f64;
        let folder = tempfile::tempdir()?;
        let options = ShrinkOptions::default();
        let light = shrink(&kernel, &recording, &options, folder.path(), &mut |_| {})?;
        let small = encode(&light.recording)?.len() as f64;
        let packets = run.packets as f64;
        println!(
            "{name}: {} connections, {packets} packets; captures {compressed} bytes compressed; recording {exact} bytes, {:.2} %; shrunk {small}, {:.2} %, {:.3} bytes a packet; \
             times within (ns, connections) {:?}, not replayed {}; {:.1} s of replays",
            recording.connections.len(),
            100.0 * exact / compressed,
            100.0 * small / compressed,
            small / packets,
            light.within,
            light.untouched.len(),
            light.wall.as_secs_f64(),
        );
        worst.per_packet = worst.per_packet.max(small / packets);
        worst.ratio = worst.ratio.max(small / compressed);
        worst.exact_ratio = worst.exact_ratio.max(exact / compressed);
    }
    Ok(worst)
}
