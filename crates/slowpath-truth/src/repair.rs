// SPDX-License-Identifier: Apache-2.0
//! Why each retransmission was sent, from what passed the sender's interface.
//!
//! Numbered conditions, the first that holds:
//!
//! 1. *Continuing*: the episode of an earlier repair is open (what was sent when it began is
//!    not yet acknowledged) and the last ACK is younger than the least timeout: the same
//!    cause. TCP may take a timeout back (RFC 5682, RFC 4015) when the receiver says that it
//!    had the data already (DSACK, RFC 2883), or acknowledges data that was never sent again;
//!    whether it does, the wire does not show: what follows a report of losses then is
//!    unclear.
//! 2. *Fast*: the receiver has reported later data (SACK above it, or three duplicate ACKs),
//!    and it was sent within the RACK timer's reach of an ACK (RFC 8985 section 6.2: a
//!    reordering window of at most one RTT) and before a timer could expire.
//! 3. *Probe*: the last segment, no episode open, and no probe of the same tail before it
//!    (RFC 8985 section 7: at most one).
//! 4. *Timer*: the first unacknowledged segment, after the least timeout (Linux: 200 ms less
//!    a tick) without an ACK; or the last segment again after a probe of it.
//! 5. *Unclear*: the rest; and the first unacknowledged segment sent again in an episode
//!    that has acknowledged nothing for the least timeout, although ACKs came.

use crate::app::Span;
use crate::stream::Stream;

/// Linux's TCP_RTO_MIN, less one tick of the slowest clock in use (100 a second), in
/// nanoseconds.
const LEAST_TIMEOUT: u64 = 190_000_000;

/// Linux's ticks until the RACK timer fires, on top of the reordering window (two ticks late,
/// at 250 a second, and one of scheduling), in nanoseconds.
const TICKS: u64 = 12_000_000;

/// Why something was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The receiver's reports.
    Fast,
    /// A tail loss probe.
    Probe,
    /// The retransmission timer expired.
    Timer,
    /// The wire does not show it.
    Unclear,
}

/// One retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// When.
    pub at: u64,
    /// Position of its first byte.
    pub start: u64,
    /// Why.
    pub cause: Cause,
    /// It began an episode; the others continue one.
    pub first: bool,
}

struct Episode {
    cause: Cause,
    /// Over when acknowledged up to here.
    until: u64,
    /// What was sent again when it began ends here.
    resent: u64,
    /// It may be over already.
    doubtful: bool,
}

#[derive(Default)]
struct Sender {
    una: u64,
    next: u64,
    /// The highest that was selectively acknowledged.
    sacked: u64,
    duplicates: u32,
    /// When the last ACK came.
    heard: u64,
    /// When the first unacknowledged segment became that, or was sent.
    advanced: u64,
    /// The end of the tail that was probed.
    probed: Option<u64>,
    episode: Option<Episode>,
    /// The longest RTT from a segment to its ACK so far.
    rtt: u64,
}

/// The retransmissions of a direction, in time order.
pub fn repairs(stream: &Stream) -> Vec<Repair> {
    let mut sender = Sender::default();
    let mut repairs = Vec::new();
    let mut heard = stream.heard.iter().peekable();
    let mut oldest = 0;
    for (number, sent) in stream.sent.iter().enumerate() {
        while let Some(answer) = heard.next_if(|answer| answer.at <= sent.at) {
            sender.hear(answer);
            // The newest segment that this ACK covers gives a sample.
            let mut sample = None;
            while oldest < number && stream.sent[oldest].end <= answer.ack {
                sample = Some(answer.at - stream.sent[oldest].at);
                oldest += 1;
            }
            sender.rtt = sender.rtt.max(sample.unwrap_or(0));
        }
        if sent.at < stream.from || sent.at > stream.to {
            continue;
        }
        if sent.start < sender.next && sent.end > sender.una {
            repairs.push(sender.judge(sent.at, sent.start, sent.end));
        }
        if sender.next == sender.una {
            sender.advanced = sent.at;
        }
        sender.next = sender.next.max(sent.end);
    }
    repairs
}

/// When something was missing or being sent again: from the first report of later data, or
/// the first retransmission, until everything sent until the last of them is acknowledged.
/// Meanwhile the congestion window decides what is sent, whatever else is full (RFC 6675, RFC
/// 6937).
pub fn repairing(stream: &Stream) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: Option<(u64, u64)> = None;
    let (mut una, mut next) = (0, 0);
    let mut heard = stream.heard.iter().peekable();
    let mut sent = stream.sent.iter().peekable();
    loop {
        let first = heard.peek().map(|h| h.at);
        match sent.next_if(|s| first.is_none_or(|at| s.at < at)) {
            Some(s) => {
                if s.start < next && s.end > una {
                    let (from, _) = open.unwrap_or((s.at, next));
                    open = Some((from, next));
                }
                next = next.max(s.end);
            }
            None => {
                let Some(answer) = heard.next() else { break };
                una = una.max(answer.ack);
                if answer.sack.iter().any(|block| block.1 > una) && open.is_none() {
                    open = Some((answer.at, next));
                }
                if let Some((from, until)) = open
                    && una >= until
                {
                    let to = answer.at;
                    spans.push(Span { from, to });
                    open = None;
                }
            }
        }
    }
    if let Some((from, _)) = open {
        spans.push(Span { from, to: u64::MAX });
    }
    spans
}

impl Sender {
    fn hear(&mut self, answer: &crate::stream::Answer) {
        let sacked = answer.sack.iter().map(|block| block.1).max().unwrap_or(0);
        let duplicate = answer.sack.first().is_some_and(|b| b.1 <= answer.ack);
        if let Some(episode) = &mut self.episode
            && episode.cause == Cause::Timer
        {
            let beyond = answer.ack > episode.resent && answer.ack > self.sacked;
            episode.doubtful |= beyond || duplicate;
        }
        if answer.ack > self.una {
            self.advanced = answer.at;
            self.una = answer.ack;
            self.duplicates = 0;
        } else if self.next > self.una && !answer.data {
            self.duplicates += 1;
        }
        self.sacked = self.sacked.max(sacked);
        self.heard = answer.at;
        if self.episode.as_ref().is_some_and(|e| self.una >= e.until) {
            self.episode = None;
        }
        if self.probed.is_some_and(|end| self.una >= end) {
            self.probed = None;
        }
    }

    fn judge(&mut self, at: u64, start: u64, end: u64) -> Repair {
        let quiet = at - self.heard.min(at);
        let may_be_timer = quiet >= LEAST_TIMEOUT;
        // The timer goes on over ACKs that acknowledge nothing new.
        let stuck = start == self.una && at - self.advanced.min(at) >= LEAST_TIMEOUT;
        if let Some(episode) = &self.episode
            && !may_be_timer
            && !(stuck && episode.cause == Cause::Fast)
        {
            let doubtful = episode.doubtful && self.sacked > end;
            return Repair {
                at,
                start,
                cause: if doubtful {
                    Cause::Unclear
                } else {
                    episode.cause
                },
                first: doubtful,
            };
        }
        let reported = self.sacked > end.min(self.next - 1) || self.duplicates >= 3;
        let within_reach = quiet <= 2 * self.rtt + TICKS;
        let tail = end == self.next;
        let head = start == self.una;
        let open = self.episode.is_some() || self.sacked > self.una;
        let cause = if stuck && !may_be_timer && self.episode.is_some() {
            Cause::Unclear
        } else if reported && within_reach && !may_be_timer {
            Cause::Fast
        } else if tail && !open && self.probed != Some(end) {
            Cause::Probe
        } else if head && may_be_timer && !(reported && within_reach) {
            Cause::Timer
        } else {
            Cause::Unclear
        };
        match cause {
            Cause::Probe => self.probed = Some(end),
            _ => {
                let until = self.next;
                self.episode = Some(Episode {
                    cause,
                    until,
                    resent: end,
                    doubtful: false,
                });
            }
        }
        Repair {
            at,
            start,
            cause,
            first: true,
        }
    }
}
