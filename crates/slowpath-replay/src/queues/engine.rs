// SPDX-License-Identifier: Apache-2.0
//! Packets through switches at given times.

use slowpath_netsim::engine::{HostId, Network, NetworkError, SwitchId};
use slowpath_netsim::results::{DropPlace, Joined};
use slowpath_netsim::topology::Node;
use slowpath_switch::{
    Depth, Destination, Limit, Line, Observer, Packet, Passed, PortId, Shared, Switch,
    SwitchConfig, Time,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A packet that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The caller's.
    pub number: u32,
    /// When its first bit leaves the host, if the line is free.
    pub at: Time,
    /// From.
    pub source: HostId,
    /// To.
    pub destination: HostId,
    /// What switches choose equal paths by.
    pub key: u32,
    /// Its length on the wire.
    pub bytes: u16,
    /// Whether it did not arrive.
    pub lost: bool,
}

/// A lost packet is dropped by a queue that is not further than this from full. DETER takes
/// five times the largest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// Where the limit is one of bytes.
    pub bytes: u64,
    /// Where it is one of packets.
    pub packets: u32,
}

impl Default for Margin {
    fn default() -> Self {
        Margin {
            bytes: 5 * 1500,
            packets: 5,
        }
    }
}

/// What became of the packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What joined each queue, numbered as in
    /// [`PacketLog::queues`](slowpath_netsim::results::PacketLog::queues);
    /// [`Joined::packet`] is [`Offered::number`].
    pub queues: Vec<Vec<Joined>>,
    /// Where lost packets were dropped.
    pub dropped: Vec<DropPlace>,
    /// Lost packets that found no full queue.
    pub arrived: u64,
}

/// Why nothing was replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The network is impossible.
    #[error("replaying queues: {0}")]
    Network(NetworkError),
    /// A packet of a host, or to one, that is not there.
    #[error("replaying queues: packet {0} names a host that is not in the network")]
    NoSuchHost(u32),
    /// The packets do not come in the order of their moments.
    #[error("replaying queues: packet {0} comes after one that was sent later")]
    Order(u32),
    /// Switches that detour have no queue that a packet belongs to.
    #[error("replaying queues: switch {0} detours packets; only drop-tail queues can be replayed")]
    Detour(u32),
}

#[derive(Clone, Copy, Debug)]
struct Tagged {
    number: u32,
    key: u32,
    to: u32,
    bytes: u16,
    ttl: u8,
    lost: bool,
}

impl Packet for Tagged {
    fn bytes(&self) -> u32 {
        self.bytes.into()
    }
    fn destination(&self) -> Destination {
        Destination(self.to)
    }
    fn flow(&self) -> u64 {
        self.key.into()
    }
    fn is_ecn_capable(&self) -> bool {
        false
    }
    fn mark(&mut self) {}
    fn ttl(&self) -> u8 {
        self.ttl
    }
    fn set_ttl(&mut self, ttl: u8) {
        self.ttl = ttl;
    }
}

struct Queue {
    joined: Vec<Joined>,
    left: u32,
}

struct Notes<'a> {
    /// The switch's.
    queues: &'a mut [Queue],
}

impl Observer<Tagged> for Notes<'_> {
    fn enqueued(&mut self, _: Time, port: PortId, packet: &Tagged, _: Depth) {
        let queue = &mut self.queues[usize::from(port.0)];
        queue.joined.push(Joined {
            packet: packet.number,
            left: queue.left,
        });
    }
    fn dequeued(&mut self, _: Time, port: PortId, _: &Tagged, _: Depth) {
        self.queues[usize::from(port.0)].left += 1;
    }
}

struct Router {
    switch: Switch<Tagged>,
    /// The number of its first queue.
    first: usize,
    limits: Vec<Limit>,
    shared: Option<Shared>,
}

impl Router {
    /// Whether the queue is as good as full for a packet. The rules are [`Switch`]'s own
    /// (`has_room`), with the margin on top.
    fn is_full(&self, port: PortId, packet: &Tagged, margin: Margin) -> bool {
        let depth = self.switch.depth(port);
        let bytes = depth.bytes + u64::from(packet.bytes) + margin.bytes;
        let packets = u64::from(depth.packets) + 1 + u64::from(margin.packets);
        let own = self.limits[usize::from(port.0)];
        if own.bytes.is_some_and(|most| bytes > most)
            || own.packets.is_some_and(|most| packets > u64::from(most))
        {
            return true;
        }
        let Some(shared) = self.shared else {
            return false;
        };
        let total = self.switch.total_depth();
        // A dynamic threshold: full from alpha * (total - used) on, without the packet.
        let beyond = |most: u64, used: u64, queue: u64, packet: u64, margin: u64| {
            let free = most.saturating_sub(used);
            let (over, under) = (
                u128::from(shared.alpha.numerator.get()),
                u128::from(shared.alpha.denominator.get()),
            );
            u128::from(queue + margin) * under >= u128::from(free) * over
                || used + packet + margin > most
        };
        let (queue, used) = (depth.bytes, total.bytes);
        (shared.total.bytes)
            .is_some_and(|most| beyond(most, used, queue, packet.bytes.into(), margin.bytes))
            || shared.total.packets.is_some_and(|most| {
                let (queue, used) = (depth.packets.into(), total.packets.into());
                beyond(most.into(), used, queue, 1, margin.packets.into())
            })
    }
}

struct Wire {
    to: Node,
    port: PortId,
    flying: VecDeque<(Time, Tagged)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A queue may start: before what arrives at the same moment, as in the simulator.
    Start(u32),
    /// The first packet of a wire arrives.
    Arrival(u32),
}

struct Replay<'a> {
    routers: Vec<Router>,
    queues: Vec<Queue>,
    /// By the number of the host, then by that of the queue.
    wires: Vec<Wire>,
    hosts: usize,
    /// The switch and port of each queue.
    places: Vec<(u32, PortId)>,
    due: BinaryHeap<Reverse<(Time, Event)>>,
    margin: Margin,
    outcome: &'a mut Outcome,
}

/// Sends the packets, which come in the order of their moments, through the network.
///
/// # Errors
/// The network or a packet is impossible.
pub fn replay(
    network: &Network,
    packets: &[Offered],
    margin: Margin,
) -> Result<Outcome, ReplayError> {
    let mut outcome = Outcome::default();
    let mut replay = Replay::new(network, margin, &mut outcome)?;
    let hosts = network.topology.hosts();
    let mut lines: Vec<_> = (hosts.iter())
        .map(|host| Line::new(host.port.options.rate, host.port.options.delay))
        .collect();
    let mut last = Time::ZERO;
    for packet in packets {
        let source = packet.source.0 as usize;
        if source >= hosts.len() || packet.destination.0 as usize >= hosts.len() {
            return Err(ReplayError::NoSuchHost(packet.number));
        }
        if packet.at < last {
            return Err(ReplayError::Order(packet.number));
        }
        last = packet.at;
        replay.advance(packet.at);
        // Two packets of a host that an error in their times brought too close follow
        // each other.
        let line = &mut lines[source];
        let start = packet.at.max(line.free_at());
        let arrival = line.send(start, packet.bytes.into()) + line.propagation();
        let tagged = Tagged {
            number: packet.number,
            key: packet.key,
            to: packet.destination.0,
            bytes: packet.bytes,
            ttl: u8::MAX,
            lost: packet.lost,
        };
        replay.fly(packet.source.0, arrival, tagged);
    }
    replay.advance(Time::MAX);
    let queues = std::mem::take(&mut replay.queues);
    outcome.queues = queues.into_iter().map(|queue| queue.joined).collect();
    Ok(outcome)
}

impl<'a> Replay<'a> {
    fn new(
        network: &Network,
        margin: Margin,
        outcome: &'a mut Outcome,
    ) -> Result<Self, ReplayError> {
        let topology = &network.topology;
        // The same switches, without bounds: who is dropped is decided here.
        let unbounded = |config: &SwitchConfig| {
            let mut config = config.clone();
            for port in &mut config.ports {
                port.limit = Limit::default();
                port.marking = None;
            }
            config.shared = None;
            config.classes = 1;
            config
        };
        if let Some(switch) = network.switches.iter().position(|s| s.detour.is_some()) {
            return Err(ReplayError::Detour(switch as u32));
        }
        let boundless = Network {
            topology: topology.clone(),
            switches: network.switches.iter().map(unbounded).collect(),
        };
        let switches = boundless.build().map_err(ReplayError::Network)?;
        let wire = |port: &slowpath_netsim::topology::Port| Wire {
            to: port.peer,
            port: PortId(port.peer_port),
            flying: VecDeque::new(),
        };
        let mut wires: Vec<Wire> = topology.hosts().iter().map(|h| wire(&h.port)).collect();
        let hosts = wires.len();
        let mut places = Vec::new();
        let mut routers = Vec::new();
        let described = topology.switches().iter().zip(&network.switches);
        for (number, (switch, (node, config))) in (0..).zip(switches.into_iter().zip(described)) {
            routers.push(Router {
                switch,
                first: places.len(),
                limits: config.ports.iter().map(|port| port.limit).collect(),
                shared: config.shared,
            });
            for (port, linked) in (0..).zip(&node.ports) {
                places.push((number, PortId(port)));
                wires.push(wire(linked));
            }
        }
        let queue = |_: &_| Queue {
            joined: Vec::new(),
            left: 0,
        };
        Ok(Replay {
            routers,
            queues: places.iter().map(queue).collect(),
            wires,
            hosts,
            places,
            due: BinaryHeap::new(),
            margin,
            outcome,
        })
    }

    fn fly(&mut self, wire: u32, arrival: Time, packet: Tagged) {
        let flying = &mut self.wires[wire as usize].flying;
        if flying.is_empty() {
            self.due.push(Reverse((arrival, Event::Arrival(wire))));
        }
        flying.push_back((arrival, packet));
    }

    /// Everything that happens before `until`.
    fn advance(&mut self, until: Time) {
        while let Some(&Reverse((at, event))) = self.due.peek() {
            if at >= until {
                break;
            }
            self.due.pop();
            match event {
                Event::Start(queue) => self.start(at, queue),
                Event::Arrival(wire) => {
                    let state = &mut self.wires[wire as usize];
                    let (to, port) = (state.to, state.port);
                    let Some((_, packet)) = state.flying.pop_front() else {
                        continue;
                    };
                    if let Some((next, _)) = state.flying.front() {
                        self.due.push(Reverse((*next, Event::Arrival(wire))));
                    }
                    match to {
                        Node::Switch(switch) => self.forward(at, switch, port, packet),
                        Node::Host(_) => self.outcome.arrived += u64::from(packet.lost),
                    }
                }
            }
        }
    }

    /// Lets a queue start what is due.
    fn start(&mut self, now: Time, queue: u32) {
        let (number, port) = self.places[queue as usize];
        let router = &mut self.routers[number as usize];
        let ports = router.switch.ports();
        let mut notes = Notes {
            queues: &mut self.queues[router.first..router.first + ports],
        };
        if let Some(departure) = router.switch.transmit(now, port, &mut notes) {
            if let Some(next) = departure.next {
                self.due.push(Reverse((next, Event::Start(queue))));
            }
            let wire = self.hosts as u32 + queue;
            self.fly(wire, departure.arrival, departure.packet);
        }
    }

    fn forward(&mut self, now: Time, number: u32, by: PortId, packet: Tagged) {
        let router = &mut self.routers[number as usize];
        let route = (router.switch).next_port(packet.destination(), packet.flow());
        if packet.lost
            && let Some(port) = route
            && router.is_full(port, &packet, self.margin)
        {
            self.outcome.dropped.push(DropPlace {
                packet: packet.number,
                at: now,
                switch: SwitchId(number),
                port: Some(port),
            });
            return;
        }
        let ports = router.switch.ports();
        let first = router.first;
        let mut notes = Notes {
            queues: &mut self.queues[first..first + ports],
        };
        match router.switch.pass(now, by, packet, &mut notes) {
            Passed::Left { departure, queued } => {
                let wire = self.hosts + first + usize::from(queued.port.0);
                self.fly(wire as u32, departure.arrival, departure.packet);
            }
            Passed::Queued(queued) => {
                if let Some(start) = queued.start {
                    let queue = (first + usize::from(queued.port.0)) as u32;
                    self.due.push(Reverse((start, Event::Start(queue))));
                }
            }
            // No route, or too many hops: lost for another reason.
            Passed::Dropped { packet, .. } => self.outcome.dropped.push(DropPlace {
                packet: packet.number,
                at: now,
                switch: SwitchId(number),
                port: route,
            }),
        }
    }
}
