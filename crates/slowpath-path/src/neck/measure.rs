// SPDX-License-Identifier: Apache-2.0
//! The measurement: hops, round trips without load, trains, bursts of load; then what both methods make of them.

use super::gaps::{self, Gap, TrainGaps};
use super::loaded::{self, RoundTrips};
use super::prober::{Burst, Probe, Prober, Question, SentTrain};
use super::report::{
    HopReport, MethodReport, NeckNote, NeckReport, RateSpread, VerdictName, of_verdict,
};
use super::statistics::median;
use super::train::{TrainEnd, TrainPlan};
use super::verdict::{NeckVerdict, combine};
use crate::icmp::ErrorKind;
use crate::socket::{monotonic, precise_timers};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::thread;

const MILLISECOND: i64 = 1_000_000;
/// Rounds in which hops are looked for that have not answered yet.
const DISCOVERY_ROUNDS: usize = 3;
/// How long answers of a round are waited for at most.
const ROUND_PATIENCE: i64 = 1_000 * MILLISECOND;
/// From one probe of a round to the next.
const PROBE_INTERVAL: i64 = 2 * MILLISECOND;
/// Rounds without load before the trains, and before each burst.
const IDLE_ROUNDS: usize = 4;
const IDLE_ROUNDS_OF_BURST: usize = 2;
/// Idle round trips that are enough of a hop that answers rarely.
const ENOUGH_IDLE: usize = 4;
/// Bursts of load.
pub const BURSTS: u32 = 8;
/// Octets of load of all bursts at most.
pub const LOAD_OCTETS: u64 = 8_000_000;
/// A burst lasts at most so long, ns.
const BURST_LENGTH: i64 = 120 * MILLISECOND;
/// Load is so much above the rate at which trains come to the end of the path. The queue then grows by a sixth of
/// the time that the burst lasts.
const LOAD_FACTOR: f64 = 1.2;
/// How often each hop is asked in a burst, and from which share of it on: the queue has to grow first.
const PROBES_OF_BURST: usize = 2;
const PROBES_FROM: f64 = 0.4;
/// Where fewer load packets are enough to be distinguished from noise, trains are not made longer; else up to so many.
const SHORTEST_GAP: f64 = 5e6;
const MOST_LOAD_PACKETS: u32 = 200;
const LEAST_LOAD_PACKETS: u32 = 15;
/// From one train to the next at least: what it has queued is gone.
const TRAIN_PAUSE: i64 = 150 * MILLISECOND;
/// The smallest packets that a load packet is made (RFC 791: every host takes 576 octets; RFC 8200: 1,280).
const LEAST_SIZE: (usize, usize) = (576, 1_280);

/// How a neck is looked for.
#[derive(Clone, Debug)]
pub struct NeckOptions {
    /// The peer as the report names it.
    pub name: String,
    /// The peer.
    pub peer: IpAddr,
    /// Send from this address.
    pub source: Option<IpAddr>,
    /// Trains, 1 to 100.
    pub trains: u32,
    /// Load packets of a train, 1 to 1,000; `None`: 60, and as many as the rate wants.
    pub load_packets: Option<u32>,
    /// Octets of IP of a load packet.
    pub size: usize,
    /// Load is not sent faster, bits of IP a second.
    pub max_rate_bps: u64,
    /// The furthest hop that is looked for, 1 to 64.
    pub max_ttl: u8,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum NeckError {
    /// The sockets cannot be opened.
    #[error(
        "cannot open the sockets that {peer} is measured with: {source}{}",
        hint(source)
    )]
    Open {
        /// To whom.
        peer: IpAddr,
        /// Why.
        source: io::Error,
    },
    /// A socket failed in mid-measurement.
    #[error("cannot send to {peer} or receive: {source}")]
    Socket {
        /// To whom.
        peer: IpAddr,
        /// Why.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (a raw ICMP socket needs root or CAP_NET_RAW: sudo, or setcap cap_net_raw+ep)"
        }
        _ => "",
    }
}

/// Measures a path; `progress` is called with what is being done.
///
/// # Errors
/// See [`NeckError`].
pub fn measure(
    options: &NeckOptions,
    stop: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<NeckReport, NeckError> {
    let peer = options.peer;
    // A thread of its own: it is given a real-time class where that is allowed.
    let work = || {
        let prober = Prober::open(peer, options.source, stop)
            .map_err(|source| NeckError::Open { peer, source })?;
        precise_timers();
        let mut measurement = Measurement::new(options, prober, progress);
        measurement
            .run()
            .map_err(|source| NeckError::Socket { peer, source })?;
        Ok(measurement.report())
    };
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A measurement in progress.
struct Measurement<'a> {
    options: &'a NeckOptions,
    prober: Prober<'a>,
    progress: &'a (dyn Fn(&str) + Sync),
    /// The last hop; 0: none answers.
    hops: u8,
    /// How the last hop is asked; `None`: the destination does not answer.
    last: Option<Question>,
    plan: TrainPlan,
    trains: Vec<(SentTrain, TrainPlan)>,
    round_trips: BTreeMap<u8, RoundTrips>,
    /// Trains in a row whose tail was lost.
    tails_lost: u32,
    notes: Vec<NeckNote>,
    random: u64,
}

impl<'a> Measurement<'a> {
    fn new(
        options: &'a NeckOptions,
        prober: Prober<'a>,
        progress: &'a (dyn Fn(&str) + Sync),
    ) -> Self {
        let size = options.size.min(prober.mtu().unwrap_or(usize::MAX));
        let plan = prober.plan(0, options.load_packets.unwrap_or(60), size);
        Measurement {
            options,
            prober,
            progress,
            hops: 0,
            last: None,
            plan,
            trains: Vec::new(),
            round_trips: BTreeMap::new(),
            tails_lost: 0,
            notes: Vec::new(),
            random: monotonic() as u64,
        }
    }

    fn run(&mut self) -> io::Result<()> {
        (self.progress)("looking for the hops");
        self.discover()?;
        if self.hops == 0 {
            self.notes.push(NeckNote::NothingAnswered);
            return Ok(());
        }
        self.plan.hops = self.hops;
        for _ in 0..IDLE_ROUNDS {
            self.idle_round(0)?;
        }
        (self.progress)("sending trains");
        self.send_trains()?;
        (self.progress)("loading the path");
        self.send_load()?;
        if self.prober.stopped() {
            self.notes.push(NeckNote::Interrupted);
        }
        Ok(())
    }

    /// How a hop is asked.
    fn question(&self, hop: u8) -> Question {
        match self.last {
            Some(question) if hop == self.hops => question,
            _ => Question::Udp,
        }
    }

    /// Finds the last hop, and how it answers.
    fn discover(&mut self) -> io::Result<()> {
        let peer = self.options.peer;
        for round in 0..DISCOVERY_ROUNDS {
            let limit = end_of(self.prober.probes(), peer).map_or(self.options.max_ttl, |it| it.0);
            for hop in 1..=limit {
                for question in [Question::Udp, Question::Echo] {
                    let known = round > 0 && is_known(self.prober.probes(), peer, hop, question);
                    if self.prober.stopped() || known {
                        continue;
                    }
                    self.prober.send_probe(hop, question)?;
                    self.prober.wait(monotonic() + MILLISECOND / 2, |_| false)?;
                }
            }
            let all = |prober: &Prober<'_>| {
                let probes = prober.probes();
                let known = |hop| is_known(probes, peer, hop, Question::Echo);
                end_of(probes, peer).is_some_and(|(end, _)| (1..=end).all(known))
            };
            if !all(&self.prober) {
                self.prober.wait(monotonic() + ROUND_PATIENCE, all)?;
            }
        }
        match end_of(self.prober.probes(), peer) {
            Some((hop, question)) => (self.hops, self.last) = (hop, question),
            None => {
                let answered = self.prober.probes().iter().filter(|it| it.answer.is_some());
                self.hops = answered.map(|probe| probe.hop).max().unwrap_or(0);
            }
        }
        if self.last.is_none() && self.hops > 0 {
            let last_hop = self.hops;
            self.notes.push(NeckNote::DestinationSilent { last_hop });
        }
        Ok(())
    }

    /// A number below `most`, by SplitMix64.
    fn below(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most.max(1) as u64) as usize
    }

    /// All hops in a random order, so that none is always asked at the same moment.
    fn shuffled(&mut self) -> Vec<u8> {
        let mut hops: Vec<u8> = (1..=self.hops).collect();
        for at in (1..hops.len()).rev() {
            let other = self.below(at + 1);
            hops.swap(at, other);
        }
        hops
    }

    /// The longest median round trip without load, ns.
    fn longest_round_trip(&self) -> i64 {
        let medians = self
            .round_trips
            .values()
            .filter_map(RoundTrips::median_idle);
        medians.fold(0.0, f64::max) as i64
    }

    /// Whether a hop has answered often enough without load and answers less than two of three probes: what it still
    /// answers is for the load.
    fn answers_rarely(&self, hop: u8) -> bool {
        let idle = self.round_trips.get(&hop).map_or(0, |it| it.idle.len());
        let asked = || self.prober.probes().iter().filter(|it| it.hop == hop);
        let answered = asked().filter(|it| it.answer.is_some()).count();
        idle >= ENOUGH_IDLE && answered * 3 < asked().count() * 2
    }

    /// Asks each hop once; which burst follows.
    fn idle_round(&mut self, burst: u32) -> io::Result<()> {
        let mut numbers = Vec::new();
        for hop in self.shuffled() {
            if self.answers_rarely(hop) {
                continue;
            }
            numbers.push(self.prober.send_probe(hop, self.question(hop))?);
            self.prober.wait(monotonic() + PROBE_INTERVAL, |_| false)?;
        }
        // Silent hops are not waited for longer than the others take.
        let patience = match self.longest_round_trip() {
            0 => ROUND_PATIENCE,
            longest => longest + 100 * MILLISECOND,
        };
        self.wait_for(&numbers, patience)?;
        for number in numbers {
            let probe = self.prober.probe(number);
            if let Some((hop, trip)) = probe.and_then(|it| Some((it.hop, it.round_trip()?))) {
                self.round_trips
                    .entry(hop)
                    .or_default()
                    .idle
                    .push((burst, trip));
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, numbers: &[u16], patience: i64) -> io::Result<()> {
        let all = |prober: &Prober<'_>| {
            let answered =
                |number: &u16| prober.probe(*number).is_some_and(|it| it.answer.is_some());
            numbers.iter().all(answered)
        };
        self.prober.wait(monotonic() + patience, all)
    }

    /// Sends the trains. Those before one that was too long or too short count as well.
    fn send_trains(&mut self) -> io::Result<()> {
        let adapts = self.options.load_packets.is_none();
        let last = self.last.unwrap_or(Question::Udp);
        for _ in 0..self.options.trains {
            if self.prober.stopped() {
                return Ok(());
            }
            let train = self.prober.send_train(&self.plan, last)?;
            let numbers: Vec<u16> = train.probes.iter().map(|it| it.0).collect();
            let began = monotonic();
            let patience = (2 * self.longest_round_trip()).max(200 * MILLISECOND);
            self.wait_for(&numbers, patience + train.took)?;
            self.trains.push((train.clone(), self.plan.clone()));
            let shortened = adapts && self.shorten(&train);
            if adapts && !shortened {
                self.lengthen(&train);
            }
            self.choose_tail_only();
            if let Some(mtu) = self.prober.too_big.take() {
                self.reduce_size(mtu as usize);
            }
            self.prober.wait(began + TRAIN_PAUSE, |_| false)?;
        }
        Ok(())
    }

    /// When a probe of a train was answered, by the kernel.
    fn answered_at(&self, train: &SentTrain, hop: u8, end: TrainEnd) -> Option<i64> {
        let mut probes = train.probes.iter();
        let (number, ..) = probes.find(|it| (it.1, it.2) == (hop, end))?;
        self.prober.probe(*number)?.answer?.at
    }

    /// How long after the beginning of a train a hop answers its first probe, ns: the median of those that were answered.
    fn front_delay(&self, hop: u8) -> Option<i64> {
        let delay = |(train, _): &(SentTrain, TrainPlan)| {
            let at = self.answered_at(train, hop, TrainEnd::Front)?;
            Some((at - train.began) as f64)
        };
        let delays: Vec<f64> = self.trains.iter().filter_map(delay).collect();
        median(&delays).map(|delay| delay as i64)
    }

    /// The gaps of all trains. Where a hop did not answer a train's first probe, it would have by what others say.
    fn gaps(&self) -> Vec<TrainGaps> {
        let delays: Vec<Option<i64>> = (0..=self.hops).map(|hop| self.front_delay(hop)).collect();
        let of_train = |(train, plan): &(SentTrain, TrainPlan)| {
            let gap = |hop: u8| {
                let nanos = if hop == 0 {
                    train.took
                } else {
                    let usual = delays.get(usize::from(hop)).copied().flatten();
                    let usual = usual.map(|delay| train.began + delay);
                    let front = self.answered_at(train, hop, TrainEnd::Front).or(usual)?;
                    self.answered_at(train, hop, TrainEnd::Tail)? - front
                };
                let octets = plan.octets_between(hop) as f64;
                let nanos = nanos as f64;
                (nanos > 0.0).then_some((hop, Gap { nanos, octets }))
            };
            (0..=plan.hops).filter_map(gap).collect()
        };
        self.trains.iter().map(of_train).collect()
    }

    /// Hops that answered the fronts of half of the trains and not their tails, though later ones passed them: their ICMP is limited, and
    /// the tail says more.
    fn choose_tail_only(&mut self) {
        let limited = |hop: u8| {
            let once = |(train, _): &&(SentTrain, TrainPlan)| {
                self.answered_at(train, hop, TrainEnd::Front).is_some()
                    && self.answered_at(train, hop, TrainEnd::Tail).is_none()
                    && (hop + 1..=self.hops)
                        .any(|later| self.answered_at(train, later, TrainEnd::Tail).is_some())
            };
            let count = self.trains.iter().filter(once).count();
            count >= 2 && count * 2 >= self.trains.len()
        };
        let limited: BTreeSet<u8> = (1..self.hops).filter(|hop| limited(*hop)).collect();
        self.plan.tail_only.extend(limited);
    }

    /// Makes trains shorter where the last hop that answers the front does not answer the tail, twice in a row: a queue is
    /// full. True if it did.
    fn shorten(&mut self, train: &SentTrain) -> bool {
        let answered = |wanted: TrainEnd| {
            let of_end = train.probes.iter().filter(|it| it.2 == wanted);
            let hops = of_end.filter(|it| {
                let probe = self.prober.probe(it.0);
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
        self.tails_lost = 0;
        self.plan.load_packets = fewer;
        self.notes
            .retain(|note| !matches!(note, NeckNote::TrainsShortened { .. }));
        let load_packets = fewer;
        self.notes.push(NeckNote::TrainsShortened { load_packets });
        true
    }

    /// Makes trains longer where they pass in less time than stands out from the noise of stamps, unless they were shortened.
    fn lengthen(&mut self, train: &SentTrain) {
        let shortened = |note: &NeckNote| matches!(note, NeckNote::TrainsShortened { .. });
        let gap = (1..=self.hops).rev().find_map(|hop| {
            let front = self.answered_at(train, hop, TrainEnd::Front)?;
            let tail = self.answered_at(train, hop, TrainEnd::Tail)?;
            Some((tail - front) as f64).filter(|gap| *gap > 0.0)
        });
        let Some(gap) = gap else {
            return;
        };
        if gap < SHORTEST_GAP && !self.notes.iter().any(shortened) {
            let wanted = f64::from(self.plan.load_packets) * SHORTEST_GAP / gap;
            self.plan.load_packets =
                (wanted as u32).clamp(self.plan.load_packets, MOST_LOAD_PACKETS);
        }
    }

    /// Load that does not pass is of no use.
    fn reduce_size(&mut self, mtu: usize) {
        let least = match self.options.peer {
            IpAddr::V4(_) => LEAST_SIZE.0,
            IpAddr::V6(_) => LEAST_SIZE.1,
        };
        let size = mtu.max(least);
        if size < self.plan.probe_octets {
            let plan = &self.plan;
            self.plan = self.prober.plan(plan.hops, plan.load_packets, size);
            self.notes.push(NeckNote::PacketsShortened { size });
            self.trains.clear();
        }
    }

    /// Sends the bursts, each after rounds without load.
    fn send_load(&mut self) -> io::Result<()> {
        let Some(rate) = gaps::rate_at_the_end(&self.gaps()) else {
            return Ok(());
        };
        let most = self.options.max_rate_bps as f64;
        let wanted = rate * LOAD_FACTOR;
        if wanted > most {
            let rate_bps = self.options.max_rate_bps;
            self.notes.push(NeckNote::LoadHeldBack { rate_bps });
        }
        let rate = wanted.min(most);
        for number in 0..BURSTS {
            for _ in 0..IDLE_ROUNDS_OF_BURST {
                self.idle_round(number)?;
            }
            if self.prober.stopped() {
                return Ok(());
            }
            let burst = self.burst(rate);
            let numbers = self.prober.send_burst(&burst)?;
            let length = i64::from(burst.packets) * burst.interval;
            // What is queued is gone after as long as the burst took, at the latest.
            let drained = monotonic() + length;
            let patience = self.longest_round_trip() + length + 100 * MILLISECOND;
            self.wait_for(&numbers, patience)?;
            self.prober.wait(drained, |_| false)?;
            for sent in numbers {
                let probe = self.prober.probe(sent);
                if let Some((hop, trip)) = probe.and_then(|it| Some((it.hop, it.round_trip()?))) {
                    let trips = self.round_trips.entry(hop).or_default();
                    trips.loaded.push((number, trip));
                }
            }
        }
        Ok(())
    }

    /// A burst at a rate.
    fn burst(&mut self, rate: f64) -> Burst {
        let octets = self.plan.load_octets;
        let interval = (octets as f64 * 8e9 / rate).max(1.0) as i64;
        let affordable = LOAD_OCTETS / u64::from(BURSTS) / octets.max(1) as u64;
        let packets = (BURST_LENGTH / interval).clamp(1, affordable.max(1) as i64);
        let length = packets * interval;
        let from = (length as f64 * PROBES_FROM) as i64;
        let mut probes = Vec::new();
        for _ in 0..PROBES_OF_BURST {
            let hops = self.shuffled();
            probes.extend(hops.into_iter().map(|hop| (hop, self.question(hop))));
        }
        let count = probes.len().max(1) as i64;
        let at = |number: i64| from + (length - from) * number / count;
        let timed = (0..)
            .zip(probes)
            .map(|(n, (hop, question))| (at(n), hop, question));
        Burst {
            octets,
            packets: packets as u32,
            interval,
            probes: timed.collect(),
        }
    }

    /// What both methods make of it.
    fn report(mut self) -> NeckReport {
        let gaps = self.gaps();
        let trains = gaps::find(&gaps);
        let loaded = loaded::find(&self.round_trips);
        let verdict = combine(trains.as_ref(), loaded.as_ref(), self.hops);
        let hops = self.hop_reports(&gaps);
        self.note_hops(&hops);
        if loaded.as_ref().is_some_and(|it| it.of_others) {
            self.notes.push(NeckNote::QueueOfOthers);
        }
        if self.hops > 0 {
            match verdict {
                NeckVerdict::Link { .. } => {}
                NeckVerdict::Disagreement => self.notes.push(NeckNote::MethodsDisagree),
                NeckVerdict::EndNotMeasured { last_hop } => {
                    self.notes.push(NeckNote::EndNotMeasured { last_hop });
                }
                NeckVerdict::NotFound => {
                    let none = [
                        trains.is_none().then_some(NeckNote::TrainsFindNone),
                        loaded.is_none().then_some(NeckNote::LoadFindsNone),
                    ];
                    self.notes.extend(none.into_iter().flatten());
                }
            }
        }
        let address = |ttl: u8| hops.get(usize::from(ttl)).and_then(|hop| hop.address);
        let (verdict, link, confidence): (VerdictName, _, _) = of_verdict(verdict, address);
        NeckReport {
            peer: self.options.name.clone(),
            address: self.options.peer,
            verdict,
            link,
            rate_bound_bps: trains.as_ref().map(|it| it.rate_bps as u64),
            rate_spread: trains.as_ref().map(|it| RateSpread {
                low: it.rate_spread.0 as u64,
                high: it.rate_spread.1 as u64,
            }),
            confidence,
            trains: self.trains.len(),
            methods: vec![
                MethodReport::of_trains(trains.as_ref()),
                MethodReport::of_loaded(loaded.as_ref()),
            ],
            sent_bytes: self.prober.sent_octets,
            hops,
            notes: self.notes,
        }
    }

    /// A row a hop, this host first.
    fn hop_reports(&self, gaps: &[TrainGaps]) -> Vec<HopReport> {
        let report = |ttl| self.hop_report(ttl, gaps);
        (0..=self.hops).map(report).collect()
    }

    fn hop_report(&self, ttl: u8, gaps: &[TrainGaps]) -> HopReport {
        let of_hop = || self.prober.probes().iter().filter(|probe| probe.hop == ttl);
        let answers = || of_hop().filter_map(|probe| probe.answer);
        let gaps = gaps.iter().filter_map(|train| train.get(&ttl).copied());
        let gaps: Vec<Gap> = gaps.collect();
        let value = |of: &dyn Fn(&Gap) -> f64| {
            let values: Vec<f64> = gaps.iter().map(of).collect();
            median(&values).map(|value| value as u64)
        };
        let trips = self.round_trips.get(&ttl);
        HopReport {
            ttl,
            address: answers().next().map(|answer| answer.from),
            gap_ns: value(&|gap| gap.nanos),
            rate_bps: value(&|gap| gap.octets * 8e9 / gap.nanos),
            asked: of_hop().count() as u64,
            answered: answers().count() as u64,
            idle_rtt_ns: trips.and_then(RoundTrips::median_idle).map(|it| it as u64),
            loaded_rtt_ns: trips
                .and_then(RoundTrips::median_loaded)
                .map(|it| it as u64),
        }
    }

    fn note_hops(&mut self, hops: &[HopReport]) {
        let of = |wanted: &dyn Fn(&HopReport) -> bool| -> Vec<u8> {
            let wanted = hops.iter().filter(|hop| hop.ttl > 0 && wanted(hop));
            wanted.map(|hop| hop.ttl).collect()
        };
        let silent = of(&|hop| hop.answered == 0);
        let rare = of(&|hop| hop.answered > 0 && hop.answered * 2 < hop.asked);
        if !silent.is_empty() {
            self.notes.push(NeckNote::SilentHops { hops: silent });
        }
        if !rare.is_empty() {
            self.notes.push(NeckNote::RareAnswers { hops: rare });
        }
    }
}

/// Whether a hop need not be asked that question again: it has answered; the destination has to answer an echo request.
fn is_known(probes: &[Probe], peer: IpAddr, hop: u8, question: Question) -> bool {
    let answers = || {
        let of_hop = probes.iter().filter(|probe| probe.hop == hop);
        of_hop.filter_map(|probe| probe.answer)
    };
    let is_end = end_of(probes, peer).is_some_and(|(end, _)| end == hop);
    match is_end && question == Question::Echo {
        true => answers().any(|answer| answer.error.is_none()),
        false => answers().next().is_some(),
    }
}

/// The nearest hop that is no router on the way, and how the destination answers there: by echo where it does.
fn end_of(probes: &[Probe], peer: IpAddr) -> Option<(u8, Option<Question>)> {
    let ends = |probe: &&Probe| {
        probe
            .answer
            .is_some_and(|answer| answer.error != Some(ErrorKind::TimeExceeded))
    };
    let hop = probes.iter().filter(ends).map(|probe| probe.hop).min()?;
    let answers = || probes.iter().filter_map(|probe| probe.answer);
    let echoes = answers().any(|answer| answer.error.is_none());
    let reports = answers().any(|answer| answer.from == peer);
    let question = match (echoes, reports) {
        (true, _) => Some(Question::Echo),
        (false, true) => Some(Question::Udp),
        (false, false) => None,
    };
    Some((hop, question))
}
