// SPDX-License-Identifier: Apache-2.0
//! What is drawn over time, as points: times in seconds from the connection's begin.

use super::record::{Point, Recording};
use crate::segment::Flags;
use crate::tcp::{Kind, Side};

/// What one side's data are drawn from.
pub(super) struct Series<'a> {
    pub(super) recording: &'a Recording,
    pub(super) side: Side,
    begin: i64,
}

impl<'a> Series<'a> {
    pub(super) fn new(recording: &'a Recording, side: Side) -> Self {
        Series {
            recording,
            side,
            begin: recording.begin().0,
        }
    }

    /// Seconds from the begin.
    pub(super) fn at(&self, point: &Point) -> f64 {
        point.time.0.saturating_sub(self.begin) as f64 / 1e9
    }

    /// From the first to the last segment.
    pub(super) fn length(&self) -> f64 {
        self.recording.end().0.saturating_sub(self.begin) as f64 / 1e9
    }

    /// What the side sent.
    pub(super) fn sent(&self) -> impl Iterator<Item = &'a Point> {
        let side = self.side;
        self.recording.points.iter().filter(move |p| p.side == side)
    }

    /// What the other side sent with an ACK.
    pub(super) fn acks(&self) -> impl Iterator<Item = (&'a Point, i64)> {
        let side = self.side.peer();
        let points = self.recording.points.iter().filter(move |p| p.side == side);
        points.filter_map(|p| Some((p, p.acknowledgement?)))
    }

    /// Lowest and highest sequence number drawn; the window's edge by itself.
    pub(super) fn numbers(&self) -> (i64, i64, i64) {
        let sent = self.sent().filter(|p| p.occupies());
        let ends = sent.flat_map(|p| [p.sequence, p.end]);
        let numbers = ends.chain(self.acks().map(|(_, a)| a));
        let range = numbers.fold(None, |range, n| match range {
            None => Some((n, n)),
            Some((low, high)) => Some((n.min(low), n.max(high))),
        });
        let (low, high) = range.unwrap_or((0, 1));
        let edge = self.edges().map(|(_, e)| e).max().unwrap_or(high);
        (low, high, edge.max(high))
    }

    /// The window's edge, SYNs left out: their window is not scaled.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&'a Point, i64)> {
        let acks = self.acks().filter(|(p, _)| !p.flags.any(Flags::SYN));
        acks.filter_map(|(p, _)| Some((p, p.window_edge()?)))
    }

    /// RTT samples of the side's data, in seconds.
    pub(super) fn round_trips(&self) -> impl Iterator<Item = (f64, f64)> {
        self.acks()
            .filter_map(|(p, _)| Some((self.at(p), p.rtt?.as_secs_f64())))
    }

    /// Data in flight after each segment of the side.
    pub(super) fn flight(&self) -> impl Iterator<Item = (f64, f64)> {
        self.sent().map(|p| (self.at(p), p.flight as f64))
    }

    /// The window the other side advertised.
    pub(super) fn window(&self) -> impl Iterator<Item = (f64, f64)> {
        self.edges()
            .filter_map(|(p, _)| Some((self.at(p), p.window? as f64)))
    }

    /// Payload in bits a second in `bins`, and of it what was sent again.
    pub(super) fn throughput(&self, bins: usize) -> Vec<(f64, f64)> {
        let mut all = vec![(0.0, 0.0); bins.max(1)];
        let width = (self.length() / bins.max(1) as f64).max(1e-9);
        for point in self.sent().filter(|p| p.length > 0) {
            let place = (self.at(point) / width).max(0.0) as usize;
            let place = place.min(all.len() - 1);
            let rate = point.length as f64 * 8.0 / width;
            all[place].0 += rate;
            if point.sent_again() {
                all[place].1 += rate;
            }
        }
        all
    }

    /// Mean of all payload since the first, in bits a second.
    pub(super) fn mean(&self) -> Vec<(f64, f64)> {
        let mut first = None;
        let mut sum = 0;
        let data = self.sent().filter(|p| p.length > 0);
        let rate = data.filter_map(|p| {
            let first = *first.get_or_insert(self.at(p));
            sum += p.length;
            let time = self.at(p) - first;
            (time > 0.0).then(|| (self.at(p), sum as f64 * 8.0 / time))
        });
        rate.collect()
    }
}

/// The signs above a segment of the side, as tcptrace writes them.
pub(super) fn letters(point: &Point) -> Option<String> {
    let again = point.sent_again();
    let name = if point.flags.any(Flags::SYN) {
        Some("SYN")
    } else if point.flags.any(Flags::FIN) {
        Some("FIN")
    } else {
        None
    };
    let text = match (again, name, point.kind) {
        (true, Some(name), _) => format!("R {name}"),
        (true, None, _) => "R".to_owned(),
        (false, _, Kind::HardwareDuplicate) => "HD".to_owned(),
        (false, Some(name), _) => name.to_owned(),
        (false, _, Kind::OutOfOrder) => "O".to_owned(),
        (false, _, Kind::KeepAlive) => "KA".to_owned(),
        (false, _, Kind::ZeroWindowProbe) => "P".to_owned(),
        _ => return None,
    };
    Some(text)
}
