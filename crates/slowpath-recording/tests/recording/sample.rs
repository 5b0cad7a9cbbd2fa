// SPDX-License-Identifier: Apache-2.0
//! Recordings as they look: a bulk transfer with losses, made by rule.

use slowpath_recording::{
    Connection, End, Handler, Moment, Origin, Outcome, Recording, Run, Settings, Timer,
};

/// The tick of a kernel at 250 Hz.
const TICK: u64 = 4_000_000;

fn run(at: u64, handler: Handler, check: u32) -> Run {
    Run {
        at: Moment(at),
        // The tick began 1.5 ms before the recording.
        jiffies: 4_294_892_296u32.wrapping_add(((at + 1_500_000) / TICK) as u32),
        handler,
        outcomes: Vec::new(),
        check: Some(check),
    }
}

pub fn packet(number: u32) -> Handler {
    Handler::Packet {
        number,
        marked: false,
        backlog: false,
        merged: 1,
        truesize: 2_304,
    }
}

/// `packets` of bulk, every 100th lost, an ACK for every second.
pub fn bulk(packets: u32) -> Recording {
    let mut sender = vec![
        run(1_000, Handler::Connect, 7),
        run(51_000, packet(0), 8),
        run(
            60_000,
            Handler::Send {
                bytes: 1 << 20,
                flags: 0x40,
                result: 1 << 20,
            },
            9,
        ),
    ];
    let mut receiver = vec![
        run(26_000, packet(0), 1),
        run(76_000, packet(1), 2),
        run(76_500, Handler::Accept, 3),
    ];
    let mut acks = 1;
    for number in 2..packets {
        let at = 100_000 + u64::from(number) * 1_230;
        if number % 100 == 99 {
            continue;
        }
        receiver.push(run(
            at,
            packet(number),
            number.wrapping_mul(2_654_435_761) >> 7,
        ));
        if number % 2 == 0 {
            sender.push(run(at + 26_000, packet(acks), number.wrapping_mul(40_503)));
            acks += 1;
        }
        if number % 32 == 0 {
            let handler = Handler::Receive {
                bytes: 65_536,
                flags: 0,
                result: 46_336,
            };
            receiver.push(run(at + 300, handler, number));
        }
        if number % 500 == 0 {
            let timer = Handler::Timer {
                timer: Timer::Write,
                deferred: false,
            };
            let mut late = run(at + 27_000, timer, number);
            late.outcomes.push(Outcome::SmallQueue {
                nth: 2,
                throttled: true,
            });
            sender.push(late);
        }
    }
    let end = |runs: Vec<Run>| End {
        digest: 0xdead_0000 | runs.len() as u32,
        runs,
        ..End::default()
    };
    Recording {
        origin: Origin {
            kernel: "6.12.95".to_owned(),
            hz: 250,
            epoch: 1_700_000_000_000_000_000,
            recorder: "laboratory".into(),
        },
        connections: vec![Connection {
            addresses: [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 80).into()],
            settings: Settings {
                mtu: [1_500, 1_500],
                ..Settings::default()
            },
            ends: [end(sender), end(receiver)],
            joint: None,
        }],
        one_sided: Vec::new(),
    }
}
