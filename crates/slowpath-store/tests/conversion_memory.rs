// SPDX-License-Identifier: Apache-2.0
//! What a conversion holds in memory is bounded by the spool's size.
//!
//! The allocator counts, so the figures are the same in every run. What zstd allocates for a
//! page in C is not among them.

mod records;

use records::{BOOT, MIDNIGHT, Random};
use slowpath_model::{ProblemInterval, ProblemSet, WallMicros};
use slowpath_store::{HostIdentity, IntervalFilter, LogReader, LogWriter, Options, TimeRange};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist while bytes are copied; large ones are moved by the page tables.
        grew(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONNECTIONS: u64 = 400;

/// A quarter of a segment's usual size.
const SPOOL: usize = 4 << 20;

/// Beside the spool itself: its rows, packed in at most as many bytes, in vectors that double as
/// they grow; and one column's pages with what the library keeps of them.
const BOUND: usize = 4 * SPOOL;

/// An interval with one problem, as most have, of another connection than the one before.
fn interval(number: u64) -> ProblemInterval {
    let end = WallMicros(MIDNIGHT + (number / CONNECTIONS) as i64 * 500_000);
    let mut interval = Random(number + 1).interval(end);
    interval.connection.cookie = number % CONNECTIONS;
    interval.findings.truncate(1);
    interval.unmeasured = ProblemSet::EMPTY;
    interval
}

#[test]
fn a_conversion_takes_no_more_than_four_times_its_spool() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    };
    let options = Options {
        segment_bytes: u64::MAX,
        sync_every: None,
        batch_age: Duration::from_millis(1),
        ..Options::default()
    };
    let mut log = LogWriter::open(dir.path(), host, options).unwrap();
    log.tick(WallMicros(MIDNIGHT));
    let mut count = 0;
    while log.status().spool_bytes < SPOOL as u64 {
        for _ in 0..1_000 {
            log.problem(&interval(count));
            count += 1;
        }
        assert!(log.sync());
    }
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let status = log.close();
    let taken = PEAK.load(Ordering::Relaxed) - before;
    assert_eq!(status.last_error, None);
    assert_eq!(status.segments_converted, 1);
    assert!(taken <= BOUND, "{taken} bytes for {count} intervals");
    // All of it was the same log.
    let read = LogReader::open(dir.path())
        .unwrap()
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    assert_eq!(read.report.unreadable, []);
    assert_eq!(read.rows.len() as u64, status.rows_converted);
}
