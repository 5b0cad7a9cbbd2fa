// SPDX-License-Identifier: Apache-2.0
//! Which packet of the other end each one is that came.

use super::cut;
use slowpath_recording::{End, Handler, OneSided, Outcome, Packet};
use std::collections::HashMap;

/// An identification is given again after 65,536 packets: the nearer one is meant.
const FAR: u32 = 1 << 15;

/// Why a packet is none of those that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The other end's recording does not have it.
    #[error(
        "a packet that the other end's recording does not have (it ended earlier, or is of another connection)"
    )]
    Unknown,
    /// It has it with another length.
    #[error(
        "a packet that was cut or merged on its way (segmentation or GRO of a device), which cannot be replayed yet"
    )]
    Cut,
    /// The other end sent it in a run that is left out.
    #[error("what the other end sent behind what is known of both")]
    Behind,
    /// Each end waits for the other one's packet.
    #[error(
        "a packet that the other end sent only when it had got a later one: the recordings do not fit each other"
    )]
    Circle,
}

/// Of each packet that came its number among those sent.
pub(super) struct Matches {
    numbers: Vec<Result<u32, Lost>>,
    /// Of those that came for a socket that had gone, or from one: several may look alike, and the run knows which there can have been.
    alike: Vec<(usize, usize, Vec<u32>)>,
}

/// Those that were sent, by what is known of them at the other end.
struct Index<'a> {
    sent: &'a [Packet],
    by_id: HashMap<u16, Vec<u32>>,
    by_mark: HashMap<u32, Vec<u32>>,
    used: Vec<bool>,
    /// One more than the newest that came.
    expected: u32,
}

impl Index<'_> {
    fn new(sent: &[Packet]) -> Index<'_> {
        let mut by_id: HashMap<u16, Vec<u32>> = HashMap::new();
        let mut by_mark: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, packet) in (0..).zip(sent) {
            by_id.entry(packet.id).or_default().push(number);
            if packet.mark != 0 {
                by_mark.entry(packet.mark).or_default().push(number);
            }
        }
        Index {
            sent,
            by_id,
            by_mark,
            used: vec![false; sent.len()],
            expected: 0,
        }
    }

    /// The nearest that fits, sooner one that has not come.
    fn nearest(&self, some: Option<&Vec<u32>>, fits: impl Fn(&Packet) -> bool) -> Option<u32> {
        let some = some.into_iter().flatten().copied();
        let fitting = some.filter(|number| fits(&self.sent[*number as usize]));
        fitting.min_by_key(|number| {
            let far = number.abs_diff(self.expected);
            (far >= FAR, self.used[*number as usize], far)
        })
    }

    fn take(&mut self, number: u32) -> u32 {
        self.used[number as usize] = true;
        self.expected = self.expected.max(number + 1);
        number
    }

    /// Which one came.
    fn find(&self, came: &Packet) -> Option<u32> {
        let begins = |it: &Packet| it.begins == came.begins;
        let marked = self.by_mark.get(&came.mark).filter(|_| came.mark != 0);
        let marked = self.nearest(marked, |it| begins(it));
        let ids = self.by_id.get(&came.id);
        let plain = || self.nearest(ids, |it| begins(it) && it.mark == 0);
        // A header that was changed on the way (its MSS, for one) makes another mark; and over IPv6 no recorder observes what is sent without a socket.
        let changed = || {
            let marked = |it: &Packet| came.mark != 0 && it.mark != 0;
            self.nearest(ids, |it| {
                marked(it) && begins(it) && it.length == came.length
            })
        };
        marked.or_else(plain).or_else(changed)
    }

    /// Without identification and data: those that acknowledge the same.
    fn alike(&self, came: &Packet) -> Vec<u32> {
        let marked = self.by_mark.get(&came.mark).into_iter().flatten().copied();
        let same = |number: &u32| {
            let it = &self.sent[*number as usize];
            came.mark != 0 && it.begins == came.begins && it.length == 0
        };
        marked.filter(same).collect()
    }

    /// One that was merged into another one in the backlog.
    fn merged(&self, came: &Packet, head: &Packet) -> Option<u32> {
        let inside = |it: &Packet| it.begins.wrapping_sub(head.begins) <= head.length;
        match came.mark {
            0 => self.nearest(self.by_id.get(&came.id), inside),
            mark => self.nearest(self.by_mark.get(&mark), inside),
        }
    }
}

impl Matches {
    pub(super) fn of(receiver: &OneSided, sender: &OneSided) -> Matches {
        let mut index = Index::new(&sender.sent);
        let mut numbers = vec![Err(Lost::Unknown); receiver.came.len()];
        let mut alike = Vec::new();
        for (at, run) in receiver.end.runs.iter().enumerate() {
            let Handler::Packet { number, merged, .. } = run.handler else {
                continue;
            };
            let first = number as usize;
            let places = first..(first + usize::from(merged)).min(receiver.came.len());
            let Some(head) = receiver.came.get(first) else {
                continue;
            };
            let others = index.alike(head);
            if others.len() > 1 && receiver.addresses[0].is_ipv4() {
                alike.push((at, first, others));
            }
            let mut bytes = 0;
            for place in places.clone() {
                let found = if place == first {
                    index.find(head)
                } else {
                    index.merged(&receiver.came[place], head)
                };
                let Some(found) = found.map(|found| index.take(found)) else {
                    break;
                };
                bytes += u64::from(sender.sent[found as usize].length);
                numbers[place] = Ok(found);
            }
            let all = numbers[places.clone()].iter().all(Result::is_ok);
            // Not known of what came when the socket had gone.
            if all && bytes != u64::from(head.length) && head.length > 0 {
                numbers[places].fill(Err(Lost::Cut));
            }
        }
        Matches { numbers, alike }
    }

    /// Of those that look alike the newest is meant that had been sent: each answers a packet of the receiver, which `there` names.
    pub(super) fn choose(&mut self, receiver: &OneSided, sender: &OneSided, there: &Matches) {
        for (at, place, numbers) in &self.alike {
            let had_been_sent = |number: &&u32| {
                let run = usize::try_from(sent(sender, **number)).ok();
                let run = run.and_then(|run| sender.end.runs.get(run));
                let asked = run.and_then(|run| there.last(&run.handler));
                asked.is_none_or(|it| it.is_ok_and(|it| sent(receiver, it) < *at as u64))
            };
            if let (Some(newest), Some(number)) = (
                numbers.iter().rfind(had_been_sent),
                self.numbers.get_mut(*place),
            ) {
                *number = Ok(*newest);
            }
        }
    }

    /// Of the packets of a run; nothing of those that are none.
    pub(super) fn run(&self, handler: &Handler) -> Option<Result<&[Result<u32, Lost>], Lost>> {
        let Handler::Packet { number, merged, .. } = *handler else {
            return None;
        };
        let first = number as usize;
        let some = self.numbers.get(first..first + usize::from(merged));
        let lost = |it: &[Result<u32, Lost>]| it.iter().find_map(|it| it.err());
        Some(match some {
            None => Err(Lost::Unknown),
            Some(some) => lost(some).map_or(Ok(some), Err),
        })
    }

    /// The number of the last packet of a run.
    fn last(&self, handler: &Handler) -> Option<Result<u32, Lost>> {
        let some = match self.run(handler)? {
            Err(lost) => return Some(Err(lost)),
            Ok(some) => some,
        };
        some.iter().filter_map(|it| it.ok()).max().map(Ok)
    }
}

/// How many runs of each end can be made with what is known, each packet after the run that sent it; and what stops the first that stops.
pub(super) fn known(
    ends: &[&OneSided; 2],
    found: &[Matches; 2],
) -> ([usize; 2], Option<(usize, Lost)>) {
    let mut done = [0; 2];
    let mut stops = [None; 2];
    loop {
        let mut moved = false;
        for end in 0..2 {
            let (runs, other) = (&ends[end].end.runs, ends[1 - end]);
            stops[end] = None;
            while let Some(run) = runs.get(done[end]) {
                match found[end].last(&run.handler) {
                    None => {}
                    Some(Ok(number)) if sent(other, number) < done[1 - end] as u64 => {}
                    Some(Ok(number)) => {
                        stops[end] =
                            Some(match sent(other, number) < other.end.runs.len() as u64 {
                                true => Lost::Circle,
                                false => Lost::Behind,
                            });
                        break;
                    }
                    Some(Err(lost)) => {
                        stops[end] = Some(lost);
                        break;
                    }
                }
                done[end] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let waits = |it: &Option<Lost>| matches!(it, Some(Lost::Circle | Lost::Behind));
    let reason = (0..2).find(|end| stops[*end].is_some() && !waits(&stops[*end]));
    let reason = reason.or_else(|| (0..2).find(|end| stops[*end].is_some()));
    (done, reason.and_then(|end| Some((end, stops[end]?))))
}

/// The run that sent it.
fn sent(end: &OneSided, number: u32) -> u64 {
    end.sent.get(number as usize).map_or(u64::MAX, |it| it.run)
}

/// The first runs of an end, with packets' numbers among those that the other end sent.
pub(super) fn named(one_sided: &OneSided, found: &Matches, limit: usize) -> End {
    let mut end = cut(&one_sided.end, limit);
    for run in &mut end.runs {
        let Some(Ok(numbers)) = found.run(&run.handler) else {
            continue;
        };
        let mut numbers = numbers.iter().filter_map(|it| it.ok());
        let Handler::Packet { number, merged, .. } = &mut run.handler else {
            continue;
        };
        let Some(first) = numbers.next() else {
            continue;
        };
        (*number, *merged) = (first, 1);
        let mut more = 0;
        for other in numbers {
            let further = other.wrapping_sub(first);
            if more == 0 && further == u32::from(*merged) {
                *merged += 1;
                continue;
            }
            run.outcomes.push(Outcome::Merged {
                place: more,
                further,
            });
            more += 1;
        }
    }
    end
}
