// SPDX-License-Identifier: Apache-2.0
//! Trials of a fleet: hosts that ship and a server that keeps, while either is killed, cut off, full
//! or restored from a copy. `make check-fleet`; `docs/reference/trials.md` defines every number.
//!
//! The server is the command `slowpath server`. A host is a process of this very program
//! ([`host::run_if_asked`]) with the log's real writer and the agent's real shipper, whose rows are of
//! a connection each, so that they can be counted one by one.
//!
//! - `host`: such a process; `ledger`: what its log accepted, from copies of its spools.
//! - `observer`: a host that observes instead.
//! - `world`: a server and its hosts; `account`: accepted rows against those of the server.
//! - `kills`, `outages`, `upgrades`, `disks`, `resends`, `cuts`: what is done to them.
//! - `twelve`: hosts whose connections have both ends observed.
//! - `hours`: sixty hours of a server's clock, which `engine`, DuckDB, counts once a second.

mod account;
mod cuts;
mod disks;
mod engine;
pub mod host;
mod hours;
mod kills;
mod ledger;
mod observer;
mod outages;
mod resends;
mod tally;
mod twelve;
mod upgrades;
mod world;

pub use tally::FleetTally;

use slowpath_switch::Random;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetPlan {
    /// Kills of either half, at random moments.
    pub kills: u64,
    /// How often everything else is tried, each time drawn anew.
    pub rounds: u64,
    /// Whether a link also stays down for longer than a request may take.
    pub long_cuts: bool,
    /// How often twelve hosts observe the connections between them.
    pub twelve: u64,
    /// How long DuckDB counts rows, which stands for sixty hours; zero: not at all.
    pub counted: Duration,
}

impl FleetPlan {
    /// The part in `make test`.
    pub const TEST: FleetPlan = FleetPlan {
        kills: 8,
        rounds: 1,
        long_cuts: false,
        twelve: 1,
        counted: Duration::ZERO,
    };
    /// `make check-fleet`: some ten minutes.
    pub const CHECK: FleetPlan = FleetPlan {
        kills: 120,
        rounds: 3,
        long_cuts: true,
        twelve: 3,
        counted: Duration::from_secs(150),
    };
    /// Only the twelve hosts.
    pub const TWELVE: FleetPlan = FleetPlan {
        twelve: 1,
        counted: Duration::ZERO,
        ..FleetPlan::COUNTS
    };
    /// Only the counts by DuckDB, in the hour that `make soak` has for them.
    pub const COUNTS: FleetPlan = FleetPlan {
        kills: 0,
        rounds: 0,
        long_cuts: false,
        twelve: 0,
        counted: FleetPlan::SOAK.counted,
    };
    /// In `make soak`.
    pub const SOAK: FleetPlan = FleetPlan {
        kills: 1_200,
        rounds: 30,
        long_cuts: true,
        twelve: 30,
        counted: Duration::from_secs(3_600),
    };
}

/// Runs the trials against this `slowpath`; every finding is printed as it comes. `host` is a command
/// that calls [`host::run_if_asked`].
///
/// # Errors
/// What a trial needs cannot be had.
pub fn run(
    (program, host): (&Path, &[String]),
    plan: FleetPlan,
    seed: u64,
) -> Result<FleetTally, Box<dyn Error>> {
    let mut tally = FleetTally::new(seed);
    println!("SEED={seed}");
    let mut trial = Trial {
        programs: (program, host),
        tally: &mut tally,
        seed,
        number: 0,
    };
    if plan.kills > 0 {
        trial.run("kills", |trial| kills::run(trial, plan.kills))?;
    }
    for _ in 0..plan.rounds {
        trial.run("hours offline, and a reboot", outages::offline)?;
        trial.run("a server from an older copy", outages::restored)?;
        trial.run("upgraded hosts", upgrades::run)?;
        trial.run("a full queue", disks::full_queue)?;
        trial.run("a full disk of a host", disks::full_host)?;
        trial.run("a full disk of the server", disks::full_server)?;
        trial.run("resent and out of order", resends::run)?;
        trial.run("a cut in mid-batch", |trial| {
            cuts::run(trial, plan.long_cuts)
        })?;
    }
    for _ in 0..plan.twelve {
        trial.run("twelve hosts", twelve::run)?;
    }
    if plan.counted > Duration::ZERO {
        trial.run("counts by DuckDB", |trial| hours::run(trial, plan.counted))?;
    }
    Ok(tally)
}

/// What a trial is given.
struct Trial<'a> {
    /// `slowpath`, and the command of a host.
    programs: (&'a Path, &'a [String]),
    tally: &'a mut FleetTally,
    seed: u64,
    number: u64,
}

impl Trial<'_> {
    fn run(
        &mut self,
        name: &str,
        trial: impl FnOnce(&mut Self) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let begin = Instant::now();
        self.number += 1;
        let before = self.tally.rows;
        trial(self).map_err(|error| format!("{name}: {error}"))?;
        let rows = self.tally.rows - before;
        println!("{name}: {rows} rows, {:.0?}", begin.elapsed());
        Ok(())
    }

    fn random(&self) -> Random {
        Random::stream(self.seed, self.number)
    }
}
