// SPDX-License-Identifier: Apache-2.0
//! The memory of packets: of those that waited in the device as others were sent, and of those that waited in the backlog.

use super::numbers::Numbers;
use super::piece::{Event, Observation, index};
use super::side::Before;
use slowpath_recording::{Outcome, Run};

/// Packets of one run for which the device's memory is recorded.
const MOST_SENT: u32 = 32;
/// `SKB_TRUESIZE` of the head of what TCP sends, on 64-bit machines.
const HEAD: u32 = 896;
/// Of a packet of 1,500 bytes with timestamps.
const SEGMENT: u32 = 1448;
/// No packet has more.
const MOST_CARRIED: u32 = 65_536;
/// More packets of one backlog are not counted.
const MOST_WAITING: usize = 4096;

/// What waited in the device while runs were sending: observed before some of them; between those in proportion to what was sent.
pub(super) fn remember(runs: &mut [(Run, Before)], own: &Numbers) {
    let known: Vec<(usize, (u16, u32))> = runs
        .iter()
        .enumerate()
        .filter_map(|(place, (_, before))| Some((place, (*before)?)))
        .collect();
    let next: Vec<u16> = known.iter().map(|(_, (next, _))| *next).collect();
    let totals: Vec<u32> = own.totals(next.into_iter()).collect();
    for (two, totals) in known.windows(2).zip(totals.windows(2)) {
        let ((from, (_, memory)), (to, (_, left))) = (two[0], two[1]);
        if memory == 1 && left == 1 {
            continue;
        }
        let sent = totals[1].saturating_sub(totals[0]).min(MOST_SENT);
        for (run, _) in &mut runs[from..to] {
            for count in 0..=sent {
                let share = i64::from(left) - i64::from(memory);
                let more = share * i64::from(count) / i64::from(sent.max(1));
                run.outcomes.push(Outcome::DeviceMemory {
                    sent: count,
                    bytes: (i64::from(memory) + more) as u32,
                });
            }
            run.outcomes.sort_by_key(Outcome::key);
        }
    }
}

/// Of all that was in the backlog with that packet: those between which no call moved anything.
pub(super) fn backlog(observations: &[Observation], place: usize) -> u32 {
    let moved =
        |observed: &Observation| [index::WRITTEN, index::READ].map(|word| observed.words[word]);
    let with = |other: &&Observation| {
        other.owned
            && matches!(other.event, Event::Packet { .. })
            && moved(other) == moved(&observations[place])
    };
    let before = observations[..place].iter().rev().take(MOST_WAITING);
    let from = place - before.take_while(with).count();
    let all = observations[from..].iter().take(2 * MOST_WAITING);
    let all = from..from + all.take_while(with).count();
    all.fold(0, |sum, place| {
        sum.saturating_add(memory(observations, place))
    })
}

/// What a packet of the stack's own costs in memory: its head, and what it carries.
fn memory(observations: &[Observation], place: usize) -> u32 {
    let Event::Packet { segments, .. } = observations[place].event else {
        return 0;
    };
    let received = |place: usize| {
        let observed = observations.get(place)?;
        Some(observed.words[index::RECEIVED])
    };
    // Its end counts as a byte (tcp_fin).
    let ends = matches!(
        observations.get(place + 1),
        Some(Observation {
            event: Event::State { .. },
            ..
        })
    );
    let moved = received(place + 1).and_then(|next| Some(next.wrapping_sub(received(place)?)));
    let moved = moved.map(|moved| moved.wrapping_sub(ends.into()));
    let carried = match moved {
        _ if !observations[place].data => 0,
        Some(0) if ends => 0,
        Some(moved) if 0 < moved && moved <= MOST_CARRIED => moved,
        _ => u32::from(segments) * SEGMENT,
    };
    HEAD + carried
}
