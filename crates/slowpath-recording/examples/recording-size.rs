// SPDX-License-Identifier: Apache-2.0
//! How many bytes a recording takes.
//!
//! `recording-size SCENARIO...` runs each scenario in the simulator and makes a recording of its packets: those that came are runs of the packet handler,
//! and by rule there are calls between them. A packet comes so long after it was sent as the queues are taken to be long: a slow wave and some noise. The last
//! line is JSON: for each scenario and mode bytes a run and a packet, and what each column takes.

use slowpath_netsim::engine::{Settings, Simulation};
use slowpath_netsim::results::PacketLog;
use slowpath_netsim::scenario::Scenario;
use slowpath_recording::coarse::CoarseSampler;
use slowpath_recording::sampling::{DEFAULT_THRESHOLD, Sampler};
use slowpath_recording::{
    Connection, End, Handler, Moment, Origin, Recording, Run, Sent, encode, inspect,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

const HZ: u64 = 250;
const PICOS: u64 = 1_000;
/// Nothing sent for so long (in nanoseconds): the application sends a new message.
const PAUSE: u64 = 200_000;
const DATA: u16 = 200;

/// How times are kept.
#[derive(Clone, Copy, Debug)]
enum Mode {
    EveryRun,
    Sampled,
    /// In whole microseconds.
    Coarse,
}

#[derive(Default)]
struct Stream {
    /// When each was sent, its bytes, and whether it was lost.
    packets: Vec<(u64, u16, bool)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut all = serde_json::Map::new();
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("reading {file}: {e}"))?;
        let folder = Path::new(&file).parent().unwrap_or(Path::new("."));
        let files = |name: &str| std::fs::read_to_string(folder.join(name));
        let scenario = Scenario::parse(&text, &files)?;
        let settings = Settings {
            packets: true,
            ..scenario.settings()
        };
        let run = Simulation::new(&scenario.network(), settings)?.run(scenario.flows(), |_| {})?;
        let log = run.packets.ok_or("the run kept no packets")?;
        for mode in [Mode::EveryRun, Mode::Sampled, Mode::Coarse] {
            let recording = recording(&log, mode);
            let bytes = encode(&recording)?;
            let ends = || recording.connections.iter().flat_map(|c| &c.ends);
            let runs: usize = ends().map(|end| end.runs.len()).sum();
            let samples: usize = ends().flat_map(|e| &e.sent).map(|s| s.samples.len()).sum();
            let sizes = inspect(&bytes)?;
            let columns: BTreeMap<_, _> = sizes.columns.iter().map(|(k, v)| (k, v.kept)).collect();
            let line = serde_json::json!({
                "connections": recording.connections.len(),
                "packets": log.sent.len(),
                "runs": runs,
                "samples": samples,
                "bytes": bytes.len(),
                "bytes_per_run": bytes.len() as f64 / runs as f64,
                "bytes_per_packet": bytes.len() as f64 / log.sent.len() as f64,
                "connections_bytes": sizes.connections,
                "totals_bytes": sizes.totals,
                "columns": columns,
            });
            println!("{file} {mode:?}: {}", serde_json::to_string_pretty(&line)?);
            all.insert(format!("{file} {mode:?}"), line);
        }
    }
    println!("{}", serde_json::Value::from(all));
    Ok(())
}

fn recording(log: &PacketLog, mode: Mode) -> Recording {
    let mut lost = vec![false; log.sent.len()];
    for dropped in &log.dropped {
        lost[dropped.packet as usize] = true;
    }
    let mut streams: BTreeMap<(u32, u32, u32), [Stream; 2]> = BTreeMap::new();
    for (packet, lost) in log.sent.iter().zip(lost) {
        let (from, to) = (packet.source.0, packet.destination.0);
        let key = (packet.key, from.min(to), from.max(to));
        let stream = &mut streams.entry(key).or_default()[usize::from(from > to)];
        stream
            .packets
            .push((packet.at.0 / PICOS, packet.bytes, lost));
    }
    let connections = streams.into_iter().map(|((key, a, b), streams)| {
        let address = |host: u32, port: u32| {
            let [_, _, high, low] = host.to_be_bytes();
            ([10, 0, high, low], port as u16).into()
        };
        Connection {
            addresses: [address(a, key % 50_000 + 10_000), address(b, 80)],
            settings: Default::default(),
            ends: [
                end(&streams[0], &streams[1], mode),
                end(&streams[1], &streams[0], mode),
            ],
            joint: None,
        }
    });
    Recording {
        origin: Origin {
            kernel: "6.12.95".to_owned(),
            hz: HZ as u32,
            epoch: 1_700_000_000_000_000_000,
            recorder: "laboratory".into(),
        },
        connections: connections.collect(),
        one_sided: Vec::new(),
    }
}

/// Runs of the packets that came, and of the reader that takes their data.
fn received(other: &Stream) -> Vec<(u64, Handler)> {
    let mut runs: Vec<(u64, Handler)> = Vec::new();
    let mut came = 0;
    let mut unread = 0u32;
    for (number, (sent, bytes, lost)) in (0..).zip(&other.packets) {
        if *lost {
            continue;
        }
        // Some 50 us of queues, which change over a millisecond, and noise.
        let wave = (*sent / 20_000) % 100;
        let queue = wave.min(100 - wave) * 1_000 + fastrand(*sent) % 700;
        came = (came + 600).max(sent + 5_000 + queue);
        let handler = Handler::Packet {
            number,
            marked: fastrand(sent + 1).is_multiple_of(50),
            backlog: fastrand(sent + 2).is_multiple_of(300),
            merged: 1,
            truesize: if *bytes > DATA { 2_304 } else { 768 },
        };
        runs.push((came, handler));
        if *bytes > DATA {
            unread += u32::from(*bytes) - 52;
            // The reader wakes up some packets later.
            if fastrand(sent + 3).is_multiple_of(7) {
                let handler = Handler::Receive {
                    bytes: 131_072,
                    flags: 0,
                    result: unread as i32,
                };
                runs.push((came + 2_000 + fastrand(sent + 4) % 3_000, handler));
                unread = 0;
            }
        }
    }
    runs
}

/// Calls that send: one a message.
fn calls(own: &Stream) -> Vec<(u64, Handler)> {
    let mut runs = Vec::new();
    let mut last = None;
    for (sent, bytes, _) in &own.packets {
        if *bytes > DATA && last.is_none_or(|last| sent - last > PAUSE) {
            let handler = Handler::Send {
                bytes: 16_384,
                flags: 0x4000,
                result: 16_384,
            };
            runs.push((sent.saturating_sub(1_500), handler));
        }
        if *bytes > DATA {
            last = Some(*sent);
        }
    }
    runs
}

/// When packets were sent, sampled; `None`: every run has its time.
fn samples(own: &Stream, mode: Mode) -> Option<Sent> {
    let times = own.packets.iter().map(|packet| packet.0);
    let samples = match mode {
        Mode::EveryRun => None,
        Mode::Sampled => {
            let mut sampler = Sampler::new(DEFAULT_THRESHOLD);
            let mut samples: Vec<_> = times.filter_map(|time| sampler.push(time)).collect();
            samples.extend(sampler.finish());
            Some(samples)
        }
        Mode::Coarse => {
            let mut sampler = CoarseSampler::new(DEFAULT_THRESHOLD);
            let mut samples: Vec<_> = times.filter_map(|time| sampler.push(time)).collect();
            samples.extend(sampler.finish());
            Some(samples)
        }
    };
    samples.map(|samples| Sent {
        threshold: DEFAULT_THRESHOLD,
        samples,
    })
}

fn end(own: &Stream, other: &Stream, mode: Mode) -> End {
    let mut runs = received(other);
    runs.extend(calls(own));
    runs.sort_by_key(|(at, _)| *at);
    let runs: Vec<Run> = (0..)
        .zip(runs)
        .map(|(place, (at, handler))| Run {
            at: Moment(at),
            jiffies: (4_000 + at * HZ / 1_000_000_000) as u32,
            handler,
            outcomes: Vec::new(),
            check: Some(fastrand(at + place) as u32),
        })
        .collect();
    End {
        digest: fastrand(runs.len() as u64) as u32,
        runs,
        sent: samples(own, mode),
        ..End::default()
    }
}

/// The same for the same input.
fn fastrand(seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    random.u64(..)
}
