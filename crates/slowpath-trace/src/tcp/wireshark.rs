// SPDX-License-Identifier: Apache-2.0
//! Wireshark's `tcp.analysis` flags, by the rules of its User's Guide ("TCP Analysis",
//! section 7.5) as tshark 4.0 applies them: a second opinion, kept beside our own so that
//! the two can be compared frame by frame (`make check-trace`). docs/reference/trace.md says where
//! ours differ and why.
//!
//! The rules compare raw 32-bit numbers and know little more of a direction than its last
//! segment. Two of tshark's habits are kept on purpose: the acknowledgement number is
//! remembered from segments without ACK too, and zero means "none yet". Left out: its
//! exception for MPTCP's duplicate ACKs.

use super::options::Parsed;
use crate::segment::{Flags as TcpFlags, Segment};

/// How many flags there are.
pub const FLAGS: usize = Flag::ALL.len();

macro_rules! flags {
    ($($(#[$doc:meta])* $flag:ident = $name:literal,)*) => {
        /// One of tshark's fields below `tcp.analysis`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Flag {
            $($(#[$doc])* $flag,)*
        }

        impl Flag {
            /// All of them.
            pub const ALL: [Flag; [$($name),*].len()] = [$(Flag::$flag),*];

            /// The field's name after `tcp.analysis.`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Flag::$flag => $name,)*
                }
            }
        }
    };
}

flags! {
    /// Sent again; stands with the fast and the spurious ones too.
    Retransmission = "retransmission",
    /// At least two duplicate ACKs asked for it less than 20 ms ago.
    FastRetransmission = "fast_retransmission",
    /// Acknowledged already.
    SpuriousRetransmission = "spurious_retransmission",
    /// A retransmission that tshark gives a waiting time.
    Rto = "rto",
    /// Behind the highest number, soon after it.
    OutOfOrder = "out_of_order",
    /// Starts after a gap.
    LostSegment = "lost_segment",
    /// Acknowledges what was not observed.
    AckLostSegment = "ack_lost_segment",
    /// Same numbers, same window, no data.
    DuplicateAck = "duplicate_ack",
    /// Same numbers, another window, no data.
    WindowUpdate = "window_update",
    /// Ends at the other side's window edge.
    WindowFull = "window_full",
    /// A window of zero.
    ZeroWindow = "zero_window",
    /// One byte into a window of zero.
    ZeroWindowProbe = "zero_window_probe",
    /// The answer to it.
    ZeroWindowProbeAck = "zero_window_probe_ack",
    /// No or one byte before the next number.
    KeepAlive = "keep_alive",
    /// The answer to it.
    KeepAliveAck = "keep_alive_ack",
    /// A SYN with another number than the one before on the 4-tuple.
    ReusedPorts = "reused_ports",
    /// A SYN with a fast open cookie.
    TfoSyn = "tfo_syn",
    /// A SYN-ACK that acknowledges the SYN's data.
    TfoAck = "tfo_ack",
    /// A SYN-ACK that does not.
    TfoIgnored = "tfo_ignored",
}

/// A set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u32);

impl Flags {
    /// The set of one.
    const fn of(flag: Flag) -> u32 {
        1 << flag as u8
    }

    /// Whether `flag` is in it.
    #[must_use]
    pub const fn contains(self, flag: Flag) -> bool {
        self.0 & Self::of(flag) != 0
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its members, in the order of [`Flag::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL.into_iter().filter(move |f| self.contains(*f))
    }

    /// Adds one to each member's counter.
    #[inline]
    pub(super) fn count(self, counters: &mut [u64; FLAGS]) {
        let mut rest = self.0;
        while rest != 0 {
            counters[rest.trailing_zeros() as usize] += 1;
            rest &= rest - 1;
        }
    }

    fn set(&mut self, flag: Flag) {
        self.0 |= Self::of(flag);
    }
}

/// A TCP header without options.
const HEADER: u32 = 20;

/// An IPv4 header without options.
const IPV4: u32 = 20;

/// It and an Ethernet header.
const ETHERNET_IPV4: u32 = 34;

/// A fast retransmission follows the last duplicate ACK within 20 ms.
const FAST_NANOS: u64 = 20_000_000;

/// Without a first RTT, what is later than 3 ms is not out of order.
const REORDER_NANOS: u64 = 3_000_000;

/// A loss was reported in place of duplicate ACKs.
const REPORTED: u32 = u32::MAX;

/// Window scale not known: no SYN observed.
const SCALE_UNKNOWN: i8 = -1;
/// Window scale not used.
const SCALE_OFF: i8 = -2;

/// What the rules know of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Highest number after a segment; 0: none.
    next: u32,
    /// Highest number without a gap; 0: none.
    ackable: u32,
    /// Acknowledgement number of the last segment.
    last_ack: u32,
    /// Window of the last segment, not scaled.
    window: u32,
    next_time: i64,
    last_time: i64,
    /// Duplicate ACKs in a row; [`REPORTED`] after a loss was just reported, which is a large
    /// number to the rule for fast retransmissions, as in tshark.
    duplicates: u32,
    last_flags: Flags,
    base: Option<u32>,
    scale: i8,
    first_ack: bool,
}

impl Default for Flow {
    fn default() -> Self {
        Flow {
            next: 0,
            ackable: 0,
            last_ack: 0,
            window: u32::MAX,
            next_time: 0,
            last_time: 0,
            duplicates: 0,
            last_flags: Flags(0),
            base: None,
            scale: SCALE_UNKNOWN,
            first_ack: false,
        }
    }
}

impl Flow {
    /// The sequence number that a SYN has to repeat to belong to the same connection.
    pub(super) fn base(&self) -> Option<u32> {
        self.base
    }
}

/// What the rules know of the connection as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    syn_time: i64,
    first_rtt: i64,
    fast_open_data: bool,
    on_ethernet: bool,
}

/// A connection as the rules know it when a segment passes: `fwd` is the direction that the
/// segment travels in.
pub(super) struct Directions<'a> {
    pub fwd: &'a mut Flow,
    pub rev: &'a mut Flow,
    pub shared: &'a mut Shared,
}

fn greater(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// Nanoseconds from `earlier` to `now` as tshark computes them: negative ones are huge.
fn since(now: i64, earlier: i64) -> u64 {
    now.wrapping_sub(earlier) as u64
}

/// The payload's length as tshark sees it: where the record says that the frame was shorter on
/// the wire than by its IP header, it believes the record.
#[inline]
fn believed_length(s: &Segment<'_>, on_ethernet: bool) -> u32 {
    let captured = s.captured;
    if captured >= s.length {
        return s.length;
    }
    if on_ethernet {
        let headers = ETHERNET_IPV4 + HEADER + s.options.len() as u32;
        s.length
            .min(s.wire_length.saturating_sub(headers).max(captured))
    } else if s.length.saturating_add(IPV4 + HEADER) > s.wire_length {
        captured
    } else {
        s.length
    }
}

/// Whether the frame of a SYN shows that there are Ethernet and IPv4 headers and nothing
/// else before TCP's. Padded ones, to 60 bytes or 64 with the checksum, show nothing.
fn is_on_ethernet(s: &Segment<'_>) -> bool {
    let rest = s.length.saturating_add(HEADER + s.options.len() as u32);
    !matches!(s.wire_length, 60 | 64) && s.wire_length.saturating_sub(rest) == ETHERNET_IPV4
}

/// The flags of one segment. `sent_before`: whether something outstanding of its direction was
/// sent at another time, if anything is outstanding. `reused`: it opens a connection on the
/// 4-tuple of another.
#[inline]
pub(super) fn segment(
    s: &Segment<'_>,
    options: &Parsed,
    connection: Directions<'_>,
    sent_before: impl FnOnce() -> Option<bool>,
    reused: bool,
) -> Flags {
    let Directions { fwd, rev, shared } = connection;
    let mut flags = Flags(0);
    let tcp = s.flags;
    if tcp.any(TcpFlags::SYN) {
        shared.on_ethernet |= is_on_ethernet(s);
    }
    let length = believed_length(s, shared.on_ethernet);
    if tcp.any(TcpFlags::SYN) {
        before_syn(s, fwd, reused, &mut flags);
    }
    if fwd.base.is_none() {
        let syn = u32::from(!tcp.any(TcpFlags::SYN));
        fwd.base = Some(s.sequence.wrapping_sub(syn));
    }
    if rev.base.is_none() && tcp.any(TcpFlags::ACK) {
        rev.base = Some(s.acknowledgement.wrapping_sub(1));
    }
    forward(s, length, fwd, rev, &mut flags);
    repeated(
        s,
        length,
        &Directions { fwd, rev, shared },
        sent_before,
        &mut flags,
    );
    advance(s, length, fwd, flags);
    after(s, options, fwd, rev, shared, &mut flags);
    flags
}

/// A repeated SYN takes back what a reset with a stray number did to the next number; a
/// SYN-ACK with another number is reported.
fn before_syn(s: &Segment<'_>, fwd: &mut Flow, reused: bool, flags: &mut Flags) {
    if !s.flags.any(TcpFlags::ACK) {
        if reused {
            flags.set(Flag::ReusedPorts);
        } else if fwd.base == Some(s.sequence) {
            fwd.next = fwd.ackable;
        }
    } else if fwd.base.is_some_and(|base| base != s.sequence) {
        fwd.base = Some(s.sequence);
        flags.set(Flag::ReusedPorts);
    }
}

/// The rules that look at windows, probes and ACKs, in tshark's order.
#[inline]
fn forward(s: &Segment<'_>, length: u32, fwd: &mut Flow, rev: &mut Flow, flags: &mut Flags) {
    let (seq, ack) = (s.sequence, s.acknowledgement);
    let window = u32::from(s.window);
    let plain = !s.flags.any(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST);
    let expected = seq == fwd.next;
    'windows: {
        if length == 1 && expected && rev.window == 0 {
            flags.set(Flag::ZeroWindowProbe);
            break 'windows;
        }
        if window == 0 && plain {
            flags.set(Flag::ZeroWindow);
        }
        if fwd.next != 0 && greater(seq, fwd.next) && !s.flags.any(TcpFlags::RST) {
            flags.set(Flag::LostSegment);
        }
        if length <= 1 && seq == fwd.next.wrapping_sub(1) && plain {
            flags.set(Flag::KeepAlive);
        }
        if length > 0 {
            let shift = if rev.first_ack { 0 } else { rev.scale.max(0) };
            let edge = rev
                .last_ack
                .wrapping_add(rev.window.wrapping_shl(u32::from(shift as u8)));
            if plain && rev.scale != SCALE_UNKNOWN && seq.wrapping_add(length) == edge {
                flags.set(Flag::WindowFull);
            }
            break 'windows;
        }
        if !(expected && ack == fwd.last_ack && plain) {
            break 'windows;
        }
        if window != fwd.window {
            if window != 0 {
                flags.set(Flag::WindowUpdate);
            }
        } else if window != 0 {
            if rev.last_flags.contains(Flag::KeepAlive) {
                flags.set(Flag::KeepAliveAck);
            } else {
                fwd.duplicates = match fwd.duplicates {
                    REPORTED => 1,
                    n => (n + 1).min(REPORTED - 1),
                };
                flags.set(Flag::DuplicateAck);
            }
        } else if rev.last_flags.contains(Flag::ZeroWindowProbe) {
            flags.set(Flag::ZeroWindowProbeAck);
        }
    }
    if ack != fwd.last_ack {
        fwd.duplicates = 0;
    }
    if rev.ackable != 0 && s.flags.any(TcpFlags::ACK) && greater(ack, rev.ackable) {
        if greater(rev.next, rev.ackable) {
            rev.ackable = rev.next;
            flags.set(Flag::AckLostSegment);
        } else {
            if rev.duplicates == 0 {
                flags.set(Flag::AckLostSegment);
            }
            rev.duplicates = REPORTED;
        }
    }
}

/// The rules about data sent again.
#[inline]
fn repeated(
    s: &Segment<'_>,
    length: u32,
    connection: &Directions<'_>,
    sent_before: impl FnOnce() -> Option<bool>,
    flags: &mut Flags,
) {
    let Directions { fwd, rev, shared } = connection;
    let now = s.time.0;
    let seq = s.sequence;
    let counted = counted(s);
    let end = seq.wrapping_add(length).wrapping_add(counted);
    if (length > 0 || counted > 0) && !flags.contains(Flag::KeepAlive) {
        let mut behind = fwd.next != 0 && greater(fwd.next, seq);
        if length > 1 && fwd.next.wrapping_sub(1) == seq {
            // Perhaps after a probe's byte.
            behind = false;
        }
        let reorder = match shared.first_rtt {
            0 => REORDER_NANOS,
            rtt => rtt as u64,
        };
        if length > 0 && rev.last_ack != 0 && !greater(seq.wrapping_add(length), rev.last_ack) {
            flags.set(Flag::SpuriousRetransmission);
            flags.set(Flag::Retransmission);
        } else if behind {
            if rev.duplicates >= 2 && rev.last_ack == seq && since(now, rev.last_time) < FAST_NANOS
            {
                flags.set(Flag::FastRetransmission);
                flags.set(Flag::Retransmission);
            } else if since(now, fwd.next_time) < reorder && fwd.next != end {
                flags.set(Flag::OutOfOrder);
            } else {
                flags.set(Flag::Retransmission);
                if sent_before().unwrap_or(now != fwd.next_time) {
                    flags.set(Flag::Rto);
                }
            }
        }
    }
}

/// A SYN or FIN counts as one byte; one with both as well.
fn counted(s: &Segment<'_>) -> u32 {
    u32::from(s.flags.any(TcpFlags::SYN | TcpFlags::FIN))
}

/// The bookkeeping of numbers.
#[inline]
fn advance(s: &Segment<'_>, length: u32, fwd: &mut Flow, flags: Flags) {
    let now = s.time.0;
    let seq = s.sequence;
    let end = seq.wrapping_add(length).wrapping_add(counted(s));
    if !flags.contains(Flag::ZeroWindowProbe) {
        if fwd.next == 0 || greater(end, fwd.next) {
            fwd.next = end;
            fwd.next_time = now;
        }
        if fwd.ackable == 0 || seq == fwd.ackable {
            fwd.ackable = fwd.next;
        }
    }
    fwd.window = u32::from(s.window);
    fwd.last_ack = s.acknowledgement;
    fwd.last_time = now;
    fwd.last_flags = flags;
}

/// What tshark does after the analysis: options, the first RTT, fast open.
#[inline]
fn after(
    s: &Segment<'_>,
    options: &Parsed,
    fwd: &mut Flow,
    rev: &mut Flow,
    shared: &mut Shared,
    flags: &mut Flags,
) {
    let acks = s.flags.any(TcpFlags::ACK);
    if !s.flags.any(TcpFlags::SYN) {
        if acks {
            if shared.syn_time != 0 && shared.first_rtt == 0 {
                shared.first_rtt = s.time.0.wrapping_sub(shared.syn_time);
            }
            fwd.first_ack = false;
        }
        if let Some(scale) = options.window_scale {
            fwd.scale = scale.min(14) as i8;
        }
        return;
    }
    if let Some(scale) = options.window_scale {
        fwd.scale = scale.min(14) as i8;
    }
    fwd.first_ack = true;
    if acks {
        if rev
            .base
            .is_some_and(|b| s.acknowledgement.wrapping_sub(b) > 1)
        {
            flags.set(Flag::TfoAck);
        } else if shared.fast_open_data {
            flags.set(Flag::TfoIgnored);
        }
    } else {
        shared.syn_time = s.time.0;
        if options.fast_open_cookie {
            flags.set(Flag::TfoSyn);
            shared.fast_open_data |= s.length > 0;
        }
    }
    if fwd.scale == SCALE_UNKNOWN {
        fwd.scale = SCALE_OFF;
        rev.scale = SCALE_OFF;
    } else if acks && rev.scale == SCALE_OFF {
        fwd.scale = SCALE_OFF;
    }
}
