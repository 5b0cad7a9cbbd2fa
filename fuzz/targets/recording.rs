// SPDX-License-Identifier: Apache-2.0
//! A recording after a killed recorder, a broken disk or an attacker. Built with
//! `cfg(fuzzing)`, the reader accepts every checksum, so that inputs reach the code behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_recording::sampling::Sampler;
use slowpath_recording::{
    Clock, Connection, End, Handler, InexactTimes, Joint, Moment, OneSided, Outcome, Packet,
    Recording, Run, Selection, Sent, Settings, Timer, decode_with, encode, inspect,
};

/// Few, so that an input is quick.
const EVENTS: u64 = 1 << 17;

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let _ = inspect(data);
        let wanted = Selection { events: EVENTS, ..Selection::default() };
        let Ok(decoded) = decode_with(data, wanted) else { return };
        let recording = decoded.recording;
        let one_sided = recording.one_sided.iter().map(|it| &it.end);
        let ends = || recording.connections.iter().flat_map(|c| &c.ends).chain(one_sided.clone());
        let runs: usize = ends().map(|end| end.runs.len()).sum();
        let packets = recording.one_sided.iter().map(|it| it.sent.len() + it.came.len());
        assert!((runs + packets.sum::<usize>()) as u64 <= EVENTS);
        for end in ends() {
            assert!(end.gap.is_none_or(|gap| gap <= end.runs.len() as u64));
            assert!(end.gap.is_some() || end.lost == 0);
        }
        let _ = recording.validate();
        // What was read can be written, and is the same when it is read again.
        let file = encode(&recording).expect("it came out of frames");
        let again = decode_with(&file, Selection::default()).expect("our own");
        assert!(again.damage.is_none());
        assert!(again.recording == recording.kept());
    }
);

fn end(packets: u32) -> End {
    let run = |at: u64, handler| Run {
        at: Moment(at),
        jiffies: (at / 4_000_000) as u32,
        handler,
        outcomes: Vec::new(),
        check: Some(at as u32),
    };
    let mut runs = vec![run(0, Handler::Begin { fresh: true })];
    for number in 0..packets {
        let packet = Handler::Packet {
            number: number + number / 7,
            marked: number.is_multiple_of(5),
            backlog: false,
            merged: 1,
            truesize: 2_304,
        };
        let at = u64::from(number) * 700_000;
        runs.push(run(at, packet));
        let call = Handler::Receive {
            bytes: 4_096,
            flags: 0,
            result: 4_096 - number as i32,
        };
        runs.push(run(at + 10, call));
    }
    let timer = Handler::Timer {
        timer: Timer::Write,
        deferred: true,
    };
    let mut last = run(900_000_000, timer);
    last.outcomes.push(Outcome::Random { nth: 1, drawn: 7 });
    runs.push(last);
    End {
        runs,
        digest: 5,
        ..End::default()
    }
}

/// A connection of two machines' recordings.
fn joined(connection: Connection) -> Connection {
    Connection {
        joint: Some(Joint {
            clocks: [
                Clock::default(),
                Clock {
                    offset: -5,
                    drift: 7,
                    since: Moment(3),
                },
            ],
            within: Some(900),
        }),
        ..connection
    }
}

/// A file with one end of that connection.
fn one_sided(joined: &Connection, end: End) -> Vec<u8> {
    let packets = |run| {
        let packet = |place: u16| Packet {
            run: run * u64::from(place),
            id: 900 + place,
            begins: 1_000 * u32::from(place),
            length: 1_000,
            mark: u32::from(place) % 7,
        };
        (0..40).map(packet).collect()
    };
    let one_sided = OneSided {
        addresses: joined.addresses,
        side: 1,
        initial: [Some(7), None],
        sysctls: [("tcp_sack".to_owned(), "1".to_owned())].into(),
        socket: Default::default(),
        mtu: 1_500,
        end,
        sent: packets(2),
        came: packets(3),
    };
    let mut recording = Recording::default();
    recording.origin.hz = 250;
    recording.one_sided.push(one_sided);
    encode(&recording).expect("short")
}

/// Exact, sampled and inexact times, with a gap and without.
fn seeds() -> Vec<Vec<u8>> {
    let whole = end(20);
    let gap = End {
        gap: Some(7),
        lost: 2,
        ..end(9)
    };
    let mut sampler = Sampler::new(5_000);
    let mut samples: Vec<_> = (0..60)
        .filter_map(|n: u64| sampler.push(n * n * 3_000))
        .collect();
    samples.extend(sampler.finish());
    let sampled = End {
        sent: Some(Sent {
            threshold: 5_000,
            samples,
        }),
        ..end(70)
    };
    let connection = |ends: [End; 2]| Connection {
        addresses: [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 80).into()],
        settings: Settings::default(),
        ends,
        joint: None,
    };
    let file = |connection: Connection| {
        let mut recording = Recording::default();
        recording.origin.hz = 250;
        recording.connections.push(connection);
        encode(&recording).expect("short")
    };
    let one = file(connection([whole.clone(), gap.clone()]));
    let cut = one[..one.len() - 9].to_vec();
    let exact = connection([end(40), gap]);
    let mut learnt = InexactTimes::learn([&exact], 5_000, 3.0);
    let near = connection(exact.ends.each_ref().map(|end| learnt.end(end)));
    let joined = joined(connection([whole.clone(), end(30)]));
    let one_sided = one_sided(&joined, whole.clone());
    vec![
        one,
        cut,
        file(connection([sampled, whole])),
        file(near),
        file(joined),
        one_sided,
    ]
}
