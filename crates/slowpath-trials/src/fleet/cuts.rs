// SPDX-License-Identifier: Apache-2.0
//! A link that goes down in the middle of a batch: a host in a network namespace behind 4 Mbit/s,
//! over which a batch of a MiB takes two seconds.

use super::Trial;
use super::world::World;
use std::error::Error;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Longer than a client waits for an answer.
const LONG: Duration = Duration::from_secs(35);

pub(super) fn run(trial: &mut Trial<'_>, long: bool) -> Result<(), Box<dyn Error>> {
    let Some(link) = Link::new()? else {
        trial
            .tally
            .skip("a cut in mid-batch: this user may have no network namespace");
        return Ok(());
    };
    let mut random = trial.random();
    let mut world = World::at(trial, 1, (Link::HERE.into(), None))?;
    world.hosts[0].within = ["ip", "netns", "exec", &link.name]
        .map(str::to_owned)
        .to_vec();
    // What waits: some MiB, which do not compress well.
    world.end_server(libc::SIGTERM)?;
    world.hosts[0].task.rows = 4_000;
    world.hosts[0].task.segment_bytes = 4 << 20;
    world.start_hosts()?;
    sleep(Duration::from_secs(4));
    world.hosts[0].task.rows = 100;
    world.hosts[0].process = None;
    trial.tally.kills += 1;
    world.start_server()?;
    world.start_hosts()?;
    for cut in 0..4 {
        sleep(Duration::from_millis(200 + random.next_u64() % 1_500));
        link.set("down")?;
        sleep(match (long, cut) {
            (true, 1) => LONG,
            _ => Duration::from_millis(100 + random.next_u64() % 2_500),
        });
        link.set("up")?;
    }
    link.widen()?;
    world.settle("a cut in mid-batch", trial)
}

/// A pair of virtual interfaces into a namespace, both of which end with this value.
struct Link {
    name: String,
}

impl Link {
    const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 78, 1);

    /// `None` where this user may not make one.
    fn new() -> Result<Option<Link>, Box<dyn Error>> {
        let link = Link {
            name: format!("sp-{}-0-cut", std::process::id()),
        };
        let name = &link.name;
        let outer = link.outer();
        if ip(&format!("netns add {name}")).is_err() {
            return Ok(None);
        }
        ip(&format!(
            "link add {outer} type veth peer name inner netns {name}"
        ))?;
        ip(&format!("addr add {}/30 dev {outer}", Link::HERE))?;
        ip(&format!("link set {outer} up"))?;
        ip(&format!("-n {name} addr add 10.77.78.2/30 dev inner"))?;
        ip(&format!("-n {name} link set inner up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        link.traffic_control("add dev inner root tbf rate 4mbit burst 32k latency 400ms")?;
        Ok(Some(link))
    }

    fn outer(&self) -> String {
        format!("sp{}", std::process::id())
    }

    /// Sets the host's end up or down.
    fn set(&self, state: &str) -> Result<(), Box<dyn Error>> {
        ip(&format!("-n {} link set inner {state}", self.name))
    }

    /// Takes the limit of its rate away.
    fn widen(&self) -> Result<(), Box<dyn Error>> {
        self.traffic_control("del dev inner root")
    }

    fn traffic_control(&self, words: &str) -> Result<(), Box<dyn Error>> {
        command("tc", &format!("-n {} qdisc {words}", self.name))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}", self.name));
        let _ = ip(&format!("link del {}", self.outer()));
    }
}

pub(super) fn ip(words: &str) -> Result<(), Box<dyn Error>> {
    command("ip", words)
}

fn command(program: &str, words: &str) -> Result<(), Box<dyn Error>> {
    let output = Command::new(program).args(words.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {words}: {}", text.trim()).into())
        }
    }
}
