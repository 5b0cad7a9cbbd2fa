// SPDX-License-Identifier: Apache-2.0
//! Recorded in the laboratory, replayed connection by connection on a fresh kernel with another seed and another clock, without switches: every header
//! is the same. The captures of the runtime are used for the comparison and for nothing else.

mod variety;

use slowpath_lab::virtual_time::{HZ, Kernel, Options, Run, SOURCE, run};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_recording::headers::{self, Comparison};
use slowpath_recording::{self as recording, Handler, Recording, Timer};
use slowpath_replay::relabel;
use slowpath_replay::{FIRST_PORT, ReplayOptions, Replayed, ShrinkOptions, replay, shrink};
use std::collections::BTreeSet;
use std::path::Path;

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scenarios/replay/exact.toml"
);

fn kernel(test: &str) -> Option<Kernel> {
    match Kernel::find(SOURCE, HZ) {
        Ok(kernel) => Some(kernel),
        Err(missing) => {
            println!("SKIPPED {test}: {missing}");
            None
        }
    }
}

struct Recorded {
    run: Run,
    recording: Recording,
    folder: tempfile::TempDir,
}

fn record(kernel: &Kernel, algorithm: Option<&str>) -> Recorded {
    let scenario = Scenario::load_for(SCENARIO.as_ref(), Substrate::VirtualTime);
    record_of(kernel, &scenario.expect("a scenario"), algorithm)
}

fn record_of(kernel: &Kernel, scenario: &Scenario, algorithm: Option<&str>) -> Recorded {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        record: true,
        algorithm: algorithm.map(str::to_owned),
        ..Options::default()
    };
    let mut run = run(kernel, scenario, &options, folder.path(), &mut |_| {}).expect("a run");
    let recording = run.recording.take().expect("a recording");
    assert_eq!(recording.validate(), Ok(()));
    Recorded {
        run,
        recording,
        folder,
    }
}

/// Another seed and another time than the recorded kernel had.
fn other() -> ReplayOptions {
    ReplayOptions {
        seed: 99,
        epoch: 1_500_000_000_123_456_789,
        ..ReplayOptions::default()
    }
}

fn replayed(kernel: &Kernel, recording: &Recording, folder: &Path) -> Replayed {
    let all: Vec<usize> = (0..recording.connections.len()).collect();
    replay(kernel, recording, &all, &other(), folder, &mut |_| {}).expect("a replay")
}

/// Both ends of every connection, compared with the runtime's captures.
fn compare(recorded: &Recorded, again: &Replayed) -> Vec<[Comparison; 2]> {
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("a capture");
        headers::read(&bytes).expect("a capture of the laboratory")
    };
    let hosts: Vec<_> = recorded
        .run
        .captures
        .iter()
        .map(|path| read(path))
        .collect();
    let ends = again
        .captures
        .clone()
        .expect("captures")
        .map(|path| read(&path));
    let connections = recorded.recording.connections.iter().enumerate();
    let host = |address: std::net::SocketAddr| match address {
        std::net::SocketAddr::V4(v4) => usize::from(v4.ip().octets()[3]) - 1,
        std::net::SocketAddr::V6(_) => unreachable!("the laboratory is IPv4"),
    };
    connections
        .map(|(place, connection)| {
            [0, 1].map(|end| {
                let runtime = &hosts[host(connection.addresses[end])][&connection.addresses];
                let port = 10_000 + place as u16;
                let replay = ends[end]
                    .iter()
                    .find(|(pair, _)| pair[0].port() == port)
                    .map(|(_, headers)| headers.as_slice())
                    .unwrap_or_default();
                headers::compare(runtime, replay)
            })
        })
        .collect()
}

fn is_exact(recorded: &Recorded, again: &Replayed) {
    for (place, result) in again.results.iter().enumerate() {
        assert_eq!(result.difference, None, "connection {place}");
    }
    for (place, ends) in compare(recorded, again).iter().enumerate() {
        for end in ends {
            assert!(
                end.is_exact() && end.packets > 0,
                "connection {place}: {end:?}"
            );
            assert_eq!(end.timestamps, 0, "connection {place}: {end:?}");
            // Every run's own moment was recorded.
            assert_eq!(end.most_separate, 0, "connection {place}: {end:?}");
        }
    }
}

/// The captures of a replay, as `slowpath replay --out` writes them.
fn relabelled_with_recorded_addresses_and_times(recorded: &Recorded, again: &Replayed) {
    let connections: Vec<&recording::Connection> = recorded.recording.connections.iter().collect();
    let captures = again.captures.clone().expect("captures");
    let epoch = recorded.recording.origin.epoch;
    for (end, path) in captures.iter().enumerate() {
        let capture = std::fs::read(path).expect("a capture");
        let mut reported = relabel::packets(&capture, &connections, FIRST_PORT, end, epoch);
        let reported = headers::read(&relabel::pcap(&mut reported)).expect("a capture");
        assert_eq!(reported.len(), connections.len());
        let host = |address: std::net::SocketAddr| match address.ip() {
            std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
            std::net::IpAddr::V6(_) => unreachable!("the laboratory is IPv4"),
        };
        for connection in connections.iter().take(20) {
            let path = &recorded.run.captures[host(connection.addresses[end])];
            let runtime = std::fs::read(path).expect("a capture");
            let runtime = headers::read(&runtime).expect("a capture");
            // Times and all, not only what is alike.
            assert_eq!(
                runtime[&connection.addresses],
                reported[&connection.addresses]
            );
        }
    }
}

#[test]
fn every_connection_is_replayed_exactly() {
    let Some(kernel) = kernel("every_connection_is_replayed_exactly") else {
        return;
    };
    let recorded = record(&kernel, None);
    let recording = &recorded.recording;
    // What it is about: many, of three kinds, and the network was not kind to them.
    assert!(
        recording.connections.len() >= 200,
        "{}",
        recording.connections.len()
    );
    let kinds: BTreeSet<&str> = recording
        .connections
        .iter()
        .map(|connection| connection.settings.socket[0]["congestion"].as_str())
        .collect();
    assert_eq!(kinds, BTreeSet::from(["cubic", "dctcp", "reno"]));
    let dropped = recorded.run.results.conservation.dropped;
    assert!(dropped > 500, "{dropped} packets were dropped");
    let count = |wanted: fn(&Handler) -> bool| {
        let ends = recording.connections.iter().flat_map(|it| &it.ends);
        let runs = ends.flat_map(|end| &end.runs);
        runs.filter(|run| wanted(&run.handler)).count()
    };
    let marked = |handler: &Handler| matches!(handler, Handler::Packet { marked: true, .. });
    let timer = |handler: &Handler| {
        matches!(
            handler,
            Handler::Timer {
                timer: Timer::Write,
                ..
            }
        )
    };
    assert!(count(marked) > 500 && count(timer) > 50);
    // The file is what the replayer gets.
    let file = recording::encode(recording).expect("a file");
    let read = recording::decode(&file).expect("what was written");
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(&kernel, &read, folder.path());
    is_exact(&recorded, &again);
    relabelled_with_recorded_addresses_and_times(&recorded, &again);
    drop(recorded.folder);
}

/// Every way to change one run that a recording can express; `None` where there is nothing to change.
fn altered(run: &recording::Run) -> Vec<recording::Run> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut recording::Run)| {
        let mut other = run.clone();
        change(&mut other);
        if other != *run {
            all.push(other);
        }
    };
    with(&|run| run.at.0 += 1);
    with(&|run| run.jiffies = run.jiffies.wrapping_add(1));
    with(&|run| run.check = run.check.map(|check| check ^ 1));
    with(&|run| {
        run.outcomes.pop();
    });
    with(&|run| {
        run.outcomes.push(recording::Outcome::SmallQueue {
            nth: 0,
            throttled: true,
        });
    });
    with(&|run| match &mut run.handler {
        Handler::Begin { fresh } => *fresh ^= true,
        Handler::Send { bytes, .. } => *bytes += 1,
        Handler::Packet { number, .. } => *number += 1,
        Handler::Timer { timer, .. } => {
            *timer = match timer {
                Timer::Write => Timer::DelayedAck,
                _ => Timer::Write,
            }
        }
        _ => {}
    });
    with(&|run| match &mut run.handler {
        Handler::Send { result, .. } => *result -= 1,
        Handler::Packet { marked, .. } => *marked ^= true,
        _ => {}
    });
    with(&|run| {
        if let Handler::Packet { truesize, .. } = &mut run.handler {
            *truesize += 1;
        }
    });
    all
}

/// A short one in which much happened.
fn eventful(recording: &Recording) -> &recording::Connection {
    let is_timeout = |run: &recording::Run| {
        matches!(
            run.handler,
            Handler::Timer {
                timer: Timer::Write,
                ..
            }
        )
    };
    let some = recording.connections.iter().filter(|connection| {
        let runs = &connection.ends[0].runs;
        runs.len() >= 50 && runs.iter().any(is_timeout)
    });
    some.min_by_key(|connection| connection.ends[0].runs.len())
        .expect("one with a timeout")
}

/// With one run less, two exchanged, or one changed.
fn variants(whole: &recording::Connection) -> Vec<(String, recording::Connection)> {
    let mut variants = Vec::new();
    for side in 0..2 {
        for place in 0..whole.ends[side].runs.len() {
            let mut change = |replace: &[recording::Run], instead_of: usize, what: String| {
                let mut other = whole.clone();
                other.ends[side]
                    .runs
                    .splice(place..place + instead_of, replace.iter().cloned());
                variants.push((format!("{what} of run {place} of end {side}"), other));
            };
            let runs = &whole.ends[side].runs;
            change(&[], 1, "deletion".into());
            for run in altered(&runs[place]) {
                change(std::slice::from_ref(&run), 1, format!("{run:?} instead"));
            }
            if let [one, two, ..] = &runs[place..] {
                change(&[two.clone(), one.clone()], 2, "exchange".into());
            }
        }
    }
    variants
}

fn with(recorded: &Recorded, connections: Vec<recording::Connection>) -> Recording {
    Recording {
        origin: recorded.recording.origin.clone(),
        connections,
        one_sided: Vec::new(),
    }
}

#[test]
fn one_run_less_or_other_and_the_replay_says_so() {
    let Some(kernel) = kernel("one_run_less_or_other_and_the_replay_says_so") else {
        return;
    };
    let recorded = record(&kernel, None);
    let whole = eventful(&recorded.recording);
    let variants = variants(whole);
    assert!(variants.len() > 200, "{}", variants.len());
    let all = std::iter::once(whole).chain(variants.iter().map(|(_, connection)| connection));
    let recording = with(&recorded, all.cloned().collect());
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(&kernel, &recording, folder.path());
    assert_eq!(again.results[0].difference, None, "unchanged");
    for ((what, _), result) in variants.iter().zip(&again.results[1..]) {
        assert!(result.difference.is_some(), "{what}: nothing was noticed");
    }
}

/// A recording whose times are only near the true ones: the same headers at both ends of every connection, times within the bound; from the file, on another kernel. And one
/// event less or other is noticed there too.
#[test]
fn near_times_are_replayed_exactly() {
    let Some(kernel) = kernel("near_times_are_replayed_exactly") else {
        return;
    };
    let recorded = record(&kernel, None);
    let folder = tempfile::tempdir().expect("a folder");
    let options = ShrinkOptions::default();
    let light = shrink(
        &kernel,
        &recorded.recording,
        &options,
        folder.path(),
        &mut |_| {},
    );
    let light = light.expect("replays");
    assert_eq!(light.untouched, Vec::<usize>::new());
    let count = recorded.recording.connections.len();
    let near = light.within.iter().filter(|(bound, _)| *bound > 0);
    assert!(
        near.map(|(_, count)| count).sum::<usize>() * 20 > count * 19,
        "{:?}",
        light.within
    );
    let file = recording::encode(&light.recording).expect("a file");
    let exact = recording::encode(&recorded.recording).expect("a file");
    assert!(
        2 * file.len() < exact.len(),
        "{} of {}",
        file.len(),
        exact.len()
    );
    let read = recording::decode(&file).expect("what was written");
    assert_eq!(read.validate(), Ok(()));
    for (near, truth) in read.connections.iter().zip(&recorded.recording.connections) {
        for (near, truth) in near.ends.iter().zip(&truth.ends) {
            assert!(near.within <= options.within);
            for (near_run, truth) in near.runs.iter().zip(&truth.runs) {
                assert!(near_run.at.0.abs_diff(truth.at.0) <= near.within.into());
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(&kernel, &read, folder.path());
    let mut timestamps = 0;
    for (place, result) in again.results.iter().enumerate() {
        assert_eq!(result.difference, None, "connection {place}");
    }
    for (place, ends) in compare(&recorded, &again).iter().enumerate() {
        for end in ends {
            assert!(
                end.is_exact() && end.packets > 0,
                "connection {place}: {end:?}"
            );
            // Counted from the first, which may be off as well.
            assert!(
                end.most_separate <= 2 * u64::from(options.within),
                "{end:?}"
            );
            timestamps += end.timestamps;
        }
    }
    println!("{} bytes; {timestamps} timestamps are other", file.len());
    let whole = eventful(&read);
    let variants = variants(whole);
    assert!(variants.len() > 200, "{}", variants.len());
    let all = std::iter::once(whole).chain(variants.iter().map(|(_, connection)| connection));
    let changed = with(&recorded, all.cloned().collect());
    // As files hold them: of checks each 64th.
    let changed = recording::encode(&changed).expect("a file");
    let changed = recording::decode(&changed).expect("what was written");
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(&kernel, &changed, folder.path());
    assert_eq!(again.results[0].difference, None, "unchanged");
    for ((what, _), result) in variants.iter().zip(&again.results[1..]) {
        assert!(result.difference.is_some(), "{what}: nothing was noticed");
    }
}

/// Numbers that only look random (Knuth, MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    fn handler(&mut self) -> Handler {
        let number = [0, 1, 7, 1000, 1 << 23, u32::MAX][self.below(6)];
        match self.below(8) {
            0 => Handler::Connect,
            1 => Handler::Accept,
            2 => Handler::Begin {
                fresh: self.below(2) == 1,
            },
            3 => Handler::Send {
                bytes: number,
                flags: 0,
                result: self.below(2000) as i32 - 1000,
            },
            4 | 5 => Handler::Packet {
                number,
                marked: self.below(2) == 1,
                backlog: false,
                merged: 1,
                truesize: number,
            },
            6 => Handler::SmallQueue,
            _ => Handler::Timer {
                timer: [
                    Timer::Write,
                    Timer::DelayedAck,
                    Timer::Keepalive,
                    Timer::Pacing,
                    Timer::Request,
                ][self.below(5)],
                deferred: false,
            },
        }
    }
}

/// Whatever a file may hold: no replay of it hangs, takes the kernel down or is called exact, and the next one is not the worse for it.
#[test]
fn nonsense_is_not_replayed() {
    let Some(kernel) = kernel("nonsense_is_not_replayed") else {
        return;
    };
    let recorded = record(&kernel, None);
    let connections = &recorded.recording.connections;
    let mut random = Random(1);
    let mut all = Vec::new();
    for _ in 0..400 {
        let mut other = connections[random.below(connections.len().min(100))].clone();
        for _ in 0..1 + random.below(6) {
            let runs = &mut other.ends[random.below(2)].runs;
            let place = random.below(runs.len());
            match random.below(4) {
                0 => runs[place].handler = random.handler(),
                1 => runs.truncate(place),
                2 => {
                    let mut copy = runs[place].clone();
                    copy.handler = random.handler();
                    runs.insert(place, copy);
                }
                _ => {
                    runs[place].at.0 = [0, 1, u64::MAX, 1 << 40][random.below(4)];
                    runs[place].jiffies = random.below(1 << 31) as u32;
                }
            }
            if runs.is_empty() {
                break;
            }
        }
        all.push(other);
        all.push(connections[random.below(100)].clone());
    }
    let recording = Recording {
        origin: recorded.recording.origin.clone(),
        connections: all,
        one_sided: Vec::new(),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(&kernel, &recording, folder.path());
    for (place, pair) in again.results.chunks(2).enumerate() {
        let whole = connections.contains(&recording.connections[2 * place]);
        assert_eq!(
            pair[0].difference.is_none(),
            whole,
            "nonsense {place}: {:?}",
            pair[0]
        );
        assert_eq!(pair[1].difference, None, "the one after nonsense {place}");
    }
    // Events that were lost: nothing is replayed, and nothing is said of it.
    let mut gap = connections[3].clone();
    let server = &mut gap.ends[1];
    server.gap = Some(5);
    server.runs.truncate(5);
    let recording = Recording {
        origin: recorded.recording.origin.clone(),
        connections: vec![connections[2].clone(), gap],
        one_sided: Vec::new(),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let again = replay(
        &kernel,
        &recording,
        &[0, 1],
        &other(),
        folder.path(),
        &mut |_| {},
    );
    let error = again.expect_err("events are missing").to_string();
    assert_eq!(
        error,
        "connection 1: its server is not replayable after event 5: events are missing there"
    );
}

#[test]
fn bbr_is_replayed_exactly() {
    let Some(kernel) = kernel("bbr_is_replayed_exactly") else {
        return;
    };
    let recorded = record(&kernel, Some("bbr"));
    let folder = tempfile::tempdir().expect("a folder");
    let again = replayed(&kernel, &recorded.recording, folder.path());
    is_exact(&recorded, &again);
}
