// SPDX-License-Identifier: Apache-2.0
//! What an emulated network says of itself.

use super::lateness::Lateness;
use serde::Serialize;
use slowpath_switch::fabric::{Counts, LineCounters};

/// Packets that were dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// No room in a queue.
    pub buffer_full: u64,
    /// A time to live ran out.
    pub ttl_expired: u64,
    /// No route, or an address that no host has.
    pub no_route: u64,
    /// Lost on a line, as the scenario says.
    pub lost: u64,
    /// The link was down.
    pub link_down: u64,
    /// More packets inside than the emulator holds.
    pub too_many: u64,
}

/// What one direction of a link did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineReport {
    /// Where it begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Packets that were put on it.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Lost as the scenario says.
    pub lost: u64,
    /// Lost as the link was down.
    pub cut: u64,
    /// Damaged.
    pub corrupted: u64,
    /// Copied.
    pub copied: u64,
    /// Late on purpose.
    pub late: u64,
}

impl LineReport {
    pub(super) fn new(from: &str, to: &str, counters: LineCounters) -> Self {
        LineReport {
            from: from.to_owned(),
            to: to.to_owned(),
            packets: counters.packets,
            bytes: counters.bytes,
            lost: counters.lost,
            cut: counters.cut,
            corrupted: counters.corrupted,
            copied: counters.copied,
            late: counters.late,
        }
    }
}

/// What happened since the network is up. `sent + copies = delivered + dropped + inside`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How long it has been up.
    pub milliseconds: u64,
    /// Packets that hosts and routers sent.
    pub sent: u64,
    /// Packets that lines made.
    pub copies: u64,
    /// Packets at their host, or at a router that was asked.
    pub delivered: u64,
    /// Packets on their way.
    pub inside: u64,
    /// Packets that went no further.
    pub dropped: Drops,
    /// Delivered packets that a switch marked.
    pub marked: u64,
    /// Queues that were full and had a detour.
    pub detours: u64,
    /// Packets that are for no host of the network: multicast, link-local, broken. Not in `sent`.
    pub not_carried: u64,
    /// Packets that a host's interface did not take when they were delivered.
    pub not_taken: u64,
    /// Packets that hosts sent and that were lost before the emulator read them: it was too
    /// slow.
    pub not_read: u64,
    /// How late packets were handed to hosts.
    pub lateness: Lateness,
    /// Whether the emulator has stopped by itself: a defect of it. All else is zero then.
    pub stopped: bool,
    /// Whether the emulator runs with real-time scheduling.
    pub real_time: bool,
    /// What lines did, those that did something.
    pub lines: Vec<LineReport>,
}

impl Report {
    /// What makes the run untrustworthy, in words; `None`: nothing.
    pub fn complaint(&self) -> Option<String> {
        if self.stopped {
            return Some(
                "the emulator stopped carrying packets: its error message says why".to_owned(),
            );
        }
        let Lateness {
            packets,
            over_bound,
            bound_us,
            most_us,
            ..
        } = self.lateness;
        if !self.lateness.holds() {
            return Some(format!(
                "the emulation was late: {over_bound} of {packets} packets came more than \
                 {bound_us} us after their time (one of 100 may; the latest by {most_us} us). \
                 The machine is too busy or the rates are too high; what was measured in \
                 this run is not what the scenario says"
            ));
        }
        (self.not_read > 0).then(|| {
            format!(
                "the emulation lost {} packets before it could read them: the rates are too \
                 high for this machine",
                self.not_read
            )
        })
    }

    pub(super) fn counts(&mut self, counts: Counts) {
        self.sent = counts.sent;
        self.copies = counts.copies;
        self.delivered = counts.delivered;
        self.inside = counts.inside;
    }
}
