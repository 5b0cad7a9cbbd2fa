// SPDX-License-Identifier: Apache-2.0
//! The server's thread: waits until clients are ready, and renders pages.

use super::client::{Client, Progress};
use super::request::{Answer, Page};
use super::{MAX_CLIENTS, MAX_RATE, PATIENCE};
use crate::catalogue;
use crate::counters::Status;
use crate::prometheus::{self, Format};
use crate::state::{Board, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After this time without a new state the agent does not do its work.
const STALE: Duration = Duration::from_secs(60);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is not to be had.
    #[error("cannot serve metrics on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No thread, or no pipe to it.
    #[error("cannot start the server of metrics: {0}")]
    Start(#[source] io::Error),
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Its end stops the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves what is on the board. States older than `interval` says are no sign of
    /// health: three times that, at least a minute.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(
        address: SocketAddr,
        board: Arc<Board>,
        interval: Duration,
    ) -> Result<Self, ServerError> {
        let refused = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let (stop, stopped) = UnixStream::pair().map_err(ServerError::Start)?;
        let mut worker = Worker {
            listener,
            stopped,
            clients: Vec::new(),
            pages: Pages {
                board,
                stale: STALE.max(interval * 3),
                state: None,
                made: Vec::new(),
            },
            second: Instant::now(),
            accepted: 0,
        };
        let thread = thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || worker.run())
            .map_err(ServerError::Start)?;
        Ok(Server {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

struct Worker {
    listener: TcpListener,
    stopped: UnixStream,
    /// The one that has been here longest first.
    clients: Vec<Client>,
    pages: Pages,
    /// When the present second of [`MAX_RATE`] began, and the clients accepted in it.
    second: Instant,
    accepted: u32,
}

impl Worker {
    fn run(&mut self) {
        loop {
            let now = Instant::now();
            if now >= self.second + Duration::from_secs(1) {
                self.second = now;
                self.accepted = 0;
            }
            let open = self.accepted < MAX_RATE;
            let Some(ready) = self.wait(now, open) else {
                return;
            };
            let now = Instant::now();
            // From the last one: the places of the others stay.
            for (place, ready) in ready.into_iter().enumerate().rev() {
                if ready && self.serve(place, now) {
                    self.clients.remove(place);
                }
            }
            let expired = self.expire(now);
            self.pages.board.http.dropped_many(expired);
            if open {
                self.accept(now);
            }
        }
    }

    /// Waits until something can be done; says which clients are ready, or nothing if the
    /// server has to stop.
    fn wait(&mut self, now: Instant, open: bool) -> Option<Vec<bool>> {
        let mut until = self.clients.iter().map(Client::deadline).min();
        if !open {
            let second = self.second + Duration::from_secs(1);
            until = Some(until.map_or(second, |u| u.min(second)));
        }
        let timeout = until.map(|until| {
            let wait = until.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: wait.subsec_nanos().into(),
            }
        });
        let mut waiting: Vec<PollFd<'_>> = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        let interests = self.clients.iter();
        waiting.extend(interests.map(|c| PollFd::new(c.stream(), c.interest())));
        if open {
            waiting.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        // An interrupted or failed wait finds no one ready, and is tried again.
        let count = poll(&mut waiting, timeout.as_ref()).unwrap_or(0);
        let ready: Vec<bool> = waiting
            .iter()
            .map(|fd| count > 0 && !fd.revents().is_empty())
            .collect();
        drop(waiting);
        if ready[0] && matches!(self.stopped.read(&mut [0]), Ok(0) | Err(_)) {
            return None;
        }
        Some(ready[1..=self.clients.len()].to_vec())
    }

    /// Goes on with a client; whether it is done.
    fn serve(&mut self, place: usize, now: Instant) -> bool {
        let Some(client) = self.clients.get_mut(place) else {
            return false;
        };
        match client.go_on(now) {
            Progress::Waits => false,
            Progress::Done => true,
            Progress::Asks(request) => {
                let answer = match request.page {
                    Ok(page) => self.pages.page(page, now),
                    Err(status) => Answer::refusal(status),
                };
                self.pages.board.http.answered(answer.status);
                client.answer(&answer, request.head);
                client.go_on(now) == Progress::Done
            }
        }
    }

    /// Sends those away that took too long; says how many had no answer.
    fn expire(&mut self, now: Instant) -> u64 {
        let mut without = 0;
        self.clients.retain(|client| {
            let stays = client.deadline() > now;
            without += u64::from(!stays && !client.answered());
            stays
        });
        without
    }

    fn accept(&mut self, now: Instant) {
        while self.accepted < MAX_RATE {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // No file descriptor is left, perhaps: try again in the next second.
                    self.accepted = MAX_RATE;
                    return;
                }
            };
            self.accepted += 1;
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= MAX_CLIENTS {
                let first = self.clients.remove(0);
                self.pages
                    .board
                    .http
                    .dropped_many(u64::from(!first.answered()));
            }
            self.clients.push(Client::new(stream, now + PATIENCE));
        }
    }
}

/// The pages of the latest state, each made when it is first asked for.
struct Pages {
    board: Arc<Board>,
    stale: Duration,
    /// With the moment it was left on the board.
    state: Option<(Arc<State>, Instant)>,
    made: Vec<(Format, Arc<str>)>,
}

impl Pages {
    fn page(&mut self, page: Page, now: Instant) -> Answer {
        self.renew();
        match (page, &self.state) {
            (Page::Index, _) => Answer::plain(Status::Ok, "slowpath agent: /metrics, /healthz\n"),
            (_, None) => Answer::plain(Status::Unavailable, "No poll has succeeded yet.\n"),
            (Page::Health, Some((_, left))) => {
                let age = now.saturating_duration_since(*left);
                if age > self.stale {
                    let text = format!("No poll has succeeded for {} s.\n", age.as_secs());
                    Answer::plain(Status::Unavailable, text)
                } else {
                    Answer::plain(Status::Ok, "ok\n")
                }
            }
            (Page::Metrics(format), Some((state, _))) => {
                let made = self.made.iter().find(|(f, _)| *f == format);
                let body = match made {
                    Some((_, body)) => body.clone(),
                    None => {
                        let Board { http, push, .. } = &*self.board;
                        let families = catalogue::families(state, http, push);
                        let body: Arc<str> = prometheus::encode(&families, format).into();
                        self.made.push((format, body.clone()));
                        body
                    }
                };
                Answer {
                    status: Status::Ok,
                    content_type: format.content_type(),
                    body,
                }
            }
        }
    }

    /// Looks for a later state; pages of an earlier one go.
    fn renew(&mut self) {
        let latest = self.board.latest();
        let moment = |state: &Option<(Arc<State>, Instant)>| state.as_ref().map(|(_, at)| *at);
        if moment(&latest) != moment(&self.state) {
            self.state = latest;
            self.made.clear();
        }
    }
}
