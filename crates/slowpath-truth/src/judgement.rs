// SPDX-License-Identifier: Apache-2.0
//! One judgement: what the agent found about one subject, beside what was true.

use crate::plan::{INJECTED, OF_LISTENERS};
use crate::truth::Truth;
use slowpath_diagnose::InteractionKind;
use slowpath_model::Problem;
use std::fmt;

/// What is counted in one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A problem.
    Problem(Problem),
    /// An interaction.
    Interaction(InteractionKind),
}

impl Class {
    /// Every class of the table.
    pub fn all() -> impl Iterator<Item = Class> + Clone {
        let problems = INJECTED.iter().chain(OF_LISTENERS).copied();
        let problems = problems.map(Class::Problem);
        problems.chain(InteractionKind::ALL.into_iter().map(Class::Interaction))
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Problem(problem) => problem.name(),
            Class::Interaction(kind) => kind.name(),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Of what something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The end of that number of a run.
    End(usize),
    /// The run's listener.
    Listener,
    /// The run's process that passes data on, if there is one.
    Process,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::End(number) => write!(f, "end {number}"),
            Subject::Listener => f.write_str("the listener"),
            Subject::Process => f.write_str("the process"),
        }
    }
}

/// Found and true, of one class and one subject.
#[derive(Clone, Copy, Debug)]
pub struct Judgement {
    /// Of what class.
    pub class: Class,
    /// Of whom.
    pub of: Subject,
    /// What was the case.
    pub truth: Truth,
    /// Whether it was found.
    pub found: bool,
    /// How long, as found.
    pub time_us: u64,
    /// How often, as found.
    pub events: u64,
}
