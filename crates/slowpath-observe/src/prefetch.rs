// SPDX-License-Identifier: Apache-2.0
//! Memory that is needed soon.

use std::ops::Range;
use std::ptr;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Has the processor fetch the cache line that lies there.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Has the processor fetch a part of a value, in bytes from the value's beginning; an empty part is its
/// first line.
#[inline]
pub fn prefetch_part<T>(value: &T, part: Range<usize>) {
    let start = ptr::from_ref(value).cast::<u8>();
    for line in part.clone().step_by(LINE) {
        prefetch(start.wrapping_add(line));
    }
    prefetch(start.wrapping_add(part.end.max(1) - 1));
}
