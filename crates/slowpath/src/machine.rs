// SPDX-License-Identifier: Apache-2.0
//! The agent of this machine as a [`Source`].

use crate::args::{Looking, TierArg};
use crate::failure::Failure;
use crate::source::{
    BudgetState, Capabilities, Live, PollReport, ProgramCost, Source, SourceError,
};
use slowpath_agent::{
    Agent, Config, FinishReport, LiveConnection, LiveListener, OwnerOptions, TierChoice,
};
use slowpath_model::LossCounters;
use std::path::Path;
use std::time::Duration;

/// The agent.
pub struct Machine {
    agent: Agent,
}

impl Machine {
    /// Starts looking at this machine; with a log if one is named, and with `history` points
    /// kept of each connection.
    ///
    /// # Errors
    /// [`Failure::Start`] with what the agent says.
    pub fn start(looking: &Looking, log: Option<&Path>, history: usize) -> Result<Self, Failure> {
        let config = Config {
            interval: looking.interval,
            log: log.map(Path::to_owned),
            tier: match looking.tier {
                TierArg::Auto => TierChoice::Auto,
                TierArg::Bpf => TierChoice::Bpf,
                TierArg::InetDiag => TierChoice::InetDiag,
            },
            history,
            budget: looking.cpu_budget,
            owners: OwnerOptions {
                rules: looking.owners.clone().unwrap_or_default(),
                log_command_lines: looking.log_command_lines.into(),
            },
            ..Config::default()
        };
        Agent::start(config)
            .map(|agent| Machine { agent })
            .map_err(|error| Failure::Start(error.to_string()))
    }

    /// Stops, and closes the log.
    pub fn finish(self) -> FinishReport {
        self.agent.finish()
    }
}

fn live(connection: &LiveConnection) -> Live<'_> {
    Live {
        snapshot: &connection.snapshot,
        owner: &connection.owner,
        real_peer: connection.real_peer,
        latest: connection.latest.as_deref(),
        observed: connection.totals.observed,
        problem_time: &connection.totals.problem_time,
        history: &connection.history,
    }
}

impl Source for Machine {
    fn poll(&mut self) -> Result<PollReport, SourceError> {
        self.agent.poll().map_err(|e| SourceError(e.to_string()))
    }

    fn until_next_poll(&self) -> Duration {
        self.agent.until_next_poll()
    }

    fn connections(&self) -> Box<dyn Iterator<Item = Live<'_>> + '_> {
        Box::new(self.agent.connections().map(live))
    }

    fn recently_closed(&self) -> Box<dyn Iterator<Item = Live<'_>> + '_> {
        Box::new(self.agent.recently_closed().map(live))
    }

    fn listeners(&self) -> Box<dyn Iterator<Item = &LiveListener> + '_> {
        Box::new(self.agent.listeners())
    }

    fn capabilities(&self) -> &Capabilities {
        self.agent.capabilities()
    }

    fn losses(&self) -> LossCounters {
        self.agent.losses()
    }

    fn measure_programs(&mut self) -> std::io::Result<()> {
        self.agent.measure_programs()
    }

    fn budget(&self) -> Option<BudgetState> {
        self.agent.budget()
    }

    fn programs(&self) -> Vec<ProgramCost> {
        self.agent.programs()
    }
}
