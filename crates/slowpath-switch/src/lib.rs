// SPDX-License-Identifier: Apache-2.0
//! The switch and link model: queues, shared buffers, marking, detours. One model for the
//! simulator, a real-time emulator and a laboratory kernel, none of which it knows.
//!
//! What enters: a [`SwitchConfig`], routes, and then packets with the moment of their
//! arrival ([`Switch::arrive`], [`Switch::pass`], [`Switch::send`]). A packet is whatever implements
//! [`Packet`]: an inline header with a handle to what the caller keeps elsewhere.
//!
//! What leaves: packets with the moment their last bit has left and the moment it is at the
//! other end ([`Switch::transmit`]); dropped packets with the reason; an event for every
//! enqueue, dequeue, mark, drop and detour ([`Observer`]); [`Depth`] of queues and
//! [`Counters`] of ports.
//!
//! # Who schedules
//!
//! The caller. A [`Queued`] packet whose [`start`](Queued::start) is set asks for one call
//! of [`Switch::transmit`] for that port at that moment, and a [`Departure`] whose
//! [`next`](Departure::next) is set asks for another. Nothing else needs an event: a port
//! that is free starts at once, one that has nothing behind the packet on the wire needs no
//! call when it becomes free.
//!
//! A call to [`Switch::transmit`] may come late: the packet starts when it was due. What was
//! due before a packet comes in must have been started before, at the port that it will join
//! ([`Switch::next_port`]); at every port where others decide with it, in a switch with
//! shared memory or detours. At equal times the caller chooses, and the same choice gives
//! the same result.
//!
//! ```
//! use slowpath_switch::*;
//!
//! let rate = Rate::from_bits_per_second(1_000_000_000).ok_or("no such rate")?;
//! let port = PortConfig {
//!     kind: PortKind::Host,
//!     rate,
//!     propagation: Span::from_micros(5),
//!     limit: Limit::packets(100),
//!     marking: Some(Threshold::Packets(20)),
//! };
//! let mut switch = Switch::new(&SwitchConfig::new(vec![port; 2], 1, 0))?;
//! switch.set_route(Destination(7), &[PortId(1)])?;
//!
//! let packet = Header { bytes: 1250, destination: 7, ttl: 64, ..Header::default() };
//! let Outcome::Queued(queued) = switch.arrive(Time::ZERO, PortId(0), packet, &mut ()) else {
//!     unreachable!("the buffer is empty");
//! };
//! assert_eq!((queued.port, queued.start), (PortId(1), Some(Time::ZERO)));
//! let departure = switch.transmit(Time::ZERO, PortId(1), &mut ()).ok_or("it was due")?;
//! // 10,000 bits at 1 Gbit/s, and 5 us to the other end.
//! assert_eq!(departure.arrival, Time::from_nanos(15_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is modelled
//!
//! - Output queues, one for each port and class; the classes of a port in strict priority,
//!   class 0 first. A packet leaves its queue, and the buffer, when its transmission
//!   starts: the packet on the wire is not counted, as in ns-3 and in a Linux qdisc.
//! - Drop-tail by [`Limit`]s in packets and bytes: of each port (all its classes), of
//!   memory that ports share with dynamic thresholds ([`Shared`]), or of both.
//! - Marks: a packet that finds at least K waiting in its queue is marked, if its transport
//!   is ECN-capable ([`Threshold`]); DCTCP's rule on the instantaneous queue.
//! - Active queue management: RED, CoDel, PIE ([`Aqm`], [`Switch::set_aqm`]).
//! - ECMP: the flow's key, salted for each switch so that switches in a row do not choose
//!   alike, chooses one port of the destination's set.
//! - Flowlets ([`Flowlets`], [`Switch::set_flowlets`]): LetFlow's random port for each burst of a
//!   flow instead.
//! - DIBS ([`Detour`]): a packet whose queue has no room goes to another switch-facing
//!   port that has, chosen uniformly at random.
//! - Priority flow control ([`Pfc`], [`Switch::set_pfc`]): a class of an input that holds too much
//!   stops the other end of its link.
//! - TTL: one less at every switch, dropped at 0.
//!
//! # What is promised
//!
//! No I/O, no clock, no floating point; `no_std` with `alloc`. The same calls with the same
//! seed give the same results. Times are whole picoseconds with the remainder carried
//! ([`Line`]): no drift over any number of packets. No allocation for a packet: memory
//! grows to the largest number of packets that were ever queued at once and stays there.
//! Packets are neither lost nor made: those that came in are queued, left, or were handed
//! back as dropped.
//!
//! # From C
//!
//! [`ffi`] is the C ABI, `include/slowpath_switch.h` its header; the feature `freestanding`
//! makes a static library that needs no standard library and panics into a function of the
//! caller's.
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;

pub mod aqm;
mod bucket;
mod config;
mod counters;
pub mod fabric;
pub mod ffi;
mod flowlets;
mod flows;
#[cfg(feature = "freestanding")]
mod freestanding;
mod line;
mod observer;
mod packet;
mod pfc;
mod port;
mod queue;
mod random;
mod routes;
mod switch;
mod time;

pub use aqm::{Aqm, AqmError};
pub use bucket::TokenBucket;
pub use config::{
    Alpha, ConfigError, Detour, Limit, MAX_CLASSES, PortConfig, PortKind, Shared, SwitchConfig,
    Threshold,
};
pub use counters::Counters;
pub use flowlets::{FlowletCounts, FlowletError, Flowlets};
pub use line::{Departure, Line};
pub use observer::{DropReason, Observer};
pub use packet::{Destination, Header, Packet, PortId};
pub use pfc::{PauseCounts, PauseFrame, Pfc, PfcError};
pub use queue::Depth;
pub use random::Random;
pub use switch::{Outcome, Passed, Queued, Switch};
pub use time::{Rate, Span, Time};
