// SPDX-License-Identifier: Apache-2.0
//! Connections that bring requests, and those that carry the data of one.

use super::Shared;
use super::admission::Admission;
use super::throughput::{Slot, TestRefused};
use crate::requests::message::{
    Answer, Command, DataUse, Direction, Octets, Opened, Opening, Refusal, Request,
    ThroughputRequest, Token,
};
use crate::requests::{Greeting, Link, LinkError, Proofs, Side};
use crate::session::random;
use crate::socket::monotonic;
use crate::throughput::delay::echo;
use crate::throughput::end::{Role, Timing, run as run_end};
use crate::throughput::tcp::{SocketError, abort, set_options};
use socket2::SockRef;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    let Ok(link) = Link::new(stream, Side::Server) else {
        return;
    };
    let connection = Connection {
        link,
        peer,
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
                // The next request's arm comes here.
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
        let (stop, through) = (AtomicBool::new(false), AtomicBool::new(false));
        let (link, ending) = (&mut self.link, &self.shared.stop);
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                while !through.load(Ordering::Relaxed) {
                    if ending.load(Ordering::Relaxed) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            scope.spawn(|| {
                let deadline = Instant::now() + timing.warm_up + timing.length + PATIENCE;
                // Whatever comes, `Stop` or nonsense, or that the client has gone: it is over.
                let heard = link.receive::<Command>(deadline, &through);
                if !matches!(heard, Err(LinkError::Stopped)) {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            let report = run_end(role, streams, timing, &stop);
            through.store(true, Ordering::Relaxed);
            report
        });
        serde_json::to_value(report.ok()?).ok()
    }
}
