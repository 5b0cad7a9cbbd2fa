// SPDX-License-Identifier: Apache-2.0
//! What is taken of each segment of each host.

use crate::decide::{Decision, Position, decide};
use crate::runs::{RunVerdict, Runs};
use slowpath_ship::batch::Batch;
use std::collections::{HashMap, VecDeque};

/// The most ended segments that are remembered of a host: 42 days of hourly ones. An agent must
/// not keep more that are acknowledged, or it would send the rest again after a server's restart.
pub const ENDED: usize = 1_024;
/// The most segments of a host that have not ended.
pub const LIVE: usize = 10_000;

/// A segment that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedSegment {
    /// Of its id.
    pub hash: u64,
    pub position: Position,
}

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostOffsets {
    pub live: HashMap<String, Position>,
    /// The oldest first.
    pub ended: VecDeque<EndedSegment>,
    pub runs: Runs,
}

impl HostOffsets {
    fn position(&self, segment: &str) -> Option<Position> {
        if let Some(position) = self.live.get(segment) {
            return Some(*position);
        }
        let hash = hash(segment);
        let of = self.ended.iter().rev().find(|ended| ended.hash == hash);
        of.map(|ended| ended.position)
    }

    pub(crate) fn end(&mut self, ended: EndedSegment) {
        if self.ended.len() >= ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }
}

/// What is taken of each segment of each host.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    hosts: HashMap<String, HostOffsets>,
    /// Ended segments that are not in the checkpoint yet.
    fresh: Vec<(String, EndedSegment)>,
}

/// What becomes of a batch of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// As decided, from this position.
    Decided(Position, Decision),
    /// Another process was there before under the same identity, and still is.
    Clone,
    /// The host has more than [`LIVE`] segments that have not ended.
    TooManySegments,
}

/// What a position was before, to take it back.
#[derive(Debug)]
pub(crate) struct Undo {
    host: String,
    segment: String,
    before: Option<Position>,
}

impl Offsets {
    /// Judges a batch of a host.
    pub fn judge(&mut self, host: &str, batch: &Batch) -> Judgement {
        let host = match self.hosts.get_mut(host) {
            Some(host) => host,
            None => self.hosts.entry(host.to_owned()).or_default(),
        };
        if host.runs.judge(batch.header.run) == RunVerdict::Clone {
            return Judgement::Clone;
        }
        let known = host.position(&batch.header.segment);
        if known.is_none() && host.live.len() >= LIVE {
            return Judgement::TooManySegments;
        }
        let known = known.unwrap_or_default();
        Judgement::Decided(known, decide(known, batch))
    }

    /// Up to where a segment is taken; the default of one that is not known.
    pub fn position(&self, host: &str, segment: &str) -> Position {
        let host = self.hosts.get(host);
        host.and_then(|host| host.position(segment))
            .unwrap_or_default()
    }

    /// The runs of a host.
    pub fn runs(&self, host: &str) -> Option<&Runs> {
        self.hosts.get(host).map(|host| &host.runs)
    }

    /// Moves a segment's position.
    pub fn take(&mut self, host: &str, segment: &str, then: Position) {
        self.replace(host, segment, then);
    }

    /// The same, and how to take it back.
    pub(crate) fn replace(&mut self, host: &str, segment: &str, then: Position) -> Undo {
        let of = self.hosts.entry(host.to_owned()).or_default();
        Undo {
            host: host.to_owned(),
            segment: segment.to_owned(),
            before: of.live.insert(segment.to_owned(), then),
        }
    }

    /// Takes moves back, the latest first.
    pub(crate) fn undo(&mut self, moves: Vec<Undo>) {
        for Undo {
            host,
            segment,
            before,
        } in moves.into_iter().rev()
        {
            let Some(host) = self.hosts.get_mut(&host) else {
                continue;
            };
            match before {
                Some(position) => drop(host.live.insert(segment, position)),
                None => drop(host.live.remove(&segment)),
            }
        }
    }

    /// Separates ended segments from those that go on; to be called when all is flushed.
    pub(crate) fn settle(&mut self) {
        for (name, host) in &mut self.hosts {
            if !host.live.values().any(|position| position.ended) {
                continue;
            }
            let all = host.live.iter();
            let ended = all.filter(|(_, position)| position.ended);
            let ended: Vec<_> = ended.map(|(id, at)| (id.clone(), *at)).collect();
            for (id, position) in ended {
                host.live.remove(&id);
                let segment = EndedSegment {
                    hash: hash(&id),
                    position,
                };
                host.end(segment);
                self.fresh.push((name.clone(), segment));
            }
        }
    }

    /// Ended segments that are not in the checkpoint yet.
    pub(crate) fn fresh(&self) -> &[(String, EndedSegment)] {
        &self.fresh
    }

    /// They are.
    pub(crate) fn forget_fresh(&mut self) {
        self.fresh.clear();
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&String, &HostOffsets)> {
        self.hosts.iter()
    }

    pub(crate) fn host(&mut self, name: &str) -> &mut HostOffsets {
        self.hosts.entry(name.to_owned()).or_default()
    }
}

/// FNV-1a of 64 bits (draft-eastlake-fnv), then splitmix64's finalizer.
fn hash(id: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut z = id.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
