// SPDX-License-Identifier: Apache-2.0
//! The rows of the full screen, and how they are ordered.

use super::share_of;
use crate::source::LiveConnection;
use slowpath_model::{ConnectionId, FourTuple, Micros, Problem};
use slowpath_text::process;
use std::cmp::Ordering;

/// What a row shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which connection.
    pub id: ConnectionId,
    /// Its owner.
    pub process: String,
    /// Its addresses.
    pub tuple: FourTuple,
    /// The latest verdict.
    pub verdict: Option<Problem>,
    /// Its share of the latest interval.
    pub share: f64,
    /// Share of its whole life with any problem.
    pub life: f64,
    /// Payload bytes acknowledged and received a second.
    pub rate: f64,
    /// Smoothed RTT.
    pub srtt: Option<Micros>,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Bytes in the send buffer.
    pub send_queue: u32,
    /// Bytes received and not read.
    pub receive_queue: u32,
    /// Polls since it closed; `None` while it lives.
    pub closed_for: Option<u8>,
}

impl Row {
    /// The row of a connection.
    pub fn of(live: LiveConnection<'_>) -> Self {
        let latest = live.latest;
        let rate = latest.map_or(0.0, |v| {
            let bytes = v.deltas.bytes_acked.unwrap_or(0) + v.deltas.bytes_received.unwrap_or(0);
            match v.interval() {
                Micros::ZERO => 0.0,
                interval => bytes as f64 / interval.as_secs_f64(),
            }
        });
        let stats = &live.snapshot.stats;
        Row {
            id: live.snapshot.id,
            process: process(live.owner),
            tuple: live.snapshot.tuple,
            verdict: latest.map(|v| v.dominating),
            share: latest.map_or(0.0, |v| share_of(v, v.dominating)),
            life: if live.observed == Micros::ZERO {
                0.0
            } else {
                1.0 - live.life_share(Problem::SenderAppLimited)
            },
            rate,
            srtt: stats.srtt,
            cwnd: stats.cwnd,
            send_queue: stats.send_queue,
            receive_queue: stats.receive_queue,
            closed_for: None,
        }
    }
}

/// A column; the order of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Column {
    Verdict,
    Life,
    Process,
    Local,
    Remote,
    Rate,
    Rtt,
    Cwnd,
    SendQueue,
    ReceiveQueue,
}

impl Column {
    /// All, from left to right.
    pub const ALL: [Column; 10] = [
        Column::Verdict,
        Column::Life,
        Column::Process,
        Column::Local,
        Column::Remote,
        Column::Rate,
        Column::Rtt,
        Column::Cwnd,
        Column::SendQueue,
        Column::ReceiveQueue,
    ];

    /// The heading.
    pub const fn name(self) -> &'static str {
        match self {
            Column::Verdict => "VERDICT",
            Column::Life => "LIFE",
            Column::Process => "PROCESS",
            Column::Local => "LOCAL",
            Column::Remote => "REMOTE",
            Column::Rate => "RATE",
            Column::Rtt => "RTT",
            Column::Cwnd => "CWND",
            Column::SendQueue => "SEND-Q",
            Column::ReceiveQueue => "RECV-Q",
        }
    }

    /// The column so many places to the right, from the last back to the first.
    pub fn shifted(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|c| *c == self).unwrap_or(0) as isize;
        Self::ALL[(at + by).rem_euclid(Self::ALL.len() as isize) as usize]
    }

    /// Whether the interesting end is the large one.
    pub const fn largest_first(self) -> bool {
        !matches!(self, Column::Process | Column::Local | Column::Remote)
    }

    /// Smaller or larger by this column.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Column::Verdict => {
                // Problems above the application, unknown last.
                let key = |r: &Row| match r.verdict {
                    None => (0, 0.0),
                    Some(Problem::SenderAppLimited) => (1, r.share),
                    Some(_) => (2, r.share),
                };
                let ((x, s), (y, t)) = (key(a), key(b));
                x.cmp(&y).then(s.total_cmp(&t))
            }
            Column::Life => a.life.total_cmp(&b.life),
            Column::Process => a.process.cmp(&b.process),
            Column::Local => a.tuple.local.cmp(&b.tuple.local),
            Column::Remote => a.tuple.remote.cmp(&b.tuple.remote),
            Column::Rate => a.rate.total_cmp(&b.rate),
            Column::Rtt => a.srtt.cmp(&b.srtt),
            Column::Cwnd => a.cwnd.cmp(&b.cwnd),
            Column::SendQueue => a.send_queue.cmp(&b.send_queue),
            Column::ReceiveQueue => a.receive_queue.cmp(&b.receive_queue),
        }
    }
}

/// Orders rows by a column; equal ones by their connection, so that they stay in place.
pub fn sort(rows: &mut [Row], column: Column, largest_first: bool) {
    rows.sort_by(|a, b| {
        let order = column.compare(a, b);
        let order = if largest_first {
            order.reverse()
        } else {
            order
        };
        order.then(a.id.cmp(&b.id))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{INTERVAL, finding, live, verdict};
    use slowpath_model::Share;

    #[test]
    fn problems_come_first_and_ties_stay_in_place() {
        let mut small = live(3, "c", "10.0.0.1:3", "10.0.0.2:80");
        small.latest = Some(verdict(
            3,
            INTERVAL,
            vec![finding(
                Problem::ReceiverWindowLimited,
                Share::Measured(Micros(INTERVAL.0 / 10)),
            )],
        ));
        let mut fine = live(2, "b", "10.0.0.1:2", "10.0.0.2:80");
        fine.latest = Some(verdict(2, INTERVAL, vec![]));
        let unknown = live(1, "a", "10.0.0.1:1", "10.0.0.2:80");
        let also_unknown = live(4, "a", "10.0.0.1:1", "10.0.0.2:80");
        let mut rows: Vec<Row> = [also_unknown, unknown, fine, small]
            .into_iter()
            .map(|kept| Row::of(kept.live()))
            .collect();
        sort(&mut rows, Column::Verdict, true);
        let order: Vec<u64> = rows.iter().map(|r| r.id.cookie).collect();
        assert_eq!(order, [3, 2, 1, 4]);
        sort(&mut rows, Column::Local, false);
        let order: Vec<u64> = rows.iter().map(|r| r.id.cookie).collect();
        assert_eq!(order, [1, 4, 2, 3]);
    }

    #[test]
    fn columns_go_round() {
        assert_eq!(Column::Verdict.shifted(-1), Column::ReceiveQueue);
        assert_eq!(Column::ReceiveQueue.shifted(1), Column::Verdict);
    }
}
