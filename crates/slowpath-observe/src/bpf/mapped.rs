// SPDX-License-Identifier: Apache-2.0
//! BPF array maps mapped into this process: read and written without system calls.

use libbpf_rs::{MapCore, MapHandle};
use slowpath_layout::Mirror;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use zerocopy::FromBytes;

/// The values of a mapped array map.
pub(crate) struct Mapped<T> {
    base: NonNull<T>,
    entries: usize,
    _values: PhantomData<T>,
}

impl<T: Mirror + FromBytes + Copy> Mapped<T> {
    /// Maps `entries` values of an array map, whose values have to be as large as `T`.
    pub(crate) fn new(map: &MapHandle, entries: usize) -> io::Result<Self> {
        if map.value_size() as usize != size_of::<T>() {
            return Err(io::Error::other(format!(
                "struct {}: {} bytes in the map, {} in Rust",
                T::LAYOUT.name,
                map.value_size(),
                size_of::<T>()
            )));
        }
        let length = entries * size_of::<T>();
        // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?,
            entries,
            _values: PhantomData,
        })
    }

    /// A copy of value 0.
    pub(crate) fn first(&self) -> T {
        // SAFETY: there is at least one value; T is plain data, any bits are a value.
        unsafe { self.base.as_ptr().read_volatile() }
    }

    /// A copy of value `index`.
    pub(crate) fn get(&self, index: usize) -> Option<T> {
        // SAFETY: in bounds; T is plain data, any bits are a value.
        (index < self.entries).then(|| unsafe { self.base.as_ptr().add(index).read_volatile() })
    }

    /// The first `count` values, or all if there are fewer.
    ///
    /// # Safety
    /// The kernel must not write to them while the borrow lasts.
    pub(crate) unsafe fn values(&self, count: usize) -> &[T] {
        // SAFETY: in bounds; any bits are a value; the caller keeps the kernel away.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), count.min(self.entries)) }
    }

    /// Writes `values` from value `first` on; what does not fit is left out.
    pub(crate) fn write(&mut self, first: usize, values: &[T]) {
        let count = values.len().min(self.entries.saturating_sub(first));
        // SAFETY: in bounds; plain data.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.base.as_ptr().add(first), count);
        }
    }

    /// Writes to value 0 through the pointer that `change` is given.
    pub(crate) fn update(&mut self, change: impl FnOnce(*mut T)) {
        change(self.base.as_ptr());
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}
