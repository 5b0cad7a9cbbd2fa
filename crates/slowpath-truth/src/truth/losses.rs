// SPDX-License-Identifier: Apache-2.0
//! FastRetransmit, Timeout and IdleBurst: what was sent again, and why.

use super::Truth;
use crate::repair::{Cause, Repair, repairs};
use crate::stream::{Sent, Stream};

/// The three problems that are losses.
pub(super) struct Losses {
    pub(super) fast: Truth,
    pub(super) timeout: Truth,
    pub(super) idle_burst: Truth,
}

/// A pause is idle time for sure when it is longer than this, and no idle time when it is
/// shorter than the least timeout, nanoseconds: timeouts of these runs lie between.
const IDLE: u64 = 450_000_000;
const BUSY: u64 = 200_000_000;

/// A first window is a burst from eleven segments on.
const BURST: u64 = 10;

impl Losses {
    pub(super) fn of(stream: &Stream) -> Self {
        let repairs = repairs(stream);
        let count = |cause| {
            let first = repairs.iter().filter(|r| r.first && r.cause == cause);
            first.count() as u64
        };
        let unclear = count(Cause::Unclear);
        Losses {
            fast: Truth::counted(count(Cause::Fast), unclear),
            timeout: Truth::counted(count(Cause::Timer), unclear),
            idle_burst: idle_burst(stream, &repairs),
        }
    }
}

/// IdleBurst: what was lost and repaired (not only by a probe) is of the first window after an
/// idle time, and that window, what was sent before the first ACK of it came, is more than ten
/// segments.
fn idle_burst(stream: &Stream, repairs: &[Repair]) -> Truth {
    let (mut events, mut unclear) = (0, 0);
    let mut before = 0;
    for (number, first) in stream.sent.iter().enumerate() {
        let pause = first.at.saturating_sub(before);
        before = first.at;
        // Idle: everything sent is acknowledged.
        let heard = stream.heard.iter().take_while(|h| h.at < first.at);
        let acked = heard.map(|h| h.ack).max().unwrap_or(0);
        if number == 0 || pause < BUSY || acked < first.start {
            continue;
        }
        let burst = burst(stream, number);
        let bytes = burst.last().map_or(0, |last| last.end - first.start);
        let is_burst = bytes > BURST * stream.mss;
        // Where the first ACK comes before the card has passed a burst on, whether there was
        // one in the host cannot be observed.
        let activity = stream.sent[number..].chunk_by(|one, next| next.at - one.at < BUSY);
        let activity = activity.into_iter().next().unwrap_or(burst);
        let observed = if is_burst { burst } else { activity };
        let Some(lost) = observed.iter().find(|sent| sent.arrived.is_none()) else {
            continue;
        };
        let flight = observed.last().map_or(0, |last| last.end - lost.start);
        let repaired = |cause: Cause| matches!(cause, Cause::Fast | Cause::Timer);
        let repair = repairs.iter().find(|r| r.first && r.at > lost.at);
        match repair {
            Some(r)
                if is_burst
                    && repaired(r.cause)
                    && pause >= IDLE
                    && flight > BURST * stream.mss =>
            {
                events += 1;
            }
            Some(_) => unclear += 1,
            None => {}
        }
    }
    Truth::counted(events, unclear)
}

/// What was sent from that segment on before the first ACK of it came.
fn burst(stream: &Stream, number: usize) -> &[Sent] {
    let first = &stream.sent[number];
    let heard = stream.heard.partition_point(|h| h.at <= first.at);
    let ack = stream.heard[heard..].iter().find(|h| h.ack > first.start);
    let until = ack.map_or(u64::MAX, |ack| ack.at);
    let length = stream.sent[number..].partition_point(|s| s.at < until);
    &stream.sent[number..number + length]
}
