// SPDX-License-Identifier: Apache-2.0
//! One run: a plan carried out while the agent watches.

mod applications;

use crate::app::{Span, monotonic, realtime};
use crate::capture::Capture;
use crate::judgement::{Class, Judgement, Subject};
use crate::packet::{Packet, packets};
use crate::plan::Plan;
use crate::stream::{Captured, Stream};
use crate::trace::{self, TraceVerdict};
use crate::truth::course::Course;
use crate::truth::interactions::{self, Sides};
use crate::truth::listener::{Listening, overflows};
use crate::truth::{Label, Truth, hidden, truths};
use crate::watch::{Observations, ObservedEnd, Watcher};
use crate::{RunError, counters, network};
use applications::{Done, Used, applications, listen};
use slowpath_diagnose::InteractionKind;
use slowpath_lab::emulator::Host;
use slowpath_model::Problem;
use slowpath_views::conclusion::Conclusion;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// By how much the clock of captures may drift from the one of calls in a run, nanoseconds.
const CLOCK_DRIFT: u64 = 200_000;

/// The backlog that `listen` is given, where nothing else is asked for.
const BACKLOG: u32 = 16;

/// One end of a connection, found and true.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Whether it is the end that opened it.
    pub opened: bool,
    /// Whether it sent data.
    pub sends: bool,
    /// What the agent reported.
    pub observed: ObservedEnd,
    /// What was the case.
    pub truths: Vec<(Problem, Truth)>,
    /// And which interactions.
    pub interactions: Vec<(InteractionKind, Truth)>,
    /// What `slowpath trace` says of what it sent.
    pub traced: Vec<(Problem, TraceVerdict)>,
    /// What else its packets and its application show.
    pub course: Course,
}

impl Judged {
    /// Whether the agent found the problem: any finding in any interval. `SenderAppLimited`
    /// is found where nothing else is.
    pub fn found(&self, problem: Problem) -> bool {
        let totals = &self.observed.totals;
        let has = |p: Problem| {
            totals.problem_time[p as usize].0 > 0 || totals.problem_events[p as usize] > 0
        };
        match problem {
            Problem::SenderAppLimited => !Problem::ALL.into_iter().any(|p| p != problem && has(p)),
            other => has(other),
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// Both ends of every connection.
    pub ends: Vec<Judged>,
    /// What is no end's: the listener, and a process that passes data on.
    pub others: Vec<Judgement>,
    /// The captures at a and b, as pcap files.
    pub captures: [Vec<u8>; 2],
    /// The kernels' own accounts at a and b, which no truth comes from.
    pub counters: [BTreeMap<String, u64>; 2],
    /// What `why` answered about the connection, or the listener.
    pub answer: Option<Conclusion>,
    /// Where the run's clients connect to.
    pub listener: SocketAddr,
    /// The process that passes data on, and the one that gets it.
    pub players: Option<[u32; 2]>,
}

impl Outcome {
    /// Every judgement, the ends' first.
    pub fn judgements(&self) -> Vec<Judgement> {
        let mut all = Vec::new();
        for (number, end) in self.ends.iter().enumerate() {
            let of = Subject::End(number);
            let totals = &end.observed.totals;
            for &(problem, truth) in &end.truths {
                // An end that sends nothing is limited by nothing.
                if problem == Problem::SenderAppLimited && !end.sends {
                    continue;
                }
                all.push(Judgement {
                    class: Class::Problem(problem),
                    of,
                    truth,
                    found: end.found(problem),
                    time_us: totals.problem_time[problem as usize].0,
                    events: totals.problem_events[problem as usize],
                });
            }
            all.extend(end.interactions.iter().map(|&(kind, truth)| Judgement {
                class: Class::Interaction(kind),
                of,
                truth,
                found: end.observed.interactions.contains(&kind),
                time_us: 0,
                events: 0,
            }));
        }
        all.extend(self.others.iter().copied());
        all
    }
}

/// Carries a plan out.
///
/// # Errors
/// See [`RunError`]; after [`RunError::Disturbed`] another attempt is worth while.
pub fn run(plan: &Plan, seed: u64, watcher: &Watcher) -> Result<Outcome, RunError> {
    let lab = network::up(plan, seed)?;
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let namespaces = [netns(a)?, netns(b)?];
    let _residents = [network::Resident::of(a)?, network::Resident::of(b)?];
    watcher.register(namespaces);
    let captures = [Capture::start(a)?, Capture::start(b)?];
    let offset = realtime() - monotonic();
    let listener = listen(b, plan)?;
    let ask = |peer| watcher.ask(namespaces, peer);
    let mut done = applications(&lab, &listener, plan, &ask)?;
    let observations = watcher.collect(namespaces)?;
    if let Some(relayed) = done.relayed.take() {
        done.used.extend(relayed.finish()?);
    }
    let counters = [counters::read(a), counters::read(b)];
    let drift = (realtime() - monotonic()).abs_diff(offset);
    let [near, far] = captures.map(Capture::finish);
    let captures = [near?, far?];
    if let Some(complaint) = lab.down().complaint() {
        return Err(RunError::Disturbed(complaint));
    }
    if drift > CLOCK_DRIFT {
        let why = format!("the clocks drifted by {} us", drift / 1000);
        return Err(RunError::Disturbed(why));
    }
    let wires = [read(&captures[0], offset), read(&captures[1], offset)];
    let until = observations.ends.iter().map(|end| end.to).max();
    let until = until.map_or(0, |to| to.saturating_add(offset));
    let traces = [
        trace::judge(&captures[0], until)?,
        trace::judge(&captures[1], until)?,
    ];
    let mut ends = Vec::new();
    for connection in &done.used {
        for side in 0..2 {
            let hosts = Hosts {
                namespaces,
                wires: &wires,
                traces: &traces,
            };
            ends.extend(judge(plan, connection, side, &hosts, &observations.ends));
        }
    }
    if ends.len() < 2 * done.used.len() {
        return Err(RunError::Agent(format!(
            "it saw {} of {} ends",
            ends.len(),
            2 * done.used.len()
        )));
    }
    let mut others = Vec::new();
    let local = listener
        .local_addr()
        .map_err(RunError::io("use a listener"))?;
    if plan.relay.is_none() {
        others.extend(listened(
            plan,
            local,
            &wires[1],
            &done,
            &observations,
            namespaces[1],
        ));
    }
    others.push(passed_on(plan, &ends));
    Ok(Outcome {
        ends,
        others,
        captures,
        counters,
        answer: observations.answer,
        listener: local,
        players: done.players,
    })
}

/// A capture's packets, with times of `CLOCK_MONOTONIC`.
fn read(pcap: &[u8], offset: u64) -> Vec<Packet> {
    let (mut packets, _) = packets(pcap);
    for packet in &mut packets {
        packet.at = packet.at.saturating_sub(offset);
    }
    packets
}

/// What the listener turned away, and what the agent reported of that.
fn listened(
    plan: &Plan,
    local: SocketAddr,
    wire: &[Packet],
    done: &Done,
    observations: &Observations,
    netns: u32,
) -> Vec<Judgement> {
    let load = plan.listener_load.as_ref();
    let backlog = u64::from(load.map_or(BACKLOG, |load| load.backlog));
    let half_open = match load {
        // The last quarter is for known peers (tcp_conn_request).
        Some(load) if !load.cookies => {
            let most = load.most_half_open;
            backlog.min(u64::from(most - most / 4))
        }
        _ => backlog,
    };
    let truths = overflows(&Listening {
        local,
        packets: wire,
        accepted: &done.accepted,
        backlog,
        half_open,
        cookies: load.is_none_or(|load| load.cookies),
    });
    let mut observed = observations.listeners.iter();
    let observed = observed.find(|l| l.netns == netns && l.local.port() == local.port());
    let judgement = |queue: usize, (problem, truth)| {
        let (rounds, events) = observed.map_or((0, 0), |l| (l.rounds[queue], l.events[queue]));
        Judgement {
            class: Class::Problem(problem),
            of: Subject::Listener,
            truth,
            found: rounds > 0,
            time_us: 0,
            events,
        }
    };
    let truths = truths.into_iter().enumerate();
    truths
        .map(|(queue, truth)| judgement(queue, truth))
        .collect()
}

/// Whether a process that passes data on was slow on one side because of the other. Where there
/// is none, it was not.
fn passed_on(plan: &Plan, ends: &[Judged]) -> Judgement {
    let kind = InteractionKind::PipelinedProxy;
    let found = ends
        .iter()
        .any(|end| end.observed.interactions.contains(&kind));
    // Ends: source, incoming, outgoing, last.
    let truth = match (&plan.relay, ends) {
        (Some(_), [source, incoming, outgoing, _]) => interactions::relayed(&Sides {
            source: &source.truths,
            incoming: &incoming.truths,
            outgoing: &outgoing.truths,
            observed_us: source.observed.totals.observed.0,
        }),
        _ => Truth::labelled(Label::False),
    };
    Judgement {
        class: Class::Interaction(kind),
        of: Subject::Process,
        truth,
        found,
        time_us: 0,
        events: 0,
    }
}

/// What a and b have, once a run is over.
struct Hosts<'a> {
    namespaces: [u32; 2],
    wires: &'a [Vec<Packet>; 2],
    traces: &'a [Vec<slowpath_trace::verdict::Judged>; 2],
}

fn judge(
    plan: &Plan,
    connection: &Used,
    side: usize,
    hosts: &Hosts<'_>,
    observed: &[ObservedEnd],
) -> Option<Judged> {
    let Hosts {
        namespaces,
        wires,
        traces,
    } = hosts;
    let tuple = match side {
        0 => connection.opened,
        _ => connection.opened.reversed(),
    };
    let host = |side: usize| side ^ connection.opener;
    let found = |s: &&ObservedEnd| s.netns == namespaces[host(side)] && s.tuple == tuple;
    let observed = observed.iter().find(found)?;
    let over = Span {
        from: connection.from,
        to: observed.to,
    };
    let direction = |from: usize, sender, receiver| {
        let captured = Captured {
            near: &wires[host(from)],
            far: &wires[host(1 - from)],
            sender,
            receiver,
        };
        let logs = &connection.logs;
        let mut stream = Stream::new(&captured, &logs[from], &logs[1 - from], over)?;
        // Both ends keep to the smaller MSS; timestamps take 12 bytes of it.
        stream.mss = u64::from(plan.tcp.mss) - 12;
        stream.nodelay = plan.tcp.nodelay;
        stream.card_ns = network::card_ns(&plan.path, stream.mss);
        Some(stream)
    };
    let ours = direction(side, tuple.local, tuple.remote)?;
    let theirs = direction(1 - side, tuple.remote, tuple.local)?;
    let truths = truths(&ours, &theirs);
    let (near, far) = (&traces[host(side)], &traces[host(1 - side)]);
    Some(Judged {
        traced: trace::of_end(near, far, tuple, hidden(&ours, &truths)),
        opened: side == 0,
        sends: !ours.sent.is_empty(),
        observed: observed.clone(),
        interactions: interactions::of_end(&ours, &plan.path, &truths).to_vec(),
        course: Course::of(&ours, &theirs),
        truths,
    })
}

fn netns(host: &Host) -> Result<u32, RunError> {
    // Inode numbers of namespaces are 32 bits wide.
    let inode = host.inode().map_err(RunError::io("examine a namespace"))?;
    Ok(inode as u32)
}
