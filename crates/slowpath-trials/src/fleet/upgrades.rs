// SPDX-License-Identifier: Apache-2.0
//! A host that was upgraded: spools of every released version wait in its log, and go to the server
//! beside those that it writes.

use super::Trial;
use super::world::World;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A log of each released version.
const RELEASED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../slowpath-store/tests/released"
);

pub(super) fn run(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let versions = fs::read_dir(RELEASED)?.collect::<Result<Vec<_>, _>>()?;
    let mut world = World::new(trial, versions.len())?;
    let before = trial.tally.rows;
    for (host, version) in world.hosts.iter_mut().zip(&versions) {
        host.task.rows = 100;
        let spools = host.task.log.join("spool");
        fs::create_dir_all(&spools)?;
        copy_into(&version.path().join("spool"), &spools)?;
    }
    world.start_hosts()?;
    for host in 0..versions.len() {
        world.wait_until(host, |report| report.batches > 0)?;
    }
    world.settle("upgraded hosts", trial)?;
    if trial.tally.rows == before {
        trial.tally.find("upgraded hosts: no rows".to_owned());
    }
    Ok(())
}

fn copy_into(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
