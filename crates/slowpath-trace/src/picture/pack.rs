// SPDX-License-Identifier: Apache-2.0
//! A recording in few characters, for a page's script: numbers as differences, each in as many
//! bytes as it needs (LEB128, signed ones zigzag), all in base64 (RFC 4648 section 4).
//!
//! `picture/page/data.js` reads it; both list the fields in this order.

use super::record::{Point, Recording, mark_bits};
use crate::tcp::{Cause, Kind};

/// The kinds by the number they are packed as, with the words a person reads.
pub(super) const KINDS: [(Kind, &str); 21] = [
    (Kind::Data, "data"),
    (Kind::Ack, "ACK"),
    (Kind::DuplicateAck, "duplicate ACK"),
    (Kind::WindowUpdate, "window update"),
    (Kind::Syn, "SYN"),
    (Kind::SynAck, "SYN-ACK"),
    (Kind::Fin, "FIN"),
    (Kind::Reset, "reset"),
    (Kind::OutOfOrder, "out of order"),
    (Kind::HardwareDuplicate, "captured twice"),
    (Kind::KeepAlive, "keep-alive"),
    (Kind::KeepAliveAck, "ACK of a keep-alive"),
    (Kind::ZeroWindowProbe, "zero-window probe"),
    (Kind::ZeroWindowProbeAck, "ACK of a zero-window probe"),
    (Kind::Retransmission(Cause::Fast), "fast retransmission"),
    (
        Kind::Retransmission(Cause::Timeout),
        "retransmission after a timeout",
    ),
    (
        Kind::Retransmission(Cause::AfterTimeout),
        "retransmission, recovering from a timeout",
    ),
    (
        Kind::Retransmission(Cause::TailLossProbe),
        "tail loss probe",
    ),
    (
        Kind::Retransmission(Cause::Handshake),
        "handshake retransmission",
    ),
    (Kind::Retransmission(Cause::Fin), "FIN retransmission"),
    (
        Kind::Retransmission(Cause::Unexplained),
        "retransmission, unexplained",
    ),
];

/// The bits of marks in words, in their order; the last is [`Point::spurious`].
pub(super) const MARKS: [&str; 20] = [
    "zero window",
    "fills the window",
    "after a gap",
    "acknowledges data not captured",
    "reordered or sent again: only the clock decides",
    "was already acknowledged",
    "first copy lost before here",
    "delayed ACK",
    "stretch ACK",
    "held by Nagle's rule",
    "after idle time",
    "silly window",
    "DSACK",
    "window edge moved back",
    "congestion experienced",
    "ECN echo",
    "congestion window reduced",
    "wrong checksum",
    "first of a turn",
    "needless",
];

#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn signed(&mut self, value: i64) {
        self.number(zigzag(value));
    }

    /// 0 for none, else one more.
    fn optional(&mut self, value: Option<u64>) {
        self.number(value.map_or(0, |v| v.saturating_add(1)));
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// What the numbers are differences to, a side each.
#[derive(Clone, Copy, Default)]
struct Before {
    end: i64,
    acknowledgement: i64,
    window: i64,
    flight: i64,
}

/// All points of a recording.
pub(super) fn pack(recording: &Recording) -> String {
    let mut out = Packed::default();
    let mut before = [Before::default(); 2];
    let (mut time, mut frame) = (recording.begin().0, 0);
    for point in &recording.points {
        out.signed(point.time.0.wrapping_sub(time));
        out.signed(point.frame.wrapping_sub(frame) as i64);
        (time, frame) = (point.time.0, point.frame);
        fields(&mut out, point, &mut before[point.side as usize]);
        let blocks = recording.sack(point);
        out.number(blocks.len() as u64);
        let base = point.acknowledgement.unwrap_or(0);
        for (left, right) in blocks {
            out.signed(left.wrapping_sub(base));
            out.signed(right.wrapping_sub(*left));
        }
    }
    base64(&out.0)
}

fn fields(out: &mut Packed, point: &Point, before: &mut Before) {
    let difference = |a: i64, b: i64| a.wrapping_sub(b);
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let kind = KINDS.iter().position(|(kind, _)| *kind == point.kind);
    out.number(kind.unwrap_or(0) as u64 * 2 + point.side as u64);
    out.number(point.flags.0.into());
    let spurious = u32::from(point.spurious) << (MARKS.len() - 1);
    out.number((mark_bits(point.marks) | spurious).into());
    out.number(u64::from(point.segments) - 1);
    out.signed(difference(point.sequence, before.end));
    out.number(point.length);
    before.end = point.end;
    let acknowledgement = point.acknowledgement;
    out.optional(acknowledgement.map(|n| zigzag(difference(n, before.acknowledgement))));
    before.acknowledgement = acknowledgement.unwrap_or(before.acknowledgement);
    let window = point.window.map(whole);
    out.optional(window.map(|n| zigzag(difference(n, before.window))));
    before.window = window.unwrap_or(before.window);
    let flight = whole(point.flight);
    out.signed(difference(flight, before.flight));
    before.flight = flight;
    let nanos = |d: std::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    out.optional(point.rtt.map(nanos));
    out.number(point.duplicate.into());
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() {
                symbol.into()
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648_section_10() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn numbers_are_leb128() {
        let mut out = Packed::default();
        out.number(624_485);
        out.signed(-1);
        out.signed(1);
        // 624485 is the example of the DWARF standard's appendix on LEB128.
        assert_eq!(out.0, [0xe5, 0x8e, 0x26, 1, 2]);
    }
}
