// SPDX-License-Identifier: Apache-2.0
//! The route to a peer: every hop and every way of load balancing, loss that is loss, the path MTU, where ECN and DSCP
//! change, and changes over time ([0053](../../../../docs/decisions/0053-route.md)).
//!
//! What enters: [`TraceOptions`], an address. What leaves: a [`Route`], which serialises and comes back.
//!
//! ```text
//!  stopping   how many flows show all ways      ┐
//!  plan       what is probed next: plans …      │
//!  explorer   … that search all ways            │ pure: answers, times and
//!  walks      … that repeat some flows          │ counts are arguments
//!  tally      what was sent and answered        │
//!  judge      silent, limited by ICMP, or loss  │
//!  changes    over time, and by packet          │
//!  marks      where ECN and DSCP change         │
//!  mtu        the search for the path MTU       │
//!  assemble   a route of all this; text         ┘
//!  flow       a flow's UDP socket               ┐
//!  prober     runs plans                        │ the edge
//!  echo       the destination's echo replies    │
//!  udp        a trace by UDP, step by step      │
//!  trippy     TCP, ICMP, classic and Dublin UDP ┘
//! ```
//!
//! UDP needs no privilege: ICMP errors come by the error queue of each flow's socket. Quoted IPv4 headers need CAP_NET_RAW,
//! and so do the engines of [trippy-core](https://docs.rs/trippy-core), of which nothing leaves `trippy`.

pub mod assemble;
pub mod changes;
mod echo;
pub mod explorer;
mod flow;
pub mod judge;
pub mod marks;
pub mod mtu;
mod options;
pub mod plan;
mod prober;
pub mod result;
pub mod stopping;
pub mod tally;
pub mod text;
mod trippy;
mod udp;
pub mod walks;

pub use options::{Engine, TraceOptions};
pub use result::Route;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Why a trace did not come about.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// No socket.
    #[error("cannot open a UDP socket for a flow: {0}")]
    Open(#[source] io::Error),
    /// The kernel does not send.
    #[error("cannot send probes to {target}: {source}")]
    Send {
        /// Where to.
        target: IpAddr,
        /// Why.
        source: io::Error,
    },
    /// A socket failed.
    #[error("cannot receive the answers to probes: {0}")]
    Receive(#[source] io::Error),
    /// A privilege is missing.
    #[error(
        "cannot open a raw socket: tracing with {} needs CAP_NET_RAW: run it with sudo, or once `sudo setcap cap_net_raw+ep FILE` with the file of slowpath; --protocol udp needs neither",
        .0.name()
    )]
    NotPermitted(Engine),
    /// The tracer that does not belong to slowpath failed.
    #[error("cannot trace with {}: {reason}", .engine.name())]
    Tracer {
        /// With what.
        engine: Engine,
        /// Why.
        reason: String,
    },
    /// Source and target are of different families.
    #[error("cannot trace from {from} to {to}: one is IPv4, the other IPv6")]
    Families {
        /// From where.
        from: IpAddr,
        /// Where to.
        to: IpAddr,
    },
}

/// What a trace is doing, for a line of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It searches all ways.
    Ways,
    /// It repeats them, and counts the destination's echo replies.
    Rounds,
    /// It looks where loss begins.
    Loss,
    /// It compares quoted headers.
    Marks,
    /// It searches the path MTU.
    Mtu,
}

/// Traces the route to an address. `peer` is how it was named; `interrupted` ends it early, with what is known until then;
/// `progress` gets each step.
///
/// # Errors
/// See [`RouteError`].
pub fn trace(
    options: &TraceOptions,
    (peer, target): (&str, IpAddr),
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Step),
) -> Result<Route, RouteError> {
    let options = options.clone().bounded();
    if let Some(from) = options.source.filter(|it| it.is_ipv4() != target.is_ipv4()) {
        return Err(RouteError::Families { from, to: target });
    }
    let route = match options.engine {
        Engine::Udp => udp::trace(&options, target, interrupted, progress)?,
        _ => trippy::trace(&options, target, interrupted, progress)?,
    };
    Ok(Route {
        peer: peer.to_owned(),
        ..route
    })
}

/// A route of which nothing is known yet.
fn nothing(engine: Engine, target: IpAddr) -> Route {
    Route {
        peer: String::new(),
        address: target,
        protocol: engine,
        hops: Vec::new(),
        flows: Vec::new(),
        ways: 0,
        per_packet: false,
        missed_probability: None,
        loss: None,
        mtu: None,
        ecn: None,
        dscp: None,
        changes: Vec::new(),
        complete: false,
        notes: Vec::new(),
    }
}
