// SPDX-License-Identifier: Apache-2.0
//! What is recorded of a connection: for each of its two ends the runs of TCP's handlers, in the order in which they ran.
//!
//! A handler run is whatever takes the socket's lock: a call of the application, a packet that comes in, a timer, work that was put off. What a
//! handler decides from things that a replay cannot make again (is the device still busy with earlier packets?) is noted with it as an [`Outcome`].
//! What the network did is said by exception: a packet is named by its number among those that the other end sent, so that numbers left out were
//! lost, and numbers that go back were late.
//!
//! [`encode`] and [`decode`] turn a recording into the bytes of a file and back, [`Writer`] writes it while connections live (`docs/reference/recording-format.md`); what of it a file keeps says
//! [`Recording::kept`], what cannot be [`Recording::validate`]. What is promised: whatever the bytes, no panic, memory bounded by [`MAX_EVENTS`], and an end of which something is missing says so.
//!
//! Nothing here reads files, clocks or kernels.

pub mod alter;
mod block;
pub mod coarse;
mod decode;
mod encode;
mod error;
pub mod fields;
mod frame;
pub mod headers;
mod inexact;
mod inspect;
mod laboratory;
mod names;
pub mod network;
mod one_sided;
mod one_sided_frames;
pub mod options;
mod outcome;
mod recorder_kind;
mod replay_kind;
pub mod sampling;
pub mod sysctls;
mod unit;
mod validate;
mod varint;
mod writer;

pub use block::Size;
pub use decode::{Decoded, MAX_EVENTS, Selection, decode, decode_with};
pub use encode::encode;
pub use error::{DecodeError, EncodeError, Nonsense, VERSION};
pub use frame::Damage;
pub use inexact::InexactTimes;
pub use inspect::{Sizes, inspect};
pub use one_sided::{Clock, Joint, OneSided, Packet};
pub use outcome::{
    Decision, Fragment, Metric, Outcome, QUEUE_COOKIE, QUEUE_FULL, Queue, Reader, Refused, Stretch,
    TicksAt,
};
pub use recorder_kind::RecorderKind;
pub use replay_kind::ReplayKind;
pub use unit::Unit;
pub use validate::{Impossible, Invalid, Unreplayable};
pub use writer::Writer;

use crate::sampling::Sample;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Everything of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Where it was made.
    pub origin: Origin,
    /// In the order in which they were opened.
    pub connections: Vec<Connection>,
    /// Ends whose other end was recorded elsewhere, if anywhere.
    pub one_sided: Vec<OneSided>,
}

/// Who recorded, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The kernel's release, as `uname -r` says it.
    pub kernel: String,
    /// Ticks a second (`CONFIG_HZ`).
    pub hz: u32,
    /// What to add to a [`Moment`] for nanoseconds since 1970-01-01 UTC.
    pub epoch: i64,
    /// The recorder.
    pub recorder: RecorderKind,
}

/// Nanoseconds of the recorded host's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// One connection, both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Who connected, and to whom.
    pub addresses: [SocketAddr; 2],
    /// What both ends have that is not the kernel's default.
    pub settings: Settings,
    /// The end that connected, then the one that accepted.
    pub ends: [End; 2],
    /// They were recorded on two machines, each by its own clock; their checks leave packets' numbers out.
    pub joint: Option<Joint>,
}

/// What differs from the kernel's defaults. Names are the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `net.ipv4.tcp_*` and others of the namespaces; sorted.
    pub sysctls: [BTreeMap<String, String>; 2],
    /// Of the socket, by name: `congestion`, `rto_min_ns`, `mss`, ...; sorted.
    pub socket: [BTreeMap<String, String>; 2],
    /// Bytes of the largest IP packet of each end's device.
    pub mtu: [u32; 2],
}

/// One end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The runs of its handlers, in their order.
    pub runs: Vec<Run>,
    /// The number of runs before events were lost: it cannot be replayed from there on.
    pub gap: Option<u64>,
    /// Events that are known to be lost, there and later. 0 with a gap: how many is not known.
    pub lost: u64,
    /// The largest distance of its runs' times from the true ones, nanoseconds. 0: they are exact.
    pub within: u32,
    /// Where times are sampled: when it sent its packets. Its runs have no times of their own then, see [`Recording::kept`].
    pub sent: Option<Sent>,
    /// The last run's check with all its bits, kept beside the runs: without it the loss of the last run would not be noticed. Zero where
    /// there is none.
    pub digest: u32,
}

/// When an end sent its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// No inferred time is further from the true one, in nanoseconds.
    pub threshold: u32,
    /// In the order of the packets, which are counted from 0 (SYN or SYN-ACK).
    pub samples: Vec<Sample>,
}

/// One run of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// When it began.
    pub at: Moment,
    /// `jiffies` then, the lower 32 bits.
    pub jiffies: u32,
    /// What ran.
    pub handler: Handler,
    /// What it decided from what a replay does not have; in the order of the decisions.
    pub outcomes: Vec<Outcome>,
    /// Mixed from the state of the connection that it left, from this run and from the check before it: from the first run that goes astray on
    /// every further one differs. A file keeps the lower bits, and where times are not exact those of one run of [`CHECKED`].
    pub check: Option<u32>,
}

/// What takes a socket's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// `connect`: the SYN.
    Connect,
    /// `accept`: the accepting end gets its application.
    Accept,
    /// The laboratory's beginning: the connection has its initial window.
    Begin {
        /// It was opened before the scenario: nothing is known of the path.
        fresh: bool,
    },
    /// `sendmsg` and its like: how much was to be sent, with which flags, and what came back (negative: an error's number).
    Send {
        /// Bytes.
        bytes: u32,
        /// `MSG_*`.
        flags: u32,
        /// Bytes taken, or an error.
        result: i32,
    },
    /// `recvmsg` and its like.
    Receive {
        /// Room, in bytes.
        bytes: u32,
        /// `MSG_*`.
        flags: u32,
        /// Bytes given, or an error.
        result: i32,
    },
    /// A call that waited has the lock again.
    Resume,
    /// `shutdown`: 0 reading, 1 writing, 2 both.
    Shutdown {
        /// How.
        how: u8,
    },
    /// `close`.
    Close,
    /// `setsockopt` with a number.
    Option {
        /// `SOL_*`.
        level: u16,
        /// `SO_*` or `TCP_*`.
        name: u16,
        /// The value.
        value: i64,
    },
    /// A packet came in.
    Packet {
        /// Its number among those that the other end sent, SYN: 0.
        number: u32,
        /// It had been marked on the way (CE).
        marked: bool,
        /// The socket belonged to a call: it waited in the backlog, and is handled now.
        backlog: bool,
        /// The number of packets, from that one on, that were merged into this one (GRO); at least 1.
        merged: u16,
        /// Memory that the kernel charges for it, in bytes (`skb->truesize`).
        truesize: u32,
    },
    /// A timer.
    Timer {
        /// Which.
        timer: Timer,
        /// The socket belonged to a call: it was put off to the end of that.
        deferred: bool,
    },
    /// The device has sent enough for a socket that small queues held back (`tcp_tsq_handler`).
    SmallQueue,
    /// The end of a call's use of the socket found work put off (`tcp_release_cb`).
    Release {
        /// `TCPF_*_DEFERRED`.
        flags: u32,
    },
}

/// TCP's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Retransmission, loss probe, reordering, zero window: `tcp_write_timer`; which of them it is follows from the state.
    Write,
    /// `tcp_delack_timer`.
    DelayedAck,
    /// `tcp_keepalive_timer`.
    Keepalive,
    /// `tcp_pace_kick`.
    Pacing,
    /// `tcp_compressed_ack_kick`.
    CompressedAck,
    /// `reqsk_timer_handler`: a SYN-ACK again.
    Request,
}

impl Timer {
    /// Every one, by its number in files.
    pub const ALL: [Timer; 6] = [
        Timer::Write,
        Timer::DelayedAck,
        Timer::Keepalive,
        Timer::Pacing,
        Timer::CompressedAck,
        Timer::Request,
    ];
}

/// The result of a call that had not returned when its recording ended (`-ERESTARTSYS`, which no program ever sees).
pub const NOT_RETURNED: i32 = -512;

/// In a file one run of this number keeps its check, where times are sampled or near the true ones.
pub const CHECKED: usize = 64;

impl Recording {
    /// What is left of it in a file.
    ///
    /// Of each check the lower 8 bits; of each 64th ([`CHECKED`]; one covers all runs before it) where times are sampled ([`End::sent`]) or near
    /// the true ones ([`End::within`]). Where they are sampled a run's time is the first run's and the ticks of `jiffies` since then. A gap is no later than the last run; without one nothing was lost.
    pub fn kept(&self) -> Recording {
        let mut kept = self.clone();
        let ends = kept.connections.iter_mut().flat_map(|c| &mut c.ends);
        for end in ends.chain(kept.one_sided.iter_mut().map(|it| &mut it.end)) {
            end.keep(self.origin.hz);
        }
        kept
    }
}

impl End {
    fn keep(&mut self, hz: u32) {
        let runs = self.runs.len() as u64;
        self.gap = self.gap.map(|gap| gap.min(runs));
        if self.gap.is_none() {
            self.lost = 0;
        }
        let dense = self.within == 0 && self.sent.is_none() && block::has_checks(&self.runs);
        let mut before: Option<(Moment, u32)> = None;
        for (place, run) in self.runs.iter_mut().enumerate() {
            let kept = dense || place % CHECKED == CHECKED - 1;
            // A recorder that makes checks makes all of them.
            run.check = kept.then(|| run.check.unwrap_or(0) & 0xff);
            if self.sent.is_some() {
                run.keep_tick(&mut before, hz);
            }
        }
    }
}

impl Run {
    /// What is left of its time where times are sampled; `before` is carried from run to run.
    fn keep_tick(&mut self, before: &mut Option<(Moment, u32)>, hz: u32) {
        if let Some((at, jiffies)) = *before {
            let ticks = self.jiffies.wrapping_sub(jiffies) as i32;
            self.at = block::later(at, ticks, hz);
        }
        *before = Some((self.at, self.jiffies));
    }
}
