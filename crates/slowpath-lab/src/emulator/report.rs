// SPDX-License-Identifier: Apache-2.0
//! What an emulated network says of itself.

use super::lateness::Lateness;
use super::router::IcmpCounts;
use serde::Serialize;
use slowpath_switch::fabric::{ConditionCounters, Counts, LineCounters};

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
    /// Longer than a line's MTU, and not to be fragmented.
    pub too_long: u64,
    /// More than a line's policer lets pass.
    pub policed: u64,
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
    /// Dropped as they were longer than its MTU; not in `packets`.
    pub too_long: u64,
    /// Made into fragments as they were longer; not in `packets`.
    pub fragmented: u64,
    /// Fragments of these.
    pub fragments: u64,
    /// Dropped by its policer.
    pub policed: u64,
    /// ECN fields that it cleared.
    pub ecn_cleared: u64,
    /// Packets to which it gave another DSCP.
    pub dscp_set: u64,
}

/// What a router sent of its own: errors and echo replies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouterReport {
    /// Its name.
    pub name: String,
    /// Messages that it sent, or will when their delay is over.
    pub icmp_sent: u64,
    /// Messages that it did not send: it is silent, or beyond its rate.
    pub icmp_suppressed: u64,
}

impl RouterReport {
    pub(super) fn new(name: &str, counts: IcmpCounts) -> Self {
        RouterReport {
            name: name.to_owned(),
            icmp_sent: counts.sent,
            icmp_suppressed: counts.suppressed,
        }
    }
}

impl LineReport {
    pub(super) fn new(
        from: &str,
        to: &str,
        (counters, condition): (LineCounters, ConditionCounters),
    ) -> Self {
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
            too_long: condition.too_long,
            fragmented: condition.fragmented,
            fragments: condition.fragments,
            policed: condition.policed,
            ecn_cleared: condition.ecn_cleared,
            dscp_set: condition.dscp_set,
        }
    }
}

/// What happened since the network is up.
/// `sent + copies + fragments = delivered + fragmented + dropped + inside`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How long it has been up.
    pub milliseconds: u64,
    /// Packets that hosts and routers sent.
    pub sent: u64,
    /// Packets that lines made.
    pub copies: u64,
    /// Packets that routers made into fragments.
    pub fragmented: u64,
    /// What these became.
    pub fragments: u64,
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
    /// What routers answered, those that had to.
    pub routers: Vec<RouterReport>,
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
        self.fragmented = counts.fragmented;
        self.fragments = counts.fragments;
    }
}
