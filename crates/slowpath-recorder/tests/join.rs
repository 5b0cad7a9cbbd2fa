// SPDX-License-Identifier: Apache-2.0
//! Connections through a network that loses, doubles, delays and merges packets, recorded as by two machines whose clocks differ by hours and do not run alike: joined they are what happened.

use proptest::prelude::*;
use slowpath_recorder::join::{Lost, Why, join};
use slowpath_recording::{
    self as recording, Connection, End, Handler, Moment, OneSided, Origin, Outcome, Packet,
    Recording, Run, decode, encode,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A millisecond.
const MS: u64 = 1_000_000;

/// What the network did with one packet: when it came, if it did, perhaps twice.
struct Way {
    sent: u64,
    came: Vec<u64>,
}

/// One end while it talks.
struct Conversation {
    id: u16,
    next: u32,
    sent: Vec<Packet>,
    /// Where the sending runs are, by true time.
    runs: BTreeMap<(u64, u64), Run>,
    ways: Vec<Way>,
}

fn run(at: u64, handler: Handler) -> Run {
    Run {
        at: Moment(at),
        jiffies: (at / (4 * MS)) as u32,
        handler,
        outcomes: Vec::new(),
        check: Some(at as u32 | 1),
    }
}

fn packet_run(number: u32) -> Handler {
    Handler::Packet {
        number,
        marked: false,
        backlog: false,
        merged: 1,
        truesize: 2_304,
    }
}

/// Both ends as they were, by the true clock, and what each machine knows.
struct Scene {
    whole: [End; 2],
    one_sided: [OneSided; 2],
}

fn addresses(translated: bool) -> [SocketAddr; 2] {
    let client = if translated {
        [192, 0, 2, 9]
    } else {
        [10, 0, 0, 1]
    };
    [(client, 40_000).into(), ([10, 0, 0, 2], 80).into()]
}

/// Packets of both ends through the network: the handshake, then `packets`. The runs that send are noted with each end.
fn converse(talking: &mut [Conversation; 2], packets: usize, random: &mut fastrand::Rng) {
    // At least a millisecond either way; later packets overtake.
    let mut at = 1_000 * MS;
    let base = [random.u64(1..20), random.u64(1..20)];
    for turn in 0..packets + 3 {
        at += random.u64(10_000..3 * MS);
        let (end, kind) = match turn {
            0 => (0, Handler::Connect),
            1 => (1, packet_run(0)),
            2 => (0, packet_run(0)),
            _ => {
                let bytes = random.u32(1..9_000);
                let send = Handler::Send {
                    bytes,
                    flags: 0,
                    result: bytes as i32,
                };
                (random.usize(0..2), send)
            }
        };
        if turn < 3 {
            // The handshake takes its time, and what is sent with it comes next.
            at += 30 * MS;
        }
        let it = &mut talking[end];
        let length = match turn {
            0 | 1 => 1,
            2 => 0,
            _ => [0, 1, 1_448, 2_896][random.usize(0..4)],
        };
        // Sent again, or new.
        let again = turn > 3 && random.usize(0..8) == 0;
        let old = it.sent.last().copied().filter(|_| again);
        let answer = turn == 1;
        let packet = Packet {
            run: 0,
            id: if answer { 0 } else { it.id },
            begins: old.map_or(it.next, |old| old.begins),
            length: old.map_or(length, |old| old.length),
            mark: if answer { 0x5a5a_0001 } else { 0 },
        };
        it.id = it.id.wrapping_add(1 + u16::from(length == 2_896));
        if old.is_none() {
            it.next = it.next.wrapping_add(length);
        }
        it.sent.push(packet);
        it.runs.insert((at, 0), run(at, kind));
        let times = match random.usize(0..12) {
            _ if turn < 3 => 1,
            0 => 0,
            1 => 2,
            _ => 1,
        };
        let way = |_| at + (base[end] + random.u64(0..if turn < 3 { 2 } else { 15 })) * MS;
        let came = (0..times).map(way).collect();
        it.ways.push(Way { sent: at, came });
    }
}

/// The run that handles a group of packets, all but the first of them merged.
fn merged_run(at: u64, group: &[u32]) -> Run {
    let number = group[0];
    let mut it = run(at, packet_run(number));
    let mut count = 1;
    for other in &group[1..] {
        let further = other.wrapping_sub(number);
        if it.outcomes.is_empty() && further == u32::from(count) {
            count += 1;
        } else {
            it.outcomes.push(Outcome::Merged {
                place: it.outcomes.len() as u32,
                further,
            });
        }
    }
    if let Handler::Packet {
        merged, backlog, ..
    } = &mut it.handler
    {
        *merged = count;
        *backlog = group.len() > 1;
    }
    it
}

/// What came to an end, in its order; the handshake's packets are runs that send as well.
fn arrive(own: &mut Conversation, other: &Conversation, random: &mut fastrand::Rng) -> Vec<Packet> {
    let mut arrivals: Vec<(u64, u32)> = Vec::new();
    for (number, way) in (0..).zip(&other.ways) {
        arrivals.extend(way.came.iter().map(|at| (*at, number)));
    }
    arrivals.sort_unstable();
    let mut list = Vec::new();
    let mut place = 0;
    while let Some((at, number)) = arrivals.get(place).copied() {
        // Those of the handshake came to the runs that answer them.
        let first = number == 0 && place == 0;
        let mut group = vec![number];
        while let Some((_, next)) = arrivals.get(place + group.len())
            && !first
            && random.usize(0..5) == 0
            && other.sent[*next as usize].begins == {
                let last = other.sent[group[group.len() - 1] as usize];
                last.begins.wrapping_add(last.length)
            }
        {
            group.push(*next);
        }
        place += group.len();
        // Handled when the last one has come.
        let at = arrivals[place - 1].0.max(at);
        let it = merged_run(at, &group);
        let head = other.sent[number as usize];
        let length = group.iter().map(|it| other.sent[*it as usize].length).sum();
        list.push(Packet { length, ..head });
        let merged = group[1..].iter().map(|it| other.sent[*it as usize]);
        list.extend(merged.map(|it| Packet {
            id: it.id,
            length: 0,
            mark: 0,
            ..head
        }));
        if !first {
            own.runs.insert((at, 1 + place as u64), it);
        }
    }
    list
}

/// The packets that an end sent, with their runs.
fn sent_packets(it: &Conversation) -> Vec<Packet> {
    let place = |at: u64| it.runs.keys().position(|key| *key == (at, 0));
    let packets = it.sent.iter().zip(&it.ways);
    let packets = packets.map(|(packet, way)| Packet {
        run: place(way.sent).expect("a run sent it") as u64,
        ..*packet
    });
    packets.collect()
}

/// What one machine knows: its own packets and those that came, numbered as they came.
fn one_machine(whole: &End, side: usize, sent: Vec<Packet>, came: Vec<Packet>) -> OneSided {
    let mut end = whole.clone();
    let mut next = 0;
    for run in &mut end.runs {
        if let Handler::Packet { number, merged, .. } = &mut run.handler {
            let more = run.outcomes.len() as u16;
            run.outcomes.clear();
            *number = next;
            *merged += more;
            next += u32::from(*merged);
        }
    }
    assert_eq!(next as usize, came.len());
    OneSided {
        addresses: addresses(false),
        side,
        initial: [None; 2],
        sysctls: BTreeMap::new(),
        socket: BTreeMap::new(),
        mtu: 1_500,
        end,
        sent,
        came: came.into_iter().map(|it| Packet { run: 0, ..it }).collect(),
    }
}

/// `packets` each way after the handshake.
fn scene(seed: u64, packets: usize) -> Scene {
    let mut random = fastrand::Rng::with_seed(seed);
    let initial = [random.u32(..), random.u32(..)];
    let mut talking = initial.map(|next| Conversation {
        id: random.u16(..),
        next,
        sent: Vec::new(),
        runs: BTreeMap::new(),
        ways: Vec::new(),
    });
    converse(&mut talking, packets, &mut random);
    let [client, server] = &mut talking;
    let to_client = arrive(client, server, &mut random);
    let to_server = arrive(server, client, &mut random);
    let whole = talking.each_ref().map(|it| End {
        digest: 77,
        runs: it.runs.values().cloned().collect(),
        ..End::default()
    });
    let [sent_by_client, sent_by_server] = talking.each_ref().map(sent_packets);
    let one = |side: usize, sent, came| OneSided {
        addresses: addresses(side == 1 && seed.is_multiple_of(3)),
        initial: initial.map(Some),
        ..one_machine(&whole[side], side, sent, came)
    };
    let one_sided = [
        one(0, sent_by_client, to_client),
        one(1, sent_by_server, to_server),
    ];
    Scene { whole, one_sided }
}

fn file(one_sided: impl IntoIterator<Item = OneSided>) -> Recording {
    let recording = Recording {
        origin: Origin {
            hz: 250,
            recorder: "bpf".into(),
            kernel: "6.12.0".to_owned(),
            epoch: 0,
        },
        connections: Vec::new(),
        one_sided: one_sided.into_iter().collect(),
    };
    let read = decode(&encode(&recording).expect("short")).expect("our own");
    assert_eq!(read, recording.kept());
    read
}

/// The accepting end's clock: ahead, and faster by `faster` parts in a billion.
fn turned(one_sided: &OneSided, ahead: i64, faster: i64) -> OneSided {
    let mut one_sided = one_sided.clone();
    let begun = one_sided.end.runs[0].at.0;
    for run in &mut one_sided.end.runs {
        let since = i128::from(run.at.0 - begun);
        let more = since * i128::from(faster) / 1_000_000_000;
        run.at = Moment((i128::from(run.at.0) + i128::from(ahead) + more) as u64);
    }
    one_sided
}

fn handlers(end: &End) -> Vec<(&Handler, &[Outcome])> {
    end.runs
        .iter()
        .map(|run| (&run.handler, run.outcomes.as_slice()))
        .collect()
}

/// Each packet's run comes after the one that sent it, by the common clock.
fn comes_after(connection: &Connection, one_sided: &[OneSided; 2]) -> bool {
    (0..2).all(|end| {
        connection.ends[end].runs.iter().all(|run| {
            let Handler::Packet { number, .. } = run.handler else {
                return true;
            };
            let sent = one_sided[1 - end].sent[number as usize].run as usize;
            let sent = connection.ends[1 - end].runs[sent].at;
            connection.moment(1 - end, sent) <= connection.moment(end, run.at)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn two_machines_recordings_are_what_happened(
        seed: u64,
        packets in 1usize..300,
        ahead in 0i64..40_000_000_000_000,
        faster in -100_000i64..100_000,
    ) {
        let Scene { whole, one_sided } = scene(seed, packets);
        let server = turned(&one_sided[1], ahead, faster);
        let files = [file([one_sided[0].clone()]), file([server.clone()])];
        let joined = join(&files);
        prop_assert!(joined.unmatched.is_empty() && joined.short.is_empty(), "{:?} {:?}", joined.unmatched, joined.short);
        let [connection] = &joined.recording.connections[..] else {
            panic!("one connection")
        };
        for (end, truth) in connection.ends.iter().zip(&whole) {
            prop_assert_eq!(handlers(end), handlers(truth));
            prop_assert_eq!(end.digest, truth.digest);
        }
        // Times stay by each end's own clock, and in the joined recording nothing comes before it was sent.
        for (end, own) in connection.ends.iter().zip([&one_sided[0], &server]) {
            let times = |runs: &[Run]| runs.iter().map(|run| run.at).collect::<Vec<_>>();
            prop_assert_eq!(times(&end.runs), times(&own.end.runs));
        }
        prop_assert!(comes_after(connection, &one_sided));
        // The least delay is a millisecond either way, and the most of the quickest packets some twenty.
        let clock = connection.joint.expect("joined").clocks[1];
        let error = clock.moment(server.end.runs[0].at).0.abs_diff(one_sided[1].end.runs[0].at.0);
        prop_assert!(error < 40 * MS, "{error} ns: {clock:?}");
        joined.recording.validate().expect("makes sense");
    }

    /// Whatever the numbers, no panic, and nothing is called joined that does not fit.
    #[test]
    fn altered_packets_are_not_guessed(seed: u64, packets in 5usize..60, place: usize, what in 0usize..4, by in 1u32..70_000) {
        let Scene { whole, mut one_sided } = scene(seed, packets);
        let side = seed as usize & 1;
        let list = if place.is_multiple_of(2) { &mut one_sided[side].sent } else { &mut one_sided[side].came };
        let count = list.len();
        let it = &mut list[place % count];
        match what {
            0 => it.begins = it.begins.wrapping_add(by),
            1 => it.length = it.length.wrapping_add(by),
            2 => it.run = it.run.wrapping_add(u64::from(by)),
            _ => it.id = it.id.wrapping_add(by as u16),
        }
        let joined = join(&one_sided.clone().map(|it| Recording { one_sided: vec![it], ..file([]) }));
        for connection in &joined.recording.connections {
            for (end, truth) in connection.ends.iter().zip(&whole) {
                // As far as it goes it is either what happened or says which packet it takes: never more runs than there were.
                prop_assert!(end.runs.len() <= truth.runs.len());
            }
        }
        let whole_runs = joined.recording.connections.iter().all(|connection| {
            connection.ends.iter().zip(&whole).all(|(end, truth)| end.runs.len() == truth.runs.len())
        });
        prop_assert!(whole_runs || !joined.short.is_empty() || !joined.unmatched.is_empty());
    }
}

/// Several connections at once, also of two files that both have clients.
#[test]
fn each_end_finds_its_own() {
    let scenes: Vec<Scene> = (1..6).map(|seed| scene(seed, 40)).collect();
    let mut files = [file([]), file([])];
    for (place, it) in scenes.iter().enumerate() {
        files[place & 1].one_sided.push(it.one_sided[0].clone());
        files[1 - (place & 1)]
            .one_sided
            .push(it.one_sided[1].clone());
    }
    files[0].one_sided.reverse();
    let joined = join(&files);
    assert!(joined.unmatched.is_empty() && joined.short.is_empty());
    assert_eq!(joined.recording.connections.len(), scenes.len());
    for connection in &joined.recording.connections {
        let same = |it: &&Scene| handlers(&it.whole[0]) == handlers(&connection.ends[0]);
        let same = scenes.iter().find(same).expect("a client that was there");
        assert_eq!(handlers(&same.whole[1]), handlers(&connection.ends[1]));
    }
}

/// RFC 9293 counts sequence numbers from random ones: two machines that did not talk have no two in common.
#[test]
fn recordings_that_do_not_fit_each_other_are_named() {
    let [one, other] = [scene(1, 30), scene(2, 30)];
    let joined = join(&[
        file([one.one_sided[0].clone()]),
        file([other.one_sided[1].clone()]),
    ]);
    assert!(joined.recording.connections.is_empty());
    let why: Vec<&Why> = joined.unmatched.iter().map(|it| &it.why).collect();
    // Both had the same addresses: a proxy, or another connection.
    assert_eq!(
        why,
        [&Why::Rewritten { file: 1 }, &Why::Rewritten { file: 0 }]
    );
    let one_sided = join(&[file([one.one_sided[0].clone()])]);
    assert_eq!(one_sided.unmatched[0].why, Why::Missing { other: 1 });
}

#[test]
fn the_same_recording_twice_is_refused() {
    let it = scene(3, 30);
    let client = file([it.one_sided[0].clone()]);
    let joined = join(&[
        client.clone(),
        client.clone(),
        file([it.one_sided[1].clone()]),
    ]);
    assert!(joined.recording.connections.is_empty());
    assert_eq!(joined.unmatched.len(), 3);
    assert!(
        joined
            .unmatched
            .iter()
            .all(|it| matches!(it.why, Why::Twice { .. }))
    );
}

/// One recorder ended earlier, or its file was cut.
#[test]
fn what_only_one_recording_has_is_left_out() {
    let it = scene(4, 80);
    let mut early = it.one_sided[1].clone();
    early.end.runs.truncate(30);
    early.end.digest = 0;
    let until = early.end.runs.iter();
    let came: u32 = until
        .map(|run| match run.handler {
            Handler::Packet { merged, .. } => u32::from(merged),
            _ => 0,
        })
        .sum();
    early.came.truncate(came as usize);
    early.sent.retain(|packet| packet.run < 30);
    let joined = join(&[file([it.one_sided[0].clone()]), file([early])]);
    let [(0, short)] = &joined.short[..] else {
        panic!("one is short: {:?}", joined.short);
    };
    assert_eq!((short.end, short.why), (0, Lost::Unknown));
    let connection = &joined.recording.connections[0];
    let known = connection.ends[0].runs.len();
    assert!(known < it.whole[0].runs.len());
    assert_eq!(
        handlers(&connection.ends[0]),
        handlers(&it.whole[0])[..known]
    );
    // A file that was cut says so itself.
    let whole = encode(&file([it.one_sided[1].clone()])).expect("short");
    let cut = recording::decode(&whole[..whole.len() - 3]).expect("as far as it goes");
    let joined = join(&[file([it.one_sided[0].clone()]), cut]);
    assert!(joined.recording.connections.is_empty());
    assert!(matches!(joined.unmatched[0].why, Why::Gap { end: 1, .. }));
}

/// A device merged two segments, or cut one: what came has no length that anybody sent.
#[test]
fn packets_that_were_cut_or_merged_on_the_way_end_what_is_known() {
    let mut it = scene(5, 80);
    let place = it.one_sided[1]
        .came
        .iter()
        .rposition(|packet| packet.length == 2_896);
    it.one_sided[1].came[place.expect("a large one")].length = 1_448;
    let joined = join(&it.one_sided.map(|it| file([it])));
    assert_eq!(joined.short[0].1.why, Lost::Cut);
    assert_eq!(joined.short[0].1.end, 1);
}

#[test]
fn other_ticks_are_named() {
    let it = scene(6, 10);
    let mut files = it.one_sided.map(|it| file([it]));
    files[1].origin.hz = 1_000;
    let joined = join(&files);
    assert_eq!(joined.unmatched[0].why, Why::Ticks(250, 1_000));
}
