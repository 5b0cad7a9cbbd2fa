// SPDX-License-Identifier: Apache-2.0
//! The real peer reaches the live views and the log, in both tiers, of a connection that stays
//! and of one that is over before a poll.

mod starting;

use slowpath_agent::{Agent, Config, LiveConnection, TierChoice};
use slowpath_store::{LogReader, TimeRange};
use starting::start;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// Puts this thread into a fresh network namespace in which 127.0.0.9:80 is `server`.
fn translate(server: SocketAddr) -> io::Result<()> {
    // SAFETY: changes this thread's namespace only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()?;
    let rules = format!(
        "table ip t {{ chain out {{
            type nat hook output priority -100;
            ip daddr 127.0.0.9 tcp dport 80 dnat to {server}
        }}; }}"
    );
    let nft = Command::new("nft").arg(rules).status()?;
    if up.success() && nft.success() {
        Ok(())
    } else {
        Err(io::Error::other("ip or nft failed"))
    }
}

type Peers = HashMap<(SocketAddr, SocketAddr), Option<SocketAddr>>;

fn peers<'a>(connections: impl Iterator<Item = &'a LiveConnection>, netns: u32) -> Peers {
    connections
        .filter(|c| c.snapshot.id.netns == netns)
        .map(|c| {
            let tuple = c.snapshot.tuple;
            ((tuple.local, tuple.remote), c.real_peer)
        })
        .collect()
}

fn ends(socket: &TcpStream) -> (SocketAddr, SocketAddr) {
    (socket.local_addr().unwrap(), socket.peer_addr().unwrap())
}

fn poll(agent: &mut Agent) {
    std::thread::sleep(agent.until_next_poll());
    agent.poll().unwrap();
}

/// The inode number of this thread's network namespace.
fn own_namespace() -> u32 {
    let netns = std::fs::metadata("/proc/thread-self/ns/net").unwrap();
    std::os::unix::fs::MetadataExt::ino(&netns) as u32
}

/// What the log has of the connections in that namespace.
fn logged(log: &Path, netns: u32) -> Peers {
    let reader = LogReader::open(log).unwrap();
    let rows = reader.connections(TimeRange::ALL).unwrap().rows;
    rows.iter()
        .filter(|c| c.connection.netns == netns)
        .map(|c| ((c.tuple.local, c.tuple.remote), c.real_peer))
        .collect()
}

fn the_real_peer_is_shown_and_logged(test: &str, tier: TierChoice) {
    let server: SocketAddr = "127.0.0.2:8080".parse().unwrap();
    let service: SocketAddr = "127.0.0.9:80".parse().unwrap();
    let listener = match translate(server).and_then(|()| TcpListener::bind(server)) {
        Ok(listener) => listener,
        Err(error) => {
            println!("SKIPPED {test}: no namespace with translation: {error}");
            return;
        }
    };
    let netns = own_namespace();
    let log = tempfile::tempdir().unwrap();
    let config = Config {
        log: Some(log.path().to_owned()),
        tier,
        interval: Duration::from_millis(20),
        ..Config::default()
    };
    let Some(mut agent) = start(test, config) else {
        return;
    };
    let names: Vec<_> = agent
        .capabilities()
        .features
        .iter()
        .map(|f| (f.name, &f.state))
        .collect();
    assert!(
        names.contains(&("conntrack", &slowpath_agent::FeatureState::Active)),
        "{names:?}"
    );
    poll(&mut agent);

    let open = |to: SocketAddr| {
        let mut client = TcpStream::connect(to).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        client.write_all(&[1; 100]).unwrap();
        accepted.read_exact(&mut [0; 100]).unwrap();
        (client, accepted)
    };
    let through = open(service);
    let straight = open(server);
    let mut expected: Peers = [
        (ends(&through.0), Some(server)),
        (ends(&through.1), None),
        (ends(&straight.0), None),
        (ends(&straight.1), None),
    ]
    .into();
    let patience = Instant::now() + PATIENCE;
    while peers(agent.connections(), netns) != expected {
        assert!(
            Instant::now() < patience,
            "{test}: {:?}, not {expected:?}",
            peers(agent.connections(), netns)
        );
        poll(&mut agent);
    }

    // One that no poll meets alive, where the tier observes such.
    if tier == TierChoice::Bpf {
        let short = open(service);
        expected.insert(ends(&short.0), Some(server));
        expected.insert(ends(&short.1), None);
    }
    drop((through, straight));
    while !peers(agent.connections(), netns).is_empty() {
        assert!(Instant::now() < patience, "{test}: they do not close");
        poll(&mut agent);
    }
    agent.finish();
    assert_eq!(logged(log.path(), netns), expected, "{test}");
}

#[test]
fn by_bpf() {
    the_real_peer_is_shown_and_logged("by_bpf", TierChoice::Bpf);
}

#[test]
fn by_inet_diag() {
    the_real_peer_is_shown_and_logged("by_inet_diag", TierChoice::InetDiag);
}
