// SPDX-License-Identifier: Apache-2.0
//! The netlink socket: one request at a time, answers handed out as they arrive.

use super::wire::{self, Content, Family, SocketId, SocketRecord, WireError};
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use slowpath_model::MonoNanos;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use thiserror::Error;

/// The kernel fills a buffer of up to 32 KiB a message batch (`netlink_recvmsg`), whatever
/// is offered; single messages are far smaller.
const BUFFER: usize = 64 * 1024;

/// A dump is answered by the kernel within the system call; a longer silence means that it
/// lost the request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a dump or lookup failed.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The request could not be sent.
    #[error("asking the kernel for TCP sockets over netlink: {0}; the next poll tries again")]
    Send(#[source] io::Error),
    /// The answer could not be received.
    #[error("reading TCP sockets from netlink: {0}; the next poll tries again")]
    Receive(#[source] io::Error),
    /// The kernel had no room for the answer (ENOBUFS, NLMSG_OVERRUN): sockets are missing.
    #[error("reading TCP sockets from netlink: the kernel dropped answers for want of memory")]
    Overrun,
    /// An answer was longer than the buffer (MSG_TRUNC).
    #[error("reading TCP sockets from netlink: an answer of {length} bytes exceeds {BUFFER}")]
    Truncated {
        /// The answer's length in bytes.
        length: usize,
    },
    /// The kernel refused (NLMSG_ERROR, or NLMSG_DONE with an error).
    #[error("dumping TCP sockets: the kernel answered: {0}")]
    Kernel(#[source] io::Error),
    /// The answer is not what the kernel would send.
    #[error("reading TCP sockets from netlink: {0}")]
    Malformed(#[from] WireError),
}

impl DumpError {
    /// Whether the kernel said that number, as an error of the request.
    fn is_errno(&self, errno: Errno) -> bool {
        matches!(self, DumpError::Kernel(e) if e.raw_os_error() == Some(errno.raw_os_error()))
    }

    /// Whether the kernel has no inet_diag for what was asked (module `tcp_diag` missing).
    pub(super) fn is_unsupported(&self) -> bool {
        self.is_errno(Errno::NOENT) || self.is_errno(Errno::OPNOTSUPP)
    }

    /// Whether the kernel has no such socket, or another one at its addresses.
    fn is_gone(&self) -> bool {
        self.is_errno(Errno::NOENT) || self.is_errno(Errno::STALE)
    }
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DumpEnd {
    /// Whether the kernel flagged it NLM_F_DUMP_INTR.
    pub interrupted: bool,
    /// Messages that name no socket this tier understands.
    pub undecodable: u64,
}

/// A NETLINK_SOCK_DIAG socket, bound to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct DiagSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl DiagSocket {
    /// Opens a socket.
    pub fn open() -> io::Result<Self> {
        Ok(DiagSocket {
            fd: open(SOCK_DIAG)?,
            buffer: vec![0; BUFFER],
            sequence: 0,
        })
    }

    /// Asks for nothing, to see whether the kernel would answer.
    pub fn probe(&mut self) -> Result<(), DumpError> {
        let sequence = self.next_sequence();
        self.exchange(&wire::probe_request(Family::V4, sequence), true, |_, _| {})
            .map(|_| ())
    }

    /// Hands every socket of a family to `each`, with the time its batch was received.
    pub fn dump(
        &mut self,
        family: Family,
        each: impl FnMut(&SocketRecord, MonoNanos),
    ) -> Result<DumpEnd, DumpError> {
        let sequence = self.next_sequence();
        self.exchange(&wire::dump_request(family, sequence), true, each)
    }

    /// Hands every socket of a family in one of `states` (a bit each) to `each`.
    pub fn dump_states(
        &mut self,
        family: Family,
        states: u32,
        each: impl FnMut(&SocketRecord, MonoNanos),
    ) -> Result<DumpEnd, DumpError> {
        let sequence = self.next_sequence();
        let request = wire::states_request(family, states, sequence);
        self.exchange(&request, true, each)
    }

    /// Hands one socket to `each` if it still exists with the same cookie.
    pub fn lookup(
        &mut self,
        id: &SocketId,
        each: impl FnMut(&SocketRecord, MonoNanos),
    ) -> Result<(), DumpError> {
        let sequence = self.next_sequence();
        match self.exchange(&wire::lookup_request(id, sequence), false, each) {
            Ok(_) => Ok(()),
            Err(error) if error.is_gone() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// After a failed exchange late answers to it may still come: they carry its sequence
    /// number and are passed over.
    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Hands every socket of a family to `each` as the kernel gives it; `each` says whether
    /// it could be decoded.
    pub fn dump_raw(
        &mut self,
        family: Family,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<DumpEnd, DumpError> {
        let sequence = self.next_sequence();
        let request = wire::dump_request(family, sequence);
        self.exchange_raw(&request, true, |payload, _| each(payload))
    }

    fn exchange(
        &mut self,
        request: &[u8],
        many: bool,
        mut each: impl FnMut(&SocketRecord, MonoNanos),
    ) -> Result<DumpEnd, DumpError> {
        self.exchange_raw(request, many, |payload, received| {
            SocketRecord::read(payload)
                .map(|record| each(&record, received))
                .is_ok()
        })
    }

    fn exchange_raw(
        &mut self,
        request: &[u8],
        many: bool,
        mut each: impl FnMut(&[u8], MonoNanos) -> bool,
    ) -> Result<DumpEnd, DumpError> {
        rustix::net::send(&self.fd, request, SendFlags::empty())
            .map_err(|e| DumpError::Send(e.into()))?;
        let mut end = DumpEnd::default();
        loop {
            let (batch, received) = receive(&self.fd, &mut self.buffer)?;
            for message in wire::messages(batch) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                end.interrupted |= message.interrupted();
                match message.content()? {
                    Content::Socket(payload) => {
                        end.undecodable += u64::from(!each(payload, received));
                        if !many {
                            return Ok(end);
                        }
                    }
                    Content::Done(None) | Content::Acknowledged => return Ok(end),
                    Content::Done(Some(errno)) | Content::Error(errno) => {
                        return Err(DumpError::Kernel(io::Error::from_raw_os_error(errno)));
                    }
                    Content::Overrun => return Err(DumpError::Overrun),
                    Content::Other => {}
                }
            }
        }
    }
}

/// Opens a netlink socket to the kernel.
pub(crate) fn open(protocol: Protocol) -> io::Result<OwnedFd> {
    let fd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )?;
    set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE))?;
    const KERNEL: SocketAddrNetlink = SocketAddrNetlink::new(0, 0);
    rustix::net::connect(&fd, &KERNEL)?;
    Ok(fd)
}

/// One batch, and when it came.
pub(crate) fn receive<'a>(
    fd: &OwnedFd,
    buffer: &'a mut [u8],
) -> Result<(&'a [u8], MonoNanos), DumpError> {
    let length = loop {
        // With MSG_TRUNC the length is the message's own, even if the buffer is shorter.
        match rustix::net::recvfrom(fd, &mut *buffer, RecvFlags::TRUNC) {
            Ok((_, length, sender)) => {
                if sender.is_some_and(from_kernel) {
                    break length;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::NOBUFS) => return Err(DumpError::Overrun),
            Err(error) => return Err(DumpError::Receive(error.into())),
        }
    };
    let received = crate::monotonic();
    match buffer.get(..length) {
        Some(batch) => Ok((batch, received)),
        None => Err(DumpError::Truncated { length }),
    }
}

/// Whether the sender is the kernel (port 0) and no process.
fn from_kernel(sender: rustix::net::SocketAddrAny) -> bool {
    SocketAddrNetlink::try_from(sender).is_ok_and(|address| address.pid() == 0)
}
