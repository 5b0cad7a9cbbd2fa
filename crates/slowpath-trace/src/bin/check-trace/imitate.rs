// SPDX-License-Identifier: Apache-2.0
//! What the other tools make of a connection's segments by ways of their own, computed again:
//! a difference that comes out as theirs does is theirs.

use super::{Analysed, explain, micros};
use slowpath_trace::segment::{Endpoint, Flags, Segment};
use slowpath_trace::tcp::Side;
use slowpath_trace::tcp::wireshark::Flag;
use std::net::IpAddr;

/// A rule's name, and the frame that shows it.
pub type Rule = (&'static str, u64);

/// tcptrace ends a connection after this silence, in microseconds.
const SILENCE: i64 = 240_000_000;

/// tshark remembers as many segments of a direction.
const UNACKNOWLEDGED: usize = 10_000;

/// RFC 7323 section 2.3.
const MOST_SCALE: u8 = 14;

/// Ethernet's, IPv6's and TCP's headers.
const IPV6_HEADERS: u32 = 14 + 40 + 20;

/// Ethernet's, IPv4's and TCP's, and the latter two without options.
const IPV4_HEADERS: u32 = 14 + HEADERS;
const HEADERS: u32 = 20 + 20;

/// Longer ones are none: the record's length is no frame's.
const MOST_HEADERS: u32 = 256;

/// One segment.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    pub frame: u64,
    /// Microseconds.
    pub time: i64,
    pub from: Endpoint,
    pub flags: Flags,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub window: u16,
    pub length: u32,
    pub captured: u32,
    pub wire_length: u32,
    pub ip_id: Option<u16>,
    /// Bytes of IPv6 extension headers.
    pub extensions: u32,
    /// Bytes of TCP options.
    pub options: u32,
    /// Not all of the options were captured.
    pub options_cut: bool,
}

impl Passed {
    pub fn new(s: &Segment<'_>) -> Self {
        let headers = IPV6_HEADERS + s.options.len() as u32;
        let extensions = match s.source.address {
            IpAddr::V6(_) => s
                .wire_length
                .saturating_sub(headers.saturating_add(s.length)),
            IpAddr::V4(_) => 0,
        };
        Passed {
            frame: s.frame,
            time: micros(s.time),
            from: s.source,
            flags: s.flags,
            sequence: s.sequence,
            acknowledgement: s.acknowledgement,
            window: s.window,
            length: s.length,
            captured: s.captured,
            wire_length: s.wire_length,
            ip_id: s.ip_id,
            options: s.options.len() as u32,
            options_cut: explain::are_cut(s.options),
            // Their length is in units of eight (RFC 8200 section 4).
            extensions: if extensions.is_multiple_of(8) {
                extensions
            } else {
                0
            },
        }
    }

    fn is(&self, flag: u16) -> bool {
        self.flags.any(flag)
    }

    /// One past its last number.
    fn end(&self) -> u32 {
        let counted = u32::from(self.is(Flags::SYN)) + u32::from(self.is(Flags::FIN));
        self.sequence
            .wrapping_add(self.length)
            .wrapping_add(counted)
    }
}

fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// What tcptrace knows of one side when a SYN comes, and what was sent.
#[derive(Clone, Copy, Debug, Default)]
struct SideState {
    syn: u32,
    syns: u32,
    fins: u32,
    resets: u32,
    window_end: u32,
    /// The highest number sent.
    next: Option<u32>,
}

/// Why tcptrace has another number of connections on one 4-tuple: its rules give the number that
/// it prints, and each connection that only one of us has begins at a frame where ours is right. `ours`: first
/// frames of ours; `shift`: window scales by sender.
pub fn connections(
    passed: &[Passed],
    ours: &[u64],
    theirs: usize,
    shift: impl Fn(&Endpoint) -> u32,
) -> Option<Rule> {
    let mut sides = [SideState::default(); 2];
    let low = passed.iter().map(|p| p.from).min()?;
    let mut begun = 0;
    let mut last = None;
    let mut rule = None;
    for p in passed {
        let index = usize::from(p.from == low);
        let (this, other) = (sides[index], sides[1 - index]);
        let syn = p.is(Flags::SYN);
        let silent = last.is_some_and(|last| p.time - last > SILENCE);
        let over = sides.iter().any(|s| s.fins > 0 || s.resets > 0);
        let outside = after(p.sequence, other.window_end) || after(this.syn, p.sequence);
        let changed = this.syns > 1 && this.syn != p.sequence;
        let begins = last.is_none() || silent || syn && (over && outside || changed);
        let beyond = this.next.is_some_and(|next| after(p.sequence, next));
        let again = this.syns > 0 && this.syn == p.sequence;
        let answer = p.is(Flags::ACK)
            && this.syns == 0
            && other.syns > 0
            && other.syn.wrapping_add(1) == p.acknowledgement;
        match (begins, ours.contains(&p.frame)) {
            (true, false) if silent => rule = rule.or(Some(("four-minutes", p.frame))),
            (true, false) if syn && (again || answer) => {
                rule = rule.or(Some(("syn-after-reset", p.frame)));
            }
            (false, true) if syn && over && beyond => {
                rule = rule.or(Some(("syn-in-window", p.frame)));
            }
            (true, true) | (false, false) => {}
            _ => return None,
        }
        if begins {
            begun += 1;
            sides = [SideState::default(); 2];
        }
        last = Some(p.time);
        let this = &mut sides[index];
        if syn {
            this.syns += 1;
            this.syn = p.sequence;
        }
        this.fins += u32::from(p.is(Flags::FIN));
        this.resets += u32::from(p.is(Flags::RST));
        if p.is(Flags::ACK) {
            let shift = if syn { 0 } else { shift(&p.from) };
            let window = u32::from(p.window) << shift;
            this.window_end = p.acknowledgement.wrapping_add(window);
        }
        if this.next.is_none_or(|next| after(p.end(), next)) {
            this.next = Some(p.end());
        }
    }
    rule.filter(|_| begun == theirs)
}

/// A row that tcptrace computes in a way of its own, and what it then is.
pub fn row(
    observed: &Analysed,
    side: Side,
    label: &str,
    (ours, theirs): (&str, &str),
    snap_length: Option<u32>,
) -> Option<Rule> {
    let from = observed.report.endpoint(side);
    let sent = || observed.passed.iter().filter(|p| p.from == from);
    let ends_at_zero = sent().find(|p| p.end() == 0 && p.sequence != 0);
    match label {
        _ if ends_at_zero.is_some() && (label.starts_with("RTT") || label == "segs cum acked") => {
            let samples = observed.report.sent_by(side).rtt.acked.count();
            let right = match label {
                "RTT samples" => theirs.parse() == Ok(samples.wrapping_sub(1)),
                "segs cum acked" => theirs.parse() == ours.parse::<u64>().map(|n| n + 1),
                _ => samples == 1 && theirs == "0.0",
            };
            right.then_some(("number-zero", ends_at_zero?.frame))
        }
        "hardware dups" => {
            let (count, frame) = same_identification(sent());
            (theirs.parse() == Ok(count)).then_some(("same-id-other-frame", frame))
        }
        "truncated data" | "truncated packets" => {
            let snap = snap_length?;
            let cut = |p: &Passed| {
                let captured = p.captured.min(p.length);
                let headers = match p.wire_length.checked_sub(p.length) {
                    Some(headers) if (HEADERS..MOST_HEADERS).contains(&headers) => headers,
                    _ => IPV4_HEADERS + p.options,
                };
                let over = (headers + captured).saturating_sub(snap).min(captured);
                u64::from(p.length - captured + over)
            };
            let shows = sent().find(|p| cut(p) > u64::from(p.length.saturating_sub(p.captured)))?;
            let expected: u64 = if label == "truncated data" {
                sent().map(cut).sum()
            } else {
                sent().map(|p| u64::from(cut(p) > 0)).sum()
            };
            (theirs.parse() == Ok(expected)).then_some(("snap-length", shows.frame))
        }
        "throughput" => {
            let first = observed.passed.first().filter(|p| p.time == 0)?;
            let from = observed
                .passed
                .iter()
                .find(|p| p.time != 0)
                .map_or(0, |p| p.time);
            let elapsed = (micros(observed.report.last.time) - from) as f64 / 1e6;
            let rate = observed.report.sent_by(side).data.unique_bytes as f64 / elapsed;
            let equal = match theirs.parse::<f64>() {
                Ok(theirs) => (theirs - rate).abs() <= 0.5 + rate * 1e-5,
                Err(_) => elapsed < 1e-6,
            };
            equal.then_some(("time-zero", first.frame))
        }
        "adv wind scale" | "max win adv" | "min win adv" | "avg win adv" => {
            scale_above(observed, side, label, ours, theirs)
        }
        "segs cum acked" | "avg retr time" | "sdv retr time" => {
            let over = |p: &&Passed| p.length > 0 && p.sequence > p.end() && p.end() != 0;
            let first = sent().find(over)?;
            let segments = sent().filter(over).count() as u64;
            let right = match (ours.parse::<u64>(), theirs.parse::<u64>()) {
                (Ok(ours), Ok(theirs)) => theirs > ours && theirs - ours <= segments,
                // The interval of its two halves counts twice.
                _ => segments > 1 && label != "segs cum acked",
            };
            right.then_some(("wrap-in-segment", first.frame))
        }
        "ttl stream length" | "missed data" => {
            let theirs: u64 = theirs.parse().ok()?;
            let negative = u32::try_from(theirs).is_ok_and(|n| (n as i32) < 0);
            negative.then_some(("less-than-none", observed.report.first.frame))
        }
        _ => None,
    }
}

/// How often tcptrace finds identification and sequence number among those of eight frames
/// before, and the last time.
fn same_identification<'a>(sent: impl Iterator<Item = &'a Passed>) -> (u64, u64) {
    let mut frames = [(0, 0); 8];
    let mut next = 0;
    let (mut count, mut shows) = (0, 0);
    for p in sent {
        let Some(id) = p.ip_id else { continue };
        let this = (p.sequence, id);
        if p.sequence != 0 && id != 0 && frames.contains(&this) {
            count += 1;
            shows = p.frame;
        } else {
            frames[next % frames.len()] = this;
            next += 1;
        }
    }
    (count, shows)
}

/// tcptrace shifts by more than 14 bits, and takes a scale of 255 for none.
fn scale_above(
    observed: &Analysed,
    side: Side,
    label: &str,
    ours: &str,
    theirs: &str,
) -> Option<Rule> {
    let offer = |side| observed.report.sent_by(side).offered.window_scale;
    let (this, other) = (offer(side)?, offer(side.peer())?);
    let shows = ("scale-above-14", observed.report.first.frame);
    if this == u8::MAX || other == u8::MAX {
        let ours: u64 = ours.parse().ok()?;
        let raw = sent_windows(observed, side);
        let right = match label {
            "max win adv" => theirs.parse() == Ok(*raw.iter().max()?),
            "min win adv" => theirs.parse() == Ok(*raw.iter().filter(|w| **w > 0).min()?),
            "avg win adv" => theirs.parse() == Ok(raw.iter().sum::<u64>() / raw.len() as u64),
            _ => theirs == "0" && ours > 0,
        };
        return right.then_some(shows);
    }
    if this <= MOST_SCALE || label == "adv wind scale" {
        return None;
    }
    let window = observed.report.sent_by(side).window;
    let raw = |scaled: u64| u128::from(scaled >> MOST_SCALE) << (this & 63);
    let right = match label {
        "avg win adv" => {
            let sum = raw(window.sum);
            let theirs: u128 = theirs.parse().ok()?;
            sum.checked_div(u128::from(window.counted)) == Some(theirs)
        }
        _ => theirs.parse() == Ok(raw(ours.parse().ok()?)),
    };
    right.then_some(shows)
}

/// The windows as they stand in the segments.
fn sent_windows(observed: &Analysed, side: Side) -> Vec<u64> {
    let from = observed.report.endpoint(side);
    (observed.passed.iter())
        .filter(|p| p.from == from && p.is(Flags::SYN | Flags::ACK) && !p.is(Flags::RST))
        .map(|p| u64::from(p.window))
        .collect()
}

/// tcptrace takes IPv6's extension headers for payload, and a jumbogram's for none; or it takes the
/// first extension header for TCP's and so loses the frame. `theirs`: payload and packets.
pub fn lengths(observed: &Analysed, side: Side, theirs: [Option<u64>; 2]) -> Option<Rule> {
    let from = observed.report.endpoint(side);
    let sent = || observed.passed.iter().filter(|p| p.from == from);
    let ours = observed.report.sent_by(side);
    let [bytes, packets] = theirs;
    let bytes = bytes?;
    let is_v6 = matches!(from.address, IpAddr::V6(_));
    let jumbo = sent().find(|p| is_v6 && p.length > u32::from(u16::MAX) - 60);
    if let Some(jumbo) = jumbo {
        let rest: u64 = (sent().filter(|p| p.frame != jumbo.frame))
            .map(|p| u64::from(p.length))
            .sum();
        return (bytes == rest).then_some(("jumbogram", jumbo.frame));
    }
    let extended = || sent().filter(|p| p.extensions > 0);
    let shows = extended().next()?;
    let extensions: u64 = extended().map(|p| u64::from(p.extensions)).sum();
    let carried: u64 = extended().map(|p| u64::from(p.length)).sum();
    let without = Some(ours.packets - extended().count() as u64);
    let right = bytes == ours.data.bytes + extensions
        || packets == without && bytes == ours.data.bytes - carried;
    right.then_some(("ipv6-extensions", shows.frame))
}

/// A connection that tcptrace reads out of an extension header between two addresses.
pub fn out_of_extensions(observed: &[Analysed], ends: [IpAddr; 2]) -> Option<Rule> {
    let between = |s: &&Analysed| {
        let both = [s.report.client.address, s.report.server.address];
        ends.iter().all(|end| both.contains(end))
    };
    let passed = observed.iter().filter(between).flat_map(|s| &s.passed);
    let shows = passed
        .filter(|p| p.extensions > 0)
        .min_by_key(|p| p.frame)?;
    Some(("ipv6-extensions", shows.frame))
}

/// Why tshark's flags of a frame differ. `tuple`: all segments on the 4-tuple.
pub fn flags(tuple: &[Passed], frame: u64, mine: &[Flag], theirs: &[Flag]) -> Option<Rule> {
    let added: Vec<Flag> = (theirs.iter().copied())
        .filter(|f| !mine.contains(f))
        .collect();
    let all_kept = mine.iter().all(|f| theirs.contains(f));
    let at = tuple.iter().position(|p| p.frame == frame)?;
    let p = &tuple[at];
    if theirs.is_empty() && p.options_cut {
        return Some(("options-cut", frame));
    }
    if all_kept && p.is(Flags::SYN) && p.is(Flags::ACK) {
        // Until tshark's next connection.
        let rest = tuple[at + 1..]
            .iter()
            .take_while(|q| !q.is(Flags::SYN) || q.is(Flags::ACK));
        let syn_acks = rest.filter(|q| q.is(Flags::SYN));
        let last = |here: bool| syn_acks.filter(|q| (q.from == p.from) == here).last();
        let other = match added[..] {
            [Flag::ReusedPorts] => last(true).is_some_and(|q| q.sequence != p.sequence),
            [Flag::TfoAck] => {
                last(false).is_some_and(|q| p.acknowledgement.wrapping_sub(q.sequence) > 1)
            }
            _ => false,
        };
        if other {
            return Some(("second-pass", frame));
        }
    }
    match (mine, added.as_slice(), all_kept) {
        ([], [Flag::AckLostSegment], _) => forgotten(&tuple[..=at]),
        (_, [Flag::Rto], true) => partly_acknowledged(&tuple[..=at]),
        _ => None,
    }
}

/// The segments that wait for their ACKs, as tshark remembers them: what is partly acknowledged
/// is one of them.
fn waiting(before: &[Passed], from: Endpoint) -> Vec<Passed> {
    let mut waiting: Vec<Passed> = Vec::new();
    for p in before {
        if p.from != from {
            waiting.retain(|q| after(q.end(), p.acknowledgement));
        } else if p.end() != p.sequence && waiting.len() < UNACKNOWLEDGED {
            waiting.push(*p);
        }
    }
    waiting
}

/// tshark gives a waiting time if the oldest that waits was sent at another time, and what is partly
/// acknowledged waits.
fn partly_acknowledged(tuple: &[Passed]) -> Option<Rule> {
    let (again, before) = tuple.split_last()?;
    let oldest = *waiting(before, again.from).first()?;
    let partly = before.iter().any(|p| {
        let beyond = after(p.acknowledgement, oldest.sequence);
        p.from != again.from && beyond && after(oldest.end(), p.acknowledgement)
    });
    (partly && oldest.time != again.time).then_some(("partly-acknowledged", oldest.frame))
}

/// tshark forgets that SYN and FIN are numbers while as many segments as it remembers wait for
/// their ACKs.
fn forgotten(tuple: &[Passed]) -> Option<Rule> {
    let (ack, before) = tuple.split_last()?;
    let shows = |p: &Passed| {
        p.from != ack.from && p.is(Flags::SYN | Flags::FIN) && p.end() == ack.acknowledgement
    };
    let at = before.iter().rposition(shows)?;
    let full = waiting(&before[..at], before[at].from).len() >= UNACKNOWLEDGED;
    full.then_some(("ten-thousand", before[at].frame))
}
