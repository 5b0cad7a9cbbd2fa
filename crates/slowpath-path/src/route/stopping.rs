// SPDX-License-Identifier: Apache-2.0
//! How many flows show all ways of a load balancer: the stopping rule of the multipath detection algorithm (Augustin,
//! Friedman and Teixeira 2007; Veitch, Augustin, Teixeira and Friedman, INFOCOM 2009).
//!
//! A node that is known to lead to k addresses is taken to lead to no other once n(k) flows through it have been
//! observed. n(k) is the least number for which a node that leads to k + 1 addresses, all equally likely, would have
//! been left too early with no more than the probability that is allowed. Leaving early at a smaller count counts as
//! well. The numbers are computed, not copied: any confidence will do.

/// The most ways out of a node that are searched for: 128 is the most that routers can be set to.
const MOST_WAYS: usize = 128;

/// The flows that a node needs.
#[derive(Clone, Debug)]
pub struct StoppingRule {
    /// The allowed probability of leaving a node too early.
    miss: f64,
    /// n(1), n(2), …, as far as they have been asked for.
    flows: Vec<u32>,
}

impl StoppingRule {
    /// `miss`: how probable it may be that a node is left although it has one more way; above 0, below 1.
    #[must_use]
    pub fn new(miss: f64) -> Self {
        StoppingRule {
            miss: miss.clamp(1e-9, 0.5),
            flows: Vec::new(),
        }
    }

    /// For a whole route: as many nodes as this may each be left too early, and all of them are right with this
    /// confidence.
    #[must_use]
    pub fn for_route(confidence: f64, nodes: u32) -> Self {
        let confidence = confidence.clamp(0.5, 0.999_999);
        Self::new(1.0 - confidence.powf(1.0 / f64::from(nodes.max(1))))
    }

    /// n(k): how many flows a node with `ways` addresses behind it needs.
    pub fn flows(&mut self, ways: usize) -> u32 {
        let ways = ways.clamp(1, MOST_WAYS);
        while self.flows.len() < ways {
            let next = self.next();
            self.flows.push(next);
        }
        self.flows[ways - 1]
    }

    /// The number after those that are known.
    fn next(&self) -> u32 {
        let true_ways = self.flows.len() + 2;
        // found[j]: probability that j addresses have been found and the node was not left.
        let mut found = vec![0.0; true_ways + 1];
        found[1] = 1.0;
        let (mut left, mut flows) = (0.0, 1);
        loop {
            for (index, &stop) in self.flows.iter().enumerate() {
                if stop == flows {
                    left += std::mem::take(&mut found[index + 1]);
                }
            }
            // Were it left now with one address missing:
            let earlier = self.flows.last().copied().unwrap_or(0);
            if flows > earlier && left + found[true_ways - 1] <= self.miss {
                return flows;
            }
            one_more(&mut found, true_ways);
            flows += 1;
        }
    }
}

/// Moves the probabilities of each number of addresses found by one more flow.
fn one_more(found: &mut [f64], true_ways: usize) {
    for j in (1..=true_ways).rev() {
        let stay = found[j] * j as f64 / true_ways as f64;
        let come = found[j - 1] * (true_ways - (j - 1)) as f64 / true_ways as f64;
        found[j] = stay + come;
    }
    found[0] = 0.0;
}

/// How probable it is that a node with one more way than the `ways` found shows no more than these to `flows` flows.
#[must_use]
pub fn missed(ways: usize, flows: u32) -> f64 {
    let true_ways = ways.clamp(1, MOST_WAYS) + 1;
    if flows == 0 {
        return 1.0;
    }
    let mut found = vec![0.0; true_ways + 1];
    found[1] = 1.0;
    for _ in 1..flows {
        one_more(&mut found, true_ways);
    }
    (1.0 - found[true_ways]).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_the_field_uses() {
        // Augustin et al. and the tools after them, at a node. They leave out that a node can be left too early at a
        // smaller count as well, which takes a flow more here and there.
        let published = [
            (0.05, [6, 11, 16, 21, 27, 33, 38, 44, 51, 57]),
            (0.01, [8, 15, 21, 28, 36, 43, 51, 58, 66, 74]),
        ];
        for (miss, expected) in published {
            let mut rule = StoppingRule::new(miss);
            for (ways, expected) in (1..).zip(expected) {
                let plain = (1..).find(|flows| missed(ways, *flows) <= miss);
                assert_eq!(plain, Some(expected), "{miss} {ways}");
                let flows = rule.flows(ways);
                assert!((expected..=expected + 1).contains(&flows), "{miss} {ways}");
            }
        }
    }

    #[test]
    fn one_way_needs_the_flows_that_halving_says() {
        // Two equal ways: n flows all take the first's with 2^(1 − n).
        for flows in 1..40u32 {
            let expected = 0.5f64.powi(flows as i32 - 1);
            assert!((missed(1, flows) - expected).abs() < 1e-12);
        }
        let mut rule = StoppingRule::new(0.001);
        assert_eq!(rule.flows(1), 11, "2^-9 > 0.001 >= 2^-10");
    }

    #[test]
    fn every_sequence_of_flows_over_three_ways_agrees() {
        for flows in 1..=11u32 {
            let all = 3u64.pow(flows);
            let covers = (0..all).filter(|&code| {
                let (mut code, mut ways) = (code, 0u8);
                for _ in 0..flows {
                    ways |= 1 << (code % 3);
                    code /= 3;
                }
                ways == 0b111
            });
            let expected = 1.0 - covers.count() as f64 / all as f64;
            assert!((missed(2, flows) - expected).abs() < 1e-12, "{flows}");
        }
    }

    #[test]
    fn the_confidence_of_a_route_is_shared_by_its_nodes() {
        let mut route = StoppingRule::for_route(0.95, 30);
        // 1 − 0.95^(1/30) = 0.001708; 2^-9 = 0.00195, 2^-10 = 0.00098.
        assert_eq!(route.flows(1), 11);
        let mut node = StoppingRule::for_route(0.95, 1);
        assert_eq!(node.flows(1), 6);
    }
}
