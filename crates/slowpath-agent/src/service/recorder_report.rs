// SPDX-License-Identifier: Apache-2.0
//! What the journal says of the recorder: what was kept, what was not, and what it cost.

use super::Journal;
use crate::agent::Agent;
use crate::recorder::{KeptRecording, RecorderState};
use slowpath_recording::ReplayKind;
use slowpath_text::{bytes, plural};

/// What has been reported of the recorder.
#[derive(Debug, Default)]
pub(super) struct RecorderReport {
    /// Connections that could not be kept, and the last of them.
    missing: u64,
    latest: Option<String>,
    ended: bool,
    troubles: [u64; 6],
    ipv6: bool,
}

impl RecorderReport {
    /// Reports the recordings that were kept; failures wait for [`RecorderReport::status`].
    pub(super) fn kept(&mut self, kept: &[KeptRecording], journal: Journal) {
        for it in kept {
            match line(it) {
                Ok(line) => journal.say(&line),
                Err(line) => {
                    self.missing += 1;
                    self.latest = Some(line);
                }
            }
        }
    }

    /// Reports what went wrong since the last time; gives a few words about the ring. `None`
    /// without a recorder.
    pub(super) fn status(&mut self, agent: &Agent, journal: Journal) -> Option<String> {
        let state = agent.recorder()?;
        if let (Some(reason), false) = (&state.ended, self.ended) {
            self.ended = true;
            journal.warn(&format!("nothing more is recorded: {reason}"));
        }
        if let Some(latest) = self.latest.take() {
            let more = std::mem::take(&mut self.missing) - 1;
            let others = match more {
                0 => String::new(),
                more => format!("; and {} more", plural(more, "connection")),
            };
            journal.warn(&format!("not kept: {latest}{others}"));
        }
        if state.ipv6_sockets > 0 && !self.ipv6 {
            self.ipv6 = true;
            journal.warn("connections over IPv6 are not recorded: tracepoints cannot distinguish their packets");
        }
        let counts = state.counts;
        let troubles = [
            counts.dropped_living + counts.dropped_large + counts.dropped_ended,
            counts.refused,
            state.lost_events,
            counts.cut_short,
            counts.unreplayable + counts.nonsense,
            state.excess_sockets,
        ];
        if troubles != self.troubles {
            self.troubles = troubles;
            let [dropped, refused, lost, cut, impossible, excess] = troubles;
            journal.warn(&format!(
                "the recorder since the start: {dropped} connections dropped from a full ring, {refused} not taken for want of CPU time, {lost} events lost, {cut} kept in part, {impossible} not replayable and not kept, {excess} sockets too many at once"
            ));
        }
        let held = plural(state.ring_connections, "connection");
        Some(format!(", {held} in a ring of {}", bytes(state.ring_bytes)))
    }
}

/// Reports what was recorded in all; nothing without a recorder.
pub(super) fn ended(state: Option<&RecorderState>, journal: Journal) {
    let Some(state) = state else { return };
    journal.say(&format!(
        "recorded {} in {} and {} of CPU time; kept {}",
        plural(state.counts.opened, "connection"),
        plural(state.counts.events, "event"),
        state.cpu,
        plural(state.counts.saved, "recording")
    ));
}

/// What a replay of it will be.
fn how(replay: ReplayKind) -> &'static str {
    match replay {
        ReplayKind::Exact => ", replayed exactly",
        ReplayKind::OtherKernel => ", replayed up to where this kernel differs",
        ReplayKind::Inferred => ", replayed as inferred",
        ReplayKind::OneSided => ", replayed with the other machine's recording",
    }
}

/// The line for a recording that was kept, or for one that could not be.
fn line(kept: &KeptRecording) -> Result<String, String> {
    let [a, b] = kept.addresses;
    let named = |end: usize| {
        let owner = kept.owners[end].as_ref();
        owner.map_or(String::new(), |owner| format!(" of {owner}"))
    };
    let who = format!("{a}{} to {b}{}", named(0), named(1));
    let reasons = kept.reasons.join(", ");
    match &kept.file {
        Ok(file) => {
            let lives = if kept.lives { ", which goes on" } else { "" };
            let file = file.display();
            let replay = kept.replay.map_or("", how);
            Ok(format!("kept {who} ({reasons}){lives}{replay}: {file}"))
        }
        Err(reason) => Err(format!("{who} ({reasons}): {reason}")),
    }
}
