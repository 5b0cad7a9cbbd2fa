// SPDX-License-Identifier: Apache-2.0
//! The agent of this machine as a [`Source`].

use crate::failure::Failure;
use crate::options::{Observing, TierArg};
use slowpath_agent::{
    Agent, Config, FinishReport, LiveConnection as AgentConnection, OwnerOptions, TierChoice,
    processor,
};
use slowpath_model::{LossCounters, Micros};
use slowpath_views::source::{
    BudgetState, Capabilities, HostLimits, LiveConnection, LiveListener, PollReport, ProcessState,
    ProgramCost, Source, SourceError,
};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The agent.
pub struct Machine {
    agent: Agent,
}

impl Machine {
    /// Starts observing this machine; with a log if one is named, and with `history` points
    /// kept of each connection.
    ///
    /// # Errors
    /// [`Failure::Start`] with what the agent says.
    pub fn start(
        observing: &Observing,
        log: Option<&Path>,
        history: usize,
    ) -> Result<Self, Failure> {
        let config = Config {
            interval: observing.interval,
            log: log.map(Path::to_owned),
            tier: match observing.tier {
                TierArg::Auto => TierChoice::Auto,
                TierArg::Bpf => TierChoice::Bpf,
                TierArg::InetDiag => TierChoice::InetDiag,
            },
            history,
            budget: observing.cpu_budget,
            owners: OwnerOptions {
                rules: observing.owners.clone().unwrap_or_default(),
                log_command_lines: observing.log_command_lines.into(),
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

fn live(connection: &AgentConnection) -> LiveConnection<'_> {
    LiveConnection {
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
        let poll = self.agent.poll().map_err(|e| SourceError(e.to_string()))?;
        let shown = self.agent.recently_closed().count() as u64;
        Ok(PollReport {
            // All that close are shown, but those beyond the bound.
            unshown: poll.closed.saturating_sub(shown),
            at: poll.at,
            sockets: poll.sockets,
            emitted: poll.emitted,
            missed: poll.missed,
            cpu: poll.cpu,
            refresh: poll.refresh,
        })
    }

    fn until_next_poll(&self) -> Duration {
        self.agent.until_next_poll()
    }

    fn connections(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_> {
        Box::new(self.agent.connections().map(live))
    }

    fn recently_closed(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_> {
        Box::new(self.agent.recently_closed().map(live))
    }

    fn listeners(&self) -> Box<dyn Iterator<Item = LiveListener<'_>> + '_> {
        Box::new(self.agent.listeners().map(|listener| LiveListener {
            snapshot: &listener.snapshot,
            owner: &listener.owner,
            holders: &listener.holders,
            latest: listener.latest.as_ref(),
        }))
    }

    fn namespace_name(&self, inode: u32) -> Option<String> {
        slowpath_agent::namespace_name(inode)
    }

    fn host_limits(&self) -> HostLimits {
        // The high mark of tcp_mem, in pages, is what all of TCP may take (tcp(7)).
        let pages = last_number(fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok());
        let wmem = last_number(fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok());
        HostLimits {
            tcp_memory: pages.and_then(|p| p.checked_mul(page_size()?)),
            send_buffer_max: wmem.and_then(|w| u32::try_from(w).ok()),
        }
    }

    fn process_state(&self, pid: u32) -> Option<ProcessState> {
        slowpath_agent::process_state(pid)
    }

    fn processor_wait(&self, pid: u32) -> Option<Micros> {
        processor::wait(pid)
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
        self.agent.budget().map(|state| BudgetState {
            low: state.budget.low(),
            high: state.budget.high(),
            used: state.used,
            programs: state.events,
            polls: state.polls,
            quiet_rate: state.quiet_rate,
            problem_rate: state.problem_rate,
            worst_rate: state.worst_rate,
            left_out: state.left_out,
            exceeded: state.exceeded,
        })
    }

    fn programs(&self) -> Vec<ProgramCost> {
        let costs = self.agent.programs().into_iter();
        let cost = |cost: slowpath_agent::ProgramCost| ProgramCost {
            within_polls: cost.within_polls(),
            probe: cost.probe,
            program: cost.program,
            runs: cost.runs,
            nanos: cost.nanos,
        };
        costs.map(cost).collect()
    }
}

fn last_number(text: Option<String>) -> Option<u64> {
    text?.split_whitespace().last()?.parse().ok()
}

fn page_size() -> Option<u64> {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_last_of_three_numbers() {
        assert_eq!(last_number(Some("1\t2\t3\n".to_owned())), Some(3));
        assert_eq!(last_number(Some("x".to_owned())), None);
        assert_eq!(last_number(None), None);
    }
}
