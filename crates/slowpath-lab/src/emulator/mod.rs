// SPDX-License-Identifier: Apache-2.0
//! The emulator: hosts are network namespaces of this machine's kernel, and one thread
//! carries their packets through a model of switches and links in real time. The project's
//! netem for kernels that have none, and more than that: whole networks.
//!
//! What enters: a [`Scenario`] read for [`Substrate::Emulator`](slowpath_netsim::scenario::Substrate);
//! then whatever programs in the hosts send.
//!
//! What leaves: a [`Lab`] with [`Host`]s in which commands and threads run; a [`Report`]: what became of
//! packets, and how late the emulator was.
//!
//! What is promised: packets leave the network at the time that
//! [`slowpath_switch::fabric`] says, as well as the machine can ([`Lateness`]
//! states how well); chosen losses are exact; every packet is counted. Nothing has a name
//! outside the process: namespaces and devices are held by open files and processes by a
//! namespace of their own, so that they are gone when the process is, however it ends.
//!
//! # What programs see
//!
//! One interface, `eth0`, with an MTU of 1,500 and no offloads; addresses as `address` says; a default route. Routers
//! answer traceroute and ping, count the time to live, and mark packets. The network
//! carries IP: a packet takes time on a link by its length from the IP header on. Class 0
//! of the switches is the highest precedence of the DSCP's class selectors.
//!
//! ```no_run
//! use slowpath_lab::emulator::{Lab, Options};
//! use slowpath_netsim::scenario::{Scenario, Substrate};
//! use std::process::Command;
//!
//! let scenario = Scenario::load_for("scenarios/lab/three-hops.toml".as_ref(), Substrate::Emulator)?;
//! let lab = Lab::up(&scenario, &Options::default())?;
//! let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
//! a.spawn(Command::new("ping").args(["-c", "3"]).arg(b.ipv4().to_string()))?.wait()?;
//! let report = lab.down();
//! assert_eq!(report.complaint(), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod carrier;
pub mod control;
mod error;
mod holder;
mod host;
mod lateness;
mod packet;
mod report;
mod router;
mod system;
mod text;

pub use error::LabError;
use host::Link;
pub use host::{Host, INTERFACE, PINNED_SYSCTLS};
pub use lateness::Lateness;
pub use report::{Drops, LineReport, Report, RouterReport};
pub use text::UnknownName;

use carrier::{Carrier, Model, Reported, Request};
use holder::Holder;
use router::Routers;
use slowpath_netsim::scenario::Scenario;
use slowpath_switch::fabric::{Action, Fabric};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The most hosts: each takes a namespace, a device and three descriptors.
const MOST_HOSTS: usize = 1000;

/// The most packets inside: 100 MB of full ones.
const MOST_PACKETS: u32 = 1 << 16;

/// How a network is brought up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A packet that is handed to its host later than this is too late. One of a hundred
    /// may be.
    pub bound: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bound: Duration::from_millis(2),
        }
    }
}

/// A network that is up; down when dropped.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<Host>,
    routers: Vec<String>,
    /// Names of the ends of each line.
    lines: Vec<(String, String)>,
    requests: Sender<Request>,
    wake: io::PipeWriter,
    thread: Option<JoinHandle<()>>,
}

impl Lab {
    /// Brings a network up.
    ///
    /// # Errors
    /// No privilege, no TUN devices, an impossible or too large network, a sysctl that is
    /// not there.
    pub fn up(scenario: &Scenario, options: &Options) -> Result<Self, LabError> {
        let topology = &scenario.topology;
        let nodes = topology.hosts().len().max(topology.switches().len());
        if topology.hosts().len() > MOST_HOSTS || nodes > address::MOST as usize {
            return Err(LabError::TooLarge {
                given: nodes,
                most: MOST_HOSTS,
            });
        }
        let mut plan = scenario.plan();
        plan.most_packets = MOST_PACKETS;
        let fabric = Fabric::new(&plan)?;
        let holder = Holder::start().map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => LabError::NotPermitted,
            _ => LabError::system("make a process namespace")(source),
        })?;
        let holder = Arc::new(holder);
        let mut hosts = Vec::with_capacity(nodes);
        let mut interfaces = Vec::with_capacity(nodes);
        for (number, node) in (0..).zip(topology.hosts()) {
            let setup = scenario.host.of(number);
            let link = Link {
                ttl: scenario.host.ttl,
                mtu: scenario.host_mtu(number),
            };
            let (host, interface) = Host::make(&node.name, number, &setup, link, &holder)?;
            hosts.push(host);
            interfaces.push(interface);
        }
        let failed = LabError::system("start carrying packets");
        let (requests, asked) = channel();
        let start = || -> io::Result<_> {
            let (woken, wake) = io::pipe()?;
            let routers = topology.switches().len();
            let model = Model {
                fabric,
                routers: Routers::new(routers, &scenario.routers, scenario.seed),
                classes: scenario.switch.classes,
                bridges: !scenario.switch.decrement_ttl,
            };
            let carrier = Carrier::new(interfaces, model, options.bound, asked, woken)?;
            let thread = std::thread::Builder::new()
                .name("slowpath-lab".to_owned())
                .spawn(move || carrier.run())?;
            Ok((wake, thread))
        };
        let (wake, thread) = start().map_err(failed)?;
        let line = |link: &slowpath_netsim::topology::Link| {
            let [a, b] = link.ends.map(|(node, _)| topology.name(node).to_owned());
            [(a.clone(), b.clone()), (b, a)]
        };
        Ok(Lab {
            hosts,
            routers: topology
                .switches()
                .iter()
                .map(|switch| switch.name.clone())
                .collect(),
            lines: topology.links().iter().flat_map(line).collect(),
            requests,
            wake,
            thread: Some(thread),
        })
    }

    /// The hosts, in the scenario's order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name() == name)
    }

    /// The routers' names and addresses.
    pub fn routers(&self) -> impl Iterator<Item = (&str, Ipv4Addr, Ipv6Addr)> {
        (0..).zip(&self.routers).map(|(number, name)| {
            let who = address::Addressee::Router(number);
            (name.as_str(), who.v4(), who.v6())
        })
    }

    fn ask(&self, request: Request) {
        // If the thread has gone, so has the receiver, and the answer does not come.
        let _ = self.requests.send(request);
        let _ = (&self.wake).write_all(&[1]);
    }

    /// Changes the network now; false if it has no such line, link or switch.
    pub fn apply(&self, action: &Action) -> bool {
        let (answer, answered) = channel();
        self.ask(Request::Apply(action.clone(), answer));
        answered.recv().unwrap_or(false)
    }

    /// The number of the line from one node to another, for [`Lab::apply`].
    pub fn line(&self, from: &str, to: &str) -> Option<u32> {
        let found = self
            .lines
            .iter()
            .position(|ends| ends.0 == from && ends.1 == to);
        // A topology's links are numbered by a `u32`.
        found.map(|line| line as u32)
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        let (answer, answered) = channel();
        self.ask(Request::Report(answer));
        let Ok(reported) = answered.recv() else {
            return Report {
                stopped: true,
                ..Report::default()
            };
        };
        let Reported {
            mut report,
            lines,
            routers,
        } = reported;
        report.lines = self
            .lines
            .iter()
            .zip(lines)
            .filter(|(_, (counters, condition))| counters.packets > 0 || condition.too_long > 0)
            .map(|((from, to), counters)| LineReport::new(from, to, counters))
            .collect();
        let answered = self.routers.iter().zip(routers);
        report.routers = answered
            .filter(|(_, counts)| counts.sent + counts.suppressed > 0)
            .map(|(name, counts)| RouterReport::new(name, counts))
            .collect();
        let dropped = self.hosts.iter().filter_map(|host| host.run(not_read).ok());
        report.not_read = dropped.sum();
        report
    }

    /// Takes it down, and says what happened.
    pub fn down(self) -> Report {
        self.report()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported; the devices are closed all the same.
            let _ = thread.join();
        }
    }
}

/// Packets that the interface of the calling thread's namespace dropped because they were not read in time.
fn not_read() -> u64 {
    // Transmitted: 8 columns of reception, then bytes, packets, errors, drops.
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'));
    let column = line.and_then(|line| line.split_ascii_whitespace().nth(11));
    column.and_then(|column| column.parse().ok()).unwrap_or(0)
}
