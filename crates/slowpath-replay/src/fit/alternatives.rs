// SPDX-License-Identifier: Apache-2.0
//! Which alternatives there are, in the order in which they are tried.

use super::change::{
    Alteration, Change, RunPosition, burst, is_unobserved, newest, receives, sends,
};
use slowpath_recording::{Connection, Handler, Outcome, Run};

/// What a packet takes that is received, in nanoseconds.
const PACES: [u32; 8] = [9_000, 4_000, 14_000, 0, 20_000, 2_000, 30_000, 1_000];
/// What came when an end had closed, later by that much (nanoseconds).
const BURSTS: [i64; 22] = [
    100_000, -100_000, 200_000, -200_000, 50_000, -50_000, 25_000, -25_000, 300_000, -300_000,
    400_000, -400_000, 600_000, -600_000, 1_000_000, -1_000_000, 1_500_000, -1_500_000, 2_000_000,
    -2_000_000, 3_000_000, -3_000_000,
];
/// Readings of the clock and packets that a call had made when its backlog filled; the last: it was over.
const WAITED: [u32; 10] = [1, 2, 1000, 3, 4, 5, 6, 8, 12, 16];
/// Where the device makes the segments a gap of identifications does not show how many packets it was.
const LOST: [i32; 4] = [1, 2, -1, 3];
/// Runs of both ends that are looked at, back from where a replay parted.
const BACK: usize = 160;
/// Earlier by that much: a call that sends several times takes some microseconds a segment, in an emulated machine some hundred (nanoseconds).
const EARLIER: [u64; 7] = [100_000, 200_000, 50_000, 20_000, 400_000, 5_000, 1_000];
const LATER: [u64; 3] = [20_000, 100_000, 5_000];
/// Of what was between the readings before and after it, in eighths.
const EIGHTHS: [u32; 5] = [4, 2, 6, 1, 7];

/// Those of the runs before that one: the nearest first.
pub(super) fn of(connection: &Connection, parted: RunPosition) -> Vec<Change> {
    let end = connection.ends.get(usize::from(parted.end));
    let run = end.and_then(|end| end.runs.get(usize::try_from(parted.run).ok()?));
    let until = run.map_or(u64::MAX, |run| run.at.0);
    let mut runs: Vec<(u64, RunPosition)> = Vec::new();
    for (end, number) in connection.ends.iter().zip(0..) {
        let before = (0..)
            .zip(&end.runs)
            .take_while(|(_, run)| run.at.0 <= until);
        runs.extend(before.map(|(run, it)| (it.at.0, RunPosition { end: number, run })));
    }
    runs.sort_unstable_by(|a, b| b.cmp(a));
    let near = runs.iter().take(BACK).map(|(_, place)| *place);
    let mut all: Vec<(usize, usize, Change)> = Vec::new();
    for (far, place) in near.enumerate() {
        let Some(end) = connection.ends.get(usize::from(place.end)) else {
            continue;
        };
        let number = place.run as usize;
        let before = number
            .checked_sub(1)
            .and_then(|number| end.runs.get(number));
        let mut found = of_run(&end.runs[number], before);
        if let Handler::Packet {
            number: own,
            backlog,
            ..
        } = end.runs[number].handler
        {
            if own > newest(&end.runs[..number]) {
                found.splice(0..0, LOST.map(Alteration::Lost));
            }
            if backlog {
                found.splice(0..0, [1, -1].map(Alteration::Merged));
            }
        }
        if is_unobserved(&end.runs[number]) {
            let begins = before.is_none_or(|before| !is_unobserved(before))
                || number
                    .checked_sub(1)
                    .is_some_and(|before| burst(&end.runs, before) == 1);
            let by = if begins { &BURSTS[..] } else { &BURSTS[..8] };
            found = by.iter().copied().map(Alteration::Burst).collect();
        }
        if receives(&end.runs, number) {
            found.splice(0..0, PACES.map(Alteration::Pace));
        }
        let found = found.into_iter().enumerate();
        all.extend(found.map(|(likely, what)| (likely * 4 + far, far, Change { place, what })));
    }
    all.sort_by_key(|(order, far, _)| (*order, *far));
    let ends = [parted.end, 1 - (parted.end & 1)];
    let whole = PACES.into_iter().flat_map(|each| {
        ends.map(|end| Change {
            place: RunPosition { end, run: 0 },
            what: Alteration::AllPaced(each),
        })
    });
    whole
        .chain(all.into_iter().map(|(_, _, change)| change))
        .collect()
}

fn of_run(run: &Run, before: Option<&Run>) -> Vec<Alteration> {
    let mut all = Vec::new();
    let clocks = run.outcomes.iter().filter_map(|it| match it {
        Outcome::Clock { after, .. } => Some(*after),
        _ => None,
    });
    let later = clocks.max();
    let moment = !matches!(run.handler, Handler::Packet { .. });
    if let Some(later) = later.filter(|_| sends(run)) {
        all.extend(
            EIGHTHS
                .map(|part| Alteration::Between((u64::from(later) * u64::from(part) / 8) as u32)),
        );
    }
    if moment {
        all.extend(EARLIER.map(Alteration::Earlier));
    }
    if let Some(before) = before
        && (moment || !matches!(before.handler, Handler::Packet { .. }))
    {
        all.push(Alteration::Before);
    }
    let memory = run.outcomes.iter().filter_map(|it| match it {
        Outcome::DeviceMemory { bytes, .. } => Some(*bytes),
        _ => None,
    });
    let held: Vec<u32> = memory.collect();
    if let (Some(first), Some(last)) = (held.first(), held.last()) {
        all.extend([*last, *first, 1].map(Alteration::Memory));
    }
    let mut waited = run.outcomes.iter();
    if moment && waited.any(|it| matches!(it, Outcome::Backlog { .. })) {
        all.extend(WAITED.map(Alteration::Waited));
    }
    all.extend([1, -1].map(Alteration::Tick));
    if moment {
        all.extend(LATER.map(Alteration::Later));
    } else {
        all.extend([20_000, 5_000, 100_000].map(Alteration::Earlier));
        all.extend([20_000, 5_000, 100_000].map(Alteration::Later));
    }
    all
}
