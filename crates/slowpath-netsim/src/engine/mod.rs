// SPDX-License-Identifier: Apache-2.0
//! Discrete events: packets between hosts through switches.
//!
//! # One event a packet and hop
//!
//! A link's packets in flight are a FIFO, and only the arrival of the first is an event.
//! The end of a transmission is none: [`slowpath_switch::Switch::transmit`] may be called
//! late and starts the packet when it was due, and the first packet's arrival is never
//! before the next one's start. So an arrival at the far end first lets the near port
//! catch up, then goes to its switch, where the port it will leave by catches up before the
//! packet joins its queue. Where a decision looks at other ports too (shared memory, a
//! detour), all ports of the switch catch up before it. At equal times a port therefore
//! sends before it takes in.
//!
//! A host's interface needs an event when it becomes free, but only while something waits
//! for it. A connection has at most one event for its retransmission timer that is not out
//! of date; when it comes too early, it is put off.
//!
//! # Order
//!
//! Events come by time; at equal times arrivals before interfaces, both by number, then
//! timers by connection, then flows, then samples. The seed decides everything else.

//!
//! # What it costs
//!
//! DCTCP with web-search flows at 30 % on a fat-tree of 1,024 hosts for 5 ms of virtual
//! time is bound by the caches: a hop touches a link, two ports, a route and a queue of
//! several megabytes of them. Measured on two cores of a shared machine, in millions of
//! packet-hops a second, each against what is there now (8.7, give or take 5 %):
//!
//! - a binary heap as event queue: 7.3; a radix heap: 7.0, as it looks at each event of a
//!   bucket several times;
//! - slots of the wheel as linked lists and every packet through a queue, also where the line
//!   is free: 7.7 with both;
//! - all packets of a link in a separate queue, the first not with the link: 4 % to 5 % less, in
//!   four pairs of runs of 8 ms;
//! - without looking ahead at the events of a tick (`Simulation::warm`): 8.3; the same with
//!   ticks of 1 ns instead of 4: 7.5;
//! - one codegen unit for this crate: 9.1, which the workspace's release profile has; with
//!   link-time optimisation of everything: 9.5.

mod connection;
mod flying;
mod lines;
mod network;
mod packet;
mod queries;
mod recorder;
mod settings;
mod simulation;
mod timers;
mod wheel;

pub use lines::LineCounts;
pub use network::{HostId, Network, NetworkError, SwitchId};
pub use settings::{
    Application, FlowSpec, Progress, Query, QueueSeries, Settings, SimulationError, Transport,
};
pub use simulation::Simulation;
