// SPDX-License-Identifier: Apache-2.0
//! One verdict from two methods: a link where both agree, else that it cannot be said.

use super::gaps::TrainsFinding;
use super::links::Links;
use super::loaded::LoadedFinding;

/// What is known of the neck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NeckVerdict {
    /// Both methods find it there.
    Link {
        /// Where: what both have in common.
        links: Links,
        /// The less certain method's confidence, 0 to 1.
        confidence: f64,
    },
    /// Both find a link, and not the same.
    Disagreement,
    /// Both find the same, and neither has measured as far as the last hop: a narrower link may be behind.
    EndNotMeasured {
        /// The last hop that one of them has.
        last_hop: u8,
    },
    /// One of them finds none, or neither does.
    NotFound,
}

/// Joins both methods' findings on a path of `hops` hops.
#[must_use]
pub fn combine(
    trains: Option<&TrainsFinding>,
    loaded: Option<&LoadedFinding>,
    hops: u8,
) -> NeckVerdict {
    let (Some(trains), Some(loaded)) = (trains, loaded) else {
        return NeckVerdict::NotFound;
    };
    let last_hop = trains.last_hop.max(loaded.last_hop);
    match trains.links.common(loaded.links) {
        Some(_) if last_hop < hops => NeckVerdict::EndNotMeasured { last_hop },
        Some(links) => NeckVerdict::Link {
            links,
            confidence: trains.confidence.min(loaded.confidence),
        },
        None => NeckVerdict::Disagreement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(trains: (u8, u8), loaded: (u8, u8)) -> (TrainsFinding, LoadedFinding) {
        let links = |(least, most)| Links { least, most };
        let trains = TrainsFinding {
            links: links(trains),
            confidence: 0.9,
            trains: 10,
            rate_bps: 4e7,
            rate_spread: (3e7, 5e7),
            last_hop: 9,
        };
        let loaded = LoadedFinding {
            links: links(loaded),
            confidence: 0.7,
            bursts: 8,
            added_nanos: 1e7,
            p_value: 0.001,
            last_hop: 10,
            of_others: false,
        };
        (trains, loaded)
    }

    #[test]
    fn methods_that_agree_give_their_common_links_and_the_lesser_confidence() {
        let (trains, loaded) = findings((4, 6), (5, 8));
        let verdict = NeckVerdict::Link {
            links: Links { least: 5, most: 6 },
            confidence: 0.7,
        };
        assert_eq!(combine(Some(&trains), Some(&loaded), 10), verdict);
    }

    #[test]
    fn hops_that_neither_method_has_may_be_behind_the_neck() {
        let (trains, loaded) = findings((4, 4), (4, 4));
        let verdict = NeckVerdict::EndNotMeasured { last_hop: 10 };
        assert_eq!(combine(Some(&trains), Some(&loaded), 11), verdict);
    }

    #[test]
    fn methods_that_disagree_or_lack_give_no_link() {
        let (trains, loaded) = findings((4, 4), (5, 5));
        assert_eq!(
            combine(Some(&trains), Some(&loaded), 10),
            NeckVerdict::Disagreement
        );
        for (trains, loaded) in [(Some(&trains), None), (None, Some(&loaded)), (None, None)] {
            assert_eq!(combine(trains, loaded, 10), NeckVerdict::NotFound);
        }
    }
}
