// SPDX-License-Identifier: Apache-2.0
//! What is kept of a connection's segments for pairing.

use crate::engine::Follow;
use crate::segment::{Endpoint, Flags, Segment, Timestamp};
use crate::tcp::Side;

/// Segments kept of a connection.
const SEGMENTS: usize = 1 << 22;

/// One segment that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// When.
    pub time: Timestamp,
    /// Its frame.
    pub frame: u64,
    /// Who sent it.
    pub side: Side,
    /// Sequence number.
    pub sequence: u32,
    /// Payload.
    pub length: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags.
    pub flags: Flags,
    /// Window, not scaled.
    pub window: u16,
    /// Identification of IPv4.
    pub ip_id: Option<u16>,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
}

/// The segments of one connection at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Who opened it, as far as this capture shows.
    pub client: Endpoint,
    /// The other end.
    pub server: Endpoint,
    /// Initial sequence numbers of client and server.
    pub initial: [Option<u32>; 2],
    /// The segments, in the capture's order.
    pub segments: Vec<Passed>,
    /// Segments not kept for want of room: the latest.
    pub dropped: u64,
}

impl Recording {
    /// The same with client and server exchanged.
    pub(super) fn turned(&self) -> Self {
        let [client, server] = self.initial;
        Recording {
            client: self.server,
            server: self.client,
            initial: [server, client],
            segments: self
                .segments
                .iter()
                .map(|s| Passed {
                    side: s.side.peer(),
                    ..*s
                })
                .collect(),
            dropped: self.dropped,
        }
    }
}

/// Records one connection; an [`engine`](crate::engine) can feed it.
#[derive(Clone, Debug)]
pub struct Recorder(Recording);

impl Recorder {
    /// Of a connection whose first captured segment is `first`, which is still to be given.
    #[must_use]
    pub fn new(first: &Segment<'_>) -> Self {
        let answered = first.flags.any(Flags::SYN) && first.flags.any(Flags::ACK);
        let (client, server) = if answered {
            (first.destination, first.source)
        } else {
            (first.source, first.destination)
        };
        Recorder(Recording {
            client,
            server,
            initial: [None, None],
            segments: Vec::new(),
            dropped: 0,
        })
    }
}

impl Follow for Recorder {
    type Report = Recording;

    fn segment(&mut self, s: &Segment<'_>) {
        let recording = &mut self.0;
        let side = if s.source == recording.client {
            Side::Client
        } else {
            Side::Server
        };
        if s.flags.any(Flags::SYN) {
            recording.initial[side as usize] = Some(s.sequence);
        }
        if recording.segments.len() >= SEGMENTS {
            recording.dropped += 1;
            return;
        }
        recording.segments.push(Passed {
            time: s.time,
            frame: s.frame,
            side,
            sequence: s.sequence,
            length: s.length,
            acknowledgement: s.acknowledgement,
            flags: s.flags,
            window: s.window,
            ip_id: s.ip_id,
            timestamps: timestamps(s.options),
        });
    }

    fn finish(self) -> Recording {
        self.0
    }
}

/// TSval and TSecr among the options of a header.
fn timestamps(options: &[u8]) -> Option<(u32, u32)> {
    let word = |b: &[u8]| b.try_into().ok().map(u32::from_be_bytes);
    let mut rest = options;
    loop {
        match rest {
            [1, tail @ ..] => rest = tail,
            [8, 10, body @ ..] => return Some((word(body.get(..4)?)?, word(body.get(4..8)?)?)),
            [0, ..] | [] | [_] => return None,
            [_, length, ..] => rest = rest.get(usize::from(*length).max(2)..)?,
        }
    }
}
