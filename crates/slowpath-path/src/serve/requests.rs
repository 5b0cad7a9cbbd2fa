// SPDX-License-Identifier: Apache-2.0
//! Connections that bring requests, and those that carry the data of one.

use super::Shared;
use super::admission::Admission;
use super::throughput::{Slot, TestRefused};
use crate::requests::message::{
    Answer, Command, DataUse, Direction, Octets, Opened, Opening, Refusal, Request,
    ThroughputRequest, Token,
};
use crate::requests::{Greeting, Link, LinkError, MOST_OCTETS, Proofs, Side};
use crate::route::{Engine, Route, TraceOptions, trace};
use crate::session::random;
use crate::socket::monotonic;
use crate::throughput::delay::echo;
use crate::throughput::end::{Role, Timing, run as run_end};
use crate::throughput::tcp::{SocketError, abort, set_options};
use socket2::SockRef;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The opening must be through after this, however it trickles.
const SET_UP: Duration = Duration::from_secs(10);

/// A client that does not bring a whole message to its end in so long is sent away.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests of one connection.
const MOST_REQUESTS: usize = 16;

/// Streams of one test.
pub(super) const MOST_STREAMS: u16 = 16;

/// Traces that clients have asked for, at a time.
const MOST_TRACES: usize = 4;

/// Rounds of such a trace are repeated for so long at most.
const LONGEST_TRACE: Duration = Duration::from_secs(60);

/// Beyond that: the search for ways, for loss and for the MTU.
const SLOWEST_TRACE: Duration = Duration::from_secs(100);

/// Probes a second of such a trace, at most.
const LARGEST_RATE: u32 = 100;

/// Echo requests of it.
const MOST_LOSS_PROBES: u32 = 100;

/// Why the connection ended.
enum Ending {
    /// The client closed it, or the server ends.
    Closed,
    /// It broke the protocol, did not get on, or had a wrong key.
    Failed,
}

impl From<LinkError> for Ending {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed | LinkError::Stopped | LinkError::Io(_) => Ending::Closed,
            LinkError::Late | LinkError::Channel(_) => Ending::Failed,
        }
    }
}

/// Serves one connection until one of its ends closes it.
pub(super) fn run(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>, admission: Admission) {
    let local = stream.local_addr();
    let Some((local, link)) = local.ok().zip(Link::new(stream, Side::Server).ok()) else {
        return;
    };
    let connection = Connection {
        link,
        peer,
        local: local.ip().to_canonical(),
        shared,
        measured: false,
    };
    connection.serve(admission);
}

/// Whether a congestion control is one that the kernel has now: of another name the kernel would load a module, because
/// this process may be privileged (`tcp_ca_find_autoload`), and that is no client's business.
fn is_loaded(name: Option<&str>) -> bool {
    let Some(name) = name else {
        return true;
    };
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = std::fs::read_to_string(file).unwrap_or_default();
    names.split_ascii_whitespace().any(|known| known == name)
}

struct Connection<'a> {
    link: Link,
    peer: SocketAddr,
    /// The address that it was asked at.
    local: IpAddr,
    shared: &'a Arc<Shared>,
    measured: bool,
}

impl Connection<'_> {
    fn serve(mut self, admission: Admission) {
        let shared = self.shared;
        let result = match self.open() {
            Ok(Some((slot, use_for))) => {
                self.carry(slot, use_for, admission);
                return;
            }
            Ok(None) => self.answer_requests(),
            Err(ending) => Err(ending),
        };
        if let Err(Ending::Failed) = result {
            shared
                .counters
                .failed_connections
                .fetch_add(1, Ordering::Relaxed);
        }
        if self.measured && shared.options.once {
            shared.stop.store(true, Ordering::Release);
        }
        drop(admission);
    }

    fn refuse(&mut self, reason: Refusal) -> Ending {
        // The client may have gone.
        let _ = self.link.send(&Opened::Refused { reason });
        Ending::Failed
    }

    /// Greeting and opening: a test that the connection carries data of, or none.
    fn open(&mut self) -> Result<Option<(Slot, DataUse)>, Ending> {
        let secrets = &self.shared.options.secrets;
        let greeting = Greeting {
            keyed: !secrets.is_empty(),
            nonce: random().map_err(|_| Ending::Closed)?,
        };
        self.link.send_octets(&greeting.encode())?;
        let deadline = Instant::now() + SET_UP;
        match self.link.receive(deadline, &self.shared.stop)? {
            Opening::Data { token, use_for } => {
                let ip = self.peer.ip().to_canonical();
                match self.shared.tests.join(&token.0, ip, use_for) {
                    Some(slot) => {
                        self.link.send(&Opened::Welcome { proof: None })?;
                        Ok(Some((slot, use_for)))
                    }
                    None => Err(self.refuse(Refusal::Token)),
                }
            }
            Opening::Control { nonce, key, proof } => {
                let mut proofs = None;
                if greeting.keyed {
                    let name = key.unwrap_or_default();
                    let known = secrets.iter().find(|key| key.name == name);
                    // An unknown name costs as much time as a wrong passphrase.
                    let passphrase = known.map_or(&b""[..], |key| &key.passphrase);
                    let ours = Proofs::new(&name, passphrase, greeting.nonce, nonce.0);
                    let proven = proof.is_some_and(|proof| ours.verify(Side::Client, &proof));
                    if known.is_none() || !proven {
                        return Err(self.refuse(Refusal::Key));
                    }
                    proofs = Some(ours);
                }
                let proof = proofs.as_ref().map(|proofs| proofs.proof(Side::Server));
                self.link.send(&Opened::Welcome { proof })?;
                self.link.channel().open(proofs.as_ref());
                Ok(None)
            }
        }
    }

    /// Hands a stream to the test that it belongs to, or returns its probes.
    fn carry(self, slot: Slot, use_for: DataUse, admission: Admission) {
        let stream = self.link.into_stream();
        match use_for {
            DataUse::Stream => slot.hand_over(stream, admission),
            DataUse::Delay => {
                let until = monotonic().saturating_add(slot.longest().as_nanos() as i64);
                echo(&stream, until, slot.over());
            }
        }
    }

    fn command(&mut self) -> Result<Command, Ending> {
        let deadline = Instant::now() + PATIENCE;
        Ok(self.link.receive(deadline, &self.shared.stop)?)
    }

    fn answer_requests(&mut self) -> Result<(), Ending> {
        for _ in 0..MOST_REQUESTS {
            let Command::Ask { request } = self.command()? else {
                return Err(Ending::Failed);
            };
            let answered = match serde_json::from_value(request) {
                Ok(Request::Throughput(request)) => self.throughput(&request)?,
                Ok(Request::Route(options)) => self.route(options)?,
                Err(_) => Err(Refusal::UnknownRequest),
            };
            if let Err(reason) = answered {
                self.shared
                    .counters
                    .refused_sessions
                    .fetch_add(1, Ordering::Relaxed);
                self.link.send(&Answer::Refused { reason })?;
            }
        }
        Ok(())
    }

    /// One test: asked for, joined by its streams, started, its result.
    fn throughput(&mut self, request: &ThroughputRequest) -> Result<Result<(), Refusal>, Ending> {
        let ip = self.peer.ip().to_canonical();
        let policy = self.shared.gate.policy();
        let token: [u8; 16] = random().map_err(|_| Ending::Closed)?;
        if !is_loaded(request.options.congestion.as_deref()) {
            return Ok(Err(Refusal::Unavailable));
        }
        let opened = self
            .shared
            .tests
            .open(token, ip, request, &policy.throughput, Instant::now());
        let test = match opened {
            Ok(test) => test,
            Err(TestRefused(reason)) => return Ok(Err(reason)),
        };
        let token: Token = Octets(token);
        self.link.send(&Answer::Accepted { token })?;
        let Command::Start {} = self.command()? else {
            return Err(Ending::Failed);
        };
        let streams = test.streams();
        if streams.len() != usize::from(request.streams) {
            return Ok(Err(Refusal::Failed));
        }
        for (stream, _) in &streams {
            match set_options(SockRef::from(stream), &request.options) {
                Ok(()) => {}
                Err(SocketError::NoSuchCongestion(_)) => return Ok(Err(Refusal::Unavailable)),
                Err(_) => return Ok(Err(Refusal::Failed)),
            }
        }
        self.link.send(&Answer::Started {})?;
        self.shared
            .counters
            .sessions
            .fetch_add(1, Ordering::Relaxed);
        self.measured = true;
        let (streams, _admissions): (Vec<TcpStream>, Vec<Admission>) = streams.into_iter().unzip();
        let result = self.transfer(request, &streams);
        streams.iter().for_each(abort);
        match result {
            Some(result) => {
                self.link.send(&Answer::Finished { result })?;
                Ok(Ok(()))
            }
            None => Ok(Err(Refusal::Failed)),
        }
    }

    /// The route to the client, and to no one else.
    fn route(&mut self, options: TraceOptions) -> Result<Result<(), Refusal>, Ending> {
        let Some(_running) = Running::begin(&self.shared.routes) else {
            return Ok(Err(Refusal::Busy));
        };
        let client = self.peer.ip().to_canonical();
        let options = TraceOptions {
            engine: Engine::Udp,
            source: Some(self.local),
            port: None,
            rate: options.rate.min(LARGEST_RATE),
            rounds: options.rounds.min(LONGEST_TRACE.as_secs() as u32),
            repeat_for: options.repeat_for.map(|length| length.min(LONGEST_TRACE)),
            loss_probes: options.loss_probes.min(MOST_LOSS_PROBES),
            ..options
        };
        self.link.send(&Answer::Started {})?;
        self.shared
            .counters
            .sessions
            .fetch_add(1, Ordering::Relaxed);
        self.measured = true;
        let deadline = Instant::now() + LONGEST_TRACE + SLOWEST_TRACE;
        let found = self.watched(deadline, |stop| {
            let peer = (&*client.to_string(), client);
            trace(&options, peer, stop, &mut |_| {})
        });
        let Some(result) = found.ok().and_then(fitting) else {
            return Ok(Err(Refusal::Failed));
        };
        self.link.send(&Answer::Finished { result })?;
        Ok(Ok(()))
    }

    /// Sends or receives until the time is over or the client says stop, or goes.
    fn transfer(
        &mut self,
        request: &ThroughputRequest,
        streams: &[TcpStream],
    ) -> Option<serde_json::Value> {
        let timing = Timing {
            warm_up: Duration::from_millis(request.warm_up_ms),
            length: Duration::from_millis(request.length_ms),
        };
        let role = match request.direction {
            Direction::There => Role::Receiver,
            Direction::Back => Role::Sender,
        };
        let deadline = Instant::now() + timing.warm_up + timing.length + PATIENCE;
        let report = self.watched(deadline, |stop| run_end(role, streams, timing, stop));
        serde_json::to_value(report.ok()?).ok()
    }

    /// Does something that is to stop when the server ends, the deadline has passed, or the client says so or goes.
    fn watched<T>(&mut self, deadline: Instant, work: impl FnOnce(&AtomicBool) -> T) -> T {
        let (stop, through) = (AtomicBool::new(false), AtomicBool::new(false));
        let (link, ending) = (&mut self.link, &self.shared.stop);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !through.load(Ordering::Relaxed) {
                    if ending.load(Ordering::Relaxed) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            scope.spawn(|| {
                // Whatever comes, `Stop` or nonsense, or that the client has gone: it is over.
                let heard = link.receive::<Command>(deadline, &through);
                if !matches!(heard, Err(LinkError::Stopped)) {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            let done = work(&stop);
            through.store(true, Ordering::Relaxed);
            done
        })
    }
}

/// One of the traces that run, until it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn begin(running: &'a AtomicUsize) -> Option<Self> {
        let one_more = |running| (running < MOST_TRACES).then_some(running + 1);
        let order = Ordering::Relaxed;
        running.fetch_update(order, order, one_more).ok()?;
        Some(Running(running))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A route that fits into a message: of a long one, flows and changes are left out.
fn fitting(mut route: Route) -> Option<serde_json::Value> {
    loop {
        let value = serde_json::to_value(&route).ok()?;
        // What is around it takes less than the difference.
        if value.to_string().len() < MOST_OCTETS - 1024 {
            return Some(value);
        }
        let (flows, changes) = (route.flows.len(), route.changes.len());
        if flows == 0 && changes == 0 {
            return None;
        }
        route.flows.truncate(flows / 2);
        route.changes.truncate(changes / 2);
    }
}
