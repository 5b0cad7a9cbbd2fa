// SPDX-License-Identifier: Apache-2.0
//! What was inferred is inferred otherwise: the search, with a made-up kernel that parts until one moment is right. What was observed never changes.

use proptest::prelude::*;
use slowpath_recording::fields::Field;
use slowpath_recording::{Connection, End, Handler, Moment, Outcome, Run, Settings, Timer};
use slowpath_replay::fit::{RunPosition, Search};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

fn run(at: u64, handler: Handler, outcomes: &[Outcome]) -> Run {
    Run {
        at: Moment(at),
        jiffies: (at / (4 * MS)) as u32,
        handler,
        outcomes: outcomes.to_vec(),
        check: None,
    }
}

fn packet(at: u64, number: u32) -> Run {
    let handler = Handler::Packet {
        number,
        marked: false,
        backlog: false,
        merged: 1,
        truesize: 0,
    };
    let observed = [
        Outcome::DeviceMemory { sent: 0, bytes: 1 },
        Outcome::DeviceMemory {
            sent: 1,
            bytes: 4_352,
        },
        Outcome::Observed {
            field: Field::InFlight,
            value: 1_448 * number,
        },
        Outcome::Observed {
            field: Field::ReceiveWindow,
            value: 65_536,
        },
    ];
    run(at, handler, &observed)
}

fn send(at: u64) -> Run {
    let handler = Handler::Send {
        bytes: 65_536,
        flags: 0,
        result: 65_536,
    };
    run(at, handler, &[])
}

fn receive(at: u64) -> Run {
    let handler = Handler::Receive {
        bytes: 65_536,
        flags: 0,
        result: 4_344,
    };
    run(at, handler, &[])
}

/// The client sends twice, of which the server receives three packets each time.
fn connection() -> Connection {
    let timer = Handler::Timer {
        timer: Timer::DelayedAck,
        deferred: false,
    };
    let client = vec![
        run(0, Handler::Connect, &[]),
        packet(20 * MS, 0),
        send(21 * MS),
        packet(41 * MS, 1),
        packet(42 * MS, 2),
        send(43 * MS),
        packet(63 * MS, 3),
        packet(64 * MS, 4),
    ];
    let server = vec![
        packet(10 * MS, 0),
        packet(30 * MS, 1),
        run(30 * MS, Handler::Accept, &[]),
        packet(31 * MS, 2),
        packet(31 * MS + 20_000, 3),
        packet(31 * MS + 40_000, 4),
        receive(32 * MS),
        packet(53 * MS, 5),
        packet(53 * MS + 20_000, 6),
        run(53 * MS + 30_000, timer, &[]),
        packet(53 * MS + 40_000, 7),
        receive(54 * MS),
    ];
    let end = |runs: Vec<Run>| End {
        runs,
        ..End::default()
    };
    Connection {
        addresses: [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 80).into()],
        settings: Settings {
            sysctls: [BTreeMap::new(), BTreeMap::new()],
            socket: [BTreeMap::new(), BTreeMap::new()],
            mtu: [1_500; 2],
        },
        ends: [end(client), end(server)],
        joint: None,
    }
}

const PARTED: RunPosition = RunPosition { end: 0, run: 7 };
const SOONER: RunPosition = RunPosition { end: 1, run: 11 };

/// Until its judge says that nothing parts, or it is over.
fn search(judge: impl FnMut(&Connection) -> Option<RunPosition>) -> Search {
    search_from(PARTED, judge)
}

fn search_from(
    parted: RunPosition,
    mut judge: impl FnMut(&Connection) -> Option<RunPosition>,
) -> Search {
    let connection = connection();
    let mut search = Search::new(&connection, parted);
    loop {
        let parted: Vec<Option<RunPosition>> = search.candidates(7).map(&mut judge).collect();
        if parted.is_empty() {
            return search;
        }
        assert!(parted.len() <= 7);
        search.report(&parted);
    }
}

/// Packets with what was observed before them, and calls with their bytes: what the recorder knows.
fn known(connection: &Connection) -> [(Vec<String>, Vec<String>); 2] {
    let report = |run: &Run| {
        let mut observed = run.outcomes.clone();
        observed.retain(|it| matches!(it, Outcome::Observed { .. }));
        format!("{:?} {observed:?}", run.handler)
    };
    connection.ends.each_ref().map(|end| {
        let packets = |run: &&Run| matches!(run.handler, Handler::Packet { .. });
        let own = end.runs.iter();
        let (packets, mut others): (Vec<&Run>, Vec<&Run>) = own.partition(packets);
        others.sort_by_key(|run| report(run));
        let reported = |runs: Vec<&Run>| runs.into_iter().map(report).collect();
        (reported(packets), reported(others))
    })
}

#[test]
fn a_moment_that_a_replay_needs_is_found() {
    // It parts unless the second send began 80 to 130 us before it had sent all.
    let found = search(|connection| {
        let at = connection.ends[0].runs[5].at.0;
        let right = (43 * MS - 130_000..=43 * MS - 80_000).contains(&at);
        (!right).then_some(PARTED)
    });
    let [change] = found.changes() else {
        panic!("{:?}", found.changes())
    };
    assert_eq!((change.place.end, change.place.run), (0, 5));
    let send = &found.best().ends[0].runs[5];
    let later: Vec<u64> = send
        .outcomes
        .iter()
        .map(|it| it.numbers()[1].into())
        .collect();
    // What it read last is what it was.
    assert_eq!(send.at.0 + later[0], 43 * MS);
}

#[test]
fn two_causes_are_found_one_after_the_other() {
    let found = search_from(SOONER, |connection| {
        let [client, server] = &connection.ends;
        let began = server.runs[6].at.0;
        match (
            began <= 32 * MS - 6_000,
            client.runs[5].at.0 <= 43 * MS - 150_000,
        ) {
            (false, _) => Some(SOONER),
            (true, false) => Some(PARTED),
            (true, true) => None,
        }
    });
    assert_eq!(found.changes().len(), 2, "{:?}", found.changes());
}

#[test]
fn what_goes_no_further_is_not_kept() {
    for parted in [PARTED, SOONER] {
        let found = search(|_| Some(parted));
        assert!(found.changes().is_empty());
        assert_eq!(found.best(), &connection());
        assert!(found.tries() > 50);
    }
}

#[test]
fn what_was_observed_is_never_changed() {
    let wanted = known(&connection());
    let mut count = 0;
    search(|other| {
        assert_eq!(known(other), wanted);
        for end in &other.ends {
            assert!(end.runs.is_sorted_by_key(|run| run.at), "{end:?}");
        }
        count += 1;
        Some(PARTED)
    });
    assert!(count > 50);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the answers: it ends, what was observed stays, and the same answers make the same of it.
    #[test]
    fn whatever_a_kernel_answers(answers in prop::collection::vec((0u8..2, 0u64..14), 1..60)) {
        let once = || {
            let mut at = 0;
            search(|_| {
                at += 1;
                let (end, run) = answers[at % answers.len()];
                (at < 3_000 || at % 7 != 0).then_some(RunPosition { end, run })
            })
        };
        let found = once();
        prop_assert_eq!(known(found.best()), known(&connection()));
        prop_assert!(found.tries() <= 5_000);
        let again = once();
        prop_assert_eq!(found.changes(), again.changes());
    }
}
