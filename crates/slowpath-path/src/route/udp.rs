// SPDX-License-Identifier: Apache-2.0
//! A trace by UDP, step by step: all ways, rounds beside echo requests, where loss begins, quoted headers, the MTU.

use super::assemble::Counted;
use super::changes::Way;
use super::echo::{self, Echo};
use super::explorer::{Explorer, Limits};
use super::judge::{self, Count};
use super::marks::{self, Quoted};
use super::mtu::{Finding, Outcome, Search, least};
use super::options::TraceOptions;
use super::plan::{Listed, Probe, Reply, ReplyKind};
use super::prober::Prober;
use super::result::{BlackHole, HopKind, Mtu, Route, RouteNote};
use super::stopping::StoppingRule;
use super::walks::{Terrain, Walks};
use super::{Engine, RouteError, Step, nothing};
use crate::socket::{monotonic, sleep_until};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::thread;

/// traceroute's first port: nothing listens there.
const PORT: u16 = 33_434;
/// A second, ns.
const SECOND: i64 = 1_000_000_000;
/// Hosts and routers answer that often at the least (Linux: `icmp_ratelimit`), with some room.
const PACE: i64 = 1_100_000_000;
/// The most flows.
const MOST_FLOWS: usize = 200;
/// The search for ways ends after so long, ns.
const SEARCH: i64 = 20 * SECOND;
/// Nodes among which the confidence is shared.
const NODES: u32 = 30;
/// Unanswered hops in a row behind which nothing is expected.
const GAP: u8 = 5;
/// Flows that are repeated in rounds.
const REPEATED: usize = 6;
/// Between echo requests, ns.
const ECHO_GAP: i64 = 20_000_000;
/// The most probes of a hop to find where loss begins.
const MOST_TO_DISTINGUISH: u32 = 150;
/// Pairs of a large and a small packet by which a hop is judged.
const PAIRS: u32 = 5;
/// The TTL of packets that are to arrive.
const FAR: u8 = 64;

struct Trace<'a> {
    options: &'a TraceOptions,
    target: IpAddr,
    prober: Prober<'a>,
    counted: Counted,
    began: i64,
}

/// Traces.
pub(super) fn trace(
    options: &TraceOptions,
    target: IpAddr,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Step),
) -> Result<Route, RouteError> {
    let to = SocketAddr::new(target, options.port.unwrap_or(PORT));
    let mut trace = Trace {
        options,
        target,
        prober: Prober::new(options.source, to, options.rate, interrupted),
        counted: Counted::default(),
        began: monotonic(),
    };
    progress(Step::Ways);
    let mut explorer = trace.explore()?;
    let (missed, lacks) = explorer.missed();
    if lacks {
        trace.counted.notes.push(RouteNote::NotAllWays);
    }
    progress(Step::Rounds);
    trace.rounds(&explorer, interrupted)?;
    trace.destination_by_echo(&explorer, interrupted)?;
    trace.locate_loss(&explorer, progress)?;
    let mut route = nothing(Engine::Udp, target);
    route.missed_probability = Some(missed);
    if options.marks && !trace.prober.interrupted() {
        progress(Step::Marks);
        if let Some((ecn, dscp)) = trace.marks()? {
            (route.ecn, route.dscp) = (Some(ecn), Some(dscp));
        }
    }
    if options.mtu && !trace.prober.interrupted() {
        progress(Step::Mtu);
        route.mtu = trace.mtu(interrupted)?;
    }
    let echoed = trace.counted.echo.is_some_and(|echo| echo.answered > 0);
    let mut route = trace.counted.into_route(route);
    route.complete |= echoed;
    Ok(route)
}

impl Trace<'_> {
    fn explore(&mut self) -> Result<Explorer, RouteError> {
        let limits = Limits {
            max_ttl: self.options.max_ttl,
            flows: MOST_FLOWS,
            gap: GAP,
            tries: 4,
            hold: SECOND,
            deadline: self.began + SEARCH,
        };
        let rule = StoppingRule::for_route(self.options.confidence, NODES);
        let mut explorer = Explorer::new(rule, limits);
        let tally = &mut self.counted.tally;
        self.prober
            .run(&mut explorer, &mut |probe, reply| tally.add(probe, reply))?;
        let flows = (0..explorer.flows()).map(|flow| (self.prober.port(flow), explorer.way(flow)));
        self.counted.flows = flows.collect();
        Ok(explorer)
    }

    /// Rounds, while echo requests go to the destination.
    fn rounds(&mut self, explorer: &Explorer, interrupted: &AtomicBool) -> Result<(), RouteError> {
        let (options, target) = (self.options, self.target);
        thread::scope(|scope| {
            let counting = scope.spawn(move || {
                let wanted = options.loss_probes > 0;
                let mut echo = Echo::open(options.source, target).filter(|_| wanted)?;
                echo.count(options.loss_probes, ECHO_GAP, interrupted).ok()
            });
            let result = self.walk(explorer, interrupted);
            let echo = counting.join().ok().flatten();
            self.counted.echo = echo;
            if options.loss_probes > 0 {
                let note = match echo {
                    None => Some(RouteNote::EchoNotPermitted),
                    Some(count) => (count.answered == 0).then_some(RouteNote::NoEcho),
                };
                self.counted.notes.extend(note);
            }
            result
        })
    }

    fn walk(&mut self, explorer: &Explorer, interrupted: &AtomicBool) -> Result<(), RouteError> {
        let flows = explorer.flows().min(REPEATED);
        let last = explorer.last();
        let terrain = Terrain {
            destination: explorer.destination(),
            last,
            silent: (1..=last)
                .filter(|ttl| explorer.addresses(*ttl).is_empty())
                .collect(),
            max_ttl: self.options.max_ttl,
            gap: GAP,
        };
        let ways: Vec<(usize, Way)> = (0..flows).map(|flow| (flow, explorer.way(flow))).collect();
        self.counted.changes.round(self.passed(), &ways);
        let end = self
            .options
            .repeat_for
            .map(|length| self.began + i64::try_from(length.as_nanos()).unwrap_or(i64::MAX));
        let mut rounds = 0;
        let mut due = monotonic();
        loop {
            let goes_on = match end {
                Some(end) => monotonic() < end,
                None => rounds < self.options.rounds,
            };
            if !goes_on || !sleep_until(due, interrupted) {
                return Ok(());
            }
            let mut walks = Walks::new(flows, terrain.clone());
            let tally = &mut self.counted.tally;
            self.prober
                .run(&mut walks, &mut |probe, reply| tally.add(probe, reply))?;
            if !self.prober.interrupted() {
                self.counted.changes.round(self.passed(), &walks.ways());
            }
            rounds += 1;
            if end.is_some() {
                due = (due + SECOND).max(monotonic());
            }
        }
    }

    /// Where a destination is that answers echo requests and no UDP.
    fn destination_by_echo(
        &mut self,
        explorer: &Explorer,
        interrupted: &AtomicBool,
    ) -> Result<(), RouteError> {
        let echoes = self.counted.echo.is_some_and(|echo| echo.answered > 0);
        if explorer.destination().is_some() || !echoes {
            return Ok(());
        }
        let Some(mut echo) = Echo::open(self.options.source, self.target) else {
            return Ok(());
        };
        let distances = explorer.last() + 1..=self.options.max_ttl;
        let found = echo.distance(distances, interrupted);
        if let Some(ttl) = found.map_err(RouteError::Receive)? {
            let reply = Reply {
                from: self.target,
                kind: ReplyKind::Destination,
                rtt: None,
                tos: None,
                mpls: Vec::new(),
            };
            self.counted.tally.add(Probe::small(0, ttl), Some(&reply));
        }
        Ok(())
    }

    /// Since the trace began, ns.
    fn passed(&self) -> u64 {
        u64::try_from(monotonic() - self.began).unwrap_or(0)
    }

    /// Where there is loss: asks each router often enough to know whether it has it too.
    fn locate_loss(
        &mut self,
        explorer: &Explorer,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(), RouteError> {
        let lossy = |echo: &Count| echo.answered > 0 && echo.answered < echo.sent;
        let Some(echo) = self.counted.echo.filter(lossy) else {
            return Ok(());
        };
        progress(Step::Loss);
        let share = f64::from(echo.sent - echo.answered) / f64::from(echo.sent);
        let wanted = judge::probes_to_distinguish(share).min(MOST_TO_DISTINGUISH);
        let (counts, destination) = self.counted.counts();
        let kinds = judge::kinds(&counts, &destination, Some(echo));
        let flows = explorer.flows().min(REPEATED);
        let mut probes = Vec::new();
        for round in 0..wanted {
            let hops = (1u8..).zip(counts.iter().zip(&kinds));
            let asked = hops.filter(|(_, (count, kind))| {
                **kind == HopKind::Router && round < wanted.saturating_sub(count.sent)
            });
            probes.extend(asked.map(|(ttl, _)| Probe::small(round as usize % flows, ttl)));
        }
        let mut list = Listed::new(probes, 1, 0);
        let tally = &mut self.counted.tally;
        self.prober
            .run(&mut list, &mut |probe, reply| tally.add(probe, reply))
    }

    /// Probes with DSCP and ECN, and what routers quote of them.
    fn marks(
        &mut self,
    ) -> Result<Option<(super::result::Marks, super::result::Marks)>, RouteError> {
        if !self.prober.reads_quotes() {
            self.counted.notes.push(RouteNote::QuotesNeedRaw);
            return Ok(None);
        }
        let answering = (1..=self.counted.tally.last())
            .filter(|ttl| self.counted.tally.at(*ttl).answered() > 0);
        let probes: Vec<Probe> = answering.map(|ttl| Probe::small(0, ttl)).collect();
        let mut quoted = BTreeMap::new();
        let sent = self.options.tos();
        self.prober.tos = sent;
        // A router that stamps CE does so by chance: what most probes would show is the first that came.
        let mut list = Listed::new(probes, 4, PACE);
        let result = self.prober.run(&mut list, &mut |probe, reply| {
            let Some((reply, tos)) = reply.and_then(|reply| Some((reply, reply.tos?))) else {
                return;
            };
            quoted.entry(probe.ttl).or_insert(Quoted {
                ttl: probe.ttl,
                address: reply.from,
                tos,
            });
        });
        self.prober.tos = 0;
        result?;
        let quoted: Vec<Quoted> = quoted.into_values().collect();
        Ok(marks::changes(sent, &quoted))
    }

    /// One packet of flow 0: small or of a size, that far.
    fn one(&mut self, ttl: u8, size: Option<u16>) -> Result<Option<Reply>, RouteError> {
        let probe = Probe { flow: 0, ttl, size };
        let mut answer = None;
        self.prober
            .run(&mut Listed::new([probe], 1, 0), &mut |_, reply| {
                answer = reply.cloned()
            })?;
        Ok(answer)
    }

    /// What comes of a packet to the destination by UDP: not too often, because destinations limit their errors.
    fn ask(&mut self, size: u32, interrupted: &AtomicBool) -> Result<Outcome, RouteError> {
        if !sleep_until(monotonic() + PACE, interrupted) {
            return Ok(Outcome::Unanswered);
        }
        let reply = self.one(FAR, u16::try_from(size).ok())?;
        Ok(match reply.map(|reply| (reply.kind, reply.from)) {
            Some((ReplyKind::Destination, _)) => Outcome::Answered,
            Some((ReplyKind::TooBig(bytes), from)) => Outcome::TooBig(bytes, from),
            _ => Outcome::Unanswered,
        })
    }

    fn mtu(&mut self, interrupted: &AtomicBool) -> Result<Option<Mtu>, RouteError> {
        let v6 = self.target.is_ipv6();
        let Some(link) = echo::link_mtu(self.options.source, self.target) else {
            return Ok(None);
        };
        let mut echo = Echo::open(self.options.source, self.target);
        let mut replies = false;
        if let Some(echo) = &mut echo {
            for _ in 0..3 {
                let outcome = echo.ask(echo::SMALL, SECOND).map_err(RouteError::Receive)?;
                replies |= outcome == Outcome::Answered;
            }
        }
        let small = echo::SMALL.max(if v6 { least(v6) } else { echo::SMALL });
        let mut search = Search::new(small.min(link), link);
        while let Some(size) = search.next() {
            if self.prober.interrupted() {
                return Ok(None);
            }
            let outcome = match &mut echo {
                Some(echo) if replies => echo.ask(size, SECOND / 2).map_err(RouteError::Receive)?,
                _ => self.ask(size, interrupted)?,
            };
            search.outcome(outcome);
        }
        let Some(found) = search.found() else {
            return Ok(None);
        };
        self.judge_mtu(found, interrupted).map(Some)
    }

    /// Whether what vanished did so on the way there, and where.
    fn judge_mtu(&mut self, found: Finding, interrupted: &AtomicBool) -> Result<Mtu, RouteError> {
        let mut mtu = Mtu {
            bytes: found.bytes,
            icmp: found.vanished.is_none(),
            black_hole: None,
            reported_by: found.reported_by,
        };
        let Some(vanished) = found.vanished else {
            return Ok(mtu);
        };
        // A large request has a large reply: were that the one to vanish, UDP's short error would come.
        for _ in 0..3 {
            if self.ask(vanished, interrupted)? == Outcome::Answered {
                self.counted.notes.push(RouteNote::LargeRepliesVanish);
                mtu.bytes = vanished;
                mtu.icmp = true;
                return Ok(mtu);
            }
        }
        mtu.black_hole = Some(BlackHole {
            hop: self.black_hole(vanished)?,
            bytes: vanished,
        });
        Ok(mtu)
    }

    /// The first hop that answers small packets and no large ones, behind all that answer large ones.
    fn black_hole(&mut self, size: u32) -> Result<Option<u8>, RouteError> {
        let size = u16::try_from(size).ok();
        let (_, destination) = self.counted.counts();
        let end = destination.iter().position(|it| *it);
        let last = end.map_or(self.counted.tally.last(), |end| end as u8);
        let mut good = 0;
        let probes = (1..=last).map(|ttl| Probe { flow: 0, ttl, size });
        let mut list = Listed::new(probes, 3, SECOND / 5);
        self.prober.run(&mut list, &mut |probe, reply| {
            if reply.is_some_and(|reply| reply.kind == ReplyKind::Expired) {
                good = good.max(probe.ttl);
            }
        })?;
        for ttl in good + 1..=last {
            let (mut small, mut large) = (0, 0);
            for _ in 0..PAIRS {
                small += u32::from(self.one(ttl, None)?.is_some());
                large += u32::from(self.one(ttl, size)?.is_some());
            }
            // 3 of 5 against none of 5, or better; a silent hop shows nothing.
            if large == 0 && small >= 3 {
                return Ok(Some(ttl));
            }
        }
        // The destination itself answers small packets, and no large ones.
        Ok(end.map(|end| end as u8 + 1))
    }
}
