// SPDX-License-Identifier: Apache-2.0
//! TCP checksums (RFC 9293 section 3.1, RFC 8200 section 8.1).

use super::{Addresses, IP_TCP, TcpLocation};

/// Whether the checksum is right. `None`: not all was captured, the IP header leaves no room for
/// the field, or the sender left it to its
/// network card: then the field holds the sum of the pseudo-header only (Linux,
/// `tcp_v4_send_check` with CHECKSUM_PARTIAL).
pub(super) fn verify(place: TcpLocation, data: &[u8]) -> Option<bool> {
    let tcp = place.tcp();
    let segment = data.get(tcp..tcp.checked_add(place.length() as usize)?)?;
    let reported = u16::from_be_bytes([*segment.get(16)?, *segment.get(17)?]);
    if place.is_first_fragment() {
        return None;
    }
    let mut pseudo = match place.addresses(data) {
        Addresses::V4(from, to) => sum(&from) + sum(&to),
        Addresses::V6(from, to) => sum(&from) + sum(&to),
    };
    pseudo += u64::from(place.length()) + u64::from(IP_TCP);
    if reported == fold(pseudo) {
        return None;
    }
    Some(fold(pseudo + sum(segment)) == u16::MAX)
}

/// The sum of big-endian 16-bit words, padded with a zero byte.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole: u64 = words
        .iter()
        .map(|w| u64::from(u16::from_be_bytes(*w)))
        .sum();
    whole + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
