// SPDX-License-Identifier: Apache-2.0
//! Linux's own TCP in virtual time: a scenario run by a laboratory kernel.
//!
//! What enters: a [`Scenario`], [`Options`], a folder for
//! the run, and a laboratory [`Kernel`], which `make lab-kernel` builds from `lab/kernel`.
//!
//! What leaves: [`Results`](slowpath_netsim::results::Results) as the simulator gives them; a
//! capture of each host, `tcp_info` of every sender again and again ([`Series`]), what
//! switches did to packets ([`Event`]).
//!
//! What is promised: the same scenario, options and kernel give the same files, byte for
//! byte, on every machine; what the kernel cannot do as the scenario says is refused and named
//! ([`Refusal`]); nothing needs privileges; nothing is left behind when the run is killed.
//!
//! # How
//!
//! The kernel is Linux as a process (user-mode Linux), its clock jumps from event to event. The
//! driver in it (`lab/kernel/driver`) makes a network namespace with one device for each
//! host and joins the devices by [`slowpath_switch::fabric`], linked into the kernel. The flows of the
//! scenario are made here, as for the simulator, and written down one by one ([`plan`]); the
//! kernel opens sockets, writes, reads, and notes when the last byte of each came. No process
//! runs inside. `docs/reference/lab-virtual-time.md` says what follows from all that.

pub mod csv;
mod error;
mod forward;
mod kernel;
#[cfg(test)]
mod layout;
pub mod machine;
mod outcome;
pub mod plan;
pub mod recording;
pub mod script;
pub mod sysctls;
pub mod tcp;
pub mod wire;

pub use error::{Refusal, RunError};
pub use forward::forward;
pub use kernel::{HZ, Kernel, MissingKernel, SOURCE, version};
pub use machine::Progress;
pub use outcome::{Event, EventKind, Run, Series, take};
pub use plan::{Options, PacketPath};

use slowpath_netsim::scenario::Scenario;
use std::path::Path;

/// Runs a scenario in a folder, which must be there and empty, and reads what came out.
///
/// # Errors
/// The kernel cannot do what the scenario says, fails, dies or hangs, or a file cannot be
/// written or read.
pub fn run(
    kernel: &Kernel,
    scenario: &Scenario,
    options: &Options,
    folder: &Path,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Run, RunError> {
    let plan = plan::Plan::new(scenario, options, kernel.hz)?;
    let file = folder.join("plan.bin");
    std::fs::write(&file, plan.encode()).map_err(|error| RunError::file(&file, error))?;
    let wall = machine::run(kernel, &plan, options, folder, progress)?;
    let run = outcome::read(scenario, &plan, folder, wall)?;
    std::fs::remove_file(&file).map_err(|error| RunError::file(&file, error))?;
    Ok(run)
}
