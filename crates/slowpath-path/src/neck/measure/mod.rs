// SPDX-License-Identifier: Apache-2.0
//! The measurement: hops, round trips without load, trains, bursts of load; then what both methods make of them.

mod discovery;
mod trains;

use super::capacity;
use super::gaps::{self, Gap, TrainGaps};
use super::loaded::{self, RoundTrips};
use super::prober::{Burst, Prober, Question};
use super::report::{
    HopReport, MethodReport, NeckNote, NeckReport, RateSpread, VerdictName, of_verdict,
};
use super::statistics::median;
use super::train::TrainPlan;
use super::verdict::{NeckVerdict, combine};
use crate::socket::{monotonic, precise_timers};
use discovery::{ROUND_PATIENCE, discover};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use trains::{LOAD_PACKETS, Trains};

const MILLISECOND: i64 = 1_000_000;
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
const PROBES_OF_BURST: usize = 4;
const PROBES_FROM: f64 = 0.4;

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
    trains: Trains<'a>,
    round_trips: BTreeMap<u8, RoundTrips>,
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
        let plan = prober.plan(0, options.load_packets.unwrap_or(LOAD_PACKETS), size);
        Measurement {
            options,
            prober,
            progress,
            hops: 0,
            last: None,
            trains: Trains::new(options, plan, None, 0),
            round_trips: BTreeMap::new(),
            notes: Vec::new(),
            random: monotonic() as u64,
        }
    }

    fn run(&mut self) -> io::Result<()> {
        (self.progress)("looking for the hops");
        (self.hops, self.last) = discover(&mut self.prober, self.options)?;
        if self.hops == 0 {
            self.notes.push(NeckNote::NothingAnswered);
            return Ok(());
        }
        if self.last.is_none() {
            let last_hop = self.hops;
            self.notes.push(NeckNote::DestinationSilent { last_hop });
        }
        for _ in 0..IDLE_ROUNDS {
            self.idle_round(0)?;
        }
        (self.progress)("sending trains");
        let plan = TrainPlan {
            hops: self.hops,
            ..self.trains.plan.clone()
        };
        self.trains = Trains::new(self.options, plan, self.last, self.longest_round_trip());
        self.trains.send(&mut self.prober)?;
        self.trains.send_slow(&mut self.prober)?;
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
        self.prober.wait_for(&numbers, patience)?;
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

    /// Sends the bursts, each after rounds without load.
    fn send_load(&mut self) -> io::Result<()> {
        let Some(rate) = gaps::rate_at_the_end(&self.trains.gaps(&self.prober)) else {
            return Ok(());
        };
        let most = self.options.max_rate_bps as f64;
        let wanted = rate * LOAD_FACTOR;
        if wanted > most {
            let rate_bps = self.options.max_rate_bps;
            self.notes.push(NeckNote::LoadHeldBack { rate_bps });
        }
        let rate = wanted.min(most);
        let mut next = monotonic() + self.trains.pause;
        for number in 0..BURSTS {
            for _ in 0..IDLE_ROUNDS_OF_BURST {
                self.idle_round(number)?;
            }
            // Hops that limit their ICMP answer again.
            self.prober.wait(next, |_| false)?;
            next = monotonic() + self.trains.pause;
            if self.prober.stopped() {
                return Ok(());
            }
            let burst = self.burst(rate);
            let numbers = self.prober.send_burst(&burst)?;
            let length = i64::from(burst.packets) * burst.interval;
            // What is queued is gone after as long as the burst took, at the latest.
            let drained = monotonic() + length;
            let patience = self.longest_round_trip() + length + 100 * MILLISECOND;
            self.prober.wait_for(&numbers, patience)?;
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
        let octets = self.trains.plan.load_octets;
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
        let at = |number: i64| from + (length - interval - from).max(0) * number / count;
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
        let gaps = self.trains.gaps(&self.prober);
        let trains = gaps::find(&gaps);
        let slow = self.trains.slow_gaps(&self.prober);
        let capacity = trains
            .as_ref()
            .and_then(|it| capacity::find(&gaps, &slow, it));
        let loaded = loaded::find(&self.round_trips);
        let verdict = combine(trains.as_ref(), loaded.as_ref(), self.hops);
        let hops = self.hop_reports(&gaps);
        self.notes.append(&mut self.trains.notes);
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
            capacity_bps: capacity.map(|it| it.capacity_bps as u64),
            available_bps: capacity.map(|it| it.available_bps as u64),
            confidence,
            trains: self.trains.sent.len(),
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
