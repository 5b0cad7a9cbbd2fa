// SPDX-License-Identifier: Apache-2.0
//! How a connection behaves.

use core::fmt;
use slowpath_switch::{Rate, Span};

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Never: the window stays at the initial one. For tests and for what happens without
    /// congestion control.
    Fixed,
    /// RFC 5681.
    NewReno,
    /// RFC 9438.
    Cubic {
        /// Leave slow start when the delay grows (Ha and Rhee, Taming the elephants, 2011).
        hystart: bool,
    },
    /// RFC 8257.
    Dctcp,
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00). It paces.
    Bbr,
}

/// How ECN is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Packets are not ECN-capable.
    Off,
    /// RFC 3168: one mark, one reduction a round trip, echoed until confirmed.
    Classic,
    /// RFC 8257: the echo follows the marks.
    Dctcp,
}

/// How a sender finds out that a segment was lost, before the retransmission timer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// A number of duplicate ACKs, or of segments SACKed beyond it. 3 in RFC 5681 and RFC 6675.
    DuplicateAcks(u32),
    /// By time (RFC 8985), with its reordering window; three SACKed segments make it zero.
    /// Needs SACK.
    Rack,
    /// Not at all.
    TimeoutOnly,
}

/// How the retransmission timeout follows from round-trip times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoEstimator {
    /// RFC 6298: `srtt + 4 rttvar`, at least the minimum.
    Rfc6298,
    /// Linux (`tcp_rtt_estimator`): `srtt` plus a variance that is at least the minimum,
    /// grows at once and shrinks once a round trip.
    Linux,
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedAck {
    /// Every segment at once.
    Off,
    /// Every second full-sized segment, or when the time is over (RFC 5681 section 4.2).
    Fixed(Span),
    /// Linux: the first segments at once (`tcp_enter_quickack_mode`), later every second
    /// one, or when a time of 40 to 200 ms that follows the gaps between segments is over.
    Linux,
}

/// What the receiver offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveWindow {
    /// Always this size, bytes.
    Fixed(u32),
    /// Linux's dynamic right-sizing: twice what the application read in a round trip, up
    /// to a most.
    Autotuned {
        /// At first, bytes.
        initial: u32,
        /// At most, bytes.
        max: u32,
    },
}

/// An application that reads in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Most bytes at a time.
    pub bytes: u32,
    /// So long after something came, and again as long as there is more to come.
    pub every: Span,
}

/// How both ends of a connection behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// ECN.
    pub ecn: Ecn,
    /// Selective acknowledgments.
    pub sack: bool,
    /// Loss detection.
    pub loss_detection: LossDetection,
    /// Tail loss probes (RFC 8985 section 7).
    pub tail_loss_probe: bool,
    /// Proportional rate reduction (RFC 6937); otherwise the window falls at once.
    pub proportional_rate_reduction: bool,
    /// Notices spurious timeouts (F-RTO, RFC 5682).
    pub frto: bool,
    /// Takes a reduction back when DSACKs say that nothing it sent again was lost. Needs SACK.
    pub dsack_undo: bool,
    /// Limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// Payload of a full segment, bytes.
    pub mss: u16,
    /// What a packet has on the wire beside its payload, bytes. A pure ACK is this long.
    pub header: u16,
    /// Spreads what leaves over the round trip, as Linux does (`tcp_update_pacing_rate`): twice the window a
    /// round trip in slow start, 1.2 times the window later.
    pub pacing: bool,
    /// Paces at no more than that (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<Rate>,
    /// Segments at the start. 10 in RFC 6928.
    pub initial_window: u32,
    /// Most segments in slow start before anything was lost.
    pub initial_ssthresh: u32,
    /// The most segments one ACK adds in slow start (RFC 3465's L); `None`: as many as it
    /// acknowledges, as Linux does.
    pub slow_start_limit: Option<u32>,
    /// Fall back to the initial window after an idle retransmission timeout (RFC 5681
    /// section 4.1, `tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// Estimator of the retransmission timeout.
    pub rto_estimator: RtoEstimator,
    /// Least retransmission timeout.
    pub rto_min: Span,
    /// That of the end that receives, if it has another: a route's. No simulated receiver has one.
    pub receiver_rto_min: Option<Span>,
    /// Greatest retransmission timeout.
    pub rto_max: Span,
    /// Before the first round-trip time. 1 s in RFC 6298.
    pub rto_initial: Span,
    /// Acknowledgments.
    pub delayed_ack: DelayedAck,
    /// Receive window.
    pub receive_window: ReceiveWindow,
    /// How the application reads; `None`: at once. Simulated ones know nothing else.
    pub reading: Option<Reading>,
    /// Whether a connection begins with an exchange of SYNs, which takes a round trip.
    pub handshake: bool,
    /// A Linux host around its TCP, with a timer tick of this length; `None`: an ideal host, whose
    /// timers are exact and whose connections take turns. See [`Sender`](super::Sender).
    pub kernel_tick: Option<Span>,
}

impl TcpConfig {
    /// Linux 6.x with CUBIC and its defaults.
    pub fn linux() -> Self {
        TcpConfig {
            algorithm: Algorithm::Cubic { hystart: false },
            ecn: Ecn::Off,
            sack: true,
            loss_detection: LossDetection::Rack,
            tail_loss_probe: true,
            proportional_rate_reduction: true,
            frto: true,
            dsack_undo: true,
            limited_transmit: true,
            mss: 1460,
            header: 40,
            pacing: false,
            max_pacing_rate: None,
            initial_window: 10,
            initial_ssthresh: u32::MAX,
            slow_start_limit: None,
            slow_start_after_idle: true,
            rto_estimator: RtoEstimator::Linux,
            rto_min: Span::from_millis(200),
            receiver_rto_min: None,
            rto_max: Span::from_secs(120),
            rto_initial: Span::from_secs(1),
            delayed_ack: DelayedAck::Linux,
            receive_window: ReceiveWindow::Fixed(16 << 20),
            reading: None,
            handshake: false,
            kernel_tick: None,
        }
    }

    /// NewReno with SACK as the RFCs have it: three duplicate ACKs, no RACK, no probes.
    pub fn rfc_newreno() -> Self {
        TcpConfig {
            algorithm: Algorithm::NewReno,
            loss_detection: LossDetection::DuplicateAcks(3),
            tail_loss_probe: false,
            proportional_rate_reduction: false,
            frto: false,
            dsack_undo: false,
            rto_estimator: RtoEstimator::Rfc6298,
            rto_min: Span::from_secs(1),
            delayed_ack: DelayedAck::Fixed(Span::from_millis(200)),
            ..Self::linux()
        }
    }

    /// Whether it paces at all.
    pub(crate) fn paces(&self) -> bool {
        self.pacing || self.max_pacing_rate.is_some() || self.algorithm == Algorithm::Bbr
    }

    /// Linux with DCTCP.
    pub fn dctcp() -> Self {
        TcpConfig {
            algorithm: Algorithm::Dctcp,
            ecn: Ecn::Dctcp,
            ..Self::linux()
        }
    }

    /// Says what is impossible about it.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&self) -> Result<(), TcpConfigError> {
        let window = match self.receive_window {
            ReceiveWindow::Fixed(bytes) => bytes,
            ReceiveWindow::Autotuned { initial, max } if initial <= max => initial,
            ReceiveWindow::Autotuned { .. } => return Err(TcpConfigError::ReceiveWindow),
        };
        if self.mss == 0
            || self.header == 0
            || u32::from(self.mss) + u32::from(self.header) > 65_535
        {
            Err(TcpConfigError::SegmentSize)
        } else if self.initial_window == 0 || self.initial_window > MAX_WINDOW {
            Err(TcpConfigError::InitialWindow)
        } else if window < u32::from(self.mss) || window >= 1 << 31 {
            Err(TcpConfigError::ReceiveWindow)
        } else if self.rto_min == Span::ZERO
            || self.rto_min > self.rto_max
            || self.rto_initial > self.rto_max
            || self.rto_initial == Span::ZERO
            || self.rto_max > Span::from_secs(3600)
            || self
                .kernel_tick
                .is_some_and(|tick| tick == Span::ZERO || tick > MAX_TICK)
        {
            Err(TcpConfigError::Timeout)
        } else if self.loss_detection == LossDetection::DuplicateAcks(0) {
            Err(TcpConfigError::DuplicateAcks)
        } else if !self.sack && self.loss_detection == LossDetection::Rack {
            Err(TcpConfigError::RackWithoutSack)
        } else if self.slow_start_limit == Some(0) {
            Err(TcpConfigError::SlowStartLimit)
        } else if (self.algorithm == Algorithm::Dctcp) != (self.ecn == Ecn::Dctcp) {
            Err(TcpConfigError::DctcpEcn)
        } else {
            Ok(())
        }
    }
}

/// The largest congestion window, in segments; keeps products in range.
pub(super) const MAX_WINDOW: u32 = 1 << 20;

/// `HZ` is 100 at least.
const MAX_TICK: Span = Span::from_millis(10);

/// What is impossible about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpConfigError {
    /// No payload, no header, or a packet longer than 65,535 bytes.
    SegmentSize,
    /// No initial window, or more than 2^20 segments.
    InitialWindow,
    /// A receive window smaller than a segment, or of 2^31 bytes and more.
    ReceiveWindow,
    /// Timeouts that are zero, out of order, or longer than an hour; or a tick that is zero or
    /// longer than 10 ms.
    Timeout,
    /// A threshold of no duplicate ACKs.
    DuplicateAcks,
    /// RACK is defined on SACK.
    RackWithoutSack,
    /// A slow start that cannot start.
    SlowStartLimit,
    /// DCTCP needs its own ECN echo, and the echo needs DCTCP.
    DctcpEcn,
}

impl fmt::Display for TcpConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SegmentSize => "payload and header are 1 to 65,535 bytes in all, neither 0",
            Self::InitialWindow => "the initial window is 1 to 1,048,576 segments",
            Self::ReceiveWindow => {
                "the receive window is at least one segment, below 2^31, initial not above max"
            }
            Self::Timeout => "retransmission timeouts: 0 < min <= max <= 1 h, 0 < initial <= max, 0 < tick <= 10 ms",
            Self::DuplicateAcks => "the duplicate-ACK threshold is at least 1",
            Self::RackWithoutSack => "RACK needs SACK",
            Self::SlowStartLimit => "the slow start limit is at least 1",
            Self::DctcpEcn => "DCTCP needs its ECN echo, and the echo needs DCTCP",
        })
    }
}

impl std::error::Error for TcpConfigError {}
