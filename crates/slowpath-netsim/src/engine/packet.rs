// SPDX-License-Identifier: Apache-2.0
//! Packets: 16 bytes that travel, and 32 that wait for the other end;
//! SACK blocks separately, as few packets have any.

use crate::tcp::{Ack, SackBlocks, Segment};
use slowpath_switch::{Destination, Packet, Time};

/// Of the second word of a [`Hop`]: from which bit on.
const BYTES: u32 = 32;
const TTL: u32 = 48;
const CLASS: u32 = 58;
const LABEL: u32 = 61;
const CAPABLE: u64 = 1 << 56;
const MARKED: u64 = 1 << 57;
/// Priorities and labels have 3 bits each.
pub(super) const MAX_CLASS: u8 = 7;

/// What switches and lines look at and pass on: two words that stay in registers. Fields of
/// their own are stored one by one and read as one, which a processor cannot forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    /// The place of the body, and what ECMP hashes.
    body_and_key: u64,
    /// The destination, bytes, TTL, marks, class and label.
    rest: u64,
}

impl Hop {
    #[inline]
    pub fn new(body: u32, key: u32, to: u32, bytes: u16, ttl: u8) -> Self {
        Hop {
            body_and_key: u64::from(body) | u64::from(key) << u32::BITS,
            rest: u64::from(to) | u64::from(bytes) << BYTES | u64::from(ttl) << TTL,
        }
    }

    #[inline]
    pub fn capable(mut self, capable: bool) -> Self {
        self.rest |= u64::from(capable) * CAPABLE;
        self
    }

    #[inline]
    pub fn classed(mut self, class: u8, label: u8) -> Self {
        self.rest |= u64::from(class) << CLASS | u64::from(label) << LABEL;
        self
    }

    /// The same with another body.
    pub fn with_body(self, body: u32) -> Self {
        Hop {
            body_and_key: self.body_and_key >> u32::BITS << u32::BITS | u64::from(body),
            ..self
        }
    }

    /// Where the rest is.
    #[inline]
    pub fn body(&self) -> u32 {
        self.body_and_key as u32
    }

    /// What ECMP hashes.
    #[inline]
    pub fn key(&self) -> u32 {
        (self.body_and_key >> u32::BITS) as u32
    }

    #[inline]
    pub fn to(&self) -> u32 {
        self.rest as u32
    }

    /// Bytes on the wire.
    #[inline]
    pub fn length(&self) -> u16 {
        (self.rest >> BYTES) as u16
    }

    #[inline]
    pub fn is_marked(&self) -> bool {
        self.rest & MARKED != 0
    }

    /// The label of the flow it belongs to.
    #[inline]
    pub fn label(&self) -> u8 {
        (self.rest >> LABEL) as u8
    }
}

impl Packet for Hop {
    #[inline]
    fn bytes(&self) -> u32 {
        u32::from(self.length())
    }

    #[inline]
    fn destination(&self) -> Destination {
        Destination(self.to())
    }

    #[inline]
    fn flow(&self) -> u64 {
        u64::from(self.key())
    }

    #[inline]
    fn class(&self) -> u8 {
        (self.rest >> CLASS) as u8 & MAX_CLASS
    }

    #[inline]
    fn is_ecn_capable(&self) -> bool {
        self.rest & CAPABLE != 0
    }

    #[inline]
    fn mark(&mut self) {
        self.rest |= MARKED;
    }

    #[inline]
    fn ttl(&self) -> u8 {
        (self.rest >> TTL) as u8
    }

    #[inline]
    fn set_ttl(&mut self, ttl: u8) {
        self.rest = self.rest & !(u64::from(u8::MAX) << TTL) | u64::from(ttl) << TTL;
    }
}

const DATA: u8 = 1;
const RESENT: u8 = 2;
const CWR: u8 = 4;
const SYN: u8 = 8;
const PUSH: u8 = 128;
const ECE: u8 = 16;
const DATAGRAM: u8 = 32;
const DETOURED: u8 = 64;
/// Of `Body::more`.
const DAMAGED: u8 = 1;

/// What the ends look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// Of a segment its first byte, of an ACK the next expected one.
    offset: u64,
    /// Of a segment the echo, of an ACK its stamp.
    stamp: Time,
    pub connection: u32,
    /// Of a segment its payload, of an ACK the window.
    len: u32,
    /// Where its SACK blocks are; [`NO_BLOCKS`] without.
    sack: u32,
    bits: u8,
    more: u8,
}

const NO_BLOCKS: u32 = u32::MAX;

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Data of TCP, or its SYN.
    Segment(Segment),
    /// An acknowledgment.
    Ack(Ack),
    /// Bytes of payload.
    Datagram(u32),
}

impl Body {
    #[inline]
    pub fn segment(connection: u32, segment: &Segment) -> Self {
        Body {
            offset: segment.seq,
            stamp: segment.echo,
            sack: NO_BLOCKS,
            connection,
            len: segment.len,
            bits: DATA
                | (u8::from(segment.retransmission) * RESENT)
                | (u8::from(segment.cwr) * CWR)
                | (u8::from(segment.push) * PUSH)
                | (u8::from(segment.syn) * SYN),
            more: 0,
        }
    }

    #[inline]
    fn ack(connection: u32, ack: &Ack) -> Self {
        Body {
            offset: ack.ack,
            stamp: ack.stamp,
            sack: NO_BLOCKS,
            connection,
            len: ack.window,
            bits: (u8::from(ack.ece) * ECE) | (u8::from(ack.syn) * SYN),
            more: 0,
        }
    }

    pub fn datagram(connection: u32, len: u32) -> Self {
        Body {
            offset: 0,
            stamp: Time::ZERO,
            sack: NO_BLOCKS,
            connection,
            len,
            bits: DATAGRAM,
            more: 0,
        }
    }

    #[inline]
    pub fn is_segment(&self) -> bool {
        self.bits & DATA != 0
    }

    pub fn is_detoured(&self) -> bool {
        self.bits & DETOURED != 0
    }

    /// Whether a link damaged it.
    pub fn is_damaged(&self) -> bool {
        self.more & DAMAGED != 0
    }

    /// With the SACK blocks that [`Bodies::remove`] gave.
    #[inline]
    pub fn content(&self, sack: SackBlocks) -> Content {
        let is = |bit| self.bits & bit != 0;
        if is(DATA) {
            Content::Segment(Segment {
                seq: self.offset,
                len: self.len,
                retransmission: is(RESENT),
                cwr: is(CWR),
                push: is(PUSH),
                syn: is(SYN),
                echo: self.stamp,
            })
        } else if is(DATAGRAM) {
            Content::Datagram(self.len)
        } else {
            Content::Ack(Ack {
                ack: self.offset,
                window: self.len,
                ece: is(ECE),
                syn: is(SYN),
                stamp: self.stamp,
                sack,
            })
        }
    }
}

/// Places for something, used again: the one freed last is filled first.
struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    const fn new() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    #[inline]
    fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.places[at as usize] = value;
            return at;
        }
        self.places.push(value);
        (self.places.len() - 1) as u32
    }

    #[inline]
    fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.places[at as usize]
    }
}

/// Bodies of the packets in the network.
pub(super) struct Bodies {
    bodies: Slab<Body>,
    blocks: Slab<SackBlocks>,
}

impl Bodies {
    pub const fn new() -> Self {
        Bodies {
            bodies: Slab::new(),
            blocks: Slab::new(),
        }
    }

    #[inline]
    pub fn insert(&mut self, body: Body) -> u32 {
        self.bodies.insert(body)
    }

    #[inline]
    pub fn insert_ack(&mut self, connection: u32, ack: &Ack) -> u32 {
        let mut body = Body::ack(connection, ack);
        if !ack.sack.is_empty() {
            body.sack = self.blocks.insert(ack.sack);
        }
        self.bodies.insert(body)
    }

    #[inline]
    pub fn remove(&mut self, at: u32) -> (Body, SackBlocks) {
        let body = self.bodies.remove(at);
        let blocks = if body.sack == NO_BLOCKS {
            SackBlocks::default()
        } else {
            self.blocks.remove(body.sack)
        };
        (body, blocks)
    }

    /// The body of a packet, and its SACK blocks.
    pub fn whole(&self, at: u32) -> (&Body, SackBlocks) {
        let body = self.at(at);
        let blocks = self.blocks.places.get(body.sack as usize);
        (body, blocks.copied().unwrap_or_default())
    }

    /// The body of a packet.
    #[inline]
    pub fn at(&self, at: u32) -> &Body {
        &self.bodies.places[at as usize]
    }

    /// Notes that the packet took a detour.
    pub fn detour(&mut self, at: u32) {
        self.bodies.places[at as usize].bits |= DETOURED;
    }

    /// Notes that a link damaged the packet.
    pub fn damage(&mut self, at: u32) {
        self.bodies.places[at as usize].more |= DAMAGED;
    }

    /// The same once more.
    pub fn copy(&mut self, at: u32) -> u32 {
        let mut body = *self.at(at);
        if body.sack != NO_BLOCKS {
            let blocks = self.blocks.places[body.sack as usize];
            body.sack = self.blocks.insert(blocks);
        }
        self.bodies.insert(body)
    }

    /// The packets in the network.
    pub fn live(&self) -> u64 {
        (self.bodies.places.len() - self.bodies.free.len()) as u64
    }

    /// The most there ever were.
    pub fn most(&self) -> u64 {
        self.bodies.places.len() as u64
    }
}

const _: () = assert!(size_of::<Hop>() == 16 && size_of::<Body>() == 32);
