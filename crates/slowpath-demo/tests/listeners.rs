// SPDX-License-Identifier: Apache-2.0
//! Listening sockets that turn connections away, through the whole agent: the number that
//! it gives is the kernel's own, read from the namespace's counters.

use slowpath_agent::{Agent, Config, LiveListener, TierChoice};
use slowpath_testbed::{
    DropRule, Dropper, Family, LinkOptions, Need, Side, Testbed, attempts, missing_requirements,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the agent looks.
#[derive(Clone, Copy)]
enum Observer {
    /// With BPF, which sees every namespace.
    Bpf,
    /// Without, from the namespace that it looks at.
    Inside,
    /// Without, from another one.
    Outside,
}

/// Runs `body` with a testbed and an agent that sees side B.
fn with_agent(test: &str, observer: Observer, body: impl Fn(&mut Testbed, &mut Agent) + Sync) {
    let tier = match observer {
        Observer::Bpf => TierChoice::Bpf,
        Observer::Inside | Observer::Outside => TierChoice::InetDiag,
    };
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {test}: {reason}");
        return;
    }
    attempts(test, || {
        let mut testbed = Testbed::new(test).expect("builds");
        testbed
            .add_link(&LinkOptions::default())
            .expect("makes a link");
        for (name, value) in [
            ("net.core.somaxconn", "4096"),
            ("net.ipv4.tcp_syncookies", "0"),
            ("net.ipv4.tcp_max_syn_backlog", "4096"),
            ("net.ipv4.tcp_abort_on_overflow", "0"),
            // What is half-open stays so for as long as the test looks.
            ("net.ipv4.tcp_synack_retries", "5"),
        ] {
            testbed.sysctl(name, value).expect("pins a setting");
        }
        let start = || {
            Agent::start(Config {
                tier,
                interval: Duration::from_millis(100),
                seed: Some(1),
                ..Config::default()
            })
        };
        match observer {
            Observer::Inside => inside(&mut testbed, start, &body, test),
            _ => match start() {
                Ok(mut agent) => body(&mut testbed, &mut agent),
                Err(error) => println!("SKIPPED {test}: {error}"),
            },
        }
    });
}

/// Has the agent live on a thread inside side B.
fn inside(
    testbed: &mut Testbed,
    start: impl Fn() -> Result<Agent, slowpath_agent::StartError> + Sync,
    body: &(impl Fn(&mut Testbed, &mut Agent) + Sync),
    test: &str,
) {
    let path = format!("/run/netns/{}", testbed.namespace(Side::B).name());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let namespace = std::fs::File::open(path).expect("is there");
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .expect("enters");
            match start() {
                Ok(mut agent) => body(testbed, &mut agent),
                Err(error) => println!("SKIPPED {test}: {error}"),
            }
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A listener in side B.
fn listen(testbed: &Testbed, ip: IpAddr, port: u16, backlog: i32, group: bool) -> Socket {
    let namespace = testbed.namespace(Side::B);
    namespace
        .run(|| {
            let address = SocketAddr::new(ip, port);
            let socket = Socket::new(
                Domain::for_address(address),
                Type::STREAM,
                Some(Protocol::TCP),
            )
            .expect("opens");
            socket.set_reuse_port(group).expect("joins its group");
            socket.bind(&address.into()).expect("binds");
            socket.listen(backlog).expect("listens");
            socket
        })
        .expect("enters")
}

fn address(socket: &Socket) -> SocketAddr {
    let address = socket.local_addr().expect("is bound");
    address.as_socket().expect("is an internet address")
}

/// Begins `count` connections from side A to `to`, without waiting for any.
fn knock(testbed: &Testbed, to: SocketAddr, count: usize) -> Vec<Socket> {
    let namespace = testbed.namespace(Side::A);
    namespace
        .run(|| {
            (0..count)
                .map(|_| {
                    let socket =
                        Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))
                            .expect("opens");
                    socket.set_nonblocking(true).expect("does not block");
                    match socket.connect(&to.into()) {
                        Ok(()) => {}
                        Err(e)
                            if e.raw_os_error()
                                == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
                        Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                        Err(e) => panic!("connecting: {e}"),
                    }
                    socket
                })
                .collect()
        })
        .expect("enters")
}

fn counter(testbed: &Testbed, name: &str) -> u64 {
    let counters = testbed.counters(Side::B).expect("reads");
    let value = counters.get(&format!("TcpExt.{name}"));
    value.expect("the kernel counts it") as u64
}

fn cookie(socket: &Socket) -> u64 {
    rustix::net::sockopt::socket_cookie(socket).expect("has a cookie")
}

fn of<'a>(agent: &'a Agent, listener: &Socket) -> Option<&'a LiveListener> {
    let cookie = cookie(listener);
    agent.listeners().find(|l| l.snapshot.id.cookie == cookie)
}

/// Polls until `done` says so.
fn poll_until(agent: &mut Agent, what: &str, mut done: impl FnMut(&Agent) -> bool) {
    let patience = Instant::now() + PATIENCE;
    loop {
        agent.poll().expect("polls");
        if done(agent) {
            return;
        }
        let left: Vec<_> = agent.listeners().filter(|l| l.latest.is_some()).collect();
        assert!(Instant::now() < patience, "{what}: {left:#?}");
        std::thread::sleep(agent.until_next_poll());
    }
}

/// Polls until the listener was met: the tier that only looks now and then must know it
/// before it has trouble.
fn meet(agent: &mut Agent, listener: &Socket) {
    poll_until(agent, "a first look", |agent| of(agent, listener).is_some());
}

/// Polls for two full rounds: whatever happened before the call is reported.
fn settle(agent: &mut Agent) {
    let begun = Instant::now();
    poll_until(agent, "rounds", |_| {
        begun.elapsed() > Duration::from_millis(2_200)
    });
}

fn accept_overflow(test: &str, family: Family, observer: Observer) {
    with_agent(test, observer, |testbed, agent| {
        agent.poll().expect("polls");
        const BACKLOG: usize = 4;
        let ip = testbed.link(0).b_address(family);
        let listener = listen(testbed, ip, 0, BACKLOG as i32, false);
        meet(agent, &listener);
        let clients = knock(testbed, address(&listener), 20);
        poll_until(agent, "an overflow", |agent| {
            of(agent, &listener).is_some_and(|l| l.accept_overflows.rounds > 0)
        });
        let live = of(agent, &listener).expect("is observed");
        let verdict = live.latest.as_ref().expect("just judged");
        assert_eq!(verdict.deltas.backlog as usize, BACKLOG);
        assert_eq!(verdict.deltas.accept_queue as usize, BACKLOG + 1);
        assert_eq!(live.owner.pid(), Some(std::process::id()));
        // No client tries again any more: the counters stand still.
        drop(clients);
        let overflows = counter(testbed, "ListenOverflows");
        assert_eq!(counter(testbed, "ListenDrops"), overflows);
        poll_until(agent, "all of it", |agent| {
            of(agent, &listener).is_some_and(|l| l.accept_overflows.events >= overflows)
        });
        assert!(overflows >= 20 - BACKLOG as u64 - 1);
        let live = of(agent, &listener).expect("is observed");
        assert_eq!(live.accept_overflows.events, overflows);
        assert_eq!(live.syn_overflows.rounds, 0);
    });
}

#[test]
fn an_accept_queue_overflows() {
    accept_overflow("accept4", Family::Ipv4, Observer::Bpf);
    accept_overflow("accept6", Family::Ipv6, Observer::Bpf);
}

#[test]
fn an_accept_queue_overflows_without_bpf() {
    accept_overflow("acceptd", Family::Ipv4, Observer::Inside);
    // In another namespace than the agent's.
    accept_overflow("accepto", Family::Ipv6, Observer::Outside);
}

fn syn_overflow(test: &str, family: Family, cookies: bool, observer: Observer) {
    with_agent(test, observer, |testbed, agent| {
        let setting = if cookies { "1" } else { "0" };
        testbed
            .sysctl("net.ipv4.tcp_syncookies", setting)
            .expect("sets");
        agent.poll().expect("polls");
        // The SYN/ACKs do not arrive: every connection stays half-open.
        let link = testbed.link(0);
        let dropper = Dropper::attach(
            testbed.namespace(Side::A),
            link.interface(),
            DropRule::default(),
        )
        .expect("attaches");
        dropper.set_blackout(true).expect("goes dark");
        const BACKLOG: i32 = 8;
        let ip = link.b_address(family);
        let listener = listen(testbed, ip, 0, BACKLOG, false);
        meet(agent, &listener);
        let clients = knock(testbed, address(&listener), 30);
        poll_until(agent, "an overflow", |agent| {
            of(agent, &listener).is_some_and(|l| l.syn_overflows.rounds > 0)
        });
        let live = of(agent, &listener).expect("is observed");
        let verdict = live.latest.as_ref().expect("just judged");
        // Full at the backlog or, in later kernels, above it.
        let queue = verdict.deltas.syn_queue.expect("is known") as i32;
        assert!((BACKLOG..=BACKLOG + 1).contains(&queue), "{queue}");
        drop(clients);
        let name = if cookies {
            "TCPReqQFullDoCookies"
        } else {
            "TCPReqQFullDrop"
        };
        let full = counter(testbed, name);
        assert!(full >= 30 - BACKLOG as u64 - 1, "{full}");
        poll_until(agent, "all of it", |agent| {
            of(agent, &listener).is_some_and(|l| l.syn_overflows.events >= full)
        });
        let live = of(agent, &listener).expect("is observed");
        assert_eq!(live.syn_overflows.events, full);
        assert_eq!(live.accept_overflows.rounds, 0);
        assert_eq!(counter(testbed, "ListenOverflows"), 0);
    });
}

#[test]
fn a_syn_queue_overflows() {
    syn_overflow("syn4", Family::Ipv4, false, Observer::Bpf);
}

#[test]
fn a_syn_queue_overflows_into_cookies_over_ipv6() {
    syn_overflow("cookies6", Family::Ipv6, true, Observer::Bpf);
}

#[test]
fn a_syn_queue_overflows_into_cookies() {
    syn_overflow("cookies4", Family::Ipv4, true, Observer::Bpf);
}

#[test]
fn a_syn_queue_overflows_without_bpf() {
    syn_overflow("synd", Family::Ipv4, false, Observer::Inside);
}

/// Opens `count` connections one after the other, each accepted at once.
fn serve(testbed: &Testbed, listener: &Socket, count: usize) {
    let to = address(listener);
    for _ in 0..count {
        let client = testbed
            .namespace(Side::A)
            .run(|| std::net::TcpStream::connect(to).expect("connects"))
            .expect("enters");
        let (accepted, _) = listener.accept().expect("accepts");
        drop((client, accepted));
    }
}

#[test]
fn a_busy_listener_that_accepts_is_fine() {
    with_agent("busy", Observer::Bpf, |testbed, agent| {
        agent.poll().expect("polls");
        let ip = testbed.link(0).b_address(Family::Ipv4);
        let listener = listen(testbed, ip, 0, 16, false);
        meet(agent, &listener);
        for _ in 0..5 {
            serve(testbed, &listener, 100);
            agent.poll().expect("polls");
        }
        // A burst that the backlog holds.
        let burst = knock(testbed, address(&listener), 16);
        for _ in 0..burst.len() {
            listener.accept().expect("accepts");
        }
        settle(agent);
        assert_eq!(
            counter(testbed, "ListenDrops"),
            0,
            "the machine was too slow"
        );
        let live = of(agent, &listener).expect("is observed");
        assert_eq!(
            (live.accept_overflows.rounds, live.syn_overflows.rounds),
            (0, 0)
        );
        assert_eq!(live.latest, None);
    });
}

#[test]
fn the_member_of_a_group_that_overflows_is_named() {
    with_agent("group", Observer::Bpf, |testbed, agent| {
        agent.poll().expect("polls");
        let ip = testbed.link(0).b_address(Family::Ipv4);
        // The kernel spreads connections over the group by their addresses: both members
        // get some of forty, and one of them has room for all.
        let slow = listen(testbed, ip, 0, 1, true);
        let roomy = listen(testbed, ip, address(&slow).port(), 1_000, true);
        let clients = knock(testbed, address(&slow), 40);
        poll_until(agent, "an overflow", |agent| {
            of(agent, &slow).is_some_and(|l| l.accept_overflows.rounds > 0)
        });
        drop(clients);
        let overflows = counter(testbed, "ListenOverflows");
        poll_until(agent, "all of it", |agent| {
            of(agent, &slow).is_some_and(|l| l.accept_overflows.events >= overflows)
        });
        let named = of(agent, &slow).expect("is observed");
        assert_eq!(named.snapshot.reuse_port, Some(true));
        assert_eq!(
            named.accept_overflows.events,
            counter(testbed, "ListenOverflows")
        );
        let other = of(agent, &roomy).expect("is observed");
        assert_eq!(
            (other.accept_overflows.rounds, other.syn_overflows.rounds),
            (0, 0)
        );
    });
}

#[test]
fn two_listeners_overflow_for_different_reasons() {
    with_agent("both", Observer::Bpf, |testbed, agent| {
        agent.poll().expect("polls");
        let link = testbed.link(0);
        let ip = link.b_address(Family::Ipv4);
        let full = listen(testbed, ip, 0, 2, false);
        let flooded = listen(testbed, ip, 0, 8, false);
        // Three connections fill the first one's queue before it goes dark.
        let mut clients = knock(testbed, address(&full), 3);
        poll_until(agent, "a full queue", |agent| {
            of(agent, &full).is_some_and(|l| l.snapshot.accept_queue == 3)
        });
        let dropper = Dropper::attach(
            testbed.namespace(Side::A),
            link.interface(),
            DropRule::default(),
        )
        .expect("attaches");
        dropper.set_blackout(true).expect("goes dark");
        clients.extend(knock(testbed, address(&full), 5));
        clients.extend(knock(testbed, address(&flooded), 20));
        poll_until(agent, "both overflows", |agent| {
            of(agent, &full).is_some_and(|l| l.accept_overflows.rounds > 0)
                && of(agent, &flooded).is_some_and(|l| l.syn_overflows.rounds > 0)
        });
        drop(clients);
        let overflows = counter(testbed, "ListenOverflows");
        let others = counter(testbed, "ListenDrops") - overflows;
        poll_until(agent, "all of it", |agent| {
            of(agent, &full).is_some_and(|l| l.accept_overflows.events >= overflows)
                && of(agent, &flooded).is_some_and(|l| l.syn_overflows.events >= others)
        });
        let (full, flooded) = (
            of(agent, &full).expect("is observed"),
            of(agent, &flooded).expect("is observed"),
        );
        assert_eq!(full.accept_overflows.events, overflows);
        assert_eq!(full.syn_overflows.rounds, 0);
        assert_eq!(
            flooded.syn_overflows.events,
            counter(testbed, "ListenDrops") - overflows
        );
        assert_eq!(flooded.accept_overflows.rounds, 0);
    });
}

#[test]
fn drops_of_a_closing_listener_are_reported() {
    with_agent("closing", Observer::Bpf, |testbed, agent| {
        agent.poll().expect("polls");
        let ip = testbed.link(0).b_address(Family::Ipv4);
        let listener = listen(testbed, ip, 0, 1, false);
        let closing = cookie(&listener);
        let clients = knock(testbed, address(&listener), 10);
        let dropped = counter(testbed, "ListenOverflows");
        assert!(dropped >= 8, "{dropped}");
        drop(listener);
        poll_until(agent, "its last figures", |agent| {
            agent.listeners().any(|l| {
                l.snapshot.id.cookie == closing
                    && l.snapshot.closed
                    && l.accept_overflows.events >= dropped
            })
        });
        drop(clients);
        agent.poll().expect("polls");
        assert!(agent.listeners().all(|l| l.snapshot.id.cookie != closing));
    });
}

/// Prints what a round costs with five thousand listeners that show nothing.
#[test]
#[ignore = "soak: a measurement"]
fn idle_listeners_cost_a_step_of_a_walk() {
    with_agent("idle", Observer::Bpf, |testbed, agent| {
        const LISTENERS: usize = 5_000;
        agent.measure_programs().expect("counts");
        let cost = |agent: &Agent| {
            let programs = agent.programs();
            let walk = programs.iter().find(|p| p.program == "walk_listeners");
            walk.map_or((0, 0), |p| (p.runs, p.nanos))
        };
        let measure = |agent: &mut Agent, what: &str| {
            settle(agent);
            let (before, cpu) = (cost(agent), agent.cpu());
            let begun = Instant::now();
            poll_until(agent, "rounds", |_| {
                begun.elapsed() > Duration::from_secs(10)
            });
            let (runs, nanos) = (cost(agent).0 - before.0, cost(agent).1 - before.1);
            println!(
                "{what}: {runs} listeners looked at in {nanos} ns of BPF, {} of the agent in {:?}",
                agent.cpu().saturating_sub(cpu),
                begun.elapsed()
            );
            (runs, nanos)
        };
        measure(agent, "without");
        let ip = testbed.link(0).b_address(Family::Ipv4);
        let listeners: Vec<Socket> = (0..LISTENERS)
            .map(|_| listen(testbed, ip, 0, 16, false))
            .collect();
        let (runs, nanos) = measure(agent, "with five thousand");
        drop(listeners);
        let each = nanos as f64 / runs.max(1) as f64;
        println!("{each:.0} ns a listener and round");
        assert!(each < 2_000.0, "{each}");
    });
}
