// SPDX-License-Identifier: Apache-2.0
//! Large pages for what is large and visited in no order.

/// Asks the kernel for huge pages behind a vector's memory (`MADV_HUGEPAGE` of madvise(2)): a
/// page fault for 2 MiB instead of one for 4 KiB, and fewer misses of the address
/// translation's cache. Only whole pages inside are asked for; a kernel that has none changes nothing.
pub(super) fn advise<T>(memory: &Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let start = memory.as_ptr() as usize;
        let end = start + memory.capacity() * size_of::<T>();
        let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first < last {
            // SAFETY: advice about memory that the vector owns changes nothing that a program
            // can see.
            unsafe {
                libc::madvise(
                    first as *mut libc::c_void,
                    last - first,
                    libc::MADV_HUGEPAGE,
                );
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}
