// SPDX-License-Identifier: Apache-2.0
//! What `slowpath why HOST:PORT` answers about a run, from the polls of the agent that watches all
//! runs: the command's own collector, on a machine that has only this run's namespaces.

use crate::app::realtime;
use slowpath_agent::{Agent, LiveConnection as AgentConnection, PollReport as AgentReport};
use slowpath_model::{Capabilities, LossCounters, Micros, MonoNanos, WallMicros};
use slowpath_views::conclusion::Conclusion;
use slowpath_views::source::{
    LiveConnection, LiveListener, PollReport, ProgramCost, Source, SourceError,
};
use slowpath_views::why::{Collector, Target};
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// A question that is being answered.
pub(crate) struct Question {
    namespaces: [u32; 2],
    collector: Collector,
    /// First and last poll.
    polls: Option<(MonoNanos, MonoNanos)>,
}

impl Question {
    pub(crate) fn new(namespaces: [u32; 2], peer: SocketAddr) -> Self {
        let target = Target::Peer {
            text: peer.to_string(),
            addresses: vec![peer.ip()],
            port: Some(peer.port()),
        };
        Question {
            namespaces,
            collector: Collector::at(&target),
            polls: None,
        }
    }

    pub(crate) fn is_about(&self, namespaces: [u32; 2]) -> bool {
        self.namespaces == namespaces
    }

    pub(crate) fn polled(&mut self, agent: &Agent, report: &AgentReport) {
        let run = RunSource {
            agent,
            namespaces: self.namespaces,
        };
        let report = PollReport {
            at: report.at,
            sockets: report.sockets,
            emitted: report.emitted,
            missed: report.missed,
            cpu: report.cpu,
            refresh: report.refresh,
            // The agent of all runs shows all that close: they are few.
            unshown: 0,
        };
        let now = WallMicros((realtime() / 1_000) as i64);
        self.collector.polled(&run, &report, now);
        let (first, _) = self.polls.unwrap_or((report.at, report.at));
        self.polls = Some((first, report.at));
    }

    /// The answer; `None` where nothing of what was asked about was met.
    pub(crate) fn answer(self) -> Option<Conclusion> {
        let looked = self.polls.map_or(Micros::ZERO, |(from, to)| to.since(from));
        Some(self.collector.answer(looked).ok()?.conclusion())
    }
}

/// The agent's connections and listeners of one run.
struct RunSource<'a> {
    agent: &'a Agent,
    namespaces: [u32; 2],
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

impl RunSource<'_> {
    fn has(&self, netns: u32) -> bool {
        self.namespaces.contains(&netns)
    }
}

impl Source for RunSource<'_> {
    fn poll(&mut self) -> Result<PollReport, SourceError> {
        Err(SourceError("the agent of all runs polls".to_owned()))
    }

    fn until_next_poll(&self) -> Duration {
        self.agent.until_next_poll()
    }

    fn connections(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_> {
        let ours = self.agent.connections();
        Box::new(ours.filter(|c| self.has(c.snapshot.id.netns)).map(live))
    }

    fn recently_closed(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_> {
        let ours = self.agent.recently_closed();
        Box::new(ours.filter(|c| self.has(c.snapshot.id.netns)).map(live))
    }

    fn listeners(&self) -> Box<dyn Iterator<Item = LiveListener<'_>> + '_> {
        let ours = self.agent.listeners();
        let ours = ours.filter(|l| self.has(l.snapshot.id.netns));
        Box::new(ours.map(|listener| LiveListener {
            snapshot: &listener.snapshot,
            owner: &listener.owner,
            holders: &listener.holders,
            latest: listener.latest.as_ref(),
        }))
    }

    fn capabilities(&self) -> &Capabilities {
        self.agent.capabilities()
    }

    fn losses(&self) -> LossCounters {
        self.agent.losses()
    }

    fn measure_programs(&mut self) -> std::io::Result<()> {
        Err(Error::from(ErrorKind::Unsupported))
    }

    fn programs(&self) -> Vec<ProgramCost> {
        Vec::new()
    }
}
