// SPDX-License-Identifier: Apache-2.0
//! A scenario under way.

use crate::workload::{DriveMode, DriveOptions, Report, ServeMode, ServeOptions};
use crate::{
    Counters, DroppedSegment, Dropper, Family, LinkOptions, Process, Scenario, Side, Testbed,
    TestbedError,
};
use std::net::SocketAddr;

/// What a connection is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It suffers the injected problem.
    Injected,
    /// It is healthy, on a link of its own.
    Control,
}

/// One end of a connection of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScenarioConnection {
    /// What it is there for.
    pub role: Role,
    /// The namespace this end is in; [`Side::A`] opened the connection and, where data
    /// goes one way, sends it.
    pub side: Side,
    /// This end's address, as its socket sees it (mapped addresses stay mapped).
    pub local: SocketAddr,
    /// The other end's address, as this end's socket sees it.
    pub remote: SocketAddr,
    /// The process that owns this end.
    pub pid: u32,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Dropped segments, oldest first.
    pub dropped: Vec<DroppedSegment>,
    /// The injected connection's sending end.
    pub injected: Report,
    /// The injected connection's receiving end.
    pub receiver: Report,
    /// The control's opening end.
    pub control: Report,
    /// The kernel's counters of namespace a, where the control has no losses.
    pub counters: Counters,
}

/// A scenario whose connections stand. Dropping it ends its processes and removes its
/// namespaces.
#[derive(Debug)]
pub struct Running {
    connections: Vec<ScenarioConnection>,
    dropper: Option<Dropper>,
    // Processes before the namespaces they are in.
    injected: Pair,
    control: Pair,
    testbed: Testbed,
}

#[derive(Debug)]
struct Pair {
    driver: Process,
    server: Process,
}

impl Scenario {
    /// Builds the networks and opens the connections. Nothing is sent before
    /// [`Running::go`].
    ///
    /// # Errors
    /// What [`Testbed`], [`Dropper`] and [`Process`] may refuse.
    pub fn start(&self) -> Result<Running, TestbedError> {
        let mut testbed = Testbed::new(&self.name)?;
        for (name, value) in &self.sysctls {
            testbed.sysctl(name, value)?;
        }
        testbed.add_link(&self.link)?;
        testbed.add_link(&LinkOptions::default())?;

        let server = listen(&testbed, 0, self.family, &self.serve)?;
        let dropper = match &self.drop {
            None => None,
            Some(rule) => {
                let mut rule = rule.clone();
                rule.port = Some(server.ready().port);
                let interface = testbed.link(0).interface();
                let b = testbed.namespace(Side::B);
                Some(Dropper::attach(b, interface, rule)?)
            }
        };
        let injected = connect(&testbed, 0, self.family, &self.drive, server)?;
        let serve = ServeOptions {
            mode: ServeMode::RequestResponse,
            ..ServeOptions::default()
        };
        let server = listen(&testbed, 1, Family::Ipv4, &serve)?;
        // The next request, 5 ms later, acknowledges the last response: less than any
        // delayed acknowledgement.
        let drive = DriveOptions {
            mode: DriveMode::RequestResponse,
            pause_ms: Some(5),
            ..DriveOptions::default()
        };
        let control = connect(&testbed, 1, Family::Ipv4, &drive, server)?;

        let mut connections = Vec::new();
        for (role, pair) in [(Role::Injected, &injected), (Role::Control, &control)] {
            for (local, remote) in &pair.driver.ready().connections {
                for (side, local, remote, process) in [
                    (Side::A, *local, *remote, &pair.driver),
                    (Side::B, *remote, *local, &pair.server),
                ] {
                    connections.push(ScenarioConnection {
                        role,
                        side,
                        local,
                        remote,
                        pid: process.ready().pid,
                    });
                }
            }
        }
        Ok(Running {
            connections,
            dropper,
            injected,
            control,
            testbed,
        })
    }
}

fn listen(
    testbed: &Testbed,
    link: usize,
    family: Family,
    options: &ServeOptions,
) -> Result<Process, TestbedError> {
    // A socket bound to all addresses accepts IPv4 as mapped addresses.
    let address = testbed.link(link).b_address(family);
    testbed.serve(&ServeOptions {
        bind: (family != Family::Mapped).then_some(address),
        port: 0,
        ..options.clone()
    })
}

fn connect(
    testbed: &Testbed,
    link: usize,
    family: Family,
    options: &DriveOptions,
    server: Process,
) -> Result<Pair, TestbedError> {
    let address = testbed.link(link).b_address(family);
    let driver = testbed.drive(&DriveOptions {
        connect: SocketAddr::new(address, server.ready().port),
        ..options.clone()
    })?;
    Ok(Pair { driver, server })
}

impl Running {
    /// Both ends of every connection: the injected one's first, opening ends first.
    pub fn connections(&self) -> &[ScenarioConnection] {
        &self.connections
    }

    /// The end of the injected connection or of the control in that namespace.
    ///
    /// # Panics
    /// If the scenario's mode opens its connections only while it works.
    pub fn connection(&self, role: Role, side: Side) -> ScenarioConnection {
        *self
            .connections
            .iter()
            .find(|c| c.role == role && c.side == side)
            .expect("this scenario's connections stand before it starts")
    }

    /// The namespaces and links.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// The drop program, if the scenario has one.
    pub fn dropper(&self) -> Option<&Dropper> {
        self.dropper.as_ref()
    }

    /// Starts the workloads.
    ///
    /// # Errors
    /// A workload has ended.
    pub fn go(&mut self) -> Result<(), TestbedError> {
        self.control.driver.go()?;
        self.injected.driver.go()
    }

    /// Waits until the injected workload is done, then stops the control. All sockets
    /// stay open until this is dropped or [`finish`](Self::finish)ed.
    ///
    /// # Errors
    /// A workload ended without a report, or the kernel's accounts cannot be read.
    pub fn wait(&mut self) -> Result<Outcome, TestbedError> {
        let injected = self.injected.driver.report()?;
        self.control.driver.stop()?;
        let control = self.control.driver.report()?;
        self.injected.server.stop()?;
        Ok(Outcome {
            dropped: match &self.dropper {
                None => Vec::new(),
                Some(dropper) => dropper.dropped()?,
            },
            injected,
            receiver: self.injected.server.report()?,
            control,
            counters: self.testbed.counters(Side::A)?,
        })
    }

    /// Lets the drivers, then the servers close their sockets in an orderly way and exit.
    ///
    /// # Errors
    /// A process cannot be waited for.
    pub fn finish(self) -> Result<(), TestbedError> {
        for pair in [self.injected, self.control] {
            pair.driver.finish()?;
            pair.server.finish()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Running;

    fn is_send<T: Send>() {}

    #[test]
    fn a_running_scenario_may_move_to_another_thread() {
        is_send::<Running>();
    }
}
