// SPDX-License-Identifier: Apache-2.0
//! Chains of 8 to 14 links up to 100 Mbit/s with one that is narrow or congested: does `path neck` find it?

use crate::chain::Chain;
use crate::network::{Failure, Network};
use crate::random::Draw;

const KIND: u64 = 1;

/// Positions of each of the two kinds, and chains with routers that do not answer as they should.
pub const POSITIONS: usize = 10;

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// One link is slower than the others.
    Narrow,
    /// Cross traffic takes most of one link.
    Congested,
    /// One link is slower, two routers are silent and two answer rarely.
    Limited,
}

/// How a trial ended.
pub struct Outcome {
    pub planted: Planted,
    /// The right link; `None`: `cannot_tell`.
    pub right: Option<bool>,
    /// The rate's error, as a share of the truth.
    pub rate_error: Option<f64>,
    pub text: String,
}

struct Trial {
    chain: Chain,
    link: usize,
    /// What a burst at the first link's rate comes out of the link with, bit/s.
    rate: f64,
    /// Of cross traffic, Mbit/s.
    cross: Option<f64>,
}

fn delays(links: usize, draw: &mut Draw) -> Vec<f64> {
    (0..links).map(|_| draw.by_factor(100.0, 3000.0)).collect()
}

/// The n-th of ten positions: spread over the chain, drawn within its tenth.
fn position(trial: usize, least: usize, most: usize, draw: &mut Draw) -> usize {
    let share = (trial as f64 + draw.share()) / POSITIONS as f64;
    (least + (share * (most - least + 1) as f64) as usize).min(most)
}

fn trial(planted: Planted, number: usize, draw: &mut Draw) -> Trial {
    let links = draw.whole(8, 14);
    let mut chain = Chain::new(delays(links, draw));
    if planted == Planted::Congested {
        // Both ends of the link are routers.
        let link = position(number, 2, links - 1, draw);
        let cross = draw.between(60.0, 90.0);
        chain.crossed = Some(link);
        // First come, first served: each gets the link by its share of what arrives.
        let rate = 100e6 * 100.0 / (100.0 + cross);
        return Trial {
            chain,
            link,
            rate,
            cross: Some(cross),
        };
    }
    let link = position(number, 1, links, draw);
    let rate = draw.by_factor(8.0, 60.0);
    chain.rates[link - 1] = rate;
    if planted == Planted::Limited {
        let mut routers: Vec<usize> = (1..=chain.routers).collect();
        for setting in [
            "silent = true",
            "silent = true",
            "icmp-rate = 10",
            "icmp-rate = 2",
        ] {
            let router = routers.swap_remove(draw.whole(0, routers.len() - 1));
            chain.more += &format!("[[router]]\non = \"r{router}\"\n{setting}\n");
        }
    }
    Trial {
        chain,
        link,
        rate: rate * 1e6,
        cross: None,
    }
}

/// Runs one trial.
pub fn run(planted: Planted, number: usize, seed: u64) -> Result<Outcome, Failure> {
    let kind = KIND * 16 + planted as u64;
    let mut draw = Draw::new(seed, kind, number);
    let trial = trial(planted, number, &mut draw);
    let mut network = Network::up(&trial.chain.text())?;
    if let Some(rate) = trial.cross {
        network.cross(rate, None, draw)?;
    }
    let json = network.measure(&["neck", "@b", "--json"])?;
    let found = match json["verdict"].as_str() {
        Some("link") => json["link"]["hop"].as_u64(),
        _ => None,
    };
    let rate = json["rate_bound_bps"].as_f64();
    let rate_error = found
        .and(rate)
        .map(|rate| (rate - trial.rate).abs() / trial.rate);
    let text = format!(
        "{planted:?} {number}: link {} of {} at {:.1} Mbit/s; found {} at {} Mbit/s{}",
        trial.link,
        trial.chain.links(),
        trial.rate / 1e6,
        found.map_or("nothing".to_owned(), |hop| hop.to_string()),
        rate.map_or("?".to_owned(), |rate| format!("{:.1}", rate / 1e6)),
        network
            .complaint()
            .map_or(String::new(), |why| format!(" ({why})")),
    );
    Ok(Outcome {
        planted,
        right: found.map(|hop| hop == trial.link as u64),
        rate_error,
        text,
    })
}
