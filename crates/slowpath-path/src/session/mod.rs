// SPDX-License-Identifier: Apache-2.0
//! Sessions on real sockets: what both ends run, and the client's side of each protocol.

mod control;
mod owamp;
mod receiver;
mod sender;
mod twoway;

pub(crate) use owamp::{lost_records, most_records};
pub(crate) use receiver::{LONGEST, arrival};

pub use owamp::{Measured, OneWayOutcome, measure};
pub use receiver::{Progress, ReceiverPlan, ReceiverReport, run_receiver};
pub use sender::{SenderPlan, SenderReport, run_sender};
pub use twoway::{TwoWayKind, TwoWayOutcome, measure_two_way};

use crate::control::{ControlError, Credentials, Modes};
use crate::keys::Block;
use crate::schedule::{Slot, Slots};
use crate::socket::{PortRange, WallClock, monotonic};
use crate::time::{Span, Timestamp};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// What a client measures and how.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// The server's address.
    pub peer: SocketAddr,
    /// From which address; `None`: the route's.
    pub local: Option<IpAddr>,
    /// Packets in each direction.
    pub packets: u32,
    /// The schedule.
    pub slots: Slots,
    /// Octets after the headers.
    pub padding: u16,
    /// From when on a packet is lost.
    pub timeout: Span,
    /// DSCP of the packets.
    pub dscp: u8,
    /// Ways of protection that are acceptable.
    pub modes: Modes,
    /// For those with keys.
    pub credentials: Option<Credentials>,
    /// Measure from here to the peer.
    pub there: bool,
    /// Measure from the peer to here.
    pub back: bool,
    /// This host's clock.
    pub clock: WallClock,
    /// Octets of the receive buffer; `None`: as large as is allowed.
    pub receive_buffer: Option<usize>,
    /// Ports for test packets; `None`: any.
    pub ports: Option<PortRange>,
}

impl TestOptions {
    /// Both ways to a peer with the defaults of owping: 100 packets, 0.1 s from each other on average,
    /// without padding, in open mode; a packet is lost after 10 s.
    #[must_use]
    pub fn to(peer: SocketAddr) -> Self {
        // 0.1 in 32.32 fixed point.
        let tenth = Slot::Exponential(Span((1 << 32) / 10));
        TestOptions {
            peer,
            local: None,
            packets: 100,
            slots: Slots::new(vec![tenth]).expect("one slot"),
            padding: 0,
            timeout: Span(10 << 32),
            dscp: 0,
            modes: Modes::OPEN,
            credentials: None,
            there: true,
            back: true,
            clock: WallClock::default(),
            receive_buffer: None,
            ports: None,
        }
    }
}

/// Why a measurement did not come about.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The server is not there.
    #[error(
        "cannot connect to {peer}: {source}; `slowpath path serve` or owampd has to listen there"
    )]
    Connect {
        /// Where.
        peer: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A call to the kernel failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The control protocol failed.
    #[error("{peer}: {source}")]
    Control {
        /// Of whom.
        peer: SocketAddr,
        /// How.
        source: ControlError,
    },
    /// The server stopped talking.
    #[error("{peer} did not answer {what} in time")]
    Silent {
        /// Who.
        peer: SocketAddr,
        /// What it was asked.
        what: &'static str,
    },
    /// The server ended the connection.
    #[error("{peer} closed the connection before it answered {what}")]
    Closed {
        /// Who.
        peer: SocketAddr,
        /// What it was asked.
        what: &'static str,
    },
    /// A signal ended it.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

impl PathError {
    pub(crate) fn io(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| PathError::Io { operation, source }
    }
}

/// Random octets of the kernel.
///
/// # Errors
/// The kernel gives none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], PathError> {
    let mut bytes = [0; N];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Fills octets from the kernel.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), PathError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)
            .map_err(|error| PathError::io("get random octets")(error.into()))?;
    }
    Ok(())
}

/// A session's identifier: four octets of the receiver's address, the time, four random ones (RFC 4656 section
/// 3.5).
pub(crate) fn session_identifier(receiver: IpAddr, now: Timestamp) -> Result<Block, PathError> {
    let mut session = [0; 16];
    match receiver {
        IpAddr::V4(v4) => session[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => session[..4].copy_from_slice(&v6.octets()[12..]),
    }
    session[4..12].copy_from_slice(&now.0.to_be_bytes());
    session[12..].copy_from_slice(&random::<4>()?);
    Ok(session)
}

/// When the schedule of a session that starts at `start` of `clock` begins, by [`monotonic`]; a start that has passed,
/// or none, is now.
pub(crate) fn begin_of(start: Timestamp, clock: &WallClock) -> i64 {
    let now = monotonic();
    match start.is_some() {
        true => now + start.nanos_since(clock.timestamp()).max(0),
        false => now,
    }
}
