// SPDX-License-Identifier: Apache-2.0
//! The light recorder's pieces, written by hand after `probes/packets/block.bpf.h`, become runs; what is missing is a gap.

use slowpath_recorder::light::{Joiner, Live};
use slowpath_recorder::ring::{Joins, Update};
use slowpath_recorder::stock::Host;
use slowpath_recording::{Connection, Handler, Moment};

const MS: u64 = 1_000_000;
const BEGUN: u64 = 1_000_000 * MS;
const OWNED: u8 = 1;
/// It has data, and when it came stands behind its words.
const DATA: u8 = 8 | 32;

fn piece(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// `struct opened`: 10.0.0.1:40,000 connected to 10.0.0.2:80.
fn opened(end: u8, next: u16) -> Vec<u8> {
    let ends = [
        (u32::from_ne_bytes([10, 0, 0, 1]), 40_000u16),
        (u32::from_ne_bytes([10, 0, 0, 2]), 80),
    ];
    let (own, peer) = (ends[usize::from(end)], ends[usize::from(1 - end)]);
    let mut it = vec![1, end];
    for word in [own.1, peer.1.swap_bytes(), next] {
        it.extend(word.to_le_bytes());
    }
    it.extend(own.0.to_le_bytes());
    it.extend(peer.0.to_le_bytes());
    for word in [u64::from(end) + 1, BEGUN, BEGUN, BEGUN] {
        it.extend(word.to_le_bytes());
    }
    // 250 ticks a second, 300 s before they wrap.
    let jiffies = ((BEGUN / (4 * MS)) as u32).wrapping_sub(300 * 250);
    for word in [
        jiffies, 1_001, 1_001, 1_001, 5_001, 5_001, 1, 65_536, 0, 1500,
    ] {
        it.extend(word.to_le_bytes());
    }
    it.extend([0; 48]);
    it.extend(*b"reno\0\0\0\0\0\0\0\0\0\0\0\0");
    // Three sizes of the send buffer, 45 further sysctls, segmentation: not known. Then padding.
    it.extend([0xff; 4 * 49]);
    it.extend([0; 4]);
    it
}

/// `struct head` and what stands behind it.
fn block(piece: u8, end: u8, serial: u32, data: &[u8]) -> Vec<u8> {
    let mut it = vec![piece, end];
    it.extend((data.len() as u16).to_le_bytes());
    it.extend(serial.to_le_bytes());
    it.extend(BEGUN.to_le_bytes());
    it.extend((u64::from(end) + 1).to_le_bytes());
    it.extend([0; 8]);
    it.extend([0; 48]);
    it.extend(data);
    it
}

/// `struct packet_event`, with all seven words.
fn packet(id: u16, next: u16, after: u64, flags: u8, words: [u32; 6]) -> Vec<u8> {
    let mut it = id.to_le_bytes().to_vec();
    it.extend(next.to_le_bytes());
    it.extend(((BEGUN + after) as u32).to_le_bytes());
    it.extend([0x7f, 1, flags, 1]);
    for word in words.into_iter().chain([65_536]) {
        it.extend(word.to_le_bytes());
    }
    it
}

fn called(sent: bool, result: i32, after: u64) -> Vec<u8> {
    let mut it = result.to_le_bytes().to_vec();
    it.extend((if sent { 1u32 << 24 } else { 2 << 24 }).to_le_bytes());
    it.extend(((BEGUN + after) as u32).to_le_bytes());
    it
}

/// One request of 100 bytes, acknowledged in the backlog, and an answer of 200; the client's blocks of packets begin with that serial.
fn pieces(serial: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    piece(&mut bytes, &opened(0, 77));
    piece(&mut bytes, &opened(1, 900));
    let mut packets = packet(
        900,
        79,
        20_000,
        OWNED,
        [1_101, 1_001, 1_101, 5_001, 5_001, 1],
    );
    packets.extend(packet(
        901,
        79,
        40_000,
        DATA,
        [1_101, 1_101, 1_101, 5_001, 5_001, 1],
    ));
    packets.extend(((BEGUN + 45_000) as u32).to_le_bytes());
    packets.extend(packet(
        902,
        80,
        90_000,
        0,
        [1_101, 1_101, 1_101, 5_201, 5_201, 1],
    ));
    piece(&mut bytes, &block(2, 0, serial, &packets));
    let calls = [called(true, 100, 10_000), called(false, 200, 60_000)].concat();
    piece(&mut bytes, &block(3, 0, 0, &calls));
    let packets = packet(78, 900, 10_000, 0, [9_001, 9_001, 9_001, 1_001, 1_001, 1]);
    piece(&mut bytes, &block(2, 1, 0, &packets));
    bytes
}

fn joined(serial: u32) -> Connection {
    let mut joiner = Joiner::default();
    joiner.take(&pieces(serial)).expect("pieces");
    let joined = joiner.finish(Host::default());
    assert_eq!(
        (joined.unplaced, joined.halves, joined.recording.origin.hz),
        (0, 0, 250)
    );
    joined.recording.connections[0].clone()
}

#[test]
fn calls_stand_where_their_bytes_were_moved() {
    let client = &joined(0).ends[0];
    assert_eq!(client.gap, None);
    let runs: Vec<String> = client
        .runs
        .iter()
        .map(|run| match run.handler {
            Handler::Packet {
                number, backlog, ..
            } => format!("{number}{}", if backlog { " in the backlog" } else { "" }),
            Handler::Send { result, .. } => format!("send {result}"),
            Handler::Receive { result, .. } => format!("receive {result}"),
            ref other => other.name().to_owned(),
        })
        .collect();
    let wanted = [
        "connect",
        "0",
        "resume",
        "send 100",
        "1 in the backlog",
        "release",
        "2",
        "receive 200",
        "3",
    ];
    assert_eq!(runs[..wanted.len()], wanted);
    // The call has read the clock since: the moment noted with the packet counts.
    let after = client.runs[6].at.0 - BEGUN;
    assert_eq!(after, 45_000);
}

#[test]
fn a_block_that_is_missing_is_a_gap() {
    let connection = joined(1);
    assert!(connection.replayable().is_err());
    assert!(connection.ends[0].gap.is_some() && connection.ends[0].lost > 0);
}

#[test]
fn no_bytes_make_it_panic() {
    let mut bytes = Vec::new();
    piece(&mut bytes, &opened(0, 77));
    piece(&mut bytes, &opened(1, 77));
    let whole = packet(1, 2, 3, OWNED, [5; 6]);
    piece(&mut bytes, &block(2, 0, 0, &whole));
    piece(&mut bytes, &block(3, 0, 0, &called(true, i32::MIN, 0)));
    piece(&mut bytes, &block(3, 1, 0, &called(false, i32::MAX, 0)));
    for place in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[place] ^= 0xa5;
        for cut in [&broken[..], &bytes[..place]] {
            let mut joiner = Joiner::default();
            if joiner.take(cut).is_ok() {
                joiner.finish(Host::default());
            }
        }
    }
}

/// Reported as a whole at the end: what the joiner gives, up to a gap.
#[test]
fn what_is_reported_of_a_connection_that_ends_is_what_is_joined() {
    for serial in [0, 1] {
        let mut live = Live::default();
        let mut bytes = pieces(serial);
        let mut updates = Vec::new();
        assert!(live.take(&bytes).expect("pieces") > 4);
        live.settle(Moment(BEGUN), 0, &mut updates);
        let [
            Update::Opened {
                number: 1,
                addresses,
                hz: 250,
                ..
            },
        ] = updates.as_slice()
        else {
            panic!("{updates:?}")
        };
        let whole = joined(serial);
        assert_eq!(*addresses, whole.addresses);
        let wanted = whole.ends.map(|mut end| {
            end.runs
                .truncate(end.gap.map_or(usize::MAX, |gap| gap as usize));
            end
        });
        assert_eq!(live.rest(1), Some(wanted));
        assert!(live.bytes(1) > 0);
        // Both sockets go; then the connection is reported, and forgotten.
        bytes.clear();
        piece(&mut bytes, &block(5, 0, 1 + serial, &[]));
        piece(&mut bytes, &block(5, 1, 1, &[]));
        live.take(&bytes).expect("pieces");
        updates.clear();
        live.settle(Moment(BEGUN), 0, &mut updates);
        assert!(updates.is_empty());
        live.settle(Moment(BEGUN + 3_000 * MS), 0, &mut updates);
        assert!(
            matches!(updates.as_slice(), [Update::Closed { number: 1, .. }]),
            "{updates:?}"
        );
        assert!(live.rest(1).is_none() && live.bytes(1) == 0);
    }
    // A socket whose peer never appears is given back.
    let mut live = Live::default();
    let mut bytes = Vec::new();
    piece(&mut bytes, &opened(0, 77));
    live.take(&bytes).expect("a piece");
    let mut updates = Vec::new();
    live.settle(Moment(BEGUN), 0, &mut updates);
    assert!(updates.is_empty());
    live.settle(Moment(BEGUN + 11_000 * MS), 0, &mut updates);
    assert!(
        matches!(updates.as_slice(), [Update::Half { lives: true, .. }]),
        "{updates:?}"
    );
}
