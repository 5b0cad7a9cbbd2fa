// SPDX-License-Identifier: Apache-2.0
//! The same events as two machines would have recorded them: each its own end, by its own clock. Joined, they are the connections that one recorder of both ends made of them.

use slowpath_recorder::join::{Joined, join};
use slowpath_recorder::ring::{Options, Ring};
use slowpath_recorder::stock::wire::{self, Kind};
use slowpath_recorder::stock::{Host, Joiner, Live};
use slowpath_recording::{self as recording, Handler, Moment, Outcome, Recording, Run};
use std::collections::HashMap;
use std::mem::offset_of;
use std::net::Ipv6Addr;

/// Of every event.
const AT: usize = offset_of!(wire::Head, at);

fn kind(event: &[u8]) -> Kind {
    Kind::from_raw(event[offset_of!(wire::Head, kind)]).expect("a kind")
}

/// What has no socket.
fn is_stub(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::RequestPacket | Kind::RequestTimer | Kind::RequestAnswered | Kind::LatePacket
    )
}

/// Where an event has its socket's own address and its peer's, of IPv6.
fn own_address(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Opened => Some(offset_of!(wire::Opened, addresses)),
        kind if is_stub(kind) => Some(offset_of!(wire::Stub, addresses)),
        _ => None,
    }
}

/// Where it has what TCP's clock read.
fn tcp_clock(kind: Kind) -> Option<usize> {
    match kind {
        Kind::RequestAnswered => Some(offset_of!(wire::RequestAnswered, clock)),
        kind if is_stub(kind) => None,
        _ => Some(offset_of!(wire::Event, clock)),
    }
}

/// What the accepting end's clock is ahead: 5 hours and some. A whole number of ms, as its timestamps count.
pub const AHEAD: u64 = 5 * 3_600_000_000_000 + 123_000_000;

/// The client's and the server's addresses in `stock.sh`, and the client's as the server sees them.
const CLIENT: [&str; 2] = ["::ffff:10.0.0.1", "fd00:5::1"];
const SERVER: [&str; 2] = ["::ffff:10.0.0.2", "fd00:5::2"];
const TRANSLATED: [&str; 2] = ["::ffff:192.0.2.77", "2001:db8::77"];

fn octets(text: &str) -> [u8; 16] {
    let address: Ipv6Addr = text.parse().expect("an address");
    address.octets()
}

fn long(event: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*event[at..].first_chunk().expect("eight bytes"))
}

fn later(event: &mut [u8], at: usize, by: u64) {
    let time = long(event, at);
    if time > 0 {
        event[at..at + 8].copy_from_slice(&(time + by).to_le_bytes());
    }
}

/// The events of the sockets with each of these addresses, in their order.
pub fn by_machine(events: &[u8], machines: [[&str; 2]; 2]) -> [Vec<u8>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    let mut sockets: HashMap<u64, usize> = HashMap::new();
    let mut rest = events;
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (event, next) = tail.split_at(u32::from_le_bytes(*length) as usize);
        rest = next;
        let kind = kind(event);
        let socket = || long(event, offset_of!(wire::Event, sk));
        let place = match own_address(kind) {
            Some(at) => {
                let has = |own: &[&str; 2]| own.iter().any(|own| event[at..at + 16] == octets(own));
                let place = machines.iter().position(has).expect("one of both");
                if kind == Kind::Opened {
                    sockets.insert(socket(), place);
                }
                place
            }
            None => sockets[&socket()],
        };
        found[place].extend(length);
        found[place].extend(event);
    }
    found
}

/// As a machine would have recorded them whose clock is ahead.
pub fn ahead(events: &mut [u8], by: u64) {
    let mut at = 0;
    while at < events.len() {
        let length = u32::from_le_bytes(*events[at..].first_chunk().expect("a length")) as usize;
        let event = &mut events[at + 4..at + 4 + length];
        later(event, AT, by);
        let kind = kind(event);
        if let Some(clock) = tcp_clock(kind) {
            later(event, clock, by);
        }
        // When the SYN-ACK was sent, in microseconds.
        if kind == Kind::Child {
            later(event, offset_of!(wire::Child, sent), by / 1_000);
        }
        at += 4 + length;
    }
}

/// As behind a translator of addresses: that peer has another one.
fn translated(events: &mut [u8]) {
    let mut at = 0;
    while at < events.len() {
        let length = u32::from_le_bytes(*events[at..].first_chunk().expect("a length")) as usize;
        let event = &mut events[at + 4..at + 4 + length];
        if let Some(own) = own_address(kind(event)) {
            let peer = &mut event[own + 16..own + 32];
            let place = CLIENT.iter().position(|it| peer == octets(it));
            peer.copy_from_slice(&octets(TRANSLATED[place.expect("the client")]));
        }
        at += 4 + length;
    }
}

/// The agent's ring takes them as they come, and keeps each as a file of its own.
fn kept_by_an_agent(events: &[u8], recording: &Recording) {
    let joins = Box::new(Live::new(true));
    let mut ring = Ring::new(joins, recording.origin.clone(), Options::default());
    let mut rest = events;
    let (mut now, mut count) = (0, 0);
    while let Some(length) = rest.first_chunk::<4>() {
        let length = 4 + u32::from_le_bytes(*length) as usize;
        let (event, next) = rest.split_at(length);
        now = now.max(long(&event[4..], AT));
        ring.take(event).expect("an event");
        rest = next;
        count += 1;
        if count % 97 == 0 {
            assert!(ring.work(Moment(now), 0).is_empty());
        }
    }
    // Closed sockets are waited for.
    now += 10_000_000_000;
    ring.work(Moment(now), 0);
    ring.work(Moment(now + 10_000_000_000), 0);
    assert_eq!(
        ring.keep_all(Moment(now + 10_000_000_000), "all"),
        recording.one_sided.len()
    );
    let saved = ring.work(Moment(now + 10_000_000_000), 0);
    assert_eq!(
        (saved.len(), ring.counts().one_sided),
        (recording.one_sided.len(), saved.len() as u64)
    );
    for it in saved {
        let read = recording::decode(&it.file).expect("our own");
        let same = recording
            .one_sided
            .iter()
            .find(|that| that.addresses == it.addresses);
        assert!(read.one_sided == [same.expect("the same end").clone()]);
    }
}

/// A file of one machine, read.
pub fn recorded(events: &[u8], origin: &recording::Origin) -> Recording {
    let mut joiner = Joiner::default();
    joiner.take(events).expect("events");
    let joined = joiner.finish(Host {
        origin: origin.clone(),
        hystart: true,
        lost: 0,
    });
    assert_eq!((joined.halves, joined.recording.connections.len()), (0, 0));
    let file = recording::encode(&joined.recording).expect("fits");
    println!(
        "{} one-sided ends: {} bytes, {} runs, {} packets",
        joined.recording.one_sided.len(),
        file.len(),
        joined
            .recording
            .one_sided
            .iter()
            .map(|it| it.end.runs.len())
            .sum::<usize>(),
        joined
            .recording
            .one_sided
            .iter()
            .map(|it| it.sent.len() + it.came.len())
            .sum::<usize>(),
    );
    let read = recording::decode(&file).expect("our own");
    assert!(read == joined.recording.kept());
    read.validate().expect("makes sense");
    read
}

/// Which packets of the other end.
fn numbers(run: &Run) -> Option<(u32, u16, Vec<u32>)> {
    let Handler::Packet { number, merged, .. } = run.handler else {
        return None;
    };
    let more = run.outcomes.iter().filter_map(|it| match it {
        Outcome::Merged { further, .. } => Some(*further),
        _ => None,
    });
    Some((number, merged, more.collect()))
}

/// Both machines' recordings of what `whole` has with both ends.
pub fn separate_and_joined(events: &[u8], whole: &Recording) -> Recording {
    let mut machines = by_machine(events, [CLIENT, SERVER]);
    let mut halves = machines.each_ref().map(|it| recorded(it, &whole.origin));
    for (events, recording) in machines.iter().zip(&halves) {
        kept_by_an_agent(events, recording);
    }
    ahead(&mut machines[1], AHEAD);
    translated(&mut machines[1]);
    halves[1] = recorded(&machines[1], &whole.origin);
    let Joined {
        recording,
        short,
        unmatched,
        ..
    } = join(&halves);
    assert!(
        short.is_empty() && unmatched.is_empty(),
        "{short:?} {unmatched:?}"
    );
    assert_eq!(recording.connections.len(), whole.connections.len());
    for connection in &recording.connections {
        let same = whole.connections.iter();
        let same = same.clone().find(|it| it.addresses == connection.addresses);
        let same = same.expect("the same connection");
        assert_eq!(connection.settings, same.settings);
        let clock = connection.joint.expect("joined").clocks[1];
        let within = connection
            .joint
            .and_then(|joint| joint.within)
            .expect("both ways");
        assert!(
            (clock.offset + AHEAD as i64).unsigned_abs() <= within,
            "{clock:?}"
        );
        for (end, (joined, same)) in connection.ends.iter().zip(&same.ends).enumerate() {
            assert_eq!(joined.runs.len(), same.runs.len());
            for (place, (joined, same)) in joined.runs.iter().zip(&same.runs).enumerate() {
                let by = if end == 1 { AHEAD } else { 0 };
                assert_eq!(joined.at.0, same.at.0 + by);
                // Over IPv6 several may look the same, and be the same.
                let ipv6 = connection.addresses[0].is_ipv6();
                assert!(
                    ipv6 || numbers(joined) == numbers(same),
                    "end {end}, run {place}"
                );
            }
        }
    }
    let file = recording::encode(&recording).expect("fits");
    let read = recording::decode(&file).expect("our own");
    assert!(read == recording.kept());
    read
}
