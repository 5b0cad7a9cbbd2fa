// SPDX-License-Identifier: Apache-2.0
//! One thing that was inferred, inferred otherwise.

use slowpath_recording::{Connection, End, Handler, Outcome, Run};

/// Packets that come so fast one after the other were one burst, in nanoseconds.
const CLOSE: u64 = 700_000;
/// A call's readings of the clock that are recorded one by one.
const MOST_READINGS: u32 = 64;

/// Which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunPosition {
    /// 0: the end that connected.
    pub end: u8,
    /// From 0.
    pub run: u64,
}

/// One thing of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which run.
    pub place: RunPosition,
    /// What of it.
    pub what: Alteration,
}

/// What is other than it was inferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// It began earlier by this, nanoseconds; what it read of the clock besides stays.
    Earlier(u64),
    /// Later by this, nanoseconds.
    Later(u64),
    /// What it read second of the clock: nanoseconds after the first; what was second is third.
    Between(u32),
    /// `jiffies`: a tick less (-1) or more (1).
    Tick(i32),
    /// What the device held (`sk_wmem_alloc`) all the time, in bytes.
    Memory(u32),
    /// It was before the run that was before it.
    Before,
    /// A call that received read the clock with each packet; nanoseconds a packet.
    Pace(u32),
    /// What waited in the backlog came when it had read the clock and sent packets so often.
    Waited(u32),
    /// So did all calls of that end that received.
    AllPaced(u32),
    /// It and the packets close behind it came later by this, nanoseconds (negative: earlier). Of packets whose arrival was not observed.
    Burst(i64),
    /// How many more packets were lost before it (negative: fewer).
    Lost(i32),
    /// How many more packets it was (negative: fewer).
    Merged(i32),
}

impl std::fmt::Display for Alteration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Alteration::Earlier(by) => write!(f, "{:.1} us earlier", *by as f64 / 1e3),
            Alteration::Later(by) => write!(f, "{:.1} us later", *by as f64 / 1e3),
            Alteration::Between(after) => {
                write!(
                    f,
                    "the clock read {:.1} us after it",
                    f64::from(*after) / 1e3
                )
            }
            Alteration::Tick(by) => write!(f, "{by:+} ticks"),
            Alteration::Memory(bytes) => write!(f, "{bytes} bytes in the device"),
            Alteration::Before => f.write_str("before the run before it"),
            Alteration::Pace(each) => write!(f, "{:.1} us a packet", f64::from(*each) / 1e3),
            Alteration::Waited(count) => {
                write!(f, "the backlog filled after {count} readings and packets")
            }
            Alteration::Burst(by) => {
                let way = if *by < 0 { "earlier" } else { "later" };
                let by = by.unsigned_abs() as f64 / 1e3;
                write!(f, "{by:.1} us {way}, with what came close behind")
            }
            Alteration::Lost(by) => write!(f, "{by:+} packets lost before it"),
            Alteration::Merged(by) => write!(f, "{by:+} packets merged into it"),
            Alteration::AllPaced(each) => {
                write!(
                    f,
                    "{:.1} us a packet, all that receive",
                    f64::from(*each) / 1e3
                )
            }
        }
    }
}

/// What the clock was read last by a run.
pub(super) fn last_reading(run: &Run) -> u64 {
    let later = run.outcomes.iter().filter_map(|it| match it {
        Outcome::Clock { after, .. } => Some(u64::from(*after)),
        _ => None,
    });
    run.at.0.saturating_add(later.max().unwrap_or(0))
}

impl Change {
    /// The connection with it; `None`: it cannot be, or is nothing new.
    pub fn apply(&self, connection: &Connection) -> Option<Connection> {
        let mut other = connection.clone();
        let end = other.ends.get_mut(usize::from(self.place.end))?;
        let place = usize::try_from(self.place.run).ok()?;
        self.what.apply(end, place)?;
        Some(other)
    }
}

impl Alteration {
    fn apply(self, end: &mut End, place: usize) -> Option<()> {
        let before = place.checked_sub(1).and_then(|place| end.runs.get(place));
        let earliest = before.map_or(0, last_reading);
        let latest = end.runs.get(place + 1).map(|next| next.at.0);
        let run = end.runs.get_mut(place)?;
        match self {
            Alteration::Earlier(by) => {
                let at = run.at.0.checked_sub(by)?;
                if at < earliest || by == 0 {
                    return None;
                }
                run.at.0 = at;
                let mut again = false;
                for (_, after) in clocks(run) {
                    *after = after.checked_add(u32::try_from(by).ok()?)?;
                    again = true;
                }
                // What follows in the same run is when it was.
                if !again && sends(run) {
                    insert(run, 1, u32::try_from(by).ok()?);
                }
            }
            Alteration::Later(by) => {
                let at = run.at.0.checked_add(by)?;
                if at > latest? || by == 0 {
                    return None;
                }
                run.at.0 = at;
                for (_, after) in clocks(run) {
                    *after = after.saturating_sub(u32::try_from(by).ok()?);
                }
            }
            Alteration::Between(after) => {
                let last = clocks(run).map(|(_, it)| *it).max()?;
                if after >= last || clocks(run).any(|(_, it)| *it == after) {
                    return None;
                }
                for (reading, _) in clocks(run).filter(|(_, it)| **it > after) {
                    *reading += 1;
                }
                let before = clocks(run).filter(|(_, it)| **it < after).count() as u32;
                insert(run, before + 1, after);
            }
            Alteration::Tick(by) => run.jiffies = run.jiffies.wrapping_add_signed(by),
            Alteration::Memory(bytes) => {
                let mut other = false;
                for outcome in &mut run.outcomes {
                    if let Outcome::DeviceMemory { bytes: held, .. } = outcome {
                        other |= *held != bytes;
                        *held = bytes;
                    }
                }
                return other.then_some(());
            }
            Alteration::Waited(count) => {
                let filled = run.outcomes.iter_mut().find_map(|it| match it {
                    Outcome::Backlog { done, .. } => Some(done),
                    _ => None,
                })?;
                if *filled == count {
                    return None;
                }
                *filled = count;
            }
            Alteration::Before => return exchange(end, place),
            Alteration::Burst(by) => return shift(end, place, by),
            Alteration::Lost(by) => return renumber(end, place, by, 0),
            Alteration::Merged(by) => return renumber(end, place, 0, by),
            Alteration::Pace(each) => return pace(end, place, each),
            Alteration::AllPaced(each) => {
                let mut other = false;
                for place in 0..end.runs.len() {
                    other |= pace(end, place, each).is_some();
                }
                return other.then_some(());
            }
        }
        Some(())
    }
}

/// Its readings of the clock after the first: which, and how many nanoseconds later.
fn clocks(run: &mut Run) -> impl Iterator<Item = (&mut u32, &mut u32)> {
    run.outcomes.iter_mut().filter_map(|it| match it {
        Outcome::Clock { reading, after } => Some((reading, after)),
        _ => None,
    })
}

/// Whether it may send several times, reading the clock each time.
pub(super) fn sends(run: &Run) -> bool {
    matches!(run.handler, Handler::Send { .. } | Handler::Resume)
}

/// Whether it is a call that received data.
pub(super) fn receives(runs: &[Run], place: usize) -> bool {
    let call = runs[..=place].iter().rev().find(|run| {
        !matches!(
            run.handler,
            Handler::Resume
                | Handler::Packet { .. }
                | Handler::Timer { .. }
                | Handler::Release { .. }
                | Handler::SmallQueue
        )
    });
    let own = matches!(
        runs[place].handler,
        Handler::Receive { .. } | Handler::Resume
    );
    own && call
        .is_some_and(|call| matches!(call.handler, Handler::Receive { result, .. } if result > 0))
}

/// What it read last of the clock stays; before that it read it once for each packet that had come since the call before it (`tcp_rcv_space_adjust`).
fn pace(end: &mut End, place: usize, each: u32) -> Option<()> {
    if !receives(&end.runs, place) {
        return None;
    }
    let before = end.runs[..place].iter().rev();
    let packets = before.take_while(|run| {
        matches!(
            run.handler,
            Handler::Packet { .. } | Handler::SmallQueue | Handler::Timer { .. }
        )
    });
    let packets = packets
        .filter(|run| matches!(run.handler, Handler::Packet { .. }))
        .count();
    let more = u32::try_from(packets.checked_sub(1)?)
        .ok()?
        .min(MOST_READINGS);
    let earliest = place
        .checked_sub(1)
        .map_or(0, |before| last_reading(&end.runs[before]));
    let run = &mut end.runs[place];
    let last = last_reading(run);
    let whole = u64::from(more) * u64::from(each);
    let whole = whole.min(last.saturating_sub(earliest));
    run.outcomes
        .retain(|it| !matches!(it, Outcome::Clock { .. }));
    run.at.0 = last - whole;
    for number in 1..=more {
        let value = whole * u64::from(number) / u64::from(more);
        insert(run, number, u32::try_from(value).ok()?);
    }
    (more > 0).then_some(())
}

fn insert(run: &mut Run, reading: u32, after: u32) {
    run.outcomes.push(Outcome::Clock { reading, after });
    run.outcomes.sort_by_key(Outcome::key);
}

/// Whether it is a packet whose arrival was not observed: its end had closed.
pub(super) fn is_unobserved(run: &Run) -> bool {
    let observed = |it: &Outcome| matches!(it, Outcome::Observed { .. });
    matches!(run.handler, Handler::Packet { .. }) && !run.outcomes.iter().any(observed)
}

/// Runs from that one on, as long as they follow each other closely.
pub(super) fn burst(runs: &[Run], place: usize) -> usize {
    let mut count = 0;
    let mut last = runs[place].at.0;
    for run in &runs[place..] {
        if !is_unobserved(run) || run.at.0 - last > CLOSE {
            break;
        }
        last = last_reading(run);
        count += 1;
    }
    count
}

fn shift(end: &mut End, place: usize, by: i64) -> Option<()> {
    let count = burst(&end.runs, place);
    let behind = end.runs.get(place + count).map_or(u64::MAX, |run| run.at.0);
    let earliest = place
        .checked_sub(1)
        .map_or(0, |before| last_reading(&end.runs[before]));
    let known: Vec<(u64, u32)> = end.runs.iter().map(|run| (run.at.0, run.jiffies)).collect();
    let mut last = None;
    for run in &mut end.runs[place..place + count] {
        let at = run.at.0.checked_add_signed(by)?.max(earliest);
        // What they came before stays behind them.
        let at = at.min(behind.saturating_sub(last_reading(run) - run.at.0));
        let nearest = known.iter().min_by_key(|(known, _)| known.abs_diff(at));
        run.jiffies = nearest.map_or(run.jiffies, |(_, jiffies)| *jiffies);
        run.at.0 = at.max(last.unwrap_or(0));
        last = Some(last_reading(run));
    }
    (by != 0 && count > 0).then_some(())
}

/// The packet's number is another, or how many were merged into it; and so are the numbers of those behind it, as the sender counted them.
fn renumber(end: &mut End, place: usize, lost: i32, merged: i32) -> Option<()> {
    let Handler::Packet { number: own, .. } = end.runs.get(place)?.handler else {
        return None;
    };
    let newest = newest(&end.runs[..place]);
    let moved = i64::from(own) + i64::from(lost);
    if moved < i64::from(newest) || u32::try_from(moved).is_err() {
        return None;
    }
    for (at, run) in end.runs.iter_mut().enumerate() {
        let Handler::Packet {
            number,
            merged: count,
            ..
        } = &mut run.handler
        else {
            continue;
        };
        if at == place {
            let more = i32::from(*count).checked_add(merged)?;
            *count = u16::try_from(more).ok().filter(|count| *count > 0)?;
        }
        if *number > own {
            *number = number.checked_add_signed(lost.checked_add(merged)?)?;
        } else if *number == own {
            *number = number.checked_add_signed(lost)?;
        }
    }
    Some(())
}

/// The number that a packet has that follows those without a gap.
pub(super) fn newest(runs: &[Run]) -> u32 {
    let next = runs.iter().filter_map(|run| match run.handler {
        Handler::Packet { number, merged, .. } => Some(number.saturating_add(merged.into())),
        _ => None,
    });
    next.max().unwrap_or(0)
}

/// Two runs, each when the other was. What was observed before a packet stays with the packet.
fn exchange(end: &mut End, place: usize) -> Option<()> {
    let before = place.checked_sub(1)?;
    let two = [end.runs.get(before)?.clone(), end.runs.get(place)?.clone()];
    end.runs.swap(before, place);
    end.runs[before].at = two[0].at;
    end.runs[before].jiffies = two[0].jiffies;
    end.runs[place].at.0 = two[1].at.0.max(last_reading(&end.runs[before]));
    end.runs[place].jiffies = two[1].jiffies;
    Some(())
}
