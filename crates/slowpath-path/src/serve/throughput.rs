// SPDX-License-Identifier: Apache-2.0
//! Throughput tests that are under way: who may have one, and which connections belong to it.

use super::admission::{Admission, ThroughputLimits};
use super::requests::MOST_STREAMS;
use crate::requests::message::{DataUse, Refusal, ThroughputRequest};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Peers whose latest tests are remembered; the one that was silent for longest is forgotten.
const MOST_PEERS: usize = 1_024;

/// The time in which a peer's tests are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Beyond warm-up and length, what a test may take: idle probes, set-up, the end.
const MARGIN: Duration = Duration::from_secs(60);

/// Why no test was opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestRefused(pub(super) Refusal);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct RunningTests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<[u8; 16], Entry>,
    /// When a peer's tests of the last minute began.
    recent: HashMap<IpAddr, VecDeque<Instant>>,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    /// Streams, and delay connections, that may still come.
    streams: u16,
    delays: u16,
    test: Arc<TestState>,
}

#[derive(Debug)]
struct TestState {
    streams: Mutex<Vec<(TcpStream, Admission)>>,
    over: AtomicBool,
    longest: Duration,
}

/// A test that was accepted; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Test<'a> {
    all: &'a RunningTests,
    token: [u8; 16],
    state: Arc<TestState>,
}

/// A connection's part in a test.
#[derive(Debug)]
pub(super) struct Slot {
    state: Arc<TestState>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunningTests {
    /// Accepts a test, if the limits allow.
    pub(super) fn open(
        &self,
        token: [u8; 16],
        peer: IpAddr,
        request: &ThroughputRequest,
        limits: &ThroughputLimits,
        now: Instant,
    ) -> Result<Test<'_>, TestRefused> {
        let length = request.length_ms.saturating_add(request.warm_up_ms);
        if limits.seconds == 0 {
            return Err(TestRefused(Refusal::NotOffered));
        }
        let streams = (1..=MOST_STREAMS).contains(&request.streams);
        if !streams || length > limits.seconds.saturating_mul(1_000) || request.length_ms == 0 {
            return Err(TestRefused(Refusal::OverLimit));
        }
        let mut state = lock(&self.state);
        let of_peer = state.running.values().filter(|entry| entry.peer == peer);
        if of_peer.count() >= limits.of_peer || state.running.len() >= limits.at_once {
            return Err(TestRefused(Refusal::Busy));
        }
        if !state.may_begin(peer, limits.per_minute, now) {
            return Err(TestRefused(Refusal::TooOften));
        }
        let test = Arc::new(TestState {
            streams: Mutex::default(),
            over: AtomicBool::new(false),
            longest: Duration::from_millis(length) + MARGIN,
        });
        let entry = Entry {
            peer,
            streams: request.streams,
            delays: 1,
            test: Arc::clone(&test),
        };
        state.running.insert(token, entry);
        Ok(Test {
            all: self,
            token,
            state: test,
        })
    }

    /// Lets a connection take part: with the token, from the address that asked, as often as was asked for.
    pub(super) fn join(&self, token: &[u8; 16], peer: IpAddr, use_for: DataUse) -> Option<Slot> {
        let mut state = lock(&self.state);
        let entry = state.running.get_mut(token)?;
        let left = match use_for {
            DataUse::Stream => &mut entry.streams,
            DataUse::Delay => &mut entry.delays,
        };
        if entry.peer != peer || *left == 0 {
            return None;
        }
        *left -= 1;
        Some(Slot {
            state: Arc::clone(&entry.test),
        })
    }
}

impl State {
    /// Whether the peer has begun fewer tests than its limit within a minute; then this one counts.
    fn may_begin(&mut self, peer: IpAddr, most: usize, now: Instant) -> bool {
        let old = |begun: &Instant| now.saturating_duration_since(*begun) >= MINUTE;
        for begun in self.recent.values_mut() {
            while begun.front().is_some_and(old) {
                begun.pop_front();
            }
        }
        self.recent.retain(|_, begun| !begun.is_empty());
        if !self.recent.contains_key(&peer) && self.recent.len() >= MOST_PEERS {
            let oldest = self.recent.iter().min_by_key(|(_, begun)| begun.back());
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                self.recent.remove(&oldest);
            }
        }
        let begun = self.recent.entry(peer).or_default();
        let may = begun.len() < most;
        if may {
            begun.push_back(now);
        }
        may
    }
}

impl Test<'_> {
    /// The streams that have come.
    pub(super) fn streams(&self) -> Vec<(TcpStream, Admission)> {
        std::mem::take(&mut lock(&self.state.streams))
    }
}

impl Drop for Test<'_> {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        lock(&self.all.state).running.remove(&self.token);
    }
}

impl Slot {
    /// Gives a stream to the test.
    pub(super) fn hand_over(self, stream: TcpStream, admission: Admission) {
        lock(&self.state.streams).push((stream, admission));
    }

    /// Whether the test is over.
    pub(super) fn over(&self) -> &AtomicBool {
        &self.state.over
    }

    /// What the test may take at most.
    pub(super) fn longest(&self) -> Duration {
        self.state.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::message::{Direction, StreamOptions};

    fn request(streams: u16, length_ms: u64) -> ThroughputRequest {
        ThroughputRequest {
            direction: Direction::There,
            streams,
            length_ms,
            warm_up_ms: 1_000,
            options: StreamOptions::default(),
        }
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_test_is_within_the_limits_or_refused() {
        let (tests, limits) = (RunningTests::default(), ThroughputLimits::default());
        let now = Instant::now();
        let refused = |streams, length, limits: &ThroughputLimits| {
            let request = request(streams, length);
            tests.open([1; 16], peer(1), &request, limits, now).err()
        };
        let over = Some(TestRefused(Refusal::OverLimit));
        // 60 s are the default's most, warm-up included.
        assert_eq!(refused(1, 59_000, &limits), None);
        for (streams, length) in [(1, 59_001), (1, u64::MAX), (1, 0), (0, 1_000), (17, 1_000)] {
            assert_eq!(
                refused(streams, length, &limits),
                over,
                "{streams} {length}"
            );
        }
        let none = ThroughputLimits {
            seconds: 0,
            ..limits
        };
        assert_eq!(
            refused(1, 1_000, &none),
            Some(TestRefused(Refusal::NotOffered))
        );
    }

    #[test]
    fn one_test_of_a_peer_at_a_time_and_so_many_a_minute() {
        let tests = RunningTests::default();
        let limits = ThroughputLimits {
            per_minute: 2,
            ..ThroughputLimits::default()
        };
        let start = Instant::now();
        let open = |number: u8, host: u8, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            tests.open([number; 16], peer(host), &request(1, 1_000), &limits, now)
        };
        let first = open(1, 1, 0).expect("the first");
        assert_eq!(open(2, 1, 0).err(), Some(TestRefused(Refusal::Busy)));
        let other = open(3, 2, 0).expect("of another peer");
        drop((first, other));
        drop(open(4, 1, 30).expect("the second of that minute"));
        assert_eq!(open(5, 1, 59).err(), Some(TestRefused(Refusal::TooOften)));
        assert!(open(6, 1, 60).is_ok(), "the first was a minute ago");
        // As many peers as there may be: memory stays bounded.
        for host in 0..3_000u32 {
            let peer = IpAddr::from(host.to_be_bytes());
            let opened = tests.open([9; 16], peer, &request(1, 1_000), &limits, start);
            assert!(opened.is_ok());
        }
        assert!(lock(&tests.state).recent.len() <= MOST_PEERS);
    }

    #[test]
    fn only_the_asker_joins_with_the_token_and_as_often_as_it_asked() {
        let (tests, limits) = (RunningTests::default(), ThroughputLimits::default());
        let request = request(2, 1_000);
        let test = tests
            .open([7; 16], peer(1), &request, &limits, Instant::now())
            .expect("the first");
        let join =
            |token: u8, host, use_for| tests.join(&[token; 16], peer(host), use_for).is_some();
        assert!(!join(8, 1, DataUse::Stream), "another token");
        assert!(!join(7, 2, DataUse::Stream), "another address");
        assert!(join(7, 1, DataUse::Stream) && join(7, 1, DataUse::Stream));
        assert!(!join(7, 1, DataUse::Stream), "a third of two");
        assert!(join(7, 1, DataUse::Delay));
        assert!(!join(7, 1, DataUse::Delay));
        drop(test);
        assert!(!join(7, 1, DataUse::Stream), "it is over");
    }
}
