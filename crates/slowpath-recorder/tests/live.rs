// SPDX-License-Identifier: Apache-2.0
//! What is joined piece by piece is what is joined at the end.

use proptest::prelude::*;
use slowpath_recorder::ring::{Joins, Update};
use slowpath_recorder::stock::{Host, Joiner, Live, wire};
use slowpath_recording::{End, Moment};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use zerocopy::FromZeros;

mod events;
use events::Raw;
use events::kind::{GONE, OPEN, REQUEST, SETTINGS};

/// A second.
const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
struct Event {
    at: u64,
    socket: u64,
    task: u32,
    kind: u8,
    what: u8,
    owned: bool,
    /// IPv4's, own and peer's.
    addresses: [u32; 2],
    words: [u32; 4],
    like: u32,
    lost: u32,
    state: bool,
}

impl Event {
    /// As it lies in the recorder's bytes.
    fn bytes(&self, end: u8) -> Vec<u8> {
        // 250 ticks a second, which began 300 s before they wrap.
        let jiffies = (self.at / 4_000_000) as u32;
        let jiffies = jiffies.wrapping_sub(300 * 250);
        let mapped = |address| Ipv4Addr::from_bits(address).to_ipv6_mapped().octets();
        let found = wire::RawSocketSettings {
            mtu: 1500,
            usual: wire::UsualSysctls([1500; 12]),
            congestion: *b"cubic\0\0\0\0\0\0\0\0\0\0\0",
            ..wire::RawSocketSettings::new_zeroed()
        };
        let raw = Raw {
            at: self.at,
            socket: self.socket,
            jiffies,
            task: self.task,
            kind: self.kind,
            what: self.what,
            owned: self.owned,
            end,
            words: self.words,
            noted: jiffies,
            like: self.like,
            more: 0,
            lost: self.lost,
            state: if self.state { 7 } else { 0 },
            addresses: self.addresses.map(mapped),
            found: Some(found),
        };
        raw.bytes()
    }
}

/// Any event of one of the four sockets of two connections that begin and end at some time, with numbers that often fit each other.
fn event() -> impl Strategy<Value = Event> {
    let kinds = prop_oneof![8 => 2u8..=17, 1 => Just(19u8), 1 => 22u8..=25];
    let words = (
        0u32..6,
        0u32..3,
        0u32..3,
        prop_oneof![0u32..6, Just(0x0200_0000)],
    );
    (
        1u64..5,
        0u32..3,
        kinds,
        0u8..9,
        any::<(bool, bool)>(),
        words,
        // Over IPv6, or not.
        0u32..6,
    )
        .prop_map(
            |(socket, task, kind, what, (owned, state), (a, b, c, d), like)| Event {
                socket,
                task,
                kind,
                what,
                owned,
                state,
                words: [a, b, c, d],
                like,
                ..Event::default()
            },
        )
}

/// The events of two connections from their opening to their end.
fn story(middle: Vec<Event>, losing: Option<usize>) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut at = 5 * SECOND;
    let mut push = |event: Event, end| {
        at += 1_000_000;
        events.push(Event { at, ..event }.bytes(end));
    };
    for pair in [0, 1u32] {
        // What has the end's own address first: `addresses` of the joiner.
        let port = 4000 + pair;
        let client = [0, 0, port, u32::from(5000u16.to_be())];
        let server = [0, 0, 5000, u32::from((port as u16).to_be())];
        let first = 1 + 2 * u64::from(pair);
        for (kind, socket, end, words) in [
            (OPEN, first, 0, client),
            (SETTINGS, first, 0, [0; 4]),
            (REQUEST, 0, 1, server),
            (OPEN, first + 1, 1, server),
            (SETTINGS, first + 1, 1, [0; 4]),
        ] {
            push(
                Event {
                    kind,
                    socket,
                    words,
                    addresses: if end == 0 { [1, 2] } else { [2, 1] },
                    ..Event::default()
                },
                end,
            );
        }
    }
    let count = middle.len();
    for (place, mut event) in middle.into_iter().enumerate() {
        event.lost =
            u32::from(losing.is_some_and(|from| place >= from % count && event.socket == 1));
        push(event, 0);
    }
    for socket in 1..5 {
        let lost = u32::from(losing.is_some() && socket == 1);
        push(
            Event {
                kind: GONE,
                socket,
                lost,
                ..Event::default()
            },
            0,
        );
    }
    events
}

/// The ends of the connections, assembled from all updates.
fn assembled(events: &[Vec<u8>], pauses: &[bool]) -> (BTreeMap<u64, [End; 2]>, Vec<[End; 2]>) {
    let mut live = Live::new(true);
    let mut all = Vec::new();
    let mut early = Vec::new();
    let lost = 0;
    for (place, event) in events.iter().enumerate() {
        live.take(event).expect("an event");
        if pauses[place % pauses.len()] {
            live.settle(Moment(6 * SECOND), lost, &mut all);
        }
        if place + 1 == events.len() {
            live.settle(Moment(6 * SECOND), lost, &mut all);
            early = (1..3).filter_map(|number| live.rest(number)).collect();
        }
    }
    live.settle(Moment(60 * SECOND), lost, &mut all);
    assert!(live.sockets().is_empty() && live.rest(1).is_none());
    let mut ends: BTreeMap<u64, [End; 2]> = BTreeMap::new();
    for it in all {
        match it {
            Update::Opened { number, .. } => {
                assert!(ends.insert(number, Default::default()).is_none());
            }
            Update::Runs { number, end, runs } => {
                ends.get_mut(&number).expect("opened")[end]
                    .runs
                    .extend(runs);
            }
            Update::Closed { number, ends: last } => {
                let known = ends.get_mut(&number).expect("opened");
                for (known, last) in known.iter_mut().zip(last) {
                    let runs = [known.runs.clone(), last.runs.clone()].concat();
                    *known = End { runs, ..last };
                }
            }
            Update::Half { .. } | Update::OneSided { .. } | Update::Packets { .. } => {}
        }
    }
    (ends, early)
}

proptest! {
    #[test]
    fn pieces_are_the_whole(
        middle in prop::collection::vec(event(), 1..300),
        pauses in prop::collection::vec(prop::bool::weighted(0.2), 1..40),
        losing in prop::option::weighted(0.3, any::<usize>()),
    ) {
        let events = story(middle, losing);
        let mut joiner = Joiner::default();
        joiner.take(&events.concat()).expect("events");
        let whole = joiner.finish(Host { hystart: true, ..Host::default() });
        prop_assert_eq!(whole.recording.connections.len(), 2);
        let (pieces, early) = assembled(&events, &pauses);
        for (connection, ends) in whole.recording.connections.iter().zip(pieces.values()) {
            prop_assert_eq!(&connection.ends, ends);
        }
        // What was left when the last event had come ends the same runs.
        for (connection, rest) in whole.recording.connections.iter().zip(early) {
            for (end, rest) in connection.ends.iter().zip(rest) {
                prop_assert!(end.runs.ends_with(&rest.runs));
                prop_assert_eq!((end.digest, end.gap, end.lost), (rest.digest, rest.gap, rest.lost));
            }
        }
    }
}

/// Losses whose socket is not known end the runs of every open connection there, where they were last known to be complete.
#[test]
fn a_loss_of_an_unknown_socket_ends_the_runs_of_all() {
    let middle = |task| Event {
        kind: 2,
        what: 5,
        task,
        socket: 1,
        ..Event::default()
    };
    let locked = |task| Event {
        kind: 4,
        task,
        socket: 1,
        state: true,
        ..Event::default()
    };
    let released = |task| Event {
        kind: 5,
        task,
        socket: 1,
        state: true,
        ..Event::default()
    };
    let returned = |task| Event {
        kind: 3,
        task,
        socket: 1,
        ..Event::default()
    };
    let mut events = story(
        (1..9)
            .flat_map(|task| [middle(task), locked(task), released(task), returned(task)])
            .collect(),
        None,
    );
    events.truncate(events.len() - 4);
    let mut live = Live::new(true);
    let mut updates = Vec::new();
    let (before, after) = events.split_at(10 + 16);
    live.take(&before.concat()).expect("events");
    live.settle(Moment(6 * SECOND), 0, &mut updates);
    live.take(&after.concat()).expect("events");
    live.settle(Moment(7 * SECOND), 1, &mut updates);
    let handed: usize = updates
        .iter()
        .map(|it| match it {
            Update::Runs {
                number: 1,
                end: 0,
                runs,
            } => runs.len(),
            _ => 0,
        })
        .sum();
    let [client, _] = live.rest(1).expect("lives");
    // Four calls before the last time that all was well.
    assert_eq!(handed + client.runs.len(), 4);
    assert_eq!(client.gap, Some(4));
    // Later ones change nothing more.
    live.settle(Moment(8 * SECOND), 1, &mut updates);
    assert_eq!(live.rest(1).expect("lives")[0].gap, Some(4));
}

/// A socket whose peer is elsewhere is given back as soon as that shows, and handshakes that come to nothing are forgotten.
#[test]
fn halves_and_handshakes_are_not_kept() {
    let mut live = Live::new(true);
    let mut updates = Vec::new();
    let opened = Event {
        at: SECOND,
        kind: OPEN,
        socket: 9,
        words: [1, 2, 4000, 5],
        ..Event::default()
    };
    live.take(&opened.bytes(0)).expect("an event");
    live.settle(Moment(SECOND), 0, &mut updates);
    assert!(updates.is_empty());
    // A packet that no socket here has sent.
    let packet = Event {
        at: SECOND,
        kind: 10,
        socket: 9,
        words: [7, 0, 0, 0x0010_0001],
        ..Event::default()
    };
    live.take(&packet.bytes(0)).expect("an event");
    live.settle(Moment(SECOND), 0, &mut updates);
    assert_eq!(
        updates,
        [Update::Half {
            socket: 9,
            lives: true
        }]
    );
    assert!(live.sockets().is_empty());
    for port in 0..6_000 {
        let asked = Event {
            at: SECOND,
            kind: REQUEST,
            words: [1, 2, port, 5],
            ..Event::default()
        };
        live.take(&asked.bytes(1)).expect("an event");
    }
    updates.clear();
    live.settle(Moment(2 * SECOND), 0, &mut updates);
    live.settle(Moment(200 * SECOND), 0, &mut updates);
    assert!(updates.is_empty());
}
