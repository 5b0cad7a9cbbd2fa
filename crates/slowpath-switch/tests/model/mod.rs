// SPDX-License-Identifier: Apache-2.0
//! A second switch, slow and plain, that watches the first: bytes become a configuration
//! and operations, and after each operation everything observable must be what the rules
//! say. Lengths are summed anew each time, times are exact fractions.

mod bytes;

use bytes::{Bytes, config, packet, routes};
use slowpath_switch::{
    Counters, Departure, Depth, Destination, DropReason, Header, Observer, Outcome, Packet, Passed,
    PortId, PortKind, Queued, Span, Switch, SwitchConfig, Threshold, Time,
};
use std::collections::{BTreeMap, VecDeque};

/// What a run did, so that a test can see that it did something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub taken: u64,
    pub left: u64,
    pub full: u64,
    pub expired: u64,
    pub unrouted: u64,
    pub marked: u64,
    pub detoured: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum Observation {
    Enqueued(Time, PortId, u64, Depth),
    Dequeued(Time, PortId, u64, Depth),
    Marked(Time, PortId, u64, Depth),
    Dropped(Time, Option<PortId>, u64, DropReason),
    Detoured(Time, PortId, PortId, u64),
}

#[derive(Default)]
struct Log(Vec<Observation>);

impl Observer<Header> for Log {
    fn enqueued(&mut self, at: Time, port: PortId, packet: &Header, depth: Depth) {
        self.0
            .push(Observation::Enqueued(at, port, packet.handle, depth));
    }
    fn dequeued(&mut self, at: Time, port: PortId, packet: &Header, depth: Depth) {
        self.0
            .push(Observation::Dequeued(at, port, packet.handle, depth));
    }
    fn marked(&mut self, at: Time, port: PortId, packet: &Header, queue: Depth) {
        self.0
            .push(Observation::Marked(at, port, packet.handle, queue));
    }
    fn dropped(&mut self, at: Time, port: Option<PortId>, packet: &Header, reason: DropReason) {
        self.0
            .push(Observation::Dropped(at, port, packet.handle, reason));
    }
    fn detoured(&mut self, at: Time, from: PortId, to: PortId, packet: &Header) {
        self.0
            .push(Observation::Detoured(at, from, to, packet.handle));
    }
}

struct Model {
    config: SwitchConfig,
    routes: Vec<Vec<PortId>>,
    /// By port and class.
    queues: Vec<Vec<VecDeque<Header>>>,
    /// When each line becomes free, in 1/rate of a picosecond.
    free_at: Vec<u128>,
    due: Vec<Option<Time>>,
    counters: Vec<Counters>,
    tally: Tally,
    bytes_taken: u64,
    bytes_left: u64,
    bytes_dropped: u64,
}

fn depth<'a>(packets: impl Iterator<Item = &'a Header>) -> Depth {
    let mut depth = Depth::default();
    for packet in packets {
        depth.packets += 1;
        depth.bytes += u64::from(packet.bytes);
    }
    depth
}

impl Model {
    fn port_depth(&self, port: PortId) -> Depth {
        depth(self.queues[port.0 as usize].iter().flatten())
    }

    fn total_depth(&self) -> Depth {
        depth(self.queues.iter().flatten().flatten())
    }

    fn class(&self, packet: &Header) -> usize {
        usize::from(packet.class.min(self.config.classes - 1))
    }

    fn has_room(&self, port: PortId, packet: &Header) -> bool {
        let length = u64::from(packet.bytes);
        let limit = self.config.ports[port.0 as usize].limit;
        let held = self.port_depth(port);
        if limit.packets.is_some_and(|most| held.packets + 1 > most)
            || limit.bytes.is_some_and(|most| held.bytes + length > most)
        {
            return false;
        }
        let Some(shared) = self.config.shared else {
            return true;
        };
        let queue = depth(self.queues[port.0 as usize][self.class(packet)].iter());
        let used = self.total_depth();
        let alpha = |free: u64| {
            (
                u128::from(free) * u128::from(shared.alpha.numerator.get()),
                u128::from(shared.alpha.denominator.get()),
            )
        };
        let packets_fit = shared.total.packets.is_none_or(|total| {
            let (above, below) = alpha(u64::from(total - used.packets));
            used.packets < total && u128::from(queue.packets) * below < above
        });
        let bytes_fit = shared.total.bytes.is_none_or(|total| {
            let (above, below) = alpha(total - used.bytes);
            used.bytes + length <= total && u128::from(queue.bytes) * below < above
        });
        packets_fit && bytes_fit
    }

    /// What the observer must get of a packet that wants to leave by `port`, and where it must be
    /// after it; `None`: dropped. `went` is where the switch says it put it.
    fn forward(
        &mut self,
        now: Time,
        by: Option<PortId>,
        port: PortId,
        mut packet: Header,
        went: Option<PortId>,
    ) -> (Vec<Observation>, Option<Header>) {
        let mut expected = Vec::new();
        let class = self.class(&packet);
        let mut to = port;
        let mut may_mark = packet.ecn != 0;
        if !self.has_room(port, &packet) {
            let may_go = |other: PortId| {
                self.config.ports[other.0 as usize].kind == PortKind::Switch
                    && other != port
                    && self
                        .config
                        .detour
                        .is_some_and(|d| d.arrival_port || by != Some(other))
                    && self.has_room(other, &packet)
            };
            let choices: Vec<PortId> = (0..self.config.ports.len() as u16)
                .map(PortId)
                .filter(|other| self.config.detour.is_some() && may_go(*other))
                .collect();
            if choices.is_empty() {
                let counters = &mut self.counters[port.0 as usize];
                counters.dropped += 1;
                counters.dropped_bytes += u64::from(packet.bytes);
                let reason = DropReason::BufferFull;
                expected.push(Observation::Dropped(now, Some(port), packet.handle, reason));
                return (expected, None);
            }
            to = went.expect("there is room, so it is not dropped");
            assert!(choices.contains(&to), "{to:?} is none of {choices:?}");
            if may_mark && self.config.detour.is_some_and(|detour| detour.mark) {
                let queue = depth(self.queues[port.0 as usize][class].iter());
                expected.push(Observation::Marked(now, port, packet.handle, queue));
                self.counters[port.0 as usize].marked += 1;
                packet.ecn = 3;
                may_mark = false;
            }
            self.counters[port.0 as usize].detoured += 1;
            expected.push(Observation::Detoured(now, port, to, packet.handle));
        }
        assert_eq!(went, Some(to), "there is room");
        let queue = depth(self.queues[to.0 as usize][class].iter());
        let over = match self.config.ports[to.0 as usize].marking {
            None => false,
            Some(Threshold::Packets(packets)) => queue.packets >= packets,
            Some(Threshold::Bytes(bytes)) => queue.bytes >= bytes,
        };
        if over && may_mark {
            expected.push(Observation::Marked(now, to, packet.handle, queue));
            self.counters[to.0 as usize].marked += 1;
            packet.ecn = 3;
        }
        self.queues[to.0 as usize][class].push_back(packet);
        expected.push(Observation::Enqueued(
            now,
            to,
            packet.handle,
            self.port_depth(to),
        ));
        let counters = &mut self.counters[to.0 as usize];
        counters.enqueued += 1;
        counters.enqueued_bytes += u64::from(packet.bytes);
        (expected, Some(packet))
    }

    fn rate(&self, port: PortId) -> u128 {
        u128::from(self.config.ports[port.0 as usize].rate.bits_per_second())
    }

    fn free_time(&self, port: PortId) -> Time {
        Time((self.free_at[port.0 as usize] / self.rate(port)) as u64)
    }

    fn take(
        &mut self,
        now: Time,
        by: Option<PortId>,
        packet: Header,
        outcome: &Outcome<Header>,
        chosen: Option<PortId>,
    ) -> Vec<Observation> {
        self.tally.taken += 1;
        self.bytes_taken += u64::from(packet.bytes);
        let mut packet = packet;
        let refused = if by.is_some() && self.config.decrement_ttl {
            packet.ttl = packet.ttl.saturating_sub(1);
            (packet.ttl == 0).then_some(DropReason::TtlExpired)
        } else {
            None
        };
        let refused = refused.or(chosen.is_none().then_some(DropReason::NoRoute));
        if let Some(reason) = refused {
            assert_eq!(*outcome, Outcome::Dropped { packet, reason });
            match reason {
                DropReason::TtlExpired => self.tally.expired += 1,
                _ => self.tally.unrouted += 1,
            }
            self.bytes_dropped += u64::from(packet.bytes);
            return vec![Observation::Dropped(now, None, packet.handle, reason)];
        }
        let port = chosen.expect("not refused");
        let went = match outcome {
            Outcome::Queued(queued) => Some(queued.port),
            Outcome::Dropped { .. } => None,
        };
        let (expected, joined) = self.forward(now, by, port, packet, went);
        let marked = expected
            .iter()
            .filter(|t| matches!(t, Observation::Marked(..)))
            .count();
        let detoured = expected
            .iter()
            .any(|t| matches!(t, Observation::Detoured(..)));
        self.tally.marked += marked as u64;
        self.tally.detoured += u64::from(detoured);
        match (joined, outcome) {
            (
                None,
                Outcome::Dropped {
                    packet: back,
                    reason,
                },
            ) => {
                assert_eq!((back, reason), (&packet, &DropReason::BufferFull));
                self.tally.full += 1;
                self.bytes_dropped += u64::from(packet.bytes);
            }
            (Some(_), Outcome::Queued(queued)) => {
                assert_eq!((queued.marked, queued.detoured), (marked == 1, detoured));
                let at = usize::from(queued.port.0);
                let start = now.max(self.free_time(queued.port));
                assert_eq!(queued.start, self.due[at].is_none().then_some(start));
                self.due[at].get_or_insert(start);
            }
            (joined, outcome) => panic!("{joined:?} and {outcome:?}"),
        }
        expected
    }

    fn transmit(&mut self, port: PortId, left: &Departure<Header>) -> Vec<Observation> {
        let at = usize::from(port.0);
        let start = self.due[at].expect("it was due");
        let packet = self.queues[at].iter_mut().find_map(VecDeque::pop_front);
        let packet = packet.expect("due, so something waits");
        let rate = self.rate(port);
        let begin = if start == self.free_time(port) {
            self.free_at[at]
        } else {
            u128::from(start.0) * rate
        };
        self.free_at[at] = begin + u128::from(packet.bytes) * 8_000_000_000_000;
        let finish = self.free_time(port);
        let held = self.port_depth(port);
        self.due[at] = (held.packets > 0).then_some(finish);
        let departure = Departure {
            packet,
            start,
            finish,
            arrival: finish + self.config.ports[at].propagation,
            next: self.due[at],
        };
        assert_eq!(*left, departure);
        self.counters[at].dequeued += 1;
        self.counters[at].dequeued_bytes += u64::from(packet.bytes);
        self.tally.left += 1;
        self.bytes_left += u64::from(packet.bytes);
        vec![Observation::Dequeued(start, port, packet.handle, held)]
    }

    fn check(&self, switch: &Switch<Header>) {
        for (number, config) in self.config.ports.iter().enumerate() {
            let port = PortId(number as u16);
            let held = self.port_depth(port);
            assert_eq!(switch.depth(port), held);
            assert!(config.limit.packets.is_none_or(|most| held.packets <= most));
            assert!(config.limit.bytes.is_none_or(|most| held.bytes <= most));
            assert_eq!(switch.due(port), self.due[number]);
            assert_eq!(switch.counters(port), self.counters[number]);
            for (class, queue) in self.queues[number].iter().enumerate() {
                assert_eq!(switch.class_depth(port, class as u8), depth(queue.iter()));
                assert!(switch.queued(port, class as u8).eq(queue));
            }
            let mut flows = BTreeMap::<u64, Depth>::new();
            for packet in self.queues[number].iter().flatten() {
                let own = flows.entry(packet.flow).or_default();
                own.packets += 1;
                own.bytes += u64::from(packet.bytes);
            }
            if !self.config.count_flows {
                assert_eq!(switch.flow_depth(port, 1), None);
                flows.clear();
            }
            assert!(
                flows
                    .iter()
                    .all(|(flow, own)| switch.flow_depth(port, *flow) == Some(*own))
            );
            assert_eq!(switch.flows(port).collect::<BTreeMap<_, _>>(), flows);
        }
        let total = self.total_depth();
        assert_eq!(switch.total_depth(), total);
        if let Some(shared) = self.config.shared {
            assert!(
                shared
                    .total
                    .packets
                    .is_none_or(|most| total.packets <= most)
            );
            assert!(shared.total.bytes.is_none_or(|most| total.bytes <= most));
        }
        let tally = self.tally;
        let dropped = tally.full + tally.expired + tally.unrouted;
        assert_eq!(tally.taken, tally.left + u64::from(total.packets) + dropped);
        assert_eq!(
            self.bytes_taken,
            self.bytes_left + total.bytes + self.bytes_dropped
        );
        let counts = [tally.full, tally.expired, tally.unrouted, 0];
        assert_eq!(DropReason::ALL.map(|reason| switch.dropped(reason)), counts);
    }
}

impl Model {
    /// An idle switch with those routes.
    fn new(config: SwitchConfig, routes: Vec<Vec<PortId>>) -> Self {
        let ports = config.ports.len();
        Model {
            queues: vec![vec![VecDeque::new(); usize::from(config.classes)]; ports],
            free_at: vec![0; ports],
            due: vec![None; ports],
            counters: vec![Counters::default(); ports],
            routes,
            config,
            tally: Tally::default(),
            bytes_taken: 0,
            bytes_left: 0,
            bytes_dropped: 0,
        }
    }
}

/// Builds what the bytes describe and does what they say.
pub fn run(data: &[u8]) -> Tally {
    let mut bytes = Bytes(data);
    let config = config(&mut bytes);
    let ports = config.ports.len();
    let mut switch = Switch::<Header>::new(&config).expect("a possible switch");
    let routes = routes(&mut bytes, ports);
    for (destination, ports) in routes.iter().enumerate() {
        switch
            .set_route(Destination(destination as u32), ports)
            .expect("a possible route");
    }
    let mut model = Model::new(config, routes);
    let mut now = Time::ZERO;
    let mut handle = 0;
    while !bytes.0.is_empty() {
        let op = bytes.next();
        if op % 4 == 3 {
            let until = now + Span(bytes.below(1 << 16) * (1 << (op >> 4)));
            now = serve_until(&mut switch, &mut model, now, until);
            continue;
        }
        handle += 1;
        let packet = packet(&mut bytes, handle);
        let port = PortId(bytes.below(ports as u64 + u64::from(op % 32 == 0)) as u16);
        for number in 0..=ports {
            let there = number < ports;
            let at = PortId(number as u16);
            assert_eq!(
                switch.has_room(at, &packet),
                there && model.has_room(at, &packet)
            );
        }
        let mut log = Log::default();
        let expected = if op % 4 == 2 {
            let outcome = switch.send(now, port, packet, &mut log);
            let chosen = (usize::from(port.0) < ports).then_some(port);
            model.take(now, None, packet, &outcome, chosen)
        } else {
            arrive(
                &mut switch,
                &mut model,
                (now, port, packet),
                op & 16 != 0,
                &mut log,
            )
        };
        assert_eq!(log.0, expected);
        model.check(&switch);
    }
    serve_until(&mut switch, &mut model, now, Time(u64::MAX - 1));
    assert_eq!(switch.total_depth(), Depth::default());
    model.tally
}

/// A packet arrives by a port; if it `passes`, `Switch::pass` must do the same.
fn arrive(
    switch: &mut Switch<Header>,
    model: &mut Model,
    (now, port, packet): (Time, PortId, Header),
    passes: bool,
    log: &mut Log,
) -> Vec<Observation> {
    let mut twin = switch.clone();
    let outcome = switch.arrive(now, port, packet, log);
    let chosen = switch.next_port(packet.destination(), packet.flow());
    let set = model.routes.get(packet.destination as usize);
    assert!(match chosen {
        Some(chosen) => set.is_some_and(|set| set.contains(&chosen)),
        None => set.is_none_or(Vec::is_empty),
    });
    let mut expected = model.take(now, Some(port), packet, &outcome, chosen);
    if passes {
        let mut passing = Log::default();
        let passed = twin.pass(now, port, packet, &mut passing);
        expected.extend(pass(switch, model, now, outcome, passed, log));
        assert_eq!(passing.0, log.0);
        *switch = twin;
    }
    expected
}

/// What `Switch::pass` does in one is what `arrive` and, if it is due, `transmit` do in two.
fn pass(
    switch: &mut Switch<Header>,
    model: &mut Model,
    now: Time,
    outcome: Outcome<Header>,
    passed: Passed<Header>,
    log: &mut Log,
) -> Vec<Observation> {
    match outcome {
        Outcome::Dropped { packet, reason } => {
            assert_eq!(passed, Passed::Dropped { packet, reason });
            Vec::new()
        }
        Outcome::Queued(queued) if queued.start == Some(now) => {
            let departure = switch.transmit(now, queued.port, log).expect("it is due");
            let expected = model.transmit(queued.port, &departure);
            let queued = Queued {
                start: None,
                ..queued
            };
            assert_eq!(passed, Passed::Left { departure, queued });
            expected
        }
        Outcome::Queued(queued) => {
            assert_eq!(passed, Passed::Queued(queued));
            Vec::new()
        }
    }
}

/// Serves what is due until a moment, in the order of time.
fn serve_until(switch: &mut Switch<Header>, model: &mut Model, now: Time, until: Time) -> Time {
    let until = until.max(now);
    loop {
        let due = model.due.iter().enumerate();
        let first = due
            .filter_map(|(port, due)| due.map(|due| (due, port)))
            .min();
        let Some((due, port)) = first.filter(|(due, _)| *due <= until) else {
            return until;
        };
        let port = PortId(port as u16);
        let mut log = Log::default();
        if due > Time::ZERO {
            assert_eq!(switch.transmit(Time(due.0 - 1), port, &mut log), None);
        }
        let left = switch.transmit(due, port, &mut log).expect("it is due");
        let expected = model.transmit(port, &left);
        assert_eq!(log.0, expected);
        model.check(switch);
    }
}
