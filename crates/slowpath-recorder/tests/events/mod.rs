// SPDX-License-Identifier: Apache-2.0
//! Events of the recorder as tests write them: by few numbers, which the kind's struct gets where it has a field for them.

use slowpath_recorder::stock::wire::{self, CallName, Kind, Late, RequestName, RunName};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Kinds of stories.
pub mod kind {
    pub const OPEN: u8 = 1;
    pub const CALL: u8 = 2;
    pub const CALL_END: u8 = 3;
    pub const LOCK: u8 = 4;
    pub const RELEASE: u8 = 5;
    pub const DRAIN: u8 = 6;
    pub const RUN_END: u8 = 7;
    pub const CALLBACK: u8 = 8;
    pub const CALLBACK_END: u8 = 9;
    pub const PACKET: u8 = 10;
    pub const TIMER: u8 = 11;
    pub const SMALL_QUEUE: u8 = 12;
    pub const CLOCK: u8 = 13;
    pub const SENT: u8 = 14;
    pub const HANDED_OVER: u8 = 15;
    pub const QUEUED: u8 = 16;
    pub const DRAINED: u8 = 17;
    pub const GONE: u8 = 18;
    pub const BUSY: u8 = 19;
    pub const REQUEST: u8 = 20;
    pub const SETTINGS: u8 = 21;
    pub const TIME_WAIT: u8 = 22;
    pub const WINDOW: u8 = 23;
    pub const ANSWERED_BY_RESET: u8 = 24;
}

/// An event; `what` and `words` mean what the kind has.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    pub at: u64,
    pub socket: u64,
    pub jiffies: u32,
    pub task: u32,
    pub kind: u8,
    pub what: u8,
    pub owned: bool,
    pub end: u8,
    pub words: [u32; 4],
    /// What jiffies were for those who noted them.
    pub noted: u32,
    pub like: u32,
    pub more: u32,
    pub lost: u32,
    /// Each byte of the socket's state.
    pub state: u8,
    /// Own and the peer's.
    pub addresses: [[u8; 16]; 2],
    pub found: Option<wire::RawSocketSettings>,
}

/// A struct behind its length.
fn behind_length(it: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    let bytes = it.as_bytes();
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// `what` of a call, as `enum call_name` has it.
fn call(what: u8) -> u32 {
    let name = match what {
        1 => CallName::Connect,
        2 => CallName::Accept,
        4 => CallName::Send,
        5 => CallName::Receive,
        7 => CallName::Shutdown,
        8 => CallName::Close,
        other => return 100 + u32::from(other),
    };
    name as u32
}

impl Raw {
    fn head(&self, kind: Kind) -> wire::Head {
        wire::Head {
            at: self.at,
            jiffies: self.jiffies,
            kind: kind as u8,
            end: self.end,
            owned: self.owned.into(),
            pad: 0,
        }
    }

    fn event(&self, kind: Kind) -> wire::Event {
        wire::Event {
            head: self.head(kind),
            sk: self.socket,
            clock: self.at,
            task: self.task,
            lost: self.lost,
            memory: 1,
            received: self.noted,
            data_sent: self.noted,
            window_changed: self.noted,
            out_of_window: self.noted,
            ..wire::Event::new_zeroed()
        }
    }

    fn snapshot(&self, kind: Kind) -> wire::Snapshot {
        let word = u32::from_ne_bytes([self.state; 4]);
        wire::Snapshot {
            event: self.event(kind),
            probed: wire::Probed([word; 40]),
            ..wire::Snapshot::new_zeroed()
        }
    }

    fn addresses(&self) -> wire::Addresses {
        let [own, peer] = self.addresses;
        wire::Addresses { own, peer }
    }

    fn stub(&self, kind: Kind) -> wire::Stub {
        wire::Stub {
            head: self.head(kind),
            addresses: self.addresses(),
            own_port: self.words[2] as u16,
            peer_port: self.words[3] as u16,
            pad: 0,
        }
    }

    /// As it lies in the recorder's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self.kind {
            kind::OPEN => behind_length(&wire::Opened {
                event: self.event(Kind::Opened),
                addresses: self.addresses(),
                own_port: self.words[2] as u16,
                peer_port: self.words[3] as u16,
                pad: 0,
            }),
            kind::CALL | kind::CALL_END | kind::LOCK => self.of_call(),
            kind::REQUEST | kind::TIME_WAIT => self.of_stub(),
            kind::SETTINGS => behind_length(&wire::Settings {
                event: self.event(Kind::Settings),
                found: self.found.unwrap_or(wire::RawSocketSettings::new_zeroed()),
            }),
            kind::RELEASE => behind_length(&self.snapshot(Kind::Release)),
            kind::DRAIN => behind_length(&self.snapshot(Kind::Drain)),
            kind::CALLBACK_END => behind_length(&self.snapshot(Kind::CallbackEnd)),
            kind::RUN_END => behind_length(&wire::RunEnd {
                snapshot: self.snapshot(Kind::RunEnd),
                run: match self.what {
                    kind::PACKET => RunName::OfPacket as u32,
                    kind::TIMER => RunName::OfTimer as u32,
                    _ => RunName::OfSmallQueue as u32,
                },
                damaged: self.words[0],
            }),
            kind::CALLBACK => behind_length(&wire::Callback {
                snapshot: self.snapshot(Kind::Callback),
                flags: self.words[0],
                pad: 0,
            }),
            _ => self.of_packet(),
        }
    }

    fn of_call(&self) -> Vec<u8> {
        let [a, b, c, _] = self.words;
        match (self.kind, self.what) {
            (kind::LOCK, _) => behind_length(&wire::Lock {
                event: self.event(Kind::Lock),
                fragment: self.like,
                pad: 0,
            }),
            (kind::CALL, 4 | 5) => behind_length(&wire::Transfer {
                event: self.event(Kind::Transfer),
                call: call(self.what),
                bytes: a,
                flags: b,
                first_page: c,
            }),
            (kind::CALL, 7) => behind_length(&wire::ShutdownCall {
                event: self.event(Kind::ShutdownCall),
                how: a,
                pad: 0,
            }),
            (kind::CALL, _) => behind_length(&wire::Call {
                event: self.event(Kind::Call),
                call: call(self.what),
                pad: 0,
            }),
            _ => behind_length(&wire::CallEnd {
                event: self.event(Kind::CallEnd),
                call: call(self.what),
                result: a as i32,
            }),
        }
    }

    fn of_stub(&self) -> Vec<u8> {
        let [ecn, full, ..] = self.words;
        match (self.kind, self.what) {
            (kind::TIME_WAIT, what) => behind_length(&wire::LatePacket {
                stub: self.stub(Kind::LatePacket),
                alike: self.like,
                ecn: ecn as u8 & 3,
                late: if what == 8 {
                    Late::NoSocketReset as u8
                } else {
                    what
                },
                ..wire::LatePacket::new_zeroed()
            }),
            (_, 2) => behind_length(&wire::RequestTimer {
                stub: self.stub(Kind::RequestTimer),
                tries: full,
                pad: 0,
            }),
            (_, 3) => behind_length(&wire::RequestAnswered {
                stub: self.stub(Kind::RequestAnswered),
                clock: self.at,
                theirs: 0,
                own: 0,
                likeness: self.more,
                cookie: full,
            }),
            (_, what) => behind_length(&wire::RequestPacket {
                stub: self.stub(Kind::RequestPacket),
                begins: 0,
                alike: self.like,
                id: 1,
                ecn: ecn as u8 & 3,
                request: match what {
                    0 => RequestName::Asked as u8,
                    1 => RequestName::AskedAgain as u8,
                    _ => RequestName::Ignored as u8,
                },
                full,
            }),
        }
    }

    fn of_packet(&self) -> Vec<u8> {
        let [a, b, c, d] = self.words;
        match (self.kind, self.what) {
            (kind::PACKET, what) => {
                let packet = |kind| wire::Packet {
                    event: self.event(kind),
                    begins: a,
                    ends: b,
                    truesize: c,
                    acknowledges: self.more,
                    alike: self.like,
                    id: d as u16,
                    ecn: (d >> 16) as u8 & 3,
                    bits: if what == 1 { wire::bit::FIRST } else { 0 },
                };
                // SYN
                if d >> 24 & 2 == 0 {
                    return behind_length(&packet(Kind::Packet));
                }
                behind_length(&wire::SynPacket {
                    packet: packet(Kind::SynPacket),
                    likeness: self.more,
                    pad: 0,
                })
            }
            (kind::TIMER, what) => behind_length(&wire::Timer {
                event: self.event(Kind::Timer),
                timer: what.into(),
                pad: 0,
            }),
            (kind::CLOCK, 1) => behind_length(&wire::Child {
                event: self.event(Kind::Child),
                sent: u64::from(b) << 32 | u64::from(a),
                round_trip: c,
                pad: 0,
            }),
            (kind::SENT, _) => behind_length(&wire::Sent {
                event: self.event(Kind::Sent),
                begins: a,
                ends: b,
                id: d & 0xffff,
                pad: 0,
            }),
            (kind::HANDED_OVER, _) => behind_length(&wire::HandedOver {
                event: self.event(Kind::HandedOver),
                result: a as i32,
                pad: 0,
            }),
            (kind::QUEUED, what) => behind_length(&wire::Queued {
                event: self.event(Kind::Queued),
                begins: a,
                ends: b,
                alike: self.like,
                id: d as u16,
                bits: if what == 0 { 0 } else { wire::bit::MERGED },
                pad: 0,
            }),
            (kind::ANSWERED_BY_RESET, _) => behind_length(&wire::AnsweredByReset {
                event: self.event(Kind::AnsweredByReset),
                begins: a,
                acknowledges: b,
            }),
            (
                plain @ (kind::SMALL_QUEUE
                | kind::CLOCK
                | kind::DRAINED
                | kind::GONE
                | kind::BUSY
                | kind::WINDOW),
                _,
            ) => behind_length(&self.event(plain_kind(plain))),
            _ => behind_length(&wire::Named {
                event: self.event(Kind::Named),
                alike: self.like,
                pad: 0,
            }),
        }
    }
}

/// The kind of an event that has nothing of its own.
fn plain_kind(kind: u8) -> Kind {
    match kind {
        kind::SMALL_QUEUE => Kind::SmallQueue,
        kind::CLOCK => Kind::Clock,
        kind::DRAINED => Kind::Drained,
        kind::GONE => Kind::Gone,
        kind::BUSY => Kind::Busy,
        _ => Kind::Window,
    }
}
