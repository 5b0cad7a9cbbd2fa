// SPDX-License-Identifier: Apache-2.0
//! kill -9 of hosts and servers: while they start, in mid-run, and while they end.

use super::Trial;
use super::world::World;
use slowpath_switch::Random;
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

/// Kills in one world, one after the other.
const LIVES: u64 = 40;
const HOSTS: usize = 3;

/// What a process is doing when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    Run,
    End,
}

pub(super) fn run(trial: &mut Trial<'_>, kills: u64) -> Result<(), Box<dyn Error>> {
    let mut random = trial.random();
    let mut left = kills;
    while left > 0 {
        let lives = left.min(LIVES);
        left -= lives;
        let mut world = World::new(trial, HOSTS)?;
        world.start_hosts()?;
        for life in 0..lives {
            let moment = match random.next_u64() % 10 {
                0..=5 => Moment::Run,
                6..=7 => Moment::Start,
                _ => Moment::End,
            };
            if life % 2 == 0 {
                kill_server(&mut world, moment, &mut random)?;
            } else {
                kill_host(&mut world, moment, &mut random)?;
            }
            trial.tally.kills += 1;
        }
        world.settle("kills", trial)?;
    }
    Ok(())
}

fn pause(random: &mut Random, milliseconds: u64) {
    sleep(Duration::from_millis(random.next_u64() % milliseconds));
}

fn kill_server(
    world: &mut World,
    moment: Moment,
    random: &mut Random,
) -> Result<(), Box<dyn Error>> {
    match moment {
        Moment::Start => {
            world.end_server(libc::SIGTERM)?;
            world.start_server()?;
            pause(random, 150);
        }
        Moment::Run => pause(random, 1_200),
        Moment::End => {
            pause(random, 400);
            if let Some(server) = &world.server {
                server.signal(libc::SIGTERM);
            }
            pause(random, 100);
        }
    }
    world.end_server(libc::SIGKILL)?;
    pause(random, 200);
    world.start_server()
}

fn kill_host(world: &mut World, moment: Moment, random: &mut Random) -> Result<(), Box<dyn Error>> {
    let number = (random.next_u64() % HOSTS as u64) as usize;
    match moment {
        Moment::Start => {
            world.hosts[number].process = None;
            world.start_host(number)?;
            pause(random, 150);
        }
        Moment::Run => pause(random, 1_200),
        Moment::End => {
            pause(random, 400);
            if let Some(process) = &mut world.hosts[number].process {
                process.ask_to_end();
            }
            pause(random, 150);
        }
    }
    world.hosts[number].process = None;
    if random.next_u64().is_multiple_of(4) {
        reboot(world, number, random);
    }
    world.start_host(number)
}

/// The next process of a host is that of another boot.
pub(super) fn reboot(world: &mut World, host: usize, random: &mut Random) {
    let boot = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    world.hosts[host].task.boot_id = format!("{boot:x}");
}
