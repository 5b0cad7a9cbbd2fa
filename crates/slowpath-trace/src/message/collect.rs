// SPDX-License-Identifier: Apache-2.0
//! Follows one direction's messages.

use super::{Category, Cause, Message, Messages};
use crate::segment::Flags;
use crate::tcp::{self, Event, Kind, Marks, Moment};
use crate::verdict::{Limit, Sender, Sent};
use std::time::Duration;

/// A fast retransmission is in time until then, whatever the RTT, ns.
const DETECTION: i64 = 10_000_000;

/// TCP_DELACK_MAX of Linux (include/net/tcp.h), ns.
const LONGEST_DELAY: i64 = 200_000_000;

/// Later than an ACK in time by this, it was kept back: [`tcp::Options::delayed_ack`], ns.
const LATE: i64 = 25_000_000;

/// A mean RTT of this percentage of the least shows a queue.
const QUEUED: i64 = 145;

/// A shorter queue is the host's own, ns.
const SHORTEST_QUEUE: i64 = 1_000_000;

/// How often, how long, and where.
#[derive(Clone, Copy, Debug, Default)]
struct Observations {
    events: u64,
    nanos: i64,
    first: Moment,
    last: Moment,
}

impl Observations {
    fn add(&mut self, at: Moment, nanos: i64) {
        if self.events == 0 {
            self.first = at;
        }
        self.events += 1;
        self.nanos = self.nanos.saturating_add(nanos.max(0));
        self.last = at;
    }
}

/// The message under way.
#[derive(Clone, Debug)]
struct Current {
    start: Moment,
    sequence: i64,
    end: i64,
    bytes: u64,
    acked: Option<Moment>,
    /// An ACK that was kept back, by so much, and whether the window's edge stood still.
    late: Option<(Moment, i64, bool)>,
    marks: u64,
    lost: u64,
    rtt: (i64, i64),
}

/// What was observed of the message under way; mostly nothing. One message's memory is the next one's.
#[derive(Clone, Debug, Default)]
struct Observed(Vec<(Category, Observations)>);

impl Observed {
    #[cold]
    fn see(&mut self, category: Category, at: Moment, nanos: i64) {
        if let Some((_, observed)) = self.0.iter_mut().find(|(c, _)| *c == category) {
            return observed.add(at, nanos);
        }
        let mut observed = Observations::default();
        observed.add(at, nanos);
        self.0.push((category, observed));
    }

    fn of(&self, category: Category) -> Observations {
        let found = self.0.iter().find(|(c, _)| *c == category);
        found.map_or_else(Observations::default, |(_, observed)| *observed)
    }
}

/// A timer's or probe's retransmission waiting for its ACK.
#[derive(Clone, Copy, Debug)]
struct Repair {
    at: Moment,
    since: Moment,
    end: i64,
    /// Nothing after the loss had arrived.
    tail: bool,
    /// Its ACK passed here before.
    acked_before: bool,
}

/// Follows one direction.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    found: Messages,
    keep: usize,
    current: Option<Current>,
    observed: Observed,
    repair: Option<Repair>,
    /// Recovery ends with the ACK of this.
    recovery: i64,
    first_duplicate: Option<Moment>,
    signalled: bool,
    last_data: Moment,
    last_sign: Moment,
    next: i64,
    acked: i64,
    edge: Option<i64>,
    srtt: i64,
    least_rtt: Option<i64>,
}

fn passed(from: Moment, to: Moment) -> i64 {
    to.time.0.saturating_sub(from.time.0)
}

impl Collector {
    pub(crate) fn new(keep: usize) -> Self {
        Collector {
            found: Messages::default(),
            keep,
            current: None,
            observed: Observed::default(),
            repair: None,
            recovery: i64::MIN,
            first_duplicate: None,
            signalled: false,
            last_data: Moment::default(),
            last_sign: Moment::default(),
            next: i64::MIN,
            acked: i64::MIN,
            edge: None,
            srtt: 0,
            least_rtt: None,
        }
    }

    /// The direction's side sent a segment; `sent` of new data.
    pub(crate) fn sent(
        &mut self,
        event: &Event<'_>,
        now: Moment,
        sent: Option<Sent>,
        sender: &Sender,
    ) {
        if let Some(sent) = sent {
            self.data(event, sent, now, sender);
        } else if matches!(event.kind, Kind::Retransmission(_)) && event.length > 0 {
            self.again(event, sender.judged(), now, sender);
        }
        if let Some(current) = &mut self.current {
            let marked = event.marks.any(Marks::CE | Marks::CWR);
            current.marks += u64::from(marked);
        }
        if event.length > 0 {
            self.last_data = now;
            self.last_sign = now;
            self.next = self.next.max(event.end);
        }
    }

    fn data(&mut self, event: &Event<'_>, sent: Sent, now: Moment, sender: &Sender) {
        if sent.begins || self.current.is_none() {
            self.close(now, sender);
            self.current = Some(Current {
                start: now,
                sequence: event.sequence,
                end: event.sequence,
                bytes: 0,
                acked: None,
                late: None,
                marks: 0,
                lost: 0,
                rtt: (0, 0),
            });
        }
        let Some(current) = &mut self.current else {
            return;
        };
        current.acked = None;
        current.bytes += u64::from(event.length);
        current.end = event.end - i64::from(event.flags.any(Flags::FIN));
        if let Some((at, nanos, still)) = current.late.take() {
            let category = if still {
                Category::BufferShrink
            } else {
                Category::DelayedAcks
            };
            self.observed.see(category, at, nanos);
        }
    }

    fn again(&mut self, event: &Event<'_>, cause: tcp::Cause, now: Moment, sender: &Sender) {
        let turn = sender.turn();
        let Some(current) = &mut self.current else {
            return;
        };
        current.lost += 1;
        match cause {
            tcp::Cause::Timeout | tcp::Cause::TailLossProbe => {
                if cause == tcp::Cause::Timeout {
                    let waited = passed(self.last_sign, now);
                    self.observed.see(Category::Timeout, now, waited);
                }
                let since = self.repair.map_or(self.last_sign, |r| r.since);
                self.repair = Some(Repair {
                    at: now,
                    since,
                    end: event.end,
                    tail: !self.signalled,
                    acked_before: event.marks.any(Marks::ALREADY_ACKED),
                });
                if event.marks.any(Marks::ALREADY_ACKED) {
                    self.repaired(now, false);
                }
            }
            tcp::Cause::Fast if event.sequence >= self.recovery => {
                self.recovery = self.next.max(event.end);
                let since = self
                    .first_duplicate
                    .map_or(0, |first| passed(first, now).saturating_sub(turn));
                let late = since > self.srtt.saturating_add(turn).max(DETECTION);
                let category = if late {
                    Category::LateFastRetransmit
                } else {
                    Category::FastRetransmit
                };
                self.observed.see(category, now, since);
            }
            _ => {}
        }
    }

    /// What a timer or probe sent again was acknowledged.
    fn repaired(&mut self, now: Moment, duplicate: bool) {
        let Some(repair) = self.repair.take() else {
            return;
        };
        if self.current.is_none() {
            return;
        }
        let waited = passed(repair.since, repair.at);
        if repair.acked_before || duplicate && waited >= LONGEST_DELAY {
            self.observed.see(Category::AckDrop, repair.at, waited);
        } else if repair.tail && !duplicate {
            self.observed
                .see(Category::TailDrop, repair.at, passed(repair.since, now));
        }
    }

    /// The other side sent a segment.
    pub(crate) fn received(&mut self, event: &Event<'_>, now: Moment, sender: &Sender) {
        if let Some(rtt) = event.rtt {
            let rtt = i64::try_from(rtt.as_nanos()).unwrap_or(i64::MAX);
            self.srtt = match self.srtt {
                0 => rtt,
                srtt => srtt + (rtt - srtt) / 8,
            };
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
            if let Some(current) = &mut self.current {
                current.rtt.0 = current.rtt.0.saturating_add(rtt);
                current.rtt.1 += 1;
            }
        }
        if let Some(current) = &mut self.current {
            current.marks += u64::from(event.marks.any(Marks::ECE));
        }
        self.signalled |= event.duplicate > 0 || !event.sack.is_empty() && !dsack(event);
        if event.duplicate == 1 || self.signalled && self.first_duplicate.is_none() {
            self.first_duplicate = Some(now);
        }
        if let Some(ack) = event.acknowledgement {
            if ack > self.acked {
                self.advance(event, ack, now, sender);
            }
            self.last_sign = now;
        }
        if let Some(edge) = event.window_edge {
            self.edge = Some(edge);
        }
    }

    fn advance(&mut self, event: &Event<'_>, ack: i64, now: Moment, sender: &Sender) {
        if self.repair.is_some_and(|r| ack >= r.end) {
            self.repaired(now, dsack(event));
        }
        let pure = event.length == 0 && !event.flags.any(Flags::SYN | Flags::FIN | Flags::RST);
        let waited = passed(self.last_data, now);
        let drained = ack >= self.next && sender.path_rtt().is_some();
        let above = waited.saturating_sub(self.least_rtt.unwrap_or(0));
        let kept = event.marks.any(Marks::DELAYED_ACK)
            || drained && above >= LATE && self.first_duplicate.is_none();
        if let Some(current) = &mut self.current {
            if pure && kept && current.bytes > 0 && self.repair.is_none() {
                let still = event
                    .window_edge
                    .zip(self.edge)
                    .is_some_and(|(new, old)| new <= old);
                current.late = Some((now, above, still));
            }
            if ack >= current.end && current.acked.is_none() {
                current.acked = Some(now);
            }
        }
        self.acked = ack;
        if event.sack.is_empty() || dsack(event) {
            self.first_duplicate = None;
            self.signalled = false;
        }
    }

    /// The message under way is over; the sender's line is drawn up to now.
    fn close(&mut self, now: Moment, sender: &Sender) {
        let Some(current) = self.current.take() else {
            return;
        };
        self.repair = None;
        let end = current.acked.unwrap_or(now);
        let limits = sender.line().within(current.start.time, end.time);
        let mut message = Message {
            start: current.start,
            end,
            complete: current.acked.is_some(),
            sequence: current.sequence,
            bytes: current.bytes,
            limits,
            causes: Vec::new(),
        };
        message.causes = self.causes(&current, &message);
        self.observed.0.clear();
        let found = &mut self.found;
        found.count += 1;
        found.bytes += message.bytes;
        found.time += message.duration();
        for cause in &message.causes {
            found.categories[cause.category as usize] += 1;
        }
        self.retain(message);
    }

    fn causes(&self, current: &Current, message: &Message) -> Vec<Cause> {
        let mut causes = Vec::new();
        for category in Category::ALL {
            let observed = self.observed.of(category);
            let mut cause = Cause {
                category,
                time: Duration::from_nanos(u64::try_from(observed.nanos).unwrap_or(0)),
                events: observed.events,
                first: observed.first,
                last: observed.last,
            };
            let happened = match category {
                Category::LateFastRetransmit | Category::AckDrop | Category::TailDrop => {
                    observed.events > 0
                }
                Category::Timeout => {
                    cause.time = message.limits.of(Limit::Timeout);
                    observed.events > 0
                }
                Category::FastRetransmit => {
                    cause.time = message.limits.of(Limit::Recovery);
                    observed.events > 0
                }
                // "Multiple": one is every receiver's right.
                Category::BufferShrink | Category::DelayedAcks => observed.events >= 2,
                Category::ZeroWindow => {
                    let time = message.limits.of(Limit::ZeroWindow);
                    cause = whole(category, time, message);
                    time > Duration::ZERO
                }
                Category::Congestion => {
                    let time = message.limits.of(Limit::CongestionWindow);
                    cause = whole(category, time, message);
                    self.congested(current)
                        && message.limits.largest() == Some(Limit::CongestionWindow)
                }
            };
            if happened {
                // Of most messages there is one, and there are many messages.
                causes.reserve_exact(1);
                causes.push(cause);
            }
        }
        causes.sort_by_key(|c| (std::cmp::Reverse(c.time), c.category));
        causes
    }

    fn congested(&self, current: &Current) -> bool {
        let (sum, count) = current.rtt;
        let mean = sum.checked_div(count).unwrap_or(0);
        let least = self.least_rtt.unwrap_or(mean);
        let queue = mean.saturating_sub(least);
        let long = mean.saturating_mul(100) >= least.saturating_mul(QUEUED);
        current.lost > 0 || current.marks > 0 || (long && queue >= SHORTEST_QUEUE)
    }

    /// Keeps the slowest.
    fn retain(&mut self, message: Message) {
        let slowest = &mut self.found.slowest;
        slowest.push(message);
        // Twice what is kept, so that the selection costs little a message.
        if slowest.len() >= 2 * self.keep.max(1) {
            thin(slowest, self.keep);
        }
    }

    /// The connection is over.
    pub(crate) fn finish(mut self, end: Moment, sender: &Sender) -> Messages {
        self.close(end, sender);
        thin(&mut self.found.slowest, self.keep);
        self.found
    }
}

/// Keeps the slowest, in the order of their beginnings, in which they came.
fn thin(messages: &mut Vec<Message>, keep: usize) {
    if messages.len() > keep {
        messages.sort_unstable_by_key(|m| (std::cmp::Reverse(m.duration()), m.start.frame));
        messages.truncate(keep);
        messages.sort_unstable_by_key(|m| m.start.frame);
    }
}

fn dsack(event: &Event<'_>) -> bool {
    event.marks.any(Marks::DSACK)
}

fn whole(category: Category, time: Duration, message: &Message) -> Cause {
    Cause {
        category,
        time,
        events: 1,
        first: message.start,
        last: message.end,
    }
}
