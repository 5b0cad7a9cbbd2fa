// SPDX-License-Identifier: Apache-2.0
//! Netlink messages of ctnetlink (`include/uapi/linux/netfilter/{nfnetlink,
//! nfnetlink_conntrack}.h`), to and from bytes.
//!
//! Two steps: `inet_diag::wire` cuts a buffer into messages and attributes; [`Entry`] is
//! typed. Nothing here panics, whatever the bytes.

use crate::inet_diag::wire::{Attribute, NETLINK_HEADER, WireError, attributes};
use slowpath_model::FourTuple;
use std::net::{IpAddr, SocketAddr};
use thiserror::Error;

/// Length of `struct nfgenmsg`: family, version, resource (two bytes).
const NFGEN_HEADER: usize = 4;

/// `NFNL_SUBSYS_CTNETLINK` in the upper byte, `IPCTNL_MSG_CT_NEW` in the lower: an entry.
pub const ENTRY: u16 = 1 << 8;
/// The same with `IPCTNL_MSG_CT_GET`: asks for one.
const GET: u16 = 1 << 8 | 1;

const NLM_F_REQUEST: u16 = 0x01;
/// `NLA_F_NESTED`: the attribute's value is attributes.
const NESTED: u16 = 1 << 15;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;

const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;

const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;

const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Why a payload is no entry of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EntryError {
    /// An attribute's length does not fit.
    #[error(transparent)]
    Netlink(#[from] WireError),
    /// `struct nfgenmsg` is cut.
    #[error("nfgenmsg cut: {available} of {NFGEN_HEADER} bytes")]
    HeaderCut {
        /// Bytes there.
        available: usize,
    },
    /// An address, a port or a protocol has another length than it should.
    #[error("conntrack attribute {number} of {length} bytes")]
    ValueLength {
        /// The attribute's number.
        number: u16,
        /// Its length.
        length: usize,
    },
    /// It tracks another protocol.
    #[error("conntrack entry of protocol {0}, not TCP")]
    Protocol(u8),
    /// A direction, an address, a port or the protocol is not there.
    #[error("conntrack entry without {0}")]
    Missing(&'static str),
}

/// The addresses of the packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where they come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
}

impl Tuple {
    /// The packets that a socket with these addresses sends.
    pub fn sent_by(socket: &FourTuple) -> Self {
        // Without an interface: conntrack keeps none.
        let bare = |a: SocketAddr| SocketAddr::new(a.ip(), a.port());
        Tuple {
            source: bare(socket.local),
            destination: bare(socket.remote),
        }
    }
}

/// One tracked TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Packets from the end that opened it, before their addresses were changed.
    pub original: Tuple,
    /// Packets from the other end, before their addresses are changed back.
    pub reply: Tuple,
}

impl Entry {
    /// Reads the payload of a message of kind [`ENTRY`].
    ///
    /// # Errors
    /// See [`EntryError`].
    pub fn read(payload: &[u8]) -> Result<Self, EntryError> {
        let Some(rest) = payload.get(NFGEN_HEADER..) else {
            return Err(EntryError::HeaderCut {
                available: payload.len(),
            });
        };
        let (mut original, mut reply) = (None, None);
        for attribute in attributes(rest) {
            let Attribute { number, value } = attribute?;
            match number {
                CTA_TUPLE_ORIG => original = Some(tuple(value)?),
                CTA_TUPLE_REPLY => reply = Some(tuple(value)?),
                _ => {}
            }
        }
        Ok(Entry {
            original: original.ok_or(EntryError::Missing("the original direction"))?,
            reply: reply.ok_or(EntryError::Missing("the reply direction"))?,
        })
    }

    /// The connection of a socket as its peer has it, local still being the socket's end;
    /// `None` if the entry tracks another connection.
    pub fn beyond(&self, socket: &FourTuple) -> Option<FourTuple> {
        let sent = Tuple::sent_by(socket);
        let received = if sent == self.original {
            self.reply
        } else if sent == self.reply {
            self.original
        } else {
            return None;
        };
        Some(FourTuple::new(received.destination, received.source))
    }
}

/// A value of exactly `N` bytes.
fn exactly<const N: usize>(attribute: &Attribute<'_>) -> Result<[u8; N], EntryError> {
    let Attribute { number, value } = *attribute;
    value.try_into().map_err(|_| EntryError::ValueLength {
        number,
        length: value.len(),
    })
}

fn tuple(bytes: &[u8]) -> Result<Tuple, EntryError> {
    let (mut source, mut destination): (Option<IpAddr>, Option<IpAddr>) = (None, None);
    let (mut ports, mut protocol) = ([None; 2], None);
    for part in attributes(bytes) {
        let Attribute { number, value } = part?;
        for field in attributes(value) {
            let field = field?;
            let port = || exactly(&field).map(|bytes| Some(u16::from_be_bytes(bytes)));
            match (number, field.number) {
                (CTA_TUPLE_IP, CTA_IP_V4_SRC) => source = Some(exactly::<4>(&field)?.into()),
                (CTA_TUPLE_IP, CTA_IP_V4_DST) => destination = Some(exactly::<4>(&field)?.into()),
                (CTA_TUPLE_IP, CTA_IP_V6_SRC) => source = Some(exactly::<16>(&field)?.into()),
                (CTA_TUPLE_IP, CTA_IP_V6_DST) => destination = Some(exactly::<16>(&field)?.into()),
                (CTA_TUPLE_PROTO, CTA_PROTO_NUM) => protocol = Some(exactly::<1>(&field)?[0]),
                (CTA_TUPLE_PROTO, CTA_PROTO_SRC_PORT) => ports[0] = port()?,
                (CTA_TUPLE_PROTO, CTA_PROTO_DST_PORT) => ports[1] = port()?,
                _ => {}
            }
        }
    }
    match protocol {
        Some(IPPROTO_TCP) => {}
        Some(other) => return Err(EntryError::Protocol(other)),
        None => return Err(EntryError::Missing("a protocol")),
    }
    let end = |address: Option<IpAddr>, port: Option<u16>| {
        Ok::<_, EntryError>(SocketAddr::new(
            address.ok_or(EntryError::Missing("an address"))?,
            port.ok_or(EntryError::Missing("a port"))?,
        ))
    };
    Ok(Tuple {
        source: end(source, ports[0])?,
        destination: end(destination, ports[1])?,
    })
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A request for the entry of a TCP connection one of whose directions has these addresses,
/// both of one family. The kernel looks for either direction (`nf_conntrack_find_get`) and
/// answers with ENOENT if it tracks none; entries in other zones than 0 are not found.
pub fn request(tuple: &Tuple, sequence: u32) -> Vec<u8> {
    let address = |ip: IpAddr, kinds: [u16; 2]| match ip {
        IpAddr::V4(v4) => attribute(kinds[0], &v4.octets()),
        IpAddr::V6(v6) => attribute(kinds[1], &v6.octets()),
    };
    let addresses = [
        address(tuple.source.ip(), [CTA_IP_V4_SRC, CTA_IP_V6_SRC]),
        address(tuple.destination.ip(), [CTA_IP_V4_DST, CTA_IP_V6_DST]),
    ];
    let ports = [
        attribute(CTA_PROTO_NUM, &[IPPROTO_TCP]),
        attribute(CTA_PROTO_SRC_PORT, &tuple.source.port().to_be_bytes()),
        attribute(CTA_PROTO_DST_PORT, &tuple.destination.port().to_be_bytes()),
    ];
    let parts = [
        attribute(CTA_TUPLE_IP | NESTED, &addresses.concat()),
        attribute(CTA_TUPLE_PROTO | NESTED, &ports.concat()),
    ];
    let body = attribute(CTA_TUPLE_ORIG | NESTED, &parts.concat());
    let length = NETLINK_HEADER + NFGEN_HEADER + body.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(GET.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    let family = if tuple.source.is_ipv4() {
        AF_INET
    } else {
        AF_INET6
    };
    bytes.extend([family, 0, 0, 0]);
    bytes.extend(body);
    bytes
}
