// SPDX-License-Identifier: Apache-2.0
//! Makes a [`Recording`] of what BPF observed of a stock kernel's connections.
//!
//! What enters are the events of the probe `handlers`, in their order. What leaves are the runs of both ends of each connection: calls
//! cut where they gave the lock away, packets with their numbers, every clock that TCP read, and the memory that the device held. A packet is
//! recognised at its receiver by its IP identification, which one socket gives only once in 65,536 segments; over IPv6, which has none, by a number made of its TCP header.
//!
//! What is promised: whatever the bytes, no panic; events that fit nowhere are counted ([`Joined::unplaced`]), and an end
//! of which events were lost says so.

mod arrival;
mod bbr;
mod building;
mod call;
mod check;
mod child;
mod contention;
mod damaged;
mod event;
mod finals;
mod late;
mod likeness;
mod live;
mod one_sided;
mod options;
mod paced;
mod request;
mod run_log;
mod sent;
mod settings;
mod side;
pub mod wire;

pub use crate::updates::NotEvents;
pub use check::{check, mix};
pub(crate) use event::SocketSettings;
pub use live::Live;
pub(crate) use settings::settings;

use event::{Body, Event, Report, Stub, StubEvent};
use request::Request;
use side::{PeerView, Side};
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{Connection, End, MAX_EVENTS, Moment, Origin, Recording};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use wire::{Kind, Late};

/// The result of joining.
#[derive(Debug, Default)]
pub struct Joined {
    /// Connections of which both ends were observed, and ends whose other end is on another machine.
    pub recording: Recording,
    /// Events that fit nowhere.
    pub unplaced: u64,
    /// Connections of which only one end was observed, and too little of that.
    pub halves: u64,
    /// The state after each run, by connection and end: what its check was made from.
    pub states: Vec<[Vec<SocketFields>; 2]>,
}

/// What the events themselves do not say.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Who recorded, and where; without ticks a second these are taken from the events.
    pub origin: Origin,
    /// The module's parameter of CUBIC.
    pub hystart: bool,
    /// Events that the recorder lost, in all.
    pub lost: u64,
}

#[derive(Default)]
struct Pair {
    addresses: Option<[SocketAddr; 2]>,
    ends: [Option<Side>; 2],
    sockets: [u64; 2],
    request: Request,
    progress: live::Progress,
}

impl Pair {
    /// Whether its ends, or the only one, have found their peer to be on another machine.
    fn is_one_sided(&self) -> bool {
        self.ends.iter().flatten().any(Side::is_one_sided)
    }

    /// An end, and what is known of its peer.
    fn end(&mut self, end: usize) -> Option<(&mut Side, PeerView<'_>)> {
        let (own, other) = match (&mut self.ends, end) {
            ([a, b], 0) => (a, b),
            ([a, b], _) => (b, a),
        };
        let peer = PeerView {
            sent: other.as_ref().map(|side| &side.packets),
            one_sided: other.as_ref().is_some_and(Side::is_one_sided),
            request: &self.request,
        };
        Some((own.as_mut()?, peer))
    }
}

/// Joins events as they come.
#[derive(Default)]
pub struct Joiner {
    pairs: Vec<Pair>,
    /// Places among them that are empty.
    free: Vec<usize>,
    known: HashMap<[SocketAddr; 2], usize>,
    sockets: HashMap<u64, (usize, usize)>,
    unplaced: u64,
    events: u64,
    hz: Option<u32>,
    pairs_only: bool,
}

impl std::fmt::Debug for Joiner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Joiner").finish_non_exhaustive()
    }
}

/// Ticks a second: `jiffies` begin 300 s before their lower half wraps (`INITIAL_JIFFIES`).
fn ticks(at: u64, jiffies: u32) -> Option<u32> {
    let one_sided = |hz: u32| {
        let since = u128::from(at) * u128::from(hz) / 1_000_000_000;
        let expected = (since as u32).wrapping_sub(300 * hz);
        (jiffies.wrapping_sub(expected) as i32).unsigned_abs() / hz
    };
    let nearest = [100, 250, 300, 1000]
        .into_iter()
        .min_by_key(|hz| one_sided(*hz));
    nearest.filter(|hz| one_sided(*hz) < 60)
}

/// The two ends' addresses, the one that connected first: `end` is 0 for it.
pub(crate) fn client_first(end: u8, own: (IpAddr, u16), peer: (IpAddr, u16)) -> [SocketAddr; 2] {
    let ends = [own, peer].map(SocketAddr::from);
    if end == 0 { ends } else { [ends[1], ends[0]] }
}

impl Joiner {
    /// Ends whose other end is on another machine are left out.
    #[must_use]
    pub fn pairs_only(mut self) -> Self {
        self.pairs_only = true;
        self
    }

    /// Takes whole events.
    ///
    /// # Errors
    /// If they are none.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), NotEvents> {
        while !bytes.is_empty() {
            let (report, rest) = Report::read(bytes).ok_or(NotEvents)?;
            bytes = rest;
            self.events += 1;
            let (at, jiffies) = match &report {
                Report::Socket(event) => (event.at(), event.jiffies()),
                Report::Stub(stub) => (stub.at, stub.jiffies),
            };
            self.hz = self.hz.or_else(|| ticks(at, jiffies));
            if !self.place(&report) {
                self.unplaced += 1;
            }
        }
        Ok(())
    }

    /// Whether observed sockets still exist.
    pub fn is_busy(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// The connection with these addresses; another one with the same addresses if `used` says that this one is over.
    fn pair(&mut self, addresses: [SocketAddr; 2], used: impl Fn(&Pair) -> bool) -> usize {
        let known = self.known.get(&addresses).copied();
        match known.filter(|place| !used(&self.pairs[*place])) {
            Some(place) => place,
            None => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.pairs.push(Pair::default());
                    self.pairs.len() - 1
                });
                self.pairs[place].addresses = Some(addresses);
                self.known.insert(addresses, place);
                place
            }
        }
    }

    fn place(&mut self, report: &Report) -> bool {
        // As much as a recording's file may hold; what comes then is as if lost.
        if self.events > MAX_EVENTS {
            return false;
        }
        let event = match report {
            Report::Socket(event) => event,
            Report::Stub(stub) => match &stub.event {
                StubEvent::Late(late) => return self.time_wait(stub, late),
                _ => {
                    let place = self.pair(stub.addresses, |pair| pair.ends[1].is_some());
                    return self.pairs[place].request.take(stub);
                }
            },
        };
        match &event.body {
            Body::Opened(addresses) => {
                self.opened(event, *addresses);
                true
            }
            Body::Options(set) => self.options(event, set),
            _ => {
                let Some((place, end)) = self.sockets.get(&event.of.sk).copied() else {
                    return false;
                };
                let Some((own, peer)) = self.pairs[place].end(end) else {
                    return false;
                };
                let fits = own.take(event, peer);
                if event.kind == Kind::Gone {
                    self.sockets.remove(&event.of.sk);
                }
                fits
            }
        }
    }

    fn opened(&mut self, event: &Event, addresses: [SocketAddr; 2]) {
        let end = usize::from(event.of.head.end != 0);
        let place = self.pair(addresses, |pair| pair.ends[end].is_some());
        let pair = &mut self.pairs[place];
        let answers = pair.request.answers(event.at());
        pair.ends[end] = Some(Side::new(if end == 0 { 0 } else { answers }));
        pair.sockets[end] = event.of.sk;
        let before = self.sockets.insert(event.of.sk, (place, end));
        if let Some((place, end)) = before
            && let Some(side) = &mut self.pairs[place].ends[end]
            && !side.gone
        {
            // No event reported its end.
            side.cut();
            side.gone = true;
        }
    }

    /// Options that a program had set before the socket was recorded.
    fn options(&mut self, event: &Event, set: &wire::Set) -> bool {
        let hz = self.hz.unwrap_or(0);
        let found = self.sockets.get(&event.of.sk);
        let Some((place, end)) = found.copied() else {
            return false;
        };
        let name = |side: &Option<Side>| Some(side.as_ref()?.settings.as_ref()?.congestion.clone());
        let names = self.pairs[place].ends.each_ref().map(name);
        let Some((own, _)) = self.pairs[place].end(end) else {
            return false;
        };
        own.inherited = options::inherited(set, hz);
        if let (1, [Some(theirs), Some(ours)]) = (end, names)
            && theirs != ours
        {
            // A replay's sockets have the congestion control of the end that connects until an option sets another one.
            own.inherited.push(options::set_congestion(&ours));
            if let Some(settings) = &mut own.settings {
                settings.congestion = theirs;
            }
        }
        if end == 0 {
            let runs = own.inherited_runs(Moment(event.at()), event.jiffies());
            own.log.begin(runs);
        }
        true
    }

    /// A packet came after the socket.
    fn time_wait(&mut self, stub: &Stub, late: &wire::LatePacket) -> bool {
        let [peer, own] = stub.addresses;
        let found = [([own, peer], 0), ([peer, own], 1)]
            .into_iter()
            .find_map(|(pair, end)| Some((*self.known.get(&pair)?, end)));
        let found = found.and_then(|(place, end)| self.pairs[place].end(end));
        match found {
            Some((own, peer)) => own.time_wait(stub, late, peer),
            // No socket listens there.
            None => matches!(
                Late::from_raw(late.late),
                Some(Late::NoSocketReset | Late::NoSocketUnanswered)
            ),
        }
    }

    /// The connections.
    pub fn finish(self, host: Host) -> Joined {
        let mut joined = Joined {
            unplaced: self.unplaced,
            ..Joined::default()
        };
        let full = self.events > MAX_EVENTS;
        let ends = self
            .pairs
            .iter()
            .flat_map(|pair| pair.ends.iter().flatten());
        let attributed: u64 = ends.map(|side| u64::from(side.lost)).sum();
        // The socket of a lost event is not known: any that has not ended may lack it.
        let unattributed = host.lost > attributed || full;
        joined.recording.origin = host.origin;
        if joined.recording.origin.hz == 0 {
            joined.recording.origin.hz = self.hz.unwrap_or(0);
        }
        for pair in self.pairs {
            if pair.is_one_sided() && !self.pairs_only {
                joined.push_one_sided(pair, unattributed, host.hystart);
                continue;
            }
            let (Some(addresses), [Some(mut a), Some(mut b)]) = (pair.addresses, pair.ends) else {
                joined.halves += 1;
                continue;
            };
            let (Some(mine), Some(theirs)) = (a.settings.take(), b.settings.take()) else {
                joined.halves += 1;
                continue;
            };
            let mut states = [Vec::new(), Vec::new()];
            let mut place = 0;
            let ends = [a, b].map(|mut side| {
                if unattributed && !side.gone {
                    side.cut();
                }
                let (end, fields): (End, _) = side.end();
                states[place] = fields;
                place += 1;
                end
            });
            joined.states.push(states);
            joined.recording.connections.push(Connection {
                addresses,
                settings: settings([&mine, &theirs], host.hystart, joined.recording.origin.hz),
                ends,
                joint: None,
            });
        }
        joined
    }
}
