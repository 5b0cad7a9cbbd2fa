// SPDX-License-Identifier: Apache-2.0
//! Paths of which the kind of loss is known, computed packet by packet.

use super::*;
use crate::schedule::Schedule;
use crate::signature::Plan;
use crate::signature::tables::{Numbered, segments};
use std::time::Duration;

/// Between two packets that a host sends one directly after the other, ns.
const SEND_CALL: i64 = 6_000;

/// What every packet takes, ns.
const BASE: i64 = 10_000_000;

/// A packet on its way into the path.
#[derive(Clone, Copy)]
struct Sent {
    size: Size,
    bytes: u32,
    at: i64,
    /// Its number among all packets of the direction.
    number: u64,
}

/// A source of numbers in [0, 1): PCG's multiplier (O'Neill 2014), high bits.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What a path does to a packet: how long it takes beyond [`BASE`], or lost.
type Fates<'a> = dyn FnMut(&Sent, &mut Random) -> Option<i64> + 'a;

/// The whole experiment over a path, with a little noise in every delay.
fn over(seed: u64, path: &mut Fates<'_>) -> Observed {
    let plan = Plan::new(Duration::from_secs(60), (42, 1_500), 50_000_000, seed).expect("a plan");
    let mut all = Vec::new();
    for session in plan.sessions() {
        let mut before = i64::MIN;
        let times = Schedule::new(session.slots.clone(), [0; 16]).take(session.packets as usize);
        for (sequence, offset) in (0u32..).zip(times) {
            let at = (offset.as_nanos() as i64).max(before.saturating_add(SEND_CALL));
            before = at;
            all.push((at, session.size, session.bytes, sequence));
        }
    }
    all.sort_by_key(|packet| packet.0);
    let mut random = Random(seed.wrapping_add(77));
    let mut came = [Vec::new(), Vec::new()];
    for (number, (at, size, bytes, sequence)) in (0u64..).zip(all) {
        let sent = Sent {
            size,
            bytes,
            at,
            number,
        };
        let noise = (random.next() * 60_000.0) as i64;
        let delay = path(&sent, &mut random).map(|more| BASE + more + noise);
        came[usize::from(size == Size::Full)].push(Numbered {
            sequence,
            sent_ns: at,
            delay_ns: delay,
        });
    }
    let sessions = plan.sessions();
    let of = |i: usize| segments(sessions[i], &came[i]);
    Observed {
        segments: [of(0), of(1)].concat(),
        ..Observed::default()
    }
}

/// A queue in front of a line, with its size in octets.
struct Queue {
    rate: f64,
    room: f64,
    /// When the line has sent what is in the queue.
    free: f64,
}

impl Queue {
    fn new(rate: f64, room: f64) -> Self {
        Queue {
            rate,
            room,
            free: 0.0,
        }
    }

    /// How long a packet waits and is sent; `None`: it does not fit.
    fn pass(&mut self, at: i64, bytes: u32) -> Option<i64> {
        let at = at as f64;
        let wait = (self.free - at).max(0.0);
        let waiting = wait / 1e9 * self.rate / 8.0;
        if waiting + f64::from(bytes) > self.room {
            return None;
        }
        self.free = at.max(self.free) + f64::from(bytes) * 8e9 / self.rate;
        Some((self.free - at) as i64)
    }
}

/// A token bucket.
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: i64,
}

impl Bucket {
    fn new(rate: f64, burst: f64) -> Self {
        Bucket {
            rate,
            burst,
            tokens: burst,
            last: 0,
        }
    }

    fn passes(&mut self, at: i64, bytes: u32) -> bool {
        let fresh = (at - self.last) as f64 / 1e9 * self.rate / 8.0;
        self.tokens = (self.tokens + fresh).min(self.burst);
        self.last = at;
        let passes = self.tokens >= f64::from(bytes);
        if passes {
            self.tokens -= f64::from(bytes);
        }
        passes
    }
}

fn line() -> Queue {
    Queue::new(100e6, 1e9)
}

#[test]
fn a_path_without_loss_has_a_bound() {
    let mut line = line();
    let judgement = judge(&over(1, &mut |sent, _| line.pass(sent.at, sent.bytes)));
    assert_eq!(judgement.signature, Signature::NoLoss);
    // 0.05^(1/n): 3/n for large n.
    let n = judgement.count.sent as f64;
    assert!((judgement.count.bound() * n - 3.0).abs() < 0.01);
}

#[test]
fn even_loss_is_random_at_any_share() {
    for (seed, share) in [(1, 0.002), (2, 0.01), (3, 0.05), (4, 0.2)] {
        let mut line = line();
        let judgement = judge(&over(seed, &mut |sent, random| {
            line.pass(sent.at, sent.bytes)
                .filter(|_| random.next() >= share)
        }));
        assert_eq!(
            judgement.signature,
            Signature::Random,
            "{share} {judgement:?}"
        );
        assert!((judgement.count.share() / share - 1.0).abs() < 0.3);
    }
}

#[test]
fn bits_that_fail_are_bit_errors_with_their_share() {
    for (seed, per_bit) in [(1, 2e-7), (2, 1e-6), (3, 5e-6)] {
        let mut line = line();
        let judgement = judge(&over(seed, &mut |sent, random| {
            let kept = (1.0_f64 - per_bit).powf(f64::from(sent.bytes) * 8.0);
            line.pass(sent.at, sent.bytes)
                .filter(|_| random.next() < kept)
        }));
        assert_eq!(
            judgement.signature,
            Signature::BitErrors,
            "{per_bit} {judgement:?}"
        );
        let Some(Estimate::Bits { per_bit: found }) = judgement.estimate else {
            panic!("{judgement:?}");
        };
        assert!((found / per_bit - 1.0).abs() < 0.4, "{found}");
    }
}

#[test]
fn a_queue_shorter_than_a_train_is_a_shallow_buffer_with_its_length() {
    for (seed, rate, packets) in [
        (1, 80e6, 10.0),
        (2, 30e6, 20.0),
        (3, 10e6, 30.0),
        (4, 500e6, 10.0),
    ] {
        let mut queue = Queue::new(rate, packets * 1_500.0);
        let judgement = judge(&over(seed, &mut |sent, _| queue.pass(sent.at, sent.bytes)));
        assert_eq!(
            judgement.signature,
            Signature::ShallowBuffer,
            "{rate} {packets} {judgement:?}"
        );
        let Some(Estimate::Buffer { packets: found, .. }) = judgement.estimate else {
            panic!("{judgement:?}");
        };
        assert!(
            (found - packets).abs() <= 2.0 + packets / 5.0,
            "{found} {packets}"
        );
    }
}

#[test]
fn tokens_are_a_policer_with_its_rate() {
    for (seed, rate, burst) in [
        (1, 10e6, 20e3),
        (2, 20e6, 100e3),
        (3, 40e6, 100e3),
        (4, 30e6, 15e3),
        (5, 60e6, 10e3),
    ] {
        let (mut line, mut bucket) = (line(), Bucket::new(rate, burst));
        let judgement = judge(&over(seed, &mut |sent, _| {
            let delay = line.pass(sent.at, sent.bytes)?;
            bucket.passes(sent.at + delay, sent.bytes).then_some(delay)
        }));
        assert_eq!(
            judgement.signature,
            Signature::Policer,
            "{rate} {burst} {judgement:?}"
        );
        let Some(Estimate::Policer { rate_bps, .. }) = judgement.estimate else {
            panic!("{judgement:?}");
        };
        assert!((rate_bps / rate - 1.0).abs() < 0.15, "{rate_bps}");
    }
}

#[test]
fn a_queue_that_others_fill_is_congestion() {
    for seed in 1..4 {
        let mut queue = Queue::new(60e6, 60.0 * 1_500.0);
        // Others send 90 Mbit/s for 40 ms and rest for about 60.
        let (mut next, mut until) = (0_i64, 0_i64);
        let judgement = judge(&over(seed, &mut |sent, random| {
            while next < sent.at {
                queue.pass(next, 1_500);
                next += 133_000;
                if next > until {
                    next += 30_000_000 + (random.next() * 60e6) as i64;
                    until = next + 40_000_000;
                }
            }
            queue.pass(sent.at, sent.bytes)
        }));
        assert_eq!(judgement.signature, Signature::Congestion, "{judgement:?}");
    }
}

#[test]
fn every_nth_packet_is_periodic_with_its_number() {
    for (seed, every) in [(1, 100), (2, 37), (3, 1_000), (4, 8)] {
        let mut line = line();
        let judgement = judge(&over(seed, &mut |sent, _| {
            line.pass(sent.at, sent.bytes)
                .filter(|_| sent.number % every != every - 1)
        }));
        assert_eq!(
            judgement.signature,
            Signature::Periodic,
            "{every} {judgement:?}"
        );
        let Some(Estimate::Packets { packets }) = judgement.estimate else {
            panic!("{judgement:?}");
        };
        assert!(
            (packets / every as f64 - 1.0).abs() < 0.02,
            "{packets} {judgement:?}"
        );
    }
}

#[test]
fn a_line_that_fails_by_the_clock_is_periodic_with_its_seconds() {
    for (seed, period, fails) in [
        (1, 1_000_000_000, 15_000_000),
        (2, 250_000_000, 10_000_000),
        (3, 2_500_000_000, 40_000_000),
    ] {
        let mut line = line();
        let judgement = judge(&over(seed, &mut |sent, _| {
            line.pass(sent.at, sent.bytes)
                .filter(|_| sent.at % period >= fails)
        }));
        assert_eq!(
            judgement.signature,
            Signature::Periodic,
            "{period} {judgement:?}"
        );
        let Some(Estimate::Seconds { seconds }) = judgement.estimate else {
            panic!("{judgement:?}");
        };
        assert!(
            (seconds * 1e9 / period as f64 - 1.0).abs() < 0.02,
            "{seconds}"
        );
    }
}

#[test]
fn bursts_without_waiting_are_unclear() {
    let (mut line, mut bad) = (line(), false);
    let judgement = judge(&over(1, &mut |sent, random| {
        // Gilbert: 1 % begin, 25 % end.
        bad = if bad {
            random.next() >= 0.25
        } else {
            random.next() < 0.01
        };
        line.pass(sent.at, sent.bytes).filter(|_| !bad)
    }));
    assert_eq!(judgement.signature, Signature::Unclear, "{judgement:?}");
    assert!(judgement.reasons.contains(&Reason::Bursts));
}

#[test]
fn a_rate_that_the_path_does_not_carry_is_no_loss_of_the_path() {
    // 30 Mbit/s and a queue of 300 packets: only 50 Mbit/s fill it.
    let mut queue = Queue::new(30e6, 300.0 * 1_500.0);
    let judgement = judge(&over(1, &mut |sent, _| queue.pass(sent.at, sent.bytes)));
    assert_eq!(judgement.signature, Signature::NoLoss, "{judgement:?}");
    let overload = judgement.reasons.iter().find_map(|reason| match reason {
        Reason::Overload { carried_bps, .. } => Some(*carried_bps as f64),
        _ => None,
    });
    assert!((overload.expect("named") / 30e6 - 1.0).abs() < 0.05);
}

#[test]
fn full_packets_that_never_come_are_named() {
    let mut line = line();
    let judgement = judge(&over(1, &mut |sent, _| {
        line.pass(sent.at, sent.bytes)
            .filter(|_| sent.size == Size::Small)
    }));
    assert_eq!(judgement.signature, Signature::Unclear);
    assert_eq!(judgement.reasons, [Reason::FullSizeNever { bytes: 1_500 }]);
}

#[test]
fn losses_of_an_end_itself_are_not_judged() {
    let mut line = line();
    let mut observed = over(1, &mut |sent, random| {
        line.pass(sent.at, sent.bytes)
            .filter(|_| random.next() >= 0.01)
    });
    observed.lost_here = 100;
    let judgement = judge(&observed);
    assert_eq!(judgement.signature, Signature::Unclear);
    assert_eq!(judgement.reasons, [Reason::OwnLoss { packets: 100 }]);
}

#[test]
fn random_loss_is_given_a_structure_at_most_as_often_as_the_level_says() {
    let wrong = (0..10).filter(|seed| {
        let mut line = line();
        let judgement = judge(&over(100 + seed, &mut |sent, random| {
            line.pass(sent.at, sent.bytes)
                .filter(|_| random.next() >= 0.004)
        }));
        judgement.signature != Signature::Random
    });
    // Of 10 at 1 %: more than one in 230 such tests only.
    assert!(wrong.count() <= 1);
}
