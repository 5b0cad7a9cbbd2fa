// SPDX-License-Identifier: Apache-2.0
//! Nothing is allocated while nothing is wrong.

mod timeline;
use slowpath_diagnose::{Thresholds, Totals, classify};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use timeline::*;

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

#[test]
fn a_connection_without_problems_costs_no_allocation() {
    let t = Timeline::new().then(|s| s.bytes_received += 1);
    let (thresholds, mut totals) = (Thresholds::default(), Totals::default());
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..1000 {
        totals.add(&classify(&t.before, &t.after, Some(ms(1)), &thresholds));
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    assert_eq!(totals.polls, 1000);
}
