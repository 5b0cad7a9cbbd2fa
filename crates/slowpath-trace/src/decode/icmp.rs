// SPDX-License-Identifier: Apache-2.0
//! ICMP that reports a TCP segment's destination as unreachable (RFC 792, RFC 4443 section 3.1): it
//! quotes the IP header and eight bytes at least of what follows.

use super::link::Descent;
use super::{DecodeOptions, IP_TCP, Link, TcpLocation};

/// Protocol numbers.
pub(super) const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;

/// Destination unreachable, of ICMP and of ICMPv6.
const UNREACHABLE: (u8, u8) = (3, 1);

/// Bytes of the ICMP header before the quotation.
const HEADER: usize = 8;

/// Bytes of the quoted TCP header: ports and sequence number.
const QUOTED: usize = 8;

/// A quoted segment.
pub(crate) struct Unreachable {
    /// Its addresses and ports; nothing else of it is there.
    pub(crate) place: TcpLocation,
    /// Its host answered that no process listens there: port or protocol unreachable.
    pub(crate) refused: bool,
}

/// The quoted segment, if the frame is such a message.
pub(crate) fn unreachable(
    link: Link,
    data: &[u8],
    wire_length: u32,
    options: DecodeOptions,
) -> Option<Unreachable> {
    let mut descent = Descent::new(data, wire_length, options);
    descent.locate(link).err()?;
    let at = descent.icmp?;
    let message = data.get(at..)?.first_chunk::<HEADER>()?;
    let ip = at + HEADER;
    let version = data.get(ip)? >> 4;
    let (tcp, refused) = match version {
        4 => {
            let header = data.get(ip..)?.first_chunk::<20>()?;
            if message[0] != UNREACHABLE.0 || header[9] != IP_TCP {
                return None;
            }
            // Codes 2 and 3: protocol and port.
            (
                ip + usize::from(header[0] & 15) * 4,
                matches!(message[1], 2 | 3),
            )
        }
        6 => {
            let header = data.get(ip..)?.first_chunk::<40>()?;
            if message[0] != UNREACHABLE.1 || header[6] != IP_TCP {
                return None;
            }
            (ip + 40, message[1] == 4)
        }
        _ => return None,
    };
    data.get(tcp..tcp + QUOTED)?;
    let place = TcpLocation::quoted(ip, tcp, version == 6)?;
    Some(Unreachable { place, refused })
}
