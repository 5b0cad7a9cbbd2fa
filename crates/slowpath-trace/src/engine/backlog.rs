// SPDX-License-Identifier: Apache-2.0
//! Segments that wait for their connections' followers.
//!
//! A follower's state is many cache lines, and a capture's next segment is mostly another
//! connection's. So a connection's segments are put aside, packed, until there are
//! many of them, and are then followed one after the other while its state is near. All
//! that wait share a pool of a fixed size; whoever finds it full has to empty chains. The larger
//! the pool, the more segments of a connection wait in it ([`MOST`]).

use super::life::Step;
use crate::segment::{Endpoint, Flags, Segment, Timestamp};
use crate::tcp::Moment;

/// Words of a unit: one cache line. It holds a segment with up to [`INLINE`] bytes of options;
/// a segment with more takes a second one for the rest.
const UNIT: usize = 8;

/// Words of options in a segment's own unit, and their bytes.
const INLINE_WORDS: usize = 2;
const INLINE: usize = INLINE_WORDS * 8;

/// Options of a TCP header at most (RFC 9293 section 3.1), in bytes.
pub(super) const OPTIONS: usize = 40;

/// Words of options beyond a segment's own unit.
const REST_WORDS: usize = (OPTIONS - INLINE) / 8;

/// Units of a block.
const BLOCK: usize = 8;

/// Blocks of all workers' pools: 128 MiB.
const BLOCKS: usize = 1 << 18;

/// Blocks of a pool at least, however many workers there are: 16 MiB.
const FEWEST: usize = 1 << 15;

/// Units of a connection at most, about, in a pool of [`FEWEST`] blocks; in a larger one more in
/// proportion. If each connection has half of that waiting, 5,000 fill a pool.
const MOST: usize = 96;

/// There is none.
const NONE: u32 = u32::MAX;

/// One connection's waiting segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
    /// Units of the last block that are used; above them all units; above these, whether the chain
    /// is known to be long. In one word, written once a segment: what is read soon after it was
    /// written in parts waits for all that was written before.
    counts: u32,
}

/// Bits of a chain's counts.
const USED: u32 = 0xff;
const A_UNIT: u32 = 1 << 8;
const UNITS: u32 = (1 << 23) - 1;
const REPORTED: u32 = 1 << 31;

impl Chain {
    /// Nothing waits.
    pub(super) const EMPTY: Chain = Chain {
        first: NONE,
        last: NONE,
        counts: BLOCK as u32,
    };

    /// Nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// There are `most` units, so that it is time to follow them; reported once.
    #[inline]
    pub(super) fn becomes_long(&mut self, most: u32) -> bool {
        let counts = self.counts;
        let units = (counts / A_UNIT) & UNITS;
        let long = units >= most && counts & REPORTED == 0;
        if long {
            self.counts = counts | REPORTED;
        }
        long
    }

    /// Units of the last block that are used.
    #[inline]
    fn used(&self) -> usize {
        (self.counts & USED) as usize
    }
}

/// The pool.
pub(super) struct Backlog {
    words: Vec<u64>,
    /// The block after each.
    next: Vec<u32>,
    /// Blocks that were used and are free again; those from `untouched` on never were.
    freed: Vec<u32>,
    untouched: u32,
    /// Units of a connection at most, about.
    pub(super) most: u32,
}

/// Bits of a unit's sixth word, above the wire length.
mod bit {
    pub const TTL: u32 = 32;
    pub const ECN: u32 = 40;
    pub const CHECKED: u64 = 1 << 42;
    pub const RIGHT: u64 = 1 << 43;
    pub const HAS_ID: u64 = 1 << 44;
    pub const FROM_LOW: u64 = 1 << 45;
    pub const REPORT: u64 = 1 << 46;
    pub const REFUSED: u64 = 1 << 47;
    pub const OPTIONS: u32 = 48;
}

/// A segment without its connection's ends; options beyond [`INLINE`] are a [`Rest`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    unit: [u64; UNIT],
}

/// Options beyond a segment's own unit.
pub(super) type Rest = [u64; REST_WORDS];

/// No options beyond a segment's own unit.
pub(super) const NO_REST: Rest = [0; REST_WORDS];

impl Packed {
    /// To be filled.
    pub(super) const EMPTY: Packed = Packed { unit: [0; UNIT] };

    /// Packs a segment; gives the rest of its options, if there is one.
    #[inline]
    pub(super) fn fill(&mut self, from_low: bool, s: &Segment<'_>) -> Option<Rest> {
        let length = s.options.len().min(OPTIONS);
        let (own, rest) = s.options[..length].split_at(length.min(INLINE));
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let unit = &mut self.unit;
        unit[0] = s.time.0 as u64;
        unit[1] = s.frame;
        unit[2] = pair(s.sequence, s.acknowledgement);
        unit[3] = u64::from(s.flags.0) << 48
            | u64::from(s.window) << 32
            | u64::from(s.urgent) << 16
            | u64::from(s.ip_id.unwrap_or(0));
        unit[4] = pair(s.length, s.captured);
        unit[5] = u64::from(s.wire_length)
            | u64::from(s.ttl) << bit::TTL
            | u64::from(s.ecn & 3) << bit::ECN
            | flag(s.checksum_ok.is_some(), bit::CHECKED)
            | flag(s.checksum_ok == Some(true), bit::RIGHT)
            | flag(s.ip_id.is_some(), bit::HAS_ID)
            | flag(from_low, bit::FROM_LOW)
            | (length as u64) << bit::OPTIONS;
        write(own, &mut unit[UNIT - INLINE_WORDS..]);
        (!rest.is_empty()).then(|| {
            let mut words = NO_REST;
            write(rest, &mut words);
            words
        })
    }

    /// No segment, but what ICMP reported in its place in the order of frames: the destination of
    /// one of the connection's segments is unreachable.
    pub(super) fn report(&mut self, at: Moment, refused: bool) {
        self.unit = [0; UNIT];
        self.unit[0] = at.time.0 as u64;
        self.unit[1] = at.frame;
        self.unit[5] = bit::REPORT | if refused { bit::REFUSED } else { 0 };
    }

    /// What ICMP reported, and whether the host itself refused the port; `None`: it is a segment.
    #[inline]
    pub(super) fn reported(&self) -> Option<(Moment, bool)> {
        let bits = self.unit[5];
        (bits & bit::REPORT != 0).then(|| {
            let at = Moment {
                frame: self.frame(),
                time: Timestamp(self.time()),
            };
            (at, bits & bit::REFUSED != 0)
        })
    }

    /// It has a [`Rest`].
    #[inline]
    pub(super) fn has_rest(&self) -> bool {
        has_rest(&self.unit)
    }

    #[inline]
    pub(super) fn time(&self) -> i64 {
        self.unit[0] as i64
    }

    #[inline]
    pub(super) fn frame(&self) -> u64 {
        self.unit[1]
    }

    /// What decides where its connection begins and ends.
    #[inline]
    pub(super) fn step(&self) -> Step {
        Step {
            from_low: self.unit[5] & bit::FROM_LOW != 0,
            flags: Flags((self.unit[3] >> 48) as u16),
            sequence: (self.unit[2] >> 32) as u32,
            acknowledgement: self.unit[2] as u32,
            length: (self.unit[4] >> 32) as u32,
        }
    }

    /// Unpacks it, its options into `options`. `ends`: the lower and the higher end.
    #[inline]
    pub(super) fn segment<'a>(
        &self,
        rest: &Rest,
        ends: [Endpoint; 2],
        options: &'a mut [u8; OPTIONS],
    ) -> Segment<'a> {
        unpack(&self.unit, rest, ends, options)
    }
}

/// Bytes of a segment's options.
#[inline]
fn options_of(unit: &[u64; UNIT]) -> usize {
    ((unit[5] >> bit::OPTIONS) as usize).min(OPTIONS)
}

/// There is a [`Rest`] of them.
#[inline]
fn has_rest(unit: &[u64; UNIT]) -> bool {
    options_of(unit) > INLINE
}

/// The segment that was packed, its options in `options`.
#[inline]
fn unpack<'a>(
    unit: &[u64; UNIT],
    rest: &Rest,
    ends: [Endpoint; 2],
    options: &'a mut [u8; OPTIONS],
) -> Segment<'a> {
    let (high, low) = (|w: u64| (w >> 32) as u32, |w: u64| w as u32);
    let bits = unit[5];
    let length = options_of(unit);
    read(&unit[UNIT - INLINE_WORDS..], options);
    if length > INLINE {
        read(rest, &mut options[INLINE..]);
    }
    let [a, b] = ends;
    let (source, destination) = match bits & bit::FROM_LOW {
        0 => (b, a),
        _ => (a, b),
    };
    Segment {
        time: Timestamp(unit[0] as i64),
        frame: unit[1],
        source,
        destination,
        sequence: high(unit[2]),
        acknowledgement: low(unit[2]),
        flags: Flags((unit[3] >> 48) as u16),
        window: (unit[3] >> 32) as u16,
        urgent: (unit[3] >> 16) as u16,
        length: high(unit[4]),
        captured: low(unit[4]),
        options: &options[..length],
        checksum_ok: (bits & bit::CHECKED != 0).then_some(bits & bit::RIGHT != 0),
        ecn: (bits >> bit::ECN) as u8 & 3,
        ttl: (bits >> bit::TTL) as u8,
        ip_id: (bits & bit::HAS_ID != 0).then_some(unit[3] as u16),
        wire_length: low(bits),
    }
}

impl Backlog {
    /// The pool of one of `workers` workers.
    pub(super) fn new(workers: usize) -> Self {
        let blocks = (BLOCKS / workers.max(1)).max(FEWEST);
        // Zeroed memory costs nothing before it is used.
        let words = vec![0; blocks * BLOCK * UNIT];
        super::huge::advise(&words);
        Backlog {
            words,
            next: vec![0; blocks],
            freed: Vec::new(),
            untouched: 0,
            most: (MOST * blocks / FEWEST) as u32,
        }
    }

    /// Free blocks.
    #[inline]
    fn free(&self) -> usize {
        self.freed.len() + self.next.len() - self.untouched as usize
    }

    /// A free block.
    #[inline]
    fn take(&mut self) -> Option<u32> {
        self.freed.pop().or_else(|| {
            let block = self.untouched;
            let is_one = (block as usize) < self.next.len();
            self.untouched += u32::from(is_one);
            is_one.then_some(block)
        })
    }

    /// A segment, whatever its options, finds room in any chain.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.free() >= 2
    }

    /// A sixteenth of the pool is free.
    pub(super) fn is_eased(&self) -> bool {
        self.free() >= self.next.len() / 16
    }

    /// Fetches where a chain's next segment will be written.
    #[inline]
    pub(super) fn prefetch(&self, chain: &Chain) {
        let at = (chain.last as usize * BLOCK + chain.used()) * UNIT;
        super::prefetch(self.words.as_ptr().wrapping_add(at).cast());
    }

    /// Fetches a chain's first segments.
    pub(super) fn prefetch_first(&self, chain: &Chain) {
        self.prefetch_block(chain.first);
    }

    /// Fetches a block, and which one comes after it.
    #[inline]
    fn prefetch_block(&self, block: u32) {
        if block != NONE {
            let at = block as usize * BLOCK * UNIT;
            for unit in 0..BLOCK {
                super::prefetch(self.words.as_ptr().wrapping_add(at + unit * UNIT).cast());
            }
            let next = self.next.as_ptr().wrapping_add(block as usize);
            super::prefetch(next.cast());
        }
    }

    #[inline]
    fn unit(&mut self, chain: &mut Chain) -> Option<&mut [u64; UNIT]> {
        let mut counts = chain.counts;
        if chain.used() == BLOCK {
            let block = self.take()?;
            self.next[block as usize] = NONE;
            if chain.is_empty() {
                chain.first = block;
            } else {
                self.next[chain.last as usize] = block;
            }
            chain.last = block;
            counts &= !USED;
        }
        let used = (counts & USED) as usize;
        chain.counts = counts + A_UNIT + 1;
        let at = (chain.last as usize * BLOCK + used) * UNIT;
        self.words.get_mut(at..at + UNIT)?.try_into().ok()
    }

    /// Puts a segment aside. There is [room](Self::has_room).
    #[inline]
    pub(super) fn push(&mut self, chain: &mut Chain, packed: &Packed, rest: &Rest) {
        let Some(unit) = self.unit(chain) else { return };
        *unit = packed.unit;
        if packed.has_rest()
            && let Some(unit) = self.unit(chain)
        {
            unit[..REST_WORDS].copy_from_slice(rest);
        }
    }

    /// Takes a chain's segments out, oldest first. `ends`: the lower and the higher end of
    /// the connection.
    pub(super) fn drain(
        &mut self,
        chain: Chain,
        ends: [Endpoint; 2],
        mut each: impl FnMut(&Segment<'_>),
    ) {
        let mut block = chain.first;
        let mut options = [0; OPTIONS];
        // Of a segment whose options' rest is the unit that comes next.
        let mut begun = None;
        while block != NONE {
            self.prefetch_block(self.next[block as usize]);
            let last = block == chain.last;
            let units = if last { chain.used() } else { BLOCK };
            let at = block as usize * BLOCK * UNIT;
            let words = self.words.get(at..at + units * UNIT).unwrap_or(&[]);
            for unit in words.as_chunks::<UNIT>().0 {
                let (unit, rest) = match begun.take() {
                    Some(first) => (first, unit.first_chunk().unwrap_or(&NO_REST)),
                    None if has_rest(unit) => {
                        begun = Some(unit);
                        continue;
                    }
                    None => (unit, &NO_REST),
                };
                each(&unpack(unit, rest, ends, &mut options));
            }
            let next = self.next[block as usize];
            self.freed.push(block);
            block = if last { NONE } else { next };
        }
    }
}

/// Bytes to words.
#[inline]
fn write(bytes: &[u8], words: &mut [u64]) {
    // Timestamps, which nearly every segment has: without a loop.
    if bytes.len() == 12
        && let [first, second, ..] = words
        && let (Some(a), Some(b)) = (bytes.first_chunk(), bytes.last_chunk())
    {
        *first = u64::from_le_bytes(*a);
        *second = u64::from(u32::from_le_bytes(*b));
        return;
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
}

/// Words to bytes.
#[inline]
fn read(words: &[u64], bytes: &mut [u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn end(last: u8) -> Endpoint {
        Endpoint {
            address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)),
            port: u16::from(last),
        }
    }

    /// Everything of a segment, from a handful of numbers.
    fn segment<'a>(n: u64, from_low: bool, options: &'a [u8]) -> Segment<'a> {
        let (source, destination) = if from_low {
            (end(1), end(2))
        } else {
            (end(2), end(1))
        };
        let m = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Segment {
            time: Timestamp(m as i64),
            frame: n,
            source,
            destination,
            sequence: m as u32,
            acknowledgement: (m >> 7) as u32,
            flags: Flags((m >> 11) as u16 & 0x1ff),
            window: (m >> 13) as u16,
            urgent: (m >> 17) as u16,
            length: (m >> 19) as u32,
            captured: (m >> 23) as u32,
            options,
            checksum_ok: [None, Some(true), Some(false)][n as usize % 3],
            ecn: (m >> 29) as u8 & 3,
            ttl: (m >> 31) as u8,
            ip_id: n.is_multiple_of(2).then_some((m >> 37) as u16),
            wire_length: (m >> 29) as u32,
        }
    }

    proptest! {
        /// What comes out is what went in, in order, whatever was emptied between.
        #[test]
        fn chains_keep_their_segments(
            steps in prop::collection::vec((0usize..4, any::<u64>(), any::<bool>(), 0usize..=40, 0u8..20), 0..400),
        ) {
            let mut backlog = Backlog::new(8);
            let whole = backlog.free();
            let mut chains = [Chain::EMPTY; 4];
            let mut expected: [Vec<String>; 4] = Default::default();
            let bytes: Vec<u8> = (0..40).map(|n| n * 5 + 1).collect();
            for (which, n, from_low, length, emptied) in steps {
                let s = segment(n, from_low, &bytes[40 - length..]);
                let mut packed = Packed::EMPTY;
                let rest = packed.fill(from_low, &s);
                prop_assert_eq!(packed.has_rest(), rest.is_some());
                backlog.push(&mut chains[which], &packed, &rest.unwrap_or(NO_REST));
                expected[which].push(format!("{s:?}"));
                if emptied == 0 {
                    let chain = std::mem::replace(&mut chains[which], Chain::EMPTY);
                    let mut got = Vec::new();
                    backlog.drain(chain, [end(1), end(2)], |s| got.push(format!("{s:?}")));
                    prop_assert_eq!(got, std::mem::take(&mut expected[which]));
                }
            }
            for (chain, expected) in chains.into_iter().zip(expected) {
                let mut got = Vec::new();
                backlog.drain(chain, [end(1), end(2)], |s| got.push(format!("{s:?}")));
                prop_assert_eq!(got, expected);
            }
            prop_assert_eq!(backlog.free(), whole);
        }
    }

    #[test]
    fn reports_are_no_segments() {
        let mut packed = Packed::EMPTY;
        packed.fill(true, &segment(7, true, &[1; 12]));
        assert_eq!(packed.reported(), None);
        let at = Moment {
            frame: 9,
            time: Timestamp(-5),
        };
        for refused in [false, true] {
            packed.report(at, refused);
            assert_eq!(packed.reported(), Some((at, refused)));
            assert!(!packed.has_rest());
        }
    }

    #[test]
    fn room_is_exhausted_before_it_ends() {
        let mut backlog = Backlog::new(8);
        let mut chains = Vec::new();
        let mut pushed = 0;
        let mut packed = Packed::EMPTY;
        let rest = packed.fill(true, &segment(1, true, &[1; OPTIONS])).unwrap();
        while backlog.has_room() {
            let mut chain = Chain::EMPTY;
            backlog.push(&mut chain, &packed, &rest);
            chains.push(chain);
            pushed += 1;
        }
        let mut out = 0;
        for chain in chains {
            backlog.drain(chain, [end(1), end(2)], |_| out += 1);
        }
        assert_eq!(out, pushed);
    }
}
