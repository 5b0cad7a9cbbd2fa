// SPDX-License-Identifier: Apache-2.0
//! Why a difference is none of ours: the reviewed list, and rules for tcptrace's known ways.

use super::{Difference, micros};
use slowpath_trace::segment::{Flags, Segment};
use slowpath_trace::tcp::wireshark::Flag;
use slowpath_trace::tcp::{ConnectionReport, Event, Side};
use std::collections::HashMap;
use std::path::Path;

/// Reviewed differences: capture (the end of its path), tool, connection or `*`, what, frame, reason; tabs between.
const REVIEWED: &str = include_str!("explained.tsv");

/// The reviewed list.
pub struct Explained {
    entries: Vec<[&'static str; 6]>,
}

impl Explained {
    pub fn reviewed() -> Self {
        let entries = REVIEWED
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .filter_map(|line| {
                let fields: Vec<&'static str> = line.split('\t').collect();
                fields.try_into().ok()
            })
            .collect();
        Explained { entries }
    }

    /// Why it is known to be different.
    pub fn find(&self, capture: &Path, d: &Difference) -> Option<String> {
        if let Some(rule) = d.what.split_once(" [").map(|(_, rule)| rule) {
            return Some(format!("rule {}", rule.trim_end_matches(']')));
        }
        let frame = d.frame.to_string();
        let matches = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        self.entries
            .iter()
            .find(|[file, tool, connection, what, at, _]| {
                capture.ends_with(file)
                    && *tool == d.tool
                    && matches(connection, &d.connection)
                    && matches(what, &d.what)
                    && matches(at, &frame)
            })
            .map(|[.., reason]| (*reason).to_owned())
    }
}

/// tcptrace keeps a quarter of the sequence space before and after what it sees.
const QUADRANT: i64 = 1 << 30;

/// tcptrace ends a connection after this silence.
const TCPTRACE_SILENCE_NANOS: i64 = 240_000_000_000;

/// What of a direction makes tcptrace print something else.
#[derive(Clone, Debug, Default)]
struct Direction {
    /// The last frame whose RTT sample is below a microsecond, and the shortest sample after
    /// it, in microseconds.
    zero_rtt: Option<(u64, Option<i64>)>,
    /// A frame that repeats data within a microsecond, or before it by the clock.
    zero_interval: Option<u64>,
    /// When each sequence number was last sent, in microseconds.
    sent: HashMap<i64, i64>,
    /// The first frame with RST.
    reset: Option<u64>,
    /// A SYN with options after the end of options.
    after_end: Option<u64>,
    /// The first SYN.
    syn: Option<u64>,
    /// The first SYN that has another sequence number than the one before.
    other_syn: Option<u64>,
    syn_sequence: Option<u32>,
    /// Where the first FIN ends, and the first FIN that ends elsewhere.
    fin: Option<i64>,
    other_fin: Option<u64>,
    /// The first SYN-ACK, its sequence number, and whether another number came later.
    syn_ack: Option<(u64, u32)>,
    other_syn_ack: bool,
    /// The first segment a quarter of the sequence space ahead, and how far the others were.
    leap: Option<u64>,
    highest: Option<i64>,
    /// The first segment without SYN that has an option of SYNs.
    late_offer: Option<u64>,
}

/// Collected from the events of a connection.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    directions: [Direction; 2],
    last_time: Option<i64>,
    /// The first frame after four minutes of silence.
    pub silence: Option<u64>,
    /// The first segment with a time before that of the segment before it.
    clock_back: Option<u64>,
    /// The connection's first segment, if it is a SYN with ACK.
    syn_ack_first: Option<u64>,
    /// The first SYN that is not a plain one: another flag or data with it, and no ACK.
    pub odd_syn: Option<u64>,
}

impl Hints {
    pub fn event(&mut self, event: &Event<'_>, segment: &Segment<'_>) {
        let now = event.time.0;
        if (self.last_time).is_some_and(|last| now - last > TCPTRACE_SILENCE_NANOS) {
            self.silence = self.silence.or(Some(event.frame));
        }
        if self.last_time.is_some_and(|last| now < last) {
            self.clock_back = self.clock_back.or(Some(event.frame));
        }
        let syn_ack = event.flags.any(Flags::SYN) && event.flags.any(Flags::ACK);
        if self.last_time.is_none() && syn_ack {
            self.syn_ack_first = Some(event.frame);
        }
        self.last_time = Some(now);
        self.directions[event.side as usize].sent(event, segment);
        if event.flags.any(Flags::SYN) && event.flags.any(Flags::FIN | Flags::RST) {
            self.odd_syn = self.odd_syn.or(Some(event.frame));
        }
        if let Some(rtt) = event.rtt {
            let direction = &mut self.directions[event.side.peer() as usize];
            let rtt = i64::try_from(rtt.as_micros()).unwrap_or(i64::MAX);
            if rtt == 0 {
                direction.zero_rtt = Some((event.frame, None));
            } else if let Some((_, shortest)) = &mut direction.zero_rtt {
                *shortest = Some(shortest.map_or(rtt, |s: i64| s.min(rtt)));
            }
        }
    }

    /// The rule that says why tshark's flags of a frame differ, and the frame. `reused`: another
    /// connection of the capture had the 4-tuple before.
    pub fn tshark(
        &self,
        reused: bool,
        frame: u64,
        mine: &[Flag],
        theirs: &[Flag],
    ) -> Option<(&'static str, u64)> {
        let left = theirs.iter().filter(|f| **f != Flag::ReusedPorts);
        let twice = |d: &Direction| d.other_syn_ack && d.syn_ack.is_some_and(|s| s.0 == frame);
        if left.eq(mine) && self.directions.iter().any(twice) {
            return Some(("second-pass", frame));
        }
        self.syn_ack_first
            .filter(|_| reused)
            .map(|frame| ("syn-ack-on-reused-ports", frame))
    }

    /// The rule that predicts tcptrace's value, and the frame.
    pub fn tcptrace(
        &self,
        report: &ConnectionReport,
        side: Side,
        label: &str,
        ours: &str,
        theirs: &str,
    ) -> Option<(&'static str, u64)> {
        let direction = &self.directions[side as usize];
        let sent = report.sent_by(side);
        if let Some(frame) = direction.leap {
            return Some(("beyond-a-quadrant", frame));
        }
        match label {
            "throughput" if self.clock_back.is_some() => Some(("clock-back", self.clock_back?)),
            "unique bytes sent" | "throughput" | "missed data" | "ttl stream length"
                if direction.other_fin.is_some() =>
            {
                Some(("two-fins", direction.other_fin?))
            }
            "missed data" if theirs.parse::<u64>().is_ok_and(|n| n > i64::MAX as u64) => {
                Some(("less-than-none", report.first.frame))
            }
            "unique bytes sent" | "throughput" | "missed data" | "outoforder pkts"
            | "segs cum acked"
                if direction.other_syn.is_some() =>
            {
                Some(("two-syns", direction.other_syn?))
            }
            "resets sent" if theirs.parse() == Ok(sent.control.resets % 256) => {
                Some(("counter-of-a-byte", direction.reset?))
            }
            "RTT min" => {
                let (frame, shortest) = direction.zero_rtt?;
                let expected = shortest.unwrap_or(0) as f64 / 1e3;
                let theirs = theirs.parse::<f64>().ok()?;
                ((theirs - expected).abs() <= 0.0521).then_some(("minimum-after-zero", frame))
            }
            "RTT min (last)" | "min retr time" if ours == "0.000" => {
                Some(("minimum-after-zero", direction.zero_interval?))
            }
            "mss requested"
                if sent
                    .offered
                    .mss
                    .is_some_and(|mss| theirs.parse() == Ok(signed(mss)) || mss == 0xffff) =>
            {
                Some(("signed-mss", direction.syn?))
            }
            "mss requested" | "req sack" | "adv wind scale" => direction
                .after_end
                .map(|frame| ("options-after-end", frame))
                .or(direction
                    .late_offer
                    .map(|frame| ("option-without-syn", frame))),
            "ttl stream length" | "missed data" => Some(("reset-after-fin", direction.reset?)),
            "avg win adv" => {
                let w = sent.window;
                let with_resets = w.sum.checked_div(w.counted + sent.control.resets)?;
                if theirs.parse() == Ok(with_resets) {
                    return Some(("reset-in-mean", direction.reset?));
                }
                let of_all = w.sum.checked_div(sent.packets)?;
                (theirs.parse() == Ok(of_all)).then_some(("syn-in-mean", direction.syn?))
            }
            _ => None,
        }
    }
}

/// tcptrace takes the MSS for a signed number of 16 bits and prints it as one of 32; -1
/// means "none" to it.
fn signed(mss: u16) -> u32 {
    i32::from(mss as i16) as u32
}

impl Direction {
    fn sent(&mut self, event: &Event<'_>, segment: &Segment<'_>) {
        if event.end > event.sequence {
            let now = micros(event.time);
            let before = self.sent.insert(event.sequence, now);
            if before.is_some_and(|before| before >= now) {
                self.zero_interval = self.zero_interval.or(Some(event.frame));
            }
        }
        let highest = *self.highest.get_or_insert(event.end);
        if event.end - highest >= QUADRANT {
            self.leap = self.leap.or(Some(event.frame));
        }
        self.highest = Some(highest.max(event.end));
        if event.flags.any(Flags::RST) {
            self.reset = self.reset.or(Some(event.frame));
        }
        if event.flags.any(Flags::FIN) && *self.fin.get_or_insert(event.end) != event.end {
            self.other_fin = self.other_fin.or(Some(event.frame));
        }
        if event.flags.any(Flags::SYN) && event.flags.any(Flags::ACK) {
            let (_, first) = *self.syn_ack.get_or_insert((event.frame, segment.sequence));
            self.other_syn_ack |= segment.sequence != first;
        }
        if event.flags.any(Flags::SYN) {
            self.syn = self.syn.or(Some(event.frame));
            let before = self.syn_sequence.replace(segment.sequence);
            if before.is_some_and(|before| before != segment.sequence) {
                self.other_syn = self.other_syn.or(Some(event.frame));
            }
            if after_end(segment.options) {
                self.after_end = self.after_end.or(Some(event.frame));
            }
        }
        if !event.flags.any(Flags::SYN) && offers(segment.options) {
            self.late_offer = self.late_offer.or(Some(event.frame));
        }
    }
}

/// The options one by one: kind and what follows.
fn walk(mut options: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, rest) = options.split_first()?;
        options = match (*kind, rest) {
            (0, _) => &[],
            (1, rest) => rest,
            (_, [length, ..]) => options.get(usize::from(*length).max(2)..).unwrap_or(&[]),
            _ => &[],
        };
        Some((*kind, rest))
    })
}

/// Whether anything but zeros follows the end of options (kind 0).
fn after_end(options: &[u8]) -> bool {
    walk(options).any(|(kind, rest)| kind == 0 && rest.iter().any(|b| *b != 0))
}

/// Whether not all of them were captured: a header is a multiple of four bytes, and an option as long
/// as it says.
pub fn are_cut(options: &[u8]) -> bool {
    let longer = |(kind, rest): (u8, &[u8])| {
        let length = rest.first().map_or(2, |length| usize::from(*length));
        kind > 1 && length > rest.len() + 1
    };
    !options.len().is_multiple_of(4) || walk(options).any(longer)
}

/// Whether there is an MSS, a window scale or SACK permitted (kinds 2 to 4).
fn offers(options: &[u8]) -> bool {
    walk(options).any(|(kind, _)| (2..=4).contains(&kind))
}
