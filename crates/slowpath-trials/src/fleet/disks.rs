// SPDX-License-Identifier: Apache-2.0
//! Little space: a queue that is full, a host's disk, the server's disk.

use super::Trial;
use super::host::Report;
use super::world::World;
use crate::limits::SmallDisk;
use std::error::Error;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

const NO_DISKS: &str = "full disks of a fleet: this user may mount nothing";

/// The server is away until a queue of 512 KiB has dropped rows; each of them stands in a gap.
pub(super) fn full_queue(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let mut world = World::new(trial, 1)?;
    let before = trial.tally.rows_in_gaps;
    world.start_hosts()?;
    sleep(Duration::from_millis(300));
    world.end_server(libc::SIGKILL)?;
    trial.tally.kills += 1;
    world.end_hosts("a full queue", trial)?;
    let task = &mut world.hosts[0].task;
    (task.ship_limit, task.segment_bytes, task.rows) = (512 << 10, 64 << 10, 2_000);
    world.start_hosts()?;
    sleep(Duration::from_secs(6));
    world.start_server()?;
    sleep(Duration::from_millis(500));
    world.settle("a full queue", trial)?;
    if trial.tally.rows_in_gaps == before {
        trial
            .tally
            .find("a full queue: no row stands in a gap".to_owned());
    }
    Ok(())
}

/// The server is away until the host's log can write no more. Its disk gets room while it runs, or
/// after it has ended.
pub(super) fn full_host(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    full_host_with_room(trial, true)?;
    full_host_with_room(trial, false)
}

fn full_host_with_room(trial: &mut Trial<'_>, in_time: bool) -> Result<(), Box<dyn Error>> {
    let Some(disk) = SmallDisk::mount("3m")? else {
        trial.tally.skip(NO_DISKS);
        return Ok(());
    };
    let mut world = World::new(trial, 1)?;
    world.move_log(0, &disk.path().join("log"));
    world.end_server(libc::SIGTERM)?;
    let task = &mut world.hosts[0].task;
    (task.segment_bytes, task.rows) = (64 << 10, 2_000);
    world.start_hosts()?;
    if !world.wait_until(0, |report| report.log_error.is_some())? {
        let report = world.report(0);
        trial
            .tally
            .find(format!("a full disk of a host: not said: {report:?}"));
    }
    sleep(Duration::from_millis(500));
    world.start_server()?;
    if in_time {
        disk.resize("64m")?;
        let batches = world.report(0).batches + 10;
        let goes_on = |report: &Report| report.log_error.is_none() && report.batches > batches;
        if !world.wait_until(0, goes_on)? {
            let report = world.report(0);
            trial.tally.find(format!(
                "a full disk of a host: it does not go on: {report:?}"
            ));
        }
        return world.settle("a full disk of a host", trial);
    }
    sleep(Duration::from_secs(1));
    // What its log took no longer, it says at its end, and fails.
    if let Some(process) = world.hosts[0].process.take() {
        process.end()?;
    }
    // A record that was cut off waits until its segment can become Parquet.
    disk.resize("64m")?;
    world.settle("a full disk of a host", trial)
}

/// Hosts ship until the server's disk is full; then that grows.
pub(super) fn full_server(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let Some(disk) = SmallDisk::mount("2m")? else {
        trial.tally.skip(NO_DISKS);
        return Ok(());
    };
    let place = (Ipv4Addr::LOCALHOST.into(), Some(disk.path()));
    let mut world = World::at(trial, 2, place)?;
    for host in &mut world.hosts {
        host.task.rows = 3_000;
    }
    world.start_hosts()?;
    let is_full = |error: &Option<String>| error.as_ref().is_some_and(|it| it.contains("507"));
    if !world.wait_until(0, |report| is_full(&report.ship_error))? {
        let report = world.report(0);
        trial
            .tally
            .find(format!("a full disk of the server: not said: {report:?}"));
    }
    sleep(Duration::from_secs(1));
    disk.resize("64m")?;
    sleep(Duration::from_millis(500));
    world.settle("a full disk of the server", trial)
}
