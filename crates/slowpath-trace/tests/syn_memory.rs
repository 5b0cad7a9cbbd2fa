// SPDX-License-Identifier: Apache-2.0
//! What a connection that is only a SYN takes in memory.
//!
//! The allocator counts, so the figures are the same in every run.

mod flood;

use flood::Flood;
use slowpath_trace::engine::{Began, Follow, Options, run};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::{Segment, Timestamp};
use slowpath_trace::tcp::{self, Connection};
use slowpath_trace::verdict::{self, Trial};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn grew(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting uses atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: as above. Zeroed memory that is never touched takes none.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while bytes are copied.
        grew(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A connection on trial of which nothing is handed over: what waits to be taken by another thread
/// would be another amount in every run.
struct Quiet(Trial);

impl Follow for Quiet {
    type Report = ();

    fn segment(&mut self, segment: &Segment<'_>) {
        self.0.segment(segment);
    }

    fn silent_until(&mut self, time: Timestamp) {
        self.0.silent_until(time);
    }

    fn finish(self) {
        let judged = self.0.finish();
        assert_eq!(judged.report.packets(), 1);
    }
}

/// The most memory that the analysis of `syns` took at a time.
fn peak(syns: u32) -> usize {
    let options = Options {
        threads: 1,
        ..Options::default()
    };
    let inputs = Inputs::new(vec![Input::Stream(
        "a flood".to_owned(),
        Box::new(Flood::new(syns)),
    )]);
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let summary = run(
        inputs.expect("there is one"),
        &options,
        |first: &Segment<'_>, began| {
            assert_eq!(began, Began::Fresh);
            let connection = Connection::new(first, &tcp::Options::default());
            Quiet(Trial::of(connection, &verdict::Options::default()))
        },
        |_| {},
        |_| ControlFlow::Continue(()),
    )
    .expect("it reads");
    assert_eq!(summary.connections, u64::from(syns));
    assert_eq!(summary.evicted, 0);
    PEAK.load(Ordering::Relaxed) - before
}

/// Beside what any capture takes: both captures are longer than what is under way at a time.
#[test]
fn a_connection_that_is_only_a_syn_takes_300_bytes_at_most() {
    const FEW: u32 = 10_000;
    let base = peak(FEW);
    // Behind the doubling of a table, and before it.
    for many in [40_000, 66_000, 120_000] {
        let each = (peak(many) - base) as f64 / f64::from(many - FEW);
        println!("{each:.0} bytes a SYN, {many} SYNs");
        assert!(each <= 300.0, "{each} bytes a SYN, {many} SYNs");
        // The segment itself, which nothing may forget, and its addresses and ports.
        assert!(each > 80.0, "{each} bytes a SYN: nothing was counted");
    }
}
