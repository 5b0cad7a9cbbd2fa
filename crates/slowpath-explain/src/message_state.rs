// SPDX-License-Identifier: Apache-2.0
//! Where a message stood at a moment: its bytes that were not acknowledged, the sender's congestion window and slow start threshold at that moment, and
//! the path as the whole connection shows it.

use super::messages::{self, Message, NetworkPath};
use super::state::State;
use super::timeline::Timeline;
use super::{Facts, Unexplained, done};
use slowpath_recording::Moment;

/// `TCP_INFINITE_SSTHRESH` (include/net/tcp.h): there was no loss yet.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// Why it is not known where a message stood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMessageState {
    /// The headers are not of the recorded connection.
    #[error(transparent)]
    Facts(#[from] Unexplained),
    /// All was acknowledged.
    #[error("no message was under way there")]
    Idle,
    /// Too few packets.
    #[error("the connection shows too little of its path: fewer than ten packets came in")]
    Path,
}

/// Where a message stood at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageState {
    /// Which message.
    pub message: Message,
    /// The moment.
    pub at: Moment,
    /// Its bytes that were not acknowledged.
    pub left: u64,
    /// The congestion window, in packets.
    pub window: u32,
    /// The slow start threshold, in packets; `None`: there was none yet.
    pub threshold: Option<u32>,
    /// Bytes of the largest payload that the sender sent.
    pub payload: u64,
    /// The path, by the whole connection.
    pub path: NetworkPath,
}

impl MessageState {
    /// With the congestion window and the slow start threshold of another state of its sender.
    pub fn set_windows(&mut self, state: &State) {
        self.window = state.congestion_window().max(1);
        self.threshold = Some(state.slow_start_threshold()).filter(|it| *it < NO_THRESHOLD);
    }
}

/// Where the message with most bytes left stood at a moment.
///
/// # Errors
/// No message was under way, or the path is not known.
pub fn message_state(facts: &Facts<'_>, at: Moment) -> Result<MessageState, NoMessageState> {
    let timeline = Timeline::new(facts)?;
    let mut best: Option<MessageState> = None;
    for end in 0..2 {
        let steps = timeline.steps[end].iter();
        let Some(step) = steps.take_while(|step| step.at <= at).last() else {
            continue;
        };
        let path = messages::path(&timeline, end);
        for mut message in messages::messages(&timeline, end) {
            let left = message.bytes.end
                - message
                    .bytes
                    .start
                    .max(step.acknowledged)
                    .min(message.bytes.end);
            if message.begun > at || left <= best.as_ref().map_or(0, |it| it.left) {
                continue;
            }
            let path = path.ok_or(NoMessageState::Path)?;
            message.done = done(&timeline, &message, Some(&path), facts.one_clock);
            let state = |field: fn(&State) -> u32| step.after.map(field);
            best = Some(MessageState {
                message,
                at,
                left,
                window: state(State::congestion_window).unwrap_or(10).max(1),
                threshold: state(State::slow_start_threshold).filter(|it| *it < NO_THRESHOLD),
                payload: timeline.largest[end].max(1),
                path,
            });
        }
    }
    best.ok_or(NoMessageState::Idle)
}
