// SPDX-License-Identifier: Apache-2.0
//! A namespace with actors in it and an agent that looks at them.

use End::{Client, ClientAt, Server, ServerOf};
use TierChoice::{Bpf, InetDiag};
use slowpath_agent::{Agent, Config, LiveConnection, TierChoice};
use slowpath_model::{ConnectionId, FourTuple, Owner, UnknownOwner};
use slowpath_testbed::{Actor, Namespace, Need, missing_requirements};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls during which an owner has to stay what it is.
const STEADY: usize = 10;

pub const BOTH: &[TierChoice] = &[Bpf, InetDiag];

/// A namespace with an agent that looks at it.
pub struct Stage<'a> {
    pub agent: Agent,
    pub tier: TierChoice,
    pub namespace: &'a Namespace,
    /// The namespace whose connections count.
    pub netns: u32,
    pub directory: tempfile::TempDir,
    /// Connections that were there before the present part of the test.
    past: HashSet<ConnectionId>,
    closed: Vec<(FourTuple, ConnectionId, Owner)>,
}

#[derive(Clone, Copy, Debug)]
pub enum End {
    Client,
    Server,
    /// The server's end of the connection from that port.
    ServerOf(u16),
    /// The client's end of the connection from that address.
    ClientAt(IpAddr),
}

pub const AT: &str = "127.0.0.1:7001";
pub const PORT: u16 = 7001;

impl End {
    pub fn is(self, tuple: &FourTuple) -> bool {
        match self {
            Client => tuple.remote.port() == PORT,
            Server => tuple.local.port() == PORT,
            ServerOf(port) => tuple.local.port() == PORT && tuple.remote.port() == port,
            ClientAt(ip) => tuple.remote.port() == PORT && tuple.local.ip() == ip,
        }
    }
}

impl Stage<'_> {
    pub fn actor(&self, name: &str) -> Actor {
        Actor::start(self.namespace, self.directory.path(), name).expect("starts an actor")
    }

    pub fn poll(&mut self) {
        std::thread::sleep(self.agent.until_next_poll());
        self.agent.poll().expect("polls");
        for c in self.agent.recently_closed() {
            let s = &c.snapshot;
            if s.id.netns == self.netns && !self.closed.iter().any(|k| k.1 == s.id) {
                self.closed.push((s.tuple, s.id, c.owner.clone()));
            }
        }
    }

    fn present(&self) -> impl Iterator<Item = &LiveConnection> {
        self.agent
            .connections()
            .filter(|c| c.snapshot.id.netns == self.netns && !self.past.contains(&c.snapshot.id))
    }

    /// The owner of that end of the connection.
    pub fn owner(&self, end: End) -> Option<Owner> {
        self.present()
            .find(|c| end.is(&c.snapshot.tuple))
            .map(|c| c.owner.clone())
    }

    /// The owners of all such ends.
    pub fn owners(&self, end: End) -> Vec<Owner> {
        self.present()
            .filter(|c| end.is(&c.snapshot.tuple))
            .map(|c| c.owner.clone())
            .collect()
    }

    /// What was there until now counts no more.
    pub fn begin_anew(&mut self) {
        self.past = self.agent.connections().map(|c| c.snapshot.id).collect();
    }

    /// Waits until the owner is as expected, and sees that it stays so.
    pub fn expect(&mut self, end: End, what: &str, is: impl Fn(&Owner) -> bool) -> Owner {
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

    pub fn is(&mut self, end: End, of: &Actor) -> Owner {
        let pid = of.pid();
        self.expect(end, &format!("is {pid}"), |o| o.pid() == Some(pid))
    }

    pub fn is_unknown(&mut self, end: End, reason: UnknownOwner) -> Owner {
        self.expect(end, reason.name(), |o| o.why_unknown() == Some(reason))
    }

    /// Waits until that end has closed; gives its owner.
    pub fn closes(&mut self, end: End) -> Owner {
        let patience = Instant::now() + PATIENCE;
        loop {
            let past = &self.past;
            let mut closed = self.closed.iter();
            if let Some(c) = closed.find(|c| end.is(&c.0) && !past.contains(&c.1)) {
                return c.2.clone();
            }
            assert!(Instant::now() < patience, "{end:?} closes");
            self.poll();
        }
    }

    /// A listening actor and the descriptor.
    pub fn listening(&self, name: &str) -> (Actor, i32) {
        let mut server = self.actor(name);
        let fd = server.command(&format!("listen {AT}")).expect("listens");
        (server, fd)
    }
}

/// Why no process is found to hold a socket that no descriptor stands for: without BPF it may
/// be one of a process that this one may not look at, if there is any.
pub fn unheld(tier: TierChoice) -> UnknownOwner {
    let processes = std::fs::read_dir("/proc").expect("lists processes");
    let mut tables = processes
        .flatten()
        .filter_map(|p| std::fs::read_dir(p.path().join("fd")).ok());
    let hides = |fd: std::io::Result<std::fs::DirEntry>| {
        let target = fd.and_then(|fd| std::fs::read_link(fd.path()));
        target.is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
    };
    if tier == InetDiag && tables.any(|mut table| table.any(hides)) {
        UnknownOwner::NoPermission
    } else {
        UnknownOwner::NoHolder
    }
}

pub fn command(actor: &mut Actor, command: &str) -> i32 {
    actor
        .command(command)
        .unwrap_or_else(|e| panic!("{command}: {e}"))
}

pub fn connect(actor: &mut Actor) -> i32 {
    command(actor, &format!("connect {AT}"))
}

/// Plays `body` once in each of the tiers.
pub fn situation(test: &str, tiers: &[TierChoice], body: impl Fn(&mut Stage<'_>) + Sync) {
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
pub struct TestCgroup(pub Vec<PathBuf>);

impl TestCgroup {
    pub fn new(test: &str, path: &str) -> Option<Self> {
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

    pub fn path(&self) -> &Path {
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

pub fn unique(name: &str) -> String {
    format!("slowpath-{}-{name}", std::process::id())
}
