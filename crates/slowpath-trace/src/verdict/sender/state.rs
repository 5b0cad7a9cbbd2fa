// SPDX-License-Identifier: Apache-2.0
//! What is remembered of a sender, by what changes at once.

use super::super::size::SegmentSize;
use super::{PROMPT, START};
use crate::tcp::{Cause, Moment};
use std::time::Duration;

/// Round trips from the place of capture, ns.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrips {
    /// The shortest from here to the sender and back.
    turn: Option<i64>,
    /// The same; 0 if it is not known, or if the capture was made there. Nearly every rule asks for it.
    elsewhere: i64,
    /// Since when that is known.
    pub(super) turn_since: Option<Moment>,
    /// From here to the sender and back, smoothed as in RFC 6298; 0 before the first sample.
    smoothed_turn: i64,
    /// The shortest from here to the receiver and back.
    receiver: Option<i64>,
    /// Smoothed RTT from here to the receiver, RFC 6298; 0 before the first sample.
    pub(super) smoothed: i64,
}

/// Losses and their repair. Positions that end a state are one past what was sent when it began.
#[derive(Clone, Debug)]
pub(super) struct Repair {
    pub(super) sack: bool,
    /// The last retransmission's cause.
    pub(super) cause: Cause,
    /// Duplicate ACKs or SACK blocks since the last advance.
    pub(super) signalled: bool,
    pub(super) recovery: Option<i64>,
    pub(super) timeout: Option<i64>,
    pub(super) probe: Option<i64>,
    /// Up to here something was sent again.
    pub(super) resent: i64,
}

/// The sender's sequence numbers, relative, and the size of a full segment.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// Something that takes sequence numbers was sent.
    pub(super) begun: bool,
    pub(super) next: i64,
    pub(super) acked: i64,
    /// One past the FIN.
    pub(super) fin: Option<i64>,
    /// Payload of a full segment, by `size`.
    pub(super) full: i64,
    pub(super) size: SegmentSize,
}

/// The window that the receiver advertised last, as far as the sender knows.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiverWindow {
    pub(super) edge: Option<i64>,
    pub(super) zero: bool,
    /// The windows make no sense: their scale is not known.
    pub(super) unscaled: bool,
    /// The closed window was probed.
    pub(super) probed: bool,
    /// Bytes.
    pub(super) size: Option<u64>,
    /// The largest that was full.
    pub(super) full: u64,
}

impl ReceiverWindow {
    /// It has no room for another segment; `acked`: where it begins.
    pub(super) fn was_full(&mut self, acked: i64) {
        let size = self.edge.map_or(0, |edge| edge.saturating_sub(acked));
        self.full = self.full.max(u64::try_from(size).unwrap_or(0));
    }
}

/// The last data that was sent.
#[derive(Clone, Debug)]
pub(super) struct LastData {
    pub(super) time: Moment,
    pub(super) small: bool,
    pub(super) pushed: bool,
    /// The receiver sent data since.
    pub(super) answered: bool,
}

/// What a verdict counts.
#[derive(Clone, Debug, Default)]
pub(in crate::verdict) struct Counts {
    pub(in crate::verdict) fast_recoveries: u64,
    pub(in crate::verdict) timeouts: u64,
    /// Of these, by missing IP identifications only.
    pub(in crate::verdict) inferred_timeouts: u64,
    pub(in crate::verdict) probes: u64,
    pub(in crate::verdict) delayed_acks: u64,
    pub(in crate::verdict) held_acks: u64,
    pub(in crate::verdict) small_writes: u64,
    /// Bytes.
    pub(in crate::verdict) most_in_flight: i64,
}

impl RoundTrips {
    /// The shortest round trip of the whole path.
    pub(super) fn path(&self) -> Option<i64> {
        Some(self.receiver?.saturating_add(self.turn.unwrap_or(0)))
    }

    /// The shortest from here to the sender and back, if it is known.
    pub(super) fn known_turn(&self) -> Option<i64> {
        self.turn
    }

    /// The shortest from here to the sender and back; 0 if it is not known, or if the capture was made there.
    #[inline]
    pub(super) fn turn(&self) -> i64 {
        self.elsewhere
    }

    /// The shortest from here to the receiver and back.
    #[inline]
    pub(super) fn receiver(&self) -> Option<i64> {
        self.receiver
    }

    /// The sender is nearer than its answers showed.
    pub(super) fn nearer(&mut self, turn: i64) {
        self.turn = Some(turn);
        self.place();
    }

    /// One of the shortest has changed.
    #[cold]
    fn place(&mut self) {
        self.elsewhere = self.turn.filter(|_| !self.is_here()).unwrap_or(0);
    }

    /// The sender is here: its turn is no longer than a host's response time, and than an eighth of the path's RTT.
    fn is_here(&self) -> bool {
        self.turn
            .zip(self.path())
            .is_some_and(|(turn, path)| turn <= PROMPT.0 && 8 * turn <= path)
    }

    /// An RTT to the receiver; gives it in ns.
    pub(super) fn sample(&mut self, rtt: Duration) -> i64 {
        let (rtt, least) = shorter(&mut self.receiver, rtt);
        if least {
            self.place();
        }
        self.smoothed = match self.smoothed {
            0 => rtt,
            srtt => srtt + (rtt - srtt) / 8,
        };
        rtt
    }

    /// An RTT to the sender.
    pub(super) fn sample_turn(&mut self, rtt: Duration, now: Moment) {
        self.turn_since = self.turn_since.or(Some(now));
        let (turn, least) = shorter(&mut self.turn, rtt);
        if least {
            self.place();
        }
        self.smoothed_turn = match self.smoothed_turn {
            0 => turn,
            smoothed => smoothed + (turn - smoothed) / 8,
        };
    }

    /// What turns are longer than the shortest, by a half of it at most, ns: more is the time of
    /// an application that answers.
    pub(super) fn jitter(&self) -> i64 {
        let turn = self.turn.unwrap_or(0);
        self.smoothed_turn.saturating_sub(turn).clamp(0, turn / 2)
    }
}

impl Repair {
    pub(super) fn new() -> Self {
        Repair {
            sack: false,
            cause: Cause::Unexplained,
            signalled: false,
            recovery: None,
            timeout: None,
            probe: None,
            resent: i64::MIN,
        }
    }

    /// Something was sent again and is not yet acknowledged with all that was sent before it.
    pub(super) fn is_under_way(&self) -> bool {
        self.recovery.is_some() || self.timeout.is_some() || self.probe.is_some()
    }

    /// Unless ACKs were captured: when what was sent again arrived is not known, nor whether
    /// anything waited for it.
    pub(super) fn over_unless(&mut self, acks: bool) {
        if !acks {
            (self.recovery, self.timeout, self.probe) = (None, None, None);
        }
    }

    /// Everything before `ack` has arrived; `next` is one past everything sent.
    pub(super) fn acknowledged(&mut self, ack: i64, next: i64) {
        // What was sent again beyond it is still under way: Linux enters recovery anew
        // (`tcp_time_to_recover`: `lost_out`).
        if self.resent > ack && self.recovery.is_some_and(|until| ack >= until) {
            self.recovery = Some(next);
        }
        for until in [&mut self.recovery, &mut self.timeout, &mut self.probe] {
            if until.is_some_and(|u| ack >= u) {
                *until = None;
            }
        }
    }
}

impl Sequence {
    pub(super) fn new() -> Self {
        Sequence {
            begun: false,
            next: 0,
            acked: 0,
            fin: None,
            full: SegmentSize::new().full(),
            size: SegmentSize::new(),
        }
    }

    /// Bytes sent and not acknowledged.
    pub(super) fn in_flight(&self) -> i64 {
        self.next - self.acked
    }
}

impl LastData {
    pub(super) fn new() -> Self {
        LastData {
            time: START,
            small: false,
            pushed: false,
            answered: false,
        }
    }
}

/// An RTT in ns, and whether it is the shortest now.
fn shorter(least: &mut Option<i64>, rtt: Duration) -> (i64, bool) {
    let rtt = i64::try_from(rtt.as_nanos()).unwrap_or(i64::MAX);
    let shortest = least.is_none_or(|l| rtt < l);
    if shortest {
        *least = Some(rtt);
    }
    (rtt, shortest)
}
