// SPDX-License-Identifier: Apache-2.0
//! Owners in the situations that mislead tools: the right process, or unknown with the right
//! reason; a wrong name in none. In the BPF tier and, where it can tell, in the inet_diag
//! tier.

use slowpath_agent::{Agent, Config, TierChoice};
use slowpath_model::{ConnectionId, Origin, Owner, TcpState, UnknownOwner};
use slowpath_testbed::{Actor, Namespace, Need, missing_requirements};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// Polls during which an owner has to stay what it is.
const STEADY: usize = 10;

use TierChoice::{Bpf, InetDiag};
const BOTH: &[TierChoice] = &[Bpf, InetDiag];

/// A namespace with an agent that looks at it.
struct Stage<'a> {
    agent: Agent,
    tier: TierChoice,
    namespace: &'a Namespace,
    netns: u32,
    directory: tempfile::TempDir,
    /// Connections that were there before the present part of the test.
    past: HashSet<ConnectionId>,
    closed: Vec<(ConnectionId, u16, u16, Owner)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Client,
    Server,
}
use End::{Client, Server};

const AT: &str = "127.0.0.1:7001";
const PORT: u16 = 7001;

impl Stage<'_> {
    fn actor(&self, name: &str) -> Actor {
        Actor::start(self.namespace, self.directory.path(), name).expect("starts an actor")
    }

    fn poll(&mut self) {
        std::thread::sleep(self.agent.until_next_poll());
        self.agent.poll().expect("polls");
        for c in self.agent.recently_closed() {
            let s = &c.snapshot;
            if s.id.netns == self.netns && !self.closed.iter().any(|k| k.0 == s.id) {
                let ports = (s.tuple.local.port(), s.tuple.remote.port());
                self.closed.push((s.id, ports.0, ports.1, c.owner.clone()));
            }
        }
    }

    /// That end of the connection to the port.
    fn owner(&self, end: End) -> Option<Owner> {
        self.agent
            .connections()
            .filter(|c| c.snapshot.id.netns == self.netns && !self.past.contains(&c.snapshot.id))
            .find(|c| match end {
                Client => c.snapshot.tuple.remote.port() == PORT,
                Server => c.snapshot.tuple.local.port() == PORT,
            })
            .map(|c| c.owner.clone())
    }

    fn closed_owner(&self, end: End) -> Option<Owner> {
        let mut of = self.closed.iter().filter(|c| match end {
            Client => c.2 == PORT,
            Server => c.1 == PORT,
        });
        of.next().map(|c| c.3.clone())
    }

    /// Waits until the owner is as expected, and sees that it stays so.
    fn expect(&mut self, end: End, what: &str, is: impl Fn(&Owner) -> bool) -> Owner {
        let patience = Instant::now() + PATIENCE;
        while !self.owner(end).is_some_and(|o| is(&o)) {
            let owner = self.owner(end);
            assert!(
                Instant::now() < patience,
                "{:?} {end:?} {what}: {owner:?}",
                self.tier
            );
            self.poll();
        }
        for _ in 0..STEADY {
            self.poll();
            let owner = self.owner(end).expect("is there still");
            assert!(
                is(&owner),
                "{:?} {end:?} {what}, then: {owner:?}",
                self.tier
            );
        }
        self.owner(end).expect("is there still")
    }

    fn is(&mut self, end: End, of: &Actor) -> Owner {
        let pid = of.pid();
        self.expect(end, &format!("is {pid}"), |o| o.pid() == Some(pid))
    }

    fn is_unknown(&mut self, end: End, reason: UnknownOwner) -> Owner {
        self.expect(end, reason.name(), |o| o.why_unknown() == Some(reason))
    }

    /// Waits until that end has closed.
    fn closes(&mut self, end: End) -> Owner {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(owner) = self.closed_owner(end) {
                return owner;
            }
            assert!(Instant::now() < patience, "{end:?} closes");
            self.poll();
        }
    }

    /// A listening actor and the descriptor.
    fn listening(&self, name: &str) -> (Actor, i32) {
        let mut server = self.actor(name);
        let fd = server.tell(&format!("listen {AT}")).expect("listens");
        (server, fd)
    }
}

fn tell(actor: &mut Actor, command: &str) -> i32 {
    actor
        .tell(command)
        .unwrap_or_else(|e| panic!("{command}: {e}"))
}

fn connect(actor: &mut Actor) -> i32 {
    tell(actor, &format!("connect {AT}"))
}

/// Plays `body` once in each of the tiers.
fn situation(test: &str, tiers: &[TierChoice], body: impl Fn(&mut Stage<'_>) + Sync) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {test}: {reason}");
        return;
    }
    for tier in tiers {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sp-{}-{number}-o", std::process::id());
        let namespace = Namespace::new(&name).expect("makes a namespace");
        let netns = namespace.inode().expect("has a number");
        // inet_diag sees the namespace in which it is opened.
        let entered = namespace.run(|| {
            let config = Config {
                interval: Duration::from_millis(20),
                tier: *tier,
                seed: Some(1),
                ..Config::default()
            };
            match Agent::start(config) {
                Ok(agent) => {
                    let mut stage = Stage {
                        agent,
                        tier: *tier,
                        netns,
                        namespace: &namespace,
                        directory: tempfile::tempdir().expect("a directory"),
                        past: HashSet::new(),
                        closed: Vec::new(),
                    };
                    stage.poll();
                    body(&mut stage);
                }
                Err(error) => println!("SKIPPED {test}: {error}"),
            }
        });
        entered.expect("enters");
    }
}

/// A new cgroup below the unified hierarchy; `None` where there is none to write to.
struct TestCgroup(Vec<PathBuf>);

impl TestCgroup {
    fn new(test: &str, path: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find_map(|line| {
            let (fields, kind) = line.split_once(" - ")?;
            kind.starts_with("cgroup2 ")
                .then(|| fields.split(' ').nth(4).map(PathBuf::from))?
        });
        let mut made = TestCgroup(Vec::new());
        let mut at = mount?;
        for part in path.split('/') {
            at = at.join(part);
            if let Err(error) = std::fs::create_dir(&at) {
                println!("SKIPPED {test}: {}: {error}", at.display());
                return None;
            }
            made.0.push(at.clone());
        }
        Some(made)
    }

    fn path(&self) -> &Path {
        self.0.last().expect("has a part")
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // Its processes have been killed; the kernel may still be taking them out.
        for path in self.0.iter().rev() {
            for _ in 0..1_000 {
                if std::fs::remove_dir(path).is_ok() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }
}

fn unique(name: &str) -> String {
    format!("slowpath-{}-{name}", std::process::id())
}

#[test]
fn fork_and_pass() {
    situation("fork_and_pass", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut opener = stage.actor("opener");
        let fd = connect(&mut opener);
        let child = opener.child("fork", "child").expect("forks");
        if stage.tier == Bpf {
            stage.is(Client, &opener);
        } else {
            // Nobody was seen opening it.
            stage.is_unknown(Client, UnknownOwner::HeldBySeveral);
        }
        tell(&mut opener, &format!("close {fd}"));
        stage.is(Client, &child);
    });
}

#[test]
fn a_server_that_forks_for_each_connection() {
    situation("a_server_that_forks_for_each_connection", BOTH, |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        let fd = tell(&mut server, &format!("accept {listener}"));
        stage.is(Server, &server);
        let worker = server.child("fork", "worker").expect("forks");
        tell(&mut server, &format!("close {fd}"));
        stage.is(Server, &worker);
        stage.is(Client, &client);
    });
}

#[test]
fn passed_over_a_unix_socket() {
    situation("passed_over_a_unix_socket", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut opener = stage.actor("opener");
        let pair = tell(&mut opener, "pair");
        let mut other = opener.child("fork", "other").expect("forks");
        let fd = connect(&mut opener);
        tell(&mut opener, &format!("pass {} {fd}", pair / 1_000));
        stage.is(Client, &opener);
        tell(&mut opener, &format!("close {fd}"));
        let on_its_way = match stage.tier {
            Bpf => UnknownOwner::InFlight,
            _ => UnknownOwner::HeldByNobody,
        };
        stage.is_unknown(Client, on_its_way);
        tell(&mut other, &format!("receive {}", pair % 1_000));
        stage.is(Client, &other);
    });
}

#[test]
fn accepts_in_one_process_and_serves_in_another() {
    situation(
        "accepts_in_one_process_and_serves_in_another",
        BOTH,
        |stage| {
            let mut front = stage.actor("front");
            let pair = tell(&mut front, "pair");
            let mut worker = front.child("fork", "worker").expect("forks");
            let listener = tell(&mut front, &format!("listen {AT}"));
            let mut client = stage.actor("client");
            connect(&mut client);
            stage.is_unknown(Server, UnknownOwner::NotAccepted);
            let fd = tell(&mut front, &format!("accept {listener}"));
            tell(&mut front, &format!("pass {} {fd}", pair / 1_000));
            tell(&mut worker, &format!("receive {}", pair % 1_000));
            stage.is_unknown(Server, UnknownOwner::HeldBySeveral);
            tell(&mut front, &format!("close {fd}"));
            stage.is(Server, &worker);
        },
    );
}

#[test]
fn a_service_manager_keeps_the_socket_that_it_accepted() {
    let test = "a_service_manager_keeps_the_socket_that_it_accepted";
    situation(test, BOTH, |stage| {
        let slice = unique("activation.slice");
        let Some(init) = TestCgroup::new(test, &format!("{slice}/init.scope")) else {
            return;
        };
        let unit = init.0[0].join("echo@1.service");
        std::fs::create_dir(&unit).expect("makes a cgroup");
        let unit = TestCgroup(vec![unit]);
        let (mut manager, listener) = stage.listening("manager");
        tell(&mut manager, &format!("join {}", init.path().display()));
        let mut client = stage.actor("client");
        connect(&mut client);
        tell(&mut manager, &format!("accept {listener}"));
        let mut service = manager.child("fork", "service").expect("forks");
        tell(&mut service, &format!("join {}", unit.path().display()));
        service.exec("served", None).expect("execs");
        let owner = stage.is(Server, &service);
        assert_eq!(owner.unit().map(|u| &**u), Some("echo@1.service"));
        drop((manager, client, service));
        drop(unit);
    });
}

#[test]
fn a_service_accepts_from_a_socket_that_its_manager_made() {
    situation(
        "a_service_accepts_from_a_socket_that_its_manager_made",
        BOTH,
        |stage| {
            let (mut manager, listener) = stage.listening("manager");
            let mut service = manager.child("fork", "service").expect("forks");
            let mut client = stage.actor("client");
            connect(&mut client);
            tell(&mut service, &format!("accept {listener}"));
            stage.is(Server, &service);
        },
    );
}

#[test]
fn a_container_in_nested_cgroups() {
    let test = "a_container_in_nested_cgroups";
    situation(test, BOTH, |stage| {
        let id = format!("{:064x}", std::process::id());
        let slice = unique("machine.slice");
        let path = format!("{slice}/docker-{id}.scope/system.slice/inner.service");
        let Some(cgroup) = TestCgroup::new(test, &path) else {
            return;
        };
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        tell(&mut client, &format!("join {}", cgroup.path().display()));
        connect(&mut client);
        let owner = stage.is(Client, &client);
        let container = owner.container().expect("is in a container");
        assert_eq!(&*container.id, id);
        assert_eq!(container.runtime.as_deref(), Some("docker"));
        assert_eq!(owner.unit().map(|u| &**u), Some("inner.service"));
        drop(client);
    });
}

#[test]
fn a_process_shorter_than_a_look() {
    // The inet_diag tier never sees such a connection.
    situation("a_process_shorter_than_a_look", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        stage.poll();
        let mut client = stage.actor("client");
        let pid = client.pid();
        connect(&mut client);
        let fd = tell(&mut server, &format!("accept {listener}"));
        client.exit().expect("exits");
        tell(&mut server, &format!("close {fd}"));
        let owner = stage.closes(Client);
        assert_eq!(owner.pid(), Some(pid));
        assert_eq!(owner.command().map(|c| &**c), Some("client.program"));
        let owner = stage.closes(Server);
        // Perhaps a look came in between.
        assert!(
            owner.pid() == Some(server.pid())
                || owner.why_unknown() == Some(UnknownOwner::ClosedBeforeLooked),
            "{owner:?}"
        );
    });
}

#[test]
fn handed_on_and_closed_between_two_looks() {
    situation("handed_on_and_closed_between_two_looks", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut opener = stage.actor("opener");
        // A look has just been: the next one is a second away.
        let mut other = stage.actor("other");
        connect(&mut other);
        stage.is(Client, &other);
        stage.past = stage.agent.connections().map(|c| c.snapshot.id).collect();
        let fd = connect(&mut opener);
        let mut child = opener.child("fork", "child").expect("forks");
        tell(&mut opener, &format!("close {fd}"));
        tell(&mut child, &format!("close {fd}"));
        drop((other, child, opener));
        tell(&mut server, &format!("close {listener}"));
        let owner = stage.closed_other_than_past();
        assert!(
            owner.why_unknown() == Some(UnknownOwner::HandedOn),
            "{owner:?}"
        );
    });
}

impl Stage<'_> {
    /// The client's end of the first connection of this part of the test that closes.
    fn closed_other_than_past(&mut self) -> Owner {
        let patience = Instant::now() + PATIENCE;
        loop {
            let past = &self.past;
            let mut of = self
                .closed
                .iter()
                .filter(|c| c.2 == PORT && !past.contains(&c.0));
            if let Some(closed) = of.next() {
                return closed.3.clone();
            }
            assert!(Instant::now() < patience, "closes");
            self.poll();
        }
    }
}

#[test]
fn threads_call_themselves_what_they_like() {
    situation("threads_call_themselves_what_they_like", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        tell(&mut client, &format!("thread-connect pool-7 {AT}"));
        let owner = stage.is(Client, &client);
        assert_eq!(owner.command().map(|c| &**c), Some("client.program"));
    });
}

#[test]
fn the_thread_that_connected_has_ended() {
    situation("the_thread_that_connected_has_ended", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        tell(&mut client, &format!("thread-connect-end pool-7 {AT}"));
        stage.is(Client, &client);
    });
}

#[test]
fn a_thread_with_a_table_of_its_own() {
    situation("a_thread_with_a_table_of_its_own", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        tell(&mut client, &format!("thread-hold {fd}"));
        stage.is(Client, &client);
    });
}

#[test]
fn processes_that_share_a_table() {
    situation("processes_that_share_a_table", BOTH, |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        let _sharer = client.child("share", "sharer").expect("clones");
        connect(&mut client);
        let _partner = server.child("share", "partner").expect("clones");
        tell(&mut server, &format!("accept {listener}"));
        stage.is_unknown(Server, UnknownOwner::HeldBySeveral);
        match stage.tier {
            Bpf => stage.is(Client, &client),
            _ => stage.is_unknown(Client, UnknownOwner::HeldBySeveral),
        };
    });
}

#[test]
fn duplicates_of_a_descriptor() {
    situation("duplicates_of_a_descriptor", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        tell(&mut client, &format!("dup {fd}"));
        stage.is(Client, &client);
        tell(&mut client, &format!("close {fd}"));
        stage.is(Client, &client);
    });
}

#[test]
fn inetd_hands_over_standard_input() {
    situation("inetd_hands_over_standard_input", BOTH, |stage| {
        let (mut inetd, listener) = stage.listening("inetd");
        let mut client = stage.actor("client");
        connect(&mut client);
        let fd = tell(&mut inetd, &format!("accept {listener}"));
        let mut served = inetd.child("fork", "served").expect("forks");
        tell(&mut inetd, &format!("close {fd}"));
        served.exec("in.served", Some(fd)).expect("execs");
        let pid = served.pid();
        let owner = stage.expect(Server, "is in.served", |o| {
            o.pid() == Some(pid) && o.command().is_some_and(|c| &**c == "in.served")
        });
        let line = &owner.process().expect("is known").command_line;
        let words: Vec<&str> = line.as_deref().expect("has one").split(' ').collect();
        assert!(words[0].ends_with("in.served"), "{words:?}");
    });
}

#[test]
fn another_program_after_connecting() {
    situation("another_program_after_connecting", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        stage.is(Client, &client);
        client.exec("turned", None).expect("execs");
        let pid = client.pid();
        stage.expect(Client, "is turned", |o| {
            o.pid() == Some(pid) && o.command().is_some_and(|c| &**c == "turned")
        });
    });
}

#[test]
fn a_daemon_forks_twice() {
    situation("a_daemon_forks_twice", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut first = stage.actor("first");
        connect(&mut first);
        let mut second = first.child("fork", "second").expect("forks");
        first.exit().expect("exits");
        tell(&mut second, "setsid");
        let third = second.child("fork", "third").expect("forks");
        second.exit().expect("exits");
        stage.is(Client, &third);
    });
}

#[test]
fn the_opener_is_killed_and_another_holds_on() {
    situation("the_opener_is_killed_and_another_holds_on", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut opener = stage.actor("opener");
        connect(&mut opener);
        let child = opener.child("fork", "child").expect("forks");
        // Its drop kills it.
        drop(opener);
        stage.is(Client, &child);
    });
}

#[test]
fn a_pid_that_is_given_again() {
    let test = "a_pid_that_is_given_again";
    situation(test, BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut parent = stage.actor("parent");
        let mut opener = parent.child("fork", "opener").expect("forks");
        connect(&mut opener);
        let heir = opener.child("fork", "heir").expect("forks");
        let pid = opener.pid();
        opener.exit().expect("exits");
        // The next process gets the number after this, if it is free and nobody is faster.
        let again = (0..200).find_map(|i| {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let child = parent.child("fork", &format!("again{i}")).expect("forks");
            (child.pid() == pid).then_some(child)
        });
        if again.is_none() {
            println!("SKIPPED {test}: the pid was not given again");
            return;
        }
        stage.is(Client, &heir);
    });
}

/// The innermost number of a process.
fn namespaced(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[test]
fn a_pid_namespace_of_its_own() {
    situation("a_pid_namespace_of_its_own", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut outside = stage.actor("outside");
        let mut inside = outside.child("pid-namespace", "inside").expect("clones");
        connect(&mut inside);
        assert_eq!(namespaced(inside.pid()), Some(1));
        stage.is(Client, &inside);
    });
}

#[test]
fn the_first_subflow_of_mptcp() {
    situation("the_first_subflow_of_mptcp", &[Bpf], |stage| {
        if stage.namespace.sysctl("net.mptcp.enabled", "1").is_err() {
            println!("SKIPPED the_first_subflow_of_mptcp: no MPTCP in this kernel");
            return;
        }
        let mut server = stage.actor("server");
        let listener = tell(&mut server, &format!("listen-mptcp {AT}"));
        let mut client = stage.actor("client");
        tell(&mut client, &format!("connect-mptcp {AT}"));
        tell(&mut server, &format!("accept {listener}"));
        stage.is(Client, &client);
        stage.is(Server, &server);
    });
}

#[test]
fn a_closed_connection_names_who_listened() {
    situation("a_closed_connection_names_who_listened", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        // A look that sees the listening socket, and the next one a second away.
        connect(&mut client);
        tell(&mut server, &format!("accept {listener}"));
        stage.is(Server, &server);
        stage.past = stage.agent.connections().map(|c| c.snapshot.id).collect();
        let fd = connect(&mut client);
        let accepted = tell(&mut server, &format!("accept {listener}"));
        tell(&mut server, &format!("close {accepted}"));
        tell(&mut client, &format!("close {fd}"));
        let patience = Instant::now() + PATIENCE;
        let owner = loop {
            let past = &stage.past;
            let mut of = stage
                .closed
                .iter()
                .filter(|c| c.1 == PORT && !past.contains(&c.0));
            if let Some(closed) = of.next() {
                break closed.3.clone();
            }
            assert!(Instant::now() < patience, "closes");
            stage.poll();
        };
        assert_eq!(owner.why_unknown(), Some(UnknownOwner::ClosedBeforeLooked));
        assert_eq!(owner.listener.as_deref(), Some("server.program"));
    });
}

#[test]
fn origins_are_what_they_are() {
    situation("origins_are_what_they_are", &[Bpf], |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        stage.is(Client, &client);
        let netns = stage.netns;
        let ends = stage
            .agent
            .connections()
            .filter(|c| c.snapshot.id.netns == netns);
        for end in ends {
            let opened = end.snapshot.tuple.remote.port() == PORT;
            let origin = if opened {
                Origin::Opened
            } else {
                Origin::Accepted
            };
            assert_eq!(end.snapshot.origin, origin);
            assert_eq!(end.snapshot.stats.state, TcpState::Established);
        }
    });
}
