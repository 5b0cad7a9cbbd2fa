// SPDX-License-Identifier: Apache-2.0
//! The engine's ceilings, made small: what exceeds them is ended early and counted, the same in
//! every run, and no segment is lost.

mod frames;

use frames::{ACK, FIN, RST, SYN, Timed, USUAL, ethernet, ipv4, tcp, timed};
use proptest::prelude::*;
use slowpath_trace::engine::{Ended, Finished, Follow, Options, Summary, run};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Shards, each of which has its part of a ceiling.
const SHARDS: usize = 64;

/// Followers that exist, and the most that did at a time.
#[derive(Default)]
struct Census {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Remembers its frames.
struct Counted<'a> {
    census: &'a Census,
    frames: Vec<u64>,
}

impl<'a> Counted<'a> {
    fn new(census: &'a Census) -> Self {
        let now = census.now.fetch_add(1, Ordering::Relaxed) + 1;
        census.most.fetch_max(now, Ordering::Relaxed);
        Counted {
            census,
            frames: Vec::new(),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.census.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Follow for Counted<'_> {
    type Report = Vec<u64>;

    fn segment(&mut self, segment: &Segment<'_>) {
        self.frames.push(segment.frame);
    }

    fn finish(mut self) -> Vec<u64> {
        std::mem::take(&mut self.frames)
    }
}

/// What came of a capture, and the most followers at a time.
fn analyse(frames: &[Timed], options: &Options) -> (Vec<Finished<Vec<u64>>>, Summary, usize) {
    let capture = Cursor::new(USUAL.pcap(1, frames));
    let inputs = Inputs::new(vec![Input::Stream("made".to_owned(), Box::new(capture))]);
    let census = Census::default();
    let mut finished = Vec::new();
    let summary = run(
        inputs.expect("there is one"),
        options,
        |_, _| Counted::new(&census),
        |connection| finished.push(connection),
        |_| ControlFlow::Continue(()),
    )
    .expect("it reads");
    finished.sort_by_key(|connection| connection.first_frame);
    assert_eq!(finished.len() as u64, summary.connections);
    assert_eq!(census.now.load(Ordering::Relaxed), 0);
    let evicted = finished.iter().filter(|f| f.ended == Ended::Evicted);
    assert_eq!(evicted.count() as u64, summary.evicted);
    (finished, summary, census.most.load(Ordering::Relaxed))
}

fn frame(port: u16, sequence: u32, flags: u8, length: usize) -> Vec<u8> {
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let segment = tcp(port, 80, sequence, flags, &vec![7; length]);
    ethernet(0x0800, &ipv4(6, ends, &segment))
}

/// Every frame belongs to one connection, and its frames are in order.
fn all_frames(found: &[Finished<Vec<u64>>]) -> Vec<u64> {
    let mut all = Vec::new();
    for connection in found {
        assert!(connection.report.is_sorted(), "{connection:?}");
        assert_eq!(connection.report.first(), Some(&connection.first_frame));
        assert_eq!(connection.report.last(), Some(&connection.last_frame));
        all.extend(&connection.report);
    }
    all.sort_unstable();
    all
}

/// 2,000 connections, 500 at a time but none of them ending, of which 640 may be followed. What of
/// their segments waits in the pool needs no follower; 120 of each is more than that.
#[test]
fn no_more_are_followed_than_may_be() {
    let mut frames = Vec::new();
    for first in [1000, 1500, 2000, 2500] {
        let ports = first..first + 500;
        frames.extend((0..120).flat_map(|n| {
            let round = ports.clone().map(move |port| frame(port, n * 3, ACK, 3));
            round.collect::<Vec<_>>()
        }));
    }
    let count = frames.len() as u64;
    let frames = timed(frames);
    let options = Options {
        threads: 8,
        followed: 640,
        ..Options::default()
    };
    let (found, summary, most) = analyse(&frames, &options);
    assert_eq!(all_frames(&found), (1..=count).collect::<Vec<u64>>());
    // One a worker is made in passing, when its connection ends. However the workers take turns, one
    // of them comes to hold its own eighth.
    assert!(
        (640 / 8..=640 + 8).contains(&most),
        "{most} followers at a time"
    );
    assert!(summary.evicted > 1_000, "{}", summary.evicted);
    // Without the ceiling nothing is ended early, and each connection is one.
    let (found, summary, most) = analyse(
        &frames,
        &Options {
            threads: 8,
            ..Options::default()
        },
    );
    assert_eq!((found.len(), summary.evicted), (2_000, 0));
    assert!(most > 1_000, "{most} followers at a time: none were needed");
}

/// A flood of SYNs beside connections in use: the flood makes room for itself.
#[test]
fn a_flood_evicts_its_own_syns_first() {
    let mut frames = Vec::new();
    for n in 0..40u16 {
        frames.extend((0..20u16).map(|port| frame(1000 + port, u32::from(n) * 3, ACK, 3)));
        frames.extend((0..500u16).map(|i| frame(2000 + n * 500 + i, 9, SYN, 0)));
    }
    let options = Options {
        connections: 64 * SHARDS,
        ..Options::default()
    };
    let (found, summary, _) = analyse(&timed(frames), &options);
    let used: Vec<_> = found.iter().filter(|f| f.report.len() > 1).collect();
    assert_eq!(used.len(), 20);
    assert!(
        used.iter()
            .all(|f| f.report.len() == 40 && f.ended == Ended::Capture)
    );
    assert_eq!(found.len(), 20 + 20_000);
    // What is left is as many as there is room for.
    let most = 64 * SHARDS;
    let open = found.iter().filter(|f| f.ended == Ended::Capture).count();
    assert!(
        open <= most && summary.evicted as usize >= 20_020 - most,
        "{open}"
    );
}

/// With room for one, each connection that has a second segment displaces another.
#[test]
fn the_smallest_ceilings_hold() {
    let mut frames = Vec::new();
    for n in 0..4 {
        frames.extend((0..300u16).map(|port| frame(1000 + port, n * 3, ACK, 3)));
    }
    let count = frames.len() as u64;
    let options = Options {
        connections: 1,
        followed: 1,
        ..Options::default()
    };
    let (found, summary, _) = analyse(&timed(frames), &options);
    assert_eq!(all_frames(&found), (1..=count).collect::<Vec<u64>>());
    let kept = found.iter().filter(|f| f.ended == Ended::Capture).count();
    assert!(kept <= SHARDS, "{kept}");
    assert_eq!(summary.evicted as usize, found.len() - kept);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever comes, whatever the ceilings: every segment is of one connection, and the number of
    /// workers changes nothing.
    #[test]
    fn any_crowd_under_any_ceiling(
        segments in prop::collection::vec((0u16..400, 0u32..6, 0usize..8, 0usize..3), 0..3_000),
        connections in 1usize..600,
        followed in 1usize..600,
        linger_ms in 0u64..3_000,
    ) {
        let flags = [SYN, ACK, ACK, ACK, FIN | ACK, RST, SYN | ACK, RST | ACK];
        let frames = segments.iter().map(|(port, sequence, flag, length)| {
            frame(1000 + port, *sequence, flags[*flag], *length)
        });
        let frames = timed(frames.collect());
        let options = |threads| Options {
            threads,
            connections,
            followed,
            linger: Duration::from_millis(linger_ms),
            ..Options::default()
        };
        let (found, summary, _) = analyse(&frames, &options(1));
        prop_assert_eq!(all_frames(&found), (1..=frames.len() as u64).collect::<Vec<u64>>());
        for threads in [2, 5] {
            let (again, other, _) = analyse(&frames, &options(threads));
            prop_assert_eq!(&again, &found);
            prop_assert_eq!(&other, &summary);
        }
    }
}
