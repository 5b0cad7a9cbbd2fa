// SPDX-License-Identifier: Apache-2.0
//! `slowpath path serve`: the end that answers OWAMP, TWAMP, STAMP, and requests of other slowpaths.
//!
//! What enters: connections and packets of anyone. What leaves: test packets to the address of a control
//! connection, and replies that are no longer than what they answer.
//!
//! What is promised: nothing goes to an address that did not ask. Over TCP an address has proven itself by the
//! handshake; over UDP it has not, so a reply is never longer than its request and no reply answers a reply.
//! Peers that are not allowed get no octet. Connections, sessions, packets, rates and records have limits
//! ([`Policy`]); a connection that does not get on is closed.

mod admission;
mod connection;
mod reflector;
mod requests;
mod sessions;
mod throughput;

pub use admission::{Cidr, CidrError, Gate, Policy, ThroughputLimits};

use crate::control::{Credentials, Modes};
use crate::session::PathError;
use crate::socket::WallClock;
use crate::time::Timestamp;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a listener waits before it looks whether it is to end.
const NAP: Duration = Duration::from_millis(20);

/// What is served where.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Addresses for OWAMP's control connections (port 861).
    pub owamp: Vec<SocketAddr>,
    /// For TWAMP's (port 862).
    pub twamp: Vec<SocketAddr>,
    /// For STAMP and TWAMP light (UDP port 862).
    pub stamp: Vec<SocketAddr>,
    /// For requests of other slowpaths ([`crate::requests::PORT`]).
    pub requests: Vec<SocketAddr>,
    /// Modes that are offered.
    pub modes: Modes,
    /// Keys that are known.
    pub secrets: Vec<Credentials>,
    /// Limits.
    pub policy: Policy,
    /// End after the first control connection that measured something.
    pub once: bool,
    /// This host's clock.
    pub clock: WallClock,
}

impl Default for ServeOptions {
    /// Nothing is served: in open mode, for this machine only, once addresses are named.
    fn default() -> Self {
        ServeOptions {
            owamp: Vec::new(),
            twamp: Vec::new(),
            stamp: Vec::new(),
            requests: Vec::new(),
            modes: Modes::OPEN,
            secrets: Vec::new(),
            policy: Policy::default(),
            once: false,
            clock: WallClock::default(),
        }
    }
}

/// What happened, counted.
#[derive(Debug, Default)]
pub struct ServeCounters {
    /// Control connections that were taken.
    pub connections: AtomicU64,
    /// Connections of peers that are not allowed, or over a limit.
    pub refused_connections: AtomicU64,
    /// Connections that broke the protocol, did not get on, or had a wrong key.
    pub failed_connections: AtomicU64,
    /// Sessions that were started.
    pub sessions: AtomicU64,
    /// Sessions that were refused by a limit.
    pub refused_sessions: AtomicU64,
    /// STAMP and TWAMP light packets that were reflected.
    pub reflected: AtomicU64,
    /// Such packets that were dropped: not allowed, too short, over the rate, replies, not authenticated.
    pub dropped: AtomicU64,
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: ServeOptions,
    pub(crate) gate: Arc<Gate>,
    pub(crate) counters: ServeCounters,
    pub(crate) tests: throughput::RunningTests,
    /// Traces to clients that run.
    pub(crate) routes: std::sync::atomic::AtomicUsize,
    pub(crate) stop: AtomicBool,
    pub(crate) started: Timestamp,
}

/// What connections of a listener speak.
#[derive(Clone, Copy, Debug)]
enum Service {
    Owamp,
    Twamp,
    Requests,
}

/// A server that runs.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    owamp: Vec<SocketAddr>,
    twamp: Vec<SocketAddr>,
    stamp: Vec<SocketAddr>,
    requests: Vec<SocketAddr>,
}

impl Serving {
    /// Opens all ports and starts to answer.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub fn start(options: ServeOptions) -> Result<Self, PathError> {
        let shared = Arc::new(Shared {
            gate: Arc::new(Gate::new(options.policy.clone())),
            counters: ServeCounters::default(),
            tests: throughput::RunningTests::default(),
            routes: std::sync::atomic::AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            started: options.clock.timestamp(),
            options,
        });
        let mut serving = Serving {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            owamp: Vec::new(),
            twamp: Vec::new(),
            stamp: Vec::new(),
            requests: Vec::new(),
        };
        for (addresses, service) in [
            (&shared.options.owamp, Service::Owamp),
            (&shared.options.twamp, Service::Twamp),
            (&shared.options.requests, Service::Requests),
        ] {
            for &address in addresses {
                let listener =
                    listen(address).map_err(PathError::io("listen for control connections"))?;
                let local = listener
                    .local_addr()
                    .map_err(PathError::io("learn the listener's port"))?;
                match service {
                    Service::Owamp => &mut serving.owamp,
                    Service::Twamp => &mut serving.twamp,
                    Service::Requests => &mut serving.requests,
                }
                .push(local);
                let shared = Arc::clone(&shared);
                serving.spawn("path-listen", move || accept(&listener, service, &shared))?;
            }
        }
        for &address in &shared.options.stamp {
            let reflector = reflector::Reflector::open(address, Arc::clone(&shared))?;
            serving.stamp.push(reflector.local()?);
            serving.spawn("path-reflect", move || reflector.run())?;
        }
        Ok(serving)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), PathError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads
            .push(thread.map_err(PathError::io("start a thread"))?);
        Ok(())
    }

    /// Where OWAMP is answered.
    #[must_use]
    pub fn owamp(&self) -> &[SocketAddr] {
        &self.owamp
    }

    /// Where TWAMP is answered.
    #[must_use]
    pub fn twamp(&self) -> &[SocketAddr] {
        &self.twamp
    }

    /// Where STAMP and TWAMP light are answered.
    #[must_use]
    pub fn stamp(&self) -> &[SocketAddr] {
        &self.stamp
    }

    /// Where requests are answered.
    #[must_use]
    pub fn requests(&self) -> &[SocketAddr] {
        &self.requests
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &ServeCounters {
        &self.shared.counters
    }

    /// Whether it has ended by itself (`once`).
    #[must_use]
    pub fn ended(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Ends all sessions and closes all ports.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(64)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Takes connections until the end, each on a thread of its own, as many as the policy allows.
fn accept(listener: &TcpListener, service: Service, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stop.load(Ordering::Acquire) {
        threads.retain(|thread| !thread.is_finished());
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                // Without descriptors, too, waiting is all that helps.
                if error.kind() != ErrorKind::Interrupted {
                    thread::sleep(NAP);
                }
                continue;
            }
        };
        let Some(admission) = shared.gate.admit(peer.ip()) else {
            shared
                .counters
                .refused_connections
                .fetch_add(1, Ordering::Relaxed);
            continue;
        };
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let of_thread = Arc::clone(shared);
        let work = move || match service {
            Service::Owamp => connection::run(stream, peer, false, &of_thread, admission),
            Service::Twamp => connection::run(stream, peer, true, &of_thread, admission),
            Service::Requests => requests::run(stream, peer, &of_thread, admission),
        };
        if let Ok(thread) = thread::Builder::new()
            .name("path-control".to_owned())
            .spawn(work)
        {
            threads.push(thread);
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}
