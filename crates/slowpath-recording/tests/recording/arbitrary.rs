// SPDX-License-Identifier: Apache-2.0
//! Any recording: mostly plausible values, and all others.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use slowpath_recording::sampling::{Sample, Step};
use slowpath_recording::{
    Clock, Connection, Decision, End, Handler, Joint, Moment, OneSided, Origin, Outcome, Packet,
    Recording, Run, Sent, Settings, Timer,
};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU64;

fn timer() -> impl Strategy<Value = Timer> {
    prop_oneof![
        Just(Timer::Write),
        Just(Timer::DelayedAck),
        Just(Timer::Keepalive),
        Just(Timer::Pacing),
        Just(Timer::CompressedAck),
        Just(Timer::Request),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    (0..Decision::ALL.len()).prop_map(|number| Decision::ALL[number])
}

/// Few values often, any value at times.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![5 => 0u32..4, 2 => Just(65_536), 1 => any::<u32>()]
}

fn result(bytes: u32) -> impl Strategy<Value = i32> {
    prop_oneof![4 => Just(bytes as i32), 1 => Just(-11), 1 => any::<i32>()]
}

fn call() -> impl Strategy<Value = (u32, u32, i32)> {
    (number(), number()).prop_flat_map(|(bytes, flags)| (Just(bytes), Just(flags), result(bytes)))
}

fn handler() -> impl Strategy<Value = Handler> {
    let packet = (number(), any::<(bool, bool)>(), 0u16..4, number());
    let option = (any::<(u16, u16)>(), any::<i64>());
    let simple = prop_oneof![
        Just(Handler::Connect),
        Just(Handler::Accept),
        Just(Handler::Resume),
        Just(Handler::Close),
        Just(Handler::SmallQueue),
    ];
    let numbered = prop_oneof![
        any::<bool>().prop_map(|fresh| Handler::Begin { fresh }),
        any::<u8>().prop_map(|how| Handler::Shutdown { how }),
        number().prop_map(|flags| Handler::Release { flags }),
        (timer(), any::<bool>()).prop_map(|(timer, deferred)| Handler::Timer { timer, deferred }),
        option.prop_map(|((level, name), value)| Handler::Option { level, name, value }),
    ];
    prop_oneof![
        1 => simple,
        1 => numbered,
        2 => call().prop_map(|(bytes, flags, result)| Handler::Send { bytes, flags, result }),
        2 => call().prop_map(|(bytes, flags, result)| Handler::Receive { bytes, flags, result }),
        4 => packet.prop_map(|(number, (marked, backlog), merged, truesize)| Handler::Packet {
            number,
            marked,
            backlog,
            merged,
            truesize,
        }),
    ]
}

/// Numbers of few values often mean something.
fn outcome() -> impl Strategy<Value = Outcome> {
    (decision(), number(), number()).prop_filter_map(
        "numbers that mean something",
        |(decision, first, second)| Outcome::from_numbers(decision, first, second),
    )
}

fn run() -> impl Strategy<Value = Run> {
    let at = prop_oneof![6 => 0u64..50_000_000, 1 => any::<u64>()];
    let jiffies = prop_oneof![6 => 0u32..13, 1 => any::<u32>()];
    let outcomes = prop_oneof![4 => Just(Vec::new()), 1 => vec(outcome(), 0..4)];
    (at, jiffies, handler(), outcomes, any::<u32>()).prop_map(
        |(at, jiffies, handler, outcomes, check)| Run {
            at: Moment(at),
            jiffies,
            handler,
            outcomes,
            check: Some(check),
        },
    )
}

fn sample() -> impl Strategy<Value = Sample> {
    let any_step = (any::<u64>(), 1..u64::MAX);
    let few = (0u64..9_000, 1u64..30);
    let step = prop_oneof![3 => few, 1 => any_step];
    (any::<(u32, u64)>(), step).prop_map(|((index, time), (numerator, denominator))| Sample {
        index: index.into(),
        time,
        step: Step {
            numerator,
            denominator: NonZeroU64::new(denominator).expect("not zero"),
        },
    })
}

fn end(runs: usize) -> impl Strategy<Value = End> {
    let sent = (any::<u32>(), vec(sample(), 0..9))
        .prop_map(|(threshold, samples)| Sent { threshold, samples });
    (
        vec(run(), 0..runs),
        option::of(0u64..40),
        0u64..3,
        option::of(sent),
        any::<(u32, u32)>(),
    )
        .prop_map(|(runs, gap, lost, sent, (digest, within))| End {
            runs,
            gap,
            lost,
            within,
            sent,
            digest,
        })
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let scoped = any::<(u128, u16, u32, u32)>().prop_map(|(ip, port, flow, scope)| {
        SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope))
    });
    let plain = any::<([u8; 4], u16)>().prop_map(SocketAddr::from);
    prop_oneof![plain, scoped]
}

fn settings() -> impl Strategy<Value = Settings> {
    let map = || btree_map("[a-z_.]{0,12}", "\\PC{0,8}", 0..3);
    ([map(), map()], [map(), map()], any::<[u32; 2]>()).prop_map(|(sysctls, socket, mtu)| {
        Settings {
            sysctls,
            socket,
            mtu,
        }
    })
}

fn origin() -> impl Strategy<Value = Origin> {
    let hz = prop_oneof![
        Just(0),
        Just(100),
        Just(250),
        Just(300),
        Just(1_000),
        any::<u32>()
    ];
    ("\\PC{0,20}", hz, any::<i64>(), "[a-z]{0,12}").prop_map(|(kernel, hz, epoch, recorder)| {
        Origin {
            kernel,
            hz,
            epoch,
            recorder: recorder.into(),
        }
    })
}

fn joint() -> impl Strategy<Value = Joint> {
    let within = option::of(prop_oneof![0u64..9, 0..u64::MAX]);
    (any::<[(i64, i32, u64); 2]>(), within).prop_map(|(clocks, within)| Joint {
        clocks: clocks.map(|(offset, drift, since)| Clock {
            offset,
            drift,
            since: Moment(since),
        }),
        within,
    })
}

fn connection(runs: usize) -> impl Strategy<Value = Connection> {
    (
        [address(), address()],
        settings(),
        [end(runs), end(runs)],
        option::weighted(0.3, joint()),
    )
        .prop_map(|(addresses, settings, ends, joint)| Connection {
            addresses,
            settings,
            ends,
            joint,
        })
}

/// Mostly as a socket numbers its packets.
fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let follows = (0u64..3, 0u32..3_000).prop_map(|(run, length)| (run, length, None));
    let other = any::<(u64, u32, u16, u32, u32)>();
    let other = other.prop_map(|(run, length, id, begins, mark)| {
        let packet = Packet {
            run,
            id,
            begins,
            length,
            mark,
        };
        (run, length, Some(packet))
    });
    vec(prop_oneof![6 => follows, 1 => other], 0..40).prop_map(|all| {
        let mut last = Packet::default();
        let next = |(run, length, other): (u64, u32, Option<Packet>)| {
            last = other.unwrap_or(Packet {
                run: last.run.wrapping_add(run),
                id: last.id.wrapping_add(1),
                begins: last.begins.wrapping_add(last.length),
                length,
                mark: 0,
            });
            last
        };
        all.into_iter().map(next).collect()
    })
}

fn one_sided(runs: usize) -> impl Strategy<Value = OneSided> {
    let whole = |end: End| End { sent: None, ..end };
    let initial = [option::of(any::<u32>()), option::of(any::<u32>())];
    let who = ([address(), address()], 0usize..2, initial);
    (
        who,
        settings(),
        end(runs).prop_map(whole),
        [packets(), packets()],
    )
        .prop_map(
            |((addresses, side, initial), settings, end, [sent, came])| {
                let [sysctls, socket] = [settings.sysctls, settings.socket].map(|[own, _]| own);
                OneSided {
                    addresses,
                    side,
                    initial,
                    sysctls,
                    socket,
                    mtu: settings.mtu[0],
                    end,
                    sent,
                    came,
                }
            },
        )
}

/// Any recording, with at most that many runs an end.
pub fn recording(runs: usize) -> impl Strategy<Value = Recording> {
    let one_sided = vec(one_sided(runs), 0..3);
    (origin(), vec(connection(runs), 0..4), one_sided).prop_map(
        |(origin, connections, one_sided)| Recording {
            origin,
            connections,
            one_sided,
        },
    )
}
