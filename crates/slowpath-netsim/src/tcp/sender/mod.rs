// SPDX-License-Identifier: Apache-2.0
//! The sending end.
//!
//! Two senders share one state machine (`machine`): [`rfc`], that of an ideal host, and
//! [`linux`], that of a Linux host. `policy` lists each point where they differ.

mod linux;
mod machine;
mod model;
mod pacing;
mod policy;
mod recovery;
mod reduction;
mod reordering;
mod rfc;
mod timers;
mod undo;

use crate::tcp::config::{Ecn, TcpConfig};
use crate::tcp::congestion::Congestion;
use crate::tcp::options;
use crate::tcp::rtt::RttEstimator;
use crate::tcp::segment::{Ack, Segment};
use crate::tcp::tick::Tick;
use linux::Linux;
pub(crate) use linux::buffer::OVERHEAD;
use machine::Machine;
use rfc::Rfc;
use slowpath_switch::Time;

/// What the sender is doing about losses and marks: Linux's `tcp_ca_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is wrong.
    Open,
    /// ACKs say that segments arrived out of order, not enough to call one lost.
    Disorder,
    /// The window falls after an ECN mark.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// What a sender has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with data sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again, probes included.
    pub retransmissions: u32,
    /// Times the retransmission timer expired.
    pub timeouts: u32,
    /// Times fast recovery began.
    pub recoveries: u32,
    /// Tail loss probes.
    pub probes: u32,
    /// Times the window fell because of ECN-Echo.
    pub mark_reductions: u32,
    /// Reductions that were needless and taken back.
    pub undone: u32,
}

/// No deadline.
const NEVER: Time = Time::MAX;

/// The sending end of a connection. See the [module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct Sender(Kind);

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the event loop reaches an RFC sender without another load"
)]
enum Kind {
    Rfc(Machine<Rfc>),
    Linux(Box<Machine<Linux>>),
}

/// The same call of either sender.
macro_rules! either {
    ($sender:expr, $machine:ident => $call:expr) => {
        match $sender {
            Kind::Rfc($machine) => $call,
            Kind::Linux($machine) => $call,
        }
    };
}

impl Sender {
    /// One with nothing to send, to a receiver that offers a window of `offered` bytes.
    pub fn new(config: &TcpConfig, offered: u32) -> Self {
        Sender(match config.kernel_tick {
            None => Kind::Rfc(Machine::new(config, offered, Rfc)),
            Some(tick) => {
                let linux = Linux::new(Tick(tick));
                Kind::Linux(Box::new(Machine::new(config, offered, linux)))
            }
        })
    }

    /// Becomes a new one and keeps its memory.
    pub fn reset(&mut self, config: &TcpConfig, offered: u32) {
        match (&mut self.0, config.kernel_tick) {
            (Kind::Rfc(machine), None) => machine.reset(config, offered, Rfc),
            (Kind::Linux(machine), Some(tick)) => {
                machine.reset(config, offered, Linux::new(Tick(tick)))
            }
            _ => *self = Sender::new(config, offered),
        }
    }

    /// The application writes `bytes`.
    pub fn write(&mut self, config: &TcpConfig, now: Time, bytes: u64) {
        either!(&mut self.0, machine => machine.write(config, now, bytes));
    }

    /// When [`Sender::on_deadline`] is due; `None` while nothing is awaited.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        either!(&self.0, machine => machine.deadline())
    }

    /// The time of [`Sender::deadline`] has come.
    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) {
        either!(&mut self.0, machine => machine.on_deadline(config, now));
    }

    /// Whether [`Sender::poll_transmit`] has a segment now.
    #[inline]
    pub fn wants_to_send(&self, config: &TcpConfig) -> bool {
        either!(&self.0, machine => machine.wants_to_send(config))
    }

    /// The next segment, if one may leave now.
    #[inline]
    pub fn poll_transmit(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        either!(&mut self.0, machine => machine.poll_transmit(config, now))
    }

    /// An acknowledgment arrived.
    #[inline]
    pub fn on_ack(&mut self, config: &TcpConfig, now: Time, ack: &Ack) {
        either!(&mut self.0, machine => machine.on_ack(config, now, ack));
    }

    /// When pacing lets what it holds back go; `None` if it holds nothing back.
    pub fn paced_until(&self) -> Option<Time> {
        either!(&self.0, machine => machine.timers.pacing.held_until())
    }

    /// The time of [`Sender::paced_until`] has come.
    pub fn on_paced(&mut self) {
        either!(&mut self.0, machine => machine.timers.pacing.release());
    }

    /// What the random numbers of its congestion control follow from.
    pub fn seed(&mut self, seed: u32) {
        either!(&mut self.0, machine => {
            if let Some(model) = machine.congestion.model() {
                model.seed(seed);
            }
        });
    }

    /// Whether it hands segments to its host's device as soon as they may leave, as Linux does;
    /// otherwise the device asks for one whenever it is free.
    #[inline]
    pub fn fills_device(&self) -> bool {
        matches!(self.0, Kind::Linux(_))
    }

    /// `waiting` bytes of it wait at the host's link, with `OVERHEAD` for each packet. Only Linux
    /// asks.
    pub fn note_waiting(&mut self, waiting: u64) {
        if let Kind::Linux(machine) = &mut self.0 {
            machine.policy.offload.note_waiting(waiting);
        }
    }

    /// Whether it held something back because too much of it waits.
    pub fn is_throttled(&self) -> bool {
        match &self.0 {
            Kind::Rfc(_) => false,
            Kind::Linux(machine) => machine.policy.offload.is_throttled(),
        }
    }

    /// Whether its timer was set to another time than it had, since last asked. Only Linux says.
    pub fn take_timer_moved(&mut self) -> bool {
        match &mut self.0 {
            Kind::Rfc(_) => false,
            Kind::Linux(machine) => core::mem::take(&mut machine.policy.timer_moved),
        }
    }

    /// What a segment takes on the wire, bytes.
    #[inline]
    pub fn wire_bytes(&self, config: &TcpConfig, segment: &Segment) -> u16 {
        match &self.0 {
            Kind::Linux(_) if segment.syn => options::syn_bytes(config),
            // Checked with the configuration: payload and header fit 16 bits.
            _ => config.header + segment.len as u16,
        }
    }

    /// Whether a segment's packet is ECN-capable.
    #[inline]
    pub fn is_ecn_capable(&self, config: &TcpConfig, segment: &Segment) -> bool {
        match config.ecn {
            Ecn::Off => false,
            // RFC 3168 section 6.1.5: a retransmission is not.
            Ecn::Classic => !segment.syn && !segment.retransmission,
            // As in Linux (tcp_ecn_send), whose SYNs are, too.
            Ecn::Dctcp => !segment.syn || matches!(self.0, Kind::Linux(_)),
        }
    }

    /// Whether all that was written was acknowledged.
    #[inline]
    pub fn is_done(&self) -> bool {
        either!(&self.0, machine => machine.stream.una == machine.stream.written)
    }

    /// How much was written in all.
    #[inline]
    pub fn written(&self) -> u64 {
        either!(&self.0, machine => machine.stream.written)
    }

    /// The first unacknowledged offset.
    #[inline]
    pub fn una(&self) -> u64 {
        either!(&self.0, machine => machine.stream.una)
    }

    /// The next new offset.
    pub fn next(&self) -> u64 {
        either!(&self.0, machine => machine.stream.next)
    }

    /// What is in the network by the sender's knowledge, in segments.
    pub fn pipe(&self) -> u32 {
        either!(&self.0, machine => machine.pipe())
    }

    /// The congestion window and its threshold.
    pub fn congestion(&self) -> &Congestion {
        either!(&self.0, machine => &machine.congestion)
    }

    /// Round-trip times.
    pub fn rtt(&self) -> &RttEstimator {
        either!(&self.0, machine => &machine.rtt)
    }

    /// What it is doing about losses and marks.
    pub fn phase(&self) -> Phase {
        either!(&self.0, machine => machine.phase)
    }

    /// What it has done.
    pub fn counts(&self) -> &Counts {
        either!(&self.0, machine => &machine.counts)
    }
}
