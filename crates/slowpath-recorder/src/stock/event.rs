// SPDX-License-Identifier: Apache-2.0
//! The recorder's events, read: from the mirrors of [`super::wire`] to what the joiner works with.

use super::wire::{self, Kind, bit};
use slowpath_recording::fields::{Field, SocketFields};
use std::net::{IpAddr, SocketAddr};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// What the recorder reported: of a socket, or of what has none.
#[derive(Clone, Debug)]
pub(super) enum Report {
    Socket(Event),
    Stub(Stub),
}

/// An event of a socket; times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// What every event has.
    pub of: wire::Event,
    pub kind: Kind,
    /// A call has the socket.
    pub owned: bool,
    pub body: Body,
    /// The state that a check is made from, where the event carries it.
    pub fields: Option<SocketFields>,
    /// With fields: the phase of BBR.
    pub phase: u32,
}

/// What an event has of its own.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Nothing, or nothing but fields.
    Plain,
    Opened([SocketAddr; 2]),
    Call(u32),
    Transfer(wire::Transfer),
    Shutdown {
        how: u32,
    },
    OptionCall(wire::OptionCall),
    CallEnd {
        call: u32,
        result: i32,
    },
    OptionEnd {
        result: i32,
    },
    Lock {
        fragment: u32,
    },
    RunEnd {
        of_packet: bool,
        damaged: bool,
    },
    Callback {
        flags: u32,
    },
    Packet(ArrivedPacket),
    Timer(u32),
    Child(wire::Child),
    Sent(wire::Sent),
    HandedOver {
        result: i32,
    },
    Queued(wire::Queued),
    Settings(Box<SocketSettings>),
    AnsweredByReset(wire::AnsweredByReset),
    Named {
        alike: u32,
    },
    Options(Box<wire::Set>),
    Other(u32),
    Metrics(wire::Metrics),
}

/// A packet that came to a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedPacket {
    pub packet: wire::Packet,
    /// It has SYN: its likeness.
    pub syn: Option<u32>,
}

/// An event of what has no socket: a request for a connection, or what is left of one.
#[derive(Clone, Debug)]
pub(super) struct Stub {
    pub at: u64,
    pub jiffies: u32,
    /// As [`super::client_first`] orders them.
    pub addresses: [SocketAddr; 2],
    pub event: StubEvent,
}

/// What it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum StubEvent {
    Packet(wire::RequestPacket),
    Timer { tries: u32 },
    Answered(wire::RequestAnswered),
    Late(wire::LatePacket),
}

/// A packet, as those who have not sent it know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    /// Its IP identification, over IPv4.
    pub id: u16,
    /// Over IPv6 a number made of its TCP header, and its length.
    pub like: u32,
    /// When it came.
    pub at: u64,
    /// Its sequence numbers, the first and the one behind the last; the same: not known.
    pub stretch: [u32; 2],
    /// It is of several segments.
    pub several: bool,
    /// Of bytes that its sender has not: it was cut or copied on the way.
    pub own: bool,
}

/// What a socket and its namespace are set to, where a replay needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketSettings {
    pub mtu: u32,
    /// In the order of [`wire::UsualSysctls`].
    pub values: [u32; 12],
    pub congestion: String,
    /// [`WRITE_BUFFERS`](slowpath_recording::sysctls::WRITE_BUFFERS), then [`SYSCTLS`](slowpath_recording::sysctls::SYSCTLS); all ones: not known.
    pub more: Vec<u32>,
    /// Whether its device takes packets that are larger than the path does, and the kernel need not cut them.
    pub segments: Option<bool>,
}

impl From<&wire::RawSocketSettings> for SocketSettings {
    fn from(raw: &wire::RawSocketSettings) -> SocketSettings {
        let name = raw.congestion.split(|byte| *byte == 0).next();
        SocketSettings {
            mtu: raw.mtu,
            values: raw.usual.0,
            congestion: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
            more: raw.further.0.to_vec(),
            segments: (raw.segments < 2).then_some(raw.segments == 1),
        }
    }
}

fn addresses(
    end: u8,
    addresses: &wire::Addresses,
    own_port: u16,
    peer_port: u16,
) -> [SocketAddr; 2] {
    let address = |bytes: [u8; 16]| IpAddr::from(bytes).to_canonical();
    let own = (address(addresses.own), own_port);
    let peer = (address(addresses.peer), u16::from_be(peer_port));
    super::client_first(end, own, peer)
}

impl ArrivedPacket {
    /// By what it is known.
    pub(super) fn name(&self, at: u64) -> Name {
        name(
            at,
            self.packet.id,
            self.packet.alike,
            [self.packet.begins, self.packet.ends],
            self.packet.bits,
        )
    }
}

/// By what a packet in the backlog is known.
pub(super) fn queued_name(at: u64, it: &wire::Queued) -> Name {
    name(at, it.id, it.alike, [it.begins, it.ends], it.bits)
}

/// By what a packet that came to no socket is known; where it ends is not.
pub(super) fn stub_name(at: u64, id: u16, alike: u32, begins: u32) -> Name {
    name(at, id, alike, [begins; 2], 0)
}

fn name(at: u64, id: u16, like: u32, stretch: [u32; 2], bits: u8) -> Name {
    Name {
        id,
        like,
        at,
        stretch,
        several: bits & bit::SEVERAL != 0,
        own: bits & bit::ITS_OWN != 0,
    }
}

/// A struct, which has to be all there is.
fn whole<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    T::read_from_bytes(bytes).ok()
}

impl Report {
    /// The first event, behind its length, and the bytes behind it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Report, &[u8])> {
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (it, rest) = bytes.get(4..)?.split_at_checked(length)?;
        let (head, _) = wire::Head::read_from_prefix(it).ok()?;
        let kind = Kind::from_raw(head.kind)?;
        let report = match stub(kind, it) {
            Some(stub) => Report::Stub(stub?),
            None => Report::Socket(Event::read(kind, it)?),
        };
        Some((report, rest))
    }
}

/// `None`: the kind is of a socket.
fn stub(kind: Kind, bytes: &[u8]) -> Option<Option<Stub>> {
    let read = || {
        let (of, event) = match kind {
            Kind::RequestPacket => {
                let it: wire::RequestPacket = whole(bytes)?;
                (it.stub, StubEvent::Packet(it))
            }
            Kind::RequestTimer => {
                let it: wire::RequestTimer = whole(bytes)?;
                (it.stub, StubEvent::Timer { tries: it.tries })
            }
            Kind::RequestAnswered => {
                let it: wire::RequestAnswered = whole(bytes)?;
                (it.stub, StubEvent::Answered(it))
            }
            _ => {
                let it: wire::LatePacket = whole(bytes)?;
                (it.stub, StubEvent::Late(it))
            }
        };
        Some(Stub {
            at: of.head.at,
            jiffies: of.head.jiffies,
            addresses: addresses(of.head.end, &of.addresses, of.own_port, of.peer_port),
            event,
        })
    };
    matches!(
        kind,
        Kind::RequestPacket | Kind::RequestTimer | Kind::RequestAnswered | Kind::LatePacket
    )
    .then(read)
}

/// What a program does with the socket: calls, their returns, and when they have the lock.
fn call(kind: Kind, bytes: &[u8]) -> Option<(wire::Event, Body)> {
    Some(match kind {
        Kind::Call => {
            let it: wire::Call = whole(bytes)?;
            (it.event, Body::Call(it.call))
        }
        Kind::Transfer => {
            let it: wire::Transfer = whole(bytes)?;
            (it.event, Body::Transfer(it))
        }
        Kind::ShutdownCall => {
            let it: wire::ShutdownCall = whole(bytes)?;
            (it.event, Body::Shutdown { how: it.how })
        }
        Kind::OptionCall => {
            let it: wire::OptionCall = whole(bytes)?;
            (it.event, Body::OptionCall(it))
        }
        Kind::CallEnd => {
            let it: wire::CallEnd = whole(bytes)?;
            let (call, result) = (it.call, it.result);
            (it.event, Body::CallEnd { call, result })
        }
        Kind::Lock => {
            let it: wire::Lock = whole(bytes)?;
            let fragment = it.fragment;
            (it.event, Body::Lock { fragment })
        }
        Kind::OtherCall => {
            let it: wire::OtherCall = whole(bytes)?;
            (it.event, Body::Other(it.other))
        }
        _ => return None,
    })
}

/// Packets that the socket sends, receives or queues.
fn packet(kind: Kind, bytes: &[u8]) -> Option<(wire::Event, Body)> {
    Some(match kind {
        Kind::Packet => {
            let packet: wire::Packet = whole(bytes)?;
            (
                packet.event,
                Body::Packet(ArrivedPacket { packet, syn: None }),
            )
        }
        Kind::SynPacket => {
            let it: wire::SynPacket = whole(bytes)?;
            let (packet, syn) = (it.packet, Some(it.likeness));
            (packet.event, Body::Packet(ArrivedPacket { packet, syn }))
        }
        Kind::Child => {
            let it: wire::Child = whole(bytes)?;
            (it.event, Body::Child(it))
        }
        Kind::Sent => {
            let it: wire::Sent = whole(bytes)?;
            (it.event, Body::Sent(it))
        }
        Kind::HandedOver => {
            let it: wire::HandedOver = whole(bytes)?;
            let result = it.result;
            (it.event, Body::HandedOver { result })
        }
        Kind::Queued => {
            let it: wire::Queued = whole(bytes)?;
            (it.event, Body::Queued(it))
        }
        Kind::AnsweredByReset => {
            let it: wire::AnsweredByReset = whole(bytes)?;
            (it.event, Body::AnsweredByReset(it))
        }
        Kind::Named => {
            let it: wire::Named = whole(bytes)?;
            let alike = it.alike;
            (it.event, Body::Named { alike })
        }
        _ => return None,
    })
}

/// What the socket is, what it is set to, and its timers.
fn socket(kind: Kind, bytes: &[u8]) -> Option<(wire::Event, Body)> {
    Some(match kind {
        Kind::Opened => {
            let it: wire::Opened = whole(bytes)?;
            let end = it.event.head.end;
            let both = addresses(end, &it.addresses, it.own_port, it.peer_port);
            (it.event, Body::Opened(both))
        }
        Kind::Settings => {
            let it: wire::Settings = whole(bytes)?;
            (it.event, Body::Settings(Box::new((&it.found).into())))
        }
        Kind::Options => {
            let it: wire::Options = whole(bytes)?;
            (it.event, Body::Options(Box::new(it.set)))
        }
        Kind::Timer => {
            let it: wire::Timer = whole(bytes)?;
            (it.event, Body::Timer(it.timer))
        }
        Kind::Metrics => {
            let it: wire::Metrics = whole(bytes)?;
            (it.event, Body::Metrics(it))
        }
        _ => return None,
    })
}

impl Event {
    fn read(kind: Kind, bytes: &[u8]) -> Option<Event> {
        let (of, body) = match kind {
            Kind::Call
            | Kind::Transfer
            | Kind::ShutdownCall
            | Kind::OptionCall
            | Kind::CallEnd
            | Kind::Lock
            | Kind::OtherCall => call(kind, bytes)?,
            Kind::Packet
            | Kind::SynPacket
            | Kind::Child
            | Kind::Sent
            | Kind::HandedOver
            | Kind::Queued
            | Kind::AnsweredByReset
            | Kind::Named => packet(kind, bytes)?,
            Kind::Opened | Kind::Settings | Kind::Options | Kind::Timer | Kind::Metrics => {
                socket(kind, bytes)?
            }
            _ => return Event::with_state(kind, bytes),
        };
        Some(Event {
            of,
            kind,
            owned: of.head.owned != 0,
            body,
            fields: None,
            phase: 0,
        })
    }

    /// Those that carry the socket's state, and those that carry nothing.
    fn with_state(kind: Kind, bytes: &[u8]) -> Option<Event> {
        let (snapshot, body) = match kind {
            Kind::OptionEnd => {
                let it: wire::OptionEnd = whole(bytes)?;
                (it.snapshot, Body::OptionEnd { result: it.result })
            }
            Kind::RunEnd => {
                let it: wire::RunEnd = whole(bytes)?;
                let of_packet = it.run == wire::RunName::OfPacket as u32;
                let damaged = it.damaged != 0;
                (it.snapshot, Body::RunEnd { of_packet, damaged })
            }
            Kind::Callback => {
                let it: wire::Callback = whole(bytes)?;
                (it.snapshot, Body::Callback { flags: it.flags })
            }
            Kind::Release | Kind::Drain | Kind::CallbackEnd | Kind::NoRoom => {
                (whole(bytes)?, Body::Plain)
            }
            _ => {
                let of: wire::Event = whole(bytes)?;
                return Some(Event {
                    of,
                    kind,
                    owned: of.head.owned != 0,
                    body: Body::Plain,
                    fields: None,
                    phase: 0,
                });
            }
        };
        let mut fields = SocketFields(snapshot.probed.0);
        // Counted before a packet goes into the backlog, where the end of a call may or may not see it.
        fields[Field::SegmentsIn] = 0;
        Some(Event {
            of: snapshot.event,
            kind,
            owned: snapshot.event.head.owned != 0,
            body,
            fields: Some(fields),
            phase: snapshot.phase,
        })
    }

    /// When it was recorded.
    pub(super) fn at(&self) -> u64 {
        self.of.head.at
    }

    /// What `jiffies` were then.
    pub(super) fn jiffies(&self) -> u32 {
        self.of.head.jiffies
    }
}
