// SPDX-License-Identifier: Apache-2.0
//! Hostile trials, each from a seed: what kills, broken disks, hostile inputs and limits make of
//! slowpath. `make check-hardening`; `docs/reference/trials.md` defines every number.
//!
//! What enters: the command `slowpath`, how much to try, a seed. What leaves: a [`Tally`], whose
//! numbers are one JSON object, and a line for whatever did not hold.
//!
//! What is promised: the same seed gives the same inputs, flips and choices. The moments of kills
//! come from it, too, and what the kernel is doing then does not.
//!
//! What it never does: mend, or run in production.

mod agent;
mod contents;
pub mod fleet;
mod flips;
mod formats;
mod kills;
mod limits;
mod memory;
mod mutations;
mod samples;
mod tally;
mod traffic;

// Records of every kind, and logs of them, that the store's own tests read.
#[allow(dead_code)]
#[path = "../../slowpath-store/tests/damage/log.rs"]
mod damaged_log;
#[path = "../../slowpath-store/tests/records/mod.rs"]
mod records;

pub use slowpath_bench::{farm, seed};
pub use tally::Tally;

// The fuzz targets run here without libFuzzer: each is a module whose `fuzz_target!` gives
// `survive` and `starts`. Their `use libfuzzer_sys` and `use slowpath_fuzz` find this crate.
extern crate self as libfuzzer_sys;
extern crate self as slowpath_fuzz;

#[allow(dead_code)]
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz_inputs;
pub(crate) use fuzz_inputs::{attribute, check_stats, diag_header, message, tcp_info};

macro_rules! fuzz_target {
    (init: $init:expr, |$data:ident: &[u8]| $body:block) => {
        pub(crate) fn survive($data: &[u8]) $body

        pub(crate) fn starts() -> Vec<Vec<u8>> {
            seeds()
        }
    };
}
pub(crate) use fuzz_target;

use std::error::Error;
use std::path::Path;
use std::time::Instant;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Kills of the agent, at random moments.
    pub kills: u64,
    /// Flipped bits in all, as many in each kind of file.
    pub flips: u64,
    /// Mutated inputs in all.
    pub inputs: u64,
    /// Whether limits are tried: a full disk, sizes, descriptors, hostile clients.
    pub limits: bool,
    /// Whether memory is measured with 129,000 sockets; the caller's `main` must know
    /// [`farm::ARGUMENT`].
    pub memory: bool,
}

impl Plan {
    /// The part in `make test`.
    pub const TEST: Plan = Plan {
        kills: 6,
        flips: 60,
        inputs: 60_000,
        limits: true,
        memory: false,
    };
    /// `make check-hardening`: ten minutes.
    pub const CHECK: Plan = Plan {
        kills: 60,
        flips: 720,
        inputs: 1_000_000,
        limits: true,
        memory: true,
    };
    /// In `make soak`: hours.
    pub const SOAK: Plan = Plan {
        kills: 600,
        flips: 12_000,
        inputs: 10_000_000,
        limits: true,
        memory: true,
    };
}

/// Runs the trials against this `slowpath`; every finding is printed as it comes.
///
/// # Errors
/// What a trial needs cannot be had.
pub fn run(program: &Path, plan: Plan, seed: u64) -> Result<Tally, Box<dyn Error>> {
    let mut tally = Tally::new(seed);
    println!("SEED={seed}");
    // From the one that needs most of the machine's memory to those that need none of it.
    if plan.memory {
        timed("memory", || memory::run(program, &mut tally))?;
    }
    timed("kills", || {
        kills::run(program, plan.kills, seed, &mut tally)
    })?;
    timed("flips", || {
        flips::run(program, plan.flips, seed, &mut tally)
    })?;
    if plan.limits {
        timed("limits", || limits::run(program, seed, &mut tally))?;
    }
    timed("inputs", || {
        mutations::run(plan.inputs, seed, &mut tally);
        Ok(())
    })?;
    Ok(tally)
}

fn timed(
    name: &str,
    trial: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    trial().map_err(|error| format!("{name}: {error}"))?;
    println!("{name}: {:.0?}", begin.elapsed());
    Ok(())
}
