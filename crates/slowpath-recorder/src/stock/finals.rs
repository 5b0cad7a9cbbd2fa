// SPDX-License-Identifier: Apache-2.0
//! The final runs of an end, which nothing changes any more: they get their checks and are handed out, while the end is open or when it is over.

use super::check::{check, mix};
use super::side::Side;
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{End, Handler, NOT_RETURNED, Run};

impl Side {
    /// Hands out the runs that are final. What a call returns belongs to its first run, what is merged into a packet to that packet's; and the
    /// last run stays, because a run that was put off takes its time.
    pub(super) fn settle(&mut self) -> Vec<Run> {
        let open = self.calls.values().filter_map(|call| call.run);
        let open = open.chain(self.merging).min().unwrap_or(usize::MAX);
        let until = open.min(self.log.count().saturating_sub(1));
        let count = until.saturating_sub(self.log.handed_out);
        self.make_checks(count);
        self.log.hand_out(count)
    }

    /// Events were lost, and it is not known which: drops the runs after those that were there when losses were last checked.
    pub(super) fn doubt(&mut self) {
        self.log.drop_unsure();
        self.current = None;
        self.merging = None;
        self.cut = true;
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let run = size_of::<Run>() + size_of::<SocketFields>();
        let one_sided = self
            .one_sided
            .as_ref()
            .map_or(0, |one_sided| one_sided.bytes());
        size_of::<Side>() + self.log.runs.capacity() * run + self.packets.bytes() + one_sided
    }

    fn make_checks(&mut self, count: usize) {
        for (run, fields) in self.log.runs.iter_mut().zip(&self.log.states).take(count) {
            let decisions = run.outcomes.iter().fold(0, |before, outcome| {
                let [first, second] = outcome.numbers();
                mix(before, outcome.decision().number(), first, second)
            });
            let [kind, mut value, result, mut more] = run.handler.words();
            if self.one_sided.is_some() && matches!(run.handler, Handler::Packet { .. }) {
                // Packet numbers of a one-sided end are not those of the connection.
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
            self.log.last_check = check(words, fields, self.log.last_check);
            run.check = Some(self.log.last_check);
        }
    }

    /// The runs that were not handed out, with their checks, and the states that these are made from.
    pub(super) fn end(mut self) -> (End, Vec<SocketFields>) {
        for call in std::mem::take(&mut self.calls).into_values() {
            self.returned(call, NOT_RETURNED);
        }
        self.make_checks(self.log.runs.len());
        let lost = u64::from(self.lost);
        let end = End {
            gap: (self.cut || self.unmatched || !self.waiting.is_empty())
                .then_some(self.log.count() as u64),
            lost,
            digest: self.log.last_check,
            runs: self.log.runs,
            ..End::default()
        };
        (end, self.log.states)
    }
}
