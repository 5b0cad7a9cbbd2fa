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
//! Priority flow control is an exception: what leaves a switch's buffer may let others go on, before
//! the packet arrives. In networks with it every start of a transmission is an event too.
//!
//! # Order
//!
//! Events come by time; at equal times arrivals before interfaces, both by number, then
//! timers by connection, then flows, then samples. Frames of flow control, starts with it, and changes of
//! links come first. The seed decides everything else.
//!
//! # What it costs
//!
//! A hop takes some 60 ns where everything lies in a second-level cache, and 120 ns on a fat-tree
//! of 1,024 hosts, which waits for memory: it touches a link, two ports, a route and a queue
//! of several megabytes of them. What was tried, with figures: journal 0010.

mod capture;
mod connection;
mod flow_control;
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

pub use capture::{CapturedPacket, PacketSink};
pub use flow_control::{Deadlock, PauseRecord};
pub use lines::LineCounts;
pub use network::{HostId, Network, NetworkError, SwitchId};
pub use packet::Content;
pub use settings::{
    Application, FlowSpec, Progress, Query, QueueSeries, Settings, SimulationError, Transport,
};
pub use simulation::Simulation;
