// SPDX-License-Identifier: Apache-2.0
//! Two processes under one identity, noticed by their runs.
//!
//! A run is drawn when an agent starts, and a process that ended does not return. So a run that
//! speaks after a later one proves that both live. One batch of an earlier run may still have been
//! under way when its agent was started anew; the second is proof.

/// The most earlier runs, and the most clones, that are kept of a host.
const KEPT: usize = 16;

/// The runs of one host, by the order of their first batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The latest one last.
    spoke: Vec<u128>,
    /// Batches of the run before, since the latest one spoke.
    returned: u8,
    /// Runs that are refused.
    clones: Vec<u128>,
}

/// What a batch's run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunVerdict {
    /// Its agent ships under its own name, as far as is known.
    Sole,
    /// Another process was there before it, and still is.
    Clone,
}

impl Runs {
    /// Notes a batch of a run. An earlier run that returns goes on, and those that spoke after its
    /// first batch are refused from then on.
    pub fn judge(&mut self, run: u128) -> RunVerdict {
        if self.clones.contains(&run) {
            return RunVerdict::Clone;
        }
        match self.spoke.iter().position(|r| *r == run) {
            Some(at) if at + 1 == self.spoke.len() => {}
            Some(at) => {
                self.returned += 1;
                if self.returned > 1 {
                    self.clones.extend(self.spoke.drain(at + 1..));
                    self.returned = 0;
                    trim(&mut self.clones);
                }
            }
            None => {
                self.spoke.push(run);
                self.returned = 0;
                trim(&mut self.spoke);
            }
        }
        RunVerdict::Sole
    }

    /// The run that spoke first of those that still may.
    pub fn present(&self) -> Option<u128> {
        self.spoke.last().copied()
    }

    /// Runs that are refused.
    pub fn clones(&self) -> &[u128] {
        &self.clones
    }

    /// All runs that spoke, the latest last, and the clones.
    pub(crate) fn parts(&self) -> (&[u128], &[u128]) {
        (&self.spoke, &self.clones)
    }

    pub(crate) fn from_parts(mut spoke: Vec<u128>, mut clones: Vec<u128>) -> Self {
        trim(&mut spoke);
        trim(&mut clones);
        Runs {
            spoke,
            returned: 0,
            clones,
        }
    }
}

/// Forgets the oldest.
fn trim(runs: &mut Vec<u128>) {
    let over = runs.len().saturating_sub(KEPT);
    runs.drain(..over);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_starts_anew_is_no_clone() {
        let mut runs = Runs::default();
        for run in 1..100 {
            for _ in 0..3 {
                assert_eq!(runs.judge(run), RunVerdict::Sole);
            }
        }
        assert_eq!(runs.present(), Some(99));
    }

    #[test]
    fn a_batch_that_was_under_way_at_a_restart_is_no_proof() {
        let mut runs = Runs::default();
        for run in [1, 2, 1, 2, 2, 3, 2, 3] {
            assert_eq!(runs.judge(run), RunVerdict::Sole, "{run}");
        }
    }

    #[test]
    fn of_two_that_live_the_first_goes_on_and_the_second_is_refused() {
        let mut runs = Runs::default();
        for run in [1, 2, 1, 1] {
            assert_eq!(runs.judge(run), RunVerdict::Sole);
        }
        assert_eq!(runs.judge(2), RunVerdict::Clone);
        assert_eq!(runs.judge(1), RunVerdict::Sole);
        // The clone is started anew, and once more noticed.
        assert_eq!(runs.judge(3), RunVerdict::Sole);
        runs.judge(1);
        runs.judge(1);
        assert_eq!(runs.judge(3), RunVerdict::Clone);
        assert_eq!(runs.clones(), [2, 3]);
    }
}
