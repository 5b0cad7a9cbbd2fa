// SPDX-License-Identifier: Apache-2.0
//! A connection that the capture has on both sides of a device that gives it other sequence numbers and
//! leaves addresses and ports: a firewall that makes initial numbers random.
//!
//! 1. *Recognised*: a SYN, or a SYN-ACK, with another number than the one before it, of which
//!    everything holds:
//!    - its side sent nothing else, and the other side did not answer;
//!    - it comes within [`NEAR`] of the one before;
//!    - it has the same TSval (RFC 7323: the sender's clock), or without timestamps the same IP
//!      identification, not zero;
//!    - the numbers are [`DISTINCT`] or more from each other.
//!
//!    A host sends its SYN again with the same number, until it is answered.
//! 2. *Translated*: numbers of that side, in its segments and in the other's ACKs, that are nearer to the
//!    second numbering than to the first are moved to the first. So the segment becomes a copy of the other, and
//!    is recognised as one captured twice.

use super::connection::directions;
use super::flow::Flow;
use super::options::Parsed;
use super::report::Side;
use crate::segment::{Flags, Segment};

/// A device passes a SYN on before a timer sends it again: Linux's TCP_RTO_MIN, ns.
const NEAR: i64 = 200_000_000;

/// Two windows without scaling: nearer numberings could not be distinguished.
const DISTINCT: u32 = 2 << 16;

/// By how much the second numbering of client and server is ahead of the first; 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Renumbering([u32; 2]);

impl Renumbering {
    /// There is a second numbering.
    #[inline]
    pub(super) fn is_there(self) -> bool {
        self.0 != [0, 0]
    }

    /// The segment in the first numbering.
    #[cold]
    pub(super) fn first<'p>(
        &mut self,
        s: &Segment<'p>,
        options: &mut Parsed,
        side: Side,
        flows: &mut [Flow; 2],
    ) -> Segment<'p> {
        let (fwd, rev) = directions(flows, side);
        let mut first = *s;
        let acks = s.flags.any(Flags::ACK);
        let peer = self.0[side.peer() as usize];
        if acks {
            first.acknowledgement = moved(s.acknowledgement, peer, rev);
            options.map_sack(|number| moved(number, peer, rev));
        }
        if s.flags.any(Flags::SYN) && is_copy(&first, options, fwd, rev) {
            let ahead = s.sequence.wrapping_sub(fwd.send.origin as u32);
            self.0[side as usize] = ahead;
        }
        first.sequence = moved(s.sequence, self.0[side as usize], fwd);
        first
    }
}

/// Rule 2: a number of what `flow` sent.
fn moved(number: u32, ahead: u32, flow: &Flow) -> u32 {
    let next = flow.send.next as u32;
    let other = number.wrapping_sub(ahead);
    let distance = |n: u32| (n.wrapping_sub(next) as i32).unsigned_abs();
    if ahead != 0 && flow.send.known && distance(other) < distance(number) {
        other
    } else {
        number
    }
}

/// Rule 1, of a SYN whose acknowledgement is in the first numbering.
fn is_copy(s: &Segment<'_>, options: &Parsed, fwd: &Flow, rev: &Flow) -> bool {
    let ahead = s.sequence.wrapping_sub(fwd.send.origin as u32);
    let distinct = (ahead as i32).unsigned_abs() >= DISTINCT;
    let only_syns = fwd.syn && u32::from(fwd.syns) == fwd.tally.packets;
    let answers = match s.flags.any(Flags::ACK) {
        true => rev.syn && s.acknowledgement == (rev.send.origin as u32).wrapping_add(1),
        false => !rev.observed,
    };
    let elapsed = s.time.0.saturating_sub(fwd.last.time);
    let same = match (options.timestamps, fwd.send.first_tsval) {
        (Some((own, _)), Some(first)) => own == first,
        (None, None) => s
            .ip_id
            .is_some_and(|id| id != 0 && id == fwd.frames.last_id()),
        _ => false,
    };
    distinct && only_syns && answers && same && (0..NEAR).contains(&elapsed)
}
