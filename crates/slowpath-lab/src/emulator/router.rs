// SPDX-License-Identifier: Apache-2.0
//! How routers answer: which of their ICMP messages are sent, and when.

use slowpath_netsim::scenario::{IcmpOptions, RouterChange};
use slowpath_switch::{Random, Span, Time, TokenBucket};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The streams of routers' random numbers begin here; lines and switches have others.
const STREAMS: u64 = 1 << 62;
/// The most messages that wait for their time.
const MOST_WAITING: usize = 1 << 16;
/// Tokens of a message.
const MILLIONTHS: u64 = 1_000_000;

/// A message that a router will send.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Answer {
    /// When.
    pub at: Time,
    /// Messages of one moment go in the order in which they were made.
    order: u64,
    /// Which.
    pub router: u32,
    /// From the IP header on.
    pub bytes: Vec<u8>,
}

/// What became of a router's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IcmpCounts {
    /// Sent, or will be.
    pub sent: u64,
    /// Never sent.
    pub suppressed: u64,
}

struct Router {
    icmp: IcmpOptions,
    bucket: Option<TokenBucket>,
    random: Random,
    counts: IcmpCounts,
}

/// The routers, and what they are about to send.
pub(super) struct Routers {
    routers: Vec<Router>,
    /// In the order of time, the next one last.
    changes: Vec<RouterChange>,
    waiting: BinaryHeap<Reverse<Answer>>,
    made: u64,
}

impl Routers {
    /// So many routers, and how they answer, in the order of time.
    pub fn new(count: usize, changes: &[RouterChange], seed: u64) -> Self {
        let router = |number| Router {
            icmp: IcmpOptions::default(),
            bucket: None,
            random: Random::stream(seed, STREAMS + number),
            counts: IcmpCounts::default(),
        };
        Routers {
            routers: (0..count as u64).map(router).collect(),
            changes: changes.iter().rev().copied().collect(),
            waiting: BinaryHeap::new(),
            made: 0,
        }
    }

    fn change(&mut self, now: Time) {
        while let Some(change) = self.changes.pop_if(|change| change.at <= now) {
            let Some(router) = self.routers.get_mut(change.router as usize) else {
                continue;
            };
            router.icmp = change.icmp;
            router.bucket = change.icmp.rate.map(|rate| {
                let size = u64::from(rate.burst) * MILLIONTHS;
                TokenBucket::new(rate.millionths, size, change.at)
            });
        }
    }

    /// A router would send a message, which is made at that time of the network.
    pub fn send(&mut self, at: Time, router: u32, bytes: Vec<u8>) {
        self.change(at);
        let Some(state) = self.routers.get_mut(router as usize) else {
            return;
        };
        let mut allowed = !state.icmp.silent && self.waiting.len() < MOST_WAITING;
        if allowed && let Some(bucket) = &mut state.bucket {
            allowed = bucket.take(at, MILLIONTHS);
        }
        if !allowed {
            state.counts.suppressed += 1;
            return;
        }
        state.counts.sent += 1;
        let mut due = at + state.icmp.delay;
        if state.icmp.jitter > Span::ZERO {
            let wide = u128::from(state.random.next_u64()) * (u128::from(state.icmp.jitter.0) + 1);
            // At most the jitter.
            due += Span((wide >> 64) as u64);
        }
        self.made += 1;
        self.waiting.push(Reverse(Answer {
            at: due,
            order: self.made,
            router,
            bytes,
        }));
    }

    /// When the next message is due.
    pub fn next(&self) -> Option<Time> {
        self.waiting.peek().map(|answer| answer.0.at)
    }

    /// The next message, if it is due.
    pub fn pop(&mut self, now: Time) -> Option<Answer> {
        self.next().filter(|at| *at <= now)?;
        self.waiting.pop().map(|answer| answer.0)
    }

    /// By router.
    pub fn counts(&self) -> Vec<IcmpCounts> {
        self.routers.iter().map(|router| router.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_netsim::scenario::IcmpRate;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn change(ms: u64, icmp: IcmpOptions) -> RouterChange {
        RouterChange {
            at: at(ms),
            router: 1,
            icmp,
        }
    }

    #[test]
    fn a_limited_router_sends_its_burst_and_then_its_rate() {
        let rate = IcmpRate {
            millionths: 10_000_000,
            burst: 3,
        };
        let limited = IcmpOptions {
            rate: Some(rate),
            ..IcmpOptions::default()
        };
        let mut routers = Routers::new(2, &[change(0, limited)], 1);
        // One every 20 ms, 0 to 1,000 ms: 51 messages. Three at once, and one for each 100 ms
        // that has passed: those at 0, 20, 40, and from 100 on one of five.
        for ms in (0..=1000).step_by(20) {
            routers.send(at(ms), 1, vec![]);
            routers.send(at(ms), 0, vec![]);
        }
        let counts = routers.counts();
        assert_eq!((counts[1].sent, counts[1].suppressed), (13, 38));
        assert_eq!((counts[0].sent, counts[0].suppressed), (51, 0));
    }

    #[test]
    fn delays_hold_answers_back_and_a_silent_router_sends_none() {
        let delayed = IcmpOptions {
            delay: Span::from_millis(5),
            jitter: Span::from_millis(10),
            ..IcmpOptions::default()
        };
        let silent = IcmpOptions {
            silent: true,
            ..IcmpOptions::default()
        };
        let changes = [
            change(0, delayed),
            change(500, silent),
            change(600, delayed),
        ];
        let mut routers = Routers::new(2, &changes, 1);
        for ms in 0..1000 {
            routers.send(at(ms), 1, ms.to_be_bytes().to_vec());
        }
        let counts = routers.counts();
        assert_eq!((counts[1].sent, counts[1].suppressed), (900, 100));
        assert_eq!(routers.pop(at(4)), None);
        let mut last = Time::ZERO;
        let mut delays = Vec::new();
        while let Some(answer) = routers.pop(Time::MAX) {
            assert!(answer.at >= last);
            last = answer.at;
            let sent = u64::from_be_bytes(answer.bytes.try_into().expect("eight"));
            delays.push(answer.at.since(at(sent)));
        }
        let within = |delay: &Span| (Span::from_millis(5)..=Span::from_millis(15)).contains(delay);
        assert!(delays.iter().all(within));
        // Uniform: 900 of them leave neither end empty.
        assert!(delays.iter().any(|delay| *delay < Span::from_millis(6)));
        assert!(delays.iter().any(|delay| *delay > Span::from_millis(14)));
    }
}
