// SPDX-License-Identifier: Apache-2.0
//! A flow's UDP socket: it sends probes of any time to live and size, and takes the ICMP errors about them from its error
//! queue, for which no privilege is needed.

use super::plan::{Probe, Reply, ReplyKind};
use crate::icmp::{ErrorKind, ErrorQueue};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// What each payload begins with; the probe's number follows.
const MAGIC: [u8; 4] = *b"slow";
/// Magic and number.
const HEAD: usize = 8;
/// Payload of a small probe: a router may quote it all.
const SMALL: usize = 24;
/// Headers before the payload: IPv4 or IPv6 without options, and UDP.
pub(super) const V4_HEADERS: usize = 28;
pub(super) const V6_HEADERS: usize = 48;
/// Longer answers are cut.
const BUFFER: usize = 2_048;
/// `IPV6_FLOWINFO_SEND` of linux/in6.h: with it an error carries the quoted packet's traffic class and flow label
/// (`ipv6_recv_error`). IPv4 has no such thing.
const FLOWINFO_SEND: libc::c_int = 33;

/// A probe under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    pub(super) probe: Probe,
    /// CLOCK_REALTIME when it was given to the kernel, ns.
    sent: i64,
    /// CLOCK_MONOTONIC until when an answer counts, ns.
    pub(super) until: i64,
    number: u32,
}

/// Something that came to the socket.
struct Answer {
    reply: Reply,
    /// The kernel's clock at its arrival, ns since 1970.
    stamp: Option<i64>,
    /// The number of the probe, if that was quoted.
    number: Option<u32>,
}

/// The socket.
#[derive(Debug)]
pub(super) struct Flow {
    socket: Socket,
    pub(super) port: u16,
    target: SocketAddr,
    pub(super) under_way: Option<UnderWay>,
    number: u32,
    /// TTL and TOS as they are set.
    set: (u8, u8),
}

/// CLOCK_REALTIME, ns: what the kernel stamps with.
fn realtime() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

impl Flow {
    /// Opens it on a port that the kernel chooses.
    pub(super) fn open(source: Option<IpAddr>, target: SocketAddr) -> io::Result<Self> {
        let v4 = target.is_ipv4();
        let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        let any = if v4 {
            IpAddr::from([0u8; 4])
        } else {
            IpAddr::from([0u16; 8])
        };
        socket.set_nonblocking(true)?;
        never_fragment(&socket, v4)?;
        ErrorQueue::of(&socket, v4, true)?;
        if !v4 {
            set(&socket, libc::IPPROTO_IPV6, FLOWINFO_SEND, 1)?;
        }
        let bind = SocketAddr::new(source.unwrap_or(any), 0);
        socket.bind(&SockAddr::from(bind))?;
        let local = socket.local_addr()?.as_socket();
        Ok(Flow {
            port: local.map_or(0, |local| local.port()),
            socket,
            target,
            under_way: None,
            number: 0,
            set: (0, 0),
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn prepare(&mut self, ttl: u8, tos: u8) -> io::Result<()> {
        if self.set == (ttl, tos) {
            return Ok(());
        }
        if self.target.is_ipv4() {
            self.socket.set_ttl_v4(u32::from(ttl))?;
            self.socket.set_tos_v4(u32::from(tos))?;
        } else {
            self.socket.set_unicast_hops_v6(u32::from(ttl))?;
            self.socket.set_tclass_v6(u32::from(tos))?;
        }
        self.set = (ttl, tos);
        Ok(())
    }

    /// Sends a probe, for whose answer one may wait until `until`.
    pub(super) fn send(&mut self, probe: Probe, tos: u8, until: i64) -> io::Result<()> {
        // An answer that came too late is not this one's.
        while self.take()?.is_some() {}
        self.prepare(probe.ttl, tos)?;
        let headers = match self.target.is_ipv4() {
            true => V4_HEADERS,
            false => V6_HEADERS,
        };
        let length = probe.size.map_or(SMALL, |size| {
            usize::from(size).saturating_sub(headers).max(HEAD)
        });
        self.number = self.number.wrapping_add(1);
        let mut payload = vec![0; length];
        payload[..4].copy_from_slice(&MAGIC);
        payload[4..HEAD].copy_from_slice(&self.number.to_be_bytes());
        self.under_way = Some(UnderWay {
            probe,
            sent: realtime(),
            until,
            number: self.number,
        });
        let to = SockAddr::from(self.target);
        // A pending ICMP error is returned once instead of sending; so are several.
        let mut result = Ok(0);
        for _ in 0..8 {
            result = self.socket.send_to(&payload, &to);
            match &result {
                Err(error) if is_pending(error) => {}
                _ => break,
            }
        }
        match result {
            Ok(_) => Ok(()),
            // As good as lost; so is what is larger than the first link takes. Errors that stay are this host's own.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOBUFS | libc::EMSGSIZE | libc::ECONNREFUSED)
                ) =>
            {
                Ok(())
            }
            Err(error) => {
                self.under_way = None;
                Err(error)
            }
        }
    }

    /// The answer to the probe under way, if it has come.
    pub(super) fn answer(&mut self) -> io::Result<Option<(Probe, Reply)>> {
        while let Some(answer) = self.take()? {
            let fits = |it: &UnderWay| answer.number.is_none_or(|number| number == it.number);
            let Some(under_way) = self.under_way.filter(fits) else {
                continue;
            };
            self.under_way = None;
            let rtt = answer.stamp.unwrap_or_else(realtime) - under_way.sent;
            let rtt = u64::try_from(rtt).ok();
            let reply = Reply {
                rtt,
                ..answer.reply
            };
            return Ok(Some((under_way.probe, reply)));
        }
        Ok(None)
    }

    /// Takes an error, or a datagram of the target.
    fn take(&mut self) -> io::Result<Option<Answer>> {
        let mut buffer = [0; BUFFER];
        let queue = ErrorQueue::opened(&self.socket);
        if let Some(error) = queue.take(&mut buffer)? {
            let quoted = buffer.get(..error.quoted.min(BUFFER)).unwrap_or(&[]);
            return Ok(Some(Answer {
                reply: Reply {
                    from: error.reporter,
                    kind: reply_kind(error.kind, error.reporter == self.target.ip()),
                    rtt: None,
                    tos: quoted_class(error.destination),
                    mpls: Vec::new(),
                },
                stamp: error.stamp,
                number: number(quoted),
            }));
        }
        let mut space = [std::mem::MaybeUninit::uninit(); 1];
        loop {
            match self.socket.recv_from(&mut space) {
                Ok((_, from)) if from.as_socket() == Some(self.target) => {
                    return Ok(Some(Answer {
                        reply: Reply {
                            from: self.target.ip(),
                            kind: ReplyKind::Destination,
                            rtt: None,
                            tos: None,
                            mpls: Vec::new(),
                        },
                        stamp: None,
                        number: None,
                    }));
                }
                Ok(_) => {}
                Err(error) if is_pending(&error) => {}
                // Nothing there.
                Err(_) => return Ok(None),
            }
        }
    }
}

/// The traffic class of the packet that an IPv6 error quotes (RFC 8200 section 3: four bits below the version).
fn quoted_class(destination: Option<SocketAddr>) -> Option<u8> {
    match destination? {
        SocketAddr::V6(v6) => Some((u32::from_be(v6.flowinfo()) >> 20) as u8),
        SocketAddr::V4(_) => None,
    }
}

fn set(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value is a live int and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
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

/// No fragmentation, whatever the kernel believes of the path's MTU (`IP_PMTUDISC_PROBE`, ip(7)).
pub(super) fn never_fragment(socket: &Socket, v4: bool) -> io::Result<()> {
    match v4 {
        true => set(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        false => set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
    }
}

/// Errors that ICMP messages about earlier packets leave on a socket.
pub(super) fn is_pending(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable};
    let kinds = [
        ConnectionRefused,
        HostUnreachable,
        NetworkUnreachable,
        Interrupted,
    ];
    let numbers = [
        libc::EMSGSIZE,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::EACCES,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error().is_some_and(|it| numbers.contains(&it))
}

fn number(quoted: &[u8]) -> Option<u32> {
    let number = quoted.strip_prefix(&MAGIC)?.first_chunk()?;
    Some(u32::from_be_bytes(*number))
}

/// What an error says of the way. What the target itself sends has come there, whatever it thinks of it.
pub(super) fn reply_kind(kind: ErrorKind, of_target: bool) -> ReplyKind {
    match kind {
        ErrorKind::TooBig { mtu } => ReplyKind::TooBig(mtu.unwrap_or(0)),
        ErrorKind::PortUnreachable => ReplyKind::Destination,
        _ if of_target => ReplyKind::Destination,
        ErrorKind::TimeExceeded => ReplyKind::Expired,
        ErrorKind::Prohibited { .. } | ErrorKind::Unreachable { .. } => ReplyKind::Refused,
    }
}
