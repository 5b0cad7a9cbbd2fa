// SPDX-License-Identifier: Apache-2.0
//! What an answer needs of a connection beside its verdicts, as cells; appended to the summary.

use crate::cells::{CellValue, Flat, Row, TCP_STATE_NAMES};
use crate::column::{Column, bytes, number, rate, us, word};
use slowpath_model::{Ending, LifeAnswers, LifeFacts, LifeTurns, Micros, SocketFacts, TcpState};

/// The columns; must follow `put` and `take`.
pub(crate) const COLUMNS: [Column; 12] = [
    us(
        "idle_us",
        "part of `observed_us` in which nothing changed; NULL in logs from before this column",
    )
    .of("LifeFacts::idle"),
    word(
        "ending_state",
        TCP_STATE_NAMES,
        "state that it was closed in; NULL while it lives, or if not observed",
    )
    .of("Ending::state"),
    number(
        "ending_error",
        "its socket's error as it closed (errno), 0 without one; NULL while it lives, or if not observed",
    )
    .of("Ending::error"),
    rate(
        "max_pacing_rate",
        "rate that its application set (SO_MAX_PACING_RATE); NULL if none, or not known",
    )
    .of("SocketFacts::max_pacing_rate"),
    bytes(
        "device_queue",
        "memory that waits in this host's queueing discipline and device; NULL if not known",
    )
    .of("SocketFacts::device_queue"),
    number(
        "overlapping_exchanges",
        "exchanges in which both ends sent at once; NULL: turns not observed, as the next six",
    )
    .of("LifeTurns::overlapping"),
    number("peer_turns", "turns of the peer that ended: its answers").of("LifeTurns::peer"),
    us("peer_turns_us", "how long those took in all").of("LifeTurns::peer"),
    us(
        "peer_turn_pending_us",
        "how long the present turn has lasted at the last change; NULL if it is not the peer's",
    )
    .of("LifeTurns::peer"),
    number("own_turns", "turns of this end that ended").of("LifeTurns::here"),
    us("own_turns_us", "how long those took in all").of("LifeTurns::here"),
    us(
        "own_turn_pending_us",
        "how long the present turn has lasted at the last change; NULL if it is not this end's",
    )
    .of("LifeTurns::here"),
];

impl Flat for LifeFacts {
    fn put(&self, row: &mut Vec<CellValue>) {
        let LifeFacts {
            idle,
            socket,
            turns,
        } = self;
        let SocketFacts {
            max_pacing_rate,
            device_queue,
            ending,
            not_sent: _,
        } = socket;
        idle.put(row);
        ending
            .and_then(|ending| ending.state)
            .map(|state| state as u64)
            .put(row);
        ending
            .map(|ending| u64::from(ending.error.unwrap_or(0)))
            .put(row);
        max_pacing_rate.put(row);
        device_queue.put(row);
        turns.map(|turns| turns.overlapping).put(row);
        for answers in [turns.map(|t| t.peer), turns.map(|t| t.here)] {
            answers.map(|a| a.count).put(row);
            answers.map(|a| a.time).put(row);
            answers.and_then(|a| a.pending).put(row);
        }
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let idle = Flat::take(row)?;
        let state = match row.skip_nulls(1) {
            true => None,
            false => Some(TcpState::take(row)?),
        };
        let error: Option<u64> = Flat::take(row)?;
        let ending = error.map(|error| Ending {
            state,
            error: u16::try_from(error).ok().filter(|error| *error != 0),
        });
        let socket = SocketFacts {
            max_pacing_rate: Flat::take(row)?,
            device_queue: Flat::take(row)?,
            ending,
            not_sent: false,
        };
        let overlapping: Option<u64> = Flat::take(row)?;
        let (peer, here) = (take_answers(row)?, take_answers(row)?);
        Some(LifeFacts {
            idle,
            socket,
            turns: overlapping.map(|overlapping| LifeTurns {
                peer,
                here,
                overlapping,
            }),
        })
    }
}

fn take_answers(row: &mut Row<'_>) -> Option<LifeAnswers> {
    let count: Option<u64> = Flat::take(row)?;
    let time: Option<Micros> = Flat::take(row)?;
    Some(LifeAnswers {
        count: count.unwrap_or(0),
        time: time.unwrap_or(Micros::ZERO),
        pending: Flat::take(row)?,
    })
}
