// SPDX-License-Identifier: Apache-2.0
//! Twelve hosts on two networks with a router between, each a network namespace with an agent of its
//! own, and connections between them. Some go to an address that the client's own kernel translates,
//! some by a router that translates the server's address or the client's: the server joins both ends
//! of each, and of nothing else.

use super::Trial;
use super::tally::FleetTally;
use super::world::World;
use slowpath_fleet::{FleetReader, Intake, IntakeOptions, Table, Tables};
use slowpath_model::{Micros, WallMicros};
use slowpath_store::TimeRange;
use slowpath_table::Value;
use slowpath_testbed::Namespace;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOSTS: usize = 12;
/// An address that hosts below [`TRANSLATED`] translate to the last host's, as kube-proxy does.
const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), PORT);
const TRANSLATED: usize = 4;
/// Addresses that the router translates to that of a host, of one of them the port as well.
const BALANCED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 97, 0, 1)), PORT);
const OTHER_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 97, 0, 2)), PORT);
const BALANCED_TO: usize = 10;
/// To this host and [`MASQUERADED`] clients come under the router's address.
const MASQUERADED_TO: usize = 9;
/// Ports of listeners.
const PORT: u16 = 80;
const TRANSLATED_PORT: u16 = 8_080;
const MASQUERADED: u16 = 8_081;
/// Messages over each connection, a tenth of a second between them: polls have to meet it.
const MESSAGES: usize = 15;
/// Until the hour of all connections has closed.
const LATER: Micros = Micros(2 * 3_600_000_000);

/// Both ends of a connection by address, the lower one first, and the hosts' numbers.
type Ends = BTreeMap<[SocketAddr; 2], [usize; 2]>;
/// The same as the server joined them, by the hosts' names.
type Joined = BTreeMap<[SocketAddr; 2], Vec<[String; 2]>>;

pub(super) fn run(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let network = match Network::new() {
        Ok(network) => network,
        Err(error) => {
            trial.tally.skip(&format!("twelve hosts: {error}"));
            return Ok(());
        }
    };
    // The server is where the router is.
    let done = network.router.run(|| {
        let done = observe(trial, &network);
        done.map_err(|error| error.to_string())
    })?;
    let (expected, joined) = done?;
    compare(&expected, joined, trial.tally);
    Ok(())
}

/// Has all hosts observe connections, and returns those that there were and those that the server
/// joined.
fn observe(trial: &mut Trial<'_>, network: &Network) -> Result<(Ends, Joined), Box<dyn Error>> {
    let mut world = World::at(trial, HOSTS, (Network::gateway(0).into(), None))?;
    for (host, namespace) in world.hosts.iter_mut().zip(&network.hosts) {
        let words = ["ip", "netns", "exec", namespace.name()];
        host.within = words.map(str::to_owned).to_vec();
        host.task.observes = true;
    }
    world.start_hosts()?;
    for number in 0..HOSTS {
        // The first poll of an agent met what there was before.
        if !world.wait_until(number, |report| report.steps > 2)? {
            return Err(format!("host {number} does not observe").into());
        }
    }
    let expected = network.talk()?;
    for number in 0..HOSTS {
        let polls = world.report(number).steps + 3;
        if !world.wait_until(number, |report| report.steps >= polls)? {
            return Err(format!("host {number} observes no longer").into());
        }
    }
    // The rest of what their agents log at their end as well.
    world.ship_all("twelve hosts", trial)?;
    world.end_server(libc::SIGTERM)?;
    let server = world.server_id()?;
    let joined = joined(&world.installation.directory, &server)?;
    Ok((expected, joined))
}

fn compare(expected: &Ends, mut joined: Joined, tally: &mut FleetTally) {
    tally.ends += expected.len() as u64;
    for (ends, hosts) in expected {
        let names = hosts.map(|host| format!("host-{host}"));
        match joined.remove(ends) {
            Some(found) if found == [names.clone()] => tally.joined_ends += 1,
            Some(found) => tally.find(format!(
                "twelve hosts: {ends:?} of {names:?} are joined as {found:?}"
            )),
            None => tally.find(format!(
                "twelve hosts: {ends:?} of {names:?} are not joined"
            )),
        }
    }
    for (ends, hosts) in joined {
        // Agents ship over connections, too, whose other end is the server's, which has no agent.
        tally.find(format!(
            "twelve hosts: {ends:?} of {hosts:?} are joined: no such connection"
        ));
    }
}

/// What the server joined, once the hour is over; it does not run.
fn joined(directory: &Path, server: &str) -> Result<Joined, Box<dyn Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = WallMicros(now.as_micros() as i64);
    let intake = Intake::open(directory, IntakeOptions::default())?;
    let mut tables = Tables::open(directory, server, &intake, now)?;
    let (sender, receiver) = channel();
    // Who waits is there.
    intake.end_file(move || sender.send(()).unwrap_or_default());
    receiver.recv()?;
    tables.publish()?;
    tables.close_hours(now + LATER)?;
    let mut joined = Joined::new();
    let columns = [
        "a_host",
        "a_address",
        "a_port",
        "b_host",
        "b_address",
        "b_port",
    ];
    let reader = FleetReader::new(directory, server);
    reader.each_row(Table::Ends, &columns, TimeRange::ALL, |row| {
        let text = |at: usize| match &row[at] {
            Value::Text(text) => (*text).to_owned(),
            _ => String::new(),
        };
        let end = |at: usize| {
            let port = match row[at + 2] {
                Value::Int(port) => u16::try_from(port).ok(),
                _ => None,
            };
            Some(SocketAddr::new(text(at + 1).parse().ok()?, port?))
        };
        if let (Some(a), Some(b)) = (end(0), end(3)) {
            joined.entry([a, b]).or_default().push([text(0), text(3)]);
        }
    })?;
    Ok(joined)
}

/// Twelve namespaces on two bridges of a thirteenth, the router; all of it ends with this value.
struct Network {
    hosts: Vec<Namespace>,
    router: Namespace,
}

impl Network {
    /// # Errors
    /// This user may not make one, or cannot translate addresses.
    fn new() -> Result<Network, Box<dyn Error>> {
        let pid = std::process::id();
        let router = Namespace::new(&format!("sp-{pid}-0-router"))?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        translate_between(&router)?;
        for side in 0..2 {
            let gateway = Network::gateway(side);
            router.ip(&format!(
                "link add br{side} type bridge\naddr add {gateway}/24 dev br{side}\n\
                 link set br{side} up\n"
            ))?;
        }
        let mut hosts = Vec::new();
        for number in 0..HOSTS {
            let namespace = Namespace::new(&format!("sp-{pid}-{number}-fleet"))?;
            let (name, side) = (namespace.name(), Network::side(number));
            router.ip(&format!(
                "link add host{number} type veth peer name eth0 netns {name}\n\
                 link set host{number} master br{side} up\n"
            ))?;
            namespace.ip(&format!(
                "addr add {}/24 dev eth0\nlink set eth0 up\nroute add default via {}\n",
                Network::address(number),
                Network::gateway(side)
            ))?;
            if number < TRANSLATED {
                translate(&namespace)?;
            }
            hosts.push(namespace);
        }
        Ok(Network { hosts, router })
    }

    /// Half of the hosts are on each side of the router.
    fn side(host: usize) -> usize {
        host / (HOSTS / 2)
    }

    fn gateway(side: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, side as u8, 1)
    }

    fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, Network::side(host) as u8, 10 + host as u8)
    }

    /// Opens connections over all routes at once, and has each carry messages; returns both ends of
    /// each.
    fn talk(&self) -> Result<Ends, Box<dyn Error>> {
        let routes = routes();
        let mut listeners = BTreeMap::new();
        for Route { to, listener, .. } in &routes {
            if !listeners.contains_key(listener) {
                let bound = self.hosts[*to].run(|| TcpListener::bind(listener))??;
                listeners.insert(*listener, bound);
            }
        }
        let mut expected = Ends::new();
        let mut open = Vec::new();
        for route in routes {
            let client = self.hosts[route.from].run(|| TcpStream::connect(route.target))??;
            let (server, _) = listeners[&route.listener].accept()?;
            let mut ends = [
                (client.local_addr()?, route.from),
                (server.local_addr()?, route.to),
            ];
            ends.sort_unstable();
            expected.insert(ends.map(|(address, _)| address), ends.map(|(_, host)| host));
            open.push((client, server));
        }
        for _ in 0..MESSAGES {
            for (client, server) in &mut open {
                client.write_all(&[1; 1_000])?;
                server.read_exact(&mut [0; 1_000])?;
            }
            sleep(Duration::from_millis(100));
        }
        Ok(expected)
    }
}

/// A connection from one host to another.
struct Route {
    from: usize,
    to: usize,
    /// What the client connects to, and where the server listens.
    target: SocketAddr,
    listener: SocketAddr,
}

fn routes() -> Vec<Route> {
    let at = |host, port| SocketAddr::new(Network::address(host).into(), port);
    let mut routes = Vec::new();
    let mut add = |from, to, target: Option<SocketAddr>, port| {
        let listener = at(to, port);
        routes.push(Route {
            from,
            to,
            target: target.unwrap_or(listener),
            listener,
        });
    };
    for from in 0..HOSTS {
        for step in [1, 5] {
            add(from, (from + step) % HOSTS, None, PORT);
        }
        if from < TRANSLATED {
            add(from, HOSTS - 1, Some(SERVICE), PORT);
        }
        // Through the router.
        if Network::side(from) == 0 {
            match from % 2 {
                0 => add(from, BALANCED_TO, Some(BALANCED), PORT),
                _ => add(from, BALANCED_TO, Some(OTHER_PORT), TRANSLATED_PORT),
            }
            add(from, MASQUERADED_TO, None, MASQUERADED);
        }
    }
    routes
}

/// Has a host translate the service's address for its own connections.
fn translate(host: &Namespace) -> Result<(), Box<dyn Error>> {
    let to = Network::address(HOSTS - 1);
    nft(
        host,
        &format!(
            "table ip slowpath {{ chain output {{ type nat hook output priority -100; \
         ip daddr {} tcp dport {PORT} dnat to {to}:{PORT}; }}; }}",
            SERVICE.ip()
        ),
    )
}

/// Has the router translate addresses of servers and of clients.
fn translate_between(router: &Namespace) -> Result<(), Box<dyn Error>> {
    let to = Network::address(BALANCED_TO);
    let (balanced, other) = (BALANCED.ip(), OTHER_PORT.ip());
    let masqueraded = Network::address(MASQUERADED_TO);
    nft(
        router,
        &format!(
            "table ip slowpath {{ chain pre {{ type nat hook prerouting priority -100; \
         ip daddr {balanced} tcp dport {PORT} dnat to {to}:{PORT}; \
         ip daddr {other} tcp dport {PORT} dnat to {to}:{TRANSLATED_PORT}; }}; \
         chain post {{ type nat hook postrouting priority 100; \
         ip daddr {masqueraded} tcp dport {MASQUERADED} masquerade; }}; }}"
        ),
    )
}

fn nft(namespace: &Namespace, rules: &str) -> Result<(), Box<dyn Error>> {
    let mut nft = namespace.command("nft")?;
    let status = nft.arg(rules).stderr(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("nft: {status}").into()),
    }
}
