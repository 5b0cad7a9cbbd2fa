// SPDX-License-Identifier: Apache-2.0
//! Requests and answers on real sockets: what the probes measured lies between what the two applications
//! measured themselves, by the same clock. An answer took at least as long as the server held it, and at
//! most as long as the client waited.

#[allow(dead_code)] // each test binary uses its part
mod sockets;

use slowpath_model::{AnswerSums, MonoNanos, Snapshot, TurnEnd, TurnSums, TurnTimes};
use slowpath_observe::bpf::{BpfTier, Options};
use slowpath_observe::monotonic;
use sockets::{cookie, in_fresh_namespace, pair};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

const REQUEST: usize = 100;
const ANSWER: usize = 50;

/// Both ends of a turn as the kernel has them are whole microseconds.
const GRAIN: u64 = 2;

/// Runs `body` in a fresh namespace, with a tier.
fn with_tier(test: &str, body: impl FnOnce(BpfTier) + Send) {
    in_fresh_namespace(test, || match BpfTier::open(&Options::default()) {
        Ok(tier) => body(tier),
        Err(error) => println!("SKIPPED {test}: {error}"),
    });
}

fn poll(tier: &mut BpfTier) -> HashMap<u64, Snapshot> {
    let mut all = HashMap::new();
    tier.poll(&mut |s: &Snapshot| {
        all.insert(s.id.cookie, s.clone());
    })
    .unwrap();
    all
}

fn sums(tier: &mut BpfTier, sockets: [&TcpStream; 2]) -> [TurnSums; 2] {
    let all = poll(tier);
    sockets.map(|s| all[&cookie(s)].turns.sums().expect("observed"))
}

/// From the end of one to the beginning of the other, in microseconds.
fn between(from: MonoNanos, to: MonoNanos) -> u64 {
    to.since(from).0
}

/// A stretch during which a call was made.
#[derive(Clone, Copy, Debug)]
struct Call {
    before: MonoNanos,
    after: MonoNanos,
}

fn call(socket: &mut TcpStream, action: impl FnOnce(&mut TcpStream)) -> Call {
    let before = monotonic();
    action(socket);
    Call {
        before,
        after: monotonic(),
    }
}

fn write(socket: &mut TcpStream, bytes: usize) -> Call {
    call(socket, |s| s.write_all(&vec![7; bytes]).unwrap())
}

fn read(socket: &mut TcpStream, bytes: usize) -> Call {
    call(socket, |s| s.read_exact(&mut vec![0; bytes]).unwrap())
}

/// Asserts that turn `i` took from `least` to `most` microseconds.
fn assert_turn(sums: &AnswerSums, i: usize, least: u64, most: u64, what: &str) {
    let took = u64::from(sums.latest[i]);
    assert!(
        took + GRAIN >= least && took <= most + GRAIN,
        "{what} {i}: {took} us, at least {least} and at most {most}"
    );
}

/// A server that holds each answer for some milliseconds, and a client that thinks as long before
/// the next request. 60 and 120 ms are longer than a delayed ACK, so that the request is acknowledged
/// before its answer.
#[test]
fn turns_last_what_both_applications_measured() {
    const HOLDS: [u64; 9] = [0, 1, 3, 60, 10, 120, 0, 60, 2];
    const THINKS: [u64; 9] = [1, 0, 70, 2, 0, 60, 120, 1, 0];
    with_tier("turns_last_what_both_applications_measured", |mut tier| {
        let (mut client, server) = pair("127.0.0.1:0", "127.0.0.1");
        let mut serving = server.try_clone().unwrap();
        let (asked, served) = std::thread::scope(|scope| {
            let served = scope.spawn(move || {
                HOLDS.map(|hold| {
                    let request = read(&mut serving, REQUEST);
                    sleep(Duration::from_millis(hold));
                    (request, write(&mut serving, ANSWER))
                })
            });
            let asked = THINKS.map(|think| {
                let request = write(&mut client, REQUEST);
                let answer = read(&mut client, ANSWER);
                sleep(Duration::from_millis(think));
                (request, answer)
            });
            (asked, served.join().unwrap())
        });
        let [near, far] = sums(&mut tier, [&client, &server]);
        let n = HOLDS.len();
        assert_eq!((near.overlapping, far.overlapping), (0, 0));
        assert_eq!((near.peer.count, near.here.count), (n as u64, n as u64 - 1));
        assert_eq!((far.here.count, far.peer.count), (n as u64, n as u64 - 1));
        for i in 0..n {
            let ((request, answer), (taken, given)) = (asked[i], served[i]);
            let held = between(taken.after, given.before);
            let waited = between(request.before, answer.after);
            assert_turn(&near.peer, i, held, waited, "answer");
            let served = between(request.before, given.after);
            assert_turn(&far.here, i, held, served, "served");
        }
        for i in 0..n - 1 {
            let ((_, answer), (next, _)) = (asked[i], asked[i + 1]);
            let ((_, given), (taken, _)) = (served[i], served[i + 1]);
            let thought = between(answer.after, next.before);
            let most = between(given.before, next.after);
            assert_turn(&near.here, i, thought, most, "thought");
            let most = between(given.before, taken.after);
            assert_turn(&far.peer, i, thought, most, "next request");
        }
        let sum: u64 = near.peer.latest.iter().map(|us| u64::from(*us)).sum();
        assert_eq!(near.peer.time.0, sum);
        let longest = near.peer.latest.into_iter().max();
        assert_eq!(Some(near.peer.longest.0), longest.map(u64::from));
    });
}

/// From the last byte of the request to the first of the answer, and from the last of the answer.
#[test]
fn requests_and_answers_of_several_writes_are_one_turn_each() {
    let test = "requests_and_answers_of_several_writes_are_one_turn_each";
    with_tier(test, |mut tier| {
        let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
        for _ in 0..2 {
            write(&mut client, REQUEST);
            sleep(Duration::from_millis(5));
        }
        let request = write(&mut client, REQUEST);
        let taken = read(&mut server, 3 * REQUEST);
        sleep(Duration::from_millis(20));
        let given = write(&mut server, ANSWER);
        let first = read(&mut client, ANSWER);
        sleep(Duration::from_millis(10));
        let rest = write(&mut server, ANSWER);
        let last = read(&mut client, ANSWER);
        sleep(Duration::from_millis(30));
        let next = write(&mut client, REQUEST);
        let [near, far] = sums(&mut tier, [&client, &server]);
        assert_eq!((near.peer.count, near.here.count), (1, 1));
        let held = between(taken.after, given.before);
        assert_turn(
            &near.peer,
            0,
            held,
            between(request.before, first.after),
            "answer",
        );
        let thought = between(last.after, next.before);
        assert_turn(
            &near.here,
            0,
            thought,
            between(rest.before, next.after),
            "thought",
        );
        assert_eq!(far.here.count, 1);
        assert_turn(
            &far.here,
            0,
            held,
            between(request.before, given.after),
            "served",
        );
    });
}

#[test]
fn a_pending_answer_is_known_while_it_is_pending() {
    with_tier(
        "a_pending_answer_is_known_while_it_is_pending",
        |mut tier| {
            let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
            write(&mut client, REQUEST);
            read(&mut server, REQUEST);
            write(&mut server, ANSWER);
            read(&mut client, ANSWER);
            let request = write(&mut client, REQUEST);
            let taken = read(&mut server, REQUEST);
            let all = poll(&mut tier);
            let turn = |socket: &TcpStream| all[&cookie(socket)].turns.turn().expect("known");
            let (near, far) = (turn(&client), turn(&server));
            assert_eq!((near.end, far.end), (TurnEnd::Peer, TurnEnd::Here));
            let grain = MonoNanos(1_000);
            assert!(near.since.0 + grain.0 >= request.before.0 && near.since <= request.after);
            assert!(far.since.0 + grain.0 >= request.before.0 && far.since <= taken.after);
            // The answer that came, and none for the one that has not.
            let peer = all[&cookie(&client)].turns.sums().unwrap().peer;
            assert_eq!(peer.count, 1);
        },
    );
}

#[test]
fn data_that_passes_both_ways_at_once_is_no_answer() {
    with_tier(
        "data_that_passes_both_ways_at_once_is_no_answer",
        |mut tier| {
            let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
            for _ in 0..50 {
                write(&mut client, REQUEST);
                write(&mut server, REQUEST);
            }
            let all = poll(&mut tier);
            for socket in [&client, &server] {
                let snapshot = &all[&cookie(socket)];
                let mut times = TurnTimes::from_birth();
                times.observe(&snapshot.turns, snapshot.at);
                assert!(times.duplex(), "{times:?}");
                assert!(times.overlapping >= 40, "{times:?}");
                assert_eq!(times.here.count, 0, "{times:?}");
            }
        },
    );
}

#[test]
fn a_stream_in_one_direction_has_no_turns() {
    with_tier("a_stream_in_one_direction_has_no_turns", |mut tier| {
        let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
        for _ in 0..100 {
            write(&mut client, REQUEST);
            read(&mut server, REQUEST);
        }
        let [near, far] = sums(&mut tier, [&client, &server]);
        assert_eq!((near, far), (TurnSums::default(), TurnSums::default()));
    });
}

/// Exchanges that take less than a tick, and a request that is not answered: who sent data last does not follow
/// from ticks.
#[test]
fn a_turn_that_began_within_a_tick_of_the_one_before_is_known() {
    let test = "a_turn_that_began_within_a_tick_of_the_one_before_is_known";
    in_fresh_namespace(test, || {
        let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
        for _ in 0..200 {
            write(&mut client, REQUEST);
            read(&mut server, REQUEST);
            write(&mut server, ANSWER);
            read(&mut client, ANSWER);
        }
        write(&mut client, REQUEST);
        read(&mut server, REQUEST);
        sleep(Duration::from_millis(600));
        let mut tier = match BpfTier::open(&Options::default()) {
            Ok(tier) => tier,
            Err(error) => return println!("SKIPPED {test}: {error}"),
        };
        let all = poll(&mut tier);
        for (socket, end) in [(&client, TurnEnd::Peer), (&server, TurnEnd::Here)] {
            let turn = all[&cookie(socket)].turns.turn().expect("known");
            assert_eq!(turn.end, end);
        }
    });
}

/// One exchange at the beginning, when each segment is acknowledged at once: the answer was given.
#[test]
fn an_exchange_within_a_tick_that_ended_is_not_pending() {
    let test = "an_exchange_within_a_tick_that_ended_is_not_pending";
    in_fresh_namespace(test, || {
        let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
        write(&mut client, REQUEST);
        read(&mut server, REQUEST);
        write(&mut server, ANSWER);
        read(&mut client, ANSWER);
        sleep(Duration::from_millis(600));
        let mut tier = match BpfTier::open(&Options::default()) {
            Ok(tier) => tier,
            Err(error) => return println!("SKIPPED {test}: {error}"),
        };
        let all = poll(&mut tier);
        for (socket, end) in [(&client, TurnEnd::Here), (&server, TurnEnd::Peer)] {
            let turn = all[&cookie(socket)].turns.turn().expect("known");
            assert_eq!(turn.end, end);
        }
    });
}

/// A request that was written before the tier was opened: the first look shows since when, to
/// the grain of the timer tick (10 ms at most) at both ends.
#[test]
fn a_turn_that_began_before_is_known_at_the_first_look() {
    let test = "a_turn_that_began_before_is_known_at_the_first_look";
    in_fresh_namespace(test, || {
        let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
        write(&mut client, REQUEST);
        read(&mut server, REQUEST);
        sleep(Duration::from_millis(50));
        write(&mut server, ANSWER);
        read(&mut client, ANSWER);
        sleep(Duration::from_millis(50));
        let request = write(&mut client, REQUEST);
        sleep(Duration::from_millis(600));
        let mut tier = match BpfTier::open(&Options::default()) {
            Ok(tier) => tier,
            Err(error) => return println!("SKIPPED {test}: {error}"),
        };
        let all = poll(&mut tier);
        let ticks = 20_000_000;
        for (socket, end) in [(&client, TurnEnd::Peer), (&server, TurnEnd::Here)] {
            let turn = all[&cookie(socket)].turns.turn().expect("known");
            assert_eq!(turn.end, end);
            let (from, to) = (request.before.0 - ticks, request.after.0 + ticks);
            assert!((from..=to).contains(&turn.since.0), "{turn:?}, {request:?}");
        }
    });
}
