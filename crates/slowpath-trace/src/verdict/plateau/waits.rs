// SPDX-License-Identifier: Apache-2.0
//! What a sender's bursts waited for: an ACK, or the application.
//!
//! 1. A *burst* begins after [`BURST`] without data: a host takes less than that between two
//!    segments that it may send.
//! 2. A burst is *prompt* if an ACK or a window update that showed something new came just before
//!    it, within a host's response time, which the caller knows: that let it go. An application
//!    that passes on what arrives at a constant rate writes when it arrives, whatever ACKs do.
//! 3. Pacing parts bursts too, by 1 ms or two segments (`tcp_tso_autosize`) at its rate. That is
//!    120 % of the congestion window a round trip (`tcp_pacing_ca_ratio`), or with BBR 75 % of the
//!    path's rate at least (`bbr_pacing_gain`): no less than three quarters of what is under way. A
//!    longer pause is a *wait*.
//! 4. A lone segment that is not full, after an ACK of the last one that was not, says nothing:
//!    Nagle's algorithm may have held it (RFC 9293 section 3.7.4; `tcp_minshall_check`).
//! 5. Bursts follow ACKs if half of the last [`KNOWN`] waits ended with a prompt burst; where fewer
//!    than [`FEW`] waits are known, if half of the last [`KNOWN`] bursts were prompt. An
//!    application's bursts are prompt by chance as often as ACKs' response times cover time: less
//!    than half, unless ACKs come at less than twice that time from each other all the time.

use super::SentData;

/// Shortest time without data before a burst, ns.
const BURST: i64 = 200_000;

/// The longest that pacing waits for more than two segments, ns: `sk_pacing_shift` 10 is 2^-10 s.
const PACED: i64 = 1_000_000;

/// Waits and bursts that are remembered.
const KNOWN: u32 = u32::BITS;

/// Fewer waits say nothing.
const FEW: u32 = 4;

/// Whether each of the last [`KNOWN`] was prompt.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    prompt: u32,
    count: u32,
}

impl History {
    fn add(&mut self, prompt: bool) {
        self.prompt = self.prompt << 1 | u32::from(prompt);
        self.count = (self.count + 1).min(KNOWN);
    }

    fn is_mostly_prompt(self) -> bool {
        2 * self.prompt.count_ones() >= self.count
    }
}

/// What an ACK let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The burst that begins.
    Burst,
    /// A segment that Nagle's algorithm may have held: a burst if more follows.
    Segment,
    /// More follows such a segment.
    MoreThanThat,
}

/// Follows the bursts of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// When data was sent last, ns.
    last: Option<i64>,
    /// One past the last segment that was not full.
    small: i64,
    /// A segment was just let go that Nagle's algorithm may have held; it ended a wait.
    held: Option<bool>,
    waits: History,
    bursts: History,
}

impl Waits {
    /// Data was sent; the most that was under way recently is `most` bytes.
    #[inline]
    pub(super) fn sent(&mut self, data: &SentData, most: i64) -> Option<Released> {
        let now = data.at.time.0;
        let small = data.length < data.path.full;
        let nagle = small && self.small <= data.acked;
        if small {
            self.small = data.next;
        }
        let held = self.held.take();
        let pause = now.saturating_sub(self.last.replace(now)?);
        if pause <= BURST {
            self.add(true, held?);
            return Some(Released::MoreThanThat);
        }
        let two = data.path.rtt().saturating_mul(2 * data.path.full) / most.max(1);
        let paced = two.max(PACED);
        let is_wait = pause > paced.saturating_add(paced / 3);
        if data.prompt && nagle {
            self.held = Some(is_wait);
            return Some(Released::Segment);
        }
        self.add(data.prompt, is_wait);
        data.prompt.then_some(Released::Burst)
    }

    fn add(&mut self, prompt: bool, is_wait: bool) {
        self.bursts.add(prompt);
        if is_wait {
            self.waits.add(prompt);
        }
    }

    /// Rule 5.
    pub(super) fn follow_acks(&self) -> bool {
        let known = if self.waits.count < FEW {
            self.bursts
        } else {
            self.waits
        };
        known.is_mostly_prompt()
    }
}

#[cfg(test)]
mod tests {
    use super::super::PathTimes;
    use super::*;
    use crate::segment::Timestamp;
    use crate::tcp::Moment;

    const MS: i64 = 1_000_000;

    /// Segments of 1,000 bytes, captured at the sender of a path of 20 ms, of which eight are
    /// under way.
    fn send(waits: &mut Waits, now: i64, prompt: bool) -> Option<Released> {
        send_bytes(waits, now, prompt, 1_000, (9_000, 1_000))
    }

    fn send_bytes(
        waits: &mut Waits,
        now: i64,
        prompt: bool,
        length: i64,
        (next, acked): (i64, i64),
    ) -> Option<Released> {
        let at = Moment {
            frame: 1,
            time: Timestamp(now),
        };
        let data = SentData {
            at,
            last: at,
            length,
            next,
            acked,
            room: true,
            prompt,
            answered: false,
            repairing: false,
            path: PathTimes {
                turn: 0,
                receiver: 20 * MS,
                full: 1_000,
            },
        };
        waits.sent(&data, 8_000)
    }

    /// A hundred times eight segments, `gap` nanoseconds from one to the next, every 25 ms; the first of each is
    /// `prompt`.
    fn rounds(gap: i64, prompt: bool) -> Waits {
        let mut waits = Waits::default();
        for round in 0..100 {
            for i in 0..8 {
                let now = round * 25 * MS + i * gap;
                send(&mut waits, now, prompt && i == 0);
            }
        }
        waits
    }

    #[test]
    fn a_burst_begins_after_a_pause() {
        let mut waits = Waits::default();
        let times = [0, BURST, 2 * BURST + 1, 5 * MS];
        let begins = times.map(|now| send(&mut waits, now, true));
        let burst = Some(Released::Burst);
        assert_eq!(begins, [None, None, burst, burst]);
    }

    #[test]
    fn what_is_paced_is_one_wait() {
        // Two of eight segments may be paced 20 · 2 ÷ 8 · 4 ÷ 3 = 6.7 ms from the next two; 25 ms
        // less seven times 2 are more.
        for gap in [0, MS / 10, MS, 2 * MS] {
            assert!(rounds(gap, true).follow_acks(), "{gap} ns");
            assert!(!rounds(gap, false).follow_acks(), "{gap} ns");
        }
    }

    #[test]
    fn an_even_flow_follows_what_lets_each_burst_go() {
        // No pause is longer than pacing's.
        let gap = 25 * MS / 8;
        assert!(!rounds(gap, true).follow_acks());
        let mut waits = Waits::default();
        for i in 0..100 {
            send(&mut waits, i * gap, true);
        }
        assert!(waits.follow_acks());
    }

    #[test]
    fn half_of_the_waits_are_enough() {
        let mut waits = Waits::default();
        for i in 0..100 {
            send(&mut waits, i * 25 * MS, i % 2 == 0);
        }
        assert!(waits.follow_acks());
        // The last 32 count: 15 of them.
        send(&mut waits, 100 * 25 * MS, false);
        send(&mut waits, 101 * 25 * MS, false);
        assert!(!waits.follow_acks());
    }

    /// Every second burst is one segment of 100 bytes, let go by the ACK of the one before it.
    #[test]
    fn what_nagle_held_says_nothing() {
        let mut waits = Waits::default();
        for i in 0..100 {
            let at = i * 50 * MS;
            send(&mut waits, at, false);
            let held = send_bytes(&mut waits, at + 25 * MS, true, 100, (9_100, 9_100));
            assert_eq!(held, Some(Released::Segment));
        }
        assert!(!waits.follow_acks());
    }

    /// The same segments, but another follows at once; or an earlier one that is not full is still under way.
    #[test]
    fn what_nagle_did_not_hold_counts() {
        let (mut more, mut under_way) = (Waits::default(), Waits::default());
        for i in 0..100 {
            let at = i * 25 * MS;
            send_bytes(&mut more, at, true, 100, (9_100, 9_100));
            let second = send(&mut more, at + 1, false);
            assert_eq!(second.is_some(), i > 0);
            send_bytes(&mut under_way, at, true, 100, (9_000, 1_000));
        }
        assert_eq!((more.waits.prompt, more.waits.count), (u32::MAX, 32));
        assert_eq!(
            (under_way.waits.prompt, under_way.waits.count),
            (u32::MAX, 32)
        );
    }

    #[test]
    fn nothing_known_is_no_objection() {
        assert!(Waits::default().follow_acks());
    }
}
