// SPDX-License-Identifier: Apache-2.0
//! Twelve agents in twelve network namespaces, all running while connections open and close in
//! each: every agent reports and logs exactly those of its own namespace, counted by the cookies
//! that their own sockets state.

mod sockets;

use slowpath_agent::{Agent, Config, Namespaces, StartError, TierChoice};
use slowpath_store::{LogReader, TimeRange};
use sockets::{cookie, move_on};
use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const AGENTS: usize = 12;

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both ends of connections to one listener.
struct Connections {
    listener: TcpListener,
    ends: Vec<(TcpStream, TcpStream)>,
}

impl Connections {
    fn new() -> Self {
        Connections {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            ends: Vec::new(),
        }
    }

    fn open(&mut self, count: usize) {
        for _ in 0..count {
            let client = TcpStream::connect(self.address()).unwrap();
            let (server, _) = self.listener.accept().unwrap();
            self.ends.push((client, server));
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn cookies(&self) -> HashSet<u64> {
        let both = |(client, server): &(TcpStream, TcpStream)| [cookie(client), cookie(server)];
        self.ends.iter().flat_map(both).collect()
    }
}

/// What one agent's log has.
struct Account {
    cookies: HashSet<u64>,
    opened: u64,
    closed: u64,
    /// Connections that the last poll observed.
    sockets: u64,
}

fn account(log: &std::path::Path) -> Account {
    let reader = LogReader::open(log).unwrap();
    let connections = reader.connections(TimeRange::ALL).unwrap().rows;
    let coverage = reader.coverage(TimeRange::ALL).unwrap().rows;
    Account {
        cookies: connections.iter().map(|c| c.connection.cookie).collect(),
        opened: coverage.iter().map(|c| c.opened).sum(),
        closed: coverage.iter().map(|c| c.closed).sum(),
        sockets: coverage.last().unwrap().sockets,
    }
}

/// Polls until the agent reports exactly these connections, and only this listener.
fn poll_until(agent: &mut Agent, connections: &Connections) {
    let expected = connections.cookies();
    let begin = Instant::now();
    loop {
        std::thread::sleep(agent.until_next_poll());
        agent.poll().unwrap();
        let living: HashSet<u64> = agent.connections().map(|c| c.snapshot.id.cookie).collect();
        let listeners: Vec<SocketAddr> = agent.listeners().map(|l| l.snapshot.local).collect();
        if living == expected && listeners == [connections.address()] {
            return;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "{living:?} are not {expected:?}, or {listeners:?} not the listener"
        );
    }
}

/// One namespace with an agent. Number `number` opens as many more connections than the others,
/// so that no two have equal counts.
fn observe_own(number: usize, tier: TierChoice, start: &Barrier) -> Result<(), StartError> {
    let log = tempfile::tempdir().unwrap();
    let mut connections = Connections::new();
    connections.open(2);
    let older = connections.cookies().len() as u64;
    let agent = Agent::start(Config {
        namespaces: Namespaces::Own,
        log: Some(log.path().to_owned()),
        interval: Duration::from_millis(100),
        area: 256,
        tier,
        ..Config::default()
    });
    start.wait();
    let mut agent = agent?;
    connections.open(number + 1);
    poll_until(&mut agent, &connections);
    let all = connections.cookies();
    let closed = connections.ends.drain(..1 + number / 2).count() as u64;
    poll_until(&mut agent, &connections);
    agent.finish();
    let account = account(log.path());
    assert_eq!(account.cookies, all);
    assert_eq!(account.sockets, connections.cookies().len() as u64);
    let opened = all.len() as u64 - older;
    if tier == TierChoice::Bpf {
        assert_eq!((account.opened, account.closed), (opened, 2 * closed));
    }
    Ok(())
}

fn each_agent_reports_its_own(test: &str, tier: TierChoice) {
    let start = Barrier::new(AGENTS);
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = &start;
        let namespaces: Vec<_> = (0..AGENTS)
            .map(|number| {
                scope.spawn(move || match move_on() {
                    Ok(()) => observe_own(number, tier, start).map_err(|e| e.to_string()),
                    Err(error) => {
                        start.wait();
                        Err(format!("no network namespace: {error}"))
                    }
                })
            })
            .collect();
        namespaces
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    if let Some(Err(reason)) = results.iter().find(|result| result.is_err()) {
        println!("SKIPPED {test}: {reason}");
    }
}

#[test]
fn each_agent_reports_the_connections_of_its_namespace() {
    each_agent_reports_its_own(
        "each_agent_reports_the_connections_of_its_namespace",
        TierChoice::Bpf,
    );
}

#[test]
fn so_does_each_agent_of_the_inet_diag_tier() {
    each_agent_reports_its_own(
        "so_does_each_agent_of_the_inet_diag_tier",
        TierChoice::InetDiag,
    );
}
