// SPDX-License-Identifier: Apache-2.0
//! Why a message was slow.
//!
//! What enters is one connection: its recording, and what its exact replay gave, the headers at both ends and the state after each run
//! ([`Facts`]). What leaves is for each message how long it took, its unimpeded time, where it waited and for what, and the tail-latency
//! category of DETER's Tables 2 and 3 ([`Explanation`]). Nothing is guessed from packets only: which packet was lost is known from the numbers
//! that the other end never got, which timer fired from the run, what was decided from the socket's fields.
//!
//! # How waits are found
//!
//! An end makes progress with a message when it sends bytes of it, or when more of it is acknowledged. Between two such moments it waits; what
//! ends the wait says what it waited for ([`Waited`]):
//!
//! 1. the timer of retransmissions, and bytes are sent again: a timeout, however short
//! 2. the same timer as a loss probe, or as RACK's: a probe, a reordering timer, however short
//! 3. an acknowledgment that makes the sender send again what had been sent, before any timeout: a fast retransmission, however short
//! 4. an acknowledgment or a probe, while the window that was announced before had no room for a segment: the receive window, one wait as long as it stays so
//! 5. an acknowledgment that the receiver's timer of delayed acknowledgments had sent: a delayed ACK
//! 6. an acknowledgment, while the congestion window had no room: the congestion window, likewise. Which of both windows it was is judged as the kernel does ([`State::limiting_window`])
//! 7. a call, and everything written before had been sent: the application, one wait as long as it stays so
//! 8. anything else: the network, or an earlier message whose bytes were not acknowledged; counted only if it is longer than [`PAUSE`] and two smoothed round trips
//!
//! What has arrived whole while bytes before it have not waits for an earlier message from then on, if that is as long.
//!
//! The chain of a wait are the [`Link`]s that hold for it, each with its rule. The category of a message is the kind of wait that took most of what
//! it was late by, if waits took half of that; otherwise a fast retransmission if that took more than any other, and congestion if not ([`Category`]).
//! What the congestion window and the network took beyond the unimpeded time is congestion.
//!
//! What is promised: the same facts give the same explanation; no I/O, no clocks. Times are of one end's clock each; the two are never
//! compared unless [`Facts::one_clock`] says that they are the same.

mod category;
mod causes;
mod link;
mod message_state;
mod messages;
mod picture;
mod sent;
mod state;
mod timeline;
mod trial;
mod wait_kind;
mod waits;

pub use category::Category;
pub use link::Link;
pub use message_state::{MessageState, NoMessageState, message_state};
pub use messages::{Message, NetworkPath, unimpeded};
pub use picture::{Picture, WindowEdges};
pub use sent::{Sent, SentBytes, sent};
pub use state::{Pending, State, Window};
pub use trial::{Change, Departure, Trial, confirm};
pub use wait_kind::{PAUSE, Waited};
pub use waits::Wait;

use slowpath_recording::headers::Header;
use slowpath_recording::{Connection, Moment};
use std::time::Duration;
use timeline::Timeline;

/// What is known of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its recording.
    pub connection: &'a Connection,
    /// The headers at the end that connected and at the other, of its exact replay.
    pub headers: [&'a [Header]; 2],
    /// The states after the runs of each end, from the first run on.
    pub states: [&'a [State]; 2],
    /// Whether moments of both ends are of one clock.
    pub one_clock: bool,
}

/// Why there is no explanation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexplained {
    /// Headers and recording are of different connections.
    #[error(
        "end {end} sent packets at times when no handler ran: the headers are of another connection"
    )]
    Times {
        /// Which end.
        end: usize,
    },
    /// The same.
    #[error(
        "end {end} got packet {number}, which the other end did not send: the headers are of another connection"
    )]
    Packet {
        /// The end that got it.
        end: usize,
        /// Its number.
        number: usize,
    },
}

/// Why one message took as long as it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Which.
    pub message: Message,
    /// What it would have taken with no one else on this path; `None`: the connection shows too little of the path.
    pub unimpeded: Option<Duration>,
    /// What it belongs to.
    pub category: Category,
    /// Where it waited, in the order of time.
    pub waits: Vec<Wait>,
    /// Its bytes that were sent again.
    pub sent_again: u64,
    /// What its sender did over time; empty of messages that were not slow.
    pub picture: Picture,
}

impl Explanation {
    /// All links of its waits, in the order of time.
    pub fn chain(&self) -> impl Iterator<Item = &Link> {
        self.waits.iter().flat_map(|wait| &wait.links)
    }

    /// How many times its unimpeded time it took.
    pub fn slowdown(&self) -> Option<f64> {
        let unimpeded = self.unimpeded?.as_secs_f64();
        (unimpeded > 0.0).then(|| Some(self.message.duration()?.as_secs_f64() / unimpeded))?
    }
}

/// Explains all messages of a connection, those of the end that connected first.
///
/// # Errors
/// The headers are not of the recorded connection.
pub fn explain(facts: &Facts<'_>) -> Result<Vec<Explanation>, Unexplained> {
    let timeline = Timeline::new(facts)?;
    let mut found = Vec::new();
    for end in 0..2 {
        let path = messages::path(&timeline, end);
        let rules = rules(facts, end);
        for mut message in messages::messages(&timeline, end) {
            message.done = done(&timeline, &message, path.as_ref(), facts.one_clock);
            let first = timeline.steps[end][message.run].after;
            let one_sided = path.as_ref().map(|path| {
                let window = first.map_or(10, |state| state.congestion_window().max(1));
                let size = timeline.packets[end].iter();
                let size = size.map(|it| it.bytes.end - it.bytes.start).max();
                let bytes = message.bytes.end - message.bytes.start;
                unimpeded(bytes, u64::from(window) * size.unwrap_or(1), path)
            });
            let waits = waits::waits(&timeline, &message, &rules);
            let sent_again = waits::sent_again(&timeline, &message);
            let late = message.duration().zip(one_sided);
            let late = late.map(|(took, one_sided)| (took, took.saturating_sub(one_sided)));
            let category = category::of(late, &waits);
            let picture = match category {
                Category::NotSlow => Picture::default(),
                _ => picture::picture(&timeline, &message),
            };
            found.push(Explanation {
                message,
                unimpeded: one_sided,
                category,
                waits,
                sent_again,
                picture,
            });
        }
    }
    Ok(found)
}

/// By the clock of the end that sent: without a common one the sending of the packet that completed it, and half of the shortest round trip.
fn done(
    timeline: &Timeline<'_>,
    message: &Message,
    path: Option<&NetworkPath>,
    one_clock: bool,
) -> Option<Moment> {
    let end = usize::from(message.end);
    let run = messages::completing(timeline, end, message.bytes.end)?;
    let step = &timeline.steps[1 - end][run];
    if one_clock {
        return Some(step.at);
    }
    let packet = timeline.packets[end].get(step.packet()?)?;
    let half = path?.round_trip.as_nanos() as u64 / 2;
    Some(Moment(packet.at.0 + half))
}

fn rules(facts: &Facts<'_>, end: usize) -> causes::Rules {
    let sysctls = &facts.connection.settings.sysctls[end];
    let value = |name: &str| sysctls.get(name)?.parse::<u32>().ok();
    causes::Rules {
        // `TCP_FASTRETRANS_THRESH` unless set.
        initial: value("tcp_reordering").unwrap_or(3),
        // `TCP_RACK_LOSS_DETECTION`; both are on unless set.
        counts: value("tcp_recovery").unwrap_or(1) & 1 == 0 || value("tcp_sack") == Some(0),
    }
}
