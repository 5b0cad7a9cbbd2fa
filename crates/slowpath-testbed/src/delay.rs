// SPDX-License-Identifier: Apache-2.0
//! A delay line: two TAP devices and one thread that carries frames from one to the other
//! after a fixed time. Frames keep their order and none is dropped here; a device's own
//! queue (`txqueuelen` frames) drops when the thread falls behind.

use crate::offload::interface_request;
use crate::{Namespace, TestbedError};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs until dropped.
#[derive(Debug)]
pub(crate) struct DelayLine {
    stop: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl DelayLine {
    /// Makes `interface` in both namespaces and delays every frame by `one_way`.
    pub(crate) fn start(
        a: &Namespace,
        b: &Namespace,
        interface: &str,
        one_way: Duration,
    ) -> Result<Self, TestbedError> {
        let ends = [open_tap(a, interface)?, open_tap(b, interface)?];
        let failed = |source| TestbedError::Io {
            operation: "start the delay line of",
            object: interface.to_owned(),
            source,
        };
        let (stopped, stop) = io::pipe().map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name("delay-line".into())
            .spawn(move || carry(ends, stopped, one_way))
            .map_err(failed)?;
        Ok(DelayLine {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open_tap(namespace: &Namespace, interface: &str) -> Result<File, TestbedError> {
    let open = || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let mut request = interface_request(interface);
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(file)
    };
    namespace
        .run(open)?
        .map_err(TestbedError::io("make the TAP device", interface))
}

/// Frames under way in one direction, each with the time it is due.
type Pipeline = VecDeque<(Instant, Vec<u8>)>;

fn carry(mut ends: [File; 2], stopped: io::PipeReader, one_way: Duration) {
    // Only a late wake-up must not depend on the default slack of 50 us.
    // SAFETY: prctl with PR_SET_TIMERSLACK takes integers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000usize) };
    let mut buffer = vec![0; 65_536];
    let mut lines = [Pipeline::new(), Pipeline::new()];
    loop {
        for (from, line) in lines.iter_mut().enumerate() {
            while let Ok(length) = ends[from].read(&mut buffer) {
                line.push_back((Instant::now() + one_way, buffer[..length].to_vec()));
            }
            let now = Instant::now();
            while line.front().is_some_and(|(due, _)| *due <= now) {
                if let Some((_, frame)) = line.pop_front() {
                    // A device that is down drops what it is given.
                    let _ = ends[1 - from].write(&frame);
                }
            }
        }
        let next = lines.iter().filter_map(|l| l.front()).map(|f| f.0).min();
        if !wait(&ends, &stopped, next) {
            return;
        }
    }
}

/// Waits for a frame or until `due`; false once the other end of `stopped` is closed.
fn wait(ends: &[File; 2], stopped: &io::PipeReader, due: Option<Instant>) -> bool {
    let mut fds = [
        ends[0].as_raw_fd(),
        ends[1].as_raw_fd(),
        stopped.as_raw_fd(),
    ]
    .map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = due.map(|due| {
        let left = due.saturating_duration_since(Instant::now());
        libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(left.subsec_nanos()),
        }
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |t| t as *const _);
    // SAFETY: the descriptors, the timeout (or null) and the null signal mask are valid
    // for the call.
    unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            timeout,
            std::ptr::null(),
        )
    };
    fds[2].revents == 0
}
