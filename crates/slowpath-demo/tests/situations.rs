// SPDX-License-Identifier: Apache-2.0
//! Connections that are easily missed or misjudged, through the whole agent: short ones,
//! many at once, reused ports, dying processes, connections older than the agent, idle
//! ones, every kind of address.
//!
//! BPF sees the sockets of the whole machine: each test looks at the connections of its own
//! namespaces only.

use slowpath_agent::{Agent, Config, LiveConnection};
use slowpath_model::{FourTuple, Micros, Origin, Problem};
use slowpath_testbed::workload::{DriveMode, DriveOptions, ServeMode, ServeOptions, TcpTruth};
use slowpath_testbed::{
    LinkOptions, Namespace, Need, Process, Side, Testbed, attempts, missing_requirements,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(20);

fn lacking(test: &str) -> bool {
    let reason = missing_requirements(&[Need::Namespaces]);
    if let Some(reason) = &reason {
        println!("SKIPPED {test}: {reason}");
    }
    reason.is_some()
}

/// An agent, or the reason why the test is skipped.
fn agent(test: &str) -> Option<Agent> {
    let config = Config {
        history: 1,
        seed: Some(1),
        ..Config::default()
    };
    match Agent::start(config) {
        Ok(agent) => Some(agent),
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            None
        }
    }
}

/// Runs `body` on a thread in a fresh namespace, whose inode number it gets.
fn in_namespace(test: &str, body: impl Fn(u32) + Sync) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if lacking(test) {
        return;
    }
    attempts(test, || {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sp-{}-{number}-s", std::process::id());
        let namespace = Namespace::new(&name).expect("makes a namespace");
        let netns = namespace.inode().expect("has a number");
        namespace.run(|| body(netns)).expect("enters");
    });
}

/// A connection to a listener on `listen` through `connect`: the end that opened it and the
/// one that accepted it.
fn pair(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((listen, 0)).expect("listens");
    let port = listener.local_addr().expect("is bound").port();
    let opened = TcpStream::connect((connect, port)).expect("connects");
    let (accepted, _) = listener.accept().expect("accepts");
    (opened, accepted)
}

fn tuple(socket: &TcpStream) -> FourTuple {
    FourTuple::new(
        socket.local_addr().expect("is bound"),
        socket.peer_addr().expect("is connected"),
    )
}

fn exchange(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    let mut buffer = vec![5; bytes];
    from.write_all(&buffer).expect("writes");
    to.read_exact(&mut buffer).expect("reads");
}

/// The living connections of a namespace.
fn living(agent: &Agent, netns: u32) -> HashMap<FourTuple, LiveConnection> {
    agent
        .connections()
        .filter(|c| c.snapshot.id.netns == netns)
        .map(|c| (c.snapshot.tuple, c.clone()))
        .collect()
}

/// Polls until `count` connections of `namespaces` have closed since the call, and gives
/// them.
fn closed(agent: &mut Agent, namespaces: &[u32], count: usize) -> Vec<LiveConnection> {
    let patience = Instant::now() + PATIENCE;
    let mut closed = Vec::new();
    loop {
        let poll = agent.poll().expect("polls");
        closed.extend(
            agent
                .recently_closed()
                .filter(|c| namespaces.contains(&c.snapshot.id.netns))
                .cloned(),
        );
        if closed.len() >= count {
            return closed;
        }
        if Instant::now() > patience {
            let left = namespaces.iter().flat_map(|n| living(agent, *n));
            let left: Vec<_> = left.map(|(t, c)| (t, c.snapshot.stats.state)).collect();
            panic!(
                "{} of {count} closed; {:?}; {poll:?}, {} known; {} left, {:?}",
                closed.len(),
                agent.losses(),
                agent.connections().count(),
                left.len(),
                &left[..left.len().min(3)]
            );
        }
        std::thread::yield_now();
    }
}

fn owner(connection: &LiveConnection) -> Option<u32> {
    connection.owner.pid()
}

#[test]
fn a_connection_that_lives_5_ms() {
    in_namespace("a_connection_that_lives_5_ms", |netns| {
        let Some(mut agent) = agent("a_connection_that_lives_5_ms") else {
            return;
        };
        agent.poll().expect("polls");
        let outer = Instant::now();
        let (mut opened, mut accepted) = pair("127.0.0.1", "127.0.0.1");
        let inner = Instant::now();
        exchange(&mut opened, &mut accepted, 1_000);
        // The connection's life, not a wait for something.
        std::thread::sleep(Duration::from_millis(5));
        exchange(&mut accepted, &mut opened, 300);
        let (here, there) = (tuple(&opened), tuple(&accepted));
        let inner = inner.elapsed();
        drop((opened, accepted));
        let closed = closed(&mut agent, &[netns], 2);
        let outer = outer.elapsed();

        assert_eq!(closed.len(), 2);
        for (tuple, origin, sent, received) in [
            (here, Origin::Opened, 1_000, 300),
            (there, Origin::Accepted, 300, 1_000),
        ] {
            let found = closed.iter().find(|c| c.snapshot.tuple == tuple);
            let connection = found.expect("has a final record");
            let (snapshot, totals) = (&connection.snapshot, &connection.totals);
            assert!(snapshot.closed);
            assert_eq!(snapshot.origin, origin);
            assert_eq!(snapshot.stats.bytes_sent, Some(sent));
            // The kernel counts the peer's FIN as one byte received.
            assert!([received, received + 1].contains(&snapshot.stats.bytes_received));
            assert_eq!(snapshot.sends.map(|c| (c.count, c.bytes)), Some((1, sent)));
            assert_eq!(snapshot.receives.map(|c| c.bytes), Some(received));
            if origin == Origin::Opened {
                assert_eq!(owner(connection), Some(std::process::id()));
            }
            let verdict = connection.latest.as_ref().expect("was judged");
            assert_eq!(verdict.dominating, Problem::SenderAppLimited);
            assert_eq!(totals.polls, 1);
            // It lived between the two moments taken inside of its life and the two taken
            // around it.
            assert_eq!(totals.observed, verdict.interval());
            let observed = Duration::from_micros(totals.observed.0);
            assert!(
                inner <= observed + Duration::from_micros(1),
                "{inner:?} {observed:?}"
            );
            assert!(observed <= outer, "{observed:?} {outer:?}");
        }
    });
}

#[test]
fn addresses_and_origins() {
    in_namespace("addresses_and_origins", |netns| {
        let Some(mut agent) = agent("addresses_and_origins") else {
            return;
        };
        let cases = [
            ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
            ("::1", "::1", "::1"),
            // The accepted end is an IPv6 socket.
            ("::", "127.0.0.1", "127.0.0.1"),
            // The opening end is.
            ("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1"),
            // Both are.
            ("::", "::ffff:127.0.0.1", "127.0.0.1"),
        ];
        let mut pairs: Vec<_> = cases.iter().map(|(l, c, _)| pair(l, c)).collect();
        for (opened, accepted) in &mut pairs {
            exchange(opened, accepted, 10);
        }
        agent.poll().expect("polls");
        let living = living(&agent, netns);
        assert_eq!(living.len(), 2 * cases.len());
        for ((opened, accepted), (_, _, address)) in pairs.iter().zip(cases) {
            let address: IpAddr = address.parse().expect("an address");
            for (socket, origin) in [(opened, Origin::Opened), (accepted, Origin::Accepted)] {
                let connection = &living[&tuple(socket)];
                assert_eq!(connection.snapshot.tuple.local.ip(), address);
                assert_eq!(connection.snapshot.tuple.remote.ip(), address);
                assert_eq!(connection.snapshot.origin, origin);
                assert_eq!(owner(connection), Some(std::process::id()));
                let verdict = connection.latest.as_ref().expect("was judged");
                assert_eq!(verdict.dominating, Problem::SenderAppLimited);
            }
            assert_eq!(
                living[&tuple(opened)].snapshot.tuple,
                living[&tuple(accepted)].snapshot.tuple.reversed()
            );
        }
    });
}

/// Fills the peer's window until the kernel has counted some rwnd-limited time, then empties
/// it.
fn suffer_a_closed_window(from: &mut TcpStream, to: &mut TcpStream) {
    let patience = Instant::now() + PATIENCE;
    from.set_nonblocking(true).expect("sets");
    let limited = |socket: &TcpStream| {
        let truth = TcpTruth::read(socket.as_fd()).expect("reads");
        truth.rwnd_limited_us
    };
    let mut written = 0;
    while limited(from) < 100_000 {
        match from.write(&[0; 65_536]) {
            Ok(n) => written += n,
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < patience);
        std::thread::yield_now();
    }
    from.set_nonblocking(false).expect("sets");
    let mut rest = vec![0; written];
    to.read_exact(&mut rest).expect("reads");
}

#[test]
fn a_connection_older_than_the_agent() {
    in_namespace("a_connection_older_than_the_agent", |netns| {
        let (mut opened, mut accepted) = pair("127.0.0.1", "127.0.0.1");
        suffer_a_closed_window(&mut opened, &mut accepted);
        let before = TcpTruth::read(opened.as_fd()).expect("reads");

        let started = Instant::now();
        let Some(mut agent) = agent("a_connection_older_than_the_agent") else {
            return;
        };
        agent.poll().expect("polls");
        let connection = living(&agent, netns)
            .remove(&tuple(&opened))
            .expect("is met");
        assert_eq!(connection.snapshot.origin, Origin::Unknown);
        assert_eq!(connection.totals, Default::default());
        assert!(connection.latest.is_none());
        let counted = connection.snapshot.stats.rwnd_limited.expect("is counted");
        assert!(counted.0 >= before.rwnd_limited_us);

        exchange(&mut opened, &mut accepted, 1_000);
        agent.poll().expect("polls");
        let connection = living(&agent, netns)
            .remove(&tuple(&opened))
            .expect("is met");
        let totals = &connection.totals;
        assert_eq!(totals.polls, 1);
        let verdict = connection.latest.as_ref().expect("was judged");
        assert_eq!(verdict.deltas.bytes_sent, Some(1_000));
        assert_eq!(verdict.dominating, Problem::SenderAppLimited);
        assert_eq!(
            totals.problem_time[Problem::ReceiverWindowLimited as usize],
            Micros::ZERO
        );
        assert!(totals.observed <= started.elapsed().into());
        assert_eq!(owner(&connection), Some(std::process::id()));
    });
}

#[test]
fn idle_connections_cost_no_verdict() {
    in_namespace("idle_connections_cost_no_verdict", |netns| {
        const IDLE: usize = 2_000;
        let Some(mut agent) = agent("idle_connections_cost_no_verdict") else {
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("is bound");
        let mut pairs = Vec::new();
        for _ in 0..IDLE {
            let opened = TcpStream::connect(address).expect("connects");
            let (accepted, _) = listener.accept().expect("accepts");
            pairs.push((opened, accepted));
        }
        let verdicts = |agent: &Agent| -> HashMap<FourTuple, u64> {
            let living = living(agent, netns);
            living.iter().map(|(t, c)| (*t, c.totals.polls)).collect()
        };
        agent.poll().expect("polls");
        let first = verdicts(&agent);
        assert_eq!(first.len(), 2 * IDLE);
        let (busy, idle) = pairs.split_first_mut().expect("there are many");
        let mut idle_emitted = 0;
        for _ in 0..5 {
            exchange(&mut busy.0, &mut busy.1, 100);
            agent.poll().expect("polls");
            let now = verdicts(&agent);
            for (opened, accepted) in &*idle {
                for tuple in [tuple(opened), tuple(accepted)] {
                    idle_emitted += now[&tuple] - first[&tuple];
                }
            }
        }
        assert_eq!(idle_emitted, 0);
        let busy = tuple(&busy.0);
        assert_eq!(verdicts(&agent)[&busy], first[&busy] + 5);
    });
}

/// Connects from `local`, whose port the connection before had, as soon as that one is
/// gone.
fn connect_from(local: Option<SocketAddr>, remote: SocketAddr) -> TcpStream {
    let patience = Instant::now() + PATIENCE;
    loop {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("opens");
        socket.set_reuse_address(true).expect("sets");
        if let Some(local) = local {
            socket.bind(&local.into()).expect("binds");
        }
        match socket.connect(&remote.into()) {
            Ok(()) => return socket.into(),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::AddrNotAvailable),
        }
        assert!(Instant::now() < patience);
        std::thread::yield_now();
    }
}

#[test]
fn a_port_reused_at_once() {
    const TIMES: usize = 5;
    in_namespace("a_port_reused_at_once", |netns| {
        let Some(mut agent) = agent("a_port_reused_at_once") else {
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let server = listener.local_addr().expect("is bound");
        agent.poll().expect("polls");
        let mut local = None;
        for n in 1..=TIMES {
            let mut opened = connect_from(local, server);
            let (mut accepted, _) = listener.accept().expect("accepts");
            exchange(&mut opened, &mut accepted, n);
            local = Some(opened.local_addr().expect("is bound"));
            // The end that closes first waits in TIME_WAIT: not the one whose port is used
            // again.
            accepted.shutdown(Shutdown::Write).expect("closes");
            let end = opened.read(&mut [0]).expect("reads");
            assert_eq!(end, 0);
            drop((opened, accepted));
        }
        let local = local.expect("there was one");
        let tuple = FourTuple::new(local, server);
        let closed = closed(&mut agent, &[netns], 2 * TIMES);
        assert_eq!(closed.len(), 2 * TIMES);
        for (tuple, sends) in [(tuple, true), (tuple.reversed(), false)] {
            let ours: Vec<_> = closed
                .iter()
                .filter(|c| c.snapshot.tuple == tuple)
                .collect();
            let ids: HashSet<_> = ours.iter().map(|c| c.snapshot.id).collect();
            assert_eq!(ids.len(), TIMES, "{tuple}");
            let mut bytes: Vec<_> = ours
                .iter()
                .map(|c| match sends {
                    true => c.snapshot.sends,
                    false => c.snapshot.receives,
                })
                .map(|calls| calls.expect("are observed").bytes)
                .collect();
            bytes.sort_unstable();
            assert_eq!(bytes, [1, 2, 3, 4, 5]);
            assert!(
                ours.iter()
                    .all(|c| c.totals.polls == 1 && c.latest.is_some())
            );
        }
        assert!(living(&agent, netns).is_empty());
    });
}

/// Two namespaces, a plain link, and an agent that has polled once.
fn testbed(test: &str) -> Option<(Testbed, Agent)> {
    if lacking(test) {
        return None;
    }
    let mut testbed = Testbed::new(test).expect("makes namespaces");
    testbed.add_link(&LinkOptions::default()).expect("adds");
    let mut agent = agent(test)?;
    agent.poll().expect("polls");
    Some((testbed, agent))
}

fn inodes(testbed: &Testbed) -> [u32; 2] {
    [Side::A, Side::B].map(|side| testbed.namespace(side).inode().expect("has a number"))
}

#[test]
fn five_thousand_at_once() {
    attempts("five_thousand_at_once", five_thousand_at_once_once);
}

fn five_thousand_at_once_once() {
    const MANY: usize = 5_000;
    let Some((testbed, mut agent)) = testbed("five_thousand_at_once") else {
        return;
    };
    let server = testbed
        .serve(&ServeOptions {
            mode: ServeMode::Hold,
            ..ServeOptions::default()
        })
        .expect("serves");
    let address = testbed.link(0).b_address(Default::default());
    let mut driver = testbed
        .drive(&DriveOptions {
            mode: DriveMode::Many,
            connections: Some(MANY as u32),
            request_bytes: Some(200),
            ..DriveOptions::to(SocketAddr::new(address, server.ready().port))
        })
        .expect("connects");
    let ends: HashSet<FourTuple> = driver
        .ready()
        .connections
        .iter()
        .map(|(local, remote)| FourTuple::new(*local, *remote))
        .collect();
    assert_eq!(ends.len(), MANY);
    let [a, b] = inodes(&testbed);
    agent.poll().expect("polls");
    let opened = living(&agent, a);
    assert_eq!(opened.keys().copied().collect::<HashSet<_>>(), ends);
    driver.go().expect("goes");
    assert_eq!(driver.report().expect("reports").errors, 0);

    // The accepting end may hear of the last ones a little later.
    let patience = Instant::now() + PATIENCE;
    let accepted = loop {
        agent.poll().expect("polls");
        let accepted = living(&agent, b);
        let heard = |c: &LiveConnection| c.snapshot.stats.bytes_received == 200;
        if accepted.len() == MANY && accepted.values().all(heard) {
            break accepted;
        }
        assert!(Instant::now() < patience, "{} accepted", accepted.len());
        std::thread::yield_now();
    };
    let reversed: HashSet<FourTuple> = ends.iter().map(|t| t.reversed()).collect();
    assert_eq!(accepted.keys().copied().collect::<HashSet<_>>(), reversed);
    for connection in living(&agent, a).values() {
        assert_eq!(connection.snapshot.stats.bytes_sent, Some(200));
        assert_eq!(connection.snapshot.origin, Origin::Opened);
        assert_eq!(owner(connection), Some(driver.ready().pid));
    }
    driver.finish().expect("closes");
    server.finish().expect("closes");
    let closed = closed(&mut agent, &[a, b], 2 * MANY);
    let ids: HashSet<_> = closed.iter().map(|c| c.snapshot.id).collect();
    assert_eq!(ids.len(), 2 * MANY);
    for connection in &closed {
        let totals = &connection.totals;
        let what = format!("{} {totals:?}", connection.snapshot.tuple);
        assert!(connection.snapshot.closed, "{what}");
        assert!(totals.polls > 0, "{what}");
        assert_eq!(
            totals.dominating(&Default::default()),
            Problem::SenderAppLimited,
            "{what}"
        );
    }
    assert!(living(&agent, a).is_empty() && living(&agent, b).is_empty());
}

#[test]
fn a_process_that_dies() {
    attempts("a_process_that_dies", a_process_that_dies_once);
}

fn a_process_that_dies_once() {
    let Some((testbed, mut agent)) = testbed("a_process_that_dies") else {
        return;
    };
    let serve = || {
        testbed
            .serve(&ServeOptions {
                mode: ServeMode::RequestResponse,
                ..ServeOptions::default()
            })
            .expect("serves")
    };
    let address = testbed.link(0).b_address(Default::default());
    let to = |server: &Process| DriveOptions::to(SocketAddr::new(address, server.ready().port));
    let namespaces = inodes(&testbed);

    // One of the two is killed while both work and the agent knows whose the ends are.
    for opener_dies in [true, false] {
        let server = serve();
        let mut driver = testbed.drive(&to(&server)).expect("connects");
        driver.go().expect("goes");
        let owners = [driver.ready().pid, server.ready().pid];
        let patience = Instant::now() + PATIENCE;
        let known = |agent: &Agent, netns: u32| {
            let living = living(agent, netns);
            living
                .values()
                .any(|c| c.totals.polls > 1 && owner(c).is_some())
        };
        while !namespaces.iter().all(|n| known(&agent, *n)) {
            assert!(Instant::now() < patience);
            std::thread::sleep(agent.until_next_poll());
            agent.poll().expect("polls");
        }
        if opener_dies {
            driver.kill().expect("dies");
        } else {
            server.kill().expect("dies");
        }
        check_dead(&mut agent, namespaces, owners.map(Some));
    }

    // One dies between two polls.
    let server = serve();
    let mut driver = testbed
        .drive(&DriveOptions {
            mode: DriveMode::Die,
            requests: Some(3),
            ..to(&server)
        })
        .expect("connects");
    driver.go().expect("goes");
    let pid = driver.ready().pid;
    driver.report().expect_err("dies without a report");
    driver.finish().expect("is gone");
    check_dead(&mut agent, namespaces, [Some(pid), None]);
}

/// Both ends of the one connection have closed, and the owners are those, where given.
fn check_dead(agent: &mut Agent, namespaces: [u32; 2], owners: [Option<u32>; 2]) {
    let closed = closed(agent, &namespaces, 2);
    assert_eq!(closed.len(), 2);
    for (netns, pid) in namespaces.into_iter().zip(owners) {
        let end = closed.iter().find(|c| c.snapshot.id.netns == netns);
        let end = end.expect("has a final record");
        assert!(end.snapshot.closed);
        assert!(end.snapshot.stats.bytes_sent > Some(0));
        assert!(end.totals.polls > 0 && end.latest.is_some());
        if pid.is_some() {
            assert_eq!(owner(end), pid, "{:?}", end.snapshot.tuple);
        }
        assert!(living(agent, netns).is_empty());
    }
}
