// SPDX-License-Identifier: Apache-2.0
//! The first process of a network's process namespace. When it ends, the kernel ends every
//! process there; it ends when the emulator does, however that ends.
//!
//! It is a child of the emulator that does nothing but wait for the end of a pipe whose
//! other end only the emulator has.

use super::system::checked;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};

#[derive(Debug)]
pub(super) struct Holder {
    pid: libc::pid_t,
    /// Its process namespace.
    pub namespace: File,
    /// Of a pipe: closed, it ends.
    alive: Option<io::PipeWriter>,
}

impl Holder {
    pub fn start() -> io::Result<Self> {
        let (waiting, alive) = io::pipe()?;
        let waiting = waiting.into_raw_fd();
        let flags = (libc::CLONE_NEWPID | libc::SIGCHLD) as libc::c_ulong;
        // SAFETY: without CLONE_VM this is a fork: the child has its own memory, and calls
        // nothing that is not async-signal-safe.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match pid {
            -1 => {
                let error = io::Error::last_os_error();
                // SAFETY: it is ours.
                unsafe { libc::close(waiting) };
                Err(error)
            }
            0 => wait_for_the_end(waiting),
            pid => {
                // SAFETY: it is ours, the child has its own.
                unsafe { libc::close(waiting) };
                // A process id fits.
                let pid = pid as libc::pid_t;
                let namespace = File::open(format!("/proc/{pid}/ns/pid"))?;
                Ok(Holder {
                    pid,
                    namespace,
                    alive: Some(alive),
                })
            }
        }
    }
}

/// The child's life.
fn wait_for_the_end(pipe: libc::c_int) -> ! {
    // SAFETY: these calls are async-signal-safe and take integers, or pointers to what
    // outlives them. The pipe takes the place of standard input and all else is closed: the
    // child keeps nothing of the parent's open.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"slowpath-lab".as_ptr());
        // Orphans of this namespace become its children: no process waits for them.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1u32, u32::MAX, 0u32);
        let mut byte = 0u8;
        loop {
            let read = libc::read(0, (&raw mut byte).cast(), 1);
            if read == 0 || (read < 0 && *libc::__errno_location() != libc::EINTR) {
                libc::_exit(0);
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.alive = None;
        let pid = self.pid;
        let reap = move || {
            let mut status = 0;
            // SAFETY: the process is our child, and the kernel writes one integer.
            while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        };
        // On a thread, as it ends only when the last process of its namespace has been waited
        // for, and for some the caller waits. Without a thread it stays a zombie until this
        // process ends.
        let thread = std::thread::Builder::new().name("lab-holder".to_owned());
        let _ = thread.spawn(reap);
    }
}

/// A time namespace whose monotonic clocks are ahead by so many nanoseconds.
pub(super) fn time_namespace(ahead: i64) -> io::Result<File> {
    // Only a process of one thread may write its offsets: a child does.
    let (seconds, nanos) = (
        ahead.div_euclid(1_000_000_000),
        ahead.rem_euclid(1_000_000_000),
    );
    let offsets = format!("monotonic {seconds} {nanos}\nboottime {seconds} {nanos}\n");
    let (ready, reported) = io::pipe()?;
    let (release, go) = io::pipe()?;
    let fds = [reported.as_raw_fd(), release.as_raw_fd(), go.as_raw_fd()];
    // SAFETY: a fork; the child calls nothing that is not async-signal-safe.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD as libc::c_ulong, 0, 0, 0, 0) };
    if pid == 0 {
        set_offsets(offsets.as_bytes(), fds);
    }
    // SAFETY: the number is the result of a system call just made.
    let pid = checked(pid as libc::c_int)?;
    drop((reported, release));
    let outcome =
        read_outcome(ready).and_then(|()| File::open(format!("/proc/{pid}/ns/time_for_children")));
    drop(go);
    let mut status = 0;
    // SAFETY: the process is our child, and the kernel writes one integer.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    outcome
}

/// The child's answer: an error number, 0 for none.
fn read_outcome(mut ready: io::PipeReader) -> io::Result<()> {
    let mut number = [0; 4];
    io::Read::read_exact(&mut ready, &mut number)?;
    match i32::from_ne_bytes(number) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

fn set_offsets(offsets: &[u8], [reported, release, go]: [libc::c_int; 3]) -> ! {
    // SAFETY: async-signal-safe calls with integers and pointers to what outlives them.
    unsafe {
        libc::close(go);
        let mut problem = 0;
        if libc::unshare(CLONE_NEWTIME) == 0 {
            let file = libc::open(c"/proc/self/timens_offsets".as_ptr(), libc::O_WRONLY);
            if libc::write(file, offsets.as_ptr().cast(), offsets.len()) < 0 {
                problem = *libc::__errno_location();
            }
        } else {
            problem = *libc::__errno_location();
        }
        libc::write(reported, (&raw const problem).cast(), 4);
        // Until the parent has opened the namespace.
        let mut byte = 0u8;
        libc::read(release, (&raw mut byte).cast(), 1);
        libc::_exit(0);
    }
}

/// include/uapi/linux/sched.h.
pub(super) const CLONE_NEWTIME: libc::c_int = 0x80;
