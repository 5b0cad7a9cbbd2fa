// SPDX-License-Identifier: Apache-2.0
//! One direction of a connection, from captures at both ends and both applications' accounts.
//!
//! Nothing here comes from the kernel's TCP: what was sent, what arrived, what came back, and
//! what the applications asked for.

use crate::app::{Log, Span, Step};
use crate::packet::{ACK, ECE, Packet, SYN};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A data segment that the sender put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub at: u64,
    /// Position of its first byte in the stream.
    pub start: u64,
    /// Position after its last byte.
    pub end: u64,
    /// When it reached the receiver; `None`: it was lost.
    pub arrived: Option<u64>,
    /// Whether it bore a CE mark when it arrived.
    pub marked: bool,
}

/// What one segment from the receiver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it passed the interface in question.
    pub at: u64,
    /// Position up to which everything has arrived.
    pub ack: u64,
    /// Window, bytes.
    pub window: u64,
    /// Selectively acknowledged.
    pub sack: Vec<(u64, u64)>,
    /// It carries data of its own.
    pub data: bool,
    /// It echoes a congestion mark.
    pub echo: bool,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// When the connection's observation began and ended.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Every SYN or SYN-ACK of the sender.
    pub syns: Vec<u64>,
    /// Data segments on the wire, at the sender's interface.
    pub sent: Vec<Sent>,
    /// The receiver's segments as they reached the sender.
    pub heard: Vec<Answer>,
    /// The receiver's segments as they left it.
    pub answered: Vec<Answer>,
    /// Data segments in the order in which they reached the receiver: time, first, last.
    pub arrivals: Vec<(u64, u64, u64)>,
    /// The sending application's account.
    pub written: Vec<Step>,
    /// See `written`.
    pub wanting: Vec<Span>,
    /// The receiving application's account.
    pub read: Vec<Step>,
    /// Payload of a full segment, bytes.
    pub mss: u64,
    /// The sender has TCP_NODELAY.
    pub nodelay: bool,
    /// How long the sender's card takes for a segment, nanoseconds.
    pub card_ns: u64,
}

/// The two captures of a connection and the addresses of its ends.
#[derive(Clone, Copy)]
pub struct Captured<'a> {
    /// At the sender of the direction in question.
    pub near: &'a [Packet],
    /// At its receiver.
    pub far: &'a [Packet],
    /// The sender.
    pub sender: SocketAddr,
    /// The receiver.
    pub receiver: SocketAddr,
}

/// Where sequence numbers become positions: the first byte after the SYN is 0.
fn position(number: u32, isn: u32) -> u64 {
    let distance = number.wrapping_sub(isn).wrapping_sub(1);
    // A stream of these runs is far below 2 GiB: what seems beyond lies before its
    // beginning, a keep-alive or the acknowledgement of nothing.
    if distance > i32::MAX as u32 {
        0
    } else {
        distance.into()
    }
}

impl Stream {
    /// The direction whose captures these are; `None` if it has no SYN.
    pub fn new(captured: &Captured<'_>, ours: &Log, theirs: &Log, over: Span) -> Option<Self> {
        let Captured {
            near,
            far,
            sender,
            receiver,
        } = *captured;
        let forth = |p: &&Packet| p.from == sender && p.to == receiver;
        let back = |p: &&Packet| p.from == receiver && p.to == sender;
        let opening = near.iter().filter(forth).find(|p| p.has(SYN))?;
        let answer = far.iter().filter(back).find(|p| p.has(SYN))?;
        let isn = opening.seq;
        let scale = opening.scale.and(answer.scale).unwrap_or(0);
        let answer_of = |p: &Packet| Answer {
            at: p.at,
            ack: position(p.ack, isn),
            window: u64::from(p.window) << if p.has(SYN) { 0 } else { scale },
            sack: p
                .sack_blocks()
                .iter()
                .map(|(from, to)| (position(*from, isn), position(*to, isn)))
                .collect(),
            data: p.payload > 0,
            echo: p.has(ECE) && !p.has(SYN),
        };
        let answers = |packets: &[Packet]| -> Vec<Answer> {
            let acks = packets.iter().filter(back).filter(|p| p.has(ACK));
            acks.map(answer_of).collect()
        };
        // The same packet at both ends: the same numbers, in the order of passing.
        let key = |p: &Packet| (p.seq, p.payload, p.tsval, p.ack);
        let mut there = BTreeMap::<_, VecDeque<&Packet>>::new();
        let data = |p: &&Packet| p.payload > 0;
        for p in far.iter().filter(forth).filter(data) {
            there.entry(key(p)).or_default().push_back(p);
        }
        let sent: Vec<Sent> = near
            .iter()
            .filter(forth)
            .filter(data)
            .map(|p| {
                let arrival = there.get_mut(&key(p)).and_then(VecDeque::pop_front);
                let start = position(p.seq, isn);
                Sent {
                    at: p.at,
                    start,
                    end: start + u64::from(p.payload),
                    arrived: arrival.map(|p| p.at),
                    marked: arrival.is_some_and(|p| p.ce),
                }
            })
            .collect();
        Some(Stream {
            from: over.from,
            to: over.to,
            syns: near
                .iter()
                .filter(forth)
                .filter(|p| p.has(SYN))
                .map(|p| p.at)
                .collect(),
            sent,
            heard: answers(near),
            answered: answers(far),
            arrivals: far
                .iter()
                .filter(forth)
                .filter(data)
                .map(|p| {
                    let start = position(p.seq, isn);
                    (p.at, start, start + u64::from(p.payload))
                })
                .collect(),
            written: ours.written.clone(),
            wanting: ours.wanting.clone(),
            read: theirs.read.clone(),
            ..Stream::default()
        })
    }

    /// Whether the receiver sent data of its own.
    pub fn is_exchange(&self) -> bool {
        self.heard.iter().any(|answer| answer.data)
    }
}

/// The sender's situation over a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Acknowledged up to here.
    pub una: u64,
    /// Sent up to here.
    pub next: u64,
    /// The receiver lets it send up to here.
    pub edge: u64,
    /// The kernel has been given data up to here.
    pub accepted: u64,
    /// The application wants to write and there was no room.
    pub wanting: bool,
    /// Bytes that the kernel held when it said so.
    pub refused: u64,
    /// Something is missing at the receiver, or was sent again and is not acknowledged.
    pub repairing: bool,
    /// What the receiver announced last.
    pub window: u64,
    /// The last segment sent that was smaller than the largest ends here.
    pub small: u64,
    /// Segments sent so far, retransmissions too.
    pub sends: u64,
    /// When the last ACK came.
    pub heard: u64,
}

impl State {
    /// Bytes that the kernel has and has not sent.
    pub fn unsent(&self) -> u64 {
        self.accepted.saturating_sub(self.next)
    }

    /// Whether the writer that was refused still has to wait: the kernel signals it room
    /// when a third of the buffer is free (`sk_stream_is_writeable`). After that it is the
    /// application, or a busy host, that lets time pass.
    pub fn no_room_to_write(&self) -> bool {
        let held = self.accepted.saturating_sub(self.una);
        self.wanting && 3 * held > 2 * self.refused
    }

    /// Bytes under way.
    pub fn flight(&self) -> u64 {
        self.next.saturating_sub(self.una)
    }

    /// Whether Nagle's algorithm, where it is on, holds what is unsent: less than a segment,
    /// while a small one is not acknowledged (Minshall's change, `tcp_minshall_check`).
    pub fn nagle(&self, mss: u64) -> bool {
        (1..mss).contains(&self.unsent()) && self.small > self.una
    }

    /// Bytes that the receiver's window has left.
    pub fn room(&self) -> u64 {
        self.edge.saturating_sub(self.next)
    }
}

enum Event {
    Sent(u64, u64),
    Heard(u64, u64),
    Accepted(u64),
    Wanting(bool),
    Repairing(bool),
}

fn switching(spans: &[Span], event: fn(bool) -> Event) -> impl Iterator<Item = (u64, Event)> {
    let both = move |span: &Span| [(span.from, event(true)), (span.to, event(false))];
    spans.iter().flat_map(both)
}

impl Stream {
    /// The sender's situation from moment to moment, over the whole observation.
    pub fn states(&self) -> Vec<(Span, State)> {
        let sent = self
            .sent
            .iter()
            .map(|s| (s.at, Event::Sent(s.start, s.end)));
        let heard = self
            .heard
            .iter()
            .map(|h| (h.at, Event::Heard(h.ack, h.window)));
        let accepted = self
            .written
            .iter()
            .map(|w| (w.at, Event::Accepted(w.total)));
        let repairing = crate::repair::repairing(self);
        let waits =
            switching(&self.wanting, Event::Wanting).chain(switching(&repairing, Event::Repairing));
        let mut events: Vec<_> = sent.chain(heard).chain(accepted).chain(waits).collect();
        events.sort_by_key(|(at, _)| *at);
        let mut states = Vec::with_capacity(events.len());
        let mut state = State::default();
        let mut since = self.from;
        for (at, event) in events {
            let at = at.clamp(self.from, self.to);
            if at > since {
                states.push((
                    Span {
                        from: since,
                        to: at,
                    },
                    state,
                ));
                since = at;
            }
            if let Event::Heard(..) = event {
                state.heard = at;
            }
            match event {
                Event::Sent(start, end) => {
                    state.next = state.next.max(end);
                    state.sends += 1;
                    if end - start < self.mss {
                        state.small = end;
                    }
                }
                Event::Heard(ack, window) if ack >= state.una => {
                    (state.una, state.edge, state.window) = (ack, ack + window, window);
                }
                Event::Heard(..) => {}
                Event::Accepted(total) => state.accepted = total,
                Event::Wanting(is) => {
                    state.wanting = is;
                    state.refused = state.accepted.saturating_sub(state.una);
                }
                Event::Repairing(is) => state.repairing = is,
            }
        }
        if self.to > since {
            let last = Span {
                from: since,
                to: self.to,
            };
            states.push((last, state));
        }
        states
    }

    /// How long a condition held, in nanoseconds.
    pub fn time(&self, holds: impl Fn(&State) -> bool) -> u64 {
        let states = self.states();
        let held = states.iter().filter(|(_, state)| holds(state));
        held.map(|(span, _)| span.length()).sum()
    }
}
