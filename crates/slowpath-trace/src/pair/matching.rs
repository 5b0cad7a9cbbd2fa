// SPDX-License-Identifier: Apache-2.0
//! Which segment is which, and what became of each.

use super::{
    COMPARED, Delays, LOST, Likeness, Lost, PairError, Paired, Passed, Recording, Transit,
};
use crate::segment::Flags;
use crate::tcp::Side;
use slowpath_diagnose::clocks::{self, Clock};
use std::collections::HashMap;
use std::time::Duration;

/// Flags that a segment keeps on its way; ECE and CWR too, but not what a middlebox clears.
const KEPT: u16 = Flags::SYN | Flags::FIN | Flags::RST | Flags::ACK;

/// Whether both are of one connection, and whether the second has client and server exchanged.
pub(super) fn likeness(one: &Recording, other: &Recording) -> Option<(Likeness, bool)> {
    let same = |a: Option<u32>, b: Option<u32>| a.zip(b).is_none_or(|(a, b)| a == b);
    let ([client, server], [c, s]) = (one.initial, other.initial);
    if (one.client, one.server) == (other.client, other.server)
        && same(client, c)
        && same(server, s)
    {
        return Some((Likeness::FourTuple, false));
    }
    if (one.client, one.server) == (other.server, other.client)
        && same(client, s)
        && same(server, c)
    {
        return Some((Likeness::FourTuple, true));
    }
    if let (Some(client), Some(server), Some(c), Some(s)) = (client, server, c, s)
        && (client, server) == (c, s)
    {
        return Some((Likeness::SequenceNumbers, false));
    }
    if looks_alike(one, other) {
        return Some((Likeness::Lengths, false));
    }
    looks_alike(one, &other.turned()).then_some((Likeness::Lengths, true))
}

/// The first data segments of both sides are nearly the same.
fn looks_alike(one: &Recording, other: &Recording) -> bool {
    [Side::Client, Side::Server].into_iter().all(|side| {
        let (a, b) = (first_data(one, side), first_data(other, side));
        let count = a.len().min(b.len());
        if count == 0 {
            return a.is_empty() && b.is_empty();
        }
        let same = a.iter().filter(|s| b.contains(s)).count();
        count >= 4 && same * 10 >= count * 9
    })
}

fn first_data(recording: &Recording, side: Side) -> Vec<(u32, u32, Option<u16>)> {
    let mut data = recording
        .segments
        .iter()
        .filter(|s| s.side == side && s.length > 0);
    let Some(first) = data.clone().next().map(|s| s.sequence) else {
        return Vec::new();
    };
    data.by_ref()
        .take(COMPARED)
        .map(|s| (s.sequence.wrapping_sub(first), s.length, s.ip_id))
        .collect()
}

/// What both recordings count sequence numbers from.
fn bases(one: &Recording, other: &Recording, likeness: Likeness) -> [[u32; 2]; 2] {
    let base = |recording: &Recording, side: Side| {
        let first = || recording.segments.iter().find(|s| s.side == side);
        recording.initial[side as usize].or_else(|| first().map(|s| s.sequence))
    };
    let sides = [Side::Client, Side::Server];
    let known = |s: Side| one.initial[s as usize].is_some() && other.initial[s as usize].is_some();
    let of = |recording| {
        sides.map(|side| match likeness {
            Likeness::Lengths => base(recording, side).unwrap_or(0),
            _ if known(side) => recording.initial[side as usize].unwrap_or(0),
            // Where a SYN is missing in one of them the numbers themselves agree.
            _ => one.initial[side as usize]
                .or(other.initial[side as usize])
                .unwrap_or(0),
        })
    };
    [of(one), of(other)]
}

/// What a segment is known by.
type Key = (u32, u32, u32, u16, u16, Option<(u32, u32)>, Option<u16>);

fn key(s: &Passed, bases: [u32; 2], by_id: bool) -> Key {
    let relative = s.sequence.wrapping_sub(bases[s.side as usize]);
    let ack = if s.flags.any(Flags::ACK) {
        s.acknowledgement
            .wrapping_sub(bases[s.side.peer() as usize])
    } else {
        0
    };
    let id = s.ip_id.filter(|_| by_id);
    (
        relative,
        s.length,
        ack,
        s.flags.0 & KEPT,
        s.window,
        s.timestamps,
        id,
    )
}

/// The segments of one side in both recordings.
struct Sides<'a> {
    /// Near the sender, and near the receiver.
    sent: Vec<&'a Passed>,
    came: Vec<&'a Passed>,
    bases: [[u32; 2]; 2],
}

impl Sides<'_> {
    /// Positions of each key, near the sender and near the receiver.
    fn groups(&self, by_id: bool) -> HashMap<Key, (Vec<usize>, Vec<usize>)> {
        let mut groups: HashMap<Key, (Vec<usize>, Vec<usize>)> = HashMap::new();
        for (index, s) in self.sent.iter().enumerate() {
            groups
                .entry(key(s, self.bases[0], by_id))
                .or_default()
                .0
                .push(index);
        }
        for (index, s) in self.came.iter().enumerate() {
            groups
                .entry(key(s, self.bases[1], by_id))
                .or_default()
                .1
                .push(index);
        }
        groups
    }

    /// Whether the path leaves IP identifications unchanged: nine of ten segments of which
    /// there is only one have the same.
    fn keeps_ids(&self) -> bool {
        let (mut same, mut all) = (0, 0);
        for (sent, came) in self.groups(false).values() {
            if let ([a], [b]) = (&sent[..], &came[..])
                && let (Some(a), Some(b)) = (self.sent[*a].ip_id, self.came[*b].ip_id)
            {
                all += 1;
                same += usize::from(a == b && a != 0);
            }
        }
        all > 0 && same * 10 >= all * 9
    }

    /// Pairs of which there is only one on each side: difference of their times.
    fn certain(&self, by_id: bool) -> Vec<(i64, i64)> {
        let mut points: Vec<(i64, i64)> = self
            .groups(by_id)
            .values()
            .filter_map(|(sent, came)| match (&sent[..], &came[..]) {
                ([a], [b]) => {
                    let (a, b) = (self.sent[*a].time.0, self.came[*b].time.0);
                    Some((a, b.saturating_sub(a)))
                }
                _ => None,
            })
            .collect();
        points.sort_unstable();
        points
    }
}

/// What `side` sent, in the recording near it and in the other, each with what its numbers
/// count from.
fn sides<'a>(
    near: (&'a Recording, [u32; 2]),
    far: (&'a Recording, [u32; 2]),
    side: Side,
) -> Sides<'a> {
    Sides {
        sent: of(near.0, side),
        came: of(far.0, side),
        bases: [near.1, far.1],
    }
}

/// Pairs two recordings of one connection with the same client.
pub(super) fn pair(
    one: &Recording,
    other: &Recording,
    likeness: Likeness,
) -> Result<Paired, PairError> {
    let [one_bases, other_bases] = bases(one, other, likeness);
    let (a, b) = ((one, one_bases), (other, other_bases));
    let (client, server) = (sides(a, b, Side::Client), sides(a, b, Side::Server));
    let by_id = [client.keeps_ids(), server.keeps_ids()];
    let (up, down) = (client.certain(by_id[0]), server.certain(by_id[1]));
    let middle = |points: &[(i64, i64)]| {
        let mut differences: Vec<i64> = points.iter().map(|p| p.1).collect();
        differences.sort_unstable();
        differences.get(differences.len() / 2).copied()
    };
    let (Some(u), Some(d)) = (middle(&up), middle(&down)) else {
        return Err(PairError::NothingInCommon);
    };
    let first_is_client = match u.cmp(&d) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => return Err(PairError::SamePlace),
    };
    let (near, far) = if first_is_client { (a, b) } else { (b, a) };
    let client = sides(near, far, Side::Client);
    let server = sides(far, near, Side::Server);
    let start = near.0.segments.iter().map(|s| s.time.0).min().unwrap_or(0);
    let upper: Vec<_> = shifted(&client.certain(by_id[0]), start, false);
    let lower: Vec<_> = shifted(&server.certain(by_id[1]), start, true);
    let clock = clocks::estimate(&upper, &lower, start).ok_or(PairError::NothingInCommon)?;
    let span = |r: &Recording, to_client: bool| {
        let on_client = |t: i64| if to_client { clock.on_client(t) } else { t };
        let times = || r.segments.iter().map(|s| on_client(s.time.0));
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    };
    let (near_span, far_span) = (span(near.0, false), span(far.0, true));
    Ok(Paired {
        likeness,
        first_is_client,
        clock,
        from_client: transit(&client, by_id[0], &clock, Side::Client, near_span, far_span),
        from_server: transit(&server, by_id[1], &clock, Side::Server, far_span, near_span),
    })
}

fn of(recording: &Recording, side: Side) -> Vec<&Passed> {
    let segments = recording.segments.iter();
    segments.filter(|s| s.side == side).collect()
}

/// Times since the beginning; for the server's segments server's clock less client's, at the client's time.
fn shifted(points: &[(i64, i64)], start: i64, turned: bool) -> Vec<(i64, i64)> {
    points
        .iter()
        .map(|(sent, difference)| {
            if turned {
                let came = sent.saturating_add(*difference);
                (came.saturating_sub(start), difference.saturating_neg())
            } else {
                (sent.saturating_sub(start), *difference)
            }
        })
        .collect()
}

/// What became of one side's segments.
fn transit(
    sides: &Sides<'_>,
    by_id: bool,
    clock: &Clock,
    side: Side,
    sent_span: (i64, i64),
    came_span: (i64, i64),
) -> Transit {
    // Everything on the client's clock.
    let at_sender = |s: &Passed| match side {
        Side::Client => s.time.0,
        Side::Server => clock.on_client(s.time.0),
    };
    let at_receiver = |s: &Passed| match side {
        Side::Client => clock.on_client(s.time.0),
        Side::Server => s.time.0,
    };
    let slack = i64::try_from(clock.uncertainty.as_nanos()).unwrap_or(i64::MAX);
    let (arrival, used) = arrivals(sides, by_id, slack, at_sender, at_receiver);
    let mut transit = Transit {
        sent: sides.sent.len() as u64,
        arrived: arrival.iter().flatten().count() as u64,
        rejoined: 0,
        lost: Vec::new(),
        lost_count: 0,
        lost_bytes: 0,
        outside: 0,
        unsent: 0,
        reordered: 0,
        most_overtaken: 0,
        delays: delays(sides, &arrival, at_sender, at_receiver),
    };
    order(&arrival, &mut transit);
    // When it should have come: at the edges of the other recording nothing is lost.
    let nanos = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    let (quick, slow) = transit
        .delays
        .map_or((0, 0), |d| (nanos(d.least), nanos(d.high)));
    let mut pieces = Pieces::new(sides, &used, at_receiver);
    for (index, s) in sides.sent.iter().enumerate() {
        if arrival[index].is_some() {
            continue;
        }
        let time = at_sender(s);
        let start = s.sequence.wrapping_sub(sides.bases[0][s.side as usize]);
        let missing = pieces.take(start, s.length, time.saturating_sub(slack));
        if s.length > 0 && missing == 0 {
            transit.arrived += 1;
            transit.rejoined += 1;
        } else if time.saturating_add(quick) < came_span.0
            || time.saturating_add(slow) > came_span.1
        {
            transit.outside += 1;
        } else {
            transit.lost_count += 1;
            transit.lost_bytes += u64::from(missing);
            if transit.lost.len() < LOST {
                transit.lost.push(Lost {
                    frame: s.frame,
                    time: s.time,
                    sequence: start,
                    length: s.length,
                    bytes: missing,
                });
            }
        }
    }
    transit.unsent = pieces.left(sent_span);
    transit
}

/// Where each segment of the sender's recording is in the receiver's, and which of the receiver's
/// are one of them. No segment arrives sooner than `slack`, ns, before it was sent.
fn arrivals(
    sides: &Sides<'_>,
    by_id: bool,
    slack: i64,
    at_sender: impl Fn(&Passed) -> i64,
    at_receiver: impl Fn(&Passed) -> i64,
) -> (Vec<Option<usize>>, Vec<bool>) {
    let mut arrival: Vec<Option<usize>> = vec![None; sides.sent.len()];
    let mut used = vec![false; sides.came.len()];
    for (mut sent, came) in sides.groups(by_id).into_values() {
        // From the end: each arrival is of the latest that can have come by then.
        for receiver in came.into_iter().rev() {
            let time = at_receiver(sides.came[receiver]);
            let single = sent.len() == 1;
            let fits =
                |s: &usize| single || at_sender(sides.sent[*s]) <= time.saturating_add(slack);
            if let Some(place) = sent.iter().rposition(fits) {
                arrival[sent[place]] = Some(receiver);
                used[receiver] = true;
                sent.truncate(place);
            }
        }
    }
    (arrival, used)
}

fn delays(
    sides: &Sides<'_>,
    arrival: &[Option<usize>],
    at_sender: impl Fn(&Passed) -> i64,
    at_receiver: impl Fn(&Passed) -> i64,
) -> Option<Delays> {
    let mut times: Vec<u64> = arrival
        .iter()
        .enumerate()
        .filter_map(|(sent, came)| {
            let came = at_receiver(sides.came[(*came)?]);
            let passed = came.saturating_sub(at_sender(sides.sent[sent]));
            Some(u64::try_from(passed).unwrap_or(0))
        })
        .collect();
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
        times.get(rank).copied().map(Duration::from_nanos)
    };
    Some(Delays {
        count: times.len() as u64,
        least: at(0)?,
        median: at(50)?,
        high: at(95)?,
        most: at(100)?,
    })
}

/// RFC 4737: a segment is reordered if one that was sent later came before it.
fn order(arrival: &[Option<usize>], transit: &mut Transit) {
    let mut by_arrival: Vec<(usize, usize)> = arrival
        .iter()
        .enumerate()
        .filter_map(|(sent, came)| Some(((*came)?, sent)))
        .collect();
    by_arrival.sort_unstable();
    // The sent positions that came so far are increasing but for the reordered ones.
    let mut latest: Vec<usize> = Vec::new();
    for (place, (_, sent)) in by_arrival.iter().enumerate() {
        match latest.last() {
            Some(&top) if *sent < by_arrival[top].1 => {
                transit.reordered += 1;
                // The extent: back to the first arrival that was sent later.
                let first = latest.partition_point(|i| by_arrival[*i].1 < *sent);
                let extent = latest.get(first).map_or(0, |i| place - i);
                transit.most_overtaken = transit.most_overtaken.max(extent as u64);
            }
            _ => latest.push(place),
        }
    }
}

/// Data near the receiver that no segment near the sender is the same as: bytes of segments
/// that were joined or cut on the way.
struct Pieces {
    /// Sequence number, end, time, taken; in the order of the numbers.
    pieces: Vec<(u32, u32, i64, bool)>,
    /// Longest piece.
    longest: u32,
    without_data: Vec<i64>,
}

impl Pieces {
    fn new(sides: &Sides<'_>, used: &[bool], at_receiver: impl Fn(&Passed) -> i64) -> Self {
        let mut pieces = Vec::new();
        let mut without_data = Vec::new();
        for (s, used) in sides.came.iter().zip(used) {
            let start = s.sequence.wrapping_sub(sides.bases[1][s.side as usize]);
            if *used {
                continue;
            }
            if s.length == 0 {
                without_data.push(at_receiver(s));
            } else {
                pieces.push((start, start.saturating_add(s.length), at_receiver(s), false));
            }
        }
        pieces.sort_unstable();
        let longest = pieces.iter().map(|p| p.1 - p.0).max().unwrap_or(0);
        Pieces {
            pieces,
            longest,
            without_data,
        }
    }

    /// Bytes of a segment that are in no piece that came after `time`.
    fn take(&mut self, start: u32, length: u32, time: i64) -> u32 {
        let end = start.saturating_add(length);
        let mut reached = start;
        let mut missing = 0;
        let first = self
            .pieces
            .partition_point(|p| p.0 < start.saturating_sub(self.longest));
        for piece in self.pieces.iter_mut().skip(first) {
            if piece.0 >= end {
                break;
            }
            if piece.1 <= reached || piece.2 < time {
                continue;
            }
            missing += piece.0.saturating_sub(reached);
            reached = piece.1;
            piece.3 = true;
        }
        missing + end.saturating_sub(reached)
    }

    /// Pieces that belong to nothing sent while the sender's recording ran.
    fn left(&self, span: (i64, i64)) -> u64 {
        let within = |t: i64| t >= span.0 && t <= span.1;
        let data = self.pieces.iter().filter(|p| !p.3 && within(p.2)).count();
        let other = self.without_data.iter().filter(|t| within(**t)).count();
        (data + other) as u64
    }
}
