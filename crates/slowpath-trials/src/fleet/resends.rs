// SPDX-License-Identifier: Apache-2.0
//! A relay between hosts and their server that sends batches twice, late and out of order, and
//! loses answers. It ends TLS with the server's own key and goes on with the host's.

use super::Trial;
use super::world::World;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use slowpath_server::ca::Authorities;
use slowpath_ship::answers;
use slowpath_ship::batch::Header;
use slowpath_ship::client::{Connection, Failure, Trust};
use slowpath_ship::keys::Identity;
use slowpath_switch::Random;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Batches that a relay remembers.
const REMEMBERED: usize = 40;
/// How long hosts log.
const LENGTH: Duration = Duration::from_secs(8);

pub(super) fn run(trial: &mut Trial<'_>) -> Result<(), Box<dyn Error>> {
    let mut world = World::new(trial, 2)?;
    let resent = Arc::new(AtomicU64::new(0));
    let mut relays = Vec::new();
    for number in 0..world.hosts.len() {
        let host = &mut world.hosts[number];
        let relay = Arc::new(Relay {
            identity: Identity::read(&host.task.identity)?,
            tls: tls(&world.installation.directory)?,
            state: Mutex::new(State {
                random: Random::stream(trial.seed, 1_000 * trial.number + number as u64),
                run: 0,
                sent: Vec::new(),
                late: Vec::new(),
                ended: false,
            }),
            resent: resent.clone(),
        });
        host.task.server = Some(relay.listen()?.to_string());
        relays.push(relay);
    }
    world.start_hosts()?;
    sleep(LENGTH);
    let resent = resent.load(Ordering::Relaxed);
    if resent < 10 {
        trial
            .tally
            .find(format!("resent: only {resent} batches were sent again"));
    }
    // What is left goes straight to the server.
    for host in &mut world.hosts {
        host.process = None;
        trial.tally.kills += 1;
        host.task.server = None;
    }
    for relay in relays {
        relay.end();
    }
    world.settle("resent", trial)
}

/// The server's own certificate and key.
fn tls(directory: &std::path::Path) -> Result<Arc<ServerConfig>, Box<dyn Error>> {
    let (certificate, key) = Authorities::load(directory)?.server();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}

/// Between one host and the server.
struct Relay {
    identity: Identity,
    tls: Arc<ServerConfig>,
    state: Mutex<State>,
    resent: Arc<AtomicU64>,
}

struct State {
    random: Random,
    /// The process that sent last: another one's batches are not mixed with its own, because an
    /// earlier process that returns is a clone.
    run: u128,
    /// Batches that the server had.
    sent: Vec<Vec<u8>>,
    /// Those that it did not get yet, and whose sender got no answer.
    late: Vec<Vec<u8>>,
    /// It sends nothing any more.
    ended: bool,
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

impl Relay {
    /// Relays connections for as long as the program runs.
    fn listen(self: &Arc<Self>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let relay = self.clone();
        spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let relay = relay.clone();
                // A host that is killed ends it.
                spawn(move || relay.serve(stream).map_err(|error| error.to_string()));
            }
        });
        Ok(address)
    }

    /// Waits for what it is sending, and sends nothing more: batches of a process that was killed,
    /// after those of the next, would be a clone's.
    fn end(&self) {
        self.state().ended = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> Result<(), Box<dyn Error>> {
        stream.set_nodelay(true)?;
        let tls = ServerConnection::new(self.tls.clone())?;
        let mut stream = BufReader::new(StreamOwned::new(tls, stream));
        let trust = Trust::Mutual(&self.identity.bundle, &self.identity.pair);
        let upstream = Connection::new(&self.identity.server, trust)?;
        while let Some((path, body)) = request(&mut stream)? {
            let answer = match path.as_str() {
                answers::BATCH => match self.batch(&upstream, body) {
                    Some(answer) => answer,
                    // The answer is lost.
                    None => return Ok(()),
                },
                answers::CA => upstream.get(&path),
                _ => upstream.post(&path, &serde_json::from_slice::<Value>(&body)?),
            };
            if !respond(stream.get_mut(), answer)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands a batch on, with others before or after it; `None` if its sender gets no answer.
    fn batch(&self, upstream: &Connection, body: Vec<u8>) -> Option<Result<Value, Failure>> {
        let mut state = self.state();
        if state.ended {
            return None;
        }
        let run = Header::read(&body).map_or(0, |(header, _)| header.run);
        if run != state.run {
            (state.run, state.sent, state.late) = (run, Vec::new(), Vec::new());
        }
        let fate = state.random.next_u64() % 10;
        if fate == 0 {
            state.late.push(body);
            return None;
        }
        if fate <= 3 {
            self.resend(upstream, &mut state);
        }
        let answer = send(upstream, &body);
        if fate == 4 {
            // The second answer counts as the first.
            self.resent.fetch_add(1, Ordering::Relaxed);
            let _ = send(upstream, &body);
        }
        if (3..=6).contains(&fate) {
            self.resend(upstream, &mut state);
        }
        state.sent.push(body);
        if state.sent.len() > REMEMBERED {
            state.sent.remove(0);
        }
        (fate != 7).then_some(answer)
    }

    /// Sends what was late, in any order, and some of what was sent.
    fn resend(&self, upstream: &Connection, state: &mut State) {
        while !state.late.is_empty() {
            let at = state.random.next_u64() as usize % state.late.len();
            let body = state.late.swap_remove(at);
            let _ = send(upstream, &body);
            state.sent.push(body);
        }
        for _ in 0..state.random.next_u64() % 4 {
            if !state.sent.is_empty() {
                let at = state.random.next_u64() as usize % state.sent.len();
                self.resent.fetch_add(1, Ordering::Relaxed);
                let _ = send(upstream, &state.sent[at]);
            }
        }
    }
}

fn send(upstream: &Connection, body: &[u8]) -> Result<Value, Failure> {
    let flushed = upstream.batch(body)?;
    serde_json::to_value(&flushed).map_err(|error| Failure::NoAnswer(error.to_string()))
}

/// Path and body.
type Request = (String, Vec<u8>);

/// The next request; `None` at the end.
fn request(stream: &mut BufReader<Stream>) -> Result<Option<Request>, Box<dyn Error>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).ok_or("a request without a path")?;
    let (path, mut length) = (path.to_owned(), 0);
    loop {
        let mut field = String::new();
        if stream.read_line(&mut field)? == 0 {
            return Ok(None);
        }
        let field = field.trim().to_ascii_lowercase();
        if field.is_empty() {
            break;
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((path, body)))
}

/// Answers as the server did; false if it did not.
fn respond(stream: &mut Stream, answer: Result<Value, Failure>) -> io::Result<bool> {
    let (status, body) = match answer {
        Ok(answer) => (200, answer),
        Err(Failure::Refused {
            status, refusal, ..
        }) => (status, serde_json::to_value(&refusal)?),
        Err(Failure::NoAnswer(_)) => return Ok(false),
    };
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    stream.flush()?;
    Ok(true)
}
