// SPDX-License-Identifier: Apache-2.0
//! A connection that is to be accepted, until it has a socket: the SYNs that came, and the SYN-ACKs that were sent.

use super::event::{Name, Stub, StubEvent, stub_name};
use super::sent::Sent;
use super::side::MARKED;
use super::wire::{RequestAnswered, RequestName};
use slowpath_recording::{Handler, Moment, Outcome, QUEUE_COOKIE, QUEUE_FULL, Refused, Run, Timer};

/// More than any handshake (`tcp_synack_retries` is at most 255).
const MOST: usize = 512;

struct Step {
    at: u64,
    jiffies: u32,
    timer: bool,
    /// The SYN, or an ACK that made no socket.
    name: Name,
    ignored: bool,
    /// To what was asked for before.
    again: bool,
    marked: bool,
    /// The likeness of the SYN-ACK.
    answer: Option<u32>,
    /// Of a packet: the accept queue is full. Of the timer: how often a SYN-ACK is sent again, if less often than usual.
    queue: u32,
    /// It was answered by a SYN cookie: nothing is kept of it.
    cookie: bool,
}

impl Step {
    /// What the listener's queue made of it.
    fn of_queue(&self) -> Option<Outcome> {
        let dropped = !self.timer && !self.ignored && self.answer.is_none() && !self.again;
        let result = match self.queue {
            _ if self.cookie => QUEUE_COOKIE,
            0 if dropped => QUEUE_FULL,
            queue => queue,
        };
        (result != 0).then_some(Outcome::Refused(Refused::Listener { result }))
    }
}

/// What is known of it.
#[derive(Default)]
pub(super) struct Request {
    steps: Vec<Step>,
    /// Initial sequence numbers: the SYN's and the SYN-ACK's.
    pub(super) initial: [Option<u32>; 2],
}

impl Request {
    /// Whether it fits.
    pub(super) fn take(&mut self, stub: &Stub) -> bool {
        let mut step = Step {
            at: stub.at,
            jiffies: stub.jiffies,
            timer: false,
            name: stub_name(stub.at, 0, 0, 0),
            ignored: false,
            again: false,
            marked: false,
            answer: None,
            queue: 0,
            cookie: false,
        };
        match stub.event {
            StubEvent::Answered(it) => return self.answered(&it),
            StubEvent::Timer { tries } => {
                step.timer = true;
                step.queue = tries;
            }
            StubEvent::Packet(it) => {
                let made = RequestName::from_raw(it.request);
                step.name = stub_name(stub.at, it.id, it.alike, it.begins);
                step.ignored = made == Some(RequestName::Ignored);
                step.again = made == Some(RequestName::AskedAgain);
                step.marked = it.ecn == MARKED;
                step.queue = it.full;
            }
            StubEvent::Late(_) => return false,
        }
        if self.steps.len() < MOST {
            self.steps.push(step);
        }
        self.steps.len() < MOST
    }

    fn answered(&mut self, it: &RequestAnswered) -> bool {
        let Some(last) = self.steps.last_mut() else {
            return false;
        };
        last.answer = Some(it.likeness);
        self.initial = [Some(it.theirs), Some(it.own)];
        last.cookie = it.cookie != 0;
        // The clock that the SYN-ACK got; a cookie has something else there.
        if !last.cookie {
            last.at = it.clock;
        }
        self.steps.len() < MOST
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The SYN, or else an ACK, and the likeness of the SYN-ACK.
    pub(super) fn step(&self, place: usize) -> Option<(Name, bool, Option<u32>)> {
        let step = self.steps.get(place)?;
        Some((step.name, !step.ignored, step.answer))
    }

    /// A SYN-ACK was sent again by itself.
    pub(super) fn timed_out(&self) -> bool {
        self.steps.iter().any(|it| it.timer)
    }

    /// SYN-ACKs sent until then.
    pub(super) fn answers(&self, until: u64) -> u32 {
        let answered = |it: &&Step| it.answer.is_some() && it.at < until;
        self.steps.iter().filter(answered).count() as u32
    }

    /// The number of the SYN-ACK that came then, one like this.
    pub(super) fn answer(&self, like: u32, at: u64) -> u32 {
        let answers = self.steps.iter().filter_map(|it| it.answer);
        let same = answers.enumerate().find(|(_, answer)| *answer == like);
        match same {
            Some((number, _)) => number as u32,
            None => self.answers(at).saturating_sub(1),
        }
    }

    /// The runs without a socket. A SYN whose sender is not known was its first.
    pub(super) fn runs(&self, peer: Option<&Sent>) -> Vec<Run> {
        let run = |step: &Step| Run {
            at: Moment(step.at),
            jiffies: step.jiffies,
            handler: if step.timer {
                Handler::Timer {
                    timer: Timer::Request,
                    deferred: false,
                }
            } else {
                let number = peer.and_then(|peer| peer.number(step.name));
                Handler::Packet {
                    number: number.map_or(0, |came| came.number),
                    marked: step.marked,
                    backlog: false,
                    merged: 1,
                    truesize: 0,
                }
            },
            outcomes: step.of_queue().into_iter().collect(),
            check: None,
        };
        self.steps.iter().map(run).collect()
    }
}
