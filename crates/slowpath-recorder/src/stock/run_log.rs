// SPDX-License-Identifier: Apache-2.0
//! The runs of an end that were not handed out yet.

use slowpath_recording::Run;
use slowpath_recording::fields::SocketFields;

/// Runs in their order, with the socket's state after each.
#[derive(Clone, Default)]
pub(super) struct RunLog {
    /// Those that were not handed out before the end, see [`Side::settle`](super::side::Side::settle).
    pub(super) runs: Vec<Run>,
    pub(super) states: Vec<SocketFields>,
    /// Runs that were handed out before them.
    pub(super) handed_out: usize,
    /// The check of the last run that has one.
    pub(super) last_check: u32,
    /// Runs there were when losses were last checked: those are before any loss that cannot be placed.
    pub(super) sure: usize,
}

impl RunLog {
    /// Replaces all runs by ones without a socket's state.
    pub(super) fn begin(&mut self, runs: Vec<Run>) {
        self.states = vec![SocketFields::NONE; runs.len()];
        self.runs = runs;
    }

    pub(super) fn push(&mut self, run: Run, state: SocketFields) {
        self.runs.push(run);
        self.states.push(state);
    }

    /// Runs there are, those that were handed out included.
    pub(super) fn count(&self) -> usize {
        self.handed_out + self.runs.len()
    }

    /// The run at that place among all; `None`: it was handed out, or is not there yet.
    pub(super) fn run_at(&mut self, place: usize) -> Option<&mut Run> {
        self.runs.get_mut(place.checked_sub(self.handed_out)?)
    }

    /// The first `count`, which leave.
    pub(super) fn hand_out(&mut self, count: usize) -> Vec<Run> {
        self.handed_out += count;
        self.states.drain(..count);
        let runs = self.runs.drain(..count).collect();
        if self.runs.len() * 4 < self.runs.capacity() {
            self.runs.shrink_to(self.runs.len() * 2);
            self.states.shrink_to(self.states.len() * 2);
        }
        runs
    }

    /// Drops the runs that a loss may have preceded.
    pub(super) fn drop_unsure(&mut self) {
        let sure = self.sure.saturating_sub(self.handed_out);
        self.runs.truncate(sure);
        self.states.truncate(sure);
    }
}
