// SPDX-License-Identifier: Apache-2.0
//! The light recorder's pieces: twins of the structures in `probes/packets/block.bpf.h`. Each behind its length, little-endian.

use crate::stock::Found;
use std::net::{IpAddr, Ipv4Addr};

/// `WORDS` there.
pub(super) const WORDS: usize = 7;
/// `STATES` there.
pub(super) const STATES: usize = 12;

/// `sizeof(struct opened)` without its settings.
const OPENED: usize = 84;
const HEAD: usize = 80;
const SEEN: usize = 12;
const CALLED: usize = 12;

/// Places in [`Words`].
pub(super) mod word {
    pub const NEXT: usize = 0;
    pub const ACKNOWLEDGED: usize = 1;
    pub const WRITTEN: usize = 2;
    pub const RECEIVED: usize = 3;
    pub const READ: usize = 4;
    pub const MEMORY: usize = 5;
    pub const WINDOW: usize = 6;
}

pub(super) type Words = [u32; WORDS];

/// `enum flag`.
mod flag {
    pub const OWNED: u8 = 1;
    pub const MARKED: u8 = 2;
    pub const FULL: u8 = 4;
    pub const DATA: u8 = 8;
    pub const TOLD: u8 = 16;
    pub const TIMED: u8 = 32;
    pub const WENT: u8 = 64;
}

const STATE: u8 = 2;

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
    pub words: Words,
    pub found: Found,
}

/// What there is to see when TCP begins with a packet, or goes to another state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub what: What,
    /// The identification that the socket's next packet has.
    pub next: u16,
    /// What TCP's clock had read before.
    pub clock: u64,
    pub owned: bool,
    pub full: bool,
    /// It has data, or ends them.
    pub data: bool,
    /// Which of the words are told: those that have changed.
    pub changed: u8,
    pub words: Words,
    /// When an acknowledgment told last of something new, in microseconds, the lower half; if one may have.
    pub told: Option<u32>,
    /// When it came, the lower half; of an acknowledgment of all that was sent.
    pub came: Option<u32>,
    /// What the clock had read when something was sent last, the lower half; it has been read since.
    pub went: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Packet { id: u16, segments: u8, marked: bool },
    State { from: u8, to: u8, shutdown: u8 },
}

/// A timer that was about to run, or what small queues had held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fired {
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
pub(super) struct Called {
    pub sent: bool,
    pub result: i32,
    pub flags: u32,
    /// TCP's last reading of its clock; of one that sends, that with which something was sent last. The lower half.
    pub clock: u32,
}

impl Seen {
    /// What the clock had read when something was sent last, or later.
    pub(super) fn sent(&self) -> u64 {
        match self.went {
            None => self.clock,
            Some(went) => {
                let since = (self.clock as u32).wrapping_sub(went) as i32;
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
        block: Block<Seen>,
        state: [u32; STATES],
        gone: bool,
    },
    Calls(Block<Called>),
    Fired(Fired),
}

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub socket: u64,
    pub what: Kind,
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn u8(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn words<const N: usize>(&self, at: usize) -> Option<[u32; N]> {
        let mut all = [0; N];
        for (place, word) in all.iter_mut().enumerate() {
            *word = self.u32(at + 4 * place)?;
        }
        Some(all)
    }

    fn behind(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(length)?)
    }
}

impl Piece {
    pub(super) fn read(bytes: &[u8]) -> Option<(Piece, &[u8])> {
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (it, rest) = bytes.get(4..)?.split_at_checked(length)?;
        let it = Bytes(it);
        let piece = match it.u8(0)? {
            1 => opened(&it)?,
            kind @ (2 | 5) => Piece {
                socket: it.u64(16)?,
                what: Kind::Packets {
                    block: packets(&it)?,
                    state: it.words(32)?,
                    gone: kind == 5,
                },
            },
            3 => Piece {
                socket: it.u64(16)?,
                what: Kind::Calls(calls(&it)?),
            },
            4 => Piece {
                socket: it.u64(8)?,
                what: Kind::Fired(Fired {
                    timer: it.u8(1)?,
                    next: it.u16(2)?,
                    jiffies: it.u32(4)?,
                    at: it.u64(16)?,
                    memory: it.u32(24)?,
                    owned: it.u32(28)? != 0,
                }),
            },
            _ => return None,
        };
        Some((piece, rest))
    }
}

/// As in packets.
fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(number)))
}

fn opened(it: &Bytes<'_>) -> Option<Piece> {
    let opened = Opened {
        end: it.u8(1)?,
        own: (address(it.u32(8)?), it.u16(2)?),
        peer: (address(it.u32(12)?), it.u16(4)?.swap_bytes()),
        next: it.u16(6)?,
        at: it.u64(24)?,
        clock: it.u64(32)?,
        begun: it.u64(40)?,
        jiffies: it.u32(48)?,
        words: it.words(52)?,
        found: Found::read(it.0.get(OPENED..)?)?,
    };
    Some(Piece {
        socket: it.u64(16)?,
        what: Kind::Opened(Box::new(opened)),
    })
}

fn packets(it: &Bytes<'_>) -> Option<Block<Seen>> {
    let used = usize::from(it.u16(2)?);
    let mut clock = it.u64(8)?;
    let mut rest = it.behind(HEAD, used)?;
    let mut list = Vec::new();
    while !rest.is_empty() {
        let one = Bytes(rest);
        let changed = one.u8(8)?;
        clock = clock.wrapping_add(u64::from(one.u32(4)?.wrapping_sub(clock as u32)));
        let (id, segments, flags) = (one.u16(0)?, one.u8(9)?, one.u8(10)?);
        let mut at = SEEN;
        let mut words = [0; WORDS];
        for (place, word) in words.iter_mut().enumerate() {
            if changed >> place & 1 != 0 {
                *word = one.u32(at)?;
                at += 4;
            }
        }
        let mut moment = |which: u8| -> Option<Option<u32>> {
            if flags & which == 0 {
                return Some(None);
            }
            let moment = one.u32(at)?;
            at += 4;
            Some(Some(moment))
        };
        let (told, came, went) = (
            moment(flag::TOLD)?,
            moment(flag::TIMED)?,
            moment(flag::WENT)?,
        );
        let what = if one.u8(11)? == STATE {
            let [from, to] = id.to_le_bytes();
            let shutdown = segments;
            What::State { from, to, shutdown }
        } else {
            What::Packet {
                id,
                segments: segments.max(1),
                marked: flags & flag::MARKED != 0,
            }
        };
        list.push(Seen {
            what,
            next: one.u16(2)?,
            clock,
            owned: flags & flag::OWNED != 0,
            full: flags & flag::FULL != 0,
            data: flags & flag::DATA != 0,
            changed,
            words,
            told,
            came,
            went,
        });
        rest = rest.get(at..)?;
    }
    Some(Block {
        serial: it.u32(4)?,
        lost: it.u32(24)?,
        list,
    })
}

fn calls(it: &Bytes<'_>) -> Option<Block<Called>> {
    let used = usize::from(it.u16(2)?);
    let one = |bytes: &[u8]| -> Option<Called> {
        let one = Bytes(bytes);
        let flags = one.u32(4)?;
        Some(Called {
            sent: flags >> 24 == 1,
            result: one.u32(0)? as i32,
            flags: flags & 0xff_ffff,
            clock: one.u32(8)?,
        })
    };
    let all = it.behind(HEAD, used)?.chunks_exact(CALLED);
    Some(Block {
        serial: it.u32(4)?,
        lost: it.u32(24)?,
        list: all.map(one).collect::<Option<_>>()?,
    })
}
