// SPDX-License-Identifier: Apache-2.0
//! What limited one connection, and what connections of one group have in common.

use super::end::End;
use super::turns::Turns;
use super::{Act, ActingProcess, EndEvidence, Limiter, Role};
use slowpath_model::{Failure, Micros, Owner, Problem, Stage};
use std::net::SocketAddr;

/// Part of the active time that round trips take if they are what it waits for, and how much
/// more they may seem to take: RTTs vary by a quarter without losses (Fermilab methodology, Table 4).
pub(super) const SEQUENTIAL: (f64, f64) = (0.5, 1.25);

/// What limited one connection.
#[derive(Clone, Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) limiter: Limiter,
    pub(crate) alarm: bool,
    pub(crate) who: Role,
    /// Whose process acts, and where.
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) address: Option<SocketAddr>,
    /// How long it limited, of the time in which there was something to do.
    pub(crate) time: Micros,
    pub(crate) work: Micros,
    pub(crate) active: Micros,
    /// It has been unanswered for so long that no one waits any more.
    pub(crate) given_up: bool,
    /// How long anybody waited for it: for data to arrive, or for an answer.
    pub(crate) awaited: Micros,
    /// The problems of the direction.
    pub(crate) because: Vec<(Problem, Micros)>,
    /// The end that sends in the direction, or whose own pace it is.
    pub(crate) sender: Option<End<'a>>,
    /// The end that receives in the direction.
    pub(crate) receiver: Option<End<'a>>,
    /// What it waited for was the answer to its SYN, or the first ACK: where the accept queue is full,
    /// the client's end is open, and what it sends is dropped (`tcp_v4_syn_recv_sock`).
    pub(crate) only_opening: bool,
    /// Why the connection failed, if it did.
    pub(crate) failure: Option<Failure>,
    /// Whose turn it was, where that decided.
    pub(crate) turns: Option<Turns>,
    /// The process that waited for the answers.
    pub(crate) asked_by: Option<u32>,
}

/// What connections of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) alarm: bool,
    pub(super) limiter: Limiter,
    who: Role,
    command: Option<String>,
    pub(super) failure: Option<Failure>,
}

impl Judged<'_> {
    /// What its sender cannot help limits it, for most of the time.
    pub(super) fn limits_sender(&self) -> bool {
        matches!(self.limiter, Limiter::Receiver | Limiter::Network)
            && crate::tally::share(self.time, self.active) >= SEQUENTIAL.0
    }

    pub(super) fn key(&self) -> Key {
        let command = self.owner.and_then(ActingProcess::of).map(|p| p.command);
        Key {
            alarm: self.alarm,
            limiter: self.limiter,
            who: self.who,
            command: command.map(|c| c.to_string()),
            failure: self.failure,
        }
    }

    /// The receiver's process waited for a processor, for half of the time or more, while what arrived was unread.
    pub(super) fn waits_for_processor(&self) -> bool {
        let starved = self.receiver.map_or(Micros::ZERO, |end| end.starved);
        starved > Micros::ZERO && 2 * starved.0 >= self.time.0
    }

    /// What a problem of it rests on: it is one of the sender's, or the receiver's ReceiverAppSlow.
    pub(super) fn evidence(&self, problem: Problem) -> Option<EndEvidence> {
        let has = |end: &&End<'_>| end.time(problem) > Micros::ZERO;
        let found = [self.sender, self.receiver];
        let end = match problem {
            Problem::SenderAppLimited => return self.own_pace(),
            _ => found.iter().flatten().find(has)?,
        };
        Some(EndEvidence::of(end, problem, self.work))
    }

    /// What an application did, of the time that its connection was observed.
    fn own_pace(&self) -> Option<EndEvidence> {
        let own = !matches!(self.limiter, Limiter::Receiver | Limiter::Network);
        let end = self.sender.or(self.receiver).filter(|_| own)?;
        let observed = end.tally.totals.observed;
        Some(EndEvidence::of(&end, Problem::SenderAppLimited, observed))
    }

    pub(super) fn act(&self) -> Act {
        Act {
            who: self.who,
            process: self.owner.and_then(ActingProcess::of),
            address: self.address.map(|a| a.to_string()),
        }
    }
}

/// Whether a problem is one of a limiter: that of its stage, but for late ACKs, which hold back what an
/// application wrote in pieces.
pub(super) fn belongs(problem: Problem, limiter: Limiter) -> bool {
    let of = match (problem, problem.stage()) {
        (Problem::DelayedAck, _) | (_, Stage::SenderApp) => Limiter::Application,
        (_, Stage::SendBuffer) => Limiter::SendBuffer,
        (_, Stage::Network) => Limiter::Network,
        (_, Stage::Receiver | Stage::ReceiverApp) => Limiter::Receiver,
    };
    of == limiter
}
