// SPDX-License-Identifier: Apache-2.0
//! The receiving end.
//!
//! As at the sending end, two receivers share one state machine (`machine`): [`rfc`] and
//! [`linux`]; `policy` lists each point where they differ.

mod linux;
mod machine;
mod policy;
mod rfc;

use super::config::{Ecn, TcpConfig};
use super::options;
use super::segment::{Ack, Segment};
use super::tick::Tick;
use super::window::Window;
use linux::Linux;
use machine::Machine;
use rfc::Rfc;
use slowpath_switch::{Span, Time};

/// No deadline.
const NEVER: Time = Time::MAX;
/// `TCP_ATO_MIN` and `TCP_DELACK_MIN`.
const ATO_MIN: Span = Span::from_millis(40);
/// `TCP_DELACK_MAX`.
const ATO_MAX: Span = Span::from_millis(200);
/// `TCP_MAX_QUICKACKS`.
const MAX_QUICK_ACKS: u32 = 16;

/// What came of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// To be sent first: DCTCP acknowledges separately what came before a change of marks.
    pub before: Option<Ack>,
    /// To be sent.
    pub ack: Option<Ack>,
}

/// A segment of data that was noted.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The offset of its first byte.
    start: u64,
    /// The offset after its last byte.
    end: u64,
    /// [`Segment::push`].
    push: bool,
    /// [`Segment::cwr`].
    cwr: bool,
    /// It changed DCTCP's echo.
    flipped: bool,
    /// Something was missing before it came.
    had_early: bool,
    /// All of it was there: its range.
    duplicate: Option<(u64, u64)>,
}

/// The receiving end of a connection. See the [module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct Receiver(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Rfc(Machine<Rfc>),
    Linux(Box<Machine<Linux>>),
}

/// The same call of either receiver.
macro_rules! either {
    ($receiver:expr, $machine:ident => $call:expr) => {
        match $receiver {
            Kind::Rfc($machine) => $call,
            Kind::Linux($machine) => $call,
        }
    };
}

impl Receiver {
    /// One that has received nothing.
    pub fn new(config: &TcpConfig) -> Self {
        Receiver(match config.kernel_tick {
            None => Kind::Rfc(Machine::new(config, Rfc)),
            Some(tick) => {
                let linux = Linux::new(Tick(tick));
                Kind::Linux(Box::new(Machine::new(config, linux)))
            }
        })
    }

    /// Becomes a new one and keeps its memory.
    pub fn reset(&mut self, config: &TcpConfig) {
        match (&mut self.0, config.kernel_tick) {
            (Kind::Rfc(machine), None) => machine.reset(config, Rfc),
            (Kind::Linux(machine), Some(tick)) => machine.reset(config, Linux::new(Tick(tick))),
            _ => *self = Receiver::new(config),
        }
    }

    /// What a sender may send before the first ACK.
    pub fn offered(config: &TcpConfig) -> u32 {
        Window::new(config).size()
    }

    /// A segment arrived, `marked` with CE or not.
    #[inline]
    pub fn on_data(
        &mut self,
        config: &TcpConfig,
        now: Time,
        segment: &Segment,
        marked: bool,
    ) -> Received {
        either!(&mut self.0, machine => machine.on_data(config, now, segment, marked))
    }

    /// When [`Receiver::on_deadline`] is due.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        either!(&self.0, machine => machine.deadline())
    }

    /// The time of [`Receiver::deadline`] has come.
    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) -> Option<Ack> {
        either!(&mut self.0, machine => machine.on_deadline(config, now))
    }

    /// What an acknowledgment takes on the wire, bytes.
    #[inline]
    pub fn wire_bytes(&self, config: &TcpConfig, ack: &Ack) -> u16 {
        match &self.0 {
            Kind::Rfc(_) => config.header,
            Kind::Linux(_) if ack.syn => options::syn_bytes(config),
            Kind::Linux(_) => options::ack_bytes(config, ack.sack.as_slice().len()),
        }
    }

    /// Whether the packets of its acknowledgments are ECN-capable: all of Linux's are with DCTCP
    /// (`tcp_ecn_send`).
    #[inline]
    pub fn is_ecn_capable(&self, config: &TcpConfig) -> bool {
        config.ecn == Ecn::Dctcp && matches!(self.0, Kind::Linux(_))
    }

    /// What arrived in order: the next expected offset.
    #[inline]
    pub fn next(&self) -> u64 {
        either!(&self.0, machine => machine.next)
    }

    /// ACKs sent.
    pub fn acks(&self) -> u64 {
        either!(&self.0, machine => machine.acks)
    }
}
