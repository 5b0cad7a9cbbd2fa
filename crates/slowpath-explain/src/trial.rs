// SPDX-License-Identifier: Apache-2.0
//! Causes tried: the connection is replayed once more with the one thing changed that a wait is said to come from. If something else is sent then
//! before the wait was over, it is the cause. Up to the first packet that differs everything that the network did is known; what would have
//! come after that is not, and nothing is said of it.

use super::link::Link;
use super::waits::Wait;
use slowpath_recording::Moment;

/// What is changed, from a run of an end on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The end acknowledges at once.
    AckAtOnce {
        /// 0 connected, 1 accepted.
        end: u8,
        /// The first run with the change.
        run: usize,
    },
    /// The duplicates that make a loss.
    Threshold {
        /// 0 connected, 1 accepted.
        end: u8,
        /// The first run with the change.
        run: usize,
        /// The threshold.
        to: u32,
    },
}

/// The first packet that is not as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The end that sent it, or did not.
    pub end: u8,
    /// Its number.
    pub packet: usize,
    /// When, by that end's clock.
    pub at: Moment,
}

/// Replays the connection with something changed.
pub trait Trial {
    /// Why not.
    type Error;

    /// Where a replay with a change departs from the recording; `None`: nowhere.
    ///
    /// # Errors
    /// It cannot be replayed.
    fn replay(&mut self, change: Change) -> Result<Option<Departure>, Self::Error>;
}

/// Tries the causes of these waits of an end.
///
/// # Errors
/// What a replay says.
pub fn confirm<A: Trial>(end: u8, waits: &mut [Wait], again: &mut A) -> Result<(), A::Error> {
    for wait in waits {
        let Some(change) = wait.links.iter().find_map(|link| change(end, link)) else {
            continue;
        };
        let departure = again.replay(change)?;
        wait.confirmed = Some(departure.is_some_and(|found| helps(&found, end, wait, change)));
    }
    Ok(())
}

/// Before the wait was over by the clock of the end that waited; of the other end's packets only the order is known, and that it is an answer which
/// was not there.
fn helps(found: &Departure, end: u8, wait: &Wait, change: Change) -> bool {
    match change {
        Change::AckAtOnce { end: other, .. } => found.end == other,
        Change::Threshold { .. } => {
            found.end == end && found.at < wait.until && found.packet <= wait.sent.start
        }
    }
}

fn change(end: u8, link: &Link) -> Option<Change> {
    match *link {
        Link::DelayedAckAfterTimeout { run, .. }
        | Link::DelayedAck { run, .. }
        | Link::ShrinkingReceiveBuffer { run, .. } => Some(Change::AckAtOnce { end: 1 - end, run }),
        Link::RaisedThreshold { since, initial, .. } => Some(Change::Threshold {
            end,
            run: since,
            to: initial,
        }),
        Link::TooFewDuplicateAcks {
            since, duplicates, ..
        } if duplicates > 0 => Some(Change::Threshold {
            end,
            run: since,
            to: duplicates,
        }),
        _ => None,
    }
}
