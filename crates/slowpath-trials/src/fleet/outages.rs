// SPDX-License-Identifier: Apache-2.0
//! A server that is away for hours, and one that comes back with less than it had.

use super::Trial;
use super::kills::reboot;
use super::world::World;
use std::error::Error;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Hosts log some hours in a few seconds while the server is away; one of them is killed and comes
/// back after a reboot, twice. Then all is caught up while they go on.
pub(super) fn offline(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let mut random = trial.random();
    let mut world = World::new(trial, 2)?;
    world.end_server(libc::SIGTERM)?;
    for host in &mut world.hosts {
        host.task.behind = Duration::from_secs(4 * 3_600);
        host.task.speed = 2_000;
        host.task.rows = 1_000;
    }
    world.start_hosts()?;
    for _ in 0..2 {
        sleep(Duration::from_millis(1_000 + random.next_u64() % 1_000));
        world.hosts[0].process = None;
        trial.tally.kills += 1;
        reboot(&mut world, 0, &mut random);
        world.start_host(0)?;
    }
    sleep(Duration::from_secs(1));
    if world.report(1).waiting_bytes == 0 {
        trial.tally.find("offline: nothing waits".to_owned());
    }
    world.start_server()?;
    sleep(Duration::from_millis(random.next_u64() % 2_000));
    world.settle("offline", trial)
}

/// The server's directory is replaced by an older copy of it, after a kill or in order.
pub(super) fn restored(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let mut random = trial.random();
    let mut world = World::new(trial, 2)?;
    world.start_hosts()?;
    let pause = |milliseconds: u64| sleep(Duration::from_millis(milliseconds));
    pause(500 + random.next_u64() % 1_500);
    world.end_server(libc::SIGTERM)?;
    let (directory, copy) = (
        world.installation.directory.clone(),
        world.scratch().join("copy"),
    );
    let run = |program: &str, arguments: &[&std::path::Path]| -> Result<(), Box<dyn Error>> {
        let options: &[&str] = if program == "cp" { &["-a"] } else { &["-r"] };
        let status = Command::new(program)
            .args(options)
            .args(arguments)
            .status()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{program}: {status}").into()),
        }
    };
    run("cp", &[&directory, &copy])?;
    world.start_server()?;
    pause(1_500 + random.next_u64() % 1_500);
    let signal = match random.next_u64() % 2 {
        0 => libc::SIGTERM,
        _ => libc::SIGKILL,
    };
    trial.tally.kills += u64::from(signal == libc::SIGKILL);
    world.end_server(signal)?;
    run("rm", &[&directory])?;
    run("cp", &[&copy, &directory])?;
    world.start_server()?;
    pause(500 + random.next_u64() % 1_000);
    world.settle("restored", trial)
}
