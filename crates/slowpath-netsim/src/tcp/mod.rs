// SPDX-License-Identifier: Apache-2.0
//! TCP as pure state: segments and time go in, segments and a deadline come out.
//!
//! A connection carries data one way, from a [`Sender`] to a [`Receiver`]. The owner
//!
//! - hands acknowledgments to [`Sender::on_ack`] and expired deadlines to
//!   [`Sender::on_deadline`], then takes segments from [`Sender::poll_transmit`] until there
//!   is none, and looks at [`Sender::deadline`];
//! - hands data to [`Receiver::on_data`], sends the acknowledgment it may return, and looks
//!   at [`Receiver::deadline`].
//!
//! Neither knows a clock, a network or the other end. All arithmetic is on integers, CUBIC's
//! curve included. Sequence numbers are offsets in the stream, 64 bits wide; nothing wraps.
//! Windows are counted in segments, as in Linux, so that the growth laws are Linux's.
//!
//! # What is modelled
//!
//! | | source |
//! |---|---|
//! | slow start, congestion avoidance | RFC 5681; Linux counts the segments an ACK covers (RFC 3465 without its limit L), [`TcpConfig::slow_start_limit`] sets one |
//! | fast retransmit and recovery without SACK | RFC 6582 |
//! | with SACK | RFC 2018, RFC 6675; DSACK blocks (RFC 2883) |
//! | RACK and tail loss probes | RFC 8985 as Linux has them |
//! | proportional rate reduction | RFC 6937, as in Linux also after an ECN mark |
//! | limited transmit | RFC 3042 |
//! | undo of needless reductions | F-RTO (RFC 5682) with and without SACK, DSACK (RFC 3708), as Linux has both |
//! | retransmission timer | RFC 6298, or Linux's with its floor under the variance |
//! | CUBIC | RFC 9438 with Linux's constants; HyStart by option |
//! | BBR, version 1 | draft-cardwell-iccrg-bbr-congestion-control-00 with Linux's constants; rates as in draft-cheng-iccrg-delivery-rate-estimation-02 |
//! | pacing | Linux's own (`tcp_pacing_check`), by option; always with BBR |
//! | DCTCP | RFC 8257 with Linux's constants |
//! | ECN | RFC 3168 |
//! | delayed ACK | RFC 5681 section 4.2, or Linux's quick-ACK start and adaptive timer |
//! | receive window | fixed, or grown as Linux's dynamic right-sizing does |
//!
//! Not modelled: undoing a wrong reduction by timestamps (Eifel, RFC 3522), Nagle, zero-window
//! probes (the receiving application reads at once), FIN, sequence number wrap, segments
//! lost inside the host.
//!
//! # Two hosts
//!
//! Without [`TcpConfig::kernel_tick`] a host is ideal: its timers are exact and its connections
//! take turns at the link. With it both ends are those of a Linux host and do what
//! `docs/journal/lab-judge.md` lists of Linux. Each end is a state machine that both kinds share and a
//! policy that decides where they differ: `sender/{rfc,linux}`, `receiver/{rfc,linux}`.

mod config;
mod congestion;
mod delivery_rate;
mod options;
mod reassembly;
mod receiver;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod tick;
mod window;

pub use config::{
    Algorithm, DelayedAck, Ecn, LossDetection, Reading, ReceiveWindow, RtoEstimator, TcpConfig,
    TcpConfigError,
};
pub use congestion::{Congestion, Mode};
pub use receiver::{Received, Receiver};
pub use rtt::RttEstimator;
pub use segment::{Ack, MAX_SACK_BLOCKS, SackBlocks, Segment};
pub(crate) use sender::OVERHEAD;
pub use sender::{Counts, Phase, Sender};
