// SPDX-License-Identifier: Apache-2.0
//! What a static library without the standard library needs: memory and a way to end.
#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_void};
use core::panic::PanicInfo;

unsafe extern "C" {
    fn slowpath_alloc(size: usize, align: usize) -> *mut c_void;
    fn slowpath_dealloc(memory: *mut c_void, size: usize, align: usize);
    fn slowpath_panic(file: *const c_char, length: usize, line: u32);
}

/// The caller's memory.
struct Given;

// SAFETY: `slowpath_alloc` gives null or memory of that size and alignment that no one else
// has until `slowpath_dealloc`: the header asks for that.
unsafe impl GlobalAlloc for Given {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment may be asked for.
        unsafe { slowpath_alloc(layout.size(), layout.align()).cast() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: it came from `alloc` with that layout.
        unsafe { slowpath_dealloc(memory.cast(), layout.size(), layout.align()) }
    }
}

#[global_allocator]
static GIVEN: Given = Given;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    loop {
        // SAFETY: the text is valid for the call. It does not return; if it does all the
        // same, it is called again.
        unsafe { slowpath_panic(file.as_ptr().cast(), file.len(), line) }
    }
}
