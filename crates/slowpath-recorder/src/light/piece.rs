// SPDX-License-Identifier: Apache-2.0
//! The light recorder's pieces, read: from the mirrors of [`super::wire`] to what the joiner works with.

use super::wire::{self, flag};
use crate::stock::SocketSettings;
use std::net::{IpAddr, Ipv4Addr};
use zerocopy::FromBytes;

/// SocketWords of [`wire::SocketWords`].
pub(super) const WORDS: usize = 7;
/// SocketWords of [`wire::State`].
pub(super) const STATES: usize = 12;

/// Places in [`SocketWords`].
pub(super) mod index {
    pub const NEXT: usize = 0;
    pub const ACKNOWLEDGED: usize = 1;
    pub const WRITTEN: usize = 2;
    pub const RECEIVED: usize = 3;
    pub const READ: usize = 4;
    pub const MEMORY: usize = 5;
    pub const WINDOW: usize = 6;
}

pub(super) type SocketWords = [u32; WORDS];

/// A socket that is established.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// 0: it connected.
    pub end: u8,
    pub own: (IpAddr, u16),
    pub peer: (IpAddr, u16),
    /// The identification that its next packet has.
    pub next: u16,
    pub at: u64,
    pub clock: u64,
    pub begun: u64,
    pub jiffies: u32,
    pub words: SocketWords,
    pub found: SocketSettings,
}

/// What the socket shows when TCP begins with a packet, or goes to another state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub event: Event,
    /// The identification that the socket's next packet has.
    pub next: u16,
    /// What TCP's clock had read before.
    pub clock: u64,
    pub owned: bool,
    pub full: bool,
    /// It has data, or ends them.
    pub data: bool,
    /// Which of the words it carries: those that have changed.
    pub changed: u8,
    pub words: SocketWords,
    /// When something new was acknowledged last, in microseconds, the lower half; if that may have changed.
    pub delivered: Option<u32>,
    /// When it arrived, the lower half; of an acknowledgment of all that was sent.
    pub arrived: Option<u32>,
    /// What the clock had read when something was sent last, the lower half; it has been read since.
    pub last_sent: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Packet { id: u16, segments: u8, marked: bool },
    State { from: u8, to: u8, shutdown: u8 },
}

/// A timer that was about to run, or what small queues had held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerEvent {
    pub timer: u8,
    pub at: u64,
    pub jiffies: u32,
    /// The identification that the socket's next packet has.
    pub next: u16,
    pub memory: u32,
    pub owned: bool,
}

/// A call that has returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEvent {
    pub sent: bool,
    pub result: i32,
    pub flags: u32,
    /// TCP's last reading of its clock; of one that sends, that with which something was sent last. The lower half.
    pub clock: u32,
}

impl Observation {
    /// What the clock had read when something was sent last, or later.
    pub(super) fn sent(&self) -> u64 {
        match self.last_sent {
            None => self.clock,
            Some(last_sent) => {
                let since = (self.clock as u32).wrapping_sub(last_sent) as i32;
                self.clock.wrapping_add_signed(-i64::from(since))
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Block<T> {
    pub serial: u32,
    pub lost: u32,
    pub list: Vec<T>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Opened(Box<Opened>),
    Packets {
        block: Block<Observation>,
        state: [u32; STATES],
        gone: bool,
    },
    Calls(Block<CallEvent>),
    Timer(TimerEvent),
}

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub socket: u64,
    pub content: Kind,
}

/// A struct, and what follows it.
fn first<T>(bytes: &[u8]) -> Option<(T, &[u8])>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable,
{
    T::read_from_prefix(bytes).ok()
}

/// One word.
fn word_of(bytes: &mut &[u8]) -> Option<u32> {
    let (word, rest) = first(bytes)?;
    *bytes = rest;
    Some(word)
}

impl Piece {
    pub(super) fn read(bytes: &[u8]) -> Option<(Piece, &[u8])> {
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (it, rest) = bytes.get(4..)?.split_at_checked(length)?;
        let piece = match wire::Kind::from_raw(*it.first()?)? {
            wire::Kind::Opened => opened(&wire::Opened::read_from_bytes(it).ok()?),
            kind @ (wire::Kind::Packets | wire::Kind::Gone) => {
                let (head, data): (wire::Head, _) = first(it)?;
                Piece {
                    socket: head.sk,
                    content: Kind::Packets {
                        block: packets(&head, data)?,
                        state: head.state.0,
                        gone: kind == wire::Kind::Gone,
                    },
                }
            }
            wire::Kind::Calls => {
                let (head, data): (wire::Head, _) = first(it)?;
                Piece {
                    socket: head.sk,
                    content: Kind::Calls(calls(&head, data)?),
                }
            }
            wire::Kind::Timer => {
                let it = wire::TimerEvent::read_from_bytes(it).ok()?;
                Piece {
                    socket: it.sk,
                    content: Kind::Timer(TimerEvent {
                        timer: it.timer,
                        next: it.next,
                        jiffies: it.jiffies,
                        at: it.at,
                        memory: it.memory,
                        owned: it.owned != 0,
                    }),
                }
            }
        };
        Some((piece, rest))
    }
}

/// As in packets.
fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(number)))
}

fn opened(it: &wire::Opened) -> Piece {
    let opened = Opened {
        end: it.end,
        own: (address(it.own), it.own_port),
        peer: (address(it.peer), u16::from_be(it.peer_port)),
        next: it.next,
        at: it.at,
        clock: it.clock,
        begun: it.begun,
        jiffies: it.jiffies,
        words: it.words.0,
        found: SocketSettings::from(&it.found),
    };
    Piece {
        socket: it.sk,
        content: Kind::Opened(Box::new(opened)),
    }
}

fn packets(head: &wire::Head, data: &[u8]) -> Option<Block<Observation>> {
    let mut clock = head.clock;
    let mut rest = data.get(..usize::from(head.used))?;
    let mut list = Vec::new();
    while !rest.is_empty() {
        // A packet and a state have the same size, and differ in a few fields only.
        let (it, behind): (wire::PacketEvent, _) = first(rest)?;
        let (state, _): (wire::StateEvent, _) = first(rest)?;
        rest = behind;
        let (changed, flags) = (it.words, it.flags);
        clock = clock.wrapping_add(u64::from(it.clock.wrapping_sub(clock as u32)));
        let mut words = [0; WORDS];
        for (place, word) in words.iter_mut().enumerate() {
            if changed >> place & 1 != 0 {
                *word = word_of(&mut rest)?;
            }
        }
        let mut moment = |which: u8| -> Option<Option<u32>> {
            if flags & which == 0 {
                return Some(None);
            }
            Some(Some(word_of(&mut rest)?))
        };
        let (delivered, arrived, last_sent) = (
            moment(flag::DELIVERED)?,
            moment(flag::ARRIVED)?,
            moment(flag::LAST_SENT)?,
        );
        let event = if it.kind == wire::STATE {
            Event::State {
                from: state.from,
                to: state.to,
                shutdown: state.shutdown,
            }
        } else {
            Event::Packet {
                id: it.id,
                segments: it.segments.max(1),
                marked: flags & flag::MARKED != 0,
            }
        };
        list.push(Observation {
            event,
            next: it.next,
            clock,
            owned: flags & flag::OWNED != 0,
            full: flags & flag::FULL != 0,
            data: flags & flag::DATA != 0,
            changed,
            words,
            delivered,
            arrived,
            last_sent,
        });
    }
    Some(Block {
        serial: head.serial,
        lost: head.lost,
        list,
    })
}

fn calls(head: &wire::Head, data: &[u8]) -> Option<Block<CallEvent>> {
    let data = data.get(..usize::from(head.used))?;
    let one = |bytes: &[u8]| -> Option<CallEvent> {
        let one = wire::CallEvent::read_from_bytes(bytes).ok()?;
        Some(CallEvent {
            sent: one.flags >> 24 == wire::SENT,
            result: one.result,
            flags: one.flags & 0xff_ffff,
            clock: one.clock,
        })
    };
    let all = data.chunks_exact(size_of::<wire::CallEvent>());
    Some(Block {
        serial: head.serial,
        lost: head.lost,
        list: all.map(one).collect::<Option<_>>()?,
    })
}
