// SPDX-License-Identifier: Apache-2.0
//! Whose turn it is.
use super::*;
use slowpath_model::{AnswerSums, LATEST_TURNS, MonoNanos, TurnSums, Turns};

/// Turns of each end: how many ended, and how long each took in microseconds.
fn turns(peer: (u64, u64), here: (u64, u64)) -> TurnTimes {
    let mut turns = TurnTimes::default();
    turns.observed = true;
    for (times, (count, each)) in [(&mut turns.peer, peer), (&mut turns.here, here)] {
        times.count = count;
        times.time = Micros(count * each);
        times.longest = Micros(each);
        times.turn_time = Micros(count * each);
    }
    turns
}

/// Waits for 40 answers within 8 s, most of which took so many microseconds; 1 ms before each request.
fn waits(most: u32) -> TurnTimes {
    let answers = |time: u64, latest: u32| AnswerSums {
        count: 40,
        time: Micros(time),
        longest: Micros(900_000),
        latest: [latest; LATEST_TURNS],
    };
    let sums = TurnSums {
        overlapping: 0,
        peer: answers(8 * SECOND.0, most),
        here: answers(40_000, 1_000),
    };
    let mut turns = TurnTimes::from_birth();
    turns.observe(&Turns::watched(None).with(sums), MonoNanos(1));
    turns
}

/// A client that asks 30 times in ten seconds; postgres takes 300 ms to answer.
fn slow_query() -> (Scripted, Scripted) {
    let mut client = Scripted::new("pgbench", CLIENT, "10.0.0.2:5432", &[]);
    client.stats.bytes_received = 6_600;
    client.turns = turns((30, 301_000), (30, 20_000));
    let mut server = Scripted::new("postgres", "10.0.0.2:5432", CLIENT, &[]);
    server.origin = Origin::Accepted;
    server.stats.bytes_received = 6_600;
    server.turns = turns((30, 21_000), (30, 300_000));
    (client, server)
}

#[test]
fn a_server_that_takes_long_to_answer_is_the_limit_whichever_end_is_asked() {
    let (client, server) = slow_query();
    for observed in [
        client.with(&server),
        server.with(&client),
        server.one_sided(),
    ] {
        let answer = conclude([observed], &[]);
        assert_eq!((answer.limiter, answer.alarm), (Limiter::Application, true));
        assert_eq!(answer.act.process.unwrap().command.as_ref(), "postgres");
        assert_eq!(answer.share, Some(0.9));
        assert!(
            answer.text.contains("postgres[7] took 300ms to answer"),
            "{}",
            answer.text
        );
    }
    // Without the server's socket, by its address, and without the round trip.
    let answer = conclude([client.one_sided()], &[]);
    assert_eq!(answer.act.address.as_deref(), Some("10.0.0.2:5432"));
    assert!(
        answer.text.contains("10.0.0.2:5432 took 300ms to answer"),
        "{}",
        answer.text
    );
}

#[test]
fn a_client_that_asks_seldom_is_no_alarm() {
    let (mut client, _) = slow_query();
    client.turns = turns((30, 1_000), (30, 300_000));
    let answer = conclude([client.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.alarm),
        (Limiter::Application, false)
    );
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "pgbench");
}

#[test]
fn waits_that_are_round_trips_are_the_askers_to_mend() {
    let (mut client, mut server) = slow_query();
    client.stats.min_rtt = Some(Micros(150_000));
    client.turns = turns((60, 150_100), (60, 100));
    server.turns = turns((60, 150_100), (60, 100));
    for observed in [
        client.with(&server),
        client.one_sided(),
        server.with(&client),
    ] {
        let answer = conclude([observed], &[]);
        assert_eq!((answer.limiter, answer.alarm), (Limiter::RoundTrips, true));
        assert_eq!(answer.act.process.unwrap().command.as_ref(), "pgbench");
    }
}

#[test]
fn waits_beyond_round_trips_are_the_networks_where_segments_were_sent_again() {
    // 40 requests within 10 s: a round trip of 20 ms each, 1 ms to answer; most of the rest waited for probes of the tail.
    let (mut client, mut server) = slow_query();
    client.stats.min_rtt = Some(Micros(20_000));
    client.turns = waits(20_000);
    server.turns = turns((40, 249_000), (40, 1_000));
    let limiter = |client: &Scripted, server: &Scripted| {
        let answer = conclude([client.with(server)], &[]);
        (answer.limiter, answer.act.who)
    };
    let asker = (Limiter::RoundTrips, Role::SendingApplication);
    assert_eq!(limiter(&client, &server), asker);
    server.tally.deltas.retransmitted = Some(5);
    client.tally.deltas.retransmitted = Some(6);
    let lost = (Limiter::Network, Role::Network);
    assert_eq!(limiter(&client, &server), lost);
    assert_eq!(limiter(&server, &client), lost);
    let answer = conclude([client.with(&server)], &[]);
    // 8 s of waits, less 40 ms of answers and 0.8 s of round trips.
    assert_eq!(answer.share, Some(0.716));
    assert_eq!(answer.act.address.as_deref(), Some("10.0.0.2:5432"));
    assert!(
        answer
            .text
            .contains("40 exchanges waited 7.16s in all for 11 segments to be sent again"),
        "{}",
        answer.text
    );
    // Nor is what all exchanges alike take, as a slow path's time for a large request.
    let lossy = std::mem::replace(&mut client.turns, waits(180_000));
    assert_eq!(limiter(&client, &server), asker);
    client.turns = lossy;
    // What late ACKs held back is not the path's.
    let held = Scripted::new(
        "pgbench",
        CLIENT,
        "10.0.0.2:5432",
        &[(Problem::DelayedAck, 7)],
    );
    client.tally = held.tally;
    client.tally.deltas.retransmitted = Some(1);
    assert_eq!(limiter(&client, &server).0, Limiter::Application);
}

#[test]
fn a_proxy_that_waits_for_its_backend_is_not_the_answer() {
    let (client, _) = slow_query();
    let mut proxy = Scripted::new("haproxy", "10.0.0.2:5432", CLIENT, &[]);
    proxy.owner = Owner::named(8, "haproxy");
    proxy.origin = Origin::Accepted;
    proxy.turns = turns((30, 21_000), (30, 300_000));
    let mut backend_side = Scripted::new("haproxy", "10.0.0.2:6000", "10.0.0.3:80", &[]);
    backend_side.owner = Owner::named(8, "haproxy");
    backend_side.stats.bytes_received = 6_600;
    backend_side.turns = turns((30, 299_000), (30, 20_000));
    let mut backend = Scripted::new("python3", "10.0.0.3:80", "10.0.0.2:6000", &[]);
    backend.owner = Owner::named(9, "python3");
    backend.origin = Origin::Accepted;
    backend.turns = turns((30, 21_000), (30, 298_000));
    let connections = [proxy.with(&client), backend_side.with(&backend)];
    let answer = conclude(connections, &[]);
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "python3");
}

#[test]
fn an_end_whose_traffic_overlaps_has_no_turns() {
    let (client, mut server) = slow_query();
    // It writes before it has read all.
    server.turns = turns((0, 0), (2, 1_000));
    server.turns.overlapping = 28;
    let answer = conclude([client.with(&server)], &[]);
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "postgres");
    // 30 waits of 301 ms, less the least RTT of 0.9 ms each, of 10 s.
    assert!((answer.share.unwrap() - 0.9003).abs() < 1e-9);
}

#[test]
fn a_stream_that_nothing_ever_answered_asks_for_nothing() {
    let (mut client, mut server) = slow_query();
    for end in [&mut client, &mut server] {
        end.turns = turns((0, 0), (0, 0));
    }
    server.turns.here.pending = Some(Micros(5 * SECOND.0));
    server.turns.here.turn_time = Micros(9 * SECOND.0);
    client.turns.peer = server.turns.here.clone();
    client.stats.bytes_received = 0;
    let of = |client: &Scripted, server: &Scripted| {
        let answer = conclude([client.with(server)], &[]);
        (answer.act.process.unwrap().command, answer.alarm)
    };
    // It has asked once: the server keeps it waiting.
    client.tally.deltas.writes = Some(2);
    assert_eq!(of(&client, &server), ("postgres".into(), true));
    client.tally.deltas.writes = Some(9);
    assert_eq!(of(&client, &server), ("pgbench".into(), false));
    // Before it was observed: one request of 40 kB, or 40 messages of 100 bytes.
    client.tally.deltas.writes = Some(0);
    client.stats.send_mss = 1_000;
    client.stats.data_segments_out = 40;
    client.stats.bytes_acked = 40_000;
    assert!(of(&client, &server).1);
    client.stats.bytes_acked = 4_000;
    assert!(!of(&client, &server).1);
    // It wrote again 0.4 s ago, after 8.6 s without an answer.
    client.stats.bytes_acked = 40_000;
    server.turns.here.pending = Some(Micros(400_000));
    client.turns.peer = server.turns.here.clone();
    assert!(!of(&client, &server).1);
}

/// Nothing happens at the client after its last answer, while the server goes on waiting for a request.
#[test]
fn an_end_that_was_observed_for_less_but_lacks_no_turn_is_not_left_out() {
    let (mut client, mut server) = slow_query();
    client.tally.totals.observed = Micros(8_800_000);
    client.turns = turns((50, 110_000), (50, 72_000));
    server.turns = turns((50, 101_000), (50, 100_000));
    let slow = |client: &Scripted| {
        let answer = conclude([client.with(&server)], &[]);
        answer.act.process.unwrap().command
    };
    assert_eq!(slow(&client).as_ref(), "postgres");
    // Met later: what the server waited is all that is known.
    client.turns = turns((44, 110_000), (44, 72_000));
    assert_eq!(slow(&client).as_ref(), "pgbench");
}
