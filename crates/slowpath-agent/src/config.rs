// SPDX-License-Identifier: Apache-2.0
//! How an agent is to work.

use crate::budget::Budget;
use crate::observer::TierChoice;
use crate::owners::OwnerOptions;
use slowpath_diagnose::Thresholds;
use slowpath_observe::{Namespaces, bpf};
use slowpath_store::Retention;
use std::path::PathBuf;
use std::time::Duration;

/// How the agent works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Mean of the polling interval, whose lengths are exponentially distributed (Poisson
    /// polls, SNAP section 3.2). Default 500 ms.
    pub interval: Duration,
    /// Where the log is kept; `None` keeps none. Default none.
    pub log: Option<PathBuf>,
    /// The host's name in the log. Default none: what uname(2) calls it.
    pub host: Option<String>,
    /// The network namespaces whose connections and listeners are observed. Default all.
    pub namespaces: Namespaces,
    /// What the log deletes of itself.
    pub retention: Retention,
    /// Keep what the log converted, for a [`slowpath_store`] log that is shipped. Default false.
    pub ship: bool,
    /// Which tier to use. Default the best one that works.
    pub tier: TierChoice,
    /// Limits of the verdicts.
    pub thresholds: Thresholds,
    /// Points of the past kept for each connection. Default 0.
    pub history: usize,
    /// Keep the latest verdict of every connection for live views, those
    /// without findings too, and the connections that closed since the latest poll. An agent
    /// that only logs saves their memory. Default true.
    pub verdicts: bool,
    /// Keep the socket calls of connections with problems one by one, for [`crate::Agent::calls`].
    /// Without a reader they would only cost. Default false.
    pub calls: bool,
    /// Snapshots that one pass over the sockets can hold; more make further passes.
    pub area: u32,
    /// How much CPU the agent may use; connections with problems are then sampled more
    /// often than others, and polls come up to 16 times as often as `interval` says, each
    /// sampling few connections. Default none: every poll samples every connection.
    pub budget: Option<Budget>,
    /// How owners are named. Default without rules, and with only the program's name of each
    /// command line in the log.
    pub owners: OwnerOptions,
    /// How many connections that lose segments have their paths traced in a minute, at most. Default
    /// none.
    pub trace_paths: Option<u32>,
    /// Seed of the polling times; `None` takes one from the system. Default none.
    pub seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            interval: Duration::from_millis(500),
            log: None,
            host: None,
            namespaces: Namespaces::All,
            retention: Retention::default(),
            ship: false,
            tier: TierChoice::Auto,
            thresholds: Thresholds::default(),
            history: 0,
            verdicts: true,
            calls: false,
            area: bpf::Options::default().area,
            budget: None,
            owners: OwnerOptions::default(),
            trace_paths: None,
            seed: None,
        }
    }
}
