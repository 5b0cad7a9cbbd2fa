// SPDX-License-Identifier: Apache-2.0
//! A scenario's kinds of TCP as Linux's: options of sockets and of whole hosts.
//!
//! Everything that a kind says is either done by Linux as it stands, or refused. What Linux
//! does beyond what a scenario can say is described in `docs/reference/lab-virtual-time.md`.

use super::error::Refusal;
use super::wire::{ACK_AT_ONCE, HANDSHAKE, RawKind};
use slowpath_netsim::tcp::{
    Algorithm, DelayedAck, Ecn, LossDetection, Reading, ReceiveWindow, RtoEstimator, TcpConfig,
};
use slowpath_switch::Span;

/// IPv4 and TCP without options, RFC 791 and RFC 9293.
const HEADERS: u16 = 40;
/// The timestamps option with its padding, RFC 7323 appendix A.
const TIMESTAMPS: u16 = 12;
/// `TCP_RTO_MAX` (include/net/tcp.h).
const RTO_MAX: Span = Span::from_secs(120);
/// `TCP_TIMEOUT_INIT`: before the first answer.
const RTO_INITIAL: Span = Span::from_secs(1);
/// `net.ipv4.tcp_rmem` of Linux 6.12: default and largest.
const RMEM: [u32; 2] = [131_072, 6_291_456];

/// `struct lab_kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Congestion control, by Linux's name: at most 16 bytes.
    pub algorithm: String,
    /// The smallest retransmission timeout of the end that connects.
    pub rto_min: Span,
    /// The smallest retransmission timeout of the end that accepts.
    pub accepted_rto_min: Span,
    /// The timeout before the first round trip.
    pub rto_initial: Span,
    /// Packets.
    pub initial_window: u32,
    /// Packets.
    pub initial_ssthresh: u32,
    /// 0: autotuned.
    pub receive_window: u32,
    /// `None`: at once.
    pub reading: Option<Reading>,
    /// Bytes of a segment.
    pub mss: u32,
    /// Bytes of a link around each IP packet.
    pub framing: u32,
    /// Of [`wire`](super::wire).
    pub flags: u32,
}

impl Kind {
    /// As the kernel reads it.
    pub(super) fn raw(&self) -> RawKind {
        let mut algorithm = [0; 16];
        algorithm[..self.algorithm.len()].copy_from_slice(self.algorithm.as_bytes());
        let ns = |span: Span| span.0.div_ceil(1000);
        let every = self.reading.map_or(Span::ZERO, |reading| reading.every);
        RawKind {
            algorithm,
            rto_min_ns: ns(self.rto_min),
            rto_initial_ns: ns(self.rto_initial),
            ack_delay_ns: 0,
            accepted_rto_min_ns: ns(self.accepted_rto_min),
            read_every_ns: ns(every),
            initial_window: self.initial_window,
            initial_ssthresh: self.initial_ssthresh,
            receive_window: self.receive_window,
            mss: self.mss,
            framing: self.framing,
            flags: self.flags,
            read_bytes: self.reading.map_or(0, |reading| reading.bytes),
            reserved: 0,
        }
    }

    /// Whether it is opened when its first flow begins, not before the scenario.
    pub(super) fn has_handshake(&self) -> bool {
        self.flags & HANDSHAKE != 0
    }
}

/// `net.ipv4.tcp_*` of every host, and parameters of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctls {
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// `tcp_timestamps`.
    pub timestamps: bool,
    /// `tcp_sack`.
    pub sack: bool,
    /// `tcp_ecn`.
    pub ecn: u32,
    /// `tcp_recovery`.
    pub recovery: u32,
    /// `tcp_early_retrans`.
    pub early_retrans: u32,
    /// `tcp_reordering`.
    pub reordering: u32,
    /// `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: bool,
    /// `tcp_moderate_rcvbuf`.
    pub moderate_rcvbuf: bool,
    /// `tcp_rmem`: default and largest.
    pub rmem: [u32; 2],
    /// `tcp_cubic.hystart`.
    pub hystart: bool,
}

/// All kinds, and what they have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kinds {
    pub kinds: Vec<Kind>,
    pub sysctls: Sysctls,
}

/// Linux's names of congestion controls that a laboratory kernel has.
pub use slowpath_recording::options::CONGESTION_CONTROLS as ALGORITHMS;

/// What all kinds must agree on, as Linux has it for a host or for a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shared {
    timestamps: bool,
    sack: bool,
    recovery: u32,
    reordering: u32,
    tail_loss_probe: bool,
    slow_start_after_idle: bool,
    autotuned: Option<[u32; 2]>,
}

impl Kinds {
    /// Reads a scenario's kinds; `algorithm` replaces those of all.
    pub fn new(kinds: &[TcpConfig], algorithm: Option<&str>, hz: u32) -> Result<Self, Refusal> {
        let read: Vec<(Kind, Shared)> = kinds
            .iter()
            .map(|tcp| read(tcp, algorithm, hz))
            .collect::<Result<_, _>>()?;
        let Some((_, first)) = read.first() else {
            return Err(Refusal::new("tcp", "there is none"));
        };
        if let Some((_, other)) = read.iter().find(|(_, shared)| shared != first) {
            return Err(Refusal::new(
                differing(first, other),
                "Linux has one for a whole host",
            ));
        }
        let (hystart, ecn) = (hystart(kinds)?, ecn(kinds)?);
        let largest = |pick: fn(&Kind) -> u32| read.iter().map(|(kind, _)| pick(kind)).max();
        let window = largest(|kind| kind.receive_window).unwrap_or(0);
        let mtu = largest(|kind| kind.mss).unwrap_or(0) + u32::from(HEADERS);
        if mtu > 65_535 {
            return Err(Refusal::new(
                "tcp.mss",
                "a device's packets have at most 65,535 bytes",
            ));
        }
        let rmem = first.autotuned.unwrap_or(RMEM);
        Ok(Kinds {
            sysctls: Sysctls {
                mtu,
                timestamps: first.timestamps,
                sack: first.sack,
                ecn,
                recovery: first.recovery,
                early_retrans: if first.tail_loss_probe { 3 } else { 0 },
                reordering: first.reordering,
                slow_start_after_idle: first.slow_start_after_idle,
                moderate_rcvbuf: first.autotuned.is_some(),
                // The window scale follows from the largest buffer.
                rmem: [rmem[0], rmem[1].max(doubled(window))],
                hystart,
            },
            kinds: read.into_iter().map(|(kind, _)| kind).collect(),
        })
    }
}

/// Half of a buffer is taken for what the kernel needs beside the data.
fn doubled(window: u32) -> u32 {
    window.saturating_mul(2).min(i32::MAX as u32)
}

/// Which key two kinds disagree on.
fn differing(a: &Shared, b: &Shared) -> &'static str {
    if a.timestamps != b.timestamps {
        "tcp.header"
    } else if a.sack != b.sack {
        "tcp.sack"
    } else if (a.recovery, a.reordering) != (b.recovery, b.reordering) {
        "tcp.loss-detection"
    } else if a.tail_loss_probe != b.tail_loss_probe {
        "tcp.tail-loss-probe"
    } else if a.slow_start_after_idle != b.slow_start_after_idle {
        "tcp.slow-start-after-idle"
    } else {
        "tcp.receive-window"
    }
}

fn hystart(kinds: &[TcpConfig]) -> Result<bool, Refusal> {
    let mut found = kinds.iter().filter_map(|tcp| match tcp.algorithm {
        Algorithm::Cubic { hystart } => Some(hystart),
        _ => None,
    });
    let first = found.next().unwrap_or(true);
    if found.any(|other| other != first) {
        return Err(Refusal::new(
            "tcp.hystart",
            "Linux has one for the whole kernel",
        ));
    }
    Ok(first)
}

/// `net.ipv4.tcp_ecn`: 1 asks for it. DCTCP asks for it by itself.
fn ecn(kinds: &[TcpConfig]) -> Result<u32, Refusal> {
    let classic = kinds.iter().any(|tcp| tcp.ecn == Ecn::Classic);
    if classic && kinds.iter().any(|tcp| tcp.ecn == Ecn::Off) {
        return Err(Refusal::new("tcp.ecn", "Linux has one for a whole host"));
    }
    Ok(u32::from(classic))
}

fn refuse<T>(key: &str, reason: &str) -> Result<T, Refusal> {
    Err(Refusal::new(format!("tcp.{key}"), reason))
}

fn read(tcp: &TcpConfig, algorithm: Option<&str>, hz: u32) -> Result<(Kind, Shared), Refusal> {
    let tick = Span(1_000_000_000_000 / u64::from(hz.max(1)));
    let (recovery, reordering) = loss_detection(tcp)?;
    check_window(tcp)?;
    check_timeouts(tcp, tick, hz)?;
    if matches!(tcp.delayed_ack, DelayedAck::Fixed(_)) {
        return refuse(
            "delayed-ack",
            "Linux's delay follows the connection: 'linux' or 'off'",
        );
    }
    let timestamps = tcp.header == HEADERS + TIMESTAMPS;
    let framing = match tcp.header {
        header if header < HEADERS => {
            return refuse("header", "IP and TCP take 40 bytes, 52 with timestamps");
        }
        _ if timestamps => 0,
        header => header - HEADERS,
    };
    check_kernel(tcp, tick, hz)?;
    let algorithm = congestion_control(tcp, algorithm)?;
    let (receive_window, autotuned) = match tcp.receive_window {
        ReceiveWindow::Fixed(bytes) => (bytes, None),
        ReceiveWindow::Autotuned { initial, max } => (0, Some([doubled(initial), doubled(max)])),
    };
    let mut flags = 0;
    if tcp.handshake {
        flags |= HANDSHAKE;
    }
    if tcp.delayed_ack == DelayedAck::Off {
        flags |= ACK_AT_ONCE;
    }
    let options = if timestamps { TIMESTAMPS } else { 0 };
    let kind = Kind {
        algorithm: algorithm.to_owned(),
        rto_min: tcp.rto_min,
        accepted_rto_min: accepted_rto_min(tcp),
        rto_initial: tcp.rto_initial,
        initial_window: tcp.initial_window,
        initial_ssthresh: tcp.initial_ssthresh,
        receive_window,
        reading: tcp.reading,
        // As TCP_MAXSEG counts: options of every segment included.
        mss: u32::from(tcp.mss) + u32::from(options),
        framing: u32::from(framing),
        flags,
    };
    let shared = Shared {
        timestamps,
        sack: tcp.sack,
        recovery,
        reordering,
        tail_loss_probe: tcp.tail_loss_probe,
        slow_start_after_idle: tcp.slow_start_after_idle,
        autotuned,
    };
    Ok((kind, shared))
}

/// `tcp_recovery` and `tcp_reordering`.
fn loss_detection(tcp: &TcpConfig) -> Result<(u32, u32), Refusal> {
    match tcp.loss_detection {
        LossDetection::Rack => Ok((1, 3)),
        LossDetection::DuplicateAcks(threshold) => Ok((0, threshold)),
        LossDetection::TimeoutOnly => refuse(
            "loss-detection",
            "Linux detects losses by acknowledgments too",
        ),
    }
}

/// What Linux does with its congestion window, whatever the congestion control.
fn check_window(tcp: &TcpConfig) -> Result<(), Refusal> {
    if !tcp.proportional_rate_reduction {
        return refuse("proportional-rate-reduction", "Linux always reduces so");
    }
    if !tcp.limited_transmit {
        return refuse("limited-transmit", "Linux always does it");
    }
    if tcp.slow_start_limit.is_some() {
        return refuse("slow-start-limit", "Linux has none");
    }
    Ok(())
}

/// The smallest retransmission timeout of the end that accepts.
fn accepted_rto_min(tcp: &TcpConfig) -> Span {
    tcp.receiver_rto_min.unwrap_or(tcp.rto_min)
}

fn check_timeouts(tcp: &TcpConfig, tick: Span, hz: u32) -> Result<(), Refusal> {
    if tcp.rto_estimator != RtoEstimator::Linux {
        return refuse("rto-estimator", "Linux has its own");
    }
    if tcp.rto_max != RTO_MAX {
        return refuse("rto-max", "Linux's is 120 s");
    }
    if tcp.handshake && tcp.rto_initial != RTO_INITIAL {
        return refuse(
            "rto-initial",
            "Linux's is 1 s for a connection that begins with a handshake",
        );
    }
    if tcp.rto_min.min(accepted_rto_min(tcp)) < tick {
        let reason = format!(
            "Linux counts it in ticks, of which this kernel has {hz} a second: \
             another may have up to 1,000 (make lab-kernel LAB_HZ=1000, --hz 1000)"
        );
        return refuse("rto-min", &reason);
    }
    Ok(())
}

/// What the laboratory's kernel cannot be asked to do otherwise.
fn check_kernel(tcp: &TcpConfig, tick: Span, hz: u32) -> Result<(), Refusal> {
    if !tcp.frto {
        return refuse(
            "frto",
            "the laboratory's Linux always looks for spurious timeouts",
        );
    }
    if tcp.sack && !tcp.dsack_undo {
        return refuse("dsack-undo", "Linux cannot switch only this off");
    }
    if tcp.kernel_tick.is_some_and(|wanted| wanted != tick) {
        let reason = format!("this kernel has {hz} ticks a second");
        return refuse("kernel-tick", &reason);
    }
    if tcp.pacing || tcp.max_pacing_rate.is_some() {
        let key = if tcp.pacing {
            "pacing"
        } else {
            "max-pacing-rate"
        };
        return refuse(
            key,
            "of Linux's algorithms only BBR paces without a queueing discipline",
        );
    }
    if tcp.mss < 88 {
        return refuse("mss", "Linux's is 88 bytes at least (TCP_MIN_MSS)");
    }
    Ok(())
}

/// Linux's name of the congestion control; `name` replaces the scenario's.
fn congestion_control(tcp: &TcpConfig, name: Option<&str>) -> Result<&'static str, Refusal> {
    match (name, tcp.algorithm) {
        (Some(name), _) => match ALGORITHMS.iter().find(|known| **known == name) {
            Some(known) => Ok(*known),
            None => {
                let reason = format!("'{name}' is none of {}", ALGORITHMS.join(", "));
                Err(Refusal::new("congestion control", reason))
            }
        },
        (None, Algorithm::NewReno) => Ok("reno"),
        (None, Algorithm::Cubic { .. }) => Ok("cubic"),
        (None, Algorithm::Dctcp) => Ok("dctcp"),
        (None, Algorithm::Bbr) => Ok("bbr"),
        (None, Algorithm::Fixed) => refuse("algorithm", "Linux has no window that never changes"),
    }
}

#[cfg(test)]
mod tests;
