// SPDX-License-Identifier: Apache-2.0
//! Links that lose, damage, copy or delay packets, or go down, and changes of links and routes.

use super::{HOST, Simulation};
use crate::engine::lines::{Outcome, Started};
use crate::engine::packet::Hop;
use slowpath_switch::fabric::Action;
use slowpath_switch::{Packet, PortId, Rate, Span, Time};

impl Simulation {
    /// A packet starts on a link; when the link goes on after it, and its far end notices.
    #[cold]
    #[inline(never)]
    pub(super) fn start_on(&mut self, link: u32, arrival: Time, hop: &Hop) -> Time {
        let line = self.features.lines.as_mut();
        let line = line.and_then(|lines| lines.get(link));
        let arrival = line.map_or(arrival, |line| line.start(arrival, hop.length()));
        self.noticed(link, arrival)
    }

    /// Whether the packet at the end of its link arrives now, or is lost or held back.
    #[cold]
    #[inline(never)]
    pub(super) fn emerges(&mut self, link: u32, hop: Hop) -> bool {
        let Some(lines) = &mut self.features.lines else {
            return true;
        };
        let Some(line) = lines.get(link) else {
            return true;
        };
        let Some(started) = line.started.pop_front() else {
            return true;
        };
        let Some(at) = self.leaves(link, hop, started) else {
            return false;
        };
        if at > self.now {
            self.delay(at, link, hop, started.cuts);
            return false;
        }
        self.is_whole(link, started.cuts, hop)
    }

    /// When a packet arrives that has started; `None` if it does not, and is gone. Its copy, if it
    /// has one, waits.
    fn leaves(&mut self, link: u32, hop: Hop, started: Started) -> Option<Time> {
        let Outcome::Arrives { at, damaged, copy } = started.outcome else {
            self.lose(hop);
            return None;
        };
        if damaged {
            self.bodies.damage(hop.body());
        }
        if let Some(at) = copy {
            let at = self.noticed(link, at).max(self.now);
            let copy = self.copied(hop);
            self.delay(at, link, copy, started.cuts);
        }
        Some(self.noticed(link, at).max(self.now))
    }

    fn delay(&mut self, at: Time, link: u32, hop: Hop, cuts: u32) {
        if let Some(lines) = &mut self.features.lines {
            lines.delay(at, link, hop, cuts);
        }
    }

    /// A copy of a packet that is in the network.
    fn copied(&mut self, hop: Hop) -> Hop {
        let body = self.bodies.copy(hop.body());
        if let Some(packets) = &mut self.records.packets {
            packets.copied(hop.body(), body);
        }
        if let Some(capturing) = &mut self.records.capturing {
            capturing.copied(hop.body(), body);
        }
        let connection = self.bodies.at(body).connection;
        self.connections.places[connection as usize].in_network += 1;
        self.counts.copies += 1;
        // The links before this one were passed once.
        self.counts.copied_hops += u64::from(self.settings.ttl - hop.ttl()) + 1;
        hop.with_body(body)
    }

    /// Whether the link was up all the time since a packet started.
    fn is_whole(&mut self, link: u32, cuts: u32, hop: Hop) -> bool {
        let line = self
            .features
            .lines
            .as_mut()
            .and_then(|lines| lines.get(link));
        let Some(line) = line.filter(|line| line.cuts != cuts) else {
            return true;
        };
        line.counts.cut += 1;
        self.lose(hop);
        false
    }

    /// Counts a packet that a link lost, and frees it.
    fn lose(&mut self, hop: Hop) {
        self.counts.lost += 1;
        self.count_path(&hop, 1);
        let (body, _) = self.bodies.remove(hop.body());
        self.note_detour(&hop, &body);
        self.records.stretch(self.now).dropped[usize::from(hop.label())] += 1;
        self.left_network(body.connection);
    }

    /// When the next change, frame of flow control or delayed packet is due, if that is before packets on links and `other`.
    #[cold]
    #[inline(never)]
    pub(super) fn due_of_lines(&self, other: Time) -> Option<Time> {
        let lines = self.features.lines.as_ref();
        let next = lines.map_or((Time::MAX, 0), |lines| lines.next());
        let next = next.min((self.due_of_flow_control(), 0));
        let packet = self.wheel.peek().unwrap_or((Time::MAX, u32::MAX));
        let (at, _) = next;
        (next <= packet && at <= other && at != Time::MAX).then_some(at)
    }

    /// Carries out the next change or what flow control has, or delivers the next delayed packet.
    pub(super) fn next_of_lines<const WATCH: bool>(&mut self, now: Time) {
        self.now = now;
        self.events += 1;
        if self.due_of_flow_control() <= now {
            return self.next_of_flow_control::<WATCH>();
        }
        let Some(lines) = &mut self.features.lines else {
            return;
        };
        if let Some(change) = lines.pop_change(now) {
            return self.change::<WATCH>(&change.action);
        }
        if let Some(delayed) = lines.pop_delayed()
            && self.is_whole(delayed.link, delayed.cuts, delayed.hop)
        {
            self.reach::<WATCH>(delayed.link, delayed.hop);
        }
    }

    fn change<const WATCH: bool>(&mut self, action: &Action) {
        let lines = match action {
            Action::Rate(line, _) | Action::Propagation(line, _) | Action::Impair(line, _) => {
                vec![*line]
            }
            Action::Up(link, _) => vec![2 * link, 2 * link + 1],
            Action::Route(_) | Action::Condition(..) => Vec::new(),
        };
        for line in lines {
            self.start_due_on::<WATCH>(line);
        }
        match action {
            Action::Rate(line, rate) => self.set_line(*line, Some(*rate), None),
            Action::Propagation(line, propagation) => {
                self.set_line(*line, None, Some(*propagation));
            }
            Action::Route(route) => {
                let node = &mut self.nodes[route.switch as usize];
                // Checked with the scenario.
                let routed = node.switch.set_route(route.destination, &route.ports);
                debug_assert!(routed.is_ok());
            }
            Action::Impair(..) | Action::Up(..) | Action::Condition(..) => {
                if let Some(lines) = &mut self.features.lines {
                    lines.apply(action);
                }
            }
        }
    }

    /// The port that a line begins at starts what is due, before the line changes.
    fn start_due_on<const WATCH: bool>(&mut self, line: u32) {
        let Some((from, port)) = self.beginning(line) else {
            return;
        };
        if from & HOST == 0 {
            self.start_due::<WATCH>(from, port);
        }
    }

    fn set_line(&mut self, line: u32, rate: Option<Rate>, propagation: Option<Span>) {
        let Some((from, port)) = self.beginning(line) else {
            return;
        };
        if from & HOST == 0 {
            let switch = &mut self.nodes[from as usize].switch;
            switch.set_line(port, rate, propagation);
        } else {
            let interface = &mut self.interfaces[(from & !HOST) as usize];
            interface.line.change(rate, propagation);
        }
    }

    /// Where a line of the topology begins.
    fn beginning(&self, line: u32) -> Option<(u32, PortId)> {
        let link = self.features.lines.as_ref()?.link(line);
        let link = &self.links[link as usize];
        Some((link.from, link.from_port))
    }
}
