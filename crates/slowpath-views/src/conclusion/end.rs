// SPDX-License-Identifier: Apache-2.0
//! One end of a connection: how long each stage limited what it sends.

use crate::tally::Tally;
use slowpath_model::{
    Failure, FourTuple, Micros, Origin, Owner, Problem, SocketFacts, TcpState, TcpStats, TurnTimes,
};

/// A connection that was unanswered for so long should be closed (RFC 1122 section 4.2.3.5).
const R2: Micros = Micros(100_000_000);

/// Fewer random moments show nothing: of five, a reader that leaves something for a fifth of the time does so at three
/// or more in one of seventeen, and one that does for four fifths at two or fewer as seldom.
const LEAST_POLLS: u32 = 5;

/// One end of a connection as it was observed.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Its owner, or why that is unknown.
    pub owner: &'a Owner,
    /// Its addresses.
    pub tuple: FourTuple,
    /// Which end opened the connection.
    pub origin: Origin,
    /// Its statistics when last observed.
    pub stats: &'a TcpStats,
    /// Its verdicts, summed.
    pub tally: &'a Tally,
    /// The part of its time in which nothing changed.
    pub idle: Micros,
    /// What else the kernel knows of its socket.
    pub facts: SocketFacts,
    /// Requests and answers.
    pub turns: &'a TurnTimes,
    /// Its process was stopped (by a signal or a debugger) while data waited to be read.
    pub stopped: bool,
    /// How long its process waited for a processor while data waited to be read.
    pub starved: Micros,
    /// Polls that found something unread, and all polls.
    pub unread_polls: (u32, u32),
    /// The largest window met at polls, with what is unread counted as room.
    pub largest_window: Option<u32>,
}

/// How long what, of the data that one end sends.
///
/// Rules:
/// 1. *Active* is the time observed in which anything changed.
/// 2. *Work* is the time with data outstanding or unsent (`tcpi_busy_time`), or the limits'
///    where that is less; where it is unknown, the active time.
/// 3. The network's time is that of its problems that exclude each other: the kernel counts
///    CongestionWindowLimited only while nothing is repaired, and a repair is either fast or by
///    a timer. Reordering counts as far as it exceeds the repairs that it caused; bursts after
///    idle time are part of repairs, marks of the window that they keep small.
/// 4. The last piece of a one-way stream, which small writes leave, holds nothing back while anything else limits.
/// 5. A late ACK counts in an exchange only: there it held something back (rule 4 of the
///    classifier's `delayed_ack`), small writes are what it held, and who writes can mend it. What
///    SNAP counts in one-way streams delays no one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) active: Micros,
    pub(super) work: Micros,
    pub(super) send_buffer: Micros,
    pub(super) network: Micros,
    /// Losses, timers, marks and overtaking, as far as they are in `network`.
    pub(super) repair: Micros,
    /// The peer's window was full.
    pub(super) window: Micros,
    /// It was zero; part of `window`.
    pub(super) zero_window: Micros,
    /// Small writes were held back.
    pub(super) held: Micros,
    /// What arrived was not read.
    pub(super) unread: Micros,
    /// What arrived was not read, for its process waited for a processor.
    pub(super) starved: Micros,
}

impl End<'_> {
    /// Time of one problem.
    pub(super) fn time(&self, problem: Problem) -> Micros {
        self.tally.totals.problem_time[problem as usize]
    }

    /// Data came from the peer in its life. The kernel counts one for FIN.
    pub(super) fn received(&self) -> bool {
        self.stats.bytes_received > 1
    }

    /// Data was acknowledged by the peer in its life. The kernel counts one for SYN.
    pub(super) fn sent(&self) -> bool {
        self.stats.bytes_acked > 1
    }

    /// Segments that it sent again while it was observed.
    pub(super) fn sent_again(&self) -> u64 {
        self.tally.deltas.retransmitted.unwrap_or(0)
    }

    /// Whether anything was sent or received while it was observed.
    pub(super) fn moved(&self) -> bool {
        let deltas = &self.tally.deltas;
        [deltas.bytes_sent, deltas.bytes_acked, deltas.bytes_received]
            .into_iter()
            .flatten()
            .any(|bytes| bytes > 0)
    }

    /// Why the connection failed, if it did, and that cost anything.
    ///
    /// Unanswered is also a SYN that was sent again and waits, or whose process gave up. A reset is
    /// a failure where data was undelivered, or nothing ever answered what was sent: applications also
    /// reset instead of closing when they have what they asked for.
    pub(super) fn failure(&self) -> Option<Failure> {
        let ending = self.facts.ending;
        let state = ending.map_or(Some(self.stats.state), |e| e.state);
        if state == Some(TcpState::SynSent) && ending.is_none_or(|e| e.error.is_none()) {
            let again = self.stats.unanswered_timeouts > 0 || self.stats.retransmitted > 0;
            let abandoned = ending.and_then(|e| e.failure());
            return match (self.facts.not_sent, again) {
                (true, _) => Some(Failure::NotSent),
                (false, true) => Some(Failure::Unanswered),
                (false, false) => abandoned,
            };
        }
        let lost = self.undelivered() > 0;
        let unread = self.stats.receive_queue > 0;
        let asked = lost || self.sent();
        // A client that closed in order and resets what comes after does not want it.
        let unwanted = state == Some(TcpState::CloseWait) && !super::turns::asks(self);
        let failure = ending?.failure()?;
        let cost = match failure {
            Failure::Unanswered if self.facts.not_sent => return Some(Failure::NotSent),
            Failure::Refused | Failure::Unreachable | Failure::NotSent => true,
            Failure::Unanswered | Failure::Abandoned => true,
            Failure::ResetByPeer => !unwanted && (lost || asked && !self.received()),
            Failure::ResetHere => unread && !asked,
        };
        cost.then_some(failure)
    }

    /// How long something that had arrived was unread: the part of the polls, which come at random moments, that found it so.
    /// `None` where there were too few.
    pub(super) fn unread_at_polls(&self) -> Option<Micros> {
        let (unread, polls) = self.unread_polls;
        let active = self.tally.totals.observed.saturating_sub(self.idle);
        (polls >= LEAST_POLLS).then(|| Micros(active.0 * u64::from(unread) / u64::from(polls)))
    }

    /// How long what it was sent would have taken by one full window in each round trip of `least`: what remains if it
    /// reads at once. `None` where the window is not known.
    pub(super) fn round_trips_of_windows(&self, least: Micros) -> Option<Micros> {
        let window = self.largest_window.filter(|window| *window > 0)?;
        let bytes = u128::from(self.tally.deltas.bytes_received?);
        let time = bytes * u128::from(least.0) / u128::from(window);
        Some(Micros(u64::try_from(time).unwrap_or(u64::MAX)))
    }

    /// Bytes of data that were written and not acknowledged; the kernel counts one more for a FIN.
    pub(super) fn undelivered(&self) -> u32 {
        self.stats
            .send_queue
            .saturating_sub(u32::from(self.sent_fin()))
    }

    /// It has sent a FIN that is not acknowledged.
    fn sent_fin(&self) -> bool {
        let ending = self.facts.ending.and_then(|e| e.state);
        matches!(
            ending.unwrap_or(self.stats.state),
            TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck
        )
    }

    /// What it sent has been unanswered for R2, the time after which a connection should be closed: at least
    /// 100 s (RFC 1122 section 4.2.3.5). A timer that has been doubled n times from t has waited t (2^n - 1). No one
    /// waits for the ACK of a FIN either.
    pub(super) fn given_up(&self) -> bool {
        let (rto, backoff) = (self.stats.rto.0, self.stats.backoff.min(63));
        let waited = rto - (rto >> backoff);
        let only_fin = self.sent_fin() && self.undelivered() == 0;
        self.stats.unanswered_timeouts > 0 && (waited >= R2.0 || only_fin)
    }

    /// It sends as fast as its application lets it (SO_MAX_PACING_RATE): the part of that rate, if it is
    /// three quarters or more (a rate's bursts and pauses).
    pub(super) fn paced(&self) -> Option<f64> {
        let most = self.facts.max_pacing_rate.filter(|rate| *rate > 0)?;
        let rate = self.acknowledged_rate()? / most as f64;
        (rate >= 0.75).then_some(rate.min(1.0))
    }

    /// What was acknowledged, bytes a second of the active time.
    pub(super) fn acknowledged_rate(&self) -> Option<f64> {
        let active = self.tally.totals.observed.saturating_sub(self.idle);
        let acked = self.tally.deltas.bytes_acked.filter(|b| *b > 0)?;
        (active > Micros::ZERO).then(|| acked as f64 * 1e6 / active.0 as f64)
    }

    /// Half of what is under way waits in this host's own queueing discipline or device.
    pub(super) fn queues_here(&self) -> bool {
        let under_way = u64::from(self.stats.in_flight) * u64::from(self.stats.send_mss);
        let here = self.facts.device_queue.map_or(0, u64::from);
        here > 0 && 2 * here >= under_way
    }

    /// Data waits although a quarter of the congestion window is free, or more: for pacing, or for room in the
    /// queueing discipline or the device, of which TCP takes but a millisecond's worth (`tcp_small_queue_check`).
    pub(super) fn waits_below_window(&self) -> bool {
        let (in_flight, window) = (u64::from(self.stats.in_flight), u64::from(self.stats.cwnd));
        self.stats.unsent > 0 && in_flight > 0 && 4 * in_flight < 3 * window
    }

    pub(super) fn times(&self) -> Times {
        let observed = self.tally.totals.observed;
        let active = observed.saturating_sub(self.idle);
        let at_most = |time: Micros| time.min(active);
        let recovery = self.time(Problem::FastRetransmit) + self.time(Problem::Timeout);
        let overtaken = self.time(Problem::Reordering).saturating_sub(recovery);
        let repair = at_most(recovery + overtaken + self.time(Problem::SynRetransmit));
        let network = at_most(repair + self.time(Problem::CongestionWindowLimited));
        let send_buffer = at_most(self.time(Problem::SendBufferLimited));
        let window = at_most(self.time(Problem::ReceiverWindowLimited));
        let small = self.time(Problem::SmallWrites);
        let held = match self.received() {
            true => at_most(small + self.time(Problem::DelayedAck)),
            false => {
                let busy = self.tally.deltas.busy.unwrap_or(active);
                small.min(at_most(busy).saturating_sub(send_buffer + network + window))
            }
        };
        let limited = at_most(send_buffer + network + window + held);
        Times {
            active,
            work: match self.tally.deltas.busy {
                Some(busy) => at_most(busy.max(limited)),
                None => active,
            },
            send_buffer,
            network,
            repair,
            window,
            zero_window: self.time(Problem::ZeroWindow).min(window),
            held,
            unread: at_most(self.time(Problem::ReceiverAppSlow)),
            starved: at_most(self.starved),
        }
    }
}

/// The mean round trip while it was observed, and the least of its life.
pub(super) fn round_trips(end: &End<'_>) -> Option<(Micros, Micros)> {
    let deltas = &end.tally.deltas;
    let mean = match (deltas.rtt_sum, deltas.rtt_count) {
        (Some(sum), Some(count)) if count > 0 => Micros(sum.0 / count),
        _ => end.stats.srtt?,
    };
    Some((mean, end.stats.min_rtt?.min(mean)))
}
