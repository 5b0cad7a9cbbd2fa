// SPDX-License-Identifier: Apache-2.0
//! A thousand connections opened and closed a second, in network namespaces that come and go
//! meanwhile: each is in the log, counted by the cookies that their own sockets say.

mod sockets;
mod starting;

use slowpath_agent::{Budget, Config, TierChoice};
use slowpath_store::{LogReader, TimeRange};
use sockets::{cookie, move_on};
use starting::start;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WORKERS: u32 = 4;

/// Connections a second.
const RATE: u32 = 1_000;

/// Connections in one namespace before its thread goes to another; nothing leads to the old
/// one any more.
const IN_ONE: u32 = 250;

/// Opens and closes `count` connections at the rate; gives the cookies of both ends.
fn churn(count: u32) -> io::Result<Vec<u64>> {
    let begin = Instant::now();
    let mut cookies = Vec::new();
    let mut listener = None;
    for i in 0..count {
        if i % IN_ONE == 0 {
            move_on()?;
            listener = Some(TcpListener::bind("127.0.0.1:0")?);
        }
        let Some(listener) = &listener else { break };
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (mut server, _) = listener.accept()?;
        client.write_all(&[1; 100])?;
        server.read_exact(&mut [0; 100])?;
        cookies.push(cookie(&client));
        cookies.push(cookie(&server));
        drop((client, server));
        let due = begin + (i + 1) * Duration::from_secs(1) / (RATE / WORKERS);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(cookies)
}

fn every_connection_is_in_the_log(test: &str, seconds: u32, budget: Option<Budget>) {
    let log = tempfile::tempdir().unwrap();
    let config = Config {
        log: Some(log.path().to_owned()),
        verdicts: false,
        tier: TierChoice::Bpf,
        budget,
        ..Config::default()
    };
    let Some(mut agent) = start(test, config) else {
        return;
    };
    agent.poll().unwrap();
    let running = AtomicUsize::new(WORKERS as usize);
    let mut cookies = HashSet::new();
    let outcome: io::Result<()> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    let cookies = churn(seconds * RATE / WORKERS);
                    running.fetch_sub(1, Ordering::Release);
                    cookies
                })
            })
            .collect();
        while running.load(Ordering::Acquire) > 0 {
            std::thread::sleep(agent.until_next_poll());
            agent.poll().unwrap();
        }
        for worker in workers {
            cookies.extend(worker.join().unwrap()?);
        }
        Ok(())
    });
    if let Err(error) = outcome {
        println!("SKIPPED {test}: no network namespace: {error}");
        return;
    }
    assert_eq!(cookies.len() as u32, 2 * seconds * RATE);
    // What is still open is in the log when the agent ends.
    for _ in 0..3 {
        std::thread::sleep(agent.until_next_poll());
        agent.poll().unwrap();
    }
    let lost = agent.losses();
    let finished = agent.finish();
    assert_eq!(
        (finished.losses.records_dropped, finished.log_error),
        (0, None)
    );
    let reader = LogReader::open(log.path()).unwrap();
    let logged: HashSet<u64> = reader
        .connections(TimeRange::ALL)
        .unwrap()
        .rows
        .iter()
        .map(|c| c.connection.cookie)
        .collect();
    let missing = cookies.difference(&logged).count() as u64;
    println!(
        "{test}: {} connections' ends, {missing} not in the log, {lost:?}",
        cookies.len()
    );
    // The kernel may skip a program, a few times in a million; it counts them.
    assert!(
        missing <= lost.closes_dropped,
        "{missing} missing, {lost:?}"
    );
}

#[test]
fn every_connection_of_a_churn_is_in_the_log() {
    every_connection_is_in_the_log("every_connection_of_a_churn_is_in_the_log", 3, None);
}

#[test]
fn so_it_is_under_a_budget() {
    let budget = Budget::percent(1.0, 2.0).ok();
    every_connection_is_in_the_log("so_it_is_under_a_budget", 3, budget);
}

#[test]
#[ignore = "soak: a minute of churn"]
fn every_connection_of_a_minute_is_in_the_log() {
    every_connection_is_in_the_log("every_connection_of_a_minute_is_in_the_log", 60, None);
}
