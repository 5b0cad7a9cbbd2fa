// SPDX-License-Identifier: Apache-2.0
//! What is known of a connection when its last segment was observed.
//!
//! [`Direction`] is about what one side *sent*, with what the other side's
//! acknowledgements say about it: RTT samples and duplicate ACKs stand with the data they
//! are about, windows and SACK blocks with the side that sent them. Every figure's
//! definition, with tcptrace's and Wireshark's names, is in docs/reference/trace.md.

mod handshake;

pub use handshake::{FastOpen, Handshake, Offered, Scaling};

use super::samples::Samples;
use super::turns::Turns;
use super::wireshark;
use crate::segment::{Endpoint, Timestamp};
use std::time::Duration;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Who opened it: sent the SYN without ACK, or was sent the SYN with ACK; without a
    /// handshake in the capture, who sent the first segment.
    Client,
    /// The other end.
    Server,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn peer(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// A place in the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The frame's number.
    pub frame: u64,
    /// Its time.
    pub time: Timestamp,
}

/// Everything known about one connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Who opened it, as far as the capture shows ([`Side::Client`]).
    pub client: Endpoint,
    /// The other end.
    pub server: Endpoint,
    /// Which side sent the first segment of the capture.
    pub first_sender: Side,
    /// The connection's first segment in the capture.
    pub first: Moment,
    /// The segment with the latest time.
    pub last: Moment,
    /// An earlier connection of the capture had the same 4-tuple.
    pub reused: bool,
    /// How it was opened.
    pub handshake: Handshake,
    /// How it ended.
    pub ending: Ending,
    /// What the client sent.
    pub from_client: Direction,
    /// What the server sent.
    pub from_server: Direction,
    /// Requests and responses.
    pub turns: Turns,
    /// Segments with a time before the one of the segment before them; durations are never
    /// negative: such a step counts as zero.
    pub clock_steps_back: u64,
    /// Segments whose TCP checksum was checked and wrong. They are analysed like the others:
    /// checksums are wrong in captures at a sender whose network card computes them.
    pub bad_checksums: u64,
    /// Captured on both sides of a device that gives it other sequence numbers: those captured first
    /// count, the others are copies.
    pub renumbered: bool,
    /// What was given up to keep memory bounded.
    pub dropped: Dropped,
}

impl ConnectionReport {
    /// What `side` sent.
    #[must_use]
    pub fn sent_by(&self, side: Side) -> &Direction {
        match side {
            Side::Client => &self.from_client,
            Side::Server => &self.from_server,
        }
    }

    /// The end at `side`.
    #[must_use]
    pub fn endpoint(&self, side: Side) -> Endpoint {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }

    /// Segments of both sides.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.from_client.packets + self.from_server.packets
    }

    /// From the first segment to the latest.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let nanos = self.last.time.0.saturating_sub(self.first.time.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Only one side's segments are in the capture.
    #[must_use]
    pub fn is_one_sided(&self) -> bool {
        self.from_client.packets == 0 || self.from_server.packets == 0
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Neither FIN nor RST: the capture ended first.
    #[default]
    Open,
    /// No answer but ICMP or nothing to any SYN.
    Unanswered,
    /// A SYN was answered by a RST.
    Refused,
    /// One side sent FIN; the other went on or was silent.
    HalfClosed(Side),
    /// Both sides sent FIN.
    Closed,
    /// Reset by this side before both had sent FIN.
    Reset(Side),
}

/// What one side sent, and what the other acknowledged of it.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Segments, hardware duplicates included.
    pub packets: u64,
    /// Bytes of their frames.
    pub wire_bytes: u64,
    /// What the SYN offered.
    pub offered: Offered,
    /// Payload.
    pub data: Data,
    /// Flags and segments without payload.
    pub control: Control,
    /// Data sent again.
    pub retransmitted: Retransmitted,
    /// Late arrivals, gaps, duplicates of frames.
    pub order: Order,
    /// RTT from here to the receiver of this data and back.
    pub rtt: Rtt,
    /// ACKs of this data by the other side.
    pub acks: Acks,
    /// The windows this side advertised, and what it did with the other's.
    pub window: Window,
    /// Data in flight.
    pub flight: Flight,
    /// When this side sent.
    pub timing: Timing,
    /// ECN.
    pub ecn: Ecn,
    /// Segments of this side by Wireshark's flag, in the order of
    /// [`wireshark::Flag::ALL`].
    pub wireshark: [u64; wireshark::FLAGS],
}

impl Direction {
    /// Segments of this side with one of Wireshark's flags.
    #[must_use]
    pub fn wireshark(&self, flag: wireshark::Flag) -> u64 {
        self.wireshark[flag as usize]
    }
}

/// Payload of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Segments with payload.
    pub packets: u64,
    /// Their payload, everything sent again included.
    pub bytes: u64,
    /// Payload at sequence numbers not observed before.
    pub unique_bytes: u64,
    /// Of these, acknowledged by the other side before the capture ended.
    pub acked_bytes: u64,
    /// Smallest payload of a segment with payload.
    pub smallest: u32,
    /// Largest payload.
    pub largest: u32,
    /// Segments larger than the MSS: joined by segmentation offload before the capture saw
    /// them.
    pub super_segments: u64,
    /// Segments whose payload the snap length cut.
    pub truncated_packets: u64,
    /// Bytes cut.
    pub truncated_bytes: u64,
    /// Data segments with PSH.
    pub pushed: u64,
    /// Data segments with URG.
    pub urgent_packets: u64,
    /// Sum of their urgent pointers.
    pub urgent_bytes: u64,
    /// From the SYN's to the FIN's sequence number; `None` when either was not observed.
    pub stream_length: Option<u64>,
    /// Of [`stream_length`](Self::stream_length), never captured.
    pub missed_bytes: Option<u64>,
    /// Before the other side's first ACK of data: bytes and segments.
    pub initial_window: (u64, u64),
    /// New data segments below the MSS that were not the last before a pause, with data in
    /// flight and room in the window: the sender does not fill segments.
    pub small_segments: u64,
}

impl Data {
    /// Payload that the other side had not acknowledged when the capture ended.
    #[must_use]
    pub fn undelivered(&self) -> u64 {
        self.unique_bytes.saturating_sub(self.acked_bytes)
    }
}

/// Flags and segments without payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Segments with SYN.
    pub syns: u64,
    /// Segments with FIN.
    pub fins: u64,
    /// Segments with RST.
    pub resets: u64,
    /// Segments with ACK.
    pub acks: u64,
    /// ACKs without payload, SYN, FIN and RST.
    pub pure_acks: u64,
    /// Segments with SACK blocks.
    pub sacks: u64,
    /// Segments whose first SACK block reports a duplicate (RFC 2883).
    pub dsacks: u64,
    /// Most SACK blocks in one segment.
    pub most_sack_blocks: u8,
    /// Keep-alives: no or one byte before what is next, nothing in flight (RFC 9293 section
    /// 3.8.4).
    pub keep_alives: u64,
    /// ACKs of the other side's keep-alives.
    pub keep_alive_acks: u64,
    /// Blocks taken back: bytes SACKed earlier that a later ACK or SACK did not cover
    /// although it reported about that range (RFC 2018 section 8).
    pub reneged_bytes: u64,
}

/// Data sent again. SYN and FIN count as one byte each, as in sequence space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmitted {
    /// Segments sent again: those observed before here, and those judged retransmissions whose
    /// first copy was lost before it came here. Hardware duplicates, keep-alives and
    /// zero-window probes are none.
    pub packets: u64,
    /// Bytes of them that were sent again.
    pub bytes: u64,
    /// Segments with bytes observed here before, whatever the cause: tcptrace's count.
    pub observed_before: u64,
    /// Those bytes.
    pub observed_before_bytes: u64,
    /// Judged retransmissions of data that never came here before: lost between the sender
    /// and here.
    pub lost_before_here: u64,
    /// After duplicate ACKs or SACK blocks, in recovery included, or by RACK's timer (rules 5 and 7).
    pub fast: u64,
    /// A retransmission timer ran out (rule 8).
    pub timeouts: u64,
    /// Sent after a timeout, before everything outstanding then was acknowledged.
    pub after_timeout: u64,
    /// Tail loss probes (rule 6).
    pub tail_loss_probes: u64,
    /// SYNs and SYN-ACKs.
    pub syns: u64,
    /// FINs without data.
    pub fins: u64,
    /// None of the rules fits: nothing observed here explains it.
    pub unexplained: u64,
    /// Reported as duplicates by DSACK (RFC 2883, RFC 3708): the first copy had arrived.
    pub spurious_dsack: u64,
    /// Shown needless by timestamps: the ACK echoes the first copy (RFC 3522).
    pub spurious_eifel: u64,
    /// Already acknowledged here when sent. At the sender's end that is needless; further
    /// on the ACK may have been lost.
    pub already_acked: u64,
    /// Spurious by any of the two proofs, each segment once.
    pub spurious: u64,
    /// Most times one segment was sent again.
    pub most: u32,
    /// From one transmission of data to the next, outstanding data only.
    pub interval: Samples,
    /// Silence before a timeout's retransmission.
    pub timeout_wait: Samples,
}

/// Late arrivals, gaps, duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Segments that filled a gap and were judged reordered, not sent again.
    pub out_of_order: u64,
    /// Segments that start before data observed earlier and end before its end, with bytes not
    /// observed before: tcptrace's count, retransmissions of lost data among them.
    pub before_observed: u64,
    /// Judgements between reordering and retransmission by the clock only, where neither
    /// IP identification, nor timestamps, nor ACKs decided.
    pub ambiguous: u64,
    /// How late those out of order were, after the gap had opened.
    pub lateness: Samples,
    /// Segments that started after a gap: "previous segment not captured".
    pub gaps: u64,
    /// Bytes of the gaps.
    pub gap_bytes: u64,
    /// Acknowledged by the receiver and never observed here: the capture lost them.
    pub capture_lost_bytes: u64,
    /// Times that this was found.
    pub capture_losses: u64,
    /// Gaps neither filled nor acknowledged at the end: lost on the way or in the capture.
    pub unexplained_gap_bytes: u64,
    /// Frames with the IP identification, numbers, flags, window and length of an earlier one, however
    /// much later: tcptrace's count.
    pub hardware_duplicates: u64,
    /// Frames captured twice, as far as they can be distinguished from those sent again.
    pub captured_twice: u64,
}

/// RTT as ACKs show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    /// From a segment to the ACK of exactly its end; segments sent more than once give none
    /// (Karn), nor do those with a later transmission before them in the sequence.
    pub acked: Samples,
    /// Of these, segments of the largest size observed so far, counted anew when a larger one is
    /// acknowledged.
    pub full_size: Samples,
    /// Of the SYN or SYN-ACK, sent once only.
    pub handshake: Option<Duration>,
    /// By RFC 7323 timestamps: from a value's first appearance to its echo; one at a time.
    pub timestamps: Samples,
    /// From the last copy of a segment sent more than once to its ACK.
    pub ambiguous: Samples,
    /// ACKs of segments with a later transmission before them in the sequence: no sample.
    pub after_loss: u64,
    /// Segments acknowledged with a later one, or partly: no sample.
    pub cumulative: u64,
    /// RFC 6298's smoothed RTT at the end.
    pub smoothed: Option<Duration>,
    /// Its variation.
    pub variation: Option<Duration>,
}

/// ACKs of a direction's data: sent by the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// ACKs that acknowledge data for the first time.
    pub advancing: u64,
    /// Duplicate ACKs (RFC 5681 section 2).
    pub duplicate: u64,
    /// Duplicate ACKs as tcptrace counts them: it compares with the end of what was
    /// acknowledged and not with what is outstanding.
    pub duplicate_tcptrace: u64,
    /// Third duplicates, tcptrace's "triple dupacks".
    pub triple: u64,
    /// Longest run of duplicates.
    pub longest_run: u32,
    /// Duplicates by SACK: new blocks, whatever the window (RFC 6675 section 2).
    pub duplicate_by_sack: u64,
    /// ACKs of more than two full-sized segments at once (RFC 1122 section 4.2.3.2: at least
    /// every second is acknowledged).
    pub stretch: u64,
    /// ACKs that waited for a timer: less than two full-sized segments, later than an
    /// immediate ACK by [`Options::delayed_ack`](super::Options::delayed_ack).
    pub delayed: u64,
    /// By how much later.
    pub delay: Samples,
    /// ACKs that acknowledge less than two full-sized segments and were not delayed.
    pub immediate: u64,
    /// ACKs of data that was not outstanding any more: old numbers.
    pub old: u64,
}

/// The windows a side advertised, scaled where the scale is known, and how its sending met
/// the other side's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Segments that advertised a window.
    pub advertised: u64,
    /// Largest; SYNs included, whose windows are never scaled.
    pub largest: u64,
    /// Smallest but zero; where scaling is on, of scaled windows only.
    pub smallest: u64,
    /// Sum over the segments that [`counted`](Self::counted) counts.
    pub sum: u64,
    /// Segments in the average: all that advertised a window, or where scaling is on those from
    /// the first scaled one.
    pub counted: u64,
    /// Segments with ACK and a window of zero, SYN and FIN included, RST not.
    pub zero: u64,
    /// Times that the window closed.
    pub closed: u64,
    /// How long it stayed closed.
    pub closed_time: Samples,
    /// Pure ACKs that only changed the window.
    pub updates: u64,
    /// The right edge moved left (RFC 9293 section 3.8.6: strongly discouraged).
    pub shrunk: u64,
    /// Windows above zero but below the MSS and half of the largest, while data arrived.
    pub silly: u64,
    /// Probes of the *other* side's closed window sent by this side.
    pub probes: u64,
    /// Their payload.
    pub probe_bytes: u64,
    /// Probes without payload, one below what is next, as Linux sends them.
    pub empty_probes: u64,
    /// ACKs by this side of the other's probes.
    pub probe_acks: u64,
    /// Data segments of this side that ended at the other's window edge.
    pub filled: u64,
    /// How long this side then waited for the edge to move.
    pub filled_time: Samples,
    /// Segments of this side cut to fit a window: below the MSS and at its edge.
    pub silly_segments: u64,
    /// Data beyond the other side's edge.
    pub exceeded: u64,
}

impl Window {
    /// Mean window.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.counted).unwrap_or(0)
    }
}

/// Data in flight, as observed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    /// Most bytes sent and not acknowledged.
    pub most: u64,
    /// tcptrace's outstanding window: from the ACK to the end of each segment, plus one;
    /// segments with SYN, RST, sent again or before observed data left out.
    pub owin: Owin,
    /// Times that everything sent was acknowledged.
    pub drained: u64,
    /// Bursts after an idle time: more than ten full-sized segments before the next ACK
    /// (RFC 5681 section 4.1 with the window of RFC 6928).
    pub idle_bursts: u64,
    /// Largest of them, in bytes.
    pub largest_burst: u64,
    /// Small segments held until everything before was acknowledged: Nagle's rule
    /// (RFC 9293 section 3.7.4) met a late ACK.
    pub nagle_stalls: u64,
    /// How long they were held.
    pub nagle_time: Samples,
}

/// tcptrace's "owin".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owin {
    /// Largest.
    pub largest: u64,
    /// Smallest but zero.
    pub smallest: u64,
    /// Sum over all.
    pub sum: u64,
    /// How many.
    pub count: u64,
    /// Each times its duration in nanoseconds, summed.
    pub time_weighted: u128,
}

/// When a side sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The first segment.
    pub first: Option<Timestamp>,
    /// The latest segment.
    pub last: Option<Timestamp>,
    /// The first segment with payload.
    pub first_data: Option<Timestamp>,
    /// The latest segment with payload.
    pub last_data: Option<Timestamp>,
    /// Longest time between two segments of this side.
    pub longest_silence: Duration,
    /// Times with nothing in flight and nothing sent for
    /// [`Options::idle`](super::Options::idle) or more, between data of this side.
    pub idle: Samples,
}

impl Timing {
    /// From the first to the latest segment with payload.
    #[must_use]
    pub fn data_time(&self) -> Option<Duration> {
        let nanos = self.last_data?.0.checked_sub(self.first_data?.0)?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}

/// ECN, RFC 3168.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ecn {
    /// Segments by the IP header's field: not capable, ECT(1), ECT(0), congestion
    /// experienced.
    pub codepoints: [u64; 4],
    /// Segments after the handshake with ECE.
    pub echoes: u64,
    /// Segments after the handshake with CWR.
    pub reduced: u64,
}

/// What was given up to keep memory bounded: figures that depend on it are lower bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Outstanding segments forgotten: their ACKs give no RTT.
    pub segments: u64,
    /// Ranges (gaps, SACKed, captured islands) forgotten.
    pub ranges: u64,
}
