// SPDX-License-Identifier: Apache-2.0
//! A raw ICMP socket: every error and echo reply that comes to this host, with the kernel's time of arrival.

use super::parse::{self, IcmpMessage, checksum};
use crate::socket::{Message, RX_SOFTWARE, SOFTWARE, int, software_stamp};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Octets asked for as receive buffer: some thousand errors.
const RECEIVE_BUFFER: libc::c_int = 4 << 20;
/// `SOL_RAW` with `ICMP_FILTER` (linux/icmp.h) and `ICMPV6_FILTER` (linux/icmpv6.h).
const SOL_RAW: libc::c_int = 255;
const FILTER: libc::c_int = 1;
/// Types that are let through: echo reply, unreachable, time exceeded; of ICMPv6 unreachable, too big, time exceeded,
/// echo reply.
const TYPES4: [u32; 3] = [0, 3, 11];
const TYPES6: [usize; 4] = [1, 2, 3, 129];

/// Messages that say nothing are passed over so often before the time is looked at: a flood of them ends the wait as well.
const MOST_PASSED_OVER: u32 = 64;

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub struct IcmpArrival<'a> {
    /// Who sent it: of an error the router that reports.
    pub from: IpAddr,
    /// The kernel's clock at its arrival, ns since 1970; `None`: the kernel gave no stamp.
    pub stamp: Option<i64>,
    /// Its TTL or hop limit on arrival.
    pub ttl: Option<u8>,
    /// What it says.
    pub message: IcmpMessage<'a>,
}

/// A packet before it is read.
struct Taken {
    from: IpAddr,
    stamp: Option<i64>,
    ttl: Option<u8>,
    length: usize,
}

/// The socket. It reads the answers to everything that this host sends: users pick out those to their own packets.
#[derive(Debug)]
pub struct RawIcmp {
    socket: Socket,
    v4: bool,
}

impl RawIcmp {
    /// Opens it for IPv4 or IPv6.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing, or the kernel refuses an option.
    pub fn open(v4: bool) -> io::Result<Self> {
        let (domain, protocol) = match v4 {
            true => (Domain::IPV4, Protocol::ICMPV4),
            false => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        let this = RawIcmp { socket, v4 };
        if v4 {
            let blocked = !TYPES4.iter().fold(0u32, |mask, kind| mask | 1 << kind);
            this.set(SOL_RAW, FILTER, &blocked)?;
            this.set(libc::IPPROTO_IP, libc::IP_RECVTTL, &1)?;
        } else {
            let mut blocked = [u32::MAX; 8];
            for kind in TYPES6 {
                blocked[kind / 32] &= !(1 << (kind % 32));
            }
            this.set(libc::IPPROTO_ICMPV6, FILTER, &blocked)?;
            this.set(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &1)?;
        }
        this.set(
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            &(RX_SOFTWARE | SOFTWARE),
        )?;
        let forced = this.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER);
        if forced.is_err() {
            this.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        Ok(this)
    }

    /// Sets an option to a value that is a plain number or an array of them.
    fn set<T: Copy>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the value is live and its size is given; the kernel only reads it.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for the next message that [`parse`] knows; `None`: none came in time. With no patience it only takes what
    /// is there.
    ///
    /// # Errors
    /// The socket fails.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
        patience: Duration,
    ) -> io::Result<Option<IcmpArrival<'b>>> {
        let until = Instant::now() + patience;
        let mut passed_over = 0;
        let taken = loop {
            let Some(taken) = self.take(buffer)? else {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || !self.wait(left)? {
                    return Ok(None);
                }
                continue;
            };
            if self.read(&buffer[..taken.length]).is_some() {
                break taken;
            }
            passed_over += 1;
            if passed_over > MOST_PASSED_OVER && Instant::now() >= until {
                return Ok(None);
            }
        };
        let message = self.read(&buffer[..taken.length]);
        Ok(message.map(|message| IcmpArrival {
            from: taken.from,
            stamp: taken.stamp,
            ttl: taken.ttl,
            message,
        }))
    }

    /// Raw IPv4 sockets give the IP header, raw IPv6 sockets do not.
    fn read<'b>(&self, packet: &'b [u8]) -> Option<IcmpMessage<'b>> {
        match self.v4 {
            true => parse::icmp4(parse::v4_payload(packet)?),
            false => parse::icmp6(packet),
        }
    }

    /// Takes a packet, or none; never waits.
    fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Taken>> {
        let mut message = Message::new(buffer);
        let length = match message.receive(&self.socket, libc::MSG_DONTWAIT) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut stamp, mut ttl) = (None, None);
        message.each_control(|level, kind, data| match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => stamp = software_stamp(data),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                ttl = int(data).and_then(|ttl| u8::try_from(ttl).ok());
            }
            _ => {}
        });
        Ok(message.from().map(|from| Taken {
            from: from.ip(),
            stamp,
            ttl,
            length,
        }))
    }

    /// Waits until there is something to take; false: there was nothing in time.
    fn wait(&self, patience: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let time = libc::timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: one live pollfd, one live timespec, no signal mask.
        match unsafe { libc::ppoll(&mut poll, 1, &time, std::ptr::null()) } {
            0 => Ok(false),
            1.. => Ok(true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Sends an echo request, which routers at the end of its TTL and the destination answer.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn send_echo(
        &self,
        to: IpAddr,
        ttl: u8,
        (identifier, sequence): (u16, u16),
        payload: &[u8],
    ) -> io::Result<()> {
        let mut request = vec![if self.v4 { 8 } else { 128 }, 0, 0, 0];
        request.extend(identifier.to_be_bytes());
        request.extend(sequence.to_be_bytes());
        request.extend(payload);
        let ttl = libc::c_int::from(ttl);
        if self.v4 {
            // The kernel writes the checksum of ICMPv6 only.
            let sum = checksum(&request, 0);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
            self.set(libc::IPPROTO_IP, libc::IP_TTL, &ttl)?;
        } else {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &ttl)?;
        }
        self.socket
            .send_to(&request, &SockAddr::from(SocketAddr::new(to, 0)))
            .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::{EchoReply, ErrorKind};
    use std::net::UdpSocket;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn this_hosts_own_answers_carry_the_kernels_time_and_quote_the_packet() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let name = "this_hosts_own_answers_carry_the_kernels_time_and_quote_the_packet";
            let Ok(icmp) = RawIcmp::open(address.is_ipv4()) else {
                println!("SKIPPED {name}: no raw ICMP socket (needs CAP_NET_RAW)");
                return;
            };
            let Ok(socket) = UdpSocket::bind((address, 0)) else {
                println!("SKIPPED {name}: no {address} here");
                continue;
            };
            let closed = UdpSocket::bind((address, 0)).and_then(|socket| socket.local_addr());
            let closed = closed.expect("a port");
            let own = socket.local_addr().expect("bound").port();
            let mut buffer = [0; 2048];
            // The kernel begins to stamp a moment after the first socket asks for it, and limits errors, not echoes.
            let mut number = 0;
            let stamp = loop {
                number += 1;
                icmp.send_echo(address, 64, (own, number), b"payload")
                    .expect("sent");
                let reply = EchoReply {
                    identifier: own,
                    sequence: number,
                };
                let arrival = next(
                    &icmp,
                    &mut buffer,
                    |message| matches!(message, IcmpMessage::EchoReply(it) if *it == reply),
                );
                if let Some(stamp) = arrival {
                    break stamp;
                }
            };
            assert!(stamp > 1_500_000_000_000_000_000, "{stamp}");
            socket.send_to(b"0123456789", closed).expect("sent");
            next(&icmp, &mut buffer, |message| match message {
                IcmpMessage::Error(error) => {
                    let udp = error.quoted.udp();
                    udp.is_some_and(|udp| {
                        (udp.source_port, udp.destination_port) == (own, closed.port())
                            && udp.payload == b"0123456789"
                            && error.kind == ErrorKind::PortUnreachable
                    })
                }
                IcmpMessage::EchoReply(_) => false,
            });
        }
    }

    /// The stamp of the next message of a kind.
    fn next(
        icmp: &RawIcmp,
        buffer: &mut [u8],
        wanted: impl Fn(&IcmpMessage<'_>) -> bool,
    ) -> Option<i64> {
        loop {
            let arrival = icmp.receive(buffer, PATIENCE).expect("a socket");
            let arrival = arrival.expect("an answer in time");
            if wanted(&arrival.message) {
                return arrival.stamp;
            }
        }
    }
}
