// SPDX-License-Identifier: Apache-2.0
//! Netlink messages of sock_diag (`include/uapi/linux/{netlink,inet_diag}.h`), to and from
//! bytes.
//!
//! Two steps: [`messages`] and [`attributes`] check lengths and cut; [`Content`],
//! [`DiagHeader`] and [`SocketRecord`] are typed. Nothing here panics, whatever the bytes.

use crate::tcp_info::{SocketMemory, SocketQueues, TcpInfo, TcpInfoError};
use slowpath_model::{FourTuple, TcpStats};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// Length of `struct nlmsghdr`.
pub const NETLINK_HEADER: usize = 16;
/// Length of `struct inet_diag_msg`.
pub const DIAG_HEADER: usize = 72;
/// Length of `struct inet_diag_sockid`.
const SOCKET_ID: usize = 48;
/// Length of a netlink request for sockets: `nlmsghdr`, then `struct inet_diag_req_v2`.
pub const REQUEST: usize = NETLINK_HEADER + 8 + SOCKET_ID;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;

const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;

/// `NLA_TYPE_MASK`: the two top bits of an attribute's type are flags.
const NLA_TYPE_MASK: u16 = 0x3fff;

const IPPROTO_TCP: u8 = 6;

/// Attribute numbers of `include/uapi/linux/inet_diag.h`.
pub const INET_DIAG_INFO: u16 = 2;
/// Name of the congestion control.
pub const INET_DIAG_CONG: u16 = 4;
/// `SK_MEMINFO_*` array.
pub const INET_DIAG_SKMEMINFO: u16 = 7;

/// What is asked for: bit n-1 asks for attribute n.
const EXTENSIONS: u8 =
    1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1) | 1 << (INET_DIAG_SKMEMINFO - 1);

/// States asked for, a bit each (`include/net/tcp_states.h`): 1 to 11 without TIME_WAIT (6)
/// and LISTEN (10). The kernel adds NEW_SYN_RECV to SYN_RECV by itself.
const STATES: u32 = 0x0ffe & !(1 << 6) & !(1 << 10);

/// Why a buffer is not what the kernel would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The rest of the buffer is shorter than a netlink header.
    #[error("netlink header cut: {available} of {NETLINK_HEADER} bytes")]
    HeaderCut {
        /// Bytes left in the buffer.
        available: usize,
    },
    /// A message's length is below its header's or beyond the buffer.
    #[error("netlink message of {length} bytes where {available} are left")]
    MessageLength {
        /// The length the message says it has.
        length: u32,
        /// Bytes left in the buffer.
        available: usize,
    },
    /// An attribute's length is below its header's or beyond the message.
    #[error("netlink attribute of {length} bytes where {available} are left")]
    AttributeLength {
        /// The length the attribute says it has.
        length: u16,
        /// Bytes left in the message.
        available: usize,
    },
    /// The payload of NLMSG_ERROR is shorter than its error number.
    #[error("netlink error message cut: {available} of 4 bytes")]
    ErrorCut {
        /// Bytes in the payload.
        available: usize,
    },
    /// `struct inet_diag_msg` is cut.
    #[error("inet_diag_msg cut: {available} of {DIAG_HEADER} bytes")]
    DiagHeaderCut {
        /// Bytes there.
        available: usize,
    },
    /// The address family is neither IPv4 nor IPv6.
    #[error("address family {0} in inet_diag_msg is neither IPv4 nor IPv6")]
    Family(u8),
}

/// IPv4 or IPv6, as the socket was created; an IPv6 socket may carry IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// AF_INET.
    V4,
    /// AF_INET6.
    V6,
}

impl Family {
    /// The kernel's number.
    pub const fn number(self) -> u8 {
        match self {
            Family::V4 => 2,
            Family::V6 => 10,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Family::V4),
            10 => Some(Family::V6),
            _ => None,
        }
    }
}

/// Names one socket to the kernel (`struct inet_diag_sockid`). Both addresses are of the
/// socket's family, IPv4-mapped ones not normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId {
    family: Family,
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    /// Index of the interface the socket is bound to, 0 if none.
    interface: u32,
    cookie: u64,
}

impl SocketId {
    fn read(family: Family, id: &[u8; SOCKET_ID]) -> Self {
        let port = |at: usize| u16::from_be_bytes([id[at], id[at + 1]]);
        SocketId {
            family,
            local: (address(family, field(id, 4)), port(0)),
            remote: (address(family, field(id, 20)), port(2)),
            interface: u32::from_ne_bytes(field(id, 36)),
            // Two words, the low one first whatever the byte order (sock_diag_save_cookie).
            cookie: u64::from(u32::from_ne_bytes(field(id, 40)))
                | u64::from(u32::from_ne_bytes(field(id, 44))) << 32,
        }
    }

    fn encode(&self) -> [u8; SOCKET_ID] {
        let mut id = [0; SOCKET_ID];
        id[0..2].copy_from_slice(&self.local.1.to_be_bytes());
        id[2..4].copy_from_slice(&self.remote.1.to_be_bytes());
        id[4..20].copy_from_slice(&address_bytes(self.local.0));
        id[20..36].copy_from_slice(&address_bytes(self.remote.0));
        id[36..40].copy_from_slice(&self.interface.to_ne_bytes());
        id[40..44].copy_from_slice(&(self.cookie as u32).to_ne_bytes());
        id[44..48].copy_from_slice(&((self.cookie >> 32) as u32).to_ne_bytes());
        id
    }

    /// The socket's family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The socket's cookie (`sock_gen_cookie`).
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The connection's addresses, normalised.
    pub fn tuple(&self) -> FourTuple {
        FourTuple::new(
            SocketAddr::new(self.local.0, self.local.1),
            SocketAddr::new(self.remote.0, self.remote.1),
        )
    }
}

/// The `N` bytes at `at` of an array that has them: every caller's `at + N` is a constant
/// within the array's length.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn address(family: Family, bytes: [u8; 16]) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        Family::V6 => Ipv6Addr::from(bytes).into(),
    }
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `struct inet_diag_msg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagHeader {
    /// TCP state's number (`include/net/tcp_states.h`), or `TCP_BOUND_INACTIVE`.
    pub state: u8,
    /// Which timer runs: 0 none, 1 retransmission, 2 keep-alive, 3 TIME_WAIT, 4 zero-window
    /// probe.
    pub timer: u8,
    /// Expirations of that timer without an answer.
    pub retransmits: u8,
    /// Which socket.
    pub id: SocketId,
    /// Time to the timer's expiration in milliseconds.
    pub expires_ms: u32,
    /// Bytes received and not read; accept queue's length of a listener.
    pub receive_queue: u32,
    /// Bytes in the send buffer; accept queue's limit of a listener.
    pub send_queue: u32,
    /// Owner's user id in the reader's user namespace.
    pub uid: u32,
    /// Inode number of the socket, as in `/proc/PID/fd`; 0 if no process holds it.
    pub inode: u32,
}

impl DiagHeader {
    /// Reads the struct at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::DiagHeaderCut`], [`WireError::Family`].
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(header) = bytes.first_chunk::<DIAG_HEADER>() else {
            return Err(WireError::DiagHeaderCut {
                available: bytes.len(),
            });
        };
        let family = Family::from_number(header[0]).ok_or(WireError::Family(header[0]))?;
        let word = |at: usize| u32::from_ne_bytes(field(header, at));
        Ok(DiagHeader {
            state: header[1],
            timer: header[2],
            retransmits: header[3],
            id: SocketId::read(family, &field(header, 4)),
            expires_ms: word(52),
            receive_queue: word(56),
            send_queue: word(60),
            uid: word(64),
            inode: word(68),
        })
    }

    /// The bytes that [`read`](Self::read) gives this header for.
    pub fn encode(&self) -> [u8; DIAG_HEADER] {
        let mut bytes = [0; DIAG_HEADER];
        bytes[..4].copy_from_slice(&[
            self.id.family.number(),
            self.state,
            self.timer,
            self.retransmits,
        ]);
        bytes[4..52].copy_from_slice(&self.id.encode());
        let words = [
            self.expires_ms,
            self.receive_queue,
            self.send_queue,
            self.uid,
            self.inode,
        ];
        for (place, word) in bytes[52..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Name of a congestion control, at most 15 bytes (`TCP_CA_NAME_MAX`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CongestionName([u8; 16]);

impl CongestionName {
    /// Reads an INET_DIAG_CONG attribute: up to its NUL, at most 15 bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let mut name = [0; 16];
        for (place, byte) in name[..15]
            .iter_mut()
            .zip(bytes.iter().take_while(|b| **b != 0))
        {
            *place = *byte;
        }
        CongestionName(name)
    }

    /// The name; empty if the kernel gave none or one that is not UTF-8.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or("")
    }
}

impl fmt::Debug for CongestionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// One socket of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRecord<'a> {
    /// Identity, queues, owner.
    pub header: DiagHeader,
    /// INET_DIAG_INFO's bytes; none of TIME_WAIT and request sockets.
    pub info: Option<&'a [u8]>,
    /// INET_DIAG_SKMEMINFO.
    pub memory: Option<SocketMemory>,
    /// `SK_MEMINFO_DROPS`: segments dropped at the socket.
    pub drops: Option<u32>,
    /// INET_DIAG_CONG.
    pub congestion: CongestionName,
}

impl<'a> SocketRecord<'a> {
    /// Reads the payload of a SOCK_DIAG_BY_FAMILY message.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn read(payload: &'a [u8]) -> Result<Self, WireError> {
        let header = DiagHeader::read(payload)?;
        let mut record = SocketRecord {
            header,
            info: None,
            memory: None,
            drops: None,
            congestion: CongestionName::default(),
        };
        for attribute in attributes(&payload[DIAG_HEADER..]) {
            let Attribute { number, value } = attribute?;
            match number {
                INET_DIAG_INFO => record.info = Some(value),
                INET_DIAG_SKMEMINFO => {
                    record.memory = SocketMemory::read(value);
                    record.drops = SocketMemory::drops(value);
                }
                INET_DIAG_CONG => record.congestion = CongestionName::read(value),
                _ => {}
            }
        }
        Ok(record)
    }

    /// The statistics, if the record carries any.
    pub fn stats(&self) -> Option<Result<TcpStats, TcpInfoError>> {
        let info = TcpInfo::read(self.info?);
        Some(info.map(|info| {
            info.stats(SocketQueues {
                send: self.header.send_queue,
                receive: self.header.receive_queue,
                memory: self.memory,
            })
        }))
    }
}

/// One netlink message, its payload wholly inside the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    kind: u16,
    flags: u16,
    /// The request this answers.
    pub sequence: u32,
    /// What follows the header, padding not included.
    pub payload: &'a [u8],
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A socket; [`SocketRecord::read`] reads it.
    Socket(&'a [u8]),
    /// The dump ended; with an error number if it failed in the kernel.
    Done(Option<i32>),
    /// The request failed with that (positive) error number.
    Error(i32),
    /// The request was done.
    Acknowledged,
    /// Messages were lost (NLMSG_OVERRUN).
    Overrun,
    /// To be ignored.
    Other,
}

impl<'a> Message<'a> {
    /// Its kind: below 16 netlink's own, beyond that the protocol's.
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// Whether the table changed while it was dumped: sockets may be missing or doubled.
    pub fn interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }

    /// What it says.
    ///
    /// # Errors
    /// [`WireError::ErrorCut`].
    pub fn content(&self) -> Result<Content<'a>, WireError> {
        let status = self.payload.first_chunk::<4>();
        // Error numbers are negative on the wire; anything else is no error.
        let errno = status
            .map(|s| i32::from_ne_bytes(*s))
            .filter(|status| *status < 0)
            .map(|status| status.saturating_neg());
        Ok(match self.kind {
            SOCK_DIAG_BY_FAMILY => Content::Socket(self.payload),
            NLMSG_DONE => Content::Done(errno),
            NLMSG_ERROR if status.is_none() => {
                return Err(WireError::ErrorCut {
                    available: self.payload.len(),
                });
            }
            NLMSG_ERROR => errno.map_or(Content::Acknowledged, Content::Error),
            NLMSG_OVERRUN => Content::Overrun,
            NLMSG_NOOP => Content::Other,
            _ => Content::Other,
        })
    }
}

/// Netlink pads messages and attributes to four bytes.
const fn align(length: usize) -> usize {
    (length + 3) & !3
}

/// Cuts a received buffer into messages. After an error it ends.
pub fn messages(buffer: &[u8]) -> Messages<'_> {
    Messages { rest: buffer }
}

/// See [`messages`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let available = rest.len();
        let Some(header) = rest.first_chunk::<NETLINK_HEADER>() else {
            return Some(Err(WireError::HeaderCut { available }));
        };
        let length = u32::from_ne_bytes(field(header, 0));
        let end = usize::try_from(length).unwrap_or(usize::MAX);
        if end < NETLINK_HEADER || end > available {
            return Some(Err(WireError::MessageLength { length, available }));
        }
        self.rest = rest.get(align(end)..).unwrap_or(&[]);
        Some(Ok(Message {
            kind: u16::from_ne_bytes(field(header, 4)),
            flags: u16::from_ne_bytes(field(header, 6)),
            sequence: u32::from_ne_bytes(field(header, 8)),
            payload: &rest[NETLINK_HEADER..end],
        }))
    }
}

/// One attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its number, flag bits removed.
    pub number: u16,
    /// Its value, padding not included.
    pub value: &'a [u8],
}

/// Cuts the part of a payload behind its fixed header into attributes. After an error it
/// ends; fewer than four bytes at the end are padding.
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// See [`attributes`].
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        let header = rest.first_chunk::<4>()?;
        let length = u16::from_ne_bytes(field(header, 0));
        let end = usize::from(length);
        if end < header.len() || end > rest.len() {
            return Some(Err(WireError::AttributeLength {
                length,
                available: rest.len(),
            }));
        }
        self.rest = rest.get(align(end)..).unwrap_or(&[]);
        Some(Ok(Attribute {
            number: u16::from_ne_bytes(field(header, 2)) & NLA_TYPE_MASK,
            value: &rest[header.len()..end],
        }))
    }
}

/// A request for every TCP socket of a family that may carry data.
pub fn dump_request(family: Family, sequence: u32) -> [u8; REQUEST] {
    request(family, NLM_F_DUMP, STATES, [0; SOCKET_ID], sequence)
}

/// A request for no socket: the kernel answers it if it can dump TCP sockets at all.
pub fn probe_request(family: Family, sequence: u32) -> [u8; REQUEST] {
    request(family, NLM_F_DUMP, 0, [0; SOCKET_ID], sequence)
}

/// A request for one socket. The kernel answers with ENOENT if nothing has its addresses
/// and with ESTALE if something else has (`sock_diag_check_cookie`).
pub fn lookup_request(id: &SocketId, sequence: u32) -> [u8; REQUEST] {
    request(id.family, 0, STATES, id.encode(), sequence)
}

/// A request for every TCP socket of a family in one of `states`, a bit each.
pub fn states_request(family: Family, states: u32, sequence: u32) -> [u8; REQUEST] {
    request(family, NLM_F_DUMP, states, [0; SOCKET_ID], sequence)
}

fn request(
    family: Family,
    flags: u16,
    states: u32,
    id: [u8; SOCKET_ID],
    sequence: u32,
) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16..19].copy_from_slice(&[family.number(), IPPROTO_TCP, EXTENSIONS]);
    bytes[20..24].copy_from_slice(&states.to_ne_bytes());
    bytes[24..].copy_from_slice(&id);
    bytes
}
