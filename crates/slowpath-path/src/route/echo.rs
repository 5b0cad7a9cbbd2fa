// SPDX-License-Identifier: Apache-2.0
//! ICMP echo with the destination: its loss, and which sizes arrive. Linux and others limit errors, not echo replies.
//!
//! A ping socket needs no privilege where `net.ipv4.ping_group_range` has the user's group; otherwise a raw one is tried.

use super::flow::{is_pending, never_fragment};
use super::judge::Count;
use super::mtu::Outcome;
use crate::icmp::parse;
use crate::icmp::{EchoReply, ErrorKind, ErrorQueue};
use crate::socket::{monotonic, sleep_until};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Octets of the IP header and of the echo header.
const V4_HEADERS: usize = 28;
const V6_HEADERS: usize = 48;
/// Octets of a small request, IP header included: what ping sends.
pub(super) const SMALL: u32 = 84;
/// The largest packet that is tried: that of jumbo frames.
const LARGEST: u32 = 9_216;
/// How long a reply may take while its distance is searched for, ns.
const DISTANCE_PATIENCE: i64 = 500_000_000;
/// Longer replies are cut.
const BUFFER: usize = 256;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Reply(u16),
    TooBig(u32, IpAddr),
}

/// The socket.
#[derive(Debug)]
pub(super) struct Echo {
    socket: Socket,
    target: IpAddr,
    /// Ping sockets get their identifier from the kernel, which checks replies by it.
    raw: Option<u16>,
    sequence: u16,
}

impl Echo {
    /// Opens it; `None`: not permitted.
    pub(super) fn open(source: Option<IpAddr>, target: IpAddr) -> Option<Self> {
        let v4 = target.is_ipv4();
        let (domain, protocol) = match v4 {
            true => (Domain::IPV4, Protocol::ICMPV4),
            false => (Domain::IPV6, Protocol::ICMPV6),
        };
        let ping = Socket::new(domain, Type::DGRAM, Some(protocol));
        let (socket, raw) = match ping {
            Ok(socket) => (socket, None),
            Err(_) => {
                let socket = Socket::new(domain, Type::RAW, Some(protocol)).ok()?;
                // Differs from that of other processes most of the time; replies are also checked by the address.
                (socket, Some(std::process::id() as u16 ^ 0x5370))
            }
        };
        let open = || -> io::Result<()> {
            socket.set_nonblocking(true)?;
            never_fragment(&socket, v4)?;
            ErrorQueue::of(&socket, v4, true)?;
            if let Some(source) = source {
                socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
            }
            Ok(())
        };
        open().ok()?;
        Some(Echo {
            socket,
            target,
            raw,
            sequence: 0,
        })
    }

    fn send(&mut self, size: u32) -> io::Result<u16> {
        let v4 = self.target.is_ipv4();
        let headers = if v4 { V4_HEADERS } else { V6_HEADERS };
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = vec![if v4 { 8 } else { 128 }, 0, 0, 0];
        request.extend(self.raw.unwrap_or(0).to_be_bytes());
        request.extend(self.sequence.to_be_bytes());
        request.resize(8 + (size as usize).saturating_sub(headers), 0);
        if v4 && self.raw.is_some() {
            let sum = parse::checksum(&request, 0);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let to = SockAddr::from(SocketAddr::new(self.target, 0));
        for _ in 0..8 {
            match self.socket.send_to(&request, &to) {
                Ok(_) => return Ok(self.sequence),
                Err(error) if is_pending(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // As good as lost.
        Ok(self.sequence)
    }

    /// Takes what came.
    fn take(&self) -> io::Result<Option<Event>> {
        let mut buffer = [0; BUFFER];
        let queue = ErrorQueue::opened(&self.socket);
        while let Some(error) = queue.take(&mut buffer)? {
            if let ErrorKind::TooBig { mtu } = error.kind {
                return Ok(Some(Event::TooBig(mtu.unwrap_or(0), error.reporter)));
            }
        }
        loop {
            let mut message = crate::socket::Message::new(&mut buffer);
            let length = match message.receive(&self.socket, libc::MSG_DONTWAIT) {
                Ok(length) => length,
                Err(error) if is_pending(&error) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            let from = message.from().map(|from| from.ip());
            let octets = &buffer[..length.min(BUFFER)];
            if let Some(reply) = self.read(octets).filter(|_| from == Some(self.target)) {
                return Ok(Some(Event::Reply(reply.sequence)));
            }
        }
    }

    /// The reply in octets that may be cut, so that no checksum is asked for: the kernel has verified that of ping
    /// sockets, and of others the identifier, the sequence and the address have to do.
    fn read(&self, octets: &[u8]) -> Option<EchoReply> {
        let v4 = self.target.is_ipv4();
        let octets = match (v4, self.raw) {
            (true, Some(_)) => octets.get(usize::from(octets.first()? & 15) * 4..)?,
            _ => octets,
        };
        let head: &[u8; 8] = octets.first_chunk()?;
        let reply = EchoReply {
            identifier: u16::from_be_bytes([head[4], head[5]]),
            sequence: u16::from_be_bytes([head[6], head[7]]),
        };
        let kind = if v4 { 0 } else { 129 };
        let own = self.raw.is_none_or(|own| own == reply.identifier);
        (head[0] == kind && own).then_some(reply)
    }

    /// Waits for something to take until a time of [`monotonic`]; false: nothing came.
    fn wait(&self, until: i64) -> bool {
        let nanos = (until - monotonic()).clamp(0, 50_000_000);
        let mut poll = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanos,
        };
        // SAFETY: one live pollfd, one live timespec, no signal mask.
        unsafe { libc::ppoll(&mut poll, 1, &time, std::ptr::null()) > 0 }
    }

    /// Sends one request of a size and waits for what comes of it, so long at the most.
    pub(super) fn ask(&mut self, size: u32, patience: i64) -> io::Result<Outcome> {
        while self.take()?.is_some() {}
        let sequence = self.send(size)?;
        let until = monotonic() + patience;
        while monotonic() < until {
            self.wait(until);
            match self.take()? {
                Some(Event::Reply(it)) if it == sequence => return Ok(Outcome::Answered),
                Some(Event::TooBig(bytes, from)) => return Ok(Outcome::TooBig(bytes, from)),
                _ => {}
            }
        }
        Ok(Outcome::Unanswered)
    }

    /// How far away the target is: the first distance of these at which a request is answered.
    pub(super) fn distance(
        &mut self,
        distances: std::ops::RangeInclusive<u8>,
        interrupted: &AtomicBool,
    ) -> io::Result<Option<u8>> {
        for ttl in distances {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            match self.target.is_ipv4() {
                true => self.socket.set_ttl_v4(u32::from(ttl))?,
                false => self.socket.set_unicast_hops_v6(u32::from(ttl))?,
            }
            if self.ask(SMALL, DISTANCE_PATIENCE)? == Outcome::Answered {
                return Ok(Some(ttl));
            }
        }
        Ok(None)
    }

    /// Sends small requests, one each `gap`, and counts the replies; the last ones have a second to come.
    pub(super) fn count(
        &mut self,
        requests: u32,
        gap: i64,
        interrupted: &AtomicBool,
    ) -> io::Result<Count> {
        let mut open = std::collections::BTreeSet::new();
        let mut count = Count {
            sent: 0,
            answered: 0,
        };
        let mut due = monotonic();
        while count.sent < requests && !interrupted.load(Ordering::Relaxed) {
            if monotonic() >= due {
                open.insert(self.send(SMALL)?);
                count.sent += 1;
                due += gap;
            }
            self.wait(due);
            self.collect(&mut open, &mut count)?;
        }
        let until = monotonic() + 1_000_000_000;
        while !open.is_empty() && monotonic() < until && sleep_until(0, interrupted) {
            self.wait(until);
            self.collect(&mut open, &mut count)?;
        }
        Ok(count)
    }

    fn collect(
        &self,
        open: &mut std::collections::BTreeSet<u16>,
        count: &mut Count,
    ) -> io::Result<()> {
        while let Some(event) = self.take()? {
            if let Event::Reply(sequence) = event
                && open.remove(&sequence)
            {
                count.answered += 1;
            }
        }
        Ok(())
    }
}

/// What the first link takes: the kernel says it of a packet that is too large for anything.
pub(super) fn link_mtu(source: Option<IpAddr>, target: IpAddr) -> Option<u32> {
    /// `SO_EE_ORIGIN_LOCAL` of linux/errqueue.h.
    const LOCAL: u8 = 1;
    let v4 = target.is_ipv4();
    let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).ok()?;
    socket.set_nonblocking(true).ok()?;
    never_fragment(&socket, v4).ok()?;
    ErrorQueue::of(&socket, v4, false).ok()?;
    if let Some(source) = source {
        let bind = SockAddr::from(SocketAddr::new(source, 0));
        socket.bind(&bind).ok()?;
    }
    let to = SockAddr::from(SocketAddr::new(target, 9));
    if socket.send_to(&vec![0; 65_000], &to).is_ok() {
        return Some(LARGEST);
    }
    let (mut buffer, mut mtu) = ([0; 64], None);
    let mut message = crate::socket::Message::new(&mut buffer);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    message.receive(&socket, flags).ok()?;
    message.each_control(|level, kind, data| {
        let errors = [
            (libc::IPPROTO_IP, libc::IP_RECVERR),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        ];
        let info = data.get(8..12).and_then(|info| info.first_chunk());
        if let Some(info) = info.filter(|_| errors.contains(&(level, kind)) && data[4] == LOCAL) {
            mtu = Some(u32::from_ne_bytes(*info));
        }
    });
    mtu.map(|mtu| mtu.min(LARGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_answers_each_request_of_any_size() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let Some(mut echo) = Echo::open(None, address) else {
                println!("SKIPPED this_host_answers_each_request_of_any_size: no echo socket here");
                continue;
            };
            let stop = AtomicBool::new(false);
            let count = echo.count(20, 1_000_000, &stop).expect("a socket");
            assert_eq!((count.sent, count.answered), (20, 20), "{address}");
            for size in [84, 576, 9_000] {
                let outcome = echo.ask(size, 5_000_000_000).expect("a socket");
                assert_eq!(outcome, Outcome::Answered, "{address} {size}");
            }
        }
    }
}
