// SPDX-License-Identifier: Apache-2.0
//! Whether an ACK was kept back, compared with what the path was like at that time.
//!
//! An ACK in time comes one least RTT after the segment that it acknowledges, and not sooner
//! after the ACK before it than the bottleneck takes for the bytes between both. What it comes
//! later is its *excess*. The excess of an ACK in time is the path's: *service*,
//! the time that the bottleneck takes for its bytes, and *queue*, other people's packets.
//!
//! 1. *Service* of some bytes: the shortest a byte of the last [`SAMPLES`] ACKs that were in
//!    time, at least [`HOST`] an ACK, twice (queues vary); but no more than what the least RTT
//!    leaves: it carried a SYN or an ACK of [`HEADERS`] bytes, so that the bottleneck takes
//!    no longer than (bytes + headers) ÷ headers · least RTT. Only that bound counts before
//!    the first sample. None for more than two full segments at once: a receiver acknowledges
//!    every second (RFC 5681 section 4.2), so that they came at once.
//!    Without the handshake the least RTT carried data, and has the bottleneck's time for that. So only the
//!    time from one ACK to the next is a sample, and the bound is the least RTT for as many bytes
//!    as it carried; on an idle path, for the bytes that are more.
//! 2. *Queue*: the least excess of the last [`QUEUES`] ACKs in time that came to an idle path.
//! 3. An ACK *waited* whose excess is service, queue and [`LATE`] at least: half way, and more,
//!    to the shortest delayed-ACK timer in use (Linux, 40 ms, TCP_DELACK_MIN); and service, queue
//!    and four times the mean deviation of the excess of ACKs in time, as a retransmission timer
//!    allows for an RTT that varies (RFC 6298 section 2), and a quarter of the path's RTT, by which
//!    RTTs vary without losses ([`super::super::loss`]). An ACK by [`LATE`] that rule 4 could
//!    call kept back says nothing of that, once another ACK has shown the path.
//! 4. It was kept back only if it is pure, covers all that can have arrived (a timer's ACK does;
//!    any other ACK shows the path), and waited no longer than [`LONGEST`] (RFC 1122 section 4.2.3.2: "less
//!    than 0.5 seconds", and the slack of a host's timer); and acknowledges no more than two full
//!    segments (RFC 5681 section 4.2), unless its window is smaller than the one before: then
//!    Linux waits with more (`__tcp_ack_snd_check`).

/// ACKs in time whose service is remembered.
const SAMPLES: usize = 16;

/// ACKs in time to an idle path whose excess is remembered.
const QUEUES: usize = 4;

/// An ACK is late that comes later than one in time by this, ns:
/// [`crate::tcp::Options::delayed_ack`].
const LATE: i64 = 25_000_000;

/// The longest that a receiver may keep an ACK back, ns, and a tenth.
const LONGEST: i64 = 550_000_000;

/// A host's own time to answer, ns.
const HOST: i64 = 1_000_000;

/// Bytes of the IP and TCP headers, without options.
const HEADERS: i64 = 40;

/// What an ACK says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    /// When it passed, ns.
    pub at: i64,
    /// What is known to have been acknowledged before.
    pub from: i64,
    pub ack: i64,
    /// Since the segment that it acknowledges exactly, ns.
    pub rtt: Option<i64>,
    /// The least RTT so far, ns.
    pub base: i64,
    /// The least RTT of the whole path, ns.
    pub path: i64,
    /// One past the last byte sent.
    pub sent: i64,
    /// Payload of a full segment.
    pub full: i64,
    /// The handshake was captured: the least RTT is that of a SYN, or less.
    pub handshake: bool,
    /// It covers all that can have arrived.
    pub all: bool,
    /// It is pure, and nothing is being repaired.
    pub pure: bool,
    /// Its window is smaller than the one before.
    pub shrinks: bool,
}

/// Follows the ACKs of one direction's data.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness {
    acked: i64,
    /// When that was acknowledged, ns.
    acked_at: i64,
    /// More was under way then.
    continued: bool,
    /// Excess, ns, and bytes with their headers.
    service: [(i64, i64); SAMPLES],
    services: usize,
    queue: [i64; QUEUES],
    queues: usize,
    /// Of the excess of ACKs in time, ns.
    mean: i64,
    deviation: i64,
    /// An ACK came that cannot have been kept back.
    shown: bool,
    /// Without a handshake, the least RTT, ns, and what it acknowledged, with headers.
    least_rtt: Option<(i64, i64)>,
}

impl Lateness {
    /// Whether an ACK acknowledges something; `from`: what is known to have been acknowledged before.
    #[inline]
    pub(super) fn is_news(&self, from: i64, ack: i64) -> bool {
        ack > self.acked.max(from)
    }

    /// By how much the ACK was kept back, ns.
    pub(super) fn acknowledged(&mut self, a: &Acknowledged) -> Option<i64> {
        let bytes = a.ack - self.acked.max(a.from);
        if bytes <= 0 {
            return None;
        }
        // What was under way before the capture began is not known.
        let begun = a.handshake || self.least_rtt.is_some();
        let (idle, before) = (begun && !self.continued, self.acked_at);
        self.acked = a.ack;
        self.acked_at = a.at;
        self.continued = a.sent > a.ack;
        if !a.handshake && self.least_rtt.is_none_or(|(rtt, _)| a.base < rtt) {
            self.least_rtt = Some((a.base, bytes + HEADERS));
        }
        let due = a.at.saturating_sub(a.rtt?).saturating_add(a.base);
        let excess =
            a.at.saturating_sub(if idle { due } else { due.max(before) });
        if excess >= LATE && a.all {
            let (in_time, queue) = (self.in_time(a, bytes, idle), self.queue());
            let late = LATE.max(self.deviation.saturating_mul(4)).max(a.path / 4);
            if excess >= in_time.saturating_add(queue).saturating_add(late) {
                let late = excess - queue - self.least(bytes, 0).unwrap_or(0);
                let by_timer = bytes <= 2 * a.full || a.shrinks;
                return (a.pure && by_timer && late <= LONGEST).then_some(late);
            }
        }
        // It may have been kept back: others show what the path varies by, if there are any.
        let doubtful = a.pure && a.all && excess >= LATE;
        self.shown |= !(a.pure && a.all);
        if !(doubtful && self.shown) {
            self.deviation += ((excess - self.mean).abs() - self.deviation) / 4;
            self.mean += (excess - self.mean) / 8;
        }
        if a.handshake || !idle && before >= due {
            self.service[self.services % SAMPLES] = (excess, bytes + HEADERS);
            self.services += 1;
        }
        if idle {
            self.queue[self.queues % QUEUES] = excess;
            self.queues += 1;
        }
        None
    }

    /// Whether the least RTT is the path's, and not that of ACKs which were all kept back: a handshake
    /// showed it, an ACK that cannot have been kept back, or it is too short for any timer.
    pub(super) fn path_is_shown(&self) -> bool {
        let least = self.least_rtt.map_or(0, |(rtt, _)| rtt);
        self.shown || least < LATE
    }

    /// Rule 1.
    fn in_time(&self, a: &Acknowledged, bytes: i64, idle: bool) -> i64 {
        if bytes > 2 * a.full {
            return 0;
        }
        let (carried, bytes_more) = match self.least_rtt {
            Some((_, carried)) if idle => (carried, bytes + HEADERS - carried),
            Some((_, carried)) => (carried, bytes + HEADERS),
            None => (HEADERS, bytes + HEADERS),
        };
        let bound = (a.base / carried).saturating_mul(bytes_more.max(0));
        let least = self.least(bytes, HOST);
        least.map_or(bound, |least| bound.min(least.saturating_mul(2)))
    }

    /// The shortest service of `bytes`, no sample counting as shorter than `floor`.
    fn least(&self, bytes: i64, floor: i64) -> Option<i64> {
        let known = &self.service[..self.services.min(SAMPLES)];
        let services = known
            .iter()
            .map(|(excess, of)| (*excess).max(floor).saturating_mul(bytes + HEADERS) / of);
        services.min()
    }

    /// Rule 2.
    fn queue(&self) -> i64 {
        let known = &self.queue[..self.queues.min(QUEUES)];
        known.iter().copied().min().unwrap_or(0)
    }
}
