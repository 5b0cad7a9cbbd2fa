// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab`: networks for experiments.
//!
//! What enters: scenario files, and commands to run in their hosts. What leaves: a network
//! of namespaces in real time ([`emulator`]), captures and tables of Linux TCP in virtual
//! time ([`virtual_time`]), the output of a command in a guest kernel ([`guest`]).

pub mod emulator;
pub mod guest;
pub mod virtual_time;

use crate::failure::{Failure, Outcome};
use clap::Subcommand;

/// What the laboratory does.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Bring up a scenario's network in real time: one network namespace per host
    Up(emulator::Up),
    /// Run a command in a host of a network that is up
    Exec(emulator::Exec),
    /// Show the networks that are up
    Status(emulator::Status),
    /// Take a network down
    Down(emulator::Down),
    /// Run a scenario with Linux's own TCP in virtual time
    Virtual(virtual_time::Virtual),
    /// Run a command under Debian's stock kernel in QEMU
    Guest(guest::Guest),
}

/// Carries it out.
///
/// # Errors
/// What the subcommand cannot do.
pub fn run(lab: Lab) -> Result<Outcome, Failure> {
    match lab {
        Lab::Up(args) => emulator::up(&args),
        Lab::Exec(args) => emulator::exec(&args),
        Lab::Status(args) => emulator::status(&args),
        Lab::Down(args) => emulator::down(&args),
        Lab::Virtual(args) => virtual_time::run(&args),
        Lab::Guest(args) => guest::run(&args),
    }
}
