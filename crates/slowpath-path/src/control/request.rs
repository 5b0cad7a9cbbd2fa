// SPDX-License-Identifier: Apache-2.0
//! The request of a session (RFC 4656 section 3.5, RFC 5357 section 3.5, RFC 6038 section 3.2), which also stands in
//! session files.

use super::ControlError;
use super::message::{REQUEST_SESSION, REQUEST_TWO_WAY, block, long, word};
use crate::keys::Block;
use crate::schedule::Slot;
use crate::time::{Span, Timestamp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Octets without slots and digests.
pub const PREAMBLE: usize = 96;

/// Who sends a session's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// One end sends, the other receives (OWAMP).
    OneWay {
        /// The server is to open the sender's port.
        server_sends: bool,
        /// The server is to open the receiver's port.
        server_receives: bool,
        /// How many.
        packets: u32,
        /// The schedule.
        slots: Vec<Slot>,
    },
    /// The client sends, the server reflects (TWAMP).
    TwoWay {
        /// Octets to be reflected (RFC 6038 section 3.2).
        reflect: u16,
        /// Octets of padding to be reflected.
        reflect_padding: u16,
    },
}

/// A session that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Who sends.
    pub direction: Direction,
    /// From where packets go; an unspecified address stands for the end of the control connection.
    pub sender: SocketAddr,
    /// To where they go.
    pub receiver: SocketAddr,
    /// Its identifier; zeros where the receiving server is to draw it.
    pub session: Block,
    /// Octets after the headers of a test packet.
    pub padding: u32,
    /// When the schedule begins.
    pub start: Timestamp,
    /// From when on a packet is lost; of TWAMP, how long the reflector goes on after the stop.
    pub timeout: Span,
    /// Type-P: the DSCP in the third octet's place (RFC 4656 section 3.5), as the bits stand on the wire.
    pub type_p: u32,
}

impl SessionRequest {
    /// How many slots follow the preamble.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        match &self.direction {
            Direction::OneWay { slots, .. } => slots,
            Direction::TwoWay { .. } => &[],
        }
    }

    /// The DSCP that the Type-P asks for (RFC 4656 section 3.5: the first two bits are 00, the next six the DSCP).
    /// `None`: a per-hop behaviour identification code, which is not supported.
    #[must_use]
    pub fn dscp(&self) -> Option<u8> {
        (self.type_p >> 30 == 0).then_some(((self.type_p >> 24) & 0x3f) as u8)
    }

    /// A Type-P for a DSCP below 64.
    #[must_use]
    pub fn type_p_of(dscp: u8) -> u32 {
        u32::from(dscp & 0x3f) << 24
    }

    /// Its first 96 octets.
    #[must_use]
    pub fn preamble(&self) -> [u8; PREAMBLE] {
        let mut bytes = [0; PREAMBLE];
        bytes[1] = if self.sender.is_ipv4() { 4 } else { 6 };
        match &self.direction {
            Direction::OneWay {
                server_sends,
                server_receives,
                packets,
                slots,
            } => {
                bytes[0] = REQUEST_SESSION;
                bytes[2] = u8::from(*server_sends);
                bytes[3] = u8::from(*server_receives);
                bytes[4..8].copy_from_slice(&(slots.len() as u32).to_be_bytes());
                bytes[8..12].copy_from_slice(&packets.to_be_bytes());
            }
            Direction::TwoWay {
                reflect,
                reflect_padding,
            } => {
                bytes[0] = REQUEST_TWO_WAY;
                bytes[88..90].copy_from_slice(&reflect.to_be_bytes());
                bytes[90..92].copy_from_slice(&reflect_padding.to_be_bytes());
            }
        }
        bytes[12..14].copy_from_slice(&self.sender.port().to_be_bytes());
        bytes[14..16].copy_from_slice(&self.receiver.port().to_be_bytes());
        write_address(&mut bytes[16..32], self.sender.ip());
        write_address(&mut bytes[32..48], self.receiver.ip());
        bytes[48..64].copy_from_slice(&self.session);
        bytes[64..68].copy_from_slice(&self.padding.to_be_bytes());
        bytes[68..76].copy_from_slice(&self.start.0.to_be_bytes());
        bytes[76..84].copy_from_slice(&self.timeout.0.to_be_bytes());
        bytes[84..88].copy_from_slice(&self.type_p.to_be_bytes());
        bytes
    }

    /// From the first 96 octets, and how many slots follow. The request has no slots yet.
    ///
    /// # Errors
    /// Fields that no RFC allows.
    pub fn from_preamble(bytes: &[u8]) -> Result<(Self, u32), ControlError> {
        let malformed = Err(ControlError::Malformed("request of a session"));
        if bytes.len() < PREAMBLE {
            return malformed;
        }
        let (slots, packets) = (word(bytes, 4), word(bytes, 8));
        let direction = match bytes[0] {
            REQUEST_SESSION if bytes[2] | bytes[3] != 0 && slots > 0 && packets > 0 => {
                Direction::OneWay {
                    server_sends: bytes[2] != 0,
                    server_receives: bytes[3] != 0,
                    packets,
                    slots: Vec::new(),
                }
            }
            REQUEST_TWO_WAY if bytes[2] | bytes[3] == 0 && slots == 0 && packets == 0 => {
                Direction::TwoWay {
                    reflect: (word(bytes, 88) >> 16) as u16,
                    reflect_padding: word(bytes, 88) as u16,
                }
            }
            _ => return malformed,
        };
        let address = |at: usize, port: u32| -> Result<SocketAddr, ControlError> {
            let ip = match bytes[1] & 15 {
                4 => IpAddr::V4(Ipv4Addr::from(word(bytes, at))),
                6 => IpAddr::V6(Ipv6Addr::from(block(bytes, at))),
                _ => return Err(ControlError::Malformed("IP version")),
            };
            Ok(SocketAddr::new(ip, port as u16))
        };
        let ports = word(bytes, 12);
        let request = SessionRequest {
            direction,
            sender: address(16, ports >> 16)?,
            receiver: address(32, ports & 0xffff)?,
            session: block(bytes, 48),
            padding: word(bytes, 64),
            start: Timestamp(long(bytes, 68)),
            timeout: Span(long(bytes, 76)),
            type_p: word(bytes, 84),
        };
        Ok((request, slots))
    }

    /// Adds a slot of its 16 octets.
    ///
    /// # Errors
    /// A kind of slot that RFC 4656 does not have.
    pub fn add_slot(&mut self, octets: &Block) -> Result<(), ControlError> {
        let slot = Slot::from_wire(octets).ok_or(ControlError::Malformed("slot"))?;
        if let Direction::OneWay { slots, .. } = &mut self.direction {
            slots.push(slot);
        }
        Ok(())
    }
}

fn write_address(bytes: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes.copy_from_slice(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_alike(bytes in proptest::collection::vec(any::<u8>(), PREAMBLE), two_way: bool, six: bool) {
            let mut bytes = bytes;
            bytes[0] = if two_way { 5 } else { 1 };
            bytes[1] = if six { 6 } else { 4 };
            if two_way {
                bytes[2..12].fill(0);
            }
            if let Ok((request, slots)) = SessionRequest::from_preamble(&bytes) {
                let written = request.preamble();
                prop_assert_eq!(&written[12..20], &bytes[12..20]);
                prop_assert_eq!(&written[48..88], &bytes[48..88]);
                let (again, _) = SessionRequest::from_preamble(&{
                    let mut with_slots = written;
                    with_slots[4..8].copy_from_slice(&slots.to_be_bytes());
                    with_slots
                }).expect("our own");
                prop_assert_eq!(again, request);
            }
        }

        #[test]
        fn any_octets_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = SessionRequest::from_preamble(&bytes);
        }
    }
}
