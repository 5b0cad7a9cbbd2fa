// SPDX-License-Identifier: Apache-2.0
//! Where packets are dropped that were lost and found no full queue, and times of what had no arrival for a cause.

use slowpath_netsim::engine::{HostId, Network};
use slowpath_netsim::scenario::Scenario;
use slowpath_queues::{Margin, Offered, Outcome, replay, settled};
use slowpath_switch::{Span, Time};

/// A and B at the first switch, D and E beside C at the second, with room for 100 packets a port. A
/// packet of 1,500 bytes takes 12 us on a line.
const TWO_SWITCHES: &str = r#"
seed = 1
duration = "1 ms"
[topology]
kind = "custom"
hosts = ["a", "b", "c", "d", "e"]
switches = ["s1", "s2"]
links = { rate = "1 Gbit/s", delay = "1 us" }
link = [
  { ends = ["a", "s1"] },
  { ends = ["b", "s1"] },
  { ends = ["s1", "s2"] },
  { ends = ["c", "s2"] },
  { ends = ["d", "s2"] },
  { ends = ["e", "s2"] },
]
[switch]
buffer = "100 packets"
[[workload]]
kind = "bulk"
from = ["a"]
to = ["c"]
"#;

const PACKET: u64 = 12;
const A: u32 = 0;
const B: u32 = 1;
const C: u32 = 2;
const D: u32 = 3;
const E: u32 = 4;

fn network() -> Network {
    let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    Scenario::parse(TWO_SWITCHES, &none).unwrap().network()
}

/// `count` packets of a host to C, one after the other, from a moment on (us); the last is lost if said so.
fn stream(host: u32, from: u64, count: u64, last_is_lost: bool) -> Vec<Offered> {
    let packet = |place: u64| {
        let at = Time::ZERO + Span::from_micros(from + PACKET * place);
        Offered {
            number: 0,
            at,
            earliest: at,
            latest: at,
            after: None,
            source: HostId(host),
            destination: HostId(C),
            key: host,
            bytes: 1500,
            lost: last_is_lost && place + 1 == count,
        }
    };
    (0..count).map(packet).collect()
}

fn run(streams: &[Vec<Offered>], margin: Margin) -> Outcome {
    let mut all = streams.concat();
    for (number, packet) in (0..).zip(&mut all) {
        packet.number = number;
    }
    replay(&network(), &all, margin).unwrap()
}

fn switches(outcome: &Outcome) -> Vec<u32> {
    outcome.dropped.iter().map(|drop| drop.switch.0).collect()
}

const EXACT: Margin = Margin {
    bytes: 0,
    packets: 0,
};

/// A and B send at once: of every two packets one waits at the first switch. When the 41st of B comes, 41 wait, and the second switch is empty.
#[test]
fn the_only_queue_that_held_anything() {
    let streams = [stream(A, 0, 41, false), stream(B, 1, 41, true)];
    let outcome = run(&streams, Margin::default());
    assert_eq!(switches(&outcome), [0]);
    assert_eq!(outcome.arrived, 0);
    // Times that are exact say that it was not dropped for want of room.
    let outcome = run(&streams, EXACT);
    assert_eq!((switches(&outcome), outcome.arrived), (vec![], 1));
}

/// The same while 60 packets wait at the second switch, of D and E: less room is there.
#[test]
fn the_later_queue_was_longer() {
    let streams = [
        stream(A, 600, 41, false),
        stream(B, 601, 41, true),
        stream(D, 0, 60, false),
        stream(E, 1, 60, false),
    ];
    let outcome = run(&streams, Margin::default());
    assert_eq!(switches(&outcome), [1]);
    assert_eq!(outcome.arrived, 0);
}

/// Nothing waited anywhere: it was lost otherwise, and is not said to have been dropped.
#[test]
fn no_queue_was_near_full() {
    let outcome = run(&[stream(B, 0, 3, true)], Margin::default());
    assert_eq!((switches(&outcome), outcome.arrived), (vec![], 1));
}

/// The application wrote ten packets at once, of which the first has a time; the others, known within 50 us, left one behind the other.
#[test]
fn what_was_written_at_once_left_at_once() {
    let mut packets = stream(A, 1_000, 10, false);
    let truth: Vec<Time> = packets.iter().map(|packet| packet.at).collect();
    let unknown = Span::from_micros(50);
    for (number, packet) in (0..).zip(&mut packets) {
        packet.number = number;
        if number > 0 {
            // Recorded 4 us a packet too late.
            packet.at += Span::from_micros(4 * u64::from(number));
            packet.earliest = Time(packet.at.0 - unknown.0);
            packet.latest = packet.at + unknown;
        }
    }
    let settled = settled(&network(), packets, Span::ZERO, Margin::default()).unwrap();
    for (packet, truth) in settled.iter().zip(&truth) {
        let off = packet.at.0.abs_diff(truth.0);
        // How far the order on a line may move a packet: what 1,250 bytes take there. The last was recorded 36 us late.
        assert!(off < 10_000_000, "{}: {off} ps", packet.number);
    }
}
