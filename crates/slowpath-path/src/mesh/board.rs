// SPDX-License-Identifier: Apache-2.0
//! Sums and latest figures of each peer, as text for Prometheus.

use crate::report::{DirectionReport, PathReport, Way};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// A direction's sums since the start, and its latest stretch.
#[derive(Clone, Debug, Default)]
struct Direction {
    sent: u64,
    lost: u64,
    lost_here: u64,
    duplicates: u64,
    reordered: u64,
    /// Of the latest stretch; nothing where it has none.
    gauges: BTreeMap<&'static str, f64>,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    directions: BTreeMap<&'static str, Direction>,
    stretches: u64,
    failures: u64,
    up: bool,
    /// When the latest stretch that came about began to be known, s since 1970.
    at: Option<f64>,
}

/// What is known of all peers. Its size depends on how many there are only.
#[derive(Debug, Default)]
pub struct Board {
    peers: Mutex<BTreeMap<String, Peer>>,
}

fn way(way: Way) -> &'static str {
    match way {
        Way::There => "there",
        Way::Back => "back",
        Way::RoundTrip => "round_trip",
    }
}

/// Counters of a direction: name, help, value.
type Counter = (&'static str, &'static str, fn(&Direction) -> u64);

const COUNTERS: [Counter; 5] = [
    ("packets_sent", "Test packets that were sent.", |d| d.sent),
    ("packets_lost", "Of these, lost on the path.", |d| d.lost),
    (
        "packets_lost_here",
        "Of these, dropped by an end itself.",
        |d| d.lost_here,
    ),
    ("packets_duplicated", "Further copies of packets.", |d| {
        d.duplicates
    }),
    (
        "packets_reordered",
        "Packets that came after later ones.",
        |d| d.reordered,
    ),
];

const GAUGES: [(&str, &str); 7] = [
    (
        "delay_min_seconds",
        "Shortest delay of the latest stretch, by both clocks.",
    ),
    (
        "delay_median_seconds",
        "Median delay of the latest stretch.",
    ),
    ("delay_max_seconds", "Longest delay of the latest stretch."),
    (
        "jitter_seconds",
        "P95 - P50 of the delays of the latest stretch.",
    ),
    (
        "delay_error_seconds",
        "How far one-way delays may be wrong; absent where that is not known.",
    ),
    ("loss_ratio", "Lost part of the latest stretch."),
    ("hops", "Fewest routers of the latest stretch."),
];

fn gauges(direction: &DirectionReport) -> BTreeMap<&'static str, f64> {
    let summary = &direction.summary;
    let mut gauges = BTreeMap::new();
    let seconds = |nanos: i64| nanos as f64 / 1e9;
    if let Some(delay) = &summary.delay {
        gauges.insert("delay_min_seconds", seconds(delay.min_ns));
        gauges.insert("delay_median_seconds", seconds(delay.median_ns));
        gauges.insert("delay_max_seconds", seconds(delay.max_ns));
        gauges.insert("jitter_seconds", seconds(delay.jitter_ns));
    }
    if let Some(error) = direction.error.and_then(|error| error.error_ns) {
        gauges.insert("delay_error_seconds", error as f64 / 1e9);
    }
    if summary.sent > 0 && direction.losses_known {
        gauges.insert("loss_ratio", summary.lost as f64 / summary.sent as f64);
    }
    if let Some(hops) = summary.hops.least {
        gauges.insert("hops", hops.into());
    }
    gauges
}

impl Board {
    /// One with these peers, none of which has been measured.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let peers = names
            .into_iter()
            .map(|name| (name.to_owned(), Peer::default()));
        Board {
            peers: Mutex::new(peers.collect()),
        }
    }

    fn of(&self, name: &str, change: impl FnOnce(&mut Peer)) {
        // Counts stay consistent even if a thread panicked between two of them.
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get_mut(name) {
            change(peer);
        }
    }

    /// Counts a stretch that came about, at a time in s since 1970.
    pub fn measured(&self, name: &str, report: &PathReport, at: f64) {
        self.of(name, |peer| {
            peer.stretches += 1;
            (peer.up, peer.at) = (true, Some(at));
            for direction in &report.directions {
                let summary = &direction.summary;
                let sums = peer.directions.entry(way(direction.way)).or_default();
                sums.sent += summary.sent;
                sums.lost += summary.lost;
                sums.lost_here += summary.lost_here;
                sums.duplicates += summary.duplicates;
                sums.reordered += summary.reordering.first().map_or(0, |first| first.packets);
                sums.gauges = gauges(direction);
            }
        });
    }

    /// Counts a stretch that did not; figures of the latest one go.
    pub fn failed(&self, name: &str) {
        self.of(name, |peer| {
            peer.failures += 1;
            peer.up = false;
            for direction in peer.directions.values_mut() {
                direction.gauges.clear();
            }
        });
    }

    /// Text for a scrape, in the exposition format 0.0.4 of Prometheus.
    #[must_use]
    pub fn text(&self) -> String {
        let peers = self
            .peers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
            if samples.is_empty() {
                return;
            }
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "# HELP slowpath_path_{name} {help}\n# TYPE slowpath_path_{name} {kind}"
            );
            for (labels, value) in samples {
                let _ = writeln!(out, "slowpath_path_{name}{{{labels}}} {value}");
            }
        };
        let of_peers = |value: &dyn Fn(&Peer) -> Option<f64>| -> Vec<(String, f64)> {
            let samples = peers.iter().filter_map(|(name, peer)| {
                Some((format!("peer=\"{}\"", escaped(name)), value(peer)?))
            });
            samples.collect()
        };
        let of_directions = |value: &dyn Fn(&Direction) -> Option<f64>| -> Vec<(String, f64)> {
            let all = peers.iter().flat_map(|(name, peer)| {
                peer.directions
                    .iter()
                    .map(move |(way, direction)| (name, way, direction))
            });
            let samples = all.filter_map(|(name, way, direction)| {
                let labels = format!("peer=\"{}\",way=\"{way}\"", escaped(name));
                Some((labels, value(direction)?))
            });
            samples.collect()
        };
        let up = of_peers(&|peer| Some(f64::from(u8::from(peer.up))));
        family("up", "gauge", "1: the latest stretch came about.", up);
        let stretches = of_peers(&|peer| Some(peer.stretches as f64));
        family(
            "stretches_total",
            "counter",
            "Stretches that came about.",
            stretches,
        );
        let failures = of_peers(&|peer| Some(peer.failures as f64));
        family(
            "failures_total",
            "counter",
            "Stretches that did not.",
            failures,
        );
        let at = of_peers(&|peer| peer.at);
        family(
            "measured_timestamp_seconds",
            "gauge",
            "When the latest stretch ended.",
            at,
        );
        for (name, help, value) in COUNTERS {
            let samples = of_directions(&|direction| Some(value(direction) as f64));
            family(&format!("{name}_total"), "counter", help, samples);
        }
        for (name, help) in GAUGES {
            let samples = of_directions(&|direction| direction.gauges.get(name).copied());
            family(name, "gauge", help, samples);
        }
        out
    }
}

/// A label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Delays, Hops, LossPattern, Reordering, Summary};

    fn report(sent: u64, lost: u64) -> PathReport {
        let delay = Delays {
            min_ns: 1_500_000,
            median_ns: 2_000_000,
            percentiles: Vec::new(),
            max_ns: 9_000_000,
            jitter_ns: 250_000,
            not_kept: 0,
        };
        let summary = Summary {
            first: 0,
            sent,
            lost,
            lost_here: 1,
            skipped: 0,
            late: 0,
            duplicates: 2,
            delay: Some(delay),
            hops: Hops {
                least: Some(12),
                ..Hops::default()
            },
            reordering: vec![Reordering::new(1, 3, sent)],
            loss_pattern: LossPattern::of(std::iter::empty()),
        };
        let direction = DirectionReport {
            way: Way::There,
            from: "a".to_owned(),
            to: "b".to_owned(),
            session: String::new(),
            summary,
            losses_known: true,
            error: None,
            kernel_send_times: true,
            sent_late: None,
            send_refused: None,
            strangers: None,
        };
        PathReport {
            protocol: "owamp",
            mode: "open".to_owned(),
            start: String::new(),
            directions: vec![direction],
            clock: None,
            corrected: Default::default(),
            notes: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn counters_add_up_and_gauges_are_of_the_latest_stretch() {
        let board = Board::new(["b", "c\"d"]);
        board.measured("b", &report(100, 5), 1_000.5);
        board.measured("b", &report(50, 1), 1_060.5);
        let text = board.text();
        for line in [
            "slowpath_path_packets_sent_total{peer=\"b\",way=\"there\"} 150",
            "slowpath_path_packets_lost_total{peer=\"b\",way=\"there\"} 6",
            "slowpath_path_packets_reordered_total{peer=\"b\",way=\"there\"} 6",
            "slowpath_path_loss_ratio{peer=\"b\",way=\"there\"} 0.02",
            "slowpath_path_delay_median_seconds{peer=\"b\",way=\"there\"} 0.002",
            "slowpath_path_hops{peer=\"b\",way=\"there\"} 12",
            "slowpath_path_stretches_total{peer=\"b\"} 2",
            "slowpath_path_measured_timestamp_seconds{peer=\"b\"} 1060.5",
            "slowpath_path_up{peer=\"c\\\"d\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // What is not known has no sample.
        assert!(!text.contains("slowpath_path_delay_error_seconds{"));
    }

    #[test]
    fn a_peer_that_fails_has_counters_and_no_gauges() {
        let board = Board::new(["b"]);
        board.measured("b", &report(100, 5), 1.0);
        board.failed("b");
        board.failed("stranger");
        let text = board.text();
        assert!(text.contains("slowpath_path_up{peer=\"b\"} 0\n"));
        assert!(text.contains("slowpath_path_failures_total{peer=\"b\"} 1\n"));
        assert!(text.contains("slowpath_path_packets_sent_total{peer=\"b\",way=\"there\"} 100\n"));
        assert!(!text.contains("delay_median_seconds{"));
    }
}
