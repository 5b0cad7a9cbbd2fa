// SPDX-License-Identifier: Apache-2.0
//! Recordings of two machines, one end of a connection in each, become connections that can be replayed.
//!
//! What enters: recordings with one-sided ends ([`OneSided`]), by the names of their files. What leaves: connections with both ends, and why the remaining ends have no peer.
//!
//! 1. Two ends are of one connection if both have observed the same two initial sequence numbers: 64 random bits, which survive the translation of addresses.
//! 2. A packet that came is the one that the other end sent with this identification and sequence number (`packets`). What was sent and never came was lost.
//! 3. Runs behind a packet that the other recording does not have are left out, and whatever depends on them: what is left is what both files know.
//! 4. Each end keeps its own clock. What one is to the other follows from the packets each way (`clocks`); a replay needs only that nothing comes before it was sent.
//!
//! What is promised: nothing is joined on a guess, and an end whose sequence numbers were rewritten on the way stays one-sided. No I/O.

mod clocks;
mod packets;

pub use packets::Lost;
use packets::Matches;
use slowpath_recording::{Clock, Connection, End, Joint, OneSided, Origin, Recording, Settings};
use std::collections::BTreeMap;

/// What became of recordings.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// Connections that were joined; of a single recording also those that had both ends already, before them.
    pub recording: Recording,
    /// Those of which the end is missing, by their place.
    pub short: Vec<(usize, Short)>,
    /// Ends that remain one-sided.
    pub unmatched: Vec<Unmatched>,
    /// Connections with both ends in one of several recordings, which are replayed from that recording only: by place of the recording.
    pub whole: Vec<(usize, usize)>,
    /// The ends' kernels, where they differ.
    pub kernels: Option<[String; 2]>,
}

/// A connection that was joined up to some runs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Runs that are there of each end, and that there were.
    pub runs: [(u64, u64); 2],
    /// Why not more: which end, and what it got next.
    pub end: usize,
    /// What that is.
    pub why: Lost,
}

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(a, all_a), (b, all_b)] = self.runs;
        let end = side(self.end);
        write!(
            f,
            "joined up to run {a} of {all_a} of the client and {b} of {all_b} of the server: then the {end} got {}",
            self.why
        )
    }
}

/// An end that remains one-sided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// The recording's place among those given.
    pub file: usize,
    /// Its number there: connections come first.
    pub number: usize,
    /// Why.
    pub why: Why,
}

/// Why two ends are not joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No other end has these initial sequence numbers.
    #[error(
        "no recording here has its other end: that of the machine of the {} is needed, from before the connection was opened", side(*other)
    )]
    Missing {
        /// Which end that is.
        other: usize,
    },
    /// An end with the same addresses has other ones.
    #[error(
        "recording {file} has the other end's addresses, but not its initial sequence numbers: it is another connection, or a proxy between them rewrites the numbers, which cannot be joined"
    )]
    Rewritten {
        /// The other recording's place.
        file: usize,
    },
    /// The same end is there more than once.
    #[error("it is there more than once, also in recording {file}: give each recording once")]
    Twice {
        /// The other recording's place.
        file: usize,
    },
    /// They cannot be replayed on one kernel.
    #[error("the machines have {0} and {1} ticks a second: one kernel cannot replay both ends")]
    Ticks(u32, u32),
    /// Both initial sequence numbers are the same, and nothing else.
    #[error(
        "its other end in recording {file} has the same initial sequence numbers, but their packets do not fit: {why}"
    )]
    Other {
        /// The other recording's place.
        file: usize,
        /// What came first.
        why: Lost,
    },
    /// Events are missing.
    #[error("its {} is not replayable after event {after}: events are missing there", side(*end))]
    Gap {
        /// Which end.
        end: usize,
        /// Number of those before it.
        after: u64,
    },
}

/// `client` or `server`.
pub(crate) fn side(end: usize) -> &'static str {
    if end == 0 { "client" } else { "server" }
}

/// Where an end is.
#[derive(Clone, Copy)]
struct EndPosition<'a> {
    file: usize,
    number: usize,
    one_sided: &'a OneSided,
}

impl EndPosition<'_> {
    fn unmatched(&self, why: Why) -> Unmatched {
        Unmatched {
            file: self.file,
            number: self.number,
            why,
        }
    }
}

/// Joins the ends of each connection. The time of the result is the first recording's.
pub fn join(recordings: &[Recording]) -> Joined {
    let mut joined = Joined::default();
    let Some(first) = recordings.first() else {
        return joined;
    };
    joined.recording.origin = first.origin.clone();
    if let [single] = recordings {
        joined.recording.connections.clone_from(&single.connections);
    } else {
        let whole = recordings.iter().map(|it| it.connections.len()).enumerate();
        joined.whole = whole.filter(|(_, count)| *count > 0).collect();
    }
    let all = all(recordings);
    let mut known: BTreeMap<[Option<u32>; 2], [Vec<usize>; 2]> = BTreeMap::new();
    for (place, it) in all.iter().enumerate() {
        known.entry(it.one_sided.initial).or_default()[it.one_sided.side & 1].push(place);
    }
    for (initial, sides) in &known {
        let unmatched = match sides.each_ref().map(Vec::as_slice) {
            [&[a], &[b]] if initial.iter().all(Option::is_some) => {
                let both = [all[a], all[b]];
                match two(both, recordings) {
                    Ok((connection, short)) => {
                        joined.add(connection, short, both, recordings);
                        continue;
                    }
                    Err(why) => both.map(|it| it.unmatched(why(it))).to_vec(),
                }
            }
            [&[], &[b]] => vec![all[b].unmatched(missing(&all[b], &all))],
            [&[a], &[]] => vec![all[a].unmatched(missing(&all[a], &all))],
            _ => twice(sides, &all),
        };
        joined.unmatched.extend(unmatched);
    }
    joined.unmatched.sort_by_key(|it| (it.file, it.number));
    joined
}

fn all(recordings: &[Recording]) -> Vec<EndPosition<'_>> {
    let all = recordings.iter().enumerate().flat_map(|(file, recording)| {
        let numbered = (recording.connections.len()..).zip(&recording.one_sided);
        numbered.map(move |(number, one_sided)| EndPosition {
            file,
            number,
            one_sided,
        })
    });
    all.collect()
}

/// Why there is no other one.
fn missing(it: &EndPosition<'_>, all: &[EndPosition<'_>]) -> Why {
    let other = 1 - (it.one_sided.side & 1);
    let same = all.iter().find(|that| {
        that.one_sided.side & 1 == other && that.one_sided.addresses == it.one_sided.addresses
    });
    match same {
        Some(that) => Why::Rewritten { file: that.file },
        None => Why::Missing { other },
    }
}

fn twice(sides: &[Vec<usize>; 2], all: &[EndPosition<'_>]) -> Vec<Unmatched> {
    let mut unmatched = Vec::new();
    for (side, places) in sides.iter().enumerate() {
        for place in places {
            let it = all[*place];
            let again = places.iter().find(|other| *other != place);
            // It is not known which of the two the other end belongs to.
            let again = again.or_else(|| sides[1 - side].first());
            let file = again.map_or(it.file, |again| all[*again].file);
            unmatched.push(it.unmatched(Why::Twice { file }));
        }
    }
    unmatched
}

type Refusal = Box<dyn Fn(EndPosition<'_>) -> Why>;

/// Joins two ends with the same initial sequence numbers.
fn two(
    both: [EndPosition<'_>; 2],
    recordings: &[Recording],
) -> Result<(Connection, Option<Short>), Refusal> {
    let origins = both.map(|it| &recordings[it.file].origin);
    let hz = origins.map(|origin| origin.hz);
    if hz[0] != hz[1] {
        return Err(Box::new(move |_| Why::Ticks(hz[0], hz[1])));
    }
    let ends = both.map(|it| it.one_sided);
    for (end, it) in ends.iter().enumerate() {
        if let Some(after) = it.end.gap {
            return Err(Box::new(move |_| Why::Gap { end, after }));
        }
    }
    let [mut a, mut b] = [Matches::of(ends[0], ends[1]), Matches::of(ends[1], ends[0])];
    a.choose(ends[0], ends[1], &b);
    b.choose(ends[1], ends[0], &a);
    let found = [a, b];
    let (limits, reason) = packets::known(&ends, &found);
    let files = both.map(|it| it.file);
    // The handshake is not enough.
    if let (Some((_, why)), true) = (reason, limits.iter().any(|limit| *limit < 2)) {
        return Err(Box::new(move |it| Why::Other {
            file: files[1 - (it.one_sided.side & 1)],
            why,
        }));
    }
    let all = ends.map(|it| it.end.runs.len());
    let [a, b] = [0, 1].map(|end| packets::named(ends[end], &found[end], limits[end]));
    let mut connection = Connection {
        addresses: ends[0].addresses,
        settings: settings(ends),
        ends: [a, b],
        joint: None,
    };
    let (clock, within) = clocks::between(&ends, &found, limits);
    connection.joint = Some(Joint {
        clocks: [Clock::default(), clock],
        within,
    });
    let short = reason.map(|(end, why)| Short {
        runs: [0, 1].map(|end| (limits[end] as u64, all[end] as u64)),
        end,
        why,
    });
    Ok((connection, short))
}

fn settings(ends: [&OneSided; 2]) -> Settings {
    Settings {
        sysctls: ends.map(|it| it.sysctls.clone()),
        socket: ends.map(|it| it.socket.clone()),
        mtu: ends.map(|it| it.mtu),
    }
}

impl Joined {
    fn add(
        &mut self,
        mut connection: Connection,
        short: Option<Short>,
        both: [EndPosition<'_>; 2],
        recordings: &[Recording],
    ) {
        let origin = |it: EndPosition<'_>| -> &Origin { &recordings[it.file].origin };
        let [client, server] = both.map(origin);
        if client.kernel != server.kernel {
            self.kernels = Some([client.kernel.clone(), server.kernel.clone()]);
        }
        // By the wall clocks, since nothing else joins what did not talk.
        let separate = client.epoch.saturating_sub(self.recording.origin.epoch);
        for clock in connection.joint.iter_mut().flat_map(|it| &mut it.clocks) {
            clock.offset = clock.offset.saturating_add(separate);
        }
        let place = self.recording.connections.len();
        self.short.extend(short.map(|short| (place, short)));
        self.recording.connections.push(connection);
    }
}

/// An end with its packets named; a longer one is cut.
fn cut(end: &End, limit: usize) -> End {
    let whole = limit == end.runs.len();
    End {
        runs: end.runs[..limit].to_vec(),
        digest: if whole { end.digest } else { 0 },
        ..end.clone()
    }
}
