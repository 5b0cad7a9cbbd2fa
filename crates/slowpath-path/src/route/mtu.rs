// SPDX-License-Identifier: Apache-2.0
//! The path MTU: with ICMP (RFC 1191, RFC 8201), and without by which sizes arrive (after RFC 8899 section 5).
//!
//! 1. A packet of the size that the first link takes is sent to the destination, unfragmentable. Answered: that is it.
//! 2. A router says that it is too large: the size that it names is next.
//! 3. Nothing comes, three times, while small packets are answered in between: it vanishes. The largest size that is
//!    answered is searched for by halving; each size is given up only after three times.

use std::net::IpAddr;

/// So often a size is tried before it counts as too large, and a small packet in between is answered each time.
const TRIES: u8 = 3;

/// The least MTU: RFC 791 section 3.2 (68), RFC 8200 section 5 (1,280).
#[must_use]
pub fn least(v6: bool) -> u32 {
    if v6 { 1_280 } else { 68 }
}

/// What came of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination answered.
    Answered,
    /// It was too large for a link with this MTU in octets, as this router says; 0: it names none.
    TooBig(u32, IpAddr),
    /// Nothing came.
    Unanswered,
}

/// What is known in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The largest size that was answered.
    pub bytes: u32,
    /// The last router that said that a packet was too large.
    pub reported_by: Option<IpAddr>,
    /// The size that vanished without a word.
    pub vanished: Option<u32>,
}

/// The search, one packet at a time.
#[derive(Clone, Debug)]
pub struct Search {
    /// A size that is answered.
    low: u32,
    /// The least size that is known not to be, or the first that is tried.
    high: u32,
    /// What is tried.
    size: u32,
    tries: u8,
    /// A small packet is next.
    check: bool,
    reported_by: Option<IpAddr>,
    vanished: Option<u32>,
    lost_checks: u8,
    end: Option<Option<Finding>>,
}

impl Search {
    /// `small`: a size that the destination has answered; `link`: what the first link takes.
    #[must_use]
    pub fn new(small: u32, link: u32) -> Self {
        Search {
            low: small,
            high: link.saturating_add(1),
            size: link.max(small),
            tries: 0,
            check: false,
            reported_by: None,
            vanished: None,
            lost_checks: 0,
            end: None,
        }
    }

    /// The size of the next packet; `None`: the search has ended.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match (self.end, self.check) {
            (Some(_), _) => None,
            (None, true) => Some(self.small()),
            (None, false) => Some(self.size),
        }
    }

    fn small(&self) -> u32 {
        self.low
    }

    /// What was found; `None`: the destination stopped answering, or the search goes on.
    #[must_use]
    pub fn found(&self) -> Option<Finding> {
        self.end.flatten()
    }

    /// What came of the packet that [`next`](Self::next) asked for.
    pub fn outcome(&mut self, outcome: Outcome) {
        if self.end.is_some() {
            return;
        }
        match (outcome, self.check) {
            // A small packet that is lost by chance is sent again.
            (Outcome::Answered, true) => (self.check, self.lost_checks) = (false, 0),
            (_, true) => {
                self.lost_checks += 1;
                if self.lost_checks >= 2 * TRIES {
                    self.end = Some(None);
                }
            }
            (Outcome::Answered, false) => {
                self.low = self.size;
                self.go_on();
            }
            (Outcome::TooBig(bytes, from), false) => {
                self.reported_by = Some(from);
                // A router that names no size, or none that is smaller, leaves the halving (RFC 1191 section 5).
                self.high = self.size;
                if bytes > self.low && bytes < self.size {
                    self.size = bytes;
                    self.tries = 0;
                    // Nothing between is worth a packet: the router knows its link.
                    self.high = bytes + 1;
                } else {
                    self.go_on();
                }
            }
            (Outcome::Unanswered, false) => {
                self.tries += 1;
                self.check = true;
                if self.tries >= TRIES {
                    self.vanished = Some(self.vanished.map_or(self.size, |v| v.min(self.size)));
                    self.high = self.size;
                    self.go_on();
                }
            }
        }
    }

    fn go_on(&mut self) {
        self.tries = 0;
        if self.low + 1 >= self.high {
            let vanished = self.vanished.filter(|vanished| *vanished > self.low);
            self.end = Some(Some(Finding {
                bytes: self.low,
                reported_by: self.reported_by,
                vanished,
            }));
            return;
        }
        self.size = self.low + (self.high - self.low) / 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A path: links with their MTU and whether the router before them says so.
    fn ask(size: u32, links: &[(u32, bool)]) -> Outcome {
        for (number, (mtu, speaks)) in (1u8..).zip(links) {
            if size > *mtu {
                return match speaks {
                    true => Outcome::TooBig(*mtu, IpAddr::from([192, 0, 2, number])),
                    false => Outcome::Unanswered,
                };
            }
        }
        Outcome::Answered
    }

    fn search(links: &[(u32, bool)]) -> (Option<Finding>, u32) {
        let mut search = Search::new(84, 1_500);
        let mut packets = 0;
        while let Some(size) = search.next() {
            search.outcome(ask(size, links));
            packets += 1;
            assert!(packets < 200);
        }
        (search.found(), packets)
    }

    #[test]
    fn a_path_that_takes_full_packets_needs_one() {
        let found = Finding {
            bytes: 1_500,
            reported_by: None,
            vanished: None,
        };
        assert_eq!(search(&[(1_500, true)]), (Some(found), 1));
    }

    #[test]
    fn routers_that_speak_are_believed_one_after_the_other() {
        let (found, packets) = search(&[(1_500, true), (1_480, true), (1_400, true)]);
        let found = found.expect("an end");
        assert_eq!((found.bytes, found.vanished, packets), (1_400, None, 3));
        assert_eq!(found.reported_by, Some(IpAddr::from([192, 0, 2, 3])));
    }

    #[test]
    fn one_lost_packet_is_no_mtu() {
        let mut search = Search::new(84, 1_500);
        search.outcome(Outcome::Unanswered);
        assert_eq!(search.next(), Some(84), "whether anything is answered");
        search.outcome(Outcome::Answered);
        assert_eq!(search.next(), Some(1_500));
        search.outcome(Outcome::Answered);
        assert_eq!(
            search.found().map(|f| (f.bytes, f.vanished)),
            Some((1_500, None))
        );
    }

    #[test]
    fn a_destination_that_falls_silent_gives_no_mtu() {
        let mut search = Search::new(84, 1_500);
        while search.next().is_some() {
            search.outcome(Outcome::Unanswered);
        }
        assert_eq!(search.found(), None);
    }

    proptest! {
        #[test]
        fn the_largest_size_that_passes_is_found(mtus in proptest::collection::vec((84u32..=1_500, any::<bool>()), 1..6)) {
            let least = mtus.iter().map(|(mtu, _)| *mtu).min().unwrap_or(1_500);
            let (found, packets) = search(&mtus);
            let found = found.expect("an end");
            prop_assert_eq!(found.bytes, least);
            // Halving 1,416 sizes takes 11 steps, each of three packets and three small ones.
            prop_assert!(packets <= 11 * 6 + 2 * 6, "{}", packets);
            if let Some(vanished) = found.vanished {
                prop_assert!(vanished > least);
            }
        }
    }
}
