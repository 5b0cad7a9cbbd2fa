// SPDX-License-Identifier: Apache-2.0
//! Packets through switches at given times.

use super::free_space::{FreeSpace, Left, Margin};
use slowpath_netsim::engine::{HostId, Network, NetworkError, SwitchId};
use slowpath_netsim::results::{DropPlace, Joined};
use slowpath_netsim::topology::Node;
use slowpath_switch::{
    Depth, Destination, Limit, Line, Observer, Packet, Passed, PortId, Switch, SwitchConfig, Time,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// A packet that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The caller's.
    pub number: u32,
    /// When its first bit most likely left the host. It leaves then, or when the host's line
    /// is free.
    pub at: Time,
    /// It left not before this by its host's clock.
    pub earliest: Time,
    /// Nor after this.
    pub latest: Time,
    /// The packet whose arrival was the last thing that happened at its end of the connection
    /// before TCP made it; `None` if that was the application or a timer, or is not known.
    pub after: Option<u32>,
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

/// What a dropped packet found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueAtDrop {
    /// The queue's number.
    pub queue: u32,
    /// How many packets had joined it.
    pub joined: u32,
    /// How many of them had left.
    pub left: u32,
    /// Bytes that waited there.
    pub bytes: u64,
    /// Bytes that waited in the whole switch.
    pub used: u64,
}

/// A queue after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// When.
    pub at: Time,
    /// The queue's number.
    pub queue: u32,
    /// Packets that wait.
    pub packets: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that wait in the whole switch.
    pub used: u64,
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
    /// What each of these found there.
    pub found: Vec<QueueAtDrop>,
    /// Every change of every queue, in the order of time, if it is asked for.
    pub levels: Vec<Level>,
    /// Lost packets that found no queue anywhere near full.
    pub arrived: u64,
    /// By number: when its first bit left its host.
    pub sent: Vec<Time>,
    /// By number: when its last bit came to the host that it was for; `Time::MAX` if it did
    /// not.
    pub reached: Vec<Time>,
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
    /// Packets are not numbered from 0 through, or one was sent after a packet that is not
    /// there.
    #[error("replaying queues: packets are not numbered through at {0}")]
    Numbers(u32),
    /// Switches that detour have no queue that a packet belongs to.
    #[error("replaying queues: switch {0} detours packets; only drop-tail queues can be replayed")]
    Detour(u32),
    /// The ways of packets are not known.
    #[error(
        "replaying queues: switches divide flows into flowlets, at random; only flows that keep their ways can be replayed"
    )]
    Flowlets,
    /// Queues wait for other queues.
    #[error(
        "replaying queues: switches pause each other; only queues that send whenever they can, can be replayed"
    )]
    FlowControl,
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
    /// The number of the first of them.
    first: usize,
    /// Bytes in all of them.
    used: &'a mut u64,
    levels: Option<&'a mut Vec<Level>>,
}

impl Notes<'_> {
    fn changed(&mut self, at: Time, port: PortId, depth: Depth) {
        if let Some(levels) = &mut self.levels {
            levels.push(Level {
                at,
                queue: (self.first + usize::from(port.0)) as u32,
                packets: depth.packets,
                bytes: depth.bytes,
                used: *self.used,
            });
        }
    }
}

impl Observer<Tagged> for Notes<'_> {
    fn enqueued(&mut self, at: Time, port: PortId, packet: &Tagged, depth: Depth) {
        let queue = &mut self.queues[usize::from(port.0)];
        queue.joined.push(Joined {
            packet: packet.number,
            left: queue.left,
        });
        *self.used += u64::from(packet.bytes);
        self.changed(at, port, depth);
    }
    fn dequeued(&mut self, at: Time, port: PortId, packet: &Tagged, depth: Depth) {
        self.queues[usize::from(port.0)].left += 1;
        *self.used = self.used.saturating_sub(packet.bytes.into());
        self.changed(at, port, depth);
    }
}

struct Router {
    switch: Switch<Tagged>,
    /// The number of its first queue.
    first: usize,
    used: u64,
    room: FreeSpace,
}

/// How near a lost packet came to being dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nearest {
    pub room: Left,
    pub queue: u32,
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
    watch: bool,
    /// Where lost packets are dropped if no queue before drops them: by number, that of a queue.
    placed: &'a HashMap<u32, u32>,
    /// Of lost packets, the queue that had least room.
    nearest: HashMap<u32, Nearest>,
    outcome: Outcome,
}

/// Sends the packets through the network once. Gives, too, of the lost ones that arrived
/// nevertheless, the queue that had least room for each.
///
/// # Errors
/// The network or a packet is impossible.
pub(super) fn once(
    network: &Network,
    packets: &[Offered],
    margin: Margin,
    watch: bool,
    placed: &HashMap<u32, u32>,
) -> Result<(Outcome, HashMap<u32, Nearest>), ReplayError> {
    check(network, packets)?;
    let hosts = network.topology.hosts();
    let mut replay = Replay::new(network, packets.len(), margin, placed)?;
    replay.watch = watch;
    let mut lines: Vec<_> = (hosts.iter())
        .map(|host| Line::new(host.port.options.rate, host.port.options.delay))
        .collect();
    let mut order: Vec<u32> = (0..packets.len() as u32).collect();
    order.sort_by_key(|number| packets[*number as usize].at);
    for number in order {
        let packet = &packets[number as usize];
        replay.advance(packet.at);
        // Two packets of a host that an error in their times brought too close follow
        // each other.
        let line = &mut lines[packet.source.0 as usize];
        let start = packet.at.max(line.free_at());
        let arrival = line.send(start, packet.bytes.into()) + line.propagation();
        replay.outcome.sent[number as usize] = start;
        let tagged = Tagged {
            number,
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
    replay.outcome.queues = queues.into_iter().map(|queue| queue.joined).collect();
    let reached = &replay.outcome.reached;
    let mut nearest = replay.nearest;
    nearest.retain(|number, _| reached[*number as usize] != Time::MAX);
    Ok((replay.outcome, nearest))
}

/// Whether all packets name hosts and packets that are there.
pub(super) fn check(network: &Network, packets: &[Offered]) -> Result<(), ReplayError> {
    let hosts = network.topology.hosts().len();
    for (at, packet) in packets.iter().enumerate() {
        let (from, to) = (packet.source.0 as usize, packet.destination.0 as usize);
        if from >= hosts || to >= hosts {
            return Err(ReplayError::NoSuchHost(packet.number));
        }
        let known = |number: u32| (number as usize) < packets.len();
        if packet.number as usize != at || !packet.after.is_none_or(known) {
            return Err(ReplayError::Numbers(packet.number));
        }
    }
    Ok(())
}

/// The switches without bounds: who is dropped is decided here.
pub(super) fn boundless(network: &Network) -> Result<Network, ReplayError> {
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
    if network.flowlets.is_some() {
        return Err(ReplayError::Flowlets);
    }
    if !network.pfc.is_empty() {
        return Err(ReplayError::FlowControl);
    }
    Ok(Network {
        managed: Vec::new(),
        flowlets: None,
        pfc: Vec::new(),
        topology: network.topology.clone(),
        switches: network.switches.iter().map(unbounded).collect(),
    })
}

impl<'a> Replay<'a> {
    fn new(
        network: &Network,
        packets: usize,
        margin: Margin,
        placed: &'a HashMap<u32, u32>,
    ) -> Result<Self, ReplayError> {
        let topology = &network.topology;
        let switches = boundless(network)?.build().map_err(ReplayError::Network)?;
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
                used: 0,
                room: FreeSpace::new(config),
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
            watch: false,
            placed,
            nearest: HashMap::new(),
            outcome: Outcome {
                sent: vec![Time::MAX; packets],
                reached: vec![Time::MAX; packets],
                ..Outcome::default()
            },
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
                        Node::Host(_) => self.reach(at, packet),
                    }
                }
            }
        }
    }

    /// A packet came to its host.
    fn reach(&mut self, now: Time, packet: Tagged) {
        self.outcome.arrived += u64::from(packet.lost);
        self.outcome.reached[packet.number as usize] = now;
    }

    /// Lets a queue start what is due.
    fn start(&mut self, now: Time, queue: u32) {
        let (number, port) = self.places[queue as usize];
        let router = &mut self.routers[number as usize];
        let ports = router.switch.ports();
        let mut notes = Notes {
            queues: &mut self.queues[router.first..router.first + ports],
            first: router.first,
            used: &mut router.used,
            levels: self.watch.then_some(&mut self.outcome.levels),
        };
        if let Some(departure) = router.switch.transmit(now, port, &mut notes) {
            if let Some(next) = departure.next {
                self.due.push(Reverse((next, Event::Start(queue))));
            }
            let wire = self.hosts as u32 + queue;
            self.fly(wire, departure.arrival, departure.packet);
        }
    }

    /// Whether a lost packet is dropped at a port.
    fn drops(&mut self, number: u32, port: PortId, packet: &Tagged) -> bool {
        let router = &self.routers[number as usize];
        let queue = (router.first + usize::from(port.0)) as u32;
        let (own, total) = (router.switch.depth(port), router.switch.total_depth());
        let room = router.room.left(port, own, total, packet.bytes.into());
        if self.placed.get(&packet.number) == Some(&queue) || room.is_within(self.margin) {
            return true;
        }
        let here = Nearest { room, queue };
        let nearest = self.nearest.entry(packet.number).or_insert(here);
        if room.bytes < nearest.room.bytes {
            *nearest = here;
        }
        false
    }

    fn forward(&mut self, now: Time, number: u32, by: PortId, packet: Tagged) {
        let router = &self.routers[number as usize];
        let route = (router.switch).next_port(packet.destination(), packet.flow());
        if packet.lost
            && let Some(port) = route
            && self.drops(number, port, &packet)
        {
            let router = &self.routers[number as usize];
            let queue = router.first + usize::from(port.0);
            self.outcome.found.push(QueueAtDrop {
                queue: queue as u32,
                joined: self.queues[queue].joined.len() as u32,
                left: self.queues[queue].left,
                bytes: router.switch.depth(port).bytes,
                used: router.used,
            });
            self.outcome.dropped.push(DropPlace {
                packet: packet.number,
                at: now,
                switch: SwitchId(number),
                port: Some(port),
            });
            return;
        }
        let router = &mut self.routers[number as usize];
        let ports = router.switch.ports();
        let first = router.first;
        let mut notes = Notes {
            queues: &mut self.queues[first..first + ports],
            first,
            used: &mut router.used,
            levels: self.watch.then_some(&mut self.outcome.levels),
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
            Passed::Dropped { packet, .. } => {
                self.outcome.found.push(QueueAtDrop::default());
                self.outcome.dropped.push(DropPlace {
                    packet: packet.number,
                    at: now,
                    switch: SwitchId(number),
                    port: None,
                });
            }
        }
    }
}
