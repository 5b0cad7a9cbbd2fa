// SPDX-License-Identifier: Apache-2.0
//! BPF iterators: opened, and read to their end.

use super::PollError;
use libbpf_rs::{Iter, Link};
use std::io::{self, Read};
use zerocopy::FromBytes;

/// Opens the iterator behind `link`; `what` is what it walks, for errors.
pub(crate) fn open(link: &Link, what: &'static str) -> Result<Iter, PollError> {
    Iter::new(link).map_err(|source| PollError::Open { what, source })
}

/// Reads an iterator to its end.
pub(crate) fn drain(iterator: &mut Iter) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    each_part(iterator, |part| bytes.extend_from_slice(part))?;
    Ok(bytes)
}

/// Gives each record of an iterator to `each`; memory is that of one read.
pub(crate) fn each_record<T: FromBytes>(
    iterator: &mut Iter,
    mut each: impl FnMut(T),
) -> io::Result<()> {
    let mut begun = Vec::new();
    each_part(iterator, |part| {
        begun.extend_from_slice(part);
        let whole = begun.len() - begun.len() % size_of::<T>();
        let records = begun[..whole].chunks_exact(size_of::<T>());
        records
            .filter_map(|r| T::read_from_bytes(r).ok())
            .for_each(&mut each);
        begun.drain(..whole);
    })
}

/// EAGAIN: the kernel pauses after a million objects (bpf_seq_read).
pub(crate) fn may_go_on(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

fn each_part(iterator: &mut Iter, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = [0; 32 * 1024];
    loop {
        match iterator.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => each(&buffer[..n]),
            Err(e) if may_go_on(&e) => {}
            Err(e) => return Err(e),
        }
    }
}
