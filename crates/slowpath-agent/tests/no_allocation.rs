// SPDX-License-Identifier: Apache-2.0
//! A poll allocates nothing for connections that are known and have no problem.

use serde::Deserialize;
use slowpath_agent::ScriptedAgent;
use slowpath_model::{MonoNanos, Snapshot, WallMicros};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting uses a
// thread-local that needs neither allocation nor drop.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONNECTIONS: u64 = 1_000;

/// A connection that has done nothing: what kernels may lack is lacking, the rest is zero.
fn quiet() -> Snapshot {
    let mut value = serde_json::json!({
        "at": 0, "origin": "opened", "closed": false, "tier": "bpf",
        "id": {"boot_id": 7, "netns": 1, "cookie": 0, "start": 1},
        "tuple": {"local": "10.0.0.1:1", "remote": "10.0.0.2:2"},
        "stats": {"state": "established", "ca_state": "open"},
    });
    loop {
        let error = match Snapshot::deserialize(&value) {
            Ok(snapshot) => return snapshot,
            Err(error) => error.to_string(),
        };
        let field = error.split('`').nth(1).unwrap();
        value["stats"][field] = 0.into();
    }
}

#[test]
fn known_connections_without_problems_cost_no_allocation() {
    let second = |n: u64| MonoNanos(1_000_000_000 * n);
    let mut agent = ScriptedAgent::new(10, second(0));
    let mut snapshots = vec![quiet(); CONNECTIONS as usize];
    let mut poll = |n: u64| {
        for (cookie, snapshot) in (0..).zip(&mut snapshots) {
            snapshot.id.cookie = cookie;
            snapshot.at = second(n);
            snapshot.stats.bytes_acked += 1_000;
        }
        let before = ALLOCATIONS.with(Cell::get);
        let problems = agent.poll(second(n), WallMicros(n as i64 * 1_000_000), &snapshots);
        assert_eq!(problems, 0);
        ALLOCATIONS.with(Cell::get) - before
    };
    assert!(poll(1) > 0, "the first poll meets them");
    for n in 2..10 {
        assert_eq!(poll(n), 0, "poll {n}");
    }
}
