// SPDX-License-Identifier: Apache-2.0
//! A connection to which tests pass segments by side, time and relative numbers.

use super::super::*;
use crate::segment::{Endpoint, Flags, Segment, Timestamp};
use std::net::{IpAddr, Ipv4Addr};

pub(super) const MS: i64 = 1_000_000;
pub(super) const MSS: u32 = 1000;

/// A connection observed at one place, with initial sequence numbers near the wrap.
pub(super) struct Line {
    pub(super) connection: Connection,
    pub(super) events: EventLog,
    pub(super) frame: u64,
}

#[derive(Default)]
pub(super) struct EventLog {
    pub(super) last: Option<(Kind, Marks)>,
    pub(super) spurious: Vec<Spurious>,
    /// RTTs of the client's data.
    pub(super) rtts: Vec<i64>,
}

impl Events for EventLog {
    fn event(&mut self, event: &Event<'_>) {
        self.last = Some((event.kind, event.marks));
        if let (Some(rtt), Side::Server, false) =
            (event.rtt, event.side, event.flags.any(Flags::SYN))
        {
            self.rtts.push(rtt.as_nanos() as i64);
        }
    }

    fn spurious(&mut self, proof: &Spurious) {
        self.spurious.push(*proof);
    }
}

pub(super) const CLIENT_ISN: u32 = u32::MAX - 5000;
pub(super) const SERVER_ISN: u32 = 77;

pub(super) fn end(last: u8, port: u16) -> Endpoint {
    Endpoint {
        address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)),
        port,
    }
}

pub(super) fn segment<'a>(side: Side, time: i64, flags: u16, options: &'a [u8]) -> Segment<'a> {
    let (source, destination) = match side {
        Side::Client => (end(1, 40000), end(2, 80)),
        Side::Server => (end(2, 80), end(1, 40000)),
    };
    Segment {
        time: Timestamp(1_000_000 * MS + time),
        frame: 0,
        source,
        destination,
        sequence: 0,
        acknowledgement: 0,
        flags: Flags(flags),
        window: 60000,
        urgent: 0,
        length: 0,
        captured: 0,
        options,
        checksum_ok: None,
        ecn: 0,
        ttl: 64,
        ip_id: None,
        wire_length: 54,
    }
}

/// MSS 1000, SACK permitted.
pub(super) const OFFER: [u8; 8] = [2, 4, 3, 232, 4, 2, 1, 1];

impl Line {
    /// A handshake of 10 ms: 8 ms to the server and back, 2 ms to the client and back.
    pub(super) fn open() -> Self {
        Self::open_with(&OFFER)
    }

    /// A capture that begins later than the connection.
    pub(super) fn begun() -> Self {
        let first = segment(Side::Client, 0, Flags::ACK, &[]);
        Line {
            connection: Connection::new(&first, &Options::default()),
            events: EventLog::default(),
            frame: 0,
        }
    }

    pub(super) fn open_with(options: &[u8]) -> Self {
        let first = segment(Side::Client, 0, Flags::SYN, options);
        let mut line = Line {
            connection: Connection::new(&first, &Options::default()),
            events: EventLog::default(),
            frame: 0,
        };
        line.pass(Segment {
            sequence: CLIENT_ISN,
            ..first
        });
        line.pass(Segment {
            sequence: SERVER_ISN,
            acknowledgement: CLIENT_ISN.wrapping_add(1),
            ..segment(Side::Server, 8 * MS, Flags::SYN | Flags::ACK, options)
        });
        line.ack(Side::Client, 10 * MS, 1, &[]);
        line
    }

    pub(super) fn pass(&mut self, segment: Segment<'_>) {
        self.frame += 1;
        let segment = Segment {
            frame: self.frame,
            ..segment
        };
        self.connection.segment_with(&segment, &mut self.events);
    }

    pub(super) fn number(side: Side, relative: u32) -> u32 {
        match side {
            Side::Client => CLIENT_ISN.wrapping_add(relative),
            Side::Server => SERVER_ISN.wrapping_add(relative),
        }
    }

    /// Data of the client, acknowledging the handshake only.
    pub(super) fn data(&mut self, time: i64, sequence: u32, length: u32) {
        self.send(Side::Client, time, Payload::new(sequence, length));
    }

    pub(super) fn send(&mut self, side: Side, time: i64, payload: Payload<'_>) {
        self.pass(Segment {
            sequence: Self::number(side, payload.sequence),
            acknowledgement: Self::number(side.peer(), payload.ack),
            length: payload.length,
            ip_id: payload.ip_id,
            wire_length: 54 + payload.length,
            ..segment(side, time, Flags::ACK | Flags::PSH, payload.options)
        });
    }

    /// A pure ACK from `side`, which has sent nothing but its SYN.
    pub(super) fn ack(&mut self, side: Side, time: i64, ack: u32, options: &[u8]) {
        self.window(side, time, ack, 60000, options);
    }

    pub(super) fn window(&mut self, side: Side, time: i64, ack: u32, window: u16, options: &[u8]) {
        self.pass(Segment {
            sequence: Self::number(side, 1),
            acknowledgement: Self::number(side.peer(), ack),
            window,
            ..segment(side, time, Flags::ACK, options)
        });
    }

    pub(super) fn last(&self) -> Kind {
        self.events.last.expect("a segment has passed").0
    }

    pub(super) fn last_marks(&self) -> Marks {
        self.events.last.expect("a segment has passed").1
    }

    pub(super) fn finish(self) -> ConnectionReport {
        self.connection.finish()
    }
}

/// A segment's payload and the header fields that differ between segments; relative numbers.
pub(super) struct Payload<'a> {
    sequence: u32,
    length: u32,
    ack: u32,
    options: &'a [u8],
    ip_id: Option<u16>,
}

impl<'a> Payload<'a> {
    /// With the handshake acknowledged, without options.
    pub(super) fn new(sequence: u32, length: u32) -> Self {
        Payload {
            sequence,
            length,
            ack: 1,
            options: &[],
            ip_id: None,
        }
    }

    pub(super) fn ack(self, ack: u32) -> Self {
        Payload { ack, ..self }
    }

    pub(super) fn ip_id(self, id: u16) -> Self {
        Payload {
            ip_id: Some(id),
            ..self
        }
    }

    pub(super) fn options(self, options: &'a [u8]) -> Self {
        Payload { options, ..self }
    }
}

/// SACK blocks of the client's data, after two NOPs.
pub(super) fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut option = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (left, right) in blocks {
        option.extend(Line::number(Side::Client, *left).to_be_bytes());
        option.extend(Line::number(Side::Client, *right).to_be_bytes());
    }
    option
}

pub(super) fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    let mut option = vec![1, 1, 8, 10];
    option.extend(value.to_be_bytes());
    option.extend(echo.to_be_bytes());
    option
}
