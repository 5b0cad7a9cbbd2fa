// SPDX-License-Identifier: Apache-2.0
//! One agent: what it ships when, and what it does after each answer, as the agent's own client.

use super::connection::{Connection, Trust};
use super::hosts::{Batch, Segment, Stock};
use super::load::Counts;
use slowpath_ship::answers::{self, ClientSegment, Flushed, SegmentsAnswer, SegmentsRequest};
use slowpath_ship::client::{Failure, Policy, Step};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// From when on what is shipped; `None`: not yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signal {
    pub live: Option<Instant>,
    pub waiting: bool,
    pub ended: bool,
}

/// A segment and how much of it is flushed, in batches.
struct Progress {
    segment: Segment,
    at: usize,
}

impl Progress {
    fn new(segment: Segment) -> Self {
        Progress { segment, at: 0 }
    }

    fn next(&self) -> Option<&Batch> {
        self.segment.batches.get(self.at)
    }

    fn flushed(&self) -> Option<&Batch> {
        self.segment.batches.get(self.at.checked_sub(1)?)
    }

    /// Goes to where the server stands; false if no batch ends there.
    fn go_to(&mut self, offset: u64) -> bool {
        let at = match offset {
            0 => Some(0),
            _ => (self.segment.batches.iter())
                .position(|batch| batch.end == offset)
                .map(|at| at + 1),
        };
        self.at = at.unwrap_or(self.at);
        at.is_some()
    }

    fn described(&self) -> ClientSegment {
        let flushed = self.flushed();
        ClientSegment {
            id: self.segment.id.clone(),
            length: flushed.map_or(0, |batch| batch.end),
            offset: flushed.map_or(0, |batch| batch.end),
            crc: flushed.map(|batch| batch.prefix).unwrap_or_default(),
        }
    }
}

/// An agent.
pub(super) struct Agent {
    trust: Rc<Trust>,
    counts: Rc<RefCell<Counts>>,
    connection: Connection,
    live: Progress,
    waiting: Vec<Progress>,
    policy: Policy,
    /// The server's `start` that answered last.
    start: String,
    /// A live batch was the last one: one that waited is next.
    turn_of_waiting: bool,
    random: u64,
}

impl Agent {
    pub(super) fn new(
        (trust, counts): (Rc<Trust>, Rc<RefCell<Counts>>),
        connection: Connection,
        stock: Stock,
        seed: u64,
    ) -> Self {
        Agent {
            trust,
            counts,
            connection,
            live: Progress::new(stock.live),
            waiting: stock.waiting.into_iter().map(Progress::new).collect(),
            policy: Policy::default(),
            start: String::new(),
            turn_of_waiting: false,
            random: seed,
        }
    }

    /// Ships until it is stopped.
    pub(super) async fn run(mut self, mut signal: watch::Receiver<Signal>) {
        loop {
            let now = *signal.borrow_and_update();
            if now.ended {
                return;
            }
            let live = now
                .live
                .and_then(|began| Some(began + self.live.next()?.due));
            let is_due = live.is_some_and(|due| due <= Instant::now());
            let waits = now.waiting && self.waiting.iter().any(|it| it.next().is_some());
            if is_due && !(waits && self.turn_of_waiting) {
                self.turn_of_waiting = true;
                self.ship(false).await;
            } else if waits {
                self.turn_of_waiting = false;
                self.ship(true).await;
            } else {
                let changed = signal.changed();
                match live {
                    // Both ends of it are a reason to look again.
                    Some(due) => drop(timeout_at(due, changed).await),
                    None => drop(changed.await),
                }
            }
        }
    }

    /// Ships a batch and does what its answer asks for.
    async fn ship(&mut self, waiting: bool) {
        let progress = match waiting {
            true => self.waiting.iter_mut().find(|it| it.next().is_some()),
            false => Some(&mut self.live),
        };
        let Some(progress) = progress else { return };
        let Some(batch) = progress.next() else { return };
        let (items, rows, end) = (batch.items, batch.rows, batch.end);
        let began = Instant::now();
        let request = (answers::BATCH, answers::BATCH_TYPE);
        let answer: Result<Flushed, Failure> = self
            .connection
            .post(&self.trust, request, &batch.body)
            .await;
        let took = began.elapsed();
        let step = self.policy.react(&answer, items, draw(&mut self.random));
        if let Err(failure) = &answer {
            self.counts.borrow_mut().failed(failure);
        }
        let wait = match step {
            Step::Settle(offset, _) if offset == end => {
                progress.at += 1;
                self.counts.borrow_mut().flushed(waiting, rows, took);
                Duration::ZERO
            }
            Step::Settle(offset, _) | Step::Rewind(offset, _) => {
                if !progress.go_to(offset) {
                    self.counts.borrow_mut().wrong += 1;
                }
                Duration::ZERO
            }
            Step::Wait(wait) => wait,
            // None of these belongs into a bench: its counts say so.
            Step::Refuse | Step::HoldNewer | Step::Halve | Step::Stop(..) => {
                self.counts.borrow_mut().wrong += 1;
                Duration::from_secs(1)
            }
        };
        if let Ok(flushed) = answer {
            self.meet(&flushed.state.start).await;
        }
        sleep(wait).await;
    }

    /// A server that started anew is asked what it has.
    async fn meet(&mut self, start: &str) {
        if start == self.start {
            return;
        }
        let all = || std::iter::once(&self.live).chain(&self.waiting);
        let segments = SegmentsRequest {
            segments: all().map(Progress::described).collect(),
        };
        let body = serde_json::to_vec(&segments).unwrap_or_default();
        let request = (answers::SEGMENTS, "application/json");
        let answer: Result<SegmentsAnswer, Failure> =
            self.connection.post(&self.trust, request, &body).await;
        match answer {
            Ok(answer) => {
                let mut counts = self.counts.borrow_mut();
                for server in answer.segments {
                    let all = std::iter::once(&mut self.live).chain(&mut self.waiting);
                    let mut same = all.filter(|it| it.segment.id == server.id);
                    let less = same.find(|it| it.flushed().is_some_and(|f| f.end > server.offset));
                    // What was answered is flushed, whatever ended the server.
                    counts.wrong += u64::from(less.is_some_and(|it| it.go_to(server.offset)));
                }
                counts.back(&self.start, start);
                start.clone_into(&mut self.start);
            }
            // It is asked again after the next batch.
            Err(failure) => self.counts.borrow_mut().failed(&failure),
        }
    }
}

/// Uniform in [0, 1), by SplitMix64.
fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
