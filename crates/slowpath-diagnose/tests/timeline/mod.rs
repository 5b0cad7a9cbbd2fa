// SPDX-License-Identifier: Apache-2.0
//! Timelines of one connection: a healthy one, changed where a test says so.
#![allow(dead_code)] // Each test file uses a part.

use slowpath_diagnose::{Measures, Thresholds, classify, measure};
use slowpath_model::*;

/// The interval between the two snapshots of a timeline.
pub const INTERVAL: Micros = Micros::from_millis(500);

pub fn ms(n: u64) -> Micros {
    Micros::from_millis(n)
}

/// An established, healthy connection after `at`: RTT 1 ms, window 10 segments of 1000 bytes,
/// nothing in flight, every statistic there.
pub fn healthy(at: Micros) -> Snapshot {
    Snapshot {
        id: ConnectionId {
            boot_id: 1,
            netns: 2,
            cookie: 3,
            start: MonoNanos(1_000_000),
        },
        tuple: FourTuple::new(
            "10.0.0.1:40000".parse().unwrap(),
            "10.0.0.2:80".parse().unwrap(),
        ),
        at: MonoNanos(1_000_000_000) + at,
        origin: Origin::Opened,
        closed: false,
        tier: Tier::Bpf,
        owner: None,
        stats: TcpStats {
            state: TcpState::Established,
            ca_state: CaState::Open,
            bytes_sent: Some(100_000),
            bytes_acked: 100_000,
            bytes_received: 100_000,
            bytes_retransmitted: Some(0),
            segments_out: 200,
            segments_in: 200,
            data_segments_out: 100,
            data_segments_in: 100,
            retransmitted: 20,
            delivered: Some(100),
            delivered_ce: Some(0),
            dsack_duplicates: Some(0),
            reordering_events: Some(0),
            out_of_order_in: Some(0),
            in_flight: 0,
            lost: 0,
            retransmitted_in_flight: 0,
            sacked: 0,
            unanswered_timeouts: 0,
            probes: 0,
            backoff: 0,
            cwnd: 10,
            ssthresh: None,
            send_window: Some(65_536),
            receive_window: Some(65_536),
            send_mss: 1000,
            path_mtu: 1500,
            reordering: 3,
            srtt: Some(ms(1)),
            rttvar: Micros(100),
            min_rtt: Some(ms(1)),
            rto: ms(201),
            pacing_rate: None,
            delivery_rate: Some(1_000_000),
            app_limited: Some(true),
            busy: Some(ms(1000)),
            rwnd_limited: Some(ms(100)),
            sndbuf_limited: Some(ms(100)),
            unsent: 0,
            send_queue: 0,
            receive_queue: 0,
            send_memory: Some(0),
            send_buffer: Some(87_040),
            receive_buffer: Some(131_072),
            rtt_sums: Some(RttSums {
                sum: ms(100),
                count: 100,
                lifetime_min: Some(ms(1)),
                lone_sum: ms(50),
                lone_count: 50,
                late_sum: ms(41),
                late_count: 1,
                held_sum: Micros::ZERO,
                held_count: 0,
            }),
            recovery: Some(RecoveryStats {
                fast_recoveries: 2,
                recovery_time: ms(10),
                loss_entries: 3,
                loss_time: ms(20),
                rto_wait: ms(600),
            }),
            rto_stats: Some(RtoStats {
                timeouts: 4,
                recoveries: 3,
                time: ms(200),
            }),
        },
        sends: Some(CallStats {
            count: 100,
            bytes: 100_000,
            ..CallStats::default()
        }),
        receives: Some(CallStats {
            count: 100,
            bytes: 100_000,
            ..CallStats::default()
        }),
        waits: Waits::watched(true, true, true),
        facts: slowpath_model::SocketFacts::default(),
        turns: slowpath_model::Turns::UNOBSERVED,
    }
}

/// The two ends of an interval of half a second in which nothing changed.
pub struct Timeline {
    pub before: Snapshot,
    pub after: Snapshot,
    pub peer_baseline: Option<Micros>,
    pub thresholds: Thresholds,
}

impl Timeline {
    pub fn new() -> Self {
        Timeline {
            before: healthy(Micros::ZERO),
            after: healthy(INTERVAL),
            peer_baseline: None,
            thresholds: Thresholds::default(),
        }
    }

    /// Changes both ends.
    pub fn both(mut self, change: impl Fn(&mut TcpStats)) -> Self {
        change(&mut self.before.stats);
        change(&mut self.after.stats);
        self
    }

    /// Changes the end.
    pub fn then(mut self, change: impl FnOnce(&mut TcpStats)) -> Self {
        change(&mut self.after.stats);
        self
    }

    /// Changes the RTT sums at the end.
    pub fn sampled(self, change: impl FnOnce(&mut RttSums)) -> Self {
        self.then(|s| change(s.rtt_sums.as_mut().unwrap()))
    }

    pub fn peer_baseline(mut self, rtt: Micros) -> Self {
        self.peer_baseline = Some(rtt);
        self
    }

    /// What inet_diag does not see is missing at both ends.
    pub fn inet_diag(mut self) -> Self {
        for s in [&mut self.before, &mut self.after] {
            s.tier = Tier::InetDiag;
            s.stats.rtt_sums = None;
            s.stats.recovery = None;
        }
        self
    }

    /// Changes what the end has waited for.
    pub fn waited(mut self, change: impl FnOnce(&mut WaitSums)) -> Self {
        let waits = &mut self.after.waits;
        let mut sums = WaitSums {
            queues: waits.queues().unwrap_or_default(),
            episodes: waits.episodes().unwrap_or_default(),
            opening: waits.opening().unwrap_or_default(),
        };
        change(&mut sums);
        *waits = waits.with(sums);
        self
    }

    /// Nothing sees what the connection waits for, nor its calls.
    pub fn unwatched(mut self) -> Self {
        for s in [&mut self.before, &mut self.after] {
            s.waits = Waits::UNOBSERVED;
            (s.sends, s.receives) = (None, None);
        }
        self
    }

    /// `writes` of `bytes_each`, all sent.
    pub fn wrote(mut self, writes: u64, bytes_each: u64) -> Self {
        let calls = self.after.sends.as_mut().unwrap();
        calls.count += writes;
        calls.bytes += writes * bytes_each;
        self
    }

    /// A kernel without TCP_INFO's chronographs (before 4.10).
    pub fn without_chronographs(self) -> Self {
        self.both(|s| {
            s.busy = None;
            s.rwnd_limited = None;
            s.sndbuf_limited = None;
        })
    }

    pub fn measure(&self) -> Measures {
        measure(
            &self.before,
            &self.after,
            self.peer_baseline,
            &self.thresholds,
        )
    }

    pub fn verdict(&self) -> IntervalVerdict {
        classify(
            &self.before,
            &self.after,
            self.peer_baseline,
            &self.thresholds,
        )
    }
}

/// What a verdict says, short: `Problem share events`, in its order.
pub fn said(verdict: &IntervalVerdict) -> Vec<(Problem, Share, Option<u64>)> {
    verdict
        .findings
        .iter()
        .map(|f| (f.problem, f.share, f.events))
        .collect()
}

pub fn unmeasured(verdict: &IntervalVerdict) -> Vec<Problem> {
    verdict.unmeasured.iter().collect()
}
