// SPDX-License-Identifier: Apache-2.0
//! From a plan to a fabric, and changes of it.

use super::condition::Conditioner;
use super::impair::Impaired;
use super::network::{Counts, Fabric, Line, LineCounters};
use super::plan::{Action, Condition, End, Impairment, Node, Plan, PlanError, Route};
use crate::config::{PortKind, SwitchConfig};
use crate::packet::PortId;
use crate::switch::Switch;
use crate::time::{Rate, Span, Time};
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;

/// No line yet.
const NONE: u32 = u32::MAX;

impl Fabric {
    /// An empty one, at time zero.
    ///
    /// # Errors
    /// The first thing about the plan that is impossible.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        plan.check_size()?;
        let hosts = plan.hosts.len() as u32;
        let mut nodes = Vec::with_capacity(plan.hosts.len() + plan.switches.len());
        for (number, port) in (0..).zip(&plan.hosts) {
            let config = SwitchConfig::new(alloc::vec![*port], plan.seed, number);
            nodes.push(Switch::new(&config).map_err(|_| PlanError::Host(number))?);
        }
        for (number, config) in (0..).zip(&plan.switches) {
            let switch = Switch::new(config);
            nodes.push(switch.map_err(|error| PlanError::Switch(number, error))?);
        }
        let mut first = Vec::with_capacity(nodes.len());
        let mut ports = 0;
        for node in &nodes {
            first.push(ports);
            // At most 2^20 and 2^16, see `check_size`.
            ports += node.ports() as u32;
        }
        let mut fabric = Fabric {
            now: Time::ZERO,
            nodes,
            hosts,
            first,
            line_of: alloc::vec![NONE; ports as usize],
            lines: Vec::with_capacity(plan.links.len() * 2),
            flights: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            planned: 0,
            changes: plan.changes.clone(),
            counts: Counts::default(),
            most_packets: u64::from(plan.most_packets),
            seed: plan.seed,
            has_mtus: false,
        };
        for (number, ends) in (0..).zip(&plan.links) {
            fabric.link(number, *ends)?;
        }
        fabric.check_links(plan)?;
        for (number, route) in plan.routes.iter().enumerate() {
            let routed = fabric.apply(&Action::Route(route.clone()));
            routed.map_err(|_| PlanError::Route(number))?;
        }
        for (line, impairment) in &plan.impairments {
            fabric.apply(&Action::Impair(*line, Box::new(impairment.clone())))?;
        }
        for change in &plan.changes {
            fabric.check(&change.action)?;
            if let Action::Propagation(line, _) = change.action {
                // Remembers the order of packets.
                fabric.impaired(line);
            }
        }
        // Stable: at one moment in the order of the list, which the reversal turns round.
        fabric.changes.sort_by_key(|change| change.at);
        fabric.changes.reverse();
        Ok(fabric)
    }

    pub(super) fn index(&self, node: Node) -> Option<u32> {
        let index = match node {
            Node::Host(host) => (host < self.hosts).then_some(host),
            Node::Switch(switch) => self.hosts.checked_add(switch),
        };
        index.filter(|index| (*index as usize) < self.nodes.len())
    }

    pub(super) fn node(&self, index: u32) -> Node {
        match index.checked_sub(self.hosts) {
            None => Node::Host(index),
            Some(switch) => Node::Switch(switch),
        }
    }

    fn link(&mut self, number: u32, ends: [End; 2]) -> Result<(), PlanError> {
        let mut places = [(0, 0); 2];
        for (place, end) in places.iter_mut().zip(ends) {
            let node = self.index(end.node).ok_or(PlanError::Link(number))?;
            if end.port.index() >= self.nodes[node as usize].ports() {
                return Err(PlanError::Link(number));
            }
            let at = self.first[node as usize] + u32::from(end.port.0);
            if self.line_of[at as usize] != NONE {
                return Err(PlanError::Link(number));
            }
            *place = (node, at);
        }
        let [(a, at_a), (b, at_b)] = places;
        if a == b || (a < self.hosts && b < self.hosts) {
            return Err(PlanError::Ends(number));
        }
        let line = |from, port, to, to_port| Line {
            from,
            port,
            to,
            to_port,
            up: true,
            cuts: 0,
            impaired: None,
            conditioner: None,
            counters: LineCounters::default(),
        };
        let [port_a, port_b] = ends.map(|end| end.port);
        self.line_of[at_a as usize] = self.lines.len() as u32;
        self.lines.push(line(a, port_a, b, port_b));
        self.line_of[at_b as usize] = self.lines.len() as u32;
        self.lines.push(line(b, port_b, a, port_a));
        Ok(())
    }

    /// That every port has a link, and that switches know which of theirs lead to hosts:
    /// detours depend on it.
    fn check_links(&self, plan: &Plan) -> Result<(), PlanError> {
        for (index, node) in (0..).zip(&self.nodes) {
            let first = self.first[index as usize] as usize;
            for (port, line) in self.line_of[first..first + node.ports()].iter().enumerate() {
                let name = self.node(index);
                if *line == NONE {
                    return Err(PlanError::NoLink(name));
                }
                let to_host = self.lines[*line as usize].to < self.hosts;
                if let Node::Switch(switch) = name
                    && (plan.switches[switch as usize].ports[port].kind == PortKind::Host)
                        != to_host
                {
                    return Err(PlanError::Link(line / 2));
                }
            }
        }
        Ok(())
    }

    fn check(&self, action: &Action) -> Result<(), PlanError> {
        let lines = self.lines.len() as u32;
        let exists = |line: u32| match line < lines {
            true => Ok(()),
            false => Err(PlanError::NoSuchLine(line)),
        };
        match action {
            Action::Rate(line, _) | Action::Propagation(line, _) | Action::Condition(line, _) => {
                exists(*line)
            }
            Action::Impair(line, impairment) if impairment.is_sorted() => exists(*line),
            Action::Impair(line, _) => Err(PlanError::Pick(*line)),
            Action::Up(link, _) if *link < lines / 2 => Ok(()),
            Action::Up(link, _) => Err(PlanError::NoSuchLine(*link)),
            Action::Route(route) => self.check_route(route).ok_or(PlanError::Route(0)),
        }
    }

    fn check_route(&self, route: &Route) -> Option<()> {
        let index = self.index(Node::Switch(route.switch))?;
        let destination = route.destination.0;
        let first = self.first[index as usize] as usize;
        let ports = self.nodes[index as usize].ports();
        let leads = |port: &PortId| {
            port.index() < ports && {
                let to = self.lines[self.line_of[first + port.index()] as usize].to;
                to >= self.hosts || to == destination
            }
        };
        let distinct =
            (1..route.ports.len()).all(|at| !route.ports[..at].contains(&route.ports[at]));
        let known = (destination as usize) < self.nodes.len();
        (known && distinct && route.ports.iter().all(leads)).then_some(())
    }

    fn impaired(&mut self, line: u32) -> &mut Impaired {
        let seed = self.seed;
        let state = &mut self.lines[line as usize].impaired;
        state.get_or_insert_with(|| Box::new(Impaired::new(Impairment::default(), seed, line)))
    }

    /// Changes something now.
    ///
    /// # Errors
    /// It names what is not there; nothing has changed.
    pub fn apply(&mut self, action: &Action) -> Result<(), PlanError> {
        self.check(action)?;
        match action {
            Action::Rate(line, rate) => self.set_line(*line, Some(*rate), None),
            Action::Propagation(line, propagation) => {
                self.impaired(*line);
                self.set_line(*line, None, Some(*propagation));
            }
            Action::Impair(line, impairment) => self.impaired(*line).change((**impairment).clone()),
            Action::Condition(line, condition) => {
                self.has_mtus |= matches!(condition, Condition::Mtu(Some(_)));
                let state = &mut self.lines[*line as usize].conditioner;
                let conditioner = state.get_or_insert_with(Box::<Conditioner>::default);
                conditioner.change(self.now, *condition);
            }
            Action::Up(link, up) => {
                let first = *link as usize * 2;
                for line in &mut self.lines[first..first + 2] {
                    line.cuts += u32::from(line.up && !up);
                    line.up = *up;
                }
            }
            Action::Route(route) => {
                let node = (self.hosts + route.switch) as usize;
                let routed = self.nodes[node].set_route(route.destination, &route.ports);
                routed.map_err(|_| PlanError::Route(0))?;
            }
        }
        Ok(())
    }

    fn set_line(&mut self, line: u32, rate: Option<Rate>, propagation: Option<Span>) {
        let Line { from, port, .. } = self.lines[line as usize];
        self.nodes[from as usize].set_line(port, rate, propagation);
    }
}
