// SPDX-License-Identifier: Apache-2.0
//! Round trips of a small message on a connection of its own, while the path is idle and while it is loaded.

use crate::socket::{monotonic, sleep_until};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Octets of a probe: a number.
const PROBE: usize = 8;

/// From probe to probe, ns; one that takes longer delays the next.
const PACE: i64 = 50_000_000;

/// How long one read waits before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Round trips of a test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// How many there were.
    pub probes: usize,
    /// The median, ns.
    pub median: u64,
    /// The 95th percentile by nearest rank, ns.
    pub p95: u64,
    /// 60 s over the mean of the shortest 95 %.
    #[serde(skip)]
    pub round_trips_per_minute: f64,
}

impl Delay {
    /// Of round trips, ns; `None` of none.
    #[must_use]
    pub fn of(mut round_trips: Vec<u64>) -> Option<Self> {
        round_trips.sort_unstable();
        // Nearest rank, as `owd` has percentiles.
        let rank = |percent: usize| (round_trips.len() * percent).div_ceil(100).max(1) - 1;
        let median = *round_trips.get(rank(50))?;
        let trimmed = &round_trips[..=rank(95)];
        let mean = trimmed.iter().map(|nanos| *nanos as f64).sum::<f64>() / trimmed.len() as f64;
        Some(Delay {
            probes: round_trips.len(),
            median,
            p95: round_trips[rank(95)],
            round_trips_per_minute: 60e9 / mean.max(1.0),
        })
    }
}

/// The client's end of the connection.
#[derive(Debug)]
pub struct DelayProbe {
    stream: TcpStream,
    number: u64,
}

impl DelayProbe {
    /// On a connection whose other end returns what it gets.
    ///
    /// # Errors
    /// The socket refuses an option.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(DelayProbe { stream, number: 0 })
    }

    /// Probes until a time of [`monotonic`] or `stop`; gives when each was sent and how long it took, ns. A probe that is
    /// under way then counts with what it took so far, if that is longer than the one before.
    pub fn run(&mut self, until: i64, stop: &AtomicBool) -> Vec<(i64, u64)> {
        let mut round_trips: Vec<(i64, u64)> = Vec::new();
        let mut next = monotonic();
        while next < until && sleep_until(next, stop) {
            let sent = monotonic();
            match self.probe(until, stop) {
                Some(true) => round_trips.push((sent, (monotonic() - sent).unsigned_abs())),
                Some(false) => {
                    let passed = (monotonic() - sent).unsigned_abs();
                    if round_trips.last().is_none_or(|(_, last)| passed > *last) {
                        round_trips.push((sent, passed));
                    }
                }
                None => break,
            }
            next = (next + PACE).max(monotonic());
        }
        round_trips
    }

    /// Sends one and waits for it: whether it came back; `None`: the connection broke.
    fn probe(&mut self, until: i64, stop: &AtomicBool) -> Option<bool> {
        self.number += 1;
        let probe = self.number.to_be_bytes();
        self.stream.write_all(&probe).ok()?;
        let (mut buffer, mut filled) = ([0; PROBE], 0);
        loop {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return None,
                Ok(length) => filled += length,
                Err(error) if is_wait(error.kind()) => {
                    if stop.load(Ordering::Relaxed) || monotonic() > until {
                        return Some(false);
                    }
                }
                Err(_) => return None,
            }
            if filled == PROBE {
                // Of one that was given up before.
                if buffer == probe {
                    return Some(true);
                }
                filled = 0;
            }
        }
    }
}

fn is_wait(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// The server's end: returns what comes, no octet more, until the connection ends, `stop`, or a time of [`monotonic`].
pub fn echo(mut stream: &TcpStream, until: i64, stop: &AtomicBool) {
    let ready = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(1))));
    let mut buffer = [0; PROBE];
    while ready.is_ok() && !stop.load(Ordering::Relaxed) && monotonic() < until {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(error) if is_wait(error.kind()) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: of 1 to 20 ms the 10th is the median, the 19th the 95th percentile; the mean of 1 to 19 is 10 ms, which
    /// 60 s hold 6,000 times.
    #[test]
    fn delays_are_nearest_ranks_and_minutes_a_trimmed_mean() {
        let delay = Delay::of((1..=20).rev().map(|ms| ms * 1_000_000).collect()).expect("some");
        assert_eq!(delay.median, 10_000_000);
        assert_eq!(delay.p95, 19_000_000);
        assert!((delay.round_trips_per_minute - 6_000.0).abs() < 1e-6);
        assert_eq!(Delay::of(Vec::new()), None);
        assert_eq!(Delay::of(vec![7]).map(|d| (d.median, d.p95)), Some((7, 7)));
    }
}
