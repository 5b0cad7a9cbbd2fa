// SPDX-License-Identifier: Apache-2.0
//! When a connection is over, and when a SYN on the same addresses and ports begins another.

use crate::segment::Flags;

/// A SYN with another sequence number on a connection silent for longer than this is another
/// connection, closed or not: twice the maximum segment lifetime of RFC 9293 section 3.4.2.
const SILENCE: i64 = 240 * 1_000_000_000;

/// What of a segment decides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The lower of the two ends sent it.
    pub(super) from_low: bool,
    pub(super) flags: Flags,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    /// Of the payload.
    pub(super) length: u32,
}

/// What is known of a side's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NumberSource {
    #[default]
    Nothing,
    /// Its first segment was no SYN.
    Segment,
    Syn,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    /// The sequence number of the latest SYN, or of the first SYN-ACK; without either, the number
    /// before the first segment.
    initial: u32,
    /// The sequence number after the highest that was observed.
    next: u32,
    known: NumberSource,
    syns: u8,
    finished: bool,
}

/// What of a connection's course decides where it ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    directions: [Direction; 2],
    reset: bool,
}

/// Serial number arithmetic (RFC 1982): whether `a` comes after `b`.
fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Life {
    /// Both sides have said that they are done, or one has reset the connection.
    #[inline]
    pub(super) fn closed(&self) -> bool {
        let [a, b] = &self.directions;
        self.reset || a.finished && b.finished
    }

    /// A segment of the connection.
    #[inline]
    pub(super) fn segment(&mut self, segment: Step) {
        if segment.flags.any(Flags::SYN) && self.answers(segment) {
            self.reset = false;
        }
        let direction = &mut self.directions[usize::from(segment.from_low)];
        let first = direction.known == NumberSource::Nothing;
        if first {
            direction.known = NumberSource::Segment;
            direction.initial = segment.sequence.wrapping_sub(1);
        }
        let mut end = segment.sequence.wrapping_add(segment.length);
        if segment.flags.any(Flags::SYN | Flags::FIN | Flags::RST) {
            if segment.flags.any(Flags::SYN) {
                if direction.known != NumberSource::Syn || !segment.flags.any(Flags::ACK) {
                    direction.initial = segment.sequence;
                }
                direction.known = NumberSource::Syn;
                direction.syns = direction.syns.saturating_add(1);
                end = end.wrapping_add(1);
            }
            direction.finished |= segment.flags.any(Flags::FIN);
            self.reset |= segment.flags.any(Flags::RST);
        }
        let direction = &mut self.directions[usize::from(segment.from_low)];
        if first || after(end, direction.next) {
            direction.next = end;
        }
    }

    /// A SYN-ACK that acknowledges the other side's SYN, the first of its side: it opens this
    /// connection, even after a reset. A client that gets the ACK of an earlier connection answers
    /// with RST and waits on (RFC 9293 section 3.5.1).
    fn answers(&self, segment: Step) -> bool {
        let side = usize::from(segment.from_low);
        let (this, other) = (&self.directions[side], &self.directions[1 - side]);
        segment.flags.any(Flags::ACK)
            && this.known != NumberSource::Syn
            && other.known == NumberSource::Syn
            && other.initial == segment.acknowledgement.wrapping_sub(1)
    }

    /// Whether this segment belongs to another connection than the ones before, `silence`
    /// nanoseconds after the last of them. It is a SYN, its sequence number is not that of
    /// the connection's own, it does not answer the other side's SYN, and one of these holds:
    ///
    /// 1. one side has finished or reset, and the number lies outside what was sent;
    /// 2. the connection's own SYN was repeated before this other one;
    /// 3. the connection was silent for long.
    ///
    /// 1 and 2 are tcptrace's rules (it takes the end of the window where 1 takes the end of
    /// what was sent). It has a fourth, that any segment after four minutes of silence begins another
    /// connection; a connection may be silent for hours, and here it stays one.
    #[inline]
    pub(super) fn begins_another(&self, segment: Step, silence: i64) -> bool {
        segment.flags.any(Flags::SYN) && self.other_syn(segment, silence)
    }

    fn other_syn(&self, segment: Step, silence: i64) -> bool {
        let sequence = segment.sequence;
        let direction = &self.directions[usize::from(segment.from_low)];
        // Its SYN again, or late.
        if direction.known != NumberSource::Nothing && direction.initial == sequence
            || self.answers(segment)
        {
            return false;
        }
        let outside = match direction.known {
            NumberSource::Nothing => true,
            // The SYN of a connection whose data came first.
            NumberSource::Segment => sequence.wrapping_add(1) != direction.next,
            NumberSource::Syn => {
                after(sequence, direction.next) || after(direction.initial, sequence)
            }
        };
        let [a, b] = &self.directions;
        let ending = self.reset || a.finished || b.finished;
        ending && outside || direction.syns > 1 || silence > SILENCE
    }
}
