// SPDX-License-Identifier: Apache-2.0
//! Paths of real connections through routers that choose among equal routes by ports (ECMP): the
//! log's hops are the routers that each connection's data passed, by those routers' own account,
//! and the connections are not disturbed.

use slowpath_agent::{Agent, Config, Namespaces, TierChoice};
use slowpath_store::{LogReader, TimeRange};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 8;

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(90);

/// Client c, routers r, a or b, t, server s:
///
/// ```text
///                    ┌ 10.2.1 ─ a ─ 10.3.1 ┐
/// c ─── 10.1.0 ─── r ┤                     ├ t ─── 10.4.0 ─── s
///                    └ 10.2.2 ─ b ─ 10.3.2 ┘
/// ```
///
/// r chooses by a hash of addresses and ports, as a switch does: not by the kernel's own ECMP, which takes
/// the sender's `sk_txhash` where the hosts are namespaces of one kernel (`fib_multipath_hash`). t drops
/// some of what has a payload; a and b note the ports of such segments.
const NETWORK: &str = r#"
for n in c r a b t s; do ip netns add $P$n; ip -n $P$n link set lo up; done
wire() { # namespace, its address, namespace, its address
    l=$1$3; ip -n $P$1 link add $l type veth peer name $l netns $P$3
    ip -n $P$1 addr add $2/24 dev $l; ip -n $P$1 link set $l up
    ip -n $P$3 addr add $4/24 dev $l; ip -n $P$3 link set $l up
}
wire c 10.1.0.2 r 10.1.0.1
wire r 10.2.1.1 a 10.2.1.2
wire r 10.2.2.1 b 10.2.2.2
wire a 10.3.1.1 t 10.3.1.2
wire b 10.3.2.1 t 10.3.2.2
wire t 10.4.0.1 s 10.4.0.2
for n in r a b t; do
    ip netns exec $P$n sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0 \
        net.ipv4.conf.all.rp_filter=0
    ip netns exec $P$n sh -c 'for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done'
done
ip -n ${P}c route add default via 10.1.0.1
ip -n ${P}r route add 10.4.0.0/24 via 10.2.1.2
ip -n ${P}r route add 10.4.0.0/24 via 10.2.2.2 table 100
ip -n ${P}r rule add fwmark 1 table 100
ip netns exec ${P}r nft "table ip n {
    chain p { type filter hook prerouting priority mangle;
        meta l4proto tcp meta mark set jhash ip saddr . ip daddr . tcp sport . tcp dport mod 2 seed 0x5eed; }; }"
ip -n ${P}a route add 10.4.0.0/24 via 10.3.1.2
ip -n ${P}b route add 10.4.0.0/24 via 10.3.2.2
ip -n ${P}a route add 10.1.0.0/24 via 10.2.1.1
ip -n ${P}b route add 10.1.0.0/24 via 10.2.2.1
ip -n ${P}t route add 10.1.0.0/24 via 10.3.1.1
ip -n ${P}s route add default via 10.4.0.1
for n in a b; do ip netns exec $P$n nft "table ip n {
    set ports { type inet_service; flags dynamic; }
    chain f { type filter hook forward priority 0; tcp dport 5000 meta length > 500 add @ports { tcp sport }; }; }"
done
ip netns exec ${P}t nft "table ip n {
    chain f { type filter hook forward priority 0; tcp dport 5000 meta length > 500 numgen random mod 30 == 0 drop; }; }"
"#;

/// The network; its namespaces go with this.
struct Network {
    prefix: String,
}

impl Network {
    fn new() -> Result<Self, String> {
        let network = Network {
            prefix: format!("sp-{}-", std::process::id()),
        };
        let made = Command::new("sh")
            .args(["-ec", NETWORK])
            .env("P", &network.prefix)
            .output();
        match made {
            Ok(output) if output.status.success() => Ok(network),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Puts this thread into a namespace.
    fn enter(&self, name: &str) -> io::Result<()> {
        let file = File::open(format!("/run/netns/{}{name}", self.prefix))?;
        // SAFETY: changes this thread's namespace only.
        match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What a command prints in a namespace.
    fn output(&self, name: &str, command: &[&str]) -> String {
        let namespace = format!("{}{name}", self.prefix);
        let output = Command::new("ip")
            .args(["netns", "exec", &namespace])
            .args(command)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ports whose data passed a router.
    fn ports(&self, router: &str) -> BTreeSet<u16> {
        let text = self.output(router, &["nft", "list", "set", "ip", "n", "ports"]);
        let elements = text.split("elements = {").nth(1).unwrap_or("");
        let numbers = elements.split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    /// A counter of `/proc/net/snmp` or `netstat`.
    fn counter(&self, name: &str, file: &str, protocol: &str, counter: &str) -> u64 {
        let text = self.output(name, &["cat", &format!("/proc/net/{file}")]);
        let mut lines = text.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split(' ').position(|it| it == counter).unwrap();
        values.split(' ').nth(place).unwrap().parse().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in ["c", "r", "a", "b", "t", "s"] {
            let namespace = format!("{}{name}", self.prefix);
            let _ = Command::new("ip")
                .args(["netns", "del", &namespace])
                .output();
        }
    }
}

/// Takes every connection to its end; gives the bytes that each brought, by its peer's port.
fn serve(listener: &TcpListener) -> BTreeMap<u16, u64> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let (mut socket, peer) = listener.accept().unwrap();
                scope.spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    let mut bytes = 0;
                    loop {
                        match socket.read(&mut buffer).unwrap() {
                            0 => return (peer.port(), bytes),
                            n => bytes += n as u64,
                        }
                    }
                })
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect()
    })
}

/// Writes until it is to stop; gives the bytes.
fn write(mut socket: &TcpStream, stop: &AtomicBool) -> u64 {
    let chunk = vec![7; 1 << 14];
    let mut bytes = 0;
    while !stop.load(Ordering::Acquire) {
        socket.write_all(&chunk).unwrap();
        bytes += chunk.len() as u64;
    }
    socket.shutdown(Shutdown::Write).unwrap();
    bytes
}

/// Polls until as many paths are traced as there are connections, in the client's namespace; gives
/// the bytes that each connection sent, by port.
fn trace(mut agent: Agent) -> BTreeMap<u16, u64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let socket = TcpStream::connect("10.4.0.2:5000").unwrap();
                let stop = &stop;
                scope.spawn(move || {
                    let bytes = write(&socket, stop);
                    assert!(socket.take_error().unwrap().is_none());
                    (socket.local_addr().unwrap().port(), bytes)
                })
            })
            .collect();
        let begin = Instant::now();
        while agent.traced_paths().unwrap().0 < CONNECTIONS as u64 && begin.elapsed() < PATIENCE {
            std::thread::sleep(agent.until_next_poll());
            agent.poll().unwrap();
        }
        stop.store(true, Ordering::Release);
        let sent = writers.into_iter().map(|writer| writer.join().unwrap());
        let sent = sent.collect();
        agent.finish();
        sent
    })
}

/// The routers of each connection's path in the log, by its local port.
fn logged(log: &std::path::Path) -> BTreeMap<u16, Vec<String>> {
    let reader = LogReader::open(log).unwrap();
    let connections = reader.connections(TimeRange::ALL).unwrap().rows;
    let port = |id| {
        let of = connections.iter().find(|c| c.connection == id).unwrap();
        of.tuple.local.port()
    };
    let mut paths: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for hop in reader.hops(TimeRange::ALL).unwrap().rows {
        let path = paths.entry(port(hop.connection)).or_default();
        assert_eq!(usize::from(hop.ttl), path.len() + 1);
        path.push(hop.router.map_or("none".to_owned(), |it| it.to_string()));
    }
    paths
}

#[test]
fn hops_are_the_routers_that_each_connection_passed() {
    const TEST: &str = "hops_are_the_routers_that_each_connection_passed";
    let network = match Network::new() {
        Ok(network) => network,
        Err(reason) => {
            println!("SKIPPED {TEST}: {reason}");
            return;
        }
    };
    let log = tempfile::tempdir().unwrap();
    let outcome = std::thread::scope(|scope| {
        let (network, log) = (&network, log.path());
        let server = scope.spawn(move || {
            network.enter("s").unwrap();
            TcpListener::bind("10.4.0.2:5000").unwrap()
        });
        let listener = server.join().unwrap();
        let client = scope.spawn(move || {
            network.enter("c").unwrap();
            let agent = Agent::start(Config {
                namespaces: Namespaces::Own,
                log: Some(log.to_owned()),
                interval: Duration::from_millis(100),
                trace_paths: Some(600),
                tier: TierChoice::Bpf,
                ..Config::default()
            });
            let agent = agent.map_err(|error| error.to_string())?;
            let server = scope.spawn(move || serve(&listener));
            let sent = trace(agent);
            Ok::<_, String>((sent, server.join().unwrap()))
        });
        client.join().unwrap()
    });
    let (sent, received) = match outcome {
        Ok(bytes) => bytes,
        Err(reason) => {
            println!("SKIPPED {TEST}: {reason}");
            return;
        }
    };
    assert_eq!(sent, received);
    let passed = [network.ports("a"), network.ports("b")];
    println!("{TEST}: {} by a, {} by b", passed[0].len(), passed[1].len());
    let expected: BTreeMap<u16, Vec<String>> = sent
        .keys()
        .map(|port| {
            let middle = match passed.each_ref().map(|ports| ports.contains(port)) {
                [true, false] => "10.2.1.2",
                [false, true] => "10.2.2.2",
                both => panic!("{port}: by a and b: {both:?}"),
            };
            let path = ["10.1.0.1", middle, "10.3.1.2"];
            (*port, path.map(str::to_owned).to_vec())
        })
        .collect();
    assert_eq!(logged(log.path()), expected);
    // The peer discarded what reached it, and the routers' messages were about nothing under way.
    let discarded = network.counter("s", "snmp", "Tcp:", "InCsumErrors");
    let ignored = network.counter("c", "netstat", "TcpExt:", "OutOfWindowIcmps");
    assert!(
        discarded > 0,
        "probes beyond the third router reach the peer"
    );
    assert_eq!(ignored, 3 * CONNECTIONS as u64);
}
