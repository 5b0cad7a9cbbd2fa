// SPDX-License-Identifier: Apache-2.0
//! Samples of a sender's statistics, added up: what each stage took of the time, after the rules of
//! [`slowpath_diagnose`].

use serde::{Deserialize, Serialize};
use slowpath_diagnose::{Thresholds, Totals, classify};
use slowpath_model::{
    ConnectionId, FourTuple, IntervalVerdict, Micros, MonoNanos, Origin, Snapshot, SocketFacts,
    TcpStats, Tier, Turns, Waits,
};
use std::net::{Ipv4Addr, SocketAddr};

/// The statistics of a socket as the rules take them: what only probes in the kernel observe is not there.
fn snapshot(at: MonoNanos, stats: TcpStats) -> Snapshot {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Snapshot {
        tuple: FourTuple::new(unknown, unknown),
        owner: None,
        id: ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: 0,
            start: MonoNanos(0),
        },
        at,
        origin: Origin::Unknown,
        closed: false,
        tier: Tier::InetDiag,
        stats,
        sends: None,
        receives: None,
        waits: Waits::default(),
        facts: SocketFacts::default(),
        turns: Turns::default(),
    }
}

/// One stream's statistics over the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamTally {
    /// At the beginning, with its time.
    pub before: Option<(MonoNanos, TcpStats)>,
    /// At the end.
    pub after: Option<(MonoNanos, TcpStats)>,
    /// The verdicts on the intervals between samples.
    pub totals: Totals,
    /// Samples.
    pub samples: u64,
    /// Sum of the congestion windows, octets.
    pub window_sum: u64,
    /// Samples that had a round trip.
    pub rtt_samples: u64,
    /// Sum of the smoothed round trips.
    pub rtt_sum: Micros,
    /// Samples with data under way, none that waits to be sent, and room in both windows. Of an application that always has
    /// more to write, as a test's, only a full send buffer leaves that.
    pub starved: u64,
}

impl StreamTally {
    /// Adds a sample.
    pub fn add(&mut self, at: MonoNanos, stats: TcpStats) {
        if let Some((earlier, before)) = self.after {
            if at <= earlier {
                return;
            }
            let (before, after) = (snapshot(earlier, before), snapshot(at, stats));
            let verdict = classify(&before, &after, None, &Thresholds::default());
            self.totals.add(&verdict);
        } else {
            self.before = Some((at, stats));
        }
        self.after = Some((at, stats));
        self.samples += 1;
        self.window_sum = self.window_sum.saturating_add(window(&stats));
        if let Some(rtt) = stats.srtt {
            self.rtt_samples += 1;
            self.rtt_sum += rtt;
        }
        self.starved += u64::from(is_starved(&stats));
    }

    /// The verdict on all of the time at once: its figures are the evidence.
    #[must_use]
    pub fn verdict(&self) -> Option<IntervalVerdict> {
        let ((from, before), (to, after)) = (self.before?, self.after?);
        (from < to).then(|| {
            let (before, after) = (snapshot(from, before), snapshot(to, after));
            classify(&before, &after, None, &Thresholds::default())
        })
    }

    /// The difference of a counter; `None` where the kernel lacks it or it went backwards.
    pub fn count(&self, of: impl Fn(&TcpStats) -> Option<u64>) -> Option<u64> {
        let ((_, before), (_, after)) = (self.before.as_ref()?, self.after.as_ref()?);
        of(after)?.checked_sub(of(before)?)
    }

    /// The mean congestion window, octets.
    #[must_use]
    pub fn mean_window(&self) -> Option<u64> {
        // A window of 0 is one that the sender did not report.
        self.window_sum
            .checked_div(self.samples)
            .filter(|window| *window > 0)
    }

    /// The mean of the smoothed round trips.
    #[must_use]
    pub fn mean_rtt(&self) -> Option<Micros> {
        self.rtt_sum.0.checked_div(self.rtt_samples).map(Micros)
    }
}

/// The three conditions of `tcp_cwnd_validate`, without the fourth (a writer waits), which it tests only as it sends: a buffer
/// that holds a single packet is never caught by the kernel's chronograph.
fn is_starved(stats: &TcpStats) -> bool {
    let room = |window: u32| {
        let in_flight = u64::from(stats.in_flight) * u64::from(stats.send_mss);
        in_flight + u64::from(stats.send_mss) <= u64::from(window)
    };
    let open = stats.send_window.is_some_and(room);
    stats.unsent == 0 && stats.in_flight > 0 && stats.in_flight < stats.cwnd && open
}

/// The congestion window in octets.
#[must_use]
pub fn window(stats: &TcpStats) -> u64 {
    u64::from(stats.cwnd) * u64::from(stats.send_mss)
}
