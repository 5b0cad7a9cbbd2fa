// SPDX-License-Identifier: Apache-2.0
//! What links do to packets: loss, damage, copies, jitter, and links that are down; and changes of
//! links and routes during the run. The decisions are those of
//! [`slowpath_switch::fabric`], bit for bit.
//!
//! Each is made when a packet starts, and carried out when the packet would have arrived: a line keeps
//! its packets in order, and the arrival of one starts the next. What comes later than that waits in a
//! heap of its own.

use super::packet::Hop;
use crate::topology::{Node, Topology};
use slowpath_switch::Time;
use slowpath_switch::fabric::{Action, Change, Fate, Impaired, Impairment};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// What a line does with a packet whose transmission has started.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// Lost, or cut off as the link was down.
    Gone,
    /// It arrives, perhaps damaged, perhaps with a copy.
    Arrives {
        at: Time,
        damaged: bool,
        copy: Option<Time>,
    },
}

/// A packet that is on a line, in the order of the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub outcome: Outcome,
    /// How often the link had gone down when it started.
    pub cuts: u32,
}

/// What a direction of a link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Packets lost, as the scenario says.
    pub lost: u64,
    /// Packets lost as the link was down when they started, or went down under them.
    pub cut: u64,
    /// Packets damaged: their host discards them.
    pub corrupted: u64,
    /// Packets that arrived twice.
    pub copied: u64,
    /// Packets that arrived after those behind them.
    pub late: u64,
}

/// A direction of a link that is impaired, changes or goes down.
pub(super) struct Line {
    /// Set by the first change that impairs the line; packets are counted from then on.
    impaired: Option<Impaired>,
    /// The number in the topology.
    number: u32,
    up: bool,
    pub cuts: u32,
    pub started: VecDeque<Started>,
    /// When the last packet would have arrived.
    nominal: Time,
    pub counts: LineCounts,
}

impl Line {
    /// Starts a packet. Returns when it would arrive unimpaired, never before the one ahead of it.
    pub fn start(&mut self, arrival: Time, bytes: u16) -> Time {
        // Counted also while the link is down: the pattern does not depend on when that was.
        let fate = (self.impaired.as_mut()).map_or(Fate::default(), |impaired| {
            impaired.decide(u32::from(bytes))
        });
        let mut reach = |late| match &mut self.impaired {
            Some(impaired) => impaired.arrival(arrival, late),
            None => arrival,
        };
        let outcome = if !self.up {
            self.counts.cut += 1;
            Outcome::Gone
        } else if fate.lost {
            self.counts.lost += 1;
            Outcome::Gone
        } else {
            self.counts.corrupted += u64::from(fate.corrupted);
            self.counts.copied += u64::from(fate.copied);
            self.counts.late += u64::from(fate.late);
            Outcome::Arrives {
                at: reach(fate.late),
                damaged: fate.corrupted,
                copy: (fate.copied).then(|| reach(fate.late)),
            }
        };
        self.started.push_back(Started {
            outcome,
            cuts: self.cuts,
        });
        self.nominal = self.nominal.max(arrival);
        self.nominal
    }

    fn impaired(&mut self, seed: u64) -> &mut Impaired {
        let number = self.number;
        self.impaired
            .get_or_insert_with(|| Impaired::new(Impairment::default(), seed, number))
    }

    fn set_up(&mut self, up: bool) {
        self.cuts += u32::from(self.up && !up);
        self.up = up;
    }
}

/// A packet that jitter or an extra delay holds back beyond its line's own delay.
pub(super) struct Delayed {
    pub at: Time,
    /// The number of its link.
    pub link: u32,
    order: u64,
    pub hop: Hop,
    pub cuts: u32,
}

impl Delayed {
    fn key(&self) -> (Time, u32, u64) {
        (self.at, self.link, self.order)
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The impaired lines, the changes still to come, and the packets held back.
pub(super) struct Lines {
    seed: u64,
    /// By the number of the link.
    lines: Vec<Option<Box<Line>>>,
    /// The number of the link, by the number of the line in the topology: twice its link's, and one
    /// more for the way back.
    link_of: Vec<u32>,
    /// In the order of time.
    pub changes: VecDeque<Change>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    planned: u64,
}

impl Lines {
    /// The lines of a topology, where changes say anything; `None` if a change names none that there
    /// is. `link(node, port)` is the number of the link that begins there.
    pub fn new(
        topology: &Topology,
        changes: &[Change],
        seed: u64,
        link: impl Fn(Node, u16) -> u32,
    ) -> Option<Self> {
        let ends = topology.links().iter().flat_map(|link| link.ends);
        let link_of: Vec<u32> = ends.map(|(node, port)| link(node, port)).collect();
        let links = link_of.iter().max().map_or(0, |most| *most as usize + 1);
        let mut lines: Vec<Option<Box<Line>>> = (0..links).map(|_| None).collect();
        for change in changes {
            let named = match &change.action {
                Action::Rate(line, _) | Action::Propagation(line, _) | Action::Impair(line, _) => {
                    [*line, *line]
                }
                Action::Up(link, _) => [2 * link, 2 * link + 1],
                Action::Route(_) => continue,
                // Readers of scenarios refuse it for the simulator.
                Action::Condition(..) => return None,
            };
            for number in named {
                let at = *link_of.get(number as usize)? as usize;
                let line = lines[at].get_or_insert_with(|| {
                    Box::new(Line {
                        impaired: None,
                        number,
                        up: true,
                        cuts: 0,
                        started: VecDeque::new(),
                        nominal: Time::ZERO,
                        counts: LineCounts::default(),
                    })
                });
                if matches!(change.action, Action::Propagation(..)) {
                    // Remembers the order of packets: a shorter delay lets none overtake.
                    line.impaired(seed);
                }
            }
        }
        let mut changes = changes.to_vec();
        changes.sort_by_key(|change| change.at);
        Some(Lines {
            seed,
            lines,
            link_of,
            changes: changes.into(),
            delayed: BinaryHeap::new(),
            planned: 0,
        })
    }

    pub fn get(&mut self, link: u32) -> Option<&mut Line> {
        self.lines.get_mut(link as usize)?.as_deref_mut()
    }

    /// The link that a line of the topology is.
    pub fn link(&self, line: u32) -> u32 {
        self.link_of[line as usize]
    }

    /// Impairs a line, or takes both directions of a link up or down.
    pub fn apply(&mut self, action: &Action) {
        match action {
            Action::Impair(line, impairment) => {
                let (seed, link) = (self.seed, self.link(*line));
                if let Some(line) = self.get(link) {
                    line.impaired(seed).change((**impairment).clone());
                }
            }
            Action::Up(link, up) => {
                for line in [2 * link, 2 * link + 1] {
                    let link = self.link(line);
                    if let Some(line) = self.get(link) {
                        line.set_up(*up);
                    }
                }
            }
            Action::Rate(..)
            | Action::Propagation(..)
            | Action::Route(_)
            | Action::Condition(..) => {}
        }
    }

    pub fn delay(&mut self, at: Time, link: u32, hop: Hop, cuts: u32) {
        self.planned += 1;
        self.delayed.push(Reverse(Delayed {
            at,
            link,
            order: self.planned,
            hop,
            cuts,
        }));
    }

    /// The time of the next change or delayed packet, and the packet's link (0 for a change).
    pub fn next(&self) -> (Time, u32) {
        let change = self.changes.front().map(|change| (change.at, 0));
        let delayed = self.delayed.peek();
        let delayed = delayed.map(|delayed| (delayed.0.at, delayed.0.link));
        match (change, delayed) {
            (Some(change), Some(delayed)) if change.0 > delayed.0 => delayed,
            (Some(change), _) => change,
            (None, delayed) => delayed.unwrap_or((Time::MAX, 0)),
        }
    }

    /// Takes the next change if it is due.
    pub fn pop_change(&mut self, now: Time) -> Option<Change> {
        let due = self.changes.front().is_some_and(|change| change.at <= now);
        due.then(|| self.changes.pop_front()).flatten()
    }

    pub fn pop_delayed(&mut self) -> Option<Delayed> {
        self.delayed.pop().map(|delayed| delayed.0)
    }

    /// Packets that wait.
    pub fn delayed(&self) -> impl Iterator<Item = &Hop> {
        self.delayed.iter().map(|delayed| &delayed.0.hop)
    }

    /// The counts of each line that a change names.
    pub fn counts(&self) -> impl Iterator<Item = (u32, LineCounts)> {
        (0..).zip(&self.link_of).filter_map(|(line, link)| {
            let state = self.lines[*link as usize].as_ref()?;
            Some((line, state.counts))
        })
    }
}
