// SPDX-License-Identifier: Apache-2.0
//! A scenario that is up: `slowpath path` runs in a, a server in b, cross traffic between c and d.

use clap::Parser;
use serde_json::Value;
use slowpath_lab::emulator::{Host, Lab, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_path::command::{PathCommand, run};
use slowpath_path::serve::{CidrError, Policy, ServeOptions, Serving};
use slowpath_path::socket::{monotonic, precise_timers, sleep_until};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::random::Draw;

/// What goes wrong in a trial; it counts as a wrong answer, with the reason.
pub type Failure = String;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    path: PathCommand,
}

/// Where cross traffic goes.
const CROSS_PORT: u16 = 4999;
/// Octets of a datagram of it, and with its headers.
const CROSS_PAYLOAD: usize = 972;
const CROSS_PACKET: usize = CROSS_PAYLOAD + 28;
/// Cross traffic is sent so often, ns.
const TICK: i64 = 1_000_000;

/// The network of a trial.
pub struct Network {
    lab: Lab,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    serving: Option<Serving>,
}

impl Network {
    pub fn up(text: &str) -> Result<Self, Failure> {
        let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        let scenario = Scenario::parse_for(text, &files, Substrate::Emulator)
            .map_err(|error| format!("{error} in\n{text}"))?;
        let lab = Lab::up(&scenario, &Options::default()).map_err(|error| error.to_string())?;
        Ok(Network {
            lab,
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            serving: None,
        })
    }

    pub fn host(&self, name: &str) -> Result<&Host, Failure> {
        let found = self.lab.host(name);
        found.ok_or_else(|| format!("no host {name}"))
    }

    /// The address of a router, as it answers.
    pub fn router(&self, name: &str) -> Option<Ipv4Addr> {
        let mut routers = self.lab.routers();
        routers
            .find(|(router, _, _)| *router == name)
            .map(|(_, v4, _)| v4)
    }

    /// Answers measurements in b.
    pub fn serve(&mut self) -> Result<(), Failure> {
        let port = |port| vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)];
        let options = ServeOptions {
            owamp: port(861),
            twamp: port(862),
            stamp: port(862),
            policy: Policy {
                allow: vec![
                    "10.0.0.0/8"
                        .parse()
                        .map_err(|error: CidrError| error.to_string())?,
                ],
                ..Policy::default()
            },
            ..ServeOptions::default()
        };
        let started = self.host("b")?.run(|| Serving::start(options));
        let serving = started.map_err(|error| error.to_string())?;
        self.serving = Some(serving.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Sends datagrams of 1,000 octets from c to d at random moments: `rate` in Mbit/s while it is on. `pause`: how
    /// long it is on and off on average, in milliseconds; none: always on.
    pub fn cross(
        &mut self,
        rate: f64,
        pause: Option<(f64, f64)>,
        mut draw: Draw,
    ) -> Result<(), Failure> {
        let to: SocketAddr = (self.host("d")?.ipv4(), CROSS_PORT).into();
        let sink = self
            .host("d")?
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, CROSS_PORT)));
        // Bound and never read: the kernel drops what its buffer does not hold, and sends no ICMP.
        let sink = flatten(sink)?;
        let socket = flatten(
            self.host("c")?
                .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))),
        )?;
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            let _sink = sink;
            precise_timers();
            let mean = rate * 1e6 / 8.0 / CROSS_PACKET as f64 * (TICK as f64 / 1e9);
            let mut next = monotonic();
            let (mut on, mut until) = (true, next);
            while sleep_until(next, &stop) {
                if let (Some((is_on, off)), true) = (pause, next >= until) {
                    on = !on;
                    let length = if on { is_on } else { off };
                    until = next + (-(1.0 - draw.share()).ln() * length * 1e6) as i64;
                }
                for _ in 0..if on { poisson(mean, &mut draw) } else { 0 } {
                    let _ = socket.send_to(&[0; CROSS_PAYLOAD], to);
                }
                next += TICK;
            }
        }));
        Ok(())
    }

    /// What `slowpath path` in a prints as JSON.
    pub fn measure(&self, words: &[&str]) -> Result<Value, Failure> {
        let to = self.host("b")?.ipv4().to_string();
        let words = ["path"]
            .iter()
            .chain(words)
            .map(|word| if *word == "@b" { to.as_str() } else { word });
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        let ended = self.host("a")?.run(|| run(&cli.path, &mut out));
        ended
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        serde_json::from_slice(&out).map_err(|error| error.to_string())
    }

    /// Why the emulation itself cannot be trusted, if so.
    pub fn complaint(&self) -> Option<String> {
        self.lab.report().complaint()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(serving) = &mut self.serving {
            serving.stop();
        }
    }
}

fn flatten<T>(result: std::io::Result<std::io::Result<T>>) -> Result<T, Failure> {
    result
        .and_then(|inner| inner)
        .map_err(|error| error.to_string())
}

/// By counting exponential gaps: means are of some tens at the most.
fn poisson(mean: f64, draw: &mut Draw) -> usize {
    let mut left = mean;
    let mut count = 0;
    loop {
        left += (1.0 - draw.share()).ln();
        if left < 0.0 {
            return count;
        }
        count += 1;
    }
}
