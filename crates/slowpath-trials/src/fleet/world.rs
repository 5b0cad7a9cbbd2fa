// SPDX-License-Identifier: Apache-2.0
//! A server and its hosts, and how a trial of them ends: all is shipped, then all is counted.

use super::Trial;
use super::account::{ServerRows, settle};
use super::host::{Process, Report, Task};
use super::ledger::Clerk;
use crate::agent::HANG;
use serde_json::Value;
use slowpath_bench::ingest::server::{Installation, Server, free_port};
use slowpath_ship::identity::Token;
use slowpath_ship::keys::join;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Steps after which a host has looked at all that it has.
const LOOKED: u64 = 50;

/// A server and its hosts.
pub(super) struct World {
    pub installation: Installation,
    pub server: Option<Server>,
    pub hosts: Vec<Host>,
    clerk: Clerk,
    /// The command of a host.
    driver: Vec<String>,
    scratch: tempfile::TempDir,
}

/// A host: what its next process does, and the one that runs.
pub(super) struct Host {
    pub name: String,
    pub task: Task,
    /// The command that its process is started by, if it has another network namespace.
    pub within: Vec<String>,
    pub process: Option<Process>,
}

impl World {
    /// A running server on the loopback network, and hosts that joined it and do not run.
    pub(super) fn new(trial: &Trial<'_>, hosts: usize) -> Result<World, Box<dyn Error>> {
        World::at(trial, hosts, (Ipv4Addr::LOCALHOST.into(), None))
    }

    /// The same at another address, or with the server's directory in another place.
    pub(super) fn at(
        trial: &Trial<'_>,
        hosts: usize,
        (address, place): (IpAddr, Option<&Path>),
    ) -> Result<World, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let (program, driver) = trial.programs;
        let directory = place.unwrap_or(scratch.path()).join("server");
        let address = SocketAddr::new(address, free_port()?);
        let installation = Installation::make(program, &directory, address)?;
        let mut world = World {
            server: None,
            hosts: Vec::new(),
            clerk: Clerk::start(),
            driver: driver.to_vec(),
            installation,
            scratch,
        };
        world.start_server()?;
        world.wait_for_server()?;
        for number in 0..hosts {
            let home = world.scratch.path().join(format!("host-{number}"));
            world.join(&format!("host-{number}"), &home)?;
        }
        Ok(world)
    }

    /// Joins a host, whose log and identity lie below `home`.
    fn join(&mut self, name: &str, home: &Path) -> Result<(), Box<dyn Error>> {
        let task = Task::new(home);
        let token: Token = self.installation.command(&["invite", name])?.parse()?;
        let server = self.installation.address.to_string().parse()?;
        join(&task.identity, &server, &token)?;
        self.clerk.watch(name, &task.log);
        self.hosts.push(Host {
            name: name.to_owned(),
            task,
            within: Vec::new(),
            process: None,
        });
        Ok(())
    }

    /// Waits until the server listens: a command that comes earlier takes its directory's lock.
    fn wait_for_server(&self) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + HANG;
        while let Err(error) = TcpStream::connect(self.installation.address) {
            if Instant::now() > end {
                let said = self.server.as_ref().map(Server::said);
                return Err(format!("the server does not listen: {error}: {said:?}").into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A folder of this world's own.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// A host's log lies elsewhere from now on.
    pub(super) fn move_log(&mut self, host: usize, log: &Path) {
        let host = &mut self.hosts[host];
        host.task.log = log.to_owned();
        self.clerk.watch(&host.name, log);
    }

    pub(super) fn start_server(&mut self) -> Result<(), Box<dyn Error>> {
        self.server = Some(self.installation.start()?);
        Ok(())
    }

    /// Ends the server by a signal, and waits for its end.
    pub(super) fn end_server(&mut self, signal: libc::c_int) -> Result<(), Box<dyn Error>> {
        if let Some(mut server) = self.server.take() {
            server.end(signal)?;
        }
        Ok(())
    }

    /// Starts the next process of a host.
    pub(super) fn start_host(&mut self, number: usize) -> Result<(), Box<dyn Error>> {
        let host = &mut self.hosts[number];
        host.task.run += 1;
        let words = [&host.within[..], &self.driver].concat();
        host.process = Some(Process::start(&words, &host.task)?);
        Ok(())
    }

    pub(super) fn start_hosts(&mut self) -> Result<(), Box<dyn Error>> {
        (0..self.hosts.len()).try_for_each(|host| self.start_host(host))
    }

    /// What a host reported last.
    pub(super) fn report(&self, host: usize) -> Report {
        let process = self.hosts[host].process.as_ref();
        process.map(Process::report).unwrap_or_default()
    }

    /// Waits until `holds` of what a host reports; false if it ends before, or never does.
    pub(super) fn wait_until(
        &mut self,
        host: usize,
        mut holds: impl FnMut(&Report) -> bool,
    ) -> Result<bool, Box<dyn Error>> {
        let end = Instant::now() + HANG;
        while Instant::now() < end {
            if holds(&self.report(host)) {
                return Ok(true);
            }
            let process = self.hosts[host].process.as_mut();
            if process.map_or(Ok(true), Process::has_ended)? {
                return Ok(false);
            }
            sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    /// Ends all hosts in order.
    pub(super) fn end_hosts(
        &mut self,
        what: &str,
        trial: &mut Trial<'_>,
    ) -> Result<(), Box<dyn Error>> {
        for host in &mut self.hosts {
            let ended = host.process.take().map_or(Ok(true), Process::end)?;
            if !ended {
                trial
                    .tally
                    .find(format!("{what}: {} does not end well", host.name));
            }
        }
        Ok(())
    }

    /// Hosts log nothing more, and all that waits is shipped.
    pub(super) fn ship_all(
        &mut self,
        what: &str,
        trial: &mut Trial<'_>,
    ) -> Result<(), Box<dyn Error>> {
        self.end_hosts(what, trial)?;
        if self.server.is_none() {
            self.start_server()?;
        }
        for host in &mut self.hosts {
            (host.task.rows, host.task.observes) = (0, false);
        }
        self.start_hosts()?;
        for number in 0..self.hosts.len() {
            let is_shipped = |report: &Report| {
                let is_sent = report.waiting_bytes == 0 && report.ship_error.is_none();
                is_sent && report.steps >= LOOKED
            };
            if !self.wait_until(number, is_shipped)? {
                let report = self.report(number);
                let said = self.server.as_ref().map(Server::said).unwrap_or_default();
                let name = &self.hosts[number].name;
                trial.tally.find(format!(
                    "{what}: {name} does not get rid of its rows: {report:?}; {said}"
                ));
            }
            let report = self.report(number);
            if !report.conflicts.is_empty() || report.stopped.is_some() {
                let name = &self.hosts[number].name;
                trial
                    .tally
                    .find(format!("{what}: {name} is refused: {report:?}"));
            }
        }
        self.end_hosts(what, trial)
    }

    /// The end of a trial: all is shipped, and every row that hosts' logs accepted is counted at the
    /// server.
    pub(super) fn settle(
        mut self,
        what: &str,
        trial: &mut Trial<'_>,
    ) -> Result<(), Box<dyn Error>> {
        self.ship_all(what, trial)?;
        let server = self.server_id()?;
        let kept = ServerRows::read(&self.installation.directory, &server)?;
        self.clerk
            .read(|ledgers| settle(what, ledgers, kept, trial.tally))?
    }

    /// The server's id, which is part of its files' names.
    pub(super) fn server_id(&self) -> Result<String, Box<dyn Error>> {
        let status = self.installation.command(&["status", "--json"])?;
        let status: Value = serde_json::from_str(&status)?;
        let server = status["server"].as_str();
        Ok(server.ok_or("a server without an id")?.to_owned())
    }
}
