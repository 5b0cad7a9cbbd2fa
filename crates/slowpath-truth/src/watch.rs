// SPDX-License-Identifier: Apache-2.0
//! One agent that watches all runs, on a thread of its own, with the agent's own settings.

use crate::RunError;
use crate::why::Question;
use slowpath_agent::{Agent, Config, LiveConnection, LiveListener};
use slowpath_diagnose::{InteractionKind, Interactions, Observation, Totals};
use slowpath_model::{ConnectionId, Finding, FourTuple, MonoNanos, Tier};
use slowpath_views::conclusion::Conclusion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

/// Findings on an interval: its beginning and end, `CLOCK_MONOTONIC` in nanoseconds.
pub type Interval = (u64, u64, Vec<Finding>);

/// What the agent said of one end of a connection.
#[derive(Clone, Debug)]
pub struct ObservedEnd {
    /// The namespace's inode number.
    pub netns: u32,
    /// The end's addresses.
    pub tuple: FourTuple,
    /// Its name.
    pub id: ConnectionId,
    /// Its verdicts, added up.
    pub totals: Totals,
    /// The last moment that they are about, `CLOCK_MONOTONIC` in nanoseconds.
    pub to: u64,
    /// Findings with their intervals, as far as they were the latest when looked at.
    pub findings: Vec<Interval>,
    /// Interactions that it suffers from.
    pub interactions: BTreeSet<InteractionKind>,
}

/// What the agent said of a listener.
#[derive(Clone, Debug)]
pub struct ObservedListener {
    /// The namespace's inode number.
    pub netns: u32,
    /// Where it listens.
    pub local: SocketAddr,
    /// Rounds that found its accept queue overflowing, and its SYN queue.
    pub rounds: [u64; 2],
    /// Segments turned away for either, as far as known.
    pub events: [u64; 2],
}

/// What the agent said of two namespaces.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// Ends of connections.
    pub ends: Vec<ObservedEnd>,
    /// Listeners.
    pub listeners: Vec<ObservedListener>,
    /// What `why` answers, if it was asked.
    pub answer: Option<Conclusion>,
}

type Answer = Sender<Result<Observations, String>>;

enum Ask {
    Register([u32; 2]),
    About([u32; 2], SocketAddr),
    Collect([u32; 2], Answer),
}

/// The running agent.
#[derive(Debug)]
pub struct Watch {
    ask: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

/// A handle for a run's thread.
#[derive(Clone, Debug)]
pub struct Watcher(Sender<Ask>);

impl Watch {
    /// Starts it; the seed is that of its polling times.
    ///
    /// # Errors
    /// It does not start, or not with BPF: the other tier sees one namespace only.
    pub fn start(seed: u64) -> Result<Self, RunError> {
        let (ask, asked) = channel();
        let (started, starts) = channel();
        let thread = std::thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || {
                let config = Config {
                    seed: Some(seed),
                    ..Config::default()
                };
                match Agent::start(config) {
                    Ok(agent) if agent.capabilities().tier != Tier::Bpf => {
                        let why = agent.capabilities().fallback.clone();
                        let _ = started.send(Err(why.unwrap_or_default()));
                    }
                    Ok(agent) => {
                        let _ = started.send(Ok(()));
                        Polling::new(agent).run(&asked);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error.to_string()));
                    }
                }
            })
            .map_err(RunError::io("start a thread"))?;
        match starts.recv() {
            Ok(Ok(())) => Ok(Watch {
                ask: Some(ask),
                thread: Some(thread),
            }),
            Ok(Err(why)) => Err(RunError::Agent(why)),
            Err(_) => Err(RunError::Agent("it ended".to_owned())),
        }
    }

    /// A handle.
    pub fn watcher(&self) -> Watcher {
        let Some(ask) = &self.ask else {
            unreachable!("it is taken when this is dropped");
        };
        Watcher(ask.clone())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watcher {
    /// Keeps what is said of connections in these namespaces from now on.
    pub fn register(&self, namespaces: [u32; 2]) {
        let _ = self.0.send(Ask::Register(namespaces));
    }

    /// Asks `why` about the peer at that address, from now on.
    pub fn ask(&self, namespaces: [u32; 2], peer: SocketAddr) {
        let _ = self.0.send(Ask::About(namespaces, peer));
    }

    /// Waits for the next poll and gives what was said of them.
    ///
    /// # Errors
    /// The agent failed.
    pub fn collect(&self, namespaces: [u32; 2]) -> Result<Observations, RunError> {
        let (answer, answered) = channel();
        let _ = self.0.send(Ask::Collect(namespaces, answer));
        match answered.recv() {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(error)) => Err(RunError::Agent(error)),
            Err(_) => Err(RunError::Agent("it ended".to_owned())),
        }
    }
}

type Key = (u32, FourTuple);

struct Polling {
    agent: Agent,
    /// What is kept of each registered namespace: connections that closed.
    kept: BTreeMap<u32, Vec<ObservedEnd>>,
    findings: Findings,
    /// The interactions found, run by run: each is a machine of its own.
    run_interactions: Vec<RunInteractions>,
    questions: Vec<Question>,
    waiting: Vec<([u32; 2], Answer)>,
}

impl Polling {
    fn new(agent: Agent) -> Self {
        Polling {
            agent,
            kept: BTreeMap::new(),
            findings: BTreeMap::new(),
            run_interactions: Vec::new(),
            questions: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn run(mut self, asked: &Receiver<Ask>) {
        loop {
            match asked.recv_timeout(self.agent.until_next_poll()) {
                Ok(Ask::Register(namespaces)) => {
                    self.run_interactions.push(RunInteractions::of(namespaces));
                    for netns in namespaces {
                        self.kept.insert(netns, Vec::new());
                    }
                }
                Ok(Ask::About(namespaces, peer)) => {
                    self.questions.push(Question::new(namespaces, peer));
                    // As the command does, which begins with a poll.
                    self.poll();
                }
                Ok(Ask::Collect(namespaces, answer)) => self.waiting.push((namespaces, answer)),
                Err(RecvTimeoutError::Timeout) => self.poll(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn poll(&mut self) {
        let report = self.agent.poll();
        let to = report.as_ref().map_or(0, |report| report.at.0);
        for c in self.agent.connections() {
            let netns = c.snapshot.id.netns;
            if self.kept.contains_key(&netns) {
                note(&mut self.findings, key(c), c);
            }
        }
        for c in self.agent.recently_closed() {
            if let Some(kept) = self.kept.get_mut(&c.snapshot.id.netns) {
                note(&mut self.findings, key(c), c);
                kept.push(observed_end(c, c.snapshot.at.0, &self.findings));
            }
        }
        for run_interactions in &mut self.run_interactions {
            run_interactions.look(&self.agent, to);
        }
        if let Ok(report) = &report {
            for question in &mut self.questions {
                question.polled(&self.agent, report);
            }
        }
        for (namespaces, answer) in std::mem::take(&mut self.waiting) {
            let result = match &report {
                Ok(_) => Ok(self.give(namespaces, to)),
                Err(error) => Err(error.to_string()),
            };
            let _ = answer.send(result);
        }
    }

    /// What was kept, and what lives.
    fn give(&mut self, namespaces: [u32; 2], to: u64) -> Observations {
        let mut all = Vec::new();
        for netns in namespaces {
            all.extend(self.kept.remove(&netns).unwrap_or_default());
        }
        let living = self.agent.connections();
        let ours = living.filter(|c| namespaces.contains(&c.snapshot.id.netns));
        all.extend(ours.map(|c| observed_end(c, to, &self.findings)));
        self.findings
            .retain(|(netns, _), _| !namespaces.contains(netns));
        for run_interactions in &self.run_interactions {
            for (id, kind) in &run_interactions.found {
                for observed in all.iter_mut().filter(|observed| observed.id == *id) {
                    observed.interactions.insert(*kind);
                }
            }
        }
        self.run_interactions.retain(|t| t.namespaces != namespaces);
        let asked = self.questions.iter().position(|q| q.is_about(namespaces));
        let answer = asked.and_then(|number| self.questions.swap_remove(number).answer());
        let listeners = self.agent.listeners();
        let ours = listeners.filter(|l| namespaces.contains(&l.snapshot.id.netns));
        Observations {
            answer,
            ends: all,
            listeners: ours.map(observed_listener).collect(),
        }
    }
}

/// The interactions of a run.
struct RunInteractions {
    namespaces: [u32; 2],
    recent: Interactions,
    /// Who suffered from what.
    found: BTreeSet<(ConnectionId, InteractionKind)>,
}

impl RunInteractions {
    fn of(namespaces: [u32; 2]) -> Self {
        RunInteractions {
            namespaces,
            recent: Interactions::default(),
            found: BTreeSet::new(),
        }
    }

    fn look(&mut self, agent: &Agent, now: u64) {
        for c in agent.recently_closed().chain(agent.connections()) {
            let ours = self.namespaces.contains(&c.snapshot.id.netns);
            if let Some(verdict) = c.latest.as_ref().filter(|_| ours) {
                self.recent.observe(&Observation {
                    tuple: c.snapshot.tuple,
                    pid: c.owner.pid(),
                    origin: c.snapshot.origin,
                    stats: &c.snapshot.stats,
                    verdict,
                });
            }
        }
        self.recent.forget(MonoNanos(now));
        for interaction in self.recent.find() {
            let suffers = interaction.connections.first();
            self.found.extend(suffers.map(|id| (*id, interaction.kind)));
        }
    }
}

fn observed_listener(l: &LiveListener) -> ObservedListener {
    let (accept, syn) = (&l.accept_overflows, &l.syn_overflows);
    ObservedListener {
        netns: l.snapshot.id.netns,
        local: l.snapshot.local,
        rounds: [accept.rounds, syn.rounds],
        events: [accept.events, syn.events],
    }
}

fn key(c: &LiveConnection) -> Key {
    (c.snapshot.id.netns, c.snapshot.tuple)
}

type Findings = BTreeMap<(u32, String), Vec<Interval>>;

fn note(findings: &mut Findings, (netns, tuple): Key, c: &LiveConnection) {
    let Some(verdict) = &c.latest else { return };
    if verdict.findings.is_empty() {
        return;
    }
    let of = findings.entry((netns, tuple.to_string())).or_default();
    if of.last().is_none_or(|(_, to, _)| *to < verdict.to.0) {
        of.push((verdict.from.0, verdict.to.0, verdict.findings.clone()));
    }
}

fn observed_end(c: &LiveConnection, to: u64, findings: &Findings) -> ObservedEnd {
    let (netns, tuple) = key(c);
    ObservedEnd {
        netns,
        tuple,
        id: c.snapshot.id,
        interactions: BTreeSet::new(),
        totals: c.totals,
        to,
        findings: findings
            .get(&(netns, tuple.to_string()))
            .cloned()
            .unwrap_or_default(),
    }
}
