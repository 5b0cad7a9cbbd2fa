// SPDX-License-Identifier: Apache-2.0
//! Networks for the tests of fabrics, and what happened in them.

use slowpath_switch::fabric::{
    Delivered, DropCause, Dropped, End, Fabric, Node, Oversized, Plan, Route, Sink,
};
use slowpath_switch::{
    Destination, Header, Limit, PortConfig, PortId, PortKind, Rate, Span, SwitchConfig, Time,
};

pub fn gbit(gbit: u64) -> Rate {
    Rate::from_bits_per_second(gbit * 1_000_000_000).expect("in bounds")
}

pub fn end(node: Node, port: u16) -> End {
    let port = PortId(port);
    End { node, port }
}

/// 1 Gbit/s, 5 us, room for 1,000.
fn port(kind: PortKind) -> PortConfig {
    PortConfig {
        kind,
        rate: gbit(1),
        propagation: Span::from_micros(5),
        limit: Limit::packets(1000),
        marking: None,
    }
}

/// Host 0, a row of switches, host 1; link n goes from node n to node n + 1 of that row.
/// Port 0 of a switch leads towards host 0, port 1 towards host 1.
pub fn line_of_switches(count: u32) -> Plan {
    let mut plan = Plan::new(1);
    plan.hosts = vec![port(PortKind::Switch); 2];
    for number in 0..count {
        let kind = |outside| match outside {
            true => PortKind::Host,
            false => PortKind::Switch,
        };
        let ports = vec![port(kind(number == 0)), port(kind(number + 1 == count))];
        plan.switches.push(SwitchConfig::new(ports, 1, number));
        for destination in 0..2 + count {
            let towards = match destination {
                0 => 0,
                1 => 1,
                switch if switch - 2 == number => continue,
                switch => u16::from(switch - 2 > number),
            };
            plan.routes.push(Route {
                switch: number,
                destination: Destination(destination),
                ports: vec![PortId(towards)],
            });
        }
    }
    let nodes: Vec<(Node, u16, u16)> = std::iter::once((Node::Host(0), 0, 0))
        .chain((0..count).map(|number| (Node::Switch(number), 0, 1)))
        .chain([(Node::Host(1), 0, 0)])
        .collect();
    for pair in nodes.windows(2) {
        plan.links
            .push([end(pair[0].0, pair[0].2), end(pair[1].0, pair[1].1)]);
    }
    plan
}

/// 1,250 bytes.
pub fn packet(handle: u64, destination: u32) -> Header {
    Header {
        handle,
        bytes: 1250,
        destination,
        ttl: 64,
        ..Header::default()
    }
}

/// How a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Where, after how many hops, with what left to live.
    Delivered(Node, u16, u8),
    Dropped(Node, DropCause),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub all: Vec<(Time, u64, Fate)>,
    pub marked: Vec<u64>,
    pub copies: u64,
    pub corrupted: u64,
    pub queued: i64,
    pub detours: u64,
    /// Of what arrived: the ECN field, the DSCP that a line gave it, the class.
    pub codepoints: Vec<(u8, Option<u8>, u8)>,
    /// Whether packets that are too long go on as two halves with their handle.
    halves: bool,
    /// How many did.
    pub halved: u64,
    last: Time,
}

impl Log {
    /// One that makes halves of packets that are too long.
    #[allow(dead_code, reason = "not every test file does")]
    pub fn halving(halves: bool) -> Self {
        Log {
            halves,
            ..Log::default()
        }
    }

    /// Lets all happen that will.
    pub fn run_out(&mut self, fabric: &mut Fabric) {
        while let Some(next) = fabric.next_event() {
            fabric.advance(next, self);
        }
    }

    #[allow(dead_code, reason = "not every test file asks")]
    pub fn delivered(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter_map(|(_, handle, what)| match what {
            Fate::Delivered(..) => Some(*handle),
            Fate::Dropped(..) => None,
        })
    }

    fn note(&mut self, at: Time) {
        assert!(at >= self.last, "time goes back");
        self.last = at;
    }
}

impl Sink for Log {
    fn delivered(&mut self, at: Time, delivered: Delivered) {
        self.note(at);
        let Delivered {
            packet, node, hops, ..
        } = delivered;
        self.all
            .push((at, packet.handle, Fate::Delivered(node, hops, packet.ttl)));
        let codepoint = (packet.ecn, delivered.dscp, packet.class);
        self.codepoints.push(codepoint);
        self.marked
            .extend(delivered.marked.then_some(packet.handle));
        self.corrupted += u64::from(delivered.corrupted);
        assert!(!delivered.marked || packet.ecn == 3);
    }

    fn dropped(&mut self, at: Time, dropped: Dropped) {
        self.note(at);
        let what = Fate::Dropped(dropped.node, dropped.cause);
        self.all.push((at, dropped.packet.handle, what));
    }

    fn too_long(&mut self, at: Time, oversized: Oversized) -> Vec<Header> {
        self.note(at);
        let packet = oversized.packet;
        assert!(packet.bytes > oversized.mtu.bytes);
        if !self.halves {
            return Vec::new();
        }
        self.halved += 1;
        let half = |bytes| Header { bytes, ..packet };
        vec![
            half(packet.bytes - packet.bytes / 2),
            half(packet.bytes / 2),
        ]
    }

    fn copied(&mut self, at: Time, _: &Header) {
        self.note(at);
        self.copies += 1;
    }

    fn enqueued(&mut self, at: Time, _: End, _: &Header, _: slowpath_switch::Depth) {
        self.note(at);
        self.queued += 1;
    }

    fn dequeued(&mut self, at: Time, _: End, _: &Header, _: slowpath_switch::Depth) {
        self.note(at);
        self.queued -= 1;
    }

    fn detoured(&mut self, _: Time, _: End, _: PortId, _: &Header) {
        self.detours += 1;
    }
}
