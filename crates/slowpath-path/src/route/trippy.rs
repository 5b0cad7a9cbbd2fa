// SPDX-License-Identifier: Apache-2.0
//! TCP, ICMP, and UDP as the first traceroute and Dublin traceroute had it, by trippy-core. Its API is declared unstable:
//! the version is pinned, and none of its types leaves this file.
//!
//! Each round is a tracer of its own, since one cannot be stopped. Where the source or destination port differs from
//! round to round or from probe to probe, rounds go on until each hop has as many flows as the stopping rule asks for the
//! addresses found there (hop by hop, not node by node: the flows of a round cannot be aimed).

use super::assemble::Counted;
use super::changes::Way;
use super::echo::Echo;
use super::marks::{self, Quoted};
use super::options::{Engine, TraceOptions};
use super::plan::{Probe, Reply, ReplyKind};
use super::result::{Label, Route, RouteNote};
use super::stopping::{StoppingRule, missed};
use super::{RouteError, Step, nothing};
use crate::icmp::RawIcmp;
use crate::socket::{monotonic, sleep_until};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use trippy_core::{
    Builder, Extension, IcmpExtensionParseMode, IcmpPacketType, MultipathStrategy, Port,
    PortDirection, ProbeComplete, ProbeStatus, Protocol,
};

/// traceroute's first port, and that of TLS: the one most likely to be open.
const UDP_PORT: u16 = 33_434;
const TCP_PORT: u16 = 443;
/// The source port of flows whose destination port differs.
const SOURCE_PORT: u16 = 33_000;
/// The first of the ports that differ, and how many rounds use different ones.
const FIRST_PORT: u16 = 34_000;
const PORTS_OF_ROUND: u16 = 80;
const MOST_ROUNDS: u32 = 100;
/// Rounds where flows do not differ, at the least.
const LEAST_ROUNDS: u32 = 10;
/// Rounds with DSCP and ECN.
const MARKED_ROUNDS: u32 = 3;
/// Nodes among which the confidence is shared.
const NODES: u32 = 30;
/// Between echo requests, and between rounds that go on for long, ns.
const ECHO_GAP: i64 = 20_000_000;
const SECOND: i64 = 1_000_000_000;

/// A probe of a round and what came of it.
struct Observed {
    ttl: u8,
    source_port: u16,
    reply: Option<Reply>,
}

struct Trace<'a> {
    options: &'a TraceOptions,
    target: IpAddr,
    counted: Counted,
    /// Flow numbers by source port, where a flow has several probes.
    flows: BTreeMap<u16, usize>,
    rounds: u32,
    began: i64,
    interrupted: &'a AtomicBool,
}

/// Traces.
pub(super) fn trace(
    options: &TraceOptions,
    target: IpAddr,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Step),
) -> Result<Route, RouteError> {
    if let Err(error) = RawIcmp::open(target.is_ipv4()) {
        return Err(match error.kind() {
            io::ErrorKind::PermissionDenied => RouteError::NotPermitted(options.engine),
            _ => RouteError::Open(error),
        });
    }
    let mut trace = Trace {
        options,
        target,
        counted: Counted::default(),
        flows: BTreeMap::new(),
        rounds: 0,
        began: monotonic(),
        interrupted,
    };
    progress(Step::Ways);
    let missed = trace.search()?;
    progress(Step::Rounds);
    trace.echo();
    let mut route = nothing(options.engine, target);
    route.missed_probability = missed;
    if options.marks {
        progress(Step::Marks);
        if let Some((ecn, dscp)) = trace.marks()? {
            (route.ecn, route.dscp) = (Some(ecn), Some(dscp));
        }
    }
    Ok(trace.counted.into_route(route))
}

impl Trace<'_> {
    fn stopped(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Whether flows differ, so that several ways can be found.
    fn varied(&self) -> bool {
        self.options.engine != Engine::Icmp
    }

    /// Rounds until each hop has enough flows, or for as long as was asked for. How probable it is that a way was missed.
    fn search(&mut self) -> Result<Option<f64>, RouteError> {
        let mut rule = StoppingRule::for_route(self.options.confidence, NODES);
        let length = self.options.repeat_for;
        let end = length.map(|it| self.began + i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
        let least = self.options.rounds.max(LEAST_ROUNDS);
        let mut due = monotonic();
        loop {
            let goes_on = match end {
                Some(end) => monotonic() < end,
                None if self.varied() => self.lacks(&mut rule) && self.rounds < MOST_ROUNDS,
                None => self.rounds < least,
            };
            if !goes_on && self.rounds > 0 || !sleep_until(due, self.interrupted) {
                break;
            }
            if end.is_some() {
                due = (due + SECOND).max(monotonic());
            }
            let observed = self.round(0)?;
            self.count(&observed);
        }
        if self.varied() && self.lacks(&mut rule) {
            self.counted.notes.push(RouteNote::NotAllWays);
        }
        let hops = self.flows_of_hops();
        let none = hops.map(|(ways, flows)| 1.0 - missed(ways, flows));
        Ok(self.varied().then(|| 1.0 - none.product::<f64>()))
    }

    /// Addresses and flows of each hop before the destination that answers.
    fn flows_of_hops(&self) -> impl Iterator<Item = (usize, u32)> {
        let (counts, destination) = self.counted.counts();
        let hops = (1u8..).zip(counts.into_iter().zip(destination));
        let routers = hops.filter(|(_, (count, destination))| count.answered > 0 && !destination);
        let ways = routers
            .map(|(ttl, (count, _))| (self.counted.tally.at(ttl).addresses.len(), count.answered));
        ways.collect::<Vec<_>>().into_iter()
    }

    fn lacks(&self, rule: &mut StoppingRule) -> bool {
        self.rounds == 0
            || self
                .flows_of_hops()
                .any(|(ways, flows)| flows < rule.flows(ways) && self.rounds < 3 * rule.flows(ways))
    }

    /// One round of the tracer, in a thread of its own: should it panic, that ends the thread only.
    fn round(&mut self, tos: u8) -> Result<Vec<Observed>, RouteError> {
        let builder = builder(self.options, self.target, self.rounds, tos);
        self.rounds += 1;
        let target = self.target;
        let running = std::thread::spawn(move || -> Result<Vec<Observed>, String> {
            let (sender, observed) = mpsc::channel();
            let tracer = builder.build().map_err(|error| error.to_string())?;
            tracer
                .run_with(|round| {
                    let last = round.largest_ttl.0;
                    for probe in round.probes.iter().filter_map(|probe| read(probe, target)) {
                        if probe.ttl <= last {
                            // The receiver outlives the round.
                            let _ = sender.send(probe);
                        }
                    }
                })
                .map_err(|error| error.to_string())?;
            Ok(observed.try_iter().collect())
        });
        let failed = |reason: String| RouteError::Tracer {
            engine: self.options.engine,
            reason,
        };
        match running.join() {
            Ok(observed) => observed.map_err(failed),
            Err(_) => Err(failed("it panicked".to_owned())),
        }
    }

    fn count(&mut self, observed: &[Observed]) {
        let each_is_a_flow = matches!(self.options.engine, Engine::Tcp | Engine::UdpClassic);
        let mut way = Way::new();
        let mut port = 0;
        for probe in observed {
            let flow = match each_is_a_flow {
                true => 0,
                false => {
                    let next = self.flows.len();
                    *self.flows.entry(probe.source_port).or_insert(next)
                }
            };
            port = probe.source_port;
            let reply = probe.reply.as_ref();
            self.counted.tally.add(Probe::small(flow, probe.ttl), reply);
            let index = usize::from(probe.ttl) - 1;
            way.resize(way.len().max(index + 1), None);
            way[index] = reply.map(|reply| reply.from);
        }
        if each_is_a_flow {
            return;
        }
        if !self.varied() {
            let passed = u64::try_from(monotonic() - self.began).unwrap_or(0);
            self.counted.changes.round(passed, &[(0, way.clone())]);
        }
        match self.counted.flows.iter_mut().find(|(own, _)| *own == port) {
            None => self.counted.flows.push((port, way)),
            Some((_, known)) => {
                known.resize(known.len().max(way.len()), None);
                for (known, address) in known.iter_mut().zip(way) {
                    *known = known.or(address);
                }
            }
        }
    }

    fn echo(&mut self) {
        if self.options.loss_probes == 0 || self.stopped() {
            return;
        }
        let echo = Echo::open(self.options.source, self.target);
        let count = echo.and_then(|mut echo| {
            let requests = self.options.loss_probes;
            echo.count(requests, ECHO_GAP, self.interrupted).ok()
        });
        let note = match count {
            None => Some(RouteNote::EchoNotPermitted),
            Some(count) => (count.answered == 0).then_some(RouteNote::NoEcho),
        };
        self.counted.notes.extend(note);
        self.counted.echo = count;
    }

    fn marks(
        &mut self,
    ) -> Result<Option<(super::result::Marks, super::result::Marks)>, RouteError> {
        // On a TCP socket IP_TOS leaves ECN as it is (Linux: `__ip_sock_set_tos`).
        let sent = match self.options.engine {
            Engine::Tcp => self.options.tos() & !3,
            _ => self.options.tos(),
        };
        let mut quoted = BTreeMap::new();
        for _ in 0..MARKED_ROUNDS {
            if self.stopped() {
                break;
            }
            for probe in self.round(sent)? {
                let Some((from, tos)) = probe.reply.and_then(|it| Some((it.from, it.tos?))) else {
                    continue;
                };
                quoted.entry(probe.ttl).or_insert(Quoted {
                    ttl: probe.ttl,
                    address: from,
                    tos,
                });
            }
        }
        let quoted: Vec<Quoted> = quoted.into_values().collect();
        Ok(marks::changes(sent, &quoted))
    }
}

fn builder(options: &TraceOptions, target: IpAddr, round: u32, tos: u8) -> Builder {
    let first = FIRST_PORT + (round % 300) as u16 * PORTS_OF_ROUND;
    let port = Port(options.port.unwrap_or(match options.engine {
        Engine::Tcp => TCP_PORT,
        _ => UDP_PORT,
    }));
    let (protocol, strategy, direction) = match options.engine {
        Engine::Icmp => (
            Protocol::Icmp,
            MultipathStrategy::Classic,
            PortDirection::None,
        ),
        Engine::Tcp => (
            Protocol::Tcp,
            MultipathStrategy::Classic,
            PortDirection::FixedDest(port),
        ),
        Engine::UdpClassic => (
            Protocol::Udp,
            MultipathStrategy::Classic,
            PortDirection::FixedSrc(Port(SOURCE_PORT)),
        ),
        Engine::UdpDublin | Engine::Udp => (
            Protocol::Udp,
            MultipathStrategy::Dublin,
            PortDirection::FixedDest(port),
        ),
    };
    Builder::new(target)
        .source_addr(options.source)
        .protocol(protocol)
        .multipath_strategy(strategy)
        .port_direction(direction)
        .initial_sequence(first)
        .trace_identifier(std::process::id() as u16)
        .tos(tos)
        .max_ttl(options.max_ttl)
        .max_rounds(Some(1))
        .min_round_duration(Duration::from_millis(20))
        .grace_duration(Duration::from_millis(300))
        .max_round_duration(Duration::from_secs(2))
        .icmp_extension_parse_mode(IcmpExtensionParseMode::Enabled)
}

/// A probe that was sent, as this crate has it.
fn read(probe: &ProbeStatus, target: IpAddr) -> Option<Observed> {
    match probe {
        ProbeStatus::Awaited(probe) => Some(Observed {
            ttl: probe.ttl.0,
            source_port: probe.src_port.0,
            reply: None,
        }),
        ProbeStatus::Complete(complete) => Some(Observed {
            ttl: complete.ttl.0,
            source_port: complete.src_port.0,
            reply: Some(reply(complete, target)),
        }),
        ProbeStatus::NotSent | ProbeStatus::Skipped | ProbeStatus::Failed(_) => None,
    }
}

fn reply(complete: &ProbeComplete, target: IpAddr) -> Reply {
    let arrived = match complete.icmp_packet_type {
        IcmpPacketType::EchoReply(_) | IcmpPacketType::NotApplicable => true,
        _ => complete.host == target,
    };
    let kind = match (arrived, complete.icmp_packet_type) {
        (true, _) => ReplyKind::Destination,
        (false, IcmpPacketType::Unreachable(_)) => ReplyKind::Refused,
        (false, _) => ReplyKind::Expired,
    };
    let rtt = complete.received.duration_since(complete.sent).ok();
    let extensions = complete.extensions.iter().flat_map(|it| &it.extensions);
    let stacks = extensions.filter_map(|extension| match extension {
        Extension::Mpls(stack) => Some(&stack.members),
        Extension::Unknown(_) => None,
    });
    let labels = stacks.flatten().map(|member| Label {
        label: member.label,
        class: member.exp,
        ttl: member.ttl,
    });
    Reply {
        from: complete.host,
        kind,
        rtt: rtt.and_then(|rtt| u64::try_from(rtt.as_nanos()).ok()),
        tos: complete.tos.map(|tos| tos.0),
        mpls: labels.take(16).collect(),
    }
}
