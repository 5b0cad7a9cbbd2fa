// SPDX-License-Identifier: Apache-2.0
//! A UDP socket whose packets the kernel stamps: on arrival, and as they leave (SO_TIMESTAMPING, Linux
//! `Documentation/networking/timestamping.rst`).

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;

/// Octets asked for as receive buffer: a second of 10,000 small packets and more.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Octets of control messages that belong to a packet.
const CONTROL: usize = 512;

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text is no range of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no range of ports: write 8760-9960")]
pub struct PortRangeError(String);

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let ports = text.split_once('-').and_then(|(first, last)| {
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (0 < first && first <= last).then_some(PortRange { first, last })
        });
        ports.ok_or_else(|| PortRangeError(text.to_owned()))
    }
}

impl PortRange {
    /// Each port once, from one on that differs from call to call: a port that was just used may still be known to a
    /// firewall.
    fn ports(self) -> impl Iterator<Item = u16> {
        let count = u32::from(self.last - self.first) + 1;
        let start = (super::monotonic() as u32) % count;
        (0..count).map(move |i| self.first + ((start + i) % count) as u16)
    }
}

/// How a socket is opened.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// To what it is bound; port 0: any, or one of [`ports`](Self::ports).
    pub bind: SocketAddr,
    /// The ports that a firewall lets through; `None`: the kernel chooses.
    pub ports: Option<PortRange>,
    /// DSCP of what it sends, below 64.
    pub dscp: u8,
    /// Octets of the receive buffer; `None`: as large as is allowed.
    pub receive_buffer: Option<usize>,
    /// How long a receive waits.
    pub patience: Duration,
}

impl SocketOptions {
    /// On any port of an address.
    #[must_use]
    pub fn on(address: IpAddr) -> Self {
        SocketOptions {
            bind: SocketAddr::new(address, 0),
            ports: None,
            dscp: 0,
            receive_buffer: None,
            patience: Duration::from_millis(50),
        }
    }
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its octets; more than the buffer has means that it was cut.
    pub length: usize,
    /// From where.
    pub from: SocketAddr,
    /// The kernel's clock at its arrival, ns since 1970; `None`: the kernel gave no stamp, as for packets just after
    /// the first socket of the host asked for them (`net_enable_timestamp` works later).
    pub stamp: Option<i64>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
    /// Packets that the socket's full buffer has dropped so far (SO_RXQ_OVFL).
    pub dropped: u32,
}

/// The socket.
#[derive(Debug)]
pub struct StampedSocket {
    socket: Socket,
}

/// `SOF_TIMESTAMPING_*` of linux/net_tstamp.h.
const TX_SOFTWARE: libc::c_int = 1 << 1;
pub(crate) const RX_SOFTWARE: libc::c_int = 1 << 3;
pub(crate) const SOFTWARE: libc::c_int = 1 << 4;
const OPT_ID: libc::c_int = 1 << 7;
const OPT_TSONLY: libc::c_int = 1 << 11;
const STAMPS: libc::c_int = TX_SOFTWARE | RX_SOFTWARE | SOFTWARE | OPT_ID | OPT_TSONLY;
/// Values of SO_MEMINFO; the last is the drops (linux/sock_diag.h, `SK_MEMINFO_DROPS`).
const MEMINFO: usize = 9;
/// `SO_EE_ORIGIN_TIMESTAMPING` of linux/errqueue.h.
const ORIGIN_TIMESTAMPING: u8 = 4;

impl AsFd for StampedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl StampedSocket {
    /// Opens it: TTL 255 out, TTL in, stamps both ways, drops counted.
    ///
    /// # Errors
    /// The kernel refuses the socket, the address or an option.
    pub fn open(options: &SocketOptions) -> io::Result<Self> {
        let v4 = options.bind.is_ipv4();
        let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        let this = StampedSocket { socket };
        let tos = libc::c_int::from(options.dscp & 0x3f) << 2;
        if v4 {
            this.set(libc::IPPROTO_IP, libc::IP_TTL, 255)?;
            this.set(libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
            this.set(libc::IPPROTO_IP, libc::IP_TOS, tos)?;
        } else {
            this.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            this.set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 255)?;
            this.set(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
            this.set(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos)?;
        }
        this.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, STAMPS)?;
        this.set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        let wanted = options.receive_buffer.unwrap_or(RECEIVE_BUFFER) as libc::c_int;
        // Past rmem_max with CAP_NET_ADMIN only; else as much as there is.
        if this
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted)
            .is_err()
        {
            this.set(libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
        }
        this.socket.set_read_timeout(Some(options.patience))?;
        this.bind(options)?;
        Ok(this)
    }

    fn bind(&self, options: &SocketOptions) -> io::Result<()> {
        let Some(ports) = options.ports.filter(|_| options.bind.port() == 0) else {
            return self.socket.bind(&SockAddr::from(options.bind));
        };
        let mut result = Err(io::ErrorKind::AddrInUse.into());
        for port in ports.ports() {
            let address = SocketAddr::new(options.bind.ip(), port);
            result = self.socket.bind(&SockAddr::from(address));
            if !result
                .as_ref()
                .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
            {
                break;
            }
        }
        result
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
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Its own address.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the socket has no IP address"))
    }

    /// Takes packets of this address only, and sends there.
    ///
    /// # Errors
    /// The kernel finds no way there.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(&SockAddr::from(peer))
    }

    /// Sends to the connected peer. An ICMP error about an earlier packet is not this one's: it is sent again.
    ///
    /// # Errors
    /// The kernel did not take it.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut result = self.socket.send(bytes);
        if result
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            result = self.socket.send(bytes);
        }
        result.map(|_| ())
    }

    /// Sends to an address.
    ///
    /// # Errors
    /// The kernel did not take it.
    pub fn send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<()> {
        self.socket
            .send_to(bytes, &SockAddr::from(peer))
            .map(|_| ())
    }

    /// Waits for a packet; `None`: none came in time, or the peer has no such port.
    ///
    /// # Errors
    /// The socket fails.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut message = Message::new(buffer);
        let length = match message.receive(&self.socket, libc::MSG_TRUNC) {
            Ok(length) => length,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable => Ok(None),
                    _ => Err(error),
                };
            }
        };
        let Some(from) = message.from() else {
            return Ok(None);
        };
        let mut received = Received {
            length,
            from,
            stamp: None,
            ttl: None,
            dropped: 0,
        };
        message.each_control(|level, kind, data| match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => received.stamp = software_stamp(data),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                received.dropped = int(data).unwrap_or(0) as u32
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                received.ttl = int(data).and_then(|ttl| u8::try_from(ttl).ok());
            }
            _ => {}
        });
        Ok(Some(received))
    }

    /// Packets that this socket has dropped so far, those after the last one that was read included (SO_MEMINFO,
    /// from Linux 4.12 on; `None`: the kernel does not say).
    #[must_use]
    pub fn dropped(&self) -> Option<u32> {
        let mut values = [0u32; MEMINFO];
        let mut length = size_of_val(&values) as libc::socklen_t;
        // SAFETY: the array is live and its size is given.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let whole = length as usize == size_of_val(&values);
        (result == 0 && whole).then_some(values[MEMINFO - 1])
    }

    /// Counts packets from 0 again: kernels differ in whether a packet that they refused had a number.
    ///
    /// # Errors
    /// The kernel refuses the option.
    pub fn restart_numbers(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0)?;
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, STAMPS)
    }

    /// Takes the stamps of packets that left: their count since the socket was opened, and the kernel's clock, ns since
    /// 1970. Never waits.
    pub fn send_stamps(&self, mut take: impl FnMut(u32, i64)) {
        let mut nothing = [0; 1];
        loop {
            let mut message = Message::new(&mut nothing);
            if message
                .receive(&self.socket, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
                .is_err()
            {
                return;
            }
            let (mut stamp, mut number) = (None, None);
            message.each_control(|level, kind, data| match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => stamp = software_stamp(data),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    number = packet_number(data);
                }
                _ => {}
            });
            if let (Some(stamp), Some(number)) = (stamp, number) {
                take(number, stamp);
            }
        }
    }
}

/// scm_timestamping: three timespecs, of which the first is the software stamp.
pub(crate) fn software_stamp(data: &[u8]) -> Option<i64> {
    let number = |at: usize| Some(i64::from_ne_bytes(data.get(at..at + 8)?.try_into().ok()?));
    let nanos = number(0)? * 1_000_000_000 + number(8)?;
    (nanos != 0).then_some(nanos)
}

/// sock_extended_err: errno, then origin, type, code, pad, info, data.
fn packet_number(data: &[u8]) -> Option<u32> {
    let origin = *data.get(4)?;
    let number = u32::from_ne_bytes(data.get(12..16)?.try_into().ok()?);
    (origin == ORIGIN_TIMESTAMPING).then_some(number)
}

pub(crate) fn int(data: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(data.get(..4)?.try_into().ok()?))
}

/// One recvmsg(2) and what it filled.
pub(crate) struct Message<'a> {
    buffer: &'a mut [u8],
    control: [MaybeUninit<u64>; CONTROL / 8],
    control_length: usize,
    address: Option<SocketAddr>,
}

impl<'a> Message<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Message {
            buffer,
            control: [MaybeUninit::uninit(); CONTROL / 8],
            control_length: 0,
            address: None,
        }
    }

    pub(crate) fn from(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(crate) fn receive(
        &mut self,
        socket: &impl AsRawFd,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let mut vector = libc::iovec {
            iov_base: self.buffer.as_mut_ptr().cast(),
            iov_len: self.buffer.len(),
        };
        // SAFETY: sockaddr_storage and msghdr are plain numbers and pointers, for which zeros are valid; every
        // pointer points into memory that outlives the call, with its true length.
        let (length, storage, header) = unsafe {
            let mut storage: libc::sockaddr_storage = std::mem::zeroed();
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_name = (&raw mut storage).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            header.msg_control = self.control.as_mut_ptr().cast();
            header.msg_controllen = CONTROL;
            let length = libc::recvmsg(socket.as_raw_fd(), &mut header, flags);
            (length, storage, header)
        };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        self.control_length = header.msg_controllen.min(CONTROL);
        self.address = address_of(&storage);
        Ok(length)
    }

    /// Calls back with level, type and data of each control message.
    pub(crate) fn each_control(&self, mut call: impl FnMut(libc::c_int, libc::c_int, &[u8])) {
        // SAFETY: recvmsg wrote `control_length` octets of whole, aligned control messages.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.control.as_ptr().cast::<u8>(), self.control_length)
        };
        let head = size_of::<libc::cmsghdr>();
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + head) {
            let length = usize::from_ne_bytes(header[..8].try_into().expect("eight octets"));
            let word = |from: usize| {
                i32::from_ne_bytes(header[from..from + 4].try_into().expect("four octets"))
            };
            let Some(data) = bytes.get(at + head..at + length.max(head)) else {
                return;
            };
            call(word(8), word(12), data);
            at += length.max(head).next_multiple_of(8);
        }
    }
}

fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in, which is smaller than the storage.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = u32::from_be(v4.sin_addr.s_addr);
            Some(SocketAddr::new(
                IpAddr::V4(ip.into()),
                u16::from_be(v4.sin_port),
            ))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a sockaddr_in6, which is smaller than the storage.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
            // Flow information, in network order as the kernel has it, is zero unless IPV6_FLOWINFO_SEND asks for it.
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, 0).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_range_are_taken_until_none_is_left() {
        for wrong in ["", "5", "5-", "9-5", "0-5", "a-b", "1-70000"] {
            assert!(wrong.parse::<PortRange>().is_err(), "{wrong}");
        }
        let mut options = SocketOptions::on("127.0.0.77".parse().expect("an address"));
        options.ports = Some("41000-41002".parse().expect("a range"));
        let sockets: Vec<StampedSocket> = (0..3)
            .map(|_| StampedSocket::open(&options).expect("a port"))
            .collect();
        let ports = sockets.iter().map(|s| s.local().expect("bound").port());
        let mut ports: Vec<u16> = ports.collect();
        ports.sort_unstable();
        assert_eq!(ports, [41_000, 41_001, 41_002]);
        assert!(StampedSocket::open(&options).is_err());
    }

    #[test]
    fn packets_carry_the_kernels_stamps_and_their_ttl() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let options = SocketOptions::on(address);
            let (Ok(one), Ok(other)) =
                (StampedSocket::open(&options), StampedSocket::open(&options))
            else {
                println!(
                    "SKIPPED packets_carry_the_kernels_stamps_and_their_ttl: no {address} here"
                );
                continue;
            };
            one.connect(other.local().expect("bound")).expect("a route");
            let (mut number, mut stamped) = (0, 0);
            // The kernel begins to stamp arrivals a moment after the first socket has asked for it.
            while stamped < 3 {
                one.send(&[0; 60]).expect("sent");
                let mut buffer = [0; 100];
                let received = loop {
                    if let Some(received) = other.receive(&mut buffer).expect("a socket") {
                        break received;
                    }
                };
                assert_eq!((received.length, received.ttl), (60, Some(255)));
                let mut sent = Vec::new();
                while sent.is_empty() {
                    one.send_stamps(|id, stamp| sent.push((id, stamp)));
                }
                assert_eq!(sent[0].0, number);
                number += 1;
                if let Some(stamp) = received.stamp {
                    assert!(stamp >= sent[0].1);
                    stamped += 1;
                }
            }
        }
    }
}
