// SPDX-License-Identifier: Apache-2.0
//! A day of connections that come and go, in virtual time: neither the series nor the
//! agent's memory grow with it, and no counter goes down.

mod states;

use slowpath_agent::ScriptedAgent;
use slowpath_export::http::HttpCounters;
use slowpath_export::otlp::{self, Resource};
use slowpath_export::prometheus::{Format, encode};
use slowpath_export::push::PushCounters;
use slowpath_export::{ProcessUse, catalogue};
use slowpath_model::{Micros, MonoNanos, Owner, RttSums, Snapshot};
use states::{opened, owner, state, time_out, wall};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that live.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DAY: u64 = 24 * 3600;

/// One connection of the script.
struct Life {
    snapshot: Snapshot,
    ends: u64,
}

/// Connections by script, the same in every run (a linear congruential generator with the
/// constants of Knuth's MMIX).
struct Script {
    lives: Vec<Life>,
    cookie: u64,
    random: u64,
}

impl Script {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// The snapshots of the poll number `poll` at `now`, and the owners of the new ones.
    fn poll(&mut self, poll: u64, now: MonoNanos, opens: u64) -> Vec<(u64, Owner)> {
        self.lives.retain(|life| !life.snapshot.closed);
        for i in 0..self.lives.len() {
            let trouble = self.random(10) == 0;
            let life = &mut self.lives[i];
            let snapshot = &mut life.snapshot;
            if trouble {
                time_out(snapshot, now);
            }
            snapshot.at = now;
            snapshot.stats.bytes_acked += 10_000;
            snapshot.stats.data_segments_out += 7;
            snapshot.closed = poll >= life.ends;
        }
        let mut owners = Vec::new();
        for _ in 0..opens {
            self.cookie += 1;
            let mut snapshot = opened(self.cookie, now);
            // Makes the agent remember its peer.
            snapshot.stats.rtt_sums = Some(RttSums {
                lifetime_min: Some(Micros(900)),
                ..RttSums::default()
            });
            // Too short for one job to earn a name.
            let ends = poll + 1 + self.random(4);
            self.lives.push(Life { snapshot, ends });
            // Services with many connections, and jobs that come once.
            let name = match self.random(4) {
                0 => format!("job-{}", self.cookie),
                service => format!("service-{service}"),
            };
            // The owners of some are never found.
            if self.random(20) > 0 {
                owners.push((self.cookie, owner(&name)));
            }
        }
        owners
    }
}

/// What an hour left.
#[derive(Debug)]
struct Hour {
    series: usize,
    live_bytes: usize,
    resident: u64,
}

/// A day with `opens` new connections at each of its `polls`.
fn day(polls: u64, opens: u64) -> Vec<Hour> {
    let mut script = Script {
        lives: Vec::new(),
        cookie: 0,
        random: 1,
    };
    let mut agent = ScriptedAgent::new(100, MonoNanos(0));
    let (http, push) = (HttpCounters::default(), PushCounters::default());
    let resource = Resource::new("host", "0.1.0", "instance");
    let mut counters: BTreeMap<String, f64> = BTreeMap::new();
    let mut hours = Vec::new();
    let gap = DAY * 1_000_000_000 / polls;
    let (minute, hour) = (polls / (24 * 60), polls / 24);
    for poll in 1..=polls {
        let now = MonoNanos(poll * gap);
        let owners = script.poll(poll, now, opens);
        agent.poll(now, wall(now), script.lives.iter().map(|l| &l.snapshot));
        agent.owners(owners);
        if poll % minute != 0 {
            continue;
        }
        agent.round();
        let state = state(&agent, now);
        let families = catalogue::families(&state, &http, &push);
        let batch = otlp::encode(&families, &resource, "0.1.0", state.started, state.at);
        assert!(!batch.body.is_empty());
        if poll % hour != 0 {
            continue;
        }
        let text = encode(&families, Format::Text);
        let samples = || text.lines().filter(|l| !l.starts_with('#'));
        for sample in samples().filter(|l| {
            let name = l.split(['{', ' ']).next().unwrap_or_default();
            name.ends_with("_total") || name.ends_with("_count") || name.ends_with("_bucket")
        }) {
            let (series, value) = sample.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            match counters.get_mut(series) {
                Some(before) => {
                    assert!(value >= *before, "{series} went from {before} to {value}");
                    *before = value;
                }
                None => {
                    counters.insert(series.to_owned(), value);
                }
            }
        }
        // None has gone.
        assert!(
            counters
                .keys()
                .all(|c| samples().any(|s| s.starts_with(c.as_str())))
        );
        let series = samples().count();
        drop((text, families, batch, state));
        hours.push(Hour {
            series,
            live_bytes: LIVE.load(Ordering::Relaxed),
            resident: ProcessUse::read().resident.unwrap(),
        });
    }
    let host_totals = agent.host_totals().unwrap();
    assert_eq!(host_totals.met, polls * opens);
    assert_eq!(
        host_totals.closed + agent.connections().count() as u64,
        host_totals.met
    );
    assert!(host_totals.applications.folded() > 0);
    hours
}

/// The second half of the day is no larger than the first from its fifth hour on, when every
/// bounded table is full.
fn assert_steady(hours: &[Hour]) {
    let most = |hours: &[Hour], what: fn(&Hour) -> usize| hours.iter().map(what).max().unwrap();
    let (early, late) = (&hours[5..12], &hours[12..]);
    let shown: Vec<String> = hours.iter().map(|h| format!("{h:?}")).collect();
    let shown = shown.join("\n");
    assert_eq!(
        most(early, |h| h.series),
        most(late, |h| h.series),
        "{shown}"
    );
    // Full tables may double once, when their deleted entries pile up. Half a byte a
    // connection would be more.
    const SLACK: usize = 192 << 10;
    assert!(
        most(late, |h| h.live_bytes) <= most(early, |h| h.live_bytes) + SLACK,
        "{shown}"
    );
    // The allocator's pages, which it may keep.
    const PAGES: usize = 4 << 20;
    assert!(
        most(late, |h| h.resident as usize) <= most(early, |h| h.resident as usize) + PAGES,
        "{shown}"
    );
    println!("{shown}");
}

/// Five connections a second, polls every ten seconds.
#[test]
fn a_day_of_churn_grows_neither_series_nor_memory() {
    assert_steady(&day(DAY / 10, 50));
}

#[test]
#[ignore = "soak: a day of 50 connections a second at the default interval takes minutes"]
fn a_day_of_churn_at_full_rate_grows_neither_series_nor_memory() {
    assert_steady(&day(DAY * 2, 25));
}
