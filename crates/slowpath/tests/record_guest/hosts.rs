// SPDX-License-Identifier: Apache-2.0
//! The same events as two machines would have recorded them: each its own end, by its own clock. Joined, they are the connections that one recorder of both ends made of them.

use slowpath_replay::join::{Joined, join};
use slowpath_replay::recording::{self, Decision, Handler, Recording, Run};
use slowpath_replay::stock::{Host, Joiner};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// `enum kind` of the probe, `ring.bpf.h`.
const OPEN: u8 = 1;
const CLOCK: u8 = 13;
const REQUEST: u8 = 20;
const TIME_WAIT: u8 = 22;
/// Places in `struct event` there.
const AT: usize = 0;
const SOCKET: usize = 8;
const TCP_CLOCK: usize = 16;
const KIND: usize = 32;
const WHAT: usize = 33;
const A: usize = 36;
/// Behind it: the socket's own address and its peer's, of IPv6.
const OWN: usize = 96;

/// What the accepting end's clock is ahead: 5 hours and some. A whole number of ms, as its timestamps count.
pub const AHEAD: u64 = 5 * 3_600_000_000_000 + 123_000_000;

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
pub fn by_machine(events: &[u8], machines: [Ipv4Addr; 2]) -> [Vec<u8>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    let mut sockets: HashMap<u64, usize> = HashMap::new();
    let mut rest = events;
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (event, next) = tail.split_at(u32::from_le_bytes(*length) as usize);
        rest = next;
        let machine = || {
            machines
                .iter()
                .position(|own| event[OWN..OWN + 16] == own.to_ipv6_mapped().octets())
        };
        let place = match event[KIND] {
            OPEN => {
                let place = machine().expect("one of both");
                sockets.insert(long(event, SOCKET), place);
                place
            }
            REQUEST | TIME_WAIT => machine().expect("one of both"),
            _ => sockets[&long(event, SOCKET)],
        };
        found[place].extend(length);
        found[place].extend(event);
    }
    found
}

/// As a machine would have told them whose clock is ahead.
pub fn ahead(events: &mut [u8], by: u64) {
    let mut at = 0;
    while at < events.len() {
        let length = u32::from_le_bytes(*events[at..].first_chunk().expect("a length")) as usize;
        let event = &mut events[at + 4..at + 4 + length];
        later(event, AT, by);
        later(event, TCP_CLOCK, by);
        // When the SYN-ACK was sent, in microseconds.
        if (event[KIND], event[WHAT]) == (CLOCK, 1) {
            later(event, A, by / 1_000);
        }
        at += 4 + length;
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
        "{} ends alone: {} bytes, {} runs, {} packets",
        joined.recording.alone.len(),
        file.len(),
        joined
            .recording
            .alone
            .iter()
            .map(|it| it.end.runs.len())
            .sum::<usize>(),
        joined
            .recording
            .alone
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
    let more = run
        .outcomes
        .iter()
        .filter(|it| it.decision == Decision::Merged);
    Some((number, merged, more.map(|it| it.value).collect()))
}

/// Both machines' recordings of what `whole` has with both ends.
pub fn apart_and_together(events: &[u8], whole: &Recording) -> Recording {
    let mut machines = by_machine(events, [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host)));
    ahead(&mut machines[1], AHEAD);
    let halves = machines.each_ref().map(|it| recorded(it, &whole.origin));
    let Joined {
        recording,
        short,
        lonely,
        ..
    } = join(&halves);
    assert!(
        short.is_empty() && lonely.is_empty(),
        "{short:?} {lonely:?}"
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
                assert_eq!(numbers(joined), numbers(same), "end {end}, run {place}");
            }
        }
    }
    let file = recording::encode(&recording).expect("fits");
    let read = recording::decode(&file).expect("our own");
    assert!(read == recording.kept());
    read
}
