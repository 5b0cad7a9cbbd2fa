// SPDX-License-Identifier: Apache-2.0
//! The rate at which segments arrive, measured at each ACK (draft-cheng-iccrg-delivery-rate-estimation-02,
//! Linux's `tcp_rate.c`).
//!
//! Each segment that leaves takes down how much had been delivered by then, and when. Its ACK shows
//! how much was delivered since, and in which time: the longer of the time in which that much was
//! sent and the time in which it was acknowledged. What was sent while the application had nothing
//! more to send is marked, as it shows the application's rate, not the path's.

use slowpath_switch::Time;
use std::collections::VecDeque;

/// Picoseconds of a microsecond, which is what Linux counts in.
const MICROSECOND: u64 = 1_000_000;

/// What was known when a segment left.
#[derive(Clone, Copy, Debug)]
struct Departure {
    /// Segments delivered by then.
    delivered: u32,
    /// The application had nothing more to send.
    limited: bool,
    /// When the last of those delivered was acknowledged, microseconds.
    delivered_at: u64,
    /// When the sending began of what its sample will count, microseconds.
    first_sent: u64,
}

/// The newest segment that an ACK delivered.
#[derive(Clone, Copy, Debug)]
struct Newest {
    departure: Departure,
    /// Where it ends in the stream, by the low 32 bits.
    end: u32,
    /// How long the sending took of what the sample counts, microseconds.
    sending: u64,
}

/// What a connection has delivered and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Segments delivered. Linux's count begins with the SYN.
    pub delivered: u32,
    /// Segments taken for lost.
    pub lost: u32,
    /// When the last was delivered, microseconds.
    pub delivered_at: u64,
}

/// What an ACK shows of the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RateSample {
    /// Of the connection so far.
    pub totals: Totals,
    /// The rate; `None` where the ACK delivered nothing, or in less time than any round trip took.
    pub rate: Option<DeliveredRate>,
}

/// Segments, and the time in which they were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeliveredRate {
    /// Segments delivered when the newest of them left.
    pub prior: u32,
    /// Segments delivered since.
    pub segments: u32,
    /// In that time, microseconds; not zero.
    pub interval: u64,
    /// The application had nothing more to send when it left.
    pub limited: bool,
}

/// The estimator of a connection: beside each segment that is out, what was known when it left.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRate {
    departures: VecDeque<Departure>,
    totals: Totals,
    first_sent: u64,
    /// What leaves is limited by the application until this number of segments is delivered.
    limited_until: Option<u32>,
    newest: Option<Newest>,
}

impl Default for DeliveryRate {
    fn default() -> Self {
        DeliveryRate {
            departures: VecDeque::new(),
            totals: Totals {
                delivered: 1,
                ..Totals::default()
            },
            first_sent: 0,
            limited_until: None,
            newest: None,
        }
    }
}

/// Whole microseconds.
pub(super) fn micros(at: Time) -> u64 {
    at.0 / MICROSECOND
}

impl DeliveryRate {
    /// A new segment leaves; `idle` if none was out (`tcp_rate_skb_sent`).
    pub fn sent(&mut self, now: Time, idle: bool) {
        if idle {
            self.first_sent = micros(now);
            self.totals.delivered_at = micros(now);
        }
        self.departures.push_back(self.departure());
    }

    /// The segment at that place of those that are out leaves once more.
    pub fn sent_again(&mut self, place: usize) {
        let departure = self.departure();
        if let Some(place) = self.departures.get_mut(place) {
            *place = departure;
        }
    }

    fn departure(&self) -> Departure {
        Departure {
            delivered: self.totals.delivered,
            limited: self.is_limited(),
            delivered_at: self.totals.delivered_at,
            first_sent: self.first_sent,
        }
    }

    /// The segment at that place, which left then and ends there, is newly known to have arrived
    /// (`tcp_rate_skb_delivered`).
    pub fn delivered(&mut self, place: usize, sent: Time, end: u32) {
        self.totals.delivered = self.totals.delivered.wrapping_add(1);
        let Some(&departure) = self.departures.get(place) else {
            return;
        };
        let sent = micros(sent);
        let newer = self.newest.is_none_or(|newest| {
            sent > self.first_sent
                || sent == self.first_sent && (newest.end.wrapping_sub(end) as i32) < 0
        });
        if newer {
            self.first_sent = sent;
            self.newest = Some(Newest {
                departure,
                end,
                sending: sent.saturating_sub(departure.first_sent),
            });
        }
    }

    /// The first of those that are out is acknowledged.
    pub fn acknowledged(&mut self) {
        self.departures.pop_front();
    }

    /// A segment is taken for lost.
    pub fn lost(&mut self) {
        self.totals.lost = self.totals.lost.wrapping_add(1);
    }

    /// The application has nothing more to send than the `out` segments in the network
    /// (`tcp_rate_check_app_limited`).
    pub fn limit(&mut self, out: u32) {
        self.limited_until = Some(self.totals.delivered.wrapping_add(out));
    }

    /// Whether what leaves now is limited by the application.
    pub fn is_limited(&self) -> bool {
        self.limited_until.is_some()
    }

    /// What was delivered and lost so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The end of an ACK, which delivered `any` segments or none (`tcp_rate_gen`). A rate over less
    /// than the least round trip, in microseconds, would be too high: it is none.
    pub fn sample(&mut self, now: Time, any: bool, min_rtt: Option<u64>) -> RateSample {
        let passed = |until: u32| (until.wrapping_sub(self.totals.delivered) as i32) < 0;
        if self.limited_until.is_some_and(passed) {
            self.limited_until = None;
        }
        if any {
            self.totals.delivered_at = micros(now);
        }
        let rate = self.newest.take().and_then(|newest| {
            let departure = newest.departure;
            let acknowledging = micros(now).saturating_sub(departure.delivered_at);
            let interval = newest.sending.max(acknowledging);
            (interval > 0 && interval >= min_rtt.unwrap_or(u64::MAX)).then(|| DeliveredRate {
                prior: departure.delivered,
                segments: self.totals.delivered.wrapping_sub(departure.delivered),
                interval,
                limited: departure.limited,
            })
        });
        RateSample {
            totals: self.totals,
            rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time(micros * MICROSECOND)
    }

    /// Ten segments leave at once, a round trip of 1 ms later one is acknowledged each 100 us; each ACK
    /// lets one more leave.
    #[test]
    fn a_steady_stream_of_acks_shows_its_rate() {
        let mut rate = DeliveryRate::default();
        for n in 0..10 {
            rate.sent(at(0), n == 0);
        }
        for n in 1..=40u32 {
            let now = at(1_000 + 100 * u64::from(n - 1));
            let sent = if n <= 10 {
                at(0)
            } else {
                at(1_000 + 100 * u64::from(n - 11))
            };
            rate.delivered(0, sent, n);
            rate.acknowledged();
            let sample = rate.sample(now, true, Some(1_000));
            rate.sent(now, false);
            let found = sample.rate.expect("a rate");
            if n > 20 {
                // Once neither end of what it counts left with the first ten: ten segments in the
                // round trip of 1 ms, 10,000 a second.
                assert_eq!((found.segments, found.interval), (10, 1_000), "ACK {n}");
            }
        }
    }

    #[test]
    fn acks_that_come_in_a_bunch_show_no_higher_rate_than_that_of_sending() {
        let mut rate = DeliveryRate::default();
        // A first segment, then one each 100 us; the ACKs of all ten come at once.
        for n in 0..10u64 {
            rate.sent(at(100 * n), n == 0);
        }
        for n in 0..10u32 {
            rate.delivered(0, at(100 * u64::from(n)), n + 1);
            rate.acknowledged();
        }
        let sample = rate.sample(at(1_500), true, Some(600));
        let found = sample.rate.expect("a rate");
        // Nothing had been delivered before: since the first left.
        assert_eq!((found.segments, found.interval), (10, 1_500));
    }

    #[test]
    fn a_rate_over_less_than_a_round_trip_is_none() {
        let mut rate = DeliveryRate::default();
        rate.sent(at(0), true);
        rate.delivered(0, at(0), 1);
        assert_eq!(rate.sample(at(90), true, Some(100)).rate, None);
        assert_eq!(rate.sample(at(90), false, Some(100)).rate, None);
    }

    #[test]
    fn what_leaves_while_the_application_has_no_more_is_marked_until_that_is_delivered() {
        let mut rate = DeliveryRate::default();
        rate.limit(1);
        rate.sent(at(0), true);
        rate.delivered(0, at(0), 1);
        rate.acknowledged();
        assert!(rate.sample(at(100), true, Some(100)).rate.unwrap().limited);
        // One was out when it was limited: it is delivered, but nothing after it.
        rate.sent(at(100), true);
        rate.delivered(0, at(100), 2);
        rate.acknowledged();
        assert!(rate.sample(at(200), true, Some(100)).rate.unwrap().limited);
        assert!(!rate.is_limited());
        rate.sent(at(200), true);
        rate.delivered(0, at(200), 3);
        assert!(!rate.sample(at(300), true, Some(100)).rate.unwrap().limited);
    }
}
