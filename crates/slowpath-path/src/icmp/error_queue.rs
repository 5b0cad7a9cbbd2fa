// SPDX-License-Identifier: Apache-2.0
//! ICMP errors about one UDP socket, from its error queue (IP_RECVERR, ip(7)): no privilege, but no quoted IP header.

use super::parse::{ErrorKind, kind4, kind6};
use crate::socket::{Message, RX_SOFTWARE, SOFTWARE, software_stamp};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6` of linux/errqueue.h.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
/// Octets of sock_extended_err, after which the reporter's address follows.
const EXTENDED_ERROR: usize = 16;

/// An error about a packet of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// The router or host that reports.
    pub reporter: IpAddr,
    /// What it reports.
    pub kind: ErrorKind,
    /// Where the packet was to go.
    pub destination: Option<SocketAddr>,
    /// The kernel's clock at the error's arrival, ns since 1970; `None`: the kernel gave no stamp.
    pub stamp: Option<i64>,
    /// So many octets of the packet's own payload were quoted: they are in the buffer.
    pub quoted: usize,
}

/// The error queue of a UDP socket. With it a call of send may return an earlier packet's error: send again.
#[derive(Clone, Copy, Debug)]
pub struct ErrorQueue<'s> {
    socket: BorrowedFd<'s>,
}

impl<'s> ErrorQueue<'s> {
    /// Has the kernel queue errors about what the socket sends; `stamps`: and stamp them. A socket that has asked for
    /// stamps itself needs no second asking, which would undo its own.
    ///
    /// # Errors
    /// The kernel refuses an option.
    pub fn of(socket: &'s impl AsFd, v4: bool, stamps: bool) -> io::Result<Self> {
        let this = ErrorQueue {
            socket: socket.as_fd(),
        };
        match v4 {
            true => this.set(libc::IPPROTO_IP, libc::IP_RECVERR, 1)?,
            false => this.set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?,
        }
        if stamps {
            let flags = RX_SOFTWARE | SOFTWARE;
            this.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)?;
        }
        Ok(this)
    }

    /// That of a socket on which [`of`](Self::of) has been called.
    #[must_use]
    pub fn opened(socket: &'s impl AsFd) -> Self {
        ErrorQueue {
            socket: socket.as_fd(),
        }
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the value is a live int and its size is given.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes the next error, with what it quotes of the packet's payload; `None`: there is none now. Send stamps in the
    /// queue are passed over. Never waits.
    ///
    /// # Errors
    /// The socket fails.
    pub fn take(&self, buffer: &mut [u8]) -> io::Result<Option<QueuedError>> {
        loop {
            let mut message = Message::new(buffer);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            let quoted = match message.receive(&self.socket, flags) {
                Ok(quoted) => quoted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            let (mut stamp, mut report) = (None, None);
            message.each_control(|level, kind, data| match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => stamp = software_stamp(data),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    report = extended_error(data);
                }
                _ => {}
            });
            if let Some((kind, reporter)) = report {
                return Ok(Some(QueuedError {
                    reporter,
                    kind,
                    destination: message.from(),
                    stamp,
                    quoted,
                }));
            }
        }
    }
}

/// sock_extended_err: errno, then origin, type, code, pad, info, data; then a socket address.
fn extended_error(data: &[u8]) -> Option<(ErrorKind, IpAddr)> {
    let (origin, kind, code) = (*data.get(4)?, *data.get(5)?, *data.get(6)?);
    let info = u32::from_ne_bytes(data.get(8..12)?.try_into().ok()?);
    let address = data.get(EXTENDED_ERROR..)?;
    match origin {
        ORIGIN_ICMP => {
            let octets: [u8; 4] = address.get(4..8)?.try_into().ok()?;
            Some((kind4(kind, code, info)?, Ipv4Addr::from(octets).into()))
        }
        ORIGIN_ICMP6 => {
            let octets: [u8; 16] = address.get(8..24)?.try_into().ok()?;
            Some((kind6(kind, code, info)?, Ipv6Addr::from(octets).into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn errors_on_the_queue_carry_the_kernels_time_of_arrival_and_the_payload() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let Ok(socket) = UdpSocket::bind((address, 0)) else {
                println!(
                    "SKIPPED errors_on_the_queue_carry_the_kernels_time_of_arrival_and_the_payload: no {address} here"
                );
                continue;
            };
            let queue = ErrorQueue::of(&socket, address.is_ipv4(), true).expect("options");
            let closed = UdpSocket::bind((address, 0)).and_then(|socket| socket.local_addr());
            let closed = closed.expect("a port");
            let mut buffer = [0; 2048];
            // Linux limits the errors of a host: one a second after the first six. The first ones may have no stamp.
            let error = loop {
                // The error of the packet before may be returned here.
                while socket.send_to(b"0123456789", closed).is_err() {}
                let mut poll = libc::pollfd {
                    fd: socket.as_raw_fd(),
                    events: 0,
                    revents: 0,
                };
                // SAFETY: one live pollfd.
                unsafe { libc::poll(&mut poll, 1, 2_000) };
                match queue.take(&mut buffer).expect("a socket") {
                    Some(error) if error.stamp.is_some() => break error,
                    _ => {}
                }
            };
            assert_eq!(error.reporter, address);
            assert_eq!(error.kind, ErrorKind::PortUnreachable);
            assert_eq!(error.destination, Some(closed));
            assert_eq!(&buffer[..error.quoted], b"0123456789");
            assert_eq!(extended_error(&[0; 15]), None);
        }
    }
}
