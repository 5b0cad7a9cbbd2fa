// SPDX-License-Identifier: Apache-2.0
//! The recent past of a connection, as views draw it.

use crate::{IntervalVerdict, Micros, MonoNanos, Problem, Snapshot};

/// One moment of a connection, for sparklines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryPoint {
    /// When.
    pub at: MonoNanos,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Smoothed RTT.
    pub srtt: Option<Micros>,
    /// Bytes in the send buffer.
    pub send_queue: u32,
    /// Bytes received and not read.
    pub receive_queue: u32,
    /// Share of the interval each problem took, 0..=1, indexed by the problem's number.
    pub shares: [f32; Problem::ALL.len()],
    /// Payload bytes acknowledged and received a second.
    pub bytes_per_second: f64,
}

impl HistoryPoint {
    /// The point at the end of an interval.
    pub fn of(snapshot: &Snapshot, verdict: &IntervalVerdict) -> Self {
        let interval = verdict.interval();
        let mut shares = [0.0; Problem::ALL.len()];
        for finding in &verdict.findings {
            shares[finding.problem as usize] = finding.share.fraction_of(interval) as f32;
        }
        let bytes =
            verdict.deltas.bytes_acked.unwrap_or(0) + verdict.deltas.bytes_received.unwrap_or(0);
        Self {
            at: snapshot.at,
            cwnd: snapshot.stats.cwnd,
            srtt: snapshot.stats.srtt,
            send_queue: snapshot.stats.send_queue,
            receive_queue: snapshot.stats.receive_queue,
            shares,
            bytes_per_second: if interval == Micros::ZERO {
                0.0
            } else {
                bytes as f64 / interval.as_secs_f64()
            },
        }
    }
}
