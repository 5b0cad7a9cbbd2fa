// SPDX-License-Identifier: Apache-2.0
//! Runs as patterns by number: what handler it was, with which numbers and outcomes.
//!
//! A handler is its kind and at most three numbers. A pattern fixes all of them, or leaves the last ones open; what is open stands beside each run. So
//! a call that is made a thousand times with the same size and flags is one pattern, and one that gives another number of bytes each time is a pattern
//! whose result is open.

use super::MAX_EVENTS;
use super::column::{Column, Reading, Writing};
use super::model::{self, COMMON as COMMON_PLACES, Model};
use crate::error::Nonsense;
use crate::varint::{Bytes, put, unzigzag, zigzag};
use crate::{Decision, Handler, Outcome, Run, Timer};
use std::collections::HashMap;

/// Fewer runs than this do not make a pattern of their own.
const COMMON: usize = 4;
/// Outcomes that one run has at most.
pub(crate) const MAX_OUTCOMES: usize = 1 << 16;

const FLAG_MARKED: u64 = 1;
const FLAG_BACKLOG: u64 = 2;

/// A handler without the packet's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Plain {
    kind: u8,
    numbers: [u64; 3],
}

/// How a call ended, small for what is usual: 0 when it did all.
fn result(bytes: u32, result: i32) -> u64 {
    if i64::from(result) == i64::from(bytes) {
        return 0;
    }
    1 + zigzag(result.into())
}

fn result_of(bytes: u32, number: u64) -> Result<i32, Nonsense> {
    let value = match number.checked_sub(1) {
        None => bytes.into(),
        Some(number) => unzigzag(number),
    };
    narrow(value)
}

/// How much was asked for, and what came back.
fn call(kind: usize, left: &mut Left, more: u64, result: u64) -> Result<(u32, i32), Nonsense> {
    let bytes = narrow(i128::from(left.0[kind]) + i128::from(unzigzag(more)))?;
    let result = result_of(bytes, result)?;
    left.of(kind, bytes, result);
    Ok((bytes, result))
}

fn narrow<N, T: TryFrom<N>>(number: N) -> Result<T, Nonsense> {
    T::try_from(number).map_err(|_| Nonsense::Large { what: "runs" })
}

const TIMERS: [Timer; 6] = Timer::ALL;

const NO_YES: [bool; 2] = [false, true];

/// The place in a table that lists every value.
fn place<T: PartialEq>(table: &[T], value: &T) -> u64 {
    table.iter().position(|other| other == value).unwrap_or(0) as u64
}

fn at<T: Copy>(table: &[T], place: u64, what: &'static str) -> Result<T, Nonsense> {
    let found = usize::try_from(place).ok().and_then(|p| table.get(p));
    found.copied().ok_or(Nonsense::Unknown {
        what,
        number: place,
    })
}

/// What calls before left to do: who could not send all of it sends the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left([u32; 2]);

impl Left {
    fn of(&mut self, kind: usize, bytes: u32, result: i32) -> i64 {
        let done = u32::try_from(result).unwrap_or(0);
        let left = std::mem::replace(&mut self.0[kind], bytes.saturating_sub(done));
        left.into()
    }
}

const SEND: usize = 0;
const RECEIVE: usize = 1;

impl Plain {
    pub(super) fn of(handler: &Handler, left: &mut Left) -> Plain {
        let (kind, numbers) = match *handler {
            Handler::Connect => (0, [0; 3]),
            Handler::Accept => (1, [0; 3]),
            Handler::Begin { fresh } => (2, [fresh.into(), 0, 0]),
            Handler::Send {
                bytes,
                flags,
                result: r,
            } => {
                let more = i64::from(bytes) - left.of(SEND, bytes, r);
                (3, [flags.into(), zigzag(more), result(bytes, r)])
            }
            Handler::Receive {
                bytes,
                flags,
                result: r,
            } => {
                let more = i64::from(bytes) - left.of(RECEIVE, bytes, r);
                (4, [flags.into(), zigzag(more), result(bytes, r)])
            }
            Handler::Resume => (5, [0; 3]),
            Handler::Shutdown { how } => (6, [how.into(), 0, 0]),
            Handler::Close => (7, [0; 3]),
            Handler::Option { level, name, value } => {
                (8, [level.into(), name.into(), zigzag(value)])
            }
            Handler::Packet {
                marked,
                backlog,
                merged,
                truesize,
                ..
            } => {
                let flags = u64::from(marked) * FLAG_MARKED + u64::from(backlog) * FLAG_BACKLOG;
                (9, [flags, merged.into(), truesize.into()])
            }
            Handler::Timer { timer, deferred } => {
                (10, [place(&TIMERS, &timer), deferred.into(), 0])
            }
            Handler::SmallQueue => (11, [0; 3]),
            Handler::Release { flags } => (12, [flags.into(), 0, 0]),
        };
        Plain { kind, numbers }
    }

    /// The handler; `number` gives a packet's number, from how many were merged.
    pub(super) fn handler(
        self,
        left: &mut Left,
        number: impl FnOnce(u16) -> Result<u32, Nonsense>,
    ) -> Result<Handler, Nonsense> {
        let [a, b, c] = self.numbers;
        Ok(match self.kind {
            0 => Handler::Connect,
            1 => Handler::Accept,
            2 => Handler::Begin {
                fresh: at(&NO_YES, a, "a beginning's flag")?,
            },
            3 => {
                let (bytes, result) = call(SEND, left, b, c)?;
                Handler::Send {
                    bytes,
                    flags: narrow(a)?,
                    result,
                }
            }
            4 => {
                let (bytes, result) = call(RECEIVE, left, b, c)?;
                Handler::Receive {
                    bytes,
                    flags: narrow(a)?,
                    result,
                }
            }
            5 => Handler::Resume,
            6 => Handler::Shutdown { how: narrow(a)? },
            7 => Handler::Close,
            8 => Handler::Option {
                level: narrow(a)?,
                name: narrow(b)?,
                value: unzigzag(c),
            },
            9 => {
                if a > FLAG_MARKED + FLAG_BACKLOG {
                    return Err(Nonsense::Unknown {
                        what: "a packet's flags",
                        number: a,
                    });
                }
                let merged = narrow(b)?;
                Handler::Packet {
                    number: number(merged)?,
                    marked: a & FLAG_MARKED != 0,
                    backlog: a & FLAG_BACKLOG != 0,
                    merged,
                    truesize: narrow(c)?,
                }
            }
            10 => Handler::Timer {
                timer: at(&TIMERS, a, "timer")?,
                deferred: at(&NO_YES, b, "a timer's flag")?,
            },
            11 => Handler::SmallQueue,
            12 => Handler::Release { flags: narrow(a)? },
            kind => {
                return Err(Nonsense::Unknown {
                    what: "handler",
                    number: kind.into(),
                });
            }
        })
    }
}

fn put_outcomes(outcomes: &[Outcome], out: &mut Vec<u8>) {
    put(out, outcomes.len() as u64);
    for outcome in outcomes {
        put(out, outcome.decision().number().into());
        for number in outcome.numbers() {
            put(out, number.into());
        }
    }
}

fn outcomes_of(bytes: &mut Bytes<'_>) -> Result<Vec<Outcome>, Nonsense> {
    let count = bytes.number()?;
    if count > MAX_OUTCOMES as u64 {
        return Err(Nonsense::Frame);
    }
    let mut outcomes = Vec::new();
    for _ in 0..count {
        let decision = at(&Decision::ALL, bytes.number()?, "decision")?;
        let (first, second) = (bytes.narrow()?, bytes.narrow()?);
        let outcome = Outcome::from_numbers(decision, first, second);
        outcomes.push(outcome.ok_or(Nonsense::Unknown {
            what: "what was decided",
            number: first.into(),
        })?);
    }
    Ok(outcomes)
}

/// What a pattern leaves open: how many of the numbers, from the last, and whether the outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Open {
    numbers: u8,
    outcomes: bool,
}

/// From what fixes all to what fixes nothing but the kind. A run gets the first that enough runs share.
const OPENINGS: [Open; 5] = [
    Open {
        numbers: 0,
        outcomes: false,
    },
    Open {
        numbers: 1,
        outcomes: false,
    },
    Open {
        numbers: 2,
        outcomes: false,
    },
    Open {
        numbers: 3,
        outcomes: false,
    },
    Open {
        numbers: 3,
        outcomes: true,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key<'a> {
    plain: Plain,
    open: Open,
    /// Ordered and compared as their numbers.
    outcomes: &'a [Outcome],
}

impl<'a> Key<'a> {
    fn of(plain: Plain, outcomes: &'a [Outcome], open: Open) -> Key<'a> {
        let mut plain = plain;
        for number in plain.numbers.iter_mut().rev().take(open.numbers.into()) {
            *number = 0;
        }
        let outcomes = if open.outcomes { &[] } else { outcomes };
        Key {
            plain,
            open,
            outcomes,
        }
    }
}

/// Where open numbers stand, by their place.
const NUMBERS: [Column; 3] = [Column::First, Column::Second, Column::Third];

/// Appends the runs of all these pieces.
pub(super) fn put_shapes<'a>(pieces: impl Iterator<Item = &'a [Run]>, out: &mut Writing) {
    let mut plain: Vec<(Plain, &[Outcome])> = Vec::new();
    for runs in pieces {
        let mut left = Left::default();
        let shapes = runs
            .iter()
            .map(|run| (Plain::of(&run.handler, &mut left), run.outcomes.as_slice()));
        plain.extend(shapes);
    }
    let mut keys: Vec<Option<Key<'_>>> = vec![None; plain.len()];
    let mut uses: HashMap<Key<'_>, usize> = HashMap::new();
    for (level, open) in OPENINGS.into_iter().enumerate() {
        let mut counts: HashMap<Key<'_>, usize> = HashMap::new();
        for ((plain, outcomes), key) in plain.iter().zip(&keys) {
            if key.is_none() {
                *counts.entry(Key::of(*plain, outcomes, open)).or_default() += 1;
            }
        }
        let last = level + 1 == OPENINGS.len();
        counts.retain(|_, count| last || *count >= COMMON);
        for ((plain, outcomes), key) in plain.iter().zip(&mut keys) {
            let with = Key::of(*plain, outcomes, open);
            if key.is_none() && counts.contains_key(&with) {
                *key = Some(with);
            }
        }
        uses.extend(counts);
    }
    let mut patterns: Vec<(Key<'_>, usize)> = uses.into_iter().collect();
    patterns.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut places = HashMap::new();
    for (place, (key, _)) in patterns.iter().enumerate() {
        places.insert(*key, place);
        put_pattern(key, &mut out[Column::Patterns]);
    }
    let (mut model, mut coder) = (Model::new(), model::Encoder::new());
    for ((plain, outcomes), key) in plain.iter().zip(&keys) {
        // Every run got a key at the last level at the latest.
        let Some((key, place)) = key.and_then(|key| Some((key, *places.get(&key)?))) else {
            continue;
        };
        for place in 3 - usize::from(key.open.numbers)..3 {
            put(&mut out[NUMBERS[place]], plain.numbers[place]);
        }
        if key.open.outcomes {
            put_outcomes(outcomes, &mut out[Column::Outcomes]);
        }
        model.encode(place, &mut coder);
        if let Some(rare) = place.checked_sub(COMMON_PLACES) {
            put(&mut out[Column::Rare], rare as u64);
        }
    }
    if !plain.is_empty() {
        out[Column::Which] = coder.finish();
    }
}

fn put_pattern(key: &Key<'_>, out: &mut Vec<u8>) {
    let head = key.plain.kind | key.open.numbers << 4 | u8::from(key.open.outcomes) << 6;
    out.push(head);
    for number in &key.plain.numbers[..3 - usize::from(key.open.numbers)] {
        put(out, *number);
    }
    if !key.open.outcomes {
        put_outcomes(key.outcomes, out);
    }
}

#[derive(Clone, Debug)]
struct Pattern {
    plain: Plain,
    open: Open,
    outcomes: Vec<Outcome>,
}

/// Gives runs from their columns.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    patterns: Vec<Pattern>,
    model: Model,
    /// Where there are runs.
    coder: Option<model::Decoder>,
    which: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the patterns.
    pub(super) fn new(from: &mut Reading<'a>) -> Result<Self, Nonsense> {
        let bytes = &mut from[Column::Patterns];
        let mut patterns = Vec::new();
        let mut events = 0;
        while bytes.len() > 0 {
            let head = bytes.byte()?;
            let open = Open {
                numbers: head >> 4 & 3,
                outcomes: head & 0x40 != 0,
            };
            let mut numbers = [0; 3];
            for number in &mut numbers[..3 - usize::from(open.numbers)] {
                *number = bytes.number()?;
            }
            let outcomes = match open.outcomes {
                true => Vec::new(),
                false => outcomes_of(bytes)?,
            };
            events += 1 + outcomes.len();
            if events > MAX_EVENTS {
                return Err(Nonsense::Frame);
            }
            let plain = Plain {
                kind: head & 0xf,
                numbers,
            };
            patterns.push(Pattern {
                plain,
                open,
                outcomes,
            });
        }
        let which = from[Column::Which].rest();
        let coder = match which {
            [] => None,
            some => Some(model::Decoder::new(some)?),
        };
        Ok(Reader {
            patterns,
            model: Model::new(),
            coder,
            which,
        })
    }

    /// The next run's handler, without its number, and outcomes.
    pub(super) fn run(
        &mut self,
        from: &mut Reading<'_>,
    ) -> Result<(Plain, Vec<Outcome>), Nonsense> {
        let coder = self.coder.as_mut().ok_or(Nonsense::Short {
            what: Column::Which.name(),
        })?;
        let mut place = self.model.decode(coder, self.which)?;
        if place == COMMON_PLACES {
            let rare: usize = from[Column::Rare].narrow()?;
            place = place.saturating_add(rare);
        }
        let pattern = self.patterns.get(place).ok_or(Nonsense::Unknown {
            what: "pattern",
            number: place as u64,
        })?;
        let mut plain = pattern.plain;
        for place in 3 - usize::from(pattern.open.numbers)..3 {
            plain.numbers[place] = from[NUMBERS[place]].number()?;
        }
        let outcomes = match pattern.open.outcomes {
            true => outcomes_of(&mut from[Column::Outcomes])?,
            false => pattern.outcomes.clone(),
        };
        Ok((plain, outcomes))
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Nonsense> {
        self.coder
            .as_ref()
            .map_or(Ok(()), |coder| coder.end(self.which))
    }
}
