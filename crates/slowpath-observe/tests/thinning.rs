// SPDX-License-Identifier: Apache-2.0
//! Thinned polls on real sockets: looks at one connection form a Poisson process at the
//! rate asked for, nothing that happened while a connection was passed over is lost, and
//! what did not happen is known not to have.

#[allow(dead_code)] // each test binary uses its part
mod sockets;

use slowpath_model::{MonoNanos, Snapshot};
use slowpath_observe::Sink;
use slowpath_observe::bpf::{BpfTier, Options, RATE_COUNT};
use sockets::{cookie, in_fresh_namespace, pair, wait_until_acknowledged};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// What a poll hands over, with the time until which nothing had changed.
#[derive(Default)]
struct PolledSnapshots {
    until: MonoNanos,
    of: HashMap<u64, (Snapshot, MonoNanos)>,
    closed: HashMap<u64, Snapshot>,
}

impl Sink for PolledSnapshots {
    fn unchanged_until(&mut self, at: MonoNanos) {
        self.until = at;
    }

    fn see(&mut self, snapshot: &Snapshot) {
        if snapshot.closed {
            self.closed.insert(snapshot.id.cookie, snapshot.clone());
        } else {
            let look = (snapshot.clone(), self.until);
            let twice = self.of.insert(snapshot.id.cookie, look);
            assert!(twice.is_none(), "twice in one poll: {:?}", snapshot.id);
        }
    }
}

fn poll(tier: &mut BpfTier) -> (MonoNanos, PolledSnapshots) {
    let mut polled = PolledSnapshots::default();
    let report = tier.poll(&mut polled).unwrap();
    (report.at, polled)
}

/// Runs `body` in a fresh namespace with a tier that collects notes and with one that walks.
fn with_tiers(test: &str, body: impl Fn(BpfTier, bool) + Sync) {
    for walk in [false, true] {
        let options = Options {
            walk,
            ..Options::default()
        };
        in_fresh_namespace(test, || match BpfTier::open(&options) {
            Ok(tier) => body(tier, walk),
            Err(error) => println!("SKIPPED {test}: {error}"),
        });
    }
}

fn exchange(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(&[5]).unwrap();
    to.read_exact(&mut [0]).unwrap();
}

fn probabilities(first: f64, second: f64) -> [f64; RATE_COUNT] {
    let mut all = [first; RATE_COUNT];
    all[1] = second;
    all
}

/// Kolmogorov's statistic of waits against an exponential distribution with that rate,
/// times the square root of their number.
fn kolmogorov(mut waits: Vec<f64>, rate: f64) -> f64 {
    waits.sort_by(f64::total_cmp);
    let n = waits.len() as f64;
    let distance = waits.iter().enumerate().fold(0f64, |worst, (i, wait)| {
        let expected = 1.0 - (-rate * wait).exp();
        worst
            .max((expected - i as f64 / n).abs())
            .max(((i + 1) as f64 / n - expected).abs())
    });
    distance * n.sqrt()
}

/// Connections on which something happens between any two polls, half of them at one rate
/// and half at another; polls at Poisson times, one a second in the mean. The times are the
/// test's own and drawn anew for each connection, so that all waits are independent. Then
/// the waits between looks are exponential with the polls' rate times the probability, and
/// looks at different connections are independent, too: their number in a poll is binomial.
#[test]
fn looks_at_each_connection_are_poisson() {
    const PAIRS: usize = 60;
    const POLLS: usize = 600;
    const RATE: [f64; 2] = [0.1, 0.4];
    with_tiers("looks_at_each_connection_are_poisson", |mut tier, walk| {
        let mut random = fastrand::Rng::with_seed(7);
        tier.thin(&probabilities(RATE[0], RATE[1]));
        let mut pairs: Vec<_> = (0..PAIRS)
            .map(|_| pair("127.0.0.1:0", "127.0.0.1"))
            .collect();
        let cookies: Vec<u64> = pairs.iter().map(|(client, _)| cookie(client)).collect();
        for cookie in cookies.iter().skip(PAIRS / 2) {
            tier.set_rate(*cookie, 1);
        }
        // The first look is at once.
        let (_, first) = poll(&mut tier);
        assert!(
            cookies.iter().all(|c| first.of.contains_key(c)),
            "walk {walk}"
        );

        let mut now = [0.0; PAIRS];
        let mut waits_of = vec![Vec::new(); PAIRS];
        let mut last: HashMap<u64, f64> = HashMap::new();
        let mut waits = [Vec::new(), Vec::new()];
        let mut numbers = [Vec::new(), Vec::new()];
        for _ in 0..POLLS {
            for (client, server) in &mut pairs {
                exchange(client, server);
            }
            let (_, polled) = poll(&mut tier);
            let mut number = [0; 2];
            for (i, cookie) in cookies.iter().enumerate() {
                let group = i / (PAIRS / 2);
                now[i] -= (1.0 - random.f64()).ln();
                if polled.of.contains_key(cookie) {
                    number[group] += 1;
                    if let Some(before) = last.insert(*cookie, now[i]) {
                        waits_of[i].push(now[i] - before);
                    }
                }
            }
            for (numbers, number) in numbers.iter_mut().zip(number) {
                numbers.push(f64::from(number));
            }
        }
        for (i, of) in waits_of.into_iter().enumerate() {
            // The first half of those expected, from each: all that end in time would favour
            // short waits.
            let group = i / (PAIRS / 2);
            let count = (RATE[group] * POLLS as f64 / 2.0) as usize;
            assert!(of.len() >= count, "walk {walk}: {} waits", of.len());
            waits[group].extend(of.into_iter().take(count));
        }
        for ((rate, waits), numbers) in RATE.into_iter().zip(waits).zip(numbers) {
            let expected = rate * (PAIRS * POLLS / 2) as f64;
            let looks: f64 = numbers.iter().sum();
            // Five standard deviations of a binomial number.
            assert!(
                (looks - expected).abs() < 5.0 * (expected * (1.0 - rate)).sqrt(),
                "walk {walk}: {looks} looks, expected {expected}"
            );
            // The statistic passes 2.4 once in 50,000 times.
            let statistic = kolmogorov(waits, rate);
            assert!(statistic < 2.4, "walk {walk}, rate {rate}: {statistic}");
            // Variance of a binomial number over its expectation: about n - 1 times this is
            // chi-squared with as many degrees of freedom.
            let mean = looks / numbers.len() as f64;
            let squares: f64 = numbers.iter().map(|n| (n - mean).powi(2)).sum();
            let dispersion =
                squares / (numbers.len() as f64 - 1.0) / (PAIRS as f64 / 2.0 * rate * (1.0 - rate));
            let spread = (2.0 / POLLS as f64).sqrt();
            assert!(
                (dispersion - 1.0).abs() < 5.0 * spread,
                "walk {walk}, rate {rate}: dispersion {dispersion}"
            );
        }
    });
}

/// What happens on a connection that polls pass over is in its next snapshot, and that says
/// until when nothing had happened: the poll before the first event.
#[test]
fn what_was_passed_over_comes_later_and_whole() {
    with_tiers(
        "what_was_passed_over_comes_later_and_whole",
        |mut tier, walk| {
            tier.thin(&[1.0 / 8.0; RATE_COUNT]);
            let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
            let id = cookie(&client);
            poll(&mut tier);
            // Whatever still comes in from the handshake has been noted and looked at.
            for _ in 0..200 {
                poll(&mut tier);
            }
            let mut passed_over = 0;
            for round in 1..=40u64 {
                let (before, _) = poll(&mut tier);
                exchange(&mut client, &mut server);
                let mut late = 0;
                let (snapshot, until) = loop {
                    let (_, mut polled) = poll(&mut tier);
                    if let Some(look) = polled.of.remove(&id) {
                        break look;
                    }
                    if late == 1 {
                        exchange(&mut server, &mut client); // a later event moves nothing
                    }
                    late += 1;
                    assert!(late < 2_048, "walk {walk}, round {round}: never");
                };
                assert_eq!(until, before, "walk {walk}, round {round}");
                assert_eq!(snapshot.sends.map(|s| s.bytes), Some(round));
                passed_over += late;
                // The acknowledgement of the answer, if there was one, is an event, too.
                for socket in [&client, &server] {
                    wait_until_acknowledged(socket);
                }
                for _ in 0..200 {
                    poll(&mut tier);
                }
            }
            // 7 in the mean, 40 times; the sum's standard deviation is 47.
            assert!(
                (45..=515).contains(&passed_over),
                "walk {walk}: {passed_over}"
            );
        },
    );
}

/// A sender stuck on a closed window changes without an event: it is looked at at its rate,
/// too, and once a poll at most.
#[test]
fn what_changes_without_an_event_is_thinned_too() {
    with_tiers(
        "what_changes_without_an_event_is_thinned_too",
        |mut tier, walk| {
            tier.thin(&[0.25; RATE_COUNT]);
            let (mut client, _server) = pair("127.0.0.1:0", "127.0.0.1");
            client.set_nonblocking(true).unwrap();
            while client.write(&[0; 65_536]).is_ok() {}
            let id = cookie(&client);
            let looks = (0..1_000)
                .filter(|_| poll(&mut tier).1.of.contains_key(&id))
                .count();
            // 250, standard deviation 13.7.
            assert!((180..=320).contains(&looks), "walk {walk}: {looks}");
        },
    );
}

#[test]
fn a_close_is_reported_by_the_next_poll_whatever_the_rate() {
    let test = "a_close_is_reported_by_the_next_poll_whatever_the_rate";
    with_tiers(test, |mut tier, walk| {
        tier.thin(&[1.0 / 512.0; RATE_COUNT]);
        let mut pairs: Vec<_> = (0..200).map(|_| pair("127.0.0.1:0", "127.0.0.1")).collect();
        poll(&mut tier);
        for (client, server) in &mut pairs {
            exchange(client, server);
        }
        poll(&mut tier);
        let cookies: Vec<u64> = pairs.iter().map(|(client, _)| cookie(client)).collect();
        for (client, _) in &pairs {
            rustix::net::sockopt::set_socket_linger(client, Some(std::time::Duration::ZERO))
                .unwrap();
        }
        drop(pairs);
        let (_, polled) = poll(&mut tier);
        for cookie in &cookies {
            let last = &polled.closed[cookie];
            assert_eq!(last.sends.map(|s| s.bytes), Some(1), "walk {walk}");
        }
        // Their notes find nothing any more.
        for _ in 0..2_048 {
            let (_, polled) = poll(&mut tier);
            assert!(cookies.iter().all(|c| !polled.of.contains_key(c)));
        }
    });
}
