// SPDX-License-Identifier: Apache-2.0
//! The trains of a measurement: sent, made as long as the path wants them, and their gaps.

use super::super::gaps::{self, Gap, TrainGaps};
use super::super::prober::{Prober, Question, SentTrain};
use super::super::report::NeckNote;
use super::super::statistics::median;
use super::super::train::{TrainEnd, TrainPlan};
use super::{MILLISECOND, NeckOptions};
use crate::socket::monotonic;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

/// Load packets of the first train.
pub(super) const LOAD_PACKETS: u32 = 60;
/// Trains that pass in less than this, ns, are made longer, up to a limit of load packets.
const SHORTEST_GAP: f64 = 5e6;
const MOST_LOAD_PACKETS: u32 = 200;
const LEAST_LOAD_PACKETS: u32 = 15;
/// Trains at a lower rate at least, where there are as many.
const LEAST_SLOW_TRAINS: u32 = 4;
/// From one train to the next at least: what it has queued is gone.
const PAUSE: i64 = 150 * MILLISECOND;
/// The same where a third of the hops limit their ICMP: Linux answers once a second (`icmp_ratelimit`).
const LONG_PAUSE: i64 = 1_050 * MILLISECOND;
/// The smallest packets that a load packet is made (RFC 791: every host takes 576 octets; RFC 8200: 1,280).
const LEAST_SIZE: (usize, usize) = (576, 1_280);

/// A train and what it was made of.
type Sent = (SentTrain, TrainPlan);

/// The trains.
pub(super) struct Trains<'a> {
    options: &'a NeckOptions,
    pub plan: TrainPlan,
    /// How the last hop is asked.
    last: Question,
    /// How long answers are waited for, ns.
    patience: i64,
    /// Trains that were sent at once.
    pub sent: Vec<Sent>,
    /// Trains that were sent at the rate at which the others left the neck.
    slow: Vec<Sent>,
    /// From one train, or one burst of load, to the next at least, ns.
    pub pause: i64,
    /// Hops that limit their ICMP.
    limited: BTreeSet<u8>,
    /// Trains in a row whose tail was lost.
    tails_lost: u32,
    shortened: bool,
    /// What limits them.
    pub notes: Vec<NeckNote>,
}

impl<'a> Trains<'a> {
    /// None so far; the path's longest round trip, ns.
    pub fn new(
        options: &'a NeckOptions,
        plan: TrainPlan,
        last: Option<Question>,
        round_trip: i64,
    ) -> Self {
        Trains {
            options,
            plan,
            last: last.unwrap_or(Question::Udp),
            patience: (2 * round_trip).max(200 * MILLISECOND),
            sent: Vec::new(),
            slow: Vec::new(),
            pause: PAUSE,
            limited: BTreeSet::new(),
            tails_lost: 0,
            shortened: false,
            notes: Vec::new(),
        }
    }

    /// Sends the trains. Those before one that was too long or too short count as well.
    pub fn send(&mut self, prober: &mut Prober<'_>) -> io::Result<()> {
        let adapts = self.options.load_packets.is_none();
        for number in 0..self.options.trains {
            if prober.stopped() {
                return Ok(());
            }
            self.choose_tail_only(number);
            let train = prober.send_train(&self.plan, self.last, None)?;
            let numbers: Vec<u16> = train.probes.iter().map(|it| it.0).collect();
            let began = monotonic();
            prober.wait_for(&numbers, self.patience + train.took)?;
            self.sent.push((train.clone(), self.plan.clone()));
            let shortened = adapts && self.shorten(prober, &train);
            if adapts && !shortened {
                self.lengthen(prober, &train);
            }
            self.notice_limits(prober);
            if let Some(mtu) = prober.too_big.take() {
                self.reduce_size(prober, mtu as usize);
            }
            prober.wait(began + self.pause, |_| false)?;
        }
        Ok(())
    }

    /// Sends trains at the rate at which the others left the choke point, if there is one.
    pub fn send_slow(&mut self, prober: &mut Prober<'_>) -> io::Result<()> {
        let Some(finding) = gaps::find(&self.gaps(prober)) else {
            return Ok(());
        };
        if finding.rate_bps > self.options.max_rate_bps as f64 {
            return Ok(());
        }
        let interval = (self.plan.probe_octets as f64 * 8e9 / finding.rate_bps) as i64;
        let count = (self.options.trains * 2 / 3)
            .max(LEAST_SLOW_TRAINS)
            .min(self.options.trains);
        for number in 0..count {
            if prober.stopped() {
                return Ok(());
            }
            self.choose_tail_only(number);
            let train = prober.send_train(&self.plan, self.last, Some(interval))?;
            let numbers: Vec<u16> = train.probes.iter().map(|it| it.0).collect();
            let began = monotonic();
            prober.wait_for(&numbers, self.patience)?;
            self.slow.push((train, self.plan.clone()));
            prober.wait(began + self.pause, |_| false)?;
        }
        Ok(())
    }

    /// The gaps of those that were sent at once.
    pub fn gaps(&self, prober: &Prober<'_>) -> Vec<TrainGaps> {
        gaps_of(prober, &self.sent, self.plan.hops)
    }

    /// The gaps of those that were sent at a rate.
    pub fn slow_gaps(&self, prober: &Prober<'_>) -> Vec<TrainGaps> {
        gaps_of(prober, &self.slow, self.plan.hops)
    }

    /// Hops that answer, but mostly not a train's tail, though later hops answer theirs, limit their ICMP.
    fn notice_limits(&mut self, prober: &Prober<'_>) {
        let limits = |hop: u8| {
            let (mut whole, mut without_tail) = (0, 0);
            for (train, _) in &self.sent {
                let answered = |hop| answered_at(prober, train, hop, TrainEnd::Tail).is_some();
                if answered(hop) {
                    whole += 1;
                } else if (hop + 1..=self.plan.hops).any(answered) {
                    without_tail += 1;
                }
            }
            let answers = || {
                let mut of_hop = prober.probes().iter().filter(|probe| probe.hop == hop);
                of_hop.any(|probe| probe.answer.is_some())
            };
            without_tail >= 2 && without_tail > whole && answers()
        };
        let limited: BTreeSet<u8> = (1..self.plan.hops).filter(|hop| limits(*hop)).collect();
        self.limited.extend(limited);
        if self.limited.len() * 3 >= usize::from(self.plan.hops) {
            self.pause = LONG_PAUSE;
        }
    }

    /// Of two trains of three the hops that limit their ICMP are asked for the tail only; of the third the front is
    /// answered, from which the others' fronts are inferred.
    fn choose_tail_only(&mut self, number: u32) {
        self.plan.tail_only = match number % 3 {
            2 => BTreeSet::new(),
            _ => self.limited.clone(),
        };
    }

    /// Makes trains shorter where the last hop that answers the front does not answer the tail, twice in a row: a queue is
    /// full. True if it did.
    fn shorten(&mut self, prober: &Prober<'_>, train: &SentTrain) -> bool {
        let answered = |wanted: TrainEnd| {
            let of_end = train.probes.iter().filter(|it| it.2 == wanted);
            let hops = of_end.filter(|it| {
                let probe = prober.probe(it.0);
                probe.is_some_and(|probe| probe.answer.is_some())
            });
            hops.map(|it| it.1).max().unwrap_or(0)
        };
        let lost = answered(TrainEnd::Tail) < answered(TrainEnd::Front);
        self.tails_lost = if lost { self.tails_lost + 1 } else { 0 };
        let fewer = (self.plan.load_packets * 2 / 3).max(LEAST_LOAD_PACKETS);
        if self.tails_lost < 2 || fewer >= self.plan.load_packets {
            return false;
        }
        (self.tails_lost, self.shortened) = (0, true);
        self.plan.load_packets = fewer;
        self.notes
            .retain(|note| !matches!(note, NeckNote::TrainsShortened { .. }));
        let load_packets = fewer;
        self.notes.push(NeckNote::TrainsShortened { load_packets });
        true
    }

    /// Makes trains longer where they pass in less time than stands out from the noise of stamps, unless they were
    /// shortened.
    fn lengthen(&mut self, prober: &Prober<'_>, train: &SentTrain) {
        let gap = (1..=self.plan.hops).rev().find_map(|hop| {
            let front = answered_at(prober, train, hop, TrainEnd::Front)?;
            let tail = answered_at(prober, train, hop, TrainEnd::Tail)?;
            Some((tail - front) as f64).filter(|gap| *gap > 0.0)
        });
        let Some(gap) = gap else {
            return;
        };
        if gap < SHORTEST_GAP && !self.shortened {
            let wanted = f64::from(self.plan.load_packets) * SHORTEST_GAP / gap;
            self.plan.load_packets =
                (wanted as u32).clamp(self.plan.load_packets, MOST_LOAD_PACKETS);
        }
    }

    /// Load that does not pass is of no use.
    fn reduce_size(&mut self, prober: &Prober<'_>, mtu: usize) {
        let least = match self.options.peer {
            IpAddr::V4(_) => LEAST_SIZE.0,
            IpAddr::V6(_) => LEAST_SIZE.1,
        };
        let size = mtu.max(least);
        if size < self.plan.probe_octets {
            let plan = &self.plan;
            self.plan = prober.plan(plan.hops, plan.load_packets, size);
            self.notes.push(NeckNote::PacketsShortened { size });
            self.sent.clear();
        }
    }
}

/// When a probe of a train was answered, by the kernel.
fn answered_at(prober: &Prober<'_>, train: &SentTrain, hop: u8, end: TrainEnd) -> Option<i64> {
    let mut probes = train.probes.iter();
    let (number, ..) = probes.find(|it| (it.1, it.2) == (hop, end))?;
    prober.probe(*number)?.answer?.at
}

/// How long after the beginning of a train a hop answers its first probe, ns: the median of those that were answered.
fn front_delay(prober: &Prober<'_>, trains: &[Sent], hop: u8) -> Option<i64> {
    let delay = |(train, _): &Sent| {
        let at = answered_at(prober, train, hop, TrainEnd::Front)?;
        Some((at - train.began) as f64)
    };
    let delays: Vec<f64> = trains.iter().filter_map(delay).collect();
    median(&delays).map(|delay| delay as i64)
}

/// The gaps of trains. Where a hop did not answer a train's first probe, it would have by what others say.
fn gaps_of(prober: &Prober<'_>, trains: &[Sent], hops: u8) -> Vec<TrainGaps> {
    let delays: Vec<Option<i64>> = (0..=hops)
        .map(|hop| front_delay(prober, trains, hop))
        .collect();
    let of_train = |(train, plan): &Sent| {
        let gap = |hop: u8| {
            let nanos = if hop == 0 {
                train.took
            } else {
                let usual = delays.get(usize::from(hop)).copied().flatten();
                let usual = usual.map(|delay| train.began + delay);
                let front = answered_at(prober, train, hop, TrainEnd::Front).or(usual)?;
                answered_at(prober, train, hop, TrainEnd::Tail)? - front
            };
            let octets = plan.octets_between(hop) as f64;
            let nanos = nanos as f64;
            (nanos > 0.0).then_some((hop, Gap { nanos, octets }))
        };
        (0..=plan.hops).filter_map(gap).collect()
    };
    trains.iter().map(of_train).collect()
}
