// SPDX-License-Identifier: Apache-2.0
//! The payload of a sender's full segment: what has to fit into the window before it sends on.
//!
//! 1. *By the handshake*: the lesser of what both announce (RFC 9293 section 3.7.1: the other
//!    side's MSS, and what this side's own network takes, of which its own MSS is made), less
//!    timestamps in every segment (RFC 7323 appendix A). A larger segment of at most the other
//!    side's MSS was sent: that one.
//! 2. *Without a handshake*: the largest observed. Above an Ethernet's 1,460 bytes it may be
//!    several in one (TSO, GRO), which are a multiple of the sender's segments: it counts as
//!    one only if no multiple of the size so far, nor of those that fill an Ethernet frame, and up
//!    to a jumbo frame's 9,000.
//! 3. *At most half of the largest window*: a sender does not wait for room for more (RFC 9293
//!    section 3.8.6.2.1 with its Fs of one half, Linux `tcp_bound_to_half_wnd`; that takes a window of at
//!    most 536 bytes whole). On the loopback device an MSS of 65,495 meets windows of 65,535.

/// A jumbo frame.
const JUMBO: i64 = 9_000;

/// Payloads of full Ethernet frames: IPv4 and IPv6, without and with timestamps.
const ETHERNET: [i64; 4] = [1_460, 1_440, 1_448, 1_428];

/// RFC 9293 section 3.7.1: without an MSS option; Linux TCP_MSS_DEFAULT.
const DEFAULT: i64 = 536;

/// Payloads that the handshake lets a side send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payloads {
    /// By what both announce.
    pub(super) likely: i64,
    /// By what the other announces.
    pub(super) most: i64,
}

/// How large full segments are, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSize {
    /// By the MSS, or as observed.
    segment: i64,
    /// The other side's MSS; `None` without a handshake.
    most: Option<i64>,
    /// The largest window so far.
    window: u64,
}

impl SegmentSize {
    pub(super) fn new() -> Self {
        SegmentSize {
            segment: DEFAULT,
            most: None,
            window: 0,
        }
    }

    /// Both SYNs were observed.
    pub(super) fn by_handshake(&self) -> bool {
        self.most.is_some()
    }

    /// Payload of a full segment.
    pub(super) fn full(&self) -> i64 {
        let half = match i64::try_from(self.window) {
            Ok(0) | Err(_) => return self.segment,
            Ok(window) if window <= DEFAULT => window,
            Ok(window) => window / 2,
        };
        match self.most {
            Some(_) => self.segment.min(half),
            // The scale of windows is not known either.
            None => self.segment,
        }
    }

    /// Rule 1.
    pub(super) fn agreed(&mut self, payloads: Payloads) {
        self.segment = payloads.likely.max(1);
        self.most = Some(payloads.most);
    }

    /// Whether a segment of this length may show a larger size; then [`sent`](Self::sent) takes it.
    #[inline]
    pub(super) fn shows_more(&self, length: i64) -> bool {
        length > self.segment && self.most.is_none_or(|most| length <= most)
    }

    /// Rules 1 and 2: a segment longer than those before.
    #[cold]
    pub(super) fn sent(&mut self, length: i64) {
        let is_multiple = |size: &i64| length > ETHERNET[0] && length % size == 0;
        self.segment = if self.most.is_some() {
            length
        } else if is_multiple(&self.segment) {
            self.segment
        } else if let Some(size) = ETHERNET.into_iter().find(is_multiple) {
            size.max(self.segment)
        } else {
            length.min(JUMBO).max(self.segment)
        };
    }

    /// Whether a window is the largest so far; then [`window`](Self::window) takes it.
    #[inline]
    pub(super) fn is_larger(&self, window: u64) -> bool {
        window > self.window
    }

    /// Rule 3: a window larger than those before.
    #[cold]
    pub(super) fn window(&mut self, window: u64) {
        self.window = window;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(likely: i64, most: i64) -> SegmentSize {
        let mut size = SegmentSize::new();
        size.agreed(Payloads { likely, most });
        size
    }

    #[test]
    fn no_more_than_half_of_the_largest_window() {
        let mut loopback = agreed(65_483, 65_483);
        for (window, full) in [(400, 400), (65_535, 32_767), (131_072, 65_483)] {
            assert!(loopback.is_larger(window));
            loopback.window(window);
            assert_eq!(loopback.full(), full, "window of {window}");
        }
        assert!(!loopback.is_larger(1_000));
    }

    #[test]
    fn the_lesser_mss_counts_until_a_larger_segment_is_sent() {
        let mut size = agreed(536, 1_460);
        assert_eq!(size.full(), 536);
        size.sent(1_460);
        assert_eq!(size.full(), 1_460);
        assert!(!size.shows_more(2_920), "two in one");
    }

    #[test]
    fn several_in_one_show_the_size_of_one() {
        for (lengths, full) in [
            (&[1_448, 2_896, 14_480][..], 1_448),
            (&[28_960], 1_448),
            (&[1_200, 2_400], 1_200),
            (&[1_460, 8_948, 8_948], 8_948),
        ] {
            let mut size = SegmentSize::new();
            for length in lengths {
                if size.shows_more(*length) {
                    size.sent(*length);
                }
            }
            assert_eq!(size.full(), full, "{lengths:?}");
        }
    }
}
