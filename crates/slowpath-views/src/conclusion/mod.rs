// SPDX-License-Identifier: Apache-2.0
//! The one answer made of many verdicts: what limits, who has to act, and whether anybody has to.
//!
//! A verdict judges what one end sends over one interval. An answer is about connections: both
//! ends of each, where the peer's socket is on this machine too; both directions; and what is
//! the same for several of them.
//!
//! 1. Each connection is judged by itself (`connection`): the limiter is the stage that took most of
//!    the time in which there was something to do. The network's time is the sum of its
//!    problems.
//! 2. Connections of which the same stage and the same actor (by command name, else by role)
//!    is to blame are one group. Connections on which nothing was to do are counted beside.
//! 3. The answer is the group that someone should act on, of several that with most time, unless all of these have
//!    less than a tenth of the time that anybody waited: then they are named behind it.
//!    Without any, it is the group with most active time. Its share is of its own connections' time: idle and healthy ones
//!    never dilute it.
//! 4. A process that passes data on and does not read because what it sends is limited is not
//!    to blame: the answer is the connection that is the cause (interaction PipelinedProxy).
//!    Likewise a process that answers slowly because it waits for another's slow answers.
//! 5. Connections that failed are a group if they are a tenth of those with anything to do; attempts that were given up,
//!    if they are more than half.
//! 6. A listener that turned connections away comes before connections that wait for their first ACK,
//!    before slow answers, and before whatever is no alarm: clients take it for losses.

mod connection;
mod end;
mod evidence;
mod failures;
mod judged;
mod pace;
mod table;
mod text;
mod turns;

pub use end::End;
pub use evidence::EndEvidence;
pub use failures::FailureEntry;
pub use table::{EndTable, Member, OtherEnds};

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{Failure, Micros, Owner, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use judged::Judged;
pub(crate) use table::Ends;

/// The part of the connections with anything to do that fails, or of the time that anybody waited for
/// them, before this is the answer.
const PART: f64 = 0.1;

/// What limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(JsonSchema))]
pub enum Limiter {
    /// An application: it sends or asks no faster, or writes so that TCP holds its data back.
    Application,
    /// The send buffer.
    SendBuffer,
    /// The network, or what the sending host knows of it: its congestion window.
    Network,
    /// The receiver: its buffer, or an application that does not read.
    Receiver,
    /// One small exchange after another, each of them a round trip.
    RoundTrips,
    /// Connections failed.
    Failed,
    /// Nothing was to do.
    Nothing,
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(JsonSchema))]
pub enum Role {
    /// The application that sends.
    SendingApplication,
    /// The application that receives.
    ReceivingApplication,
    /// The application that accepts connections.
    AcceptingApplication,
    /// Whoever operates the host that sends.
    SendingHost,
    /// Whoever operates the host that receives.
    ReceivingHost,
    /// Whoever operates the network.
    Network,
    /// No one: nothing is to be done.
    #[serde(rename = "nobody")]
    None,
}

/// A process that has to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ActingProcess {
    /// Its command name.
    pub command: Arc<str>,
    /// Its process id; null where only the listening socket's process has a name: the connection closed
    /// before its own was looked for.
    pub pid: Option<u32>,
}

impl ActingProcess {
    /// The process of an owner, or of the listener that accepted the connection.
    fn of(owner: &Owner) -> Option<Self> {
        let named = |command: &Arc<str>, pid| ActingProcess {
            command: command.clone(),
            pid,
        };
        match owner.process() {
            Some(process) => Some(named(&process.command, Some(process.pid))),
            None => owner.listener.as_ref().map(|command| named(command, None)),
        }
    }
}

impl fmt::Display for ActingProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{}[{pid}]", self.command),
            None => f.write_str(&self.command),
        }
    }
}

/// Who has to act, by name as far as it is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Act {
    /// In which role.
    pub who: Role,
    /// The process, where it is on this machine and known.
    pub process: Option<ActingProcess>,
    /// Its address; of the network, the peer's.
    pub address: Option<String>,
}

impl Act {
    /// In words: `the developer of curl[12]`.
    pub fn words(&self) -> String {
        let process = self.process.as_ref();
        let at = self.address.as_ref();
        let application = |role: &str| match (process, at) {
            (Some(process), _) => format!("the developer of {process}"),
            (None, Some(at)) => format!("the developer of the {role} application at {at}"),
            (None, None) => format!("the developer of the {role} application"),
        };
        let operator = |of: &str| match at {
            Some(at) => format!("the operator of the {of} host, {at}"),
            None => format!("the operator of the {of} host"),
        };
        match self.who {
            Role::SendingApplication => application("sending"),
            Role::ReceivingApplication => application("receiving"),
            Role::AcceptingApplication => application("accepting"),
            Role::SendingHost => operator("sending"),
            Role::ReceivingHost => operator("receiving"),
            Role::Network => match at {
                Some(at) => format!("the operator of the network to {at}"),
                None => "the operator of the network".to_owned(),
            },
            Role::None => "no one".to_owned(),
        }
    }
}

/// A problem that the answer rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Because {
    /// Its name.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::problem"))]
    pub problem: &'static str,
    /// Share of the time that [`Conclusion::share`] is of, 0 to 1.
    pub share: f64,
    /// Time in microseconds, over the connections that the answer is about.
    pub time_us: u64,
}

/// The answer: `answer` in `{"type": "why"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Conclusion {
    /// What limits.
    pub limiter: Limiter,
    /// Share of the time in which the connections that it is about had something to do, 0 to 1;
    /// null where there is no such time.
    pub share: Option<f64>,
    /// Whether anybody should act.
    pub alarm: bool,
    /// Who should.
    pub act: Act,
    /// Why, the deciding problem first.
    pub because: Vec<Because>,
    /// Connections that it is about.
    pub connections: usize,
    /// Other connections that were asked about and had something to do.
    pub others: usize,
    /// Connections that were asked about and had nothing to do.
    pub idle: usize,
    /// The same in a sentence.
    pub text: String,
    /// What it rests on: the deciding problem, or SenderAppLimited where there is none, at the end that it cost
    /// most.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub evidence: Option<EndEvidence>,
}

impl Conclusion {
    /// The beginning of the sentence: the limiter and its share.
    pub fn brief(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }

    /// The problem that it rests on; SenderAppLimited where there is none, or no one has to act.
    pub fn alarming(&self) -> Problem {
        let evidence = self.evidence.as_ref().filter(|_| self.alarm);
        evidence.map_or(Problem::SenderAppLimited, EndEvidence::problem)
    }
}

/// Both ends of a connection, as far as they are on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The end that was asked about.
    pub near: End<'a>,
    /// The peer's.
    pub far: Option<End<'a>>,
    /// The peer's address behind address translation.
    pub peer: SocketAddr,
    /// Who listens at the peer's address, where that is on this machine.
    pub listener: Option<&'a Owner>,
    /// The connection because of which the near end's process does not read, if it passes data
    /// on: its own end and the peer's.
    pub cause: Option<(End<'a>, Option<End<'a>>)>,
}

/// A listening socket that turned connections away.
#[derive(Clone, Copy, Debug)]
pub struct Refusing<'a> {
    /// Who holds it.
    pub owner: &'a Owner,
    /// Its address.
    pub local: SocketAddr,
    /// What was found.
    pub problem: Problem,
    /// For how long at most.
    pub time: Micros,
    /// Segments turned away, as far as counted.
    pub events: u64,
}

/// Connections with the same limiter and the same actor.
#[derive(Debug, Default)]
struct Group<'a> {
    members: Vec<Judged<'a>>,
    time: Micros,
    work: Micros,
    active: Micros,
    awaited: Micros,
}

impl<'a> Group<'a> {
    fn add(&mut self, judged: Judged<'a>) {
        self.time += judged.time;
        self.work += judged.work;
        self.active += judged.active;
        self.awaited += judged.awaited;
        self.members.push(judged);
    }

    /// The one that it cost most.
    fn worst(&self) -> Option<&Judged<'a>> {
        self.members.iter().max_by_key(|j| (j.time, j.active))
    }

    /// Of the time in which its connections had something to do.
    fn share(&self) -> Option<f64> {
        (self.work > Micros::ZERO).then(|| crate::tally::share(self.time, self.work))
    }

    /// Its sentence; `working` connections had something to do.
    fn text(&self, working: usize) -> String {
        let worst = self.worst();
        let of = |worst| text::of(worst, self.share(), (self.members.len(), working));
        worst.map(of).unwrap_or_default()
    }

    /// The same where it comes second.
    fn text_of_few(&self, working: usize) -> String {
        let few = self.members.len();
        format!("{few} of {working}: {}", self.text(working))
    }

    fn because(&self) -> Vec<Because> {
        let mut times: BTreeMap<Problem, Micros> = BTreeMap::new();
        for (problem, time) in self.members.iter().flat_map(|j| &j.because) {
            *times.entry(*problem).or_default() += *time;
        }
        let deciding = self.worst().map_or(Limiter::Nothing, |j| j.limiter);
        let mut because: Vec<(Problem, Micros)> = times.into_iter().collect();
        because.sort_by_key(|(problem, time)| {
            (
                !judged::belongs(*problem, deciding),
                std::cmp::Reverse(*time),
            )
        });
        let entry = |(problem, time): (Problem, Micros)| Because {
            problem: problem.name(),
            share: crate::tally::share(time, self.work),
            time_us: time.0,
        };
        because.into_iter().map(entry).collect()
    }
}

/// Groups whose process only passes on what another one costs it give way to that one.
///
/// 1. A process that waits for another's answers answers slowly itself.
/// 2. A proxy whose sends are limited on the one side does not read on the other.
fn give_way(groups: &mut BTreeMap<judged::Key, Group<'_>>) {
    let (mut waiting, mut blocked) = (BTreeSet::new(), BTreeSet::new());
    for judged in groups.values().flat_map(|group| &group.members) {
        let itself = judged.owner.and_then(Owner::pid);
        waiting.extend(judged.asked_by.filter(|pid| itself != Some(*pid)));
        let sender = judged
            .sender
            .filter(|_| judged.alarm && judged.limits_sender());
        let sender = sender.and_then(|end| Some((end.owner.pid()?, turns::asks(&end))));
        blocked.extend(sender.filter(|(pid, _)| itself != Some(*pid)));
    }
    let gives_way = |judged: &Judged<'_>| {
        let pid = judged.owner.and_then(Owner::pid)?;
        let answers = judged.turns.is_some_and(|t| t.answers_decide());
        let reads = judged.limiter == Limiter::Receiver && judged.who == Role::ReceivingApplication;
        let other = judged.receiver.map(|end| !turns::asks(&end));
        let stuck = other.is_some_and(|other| blocked.contains(&(pid, other)));
        Some(answers && waiting.contains(&pid) || reads && stuck)
    };
    let stays = |group: &Group<'_>| !group.worst().and_then(gives_way).unwrap_or(false);
    // Two that wait for each other are both the answer.
    if groups.iter().any(|(key, group)| key.alarm && stays(group)) {
        groups.retain(|_, group| stays(group));
    }
}

/// What users feel as instantaneous (Nielsen, Usability Engineering, section 5.5): nothing that took less
/// in all the time observed is worth acting on.
const FELT: Micros = Micros(100_000);

/// Whether all that someone should act on has less than a tenth of the time that anybody waited, as one dead
/// connection of a server that answers twenty others at once, or took less than anybody feels.
fn minor(groups: &BTreeMap<judged::Key, Group<'_>>) -> bool {
    let felt = groups
        .iter()
        .any(|(key, group)| key.alarm && group.time >= FELT);
    let awaited = |alarm: bool| -> u64 {
        let those = groups.iter().filter(|(key, _)| key.alarm == alarm);
        those.map(|(_, group)| group.awaited.0).sum()
    };
    let acts = awaited(true);
    (!felt || (acts as f64) < PART * (acts + awaited(false)) as f64)
        && !groups
            .keys()
            .any(|key| key.alarm && key.limiter == Limiter::Failed)
}

/// Whether those that failed alike are too few, of `working` connections with anything to do, to be the answer.
fn few_failed(key: &judged::Key, group: &Group<'_>, working: usize) -> bool {
    let failed = group.members.len();
    match key.failure {
        // Of two attempts, the slower one is given up (RFC 8305 section 5).
        Some(Failure::Abandoned) => 2 * failed <= working,
        Some(_) => (failed as f64) < PART * working as f64,
        None => false,
    }
}

/// The answer about these connections and listening sockets.
pub fn conclude<'a>(
    connections: impl IntoIterator<Item = Observed<'a>>,
    refusing: &[Refusing<'a>],
) -> Conclusion {
    let mut groups: BTreeMap<_, Group<'a>> = BTreeMap::new();
    let mut given_up = Vec::new();
    let (mut idle, mut working) = (0, 0);
    for observed in connections {
        let judged = connection::judge(&observed);
        if judged.limiter == Limiter::Nothing {
            idle += 1;
            continue;
        }
        working += 1;
        match judged.given_up {
            true => given_up.push(judged),
            false => groups.entry(judged.key()).or_default().add(judged),
        }
    }
    groups.retain(|key, group| !few_failed(key, group, working));
    if groups.is_empty() {
        for judged in std::mem::take(&mut given_up) {
            groups.entry(judged.key()).or_default().add(judged);
        }
    }
    give_way(&mut groups);
    let minor = minor(&groups);
    let of = |alarm: bool| groups.iter().filter(move |(key, _)| key.alarm == alarm);
    let acts = of(true).max_by_key(|(_, g)| g.time).map(|(_, g)| g);
    let fine = of(false).max_by_key(|(_, g)| g.active).map(|(_, g)| g);
    let best = if minor { fine.or(acts) } else { acts.or(fine) };
    if let Some(listener) = worst_listener(refusing)
        && best
            .and_then(Group::worst)
            .is_none_or(|j| !j.alarm || j.only_opening || j.turns.is_some())
    {
        return text::of_listener(listener, working, idle);
    }
    let Some((group, worst)) = best.and_then(|g| Some((g, g.worst()?))) else {
        return text::of_nothing(idle);
    };
    let because = group.because();
    let first = because.first().and_then(|b| Problem::from_name(b.problem));
    let deciding = first.and_then(|problem| worst.evidence(problem));
    Conclusion {
        limiter: worst.limiter,
        share: group.share(),
        alarm: worst.alarm && !minor,
        act: worst.act(),
        because,
        connections: group.members.len(),
        others: working - group.members.len(),
        idle,
        text: {
            let few = acts.filter(|_| minor && fine.is_some());
            let few = few.map(|few| few.text_of_few(working));
            let behind = few.into_iter().chain(text::of_given_up(given_up.len()));
            let all: Vec<String> = [group.text(working)].into_iter().chain(behind).collect();
            all.join("; ")
        },
        evidence: deciding.or_else(|| worst.evidence(Problem::SenderAppLimited)),
    }
}

/// The listener that turned most away, and why. What waits for `accept` keeps handshakes from completing
/// (`tcp_check_req`): an accept queue that overflows for most of the time explains a full queue of half-open connections.
/// One that overflows for a moment may be what these left when their ACKs came at once.
fn worst_listener<'a>(refusing: &'a [Refusing<'a>]) -> Option<&'a Refusing<'a>> {
    let worst = refusing.iter().max_by_key(|l| (l.events, l.time))?;
    let accept = refusing.iter().find(|l| {
        let same = l.local == worst.local && l.problem == Problem::AcceptQueueOverflow;
        same && 2 * l.time.0 > worst.time.0
    });
    accept.or(Some(worst))
}

#[cfg(test)]
mod tests;
