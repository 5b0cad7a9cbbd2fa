// SPDX-License-Identifier: Apache-2.0
//! What the ring costs on events that `record-handlers` (another example) kept: time and bytes of each, and whether what was joined piece by piece is what is joined
//! at the end.
//!
//! ```text
//! ring-cost EVENTS [BYTES-OF-THE-RING]
//! ```

use slowpath_recorder::ring::{Options, Ring};
use slowpath_recorder::stock::{Host, Joiner, Live};
use slowpath_recording::{self as recording, Moment, Origin};
use std::error::Error;
use std::time::{Duration, Instant};

/// As the agent works on it.
const WORKING: u64 = 200_000_000;

/// The stretches of the events that the agent would work on at once, with the time of their end.
fn stretches(events: &[u8]) -> Vec<(u64, &[u8])> {
    let mut all = Vec::new();
    let (mut at, mut from, mut since) = (0, 0, 0);
    while let Some(length) = events.get(at..at + 4).and_then(|it| it.first_chunk()) {
        let time = events.get(at + 4..at + 12).and_then(|it| it.first_chunk());
        let time = time.map_or(0, |it| u64::from_le_bytes(*it));
        if since == 0 {
            since = time;
        }
        if time > since + WORKING {
            all.push((time, &events[from..at]));
            (from, since) = (at, time);
        }
        at += 4 + u32::from_le_bytes(*length) as usize;
    }
    all.push((since + WORKING, &events[from..]));
    all
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("see the file's first lines")?;
    let bytes = arguments.next().map_or(Ok(64 << 20), |it| it.parse())?;
    let events = std::fs::read(file)?;
    let options = Options {
        bytes,
        age: Duration::from_secs(3600),
        ..Options::default()
    };
    let origin = || Origin {
        recorder: "bpf".into(),
        ..Origin::default()
    };
    let mut ring = Ring::new(Box::new(Live::new(true)), origin(), options);
    let (mut taking, mut working, mut most, mut now) = (Duration::ZERO, Duration::ZERO, 0, 0);
    for (time, stretch) in stretches(&events) {
        let began = Instant::now();
        ring.take(stretch)?;
        taking += began.elapsed();
        let began = Instant::now();
        ring.work(Moment(time), 0);
        working += began.elapsed();
        most = most.max(ring.bytes());
        now = time;
    }
    let began = Instant::now();
    ring.work(Moment(now + 10_000_000_000), 0);
    working += began.elapsed();
    let counts = ring.counts();
    let held = ring.bytes();
    ring.keep_all(Moment(now), "asked");
    let saved = ring.work(Moment(now + 11_000_000_000), 0);
    let per = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count.max(1) as f64;
    println!(
        "{} events in {} bytes; {} runs of {} connections, {} encoded in {} bytes: {:.2} each",
        counts.events,
        events.len(),
        counts.runs,
        counts.opened,
        counts.encoded_runs,
        counts.encoded_bytes,
        counts.encoded_bytes as f64 / counts.encoded_runs.max(1) as f64
    );
    println!(
        "us an event: {:.3} joined, {:.3} encoded; ring: {most} bytes at most, {held} at the end",
        per(taking, counts.events),
        per(working, counts.events)
    );
    println!("{counts:?}");
    let mut joiner = Joiner::default();
    joiner.take(&events)?;
    let whole = joiner.finish(Host {
        origin: origin(),
        hystart: true,
        lost: 0,
    });
    let mut same = 0;
    for it in &saved {
        let kept = recording::decode(&it.file)?;
        let of = |of: &&recording::Connection| of.addresses == it.addresses;
        let whole = whole.recording.connections.iter().find(of);
        let whole = whole.ok_or("a connection that is not there")?;
        let mut one = recording::Recording {
            origin: kept.origin.clone(),
            connections: vec![whole.clone()],
            one_sided: Vec::new(),
        };
        one = recording::decode(&recording::encode(&one)?)?;
        same += usize::from(one.connections == kept.connections);
    }
    println!(
        "{same} of {} saved are what is joined at the end",
        saved.len()
    );
    Ok(())
}
