// SPDX-License-Identifier: Apache-2.0
//! The runs of an end that nothing changes any more: they get their checks and are handed out, while the end lives or when it is over.

use super::check::{check, mix};
use super::side::Side;
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{End, Handler, NOT_RETURNED, Run};

impl Side {
    /// Those that are final and were not handed out. What a call returns belongs to its first run, what is merged into a packet to that packet's; and the
    /// last run tells when one comes that was put off.
    pub(super) fn settle(&mut self) -> Vec<Run> {
        let open = self.calls.values().filter_map(|call| call.run);
        let open = open.chain(self.merging).min().unwrap_or(usize::MAX);
        let until = open.min(self.count().saturating_sub(1));
        let count = until.saturating_sub(self.told);
        self.make_checks(count);
        self.told += count;
        self.states.drain(..count);
        let runs = self.runs.drain(..count).collect();
        if self.runs.len() * 4 < self.runs.capacity() {
            self.runs.shrink_to(self.runs.len() * 2);
            self.states.shrink_to(self.states.len() * 2);
        }
        runs
    }

    /// Events were lost, and nobody knows which: after the runs there were when that was looked at last.
    pub(super) fn doubt(&mut self) {
        let sure = self.sure.saturating_sub(self.told);
        self.runs.truncate(sure);
        self.states.truncate(sure);
        self.current = None;
        self.merging = None;
        self.cut = true;
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let run = size_of::<Run>() + size_of::<SocketFields>();
        let apart = self.apart.as_ref().map_or(0, |apart| apart.bytes());
        size_of::<Side>() + self.runs.capacity() * run + self.packets.bytes() + apart
    }

    fn make_checks(&mut self, count: usize) {
        for (run, fields) in self.runs.iter_mut().zip(&self.states).take(count) {
            let decisions = run.outcomes.iter().fold(0, |before, outcome| {
                let [first, second] = outcome.numbers();
                mix(before, outcome.decision().number(), first, second)
            });
            let [kind, mut value, result, mut more] = run.handler.words();
            if self.apart.is_some() && matches!(run.handler, Handler::Packet { .. }) {
                // Numbers of an end that is alone are not those of the connection.
                (value, more) = (0, 0);
            }
            let words = [
                run.at.0 as u32,
                (run.at.0 >> 32) as u32,
                run.jiffies,
                kind,
                value,
                result,
                decisions,
                more,
            ];
            self.before = check(words, fields, self.before);
            run.check = Some(self.before);
        }
    }

    /// The runs that were not handed out, with their checks, and the states that these are made from.
    pub(super) fn end(mut self) -> (End, Vec<SocketFields>) {
        for call in std::mem::take(&mut self.calls).into_values() {
            self.returned(call, NOT_RETURNED);
        }
        self.make_checks(self.runs.len());
        let lost = u64::from(self.lost);
        let end = End {
            gap: (self.cut || self.strange || !self.waiting.is_empty())
                .then_some(self.count() as u64),
            lost,
            digest: self.before,
            runs: self.runs,
            ..End::default()
        };
        (end, self.states)
    }
}
