// SPDX-License-Identifier: Apache-2.0
//! The raw sockets of traces, in the network namespace of the thread that opens them.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};
use slowpath_observe::namespaces::own_inode;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

/// `ICMP_FILTER` (include/uapi/linux/icmp.h): types whose bit is set are not received.
const ICMP_FILTER: libc::c_int = 1;
/// All but destination unreachable (3) and time exceeded (11).
static UNWANTED: u32 = !(1 << 3 | 1 << 11);
/// An IP header with options, an ICMP header and what a router quotes: 576 bytes at most (RFC 1812
/// section 4.3.2.3).
const LARGEST: usize = 1_024;
/// Messages that one poll takes; the kernel's buffer holds the others.
const MOST: usize = 1_024;

/// Sends probes and receives what routers say of them.
#[derive(Debug)]
pub(crate) struct PathSocket {
    probes: OwnedFd,
    answers: OwnedFd,
    /// Inode number of their network namespace.
    pub(super) netns: u32,
}

impl PathSocket {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or if `/proc` does not show the namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let raw = |protocol| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(protocol))
        };
        // This protocol is sent with an IP header of one's own, and never received (raw(7)).
        let probes = raw(ipproto::RAW)?;
        let answers = raw(ipproto::ICMP)?;
        // SAFETY: the kernel reads four bytes of `UNWANTED`.
        let filtered = unsafe {
            libc::setsockopt(
                answers.as_raw_fd(),
                libc::SOL_RAW,
                ICMP_FILTER,
                (&raw const UNWANTED).cast(),
                size_of::<u32>() as libc::socklen_t,
            )
        };
        if filtered != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PathSocket {
            probes,
            answers,
            netns: own_inode()?,
        })
    }

    /// Sends a probe; one that cannot be sent has no answer.
    pub(super) fn send(&self, probe: &[u8], to: SocketAddr) {
        if let SocketAddr::V4(to) = to {
            let to = SocketAddrV4::new(*to.ip(), 0);
            let _ = sendto(&self.probes, probe, SendFlags::empty(), &to);
        }
    }

    /// Gives each message that has come to `each`, its IP header included.
    pub(super) fn receive(&self, mut each: impl FnMut(&[u8])) {
        let mut buffer = [0; LARGEST];
        for _ in 0..MOST {
            match recv(&self.answers, &mut buffer, RecvFlags::empty()) {
                Ok((_, length)) => each(&buffer[..length.min(LARGEST)]),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }
}
