// SPDX-License-Identifier: Apache-2.0
//! Switches, hosts' interfaces and the links between them as one state machine: what a
//! real-time emulator and a laboratory kernel drive.
//!
//! What enters: a [`Plan`], or the same as bytes ([`Plan::decode`]); then packets that hosts
//! send ([`Fabric::send`]) and the passing of time ([`Fabric::advance`]).
//!
//! What leaves, through a [`Sink`]: packets delivered, with the exact moment; packets
//! dropped, with place and reason; copies; and, for whoever wants it, everything that queues do.
//!
//! What is promised: no clock, no I/O; the same calls give the same results; events happen
//! at their exact time, in one order: changes of the plan, then departures, then
//! arrivals; of these first those that hosts sent, by their number, then those of switches, by
//! switch and port, as in the simulator; then by the order in which they were planned. Packets are counted: those sent
//! and copied are delivered, dropped or inside ([`Counts`]), fragments as their packets.
//!
//! ```
//! use slowpath_switch::fabric::*;
//! use slowpath_switch::*;
//!
//! let rate = Rate::from_bits_per_second(1_000_000_000).ok_or("no such rate")?;
//! let port = PortConfig {
//!     kind: PortKind::Host,
//!     rate,
//!     propagation: Span::from_micros(5),
//!     limit: Limit::packets(100),
//!     marking: None,
//! };
//! let end = |node| End { node, port: PortId(0) };
//! let plan = Plan {
//!     hosts: vec![port; 2],
//!     switches: vec![SwitchConfig::new(vec![port; 2], 1, 0)],
//!     links: vec![
//!         [end(Node::Host(0)), end(Node::Switch(0))],
//!         [end(Node::Host(1)), End { node: Node::Switch(0), port: PortId(1) }],
//!     ],
//!     routes: vec![Route { switch: 0, destination: Destination(1), ports: vec![PortId(1)] }],
//!     ..Plan::new(1)
//! };
//! #[derive(Default)]
//! struct Arrivals(Vec<(Time, u64)>);
//! impl Sink for Arrivals {
//!     fn delivered(&mut self, at: Time, delivered: Delivered) {
//!         self.0.push((at, delivered.packet.handle));
//!     }
//!     fn dropped(&mut self, _: Time, _: Dropped) {}
//! }
//! let mut fabric = Fabric::new(&plan)?;
//! let mut sink = Arrivals::default();
//! let packet = Header { handle: 7, bytes: 1250, destination: 1, ttl: 64, ..Header::default() };
//! fabric.send(Time::ZERO, 0, packet, &mut sink);
//! while let Some(next) = fabric.next_event() {
//!     fabric.advance(next, &mut sink);
//! }
//! // Twice 10 us onto a link and 5 us along it.
//! assert_eq!(sink.0, [(Time::from_nanos(30_000), 7)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Hosts, routers, destinations
//!
//! A host is an interface: one port with a queue, at which its own packets wait for its
//! link. Destinations are hosts, counted from 0, and behind them the switches themselves:
//! with n hosts, destination n + s is switch s, which as a router may be asked for
//! something. What it answers enters by [`Fabric::send_from`]. A packet to a switch itself
//! arrives whatever its time to live, as at a Linux router.
//!
//! # What links do to packets
//!
//! Each direction of a link is a line, number 2 l from `links[l][0]` to `links[l][1]` and
//! 2 l + 1 back. A line can have an [`Impairment`]; it sees packets in the order in which
//! their transmission starts. For each packet, in this order: lost ([`Impairment::loss`]),
//! corrupted, copied, then delayed. A copy leaves and arrives with its original unless jitter
//! parts them. A packet that is lost has taken its time on the line all the same.
//!
//! Before all that a line can have [`Condition`]s. A packet that a switch would send into a line
//! with a shorter MTU is not put there: the sink makes fragments of it, or it is dropped
//! ([`Sink::too_long`]). That is asked for the port that its route names, before queues
//! and detours, and of a packet that still has time to live. A policer sees packets in the order
//! and at the moment in which their transmission starts; one that it drops has taken its time, and
//! picks count it, but it is neither lost nor copied. What passes loses its ECN field, or has
//! another DSCP, from the line's far end on.
//!
//! Which packets: a [`Pick`] counts the packets of the line that have at least
//! [`Pick::at_least`] bytes, from 1, and picks by number, by a share, or in bursts. Random
//! decisions are defined to the bit, so that anybody can foretell them. The purposes are
//! 0 loss, 1 loss in bursts, 2 corruption, 3 copies, 4 late packets, 5 jitter, and 6 to 8 the
//! bursts of purposes 2 to 4; line l has for each the stream 2^63 + 256 l + purpose of the
//! plan's seed ([`Random::stream`](crate::Random::stream)). For each packet that a pick
//! counts, whatever else picks it:
//!
//! - A share of s parts in 10^9 takes one 64-bit number x: picked if x 10^9 < s 2^64.
//! - Bursts (Gilbert 1960, Elliott 1963) take two. The line begins in the good state. With
//!   the first the state changes, as a share of [`Burst::begin`] when good or
//!   [`Burst::end`] when bad; with the second the packet is picked, as a share of the new
//!   state's.
//! - Bit errors take one number of each packet (purpose 9), if there are any: see [`BitErrors`].
//! - Jitter takes one number x of each packet that is not lost, and of each copy: it adds
//!   floor(x (j + 1) / 2^64) picoseconds.

mod build;
mod code;
mod condition;
pub mod ffi;
mod impair;
mod mtu;
mod network;
mod plan;
mod sink;

pub use code::DecodeError;
pub use condition::ConditionCounters;
pub use impair::{Fate, Impaired};
pub use network::{Counts, Fabric, LineCounters};
pub use plan::{
    Action, BitErrors, Burst, Change, Condition, End, Impairment, Jitter, Late, Mtu, Node, Pick,
    Plan, PlanError, Police, Remark, Route, Share,
};
pub use sink::{Delivered, DropCause, Dropped, Oversized, Sink};
