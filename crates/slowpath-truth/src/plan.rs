// SPDX-License-Identifier: Apache-2.0
//! What a run is: a path, two sockets, traffic, and what is done to them.

mod draws;
mod further;
mod injections;
mod interactions;
mod listener_loads;

pub use draws::draw;
pub use injections::{INJECTED, PAIRS};

use serde::{Deserialize, Serialize};
use slowpath_diagnose::InteractionKind;
use slowpath_model::Problem;
use std::fmt;

/// The problems of listening sockets that are injected, one class each.
pub const OF_LISTENERS: &[Problem] = &[Problem::AcceptQueueOverflow, Problem::SynQueueOverflow];

/// The interactions with runs of their own. `SendBufferBelowBdp` is what the runs of
/// `SendBufferLimited` have.
pub const INTERACTIONS: &[InteractionKind] = &[
    InteractionKind::TimeoutThenDelayedAck,
    InteractionKind::TooFewForFastRetransmit,
    InteractionKind::PipelinedProxy,
];

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// This problem is injected.
    Problem(Problem),
    /// The parameters of a run of that problem, without the injection.
    Control(Problem),
    /// Nothing is injected: long pauses.
    Idle,
    /// Nothing is injected: messages in one direction, with pauses.
    Streaming,
    /// Nothing is injected: short connections.
    Short,
    /// Two problems at once.
    Pair(Problem, Problem),
    /// This interaction is brought about.
    Interaction(InteractionKind),
    /// The parameters of such a run, without what brings it about.
    Without(InteractionKind),
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Problem(problem) => write!(f, "{problem}"),
            Group::Control(problem) => write!(f, "without {problem}"),
            Group::Idle => f.write_str("idle"),
            Group::Streaming => f.write_str("streaming"),
            Group::Short => f.write_str("short"),
            Group::Pair(one, other) => write!(f, "{one} + {other}"),
            Group::Interaction(kind) => write!(f, "{kind}"),
            Group::Without(kind) => write!(f, "without {kind}"),
        }
    }
}

/// The network of a run: `a -- near -- far -- b`. Delay and rate are those of the middle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathSettings {
    /// Round-trip time without queues, microseconds.
    pub rtt_us: u64,
    /// Rate, kbit/s.
    pub rate_kbit: u64,
    /// Queue in front of the middle, bytes.
    pub queue_bytes: u64,
    /// Whether the connection uses IPv6.
    pub v6: bool,
    /// Whether the hosts' cards take one segment at a time (`gso_max_segs` 1), so that TCP
    /// makes no larger buffers.
    pub single: bool,
    /// Which data segments are lost on their way to the bottleneck.
    pub loss: Option<Loss>,
    /// When the middle is cut, and for how long: milliseconds after the connection is open.
    pub cuts_ms: Vec<(u64, u64)>,
    /// How long it is cut when the connection is being opened, milliseconds.
    pub closed_ms: u64,
    /// Hosts ask for ECN, and packets are marked from this queue length on, packets.
    pub marking: Option<u32>,
    /// The number of data segments in a million that come later, and by how much: microseconds.
    pub late: Option<(u32, u64)>,
    /// The window is kept over idle time (`tcp_slow_start_after_idle` 0).
    pub keep_window: bool,
}

impl PathSettings {
    /// Bytes under way when the path is full and its queue empty.
    pub fn bdp(&self) -> u64 {
        self.rate_kbit * self.rtt_us / 8_000
    }

    /// The longest that a packet can wait in the queue, microseconds.
    pub fn queue_us(&self) -> u64 {
        self.queue_bytes * 8_000 / self.rate_kbit.max(1)
    }
}

/// Which data segments are lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Loss {
    /// Every so-manieth, from the first one given on.
    Every {
        /// The distance.
        every: u32,
        /// The first.
        first: u32,
    },
    /// Each with this probability, in millionths.
    Random(u32),
    /// Runs of packets with payload, by number: first and last.
    Runs(Vec<(u32, u32)>),
}

/// Socket options.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tcp {
    /// Congestion control.
    pub control: &'static str,
    /// TCP_MAXSEG of the sender, bytes of payload and options.
    pub mss: u32,
    /// SO_SNDBUF of a; the kernel doubles it.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF of b; the kernel doubles it.
    pub receive_buffer: Option<u32>,
    /// TCP_NODELAY at both ends.
    pub nodelay: bool,
    /// b insists on delaying acknowledgements.
    pub delay_acks: bool,
}

/// What the applications do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Traffic {
    /// a writes as fast as it may.
    Bulk {
        /// Bytes of a write.
        write: u32,
    },
    /// a writes a message, pauses, and so on; b only reads.
    Messages {
        /// Bytes of a message.
        bytes: u32,
        /// The pause, microseconds.
        pause_us: u64,
    },
    /// a writes a request, b answers after a while, a pauses, and so on.
    Exchange {
        /// Bytes of each write of a request.
        parts: Vec<u32>,
        /// Bytes of the answer.
        response: u32,
        /// Before the answer, microseconds.
        think_us: u64,
        /// After it, microseconds.
        pause_us: u64,
    },
}

/// How b reads what is not an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// At once.
    Quick,
    /// Some bytes, then a pause.
    Slow {
        /// Bytes.
        bytes: u32,
        /// Microseconds.
        pause_us: u64,
    },
}

/// Clients that connect to one listener, instead of a connection that is used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListenerLoad {
    /// How many.
    pub clients: u32,
    /// Between the beginnings of two, microseconds.
    pub gap_us: u64,
    /// The backlog that `listen` is given.
    pub backlog: u32,
    /// `tcp_max_syn_backlog`.
    pub most_half_open: u32,
    /// `tcp_syncookies`.
    pub cookies: bool,
    /// The application accepts nothing for so long, milliseconds.
    pub idle_ms: u64,
    /// And then pauses so long after each connection, microseconds.
    pub pause_us: u64,
    /// Nothing from the listener's host reaches the clients for so long, milliseconds.
    pub mute_ms: u64,
}

/// A process at b that passes on what a sends to it, back to another process at a.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Relay {
    /// SO_SNDBUF of the connection to the last process, if set.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF of the last process, if set.
    pub receive_buffer: Option<u32>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The network.
    pub path: PathSettings,
    /// The sockets.
    pub tcp: Tcp,
    /// The applications.
    pub traffic: Traffic,
    /// How b reads.
    pub pace: Pace,
    /// How long a connection lasts, milliseconds.
    pub length_ms: u64,
    /// How many connections, one after another.
    pub connections: u32,
    /// Clients of a listener, instead.
    #[serde(rename = "crowd")]
    pub listener_load: Option<ListenerLoad>,
    /// b passes on what it gets.
    pub relay: Option<Relay>,
}

impl Plan {
    /// The most packets with data that it sends in a second, about.
    pub fn packets_a_second(&self) -> u64 {
        if self.listener_load.is_some() {
            return 500;
        }
        let full = self.path.rate_kbit * 125 / u64::from(self.tcp.mss + 52);
        match &self.traffic {
            Traffic::Bulk { .. } => full,
            Traffic::Messages { bytes, pause_us } => {
                let segments = u64::from(bytes / self.tcp.mss + 1);
                full.min(segments * 1_000_000 / pause_us.max(&1000))
            }
            Traffic::Exchange {
                parts,
                response,
                think_us,
                pause_us,
            } => {
                let bytes = parts.iter().sum::<u32>() + response;
                let segments = u64::from(bytes / self.tcp.mss) + parts.len() as u64 + 1;
                let cycle = self.path.rtt_us + think_us + pause_us;
                full.min(segments * 1_000_000 / cycle.max(200))
            }
        }
    }
}
