// SPDX-License-Identifier: Apache-2.0
//! As much of io_uring(7) as an actor needs: one operation at a time, waited for.

use crate::calls::check;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers of include/uapi/linux/io_uring.h.
const OP_ACCEPT: u8 = 13;
const OP_CONNECT: u8 = 16;
const SQE_ASYNC: u8 = 1 << 4;
const ENTER_GETEVENTS: u32 = 1;
const REGISTER_FILES: u32 = 2;
const SETUP_SQPOLL: u32 = 1 << 1;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const FEAT_SINGLE_MMAP: u32 = 1;
const OFF_RING: i64 = 0;
const OFF_ENTRIES: i64 = 0x1000_0000;

/// `struct io_sqring_offsets`; that of the completion queue has `cqes` where this has
/// `dropped`.
#[derive(Default)]
#[repr(C)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags_or_overflow: u32,
    dropped_or_cqes: u32,
    array_or_flags: u32,
    reserved: u32,
    user: u64,
}

/// `struct io_uring_params`.
#[derive(Default)]
#[repr(C)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    submissions: Offsets,
    completions: Offsets,
}

/// `struct io_uring_sqe`.
#[derive(Default)]
#[repr(C)]
struct Entry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    op_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    file_index: u32,
    rest: [u64; 2],
}

/// Who carries an operation out.
#[derive(Clone, Copy, PartialEq)]
pub enum Executor {
    /// The caller, in io_uring_enter(2).
    Caller,
    /// A worker thread of the ring.
    Worker,
    /// The ring's thread that polls for submissions.
    Poller,
}

impl Executor {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "caller" => Some(Executor::Caller),
            "worker" => Some(Executor::Worker),
            "poller" => Some(Executor::Poller),
            _ => None,
        }
    }
}

/// A ring. It is never closed: what is registered with it stays.
struct Ring {
    fd: i32,
    ring: *mut u8,
    entries: *mut Entry,
    parameters: Parameters,
}

impl Ring {
    fn new(flags: u32) -> io::Result<Self> {
        let mut parameters = Parameters {
            flags,
            ..Parameters::default()
        };
        let setup = libc::SYS_io_uring_setup;
        // SAFETY: the kernel fills the parameters.
        let fd = check(unsafe { libc::syscall(setup, 1, &raw mut parameters) })? as i32;
        if parameters.features & FEAT_SINGLE_MMAP == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let map = |length: usize, at: i64| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let none = std::ptr::null_mut();
            // SAFETY: a new mapping of the ring's memory.
            let mapped = unsafe { libc::mmap(none, length, protection, libc::MAP_SHARED, fd, at) };
            if mapped == libc::MAP_FAILED {
                Err(io::Error::last_os_error())
            } else {
                Ok(mapped.cast::<u8>())
            }
        };
        // Both queues of one entry fit in one page.
        let ring = map(4_096, OFF_RING)?;
        let entries = map(size_of::<Entry>(), OFF_ENTRIES)?.cast();
        Ok(Ring {
            fd,
            ring,
            entries,
            parameters,
        })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's own offsets, of words within the mapped page.
        unsafe { AtomicU32::from_ptr(self.ring.add(offset as usize).cast()) }
    }

    /// Carries out one operation and gives its result.
    fn run(&self, entry: Entry) -> io::Result<i64> {
        let (to, from) = (&self.parameters.submissions, &self.parameters.completions);
        let tail = self.word(to.tail).load(Ordering::Relaxed);
        // SAFETY: the only entry, which the kernel does not read before the tail moves.
        unsafe { self.entries.write(entry) };
        self.word(to.array_or_flags).store(0, Ordering::Relaxed);
        self.word(to.tail).store(tail + 1, Ordering::Release);
        let flags = ENTER_GETEVENTS | ENTER_SQ_WAKEUP;
        let none = std::ptr::null::<u8>();
        let enter = libc::SYS_io_uring_enter;
        let head = self.word(from.head).load(Ordering::Relaxed);
        while self.word(from.tail).load(Ordering::Acquire) == head {
            // SAFETY: no signal mask.
            check(unsafe { libc::syscall(enter, self.fd, 1, 1, flags, none, 0) })?;
        }
        // A completion is a user's number, a result and flags.
        let mask = self.word(from.mask).load(Ordering::Relaxed);
        let at = from.dropped_or_cqes + (head & mask) * 16 + 8;
        let result = self.word(at).load(Ordering::Relaxed) as i32;
        self.word(from.head).store(head + 1, Ordering::Release);
        if result < 0 {
            Err(io::Error::from_raw_os_error(-result))
        } else {
            Ok(result.into())
        }
    }

    fn register(&self, fd: i32) -> io::Result<i64> {
        let register = libc::SYS_io_uring_register;
        let files = [fd];
        // SAFETY: one descriptor.
        check(unsafe { libc::syscall(register, self.fd, REGISTER_FILES, files.as_ptr(), 1) })
    }
}

/// Connects the socket.
pub fn connect(fd: i32, to: &libc::sockaddr_in, by: Executor) -> io::Result<i64> {
    let ring = Ring::new(if by == Executor::Poller {
        SETUP_SQPOLL
    } else {
        0
    })?;
    ring.run(Entry {
        opcode: OP_CONNECT,
        flags: if by == Executor::Worker { SQE_ASYNC } else { 0 },
        fd,
        offset: size_of::<libc::sockaddr_in>() as u64,
        address: &raw const *to as u64,
        ..Entry::default()
    })
}

/// Accepts a connection: a descriptor, or with `fixed` a file of the ring's only.
pub fn accept(listener: i32, fixed: bool) -> io::Result<i64> {
    let ring = Ring::new(0)?;
    if fixed {
        ring.register(-1)?;
    }
    ring.run(Entry {
        opcode: OP_ACCEPT,
        fd: listener,
        // The place in the ring's table, from 1.
        file_index: fixed.into(),
        ..Entry::default()
    })
}

/// Leaves the socket to a ring only.
pub fn keep(fd: i32) -> io::Result<i64> {
    Ring::new(0)?.register(fd)?;
    // SAFETY: the actor's own descriptor number.
    check(unsafe { libc::close(fd) }.into())
}
