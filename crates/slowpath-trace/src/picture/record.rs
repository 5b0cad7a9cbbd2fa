// SPDX-License-Identifier: Apache-2.0
//! What each segment of a connection meant, kept for drawing.

use crate::engine::Follow;
use crate::segment::{Flags, Segment, Timestamp};
use crate::tcp::{Connection, ConnectionReport, Event, Events, Kind, Marks, Side, Spurious};
use std::time::Duration;

/// A segment, or several in a row that nothing distinguishes. Numbers are relative, as in
/// [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When; of several, the first.
    pub time: Timestamp,
    /// Its frame; of several, the first.
    pub frame: u64,
    /// Segments in it.
    pub segments: u32,
    /// Who sent it.
    pub side: Side,
    /// What it was.
    pub kind: Kind,
    /// What else it was.
    pub marks: Marks,
    /// A retransmission that was proved needless.
    pub spurious: bool,
    /// The header's flags.
    pub flags: Flags,
    /// Its first sequence number.
    pub sequence: i64,
    /// The sequence number after it.
    pub end: i64,
    /// Payload.
    pub length: u64,
    /// What it acknowledges.
    pub acknowledgement: Option<i64>,
    /// The window it advertises.
    pub window: Option<u64>,
    /// Data of its sender in flight after it.
    pub flight: u64,
    /// RTT of the other side's data that it shows.
    pub rtt: Option<Duration>,
    /// It is the n-th duplicate ACK.
    pub duplicate: u32,
    /// Its SACK blocks: where they begin in [`Recording::sack`], and how many.
    sack: (u32, u8),
}

impl Point {
    /// How far the other side may send, by this segment.
    #[must_use]
    pub fn window_edge(&self) -> Option<i64> {
        let window = i64::try_from(self.window?).ok()?;
        self.acknowledgement?.checked_add(window)
    }

    /// Whether it stands for data, SYN or FIN.
    #[must_use]
    pub fn occupies(&self) -> bool {
        self.end > self.sequence
    }

    /// Whether its data were sent before.
    #[must_use]
    pub fn sent_again(&self) -> bool {
        matches!(self.kind, Kind::Retransmission(_))
    }

    /// Nothing to see but where it lies.
    fn plain(&self) -> bool {
        let uninteresting = Marks::AFTER_IDLE | Marks::TURN | Marks::STRETCH_ACK;
        let interesting = !uninteresting & ALL_MARKS;
        matches!(self.kind, Kind::Data | Kind::Ack)
            && !self.marks.any(interesting)
            && !self.flags.any(Flags::SYN | Flags::FIN | Flags::RST)
            && self.sack.1 == 0
    }

    /// Takes the next segment of the same side into this one, if it goes on where this ends.
    fn join(&mut self, next: &Point) -> bool {
        let joins = self.side == next.side
            && self.kind == next.kind
            && self.plain()
            && next.plain()
            && self.end == next.sequence
            && self.acknowledgement <= next.acknowledgement;
        if joins {
            self.segments = self.segments.saturating_add(next.segments);
            self.end = next.end;
            self.length += next.length;
            self.acknowledgement = next.acknowledgement;
            self.window = next.window;
            self.flight = next.flight;
            self.flags.0 |= next.flags.0;
            self.rtt = next.rtt.or(self.rtt);
        }
        joins
    }
}

/// All bits of [`Marks`].
const ALL_MARKS: u32 = Marks::TURN * 2 - 1;

/// The bits of marks.
pub(super) fn mark_bits(marks: Marks) -> u32 {
    let bits = (0..ALL_MARKS.count_ones()).map(|bit| 1 << bit);
    bits.filter(|bit| marks.any(*bit)).sum()
}

/// What happened on a connection.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The figures.
    pub report: ConnectionReport,
    /// The segments, in the capture's order.
    pub points: Vec<Point>,
    sacks: Vec<(i64, i64)>,
    /// Segments that were joined with others.
    pub joined: u64,
    /// Segments that are missing: there was no room.
    pub left_out: u64,
}

impl Recording {
    /// The SACK blocks of a segment, of the other side's data.
    #[must_use]
    pub fn sack(&self, point: &Point) -> &[(i64, i64)] {
        let (from, count) = (point.sack.0 as usize, usize::from(point.sack.1));
        self.sacks.get(from..from + count).unwrap_or_default()
    }

    /// When it began.
    #[must_use]
    pub fn begin(&self) -> Timestamp {
        let first = self.points.iter().map(|p| p.time).min();
        first.unwrap_or(self.report.first.time)
    }

    /// When it ended.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        let last = self.points.iter().map(|p| p.time).max();
        last.unwrap_or(self.report.last.time)
    }

    /// Whether a side sent data.
    #[must_use]
    pub fn has_data(&self, side: Side) -> bool {
        self.report.sent_by(side).data.packets > 0
    }

    /// The side that sent more data.
    #[must_use]
    pub fn main_side(&self) -> Side {
        let bytes = |side| self.report.sent_by(side).data.bytes;
        if bytes(Side::Server) > bytes(Side::Client) {
            Side::Server
        } else {
            Side::Client
        }
    }
}

#[derive(Clone, Debug)]
struct Points {
    list: Vec<Point>,
    sacks: Vec<(i64, i64)>,
    limit: usize,
    joined: u64,
    left_out: u64,
    /// Joining gives no more room.
    full: bool,
}

impl Points {
    /// Joins neighbours in pairs.
    fn thin(&mut self) {
        let before = self.list.len();
        // The last point of each side, if it may still be joined.
        let mut open: [Option<usize>; 2] = [None; 2];
        let mut kept: Vec<Point> = Vec::with_capacity(before);
        for point in self.list.drain(..) {
            let slot = &mut open[point.side as usize];
            if let Some(at) = slot.take()
                && kept[at].join(&point)
            {
                continue;
            }
            *slot = Some(kept.len());
            kept.push(point);
        }
        self.list = kept;
        self.joined += (before - self.list.len()) as u64;
        self.full = self.list.len() > self.limit / 8 * 7;
    }

    fn find(&mut self, frame: u64) -> Option<&mut Point> {
        let after = self.list.partition_point(|p| p.frame <= frame);
        self.list.get_mut(after.checked_sub(1)?)
    }
}

impl Events for Points {
    fn event(&mut self, e: &Event<'_>) {
        if self.list.len() >= self.limit && !self.full {
            self.thin();
        }
        if self.list.len() >= self.limit {
            self.left_out += 1;
            return;
        }
        let sack = match u32::try_from(self.sacks.len()) {
            Ok(from) => (from, e.sack.len() as u8),
            Err(_) => (0, 0),
        };
        self.sacks.extend(&e.sack[..usize::from(sack.1)]);
        self.list.push(Point {
            time: e.time,
            frame: e.frame,
            segments: 1,
            side: e.side,
            kind: e.kind,
            marks: e.marks,
            spurious: false,
            flags: e.flags,
            sequence: e.sequence,
            end: e.end,
            length: e.length.into(),
            acknowledgement: e.acknowledgement,
            window: e.window,
            flight: e.flight,
            rtt: e.rtt,
            duplicate: e.duplicate,
            sack,
        });
    }

    fn spurious(&mut self, proof: &Spurious) {
        if let Some(point) = self.find(proof.frame)
            && point.frame == proof.frame
        {
            point.spurious = true;
        }
    }
}

/// Follows a connection and keeps what is needed to draw it.
#[derive(Clone, Debug)]
pub struct Recorder {
    connection: Connection,
    points: Points,
}

impl Recorder {
    /// Of a connection whose first segment is still to come, with room for `limit` points.
    #[must_use]
    pub fn new(connection: Connection, limit: usize) -> Self {
        Recorder {
            connection,
            points: Points {
                list: Vec::new(),
                sacks: Vec::new(),
                limit: limit.max(16),
                joined: 0,
                left_out: 0,
                full: false,
            },
        }
    }
}

impl Follow for Recorder {
    type Report = Recording;

    fn segment(&mut self, segment: &Segment<'_>) {
        self.connection.segment_with(segment, &mut self.points);
    }

    fn finish(self) -> Recording {
        Recording {
            report: self.connection.finish(),
            points: self.points.list,
            sacks: self.points.sacks,
            joined: self.points.joined,
            left_out: self.points.left_out,
        }
    }
}
