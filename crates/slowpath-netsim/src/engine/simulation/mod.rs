// SPDX-License-Identifier: Apache-2.0
//! The run.

mod accounts;
mod captures;
mod flow_control;
mod flows;
mod lines;
mod packets;

use super::connection::{Connection, Connections};
use super::flow_control::FlowControl;
use super::flying::{Flying, InFlight, Overflow};
use super::lines::Lines;
use super::network::Network;
use super::packet::{Bodies, Hop};
use super::queries::Queries;
use super::recorder::{PacketRecords, Records};
use super::settings::{FlowSpec, Progress, QueueSeries, Settings, SimulationError, Transport};
use super::timers::Timers;
use super::wheel::Wheel;
use crate::engine::HostId;
use crate::host::{Interface, SCHEDULED};
use crate::results::{Conservation, FlowRecord, Results};
use crate::tcp::TcpConfig;
use crate::topology::Node as End;
use slowpath_switch::fabric::Action;
use slowpath_switch::{Packet, PortId, Random, Span, Switch, Time};
use std::collections::BTreeMap;

/// Events between two reports of progress.
const PROGRESS_EVERY: u64 = 1 << 18;
/// Bytes that come from memory at once.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;
/// Up to this many links, what their packets need lies in a second-level cache.
const LINKS_IN_CACHE: usize = 1024;
/// In picoseconds.
const NANOSECOND: u64 = 1_000;
/// Instead of a switch: the near or far end is a host.
const HOST: u32 = 1 << 31;

/// One direction of a link.
#[repr(align(64))]
struct Link {
    flying: InFlight,
    /// When the port at the near end can start what waits there; [`Time::MAX`] if nothing does, or
    /// if the near end is a host.
    due: Time,
    /// The switch at the far end, or a host's number and [`HOST`].
    to: u32,
    /// The switch at the near end, or a host's number and [`HOST`].
    from: u32,
    to_port: PortId,
    from_port: PortId,
}

/// When a switch must know what waits at other ports than the one a packet goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CatchUp {
    /// Never.
    One,
    /// When a packet finds no room.
    AllWhenFull,
    /// At each packet.
    All,
}

struct Node {
    switch: Switch<Hop>,
    catch_up: CatchUp,
    /// The number of its first port's link.
    first_link: u32,
    decrements: bool,
}

/// What most runs do without.
struct Features {
    /// Whether a kind of TCP has a kernel's tick.
    kernels: bool,
    /// Whether a kind of TCP paces.
    paced: bool,
    /// Whether switches do what most do without: manage queues, divide flows into flowlets,
    /// stop what sends into them.
    extras: bool,
    /// Where switches stop what sends into them.
    flow_control: Option<Box<FlowControl>>,
    /// Where links do more than to carry, or anything changes during the run.
    lines: Option<Box<Lines>>,
}

impl Features {
    #[inline]
    fn any(&self) -> bool {
        self.kernels || self.lines.is_some()
    }
}

/// A network with flows in it. Links are numbered: those of the hosts first, then those of
/// the switches' ports in order. Sources of events are the links, then the interfaces.
pub struct Simulation {
    settings: Settings,
    links: Vec<Link>,
    overflow: Overflow,
    interfaces: Vec<Interface<Hop>>,
    nodes: Vec<Node>,
    connections: Connections,
    bodies: Bodies,
    wheel: Wheel,
    timers: Timers,
    records: Records,
    lasting: BTreeMap<(HostId, HostId, u32), u32>,
    queries: Queries,
    flows: Vec<FlowRecord>,
    random: Random,
    network: Network,
    /// Packets so far.
    counts: Conservation,
    events: u64,
    now: Time,
    warmed: u32,
    features: Features,
}

impl Simulation {
    /// An idle network.
    ///
    /// # Errors
    /// The network or the settings are impossible.
    pub fn new(network: &Network, settings: Settings) -> Result<Self, SimulationError> {
        for (kind, tcp) in settings.tcp.iter().enumerate() {
            tcp.check()
                .map_err(|error| SimulationError::Tcp(kind, error))?;
        }
        if settings.ttl == 0 {
            return Err(SimulationError::TimeToLive);
        }
        let switches = network.build().map_err(SimulationError::Network)?;
        let (links, nodes) = links_and_nodes(network, switches);
        let topology = &network.topology;
        let interfaces: Vec<_> = (topology.hosts().iter())
            .map(|host| Interface::new(host.port.options.rate, host.port.options.delay))
            .collect();
        let mut simulation = Simulation {
            wheel: Wheel::new(settings.tick_shift, links.len() + interfaces.len()),
            records: Records {
                stretch_shift: super::recorder::stretch_shift(settings.until),
                max_queues: settings.max_queue_samples,
                watched: vec![false; links.len()],
                most: vec![0; links.len()],
                ..Records::default()
            },
            random: Random::stream(settings.seed, u64::from(u32::MAX)),
            network: network.clone(),
            features: Features {
                kernels: settings.tcp.iter().any(|tcp| tcp.kernel_tick.is_some()),
                paced: settings.tcp.iter().any(TcpConfig::paces),
                extras: network.has_extras(),
                flow_control: (!network.pfc.is_empty())
                    .then(|| Box::new(FlowControl::new(links.len(), interfaces.len()))),
                lines: None,
            },
            settings,
            links,
            overflow: Overflow::new(),
            interfaces,
            nodes,
            connections: Connections::default(),
            bodies: Bodies::new(),
            timers: Timers::default(),
            lasting: BTreeMap::new(),
            queries: Queries::default(),
            flows: Vec::new(),
            counts: Conservation::default(),
            events: 0,
            now: Time::ZERO,
            warmed: 0,
        };
        simulation.features.lines = simulation.lines()?;
        simulation.check_queues()?;
        if simulation.settings.packets {
            let hosts = simulation.interfaces.len() as u32;
            let records = PacketRecords::new(simulation.links.len(), hosts);
            simulation.records.packets = Some(records);
        }
        Ok(simulation)
    }

    /// The lines that do something; `None` without any.
    fn lines(&self) -> Result<Option<Box<Lines>>, SimulationError> {
        let changes = &self.settings.changes;
        if changes.is_empty() {
            return Ok(None);
        }
        let topology = &self.network.topology;
        let lines = Lines::new(
            topology,
            changes,
            self.settings.seed,
            |node, port| match node {
                End::Host(host) => host,
                End::Switch(switch) => self.nodes[switch as usize].first_link + u32::from(port),
            },
        );
        let known = changes.iter().all(|change| match &change.action {
            Action::Route(route) => (self.nodes.get(route.switch as usize)).is_some_and(|node| {
                route
                    .ports
                    .iter()
                    .all(|port| usize::from(port.0) < node.switch.ports())
            }),
            _ => true,
        });
        match lines.filter(|_| known) {
            Some(lines) => Ok(Some(Box::new(lines))),
            None => Err(SimulationError::Change),
        }
    }

    fn check_queues(&mut self) -> Result<(), SimulationError> {
        let (ports, watch, every) = match &self.settings.queues {
            QueueSeries::Off => return Ok(()),
            QueueSeries::Sampled { every, ports } => (ports, false, *every),
            QueueSeries::OnChange { ports } => (ports, true, Span(1)),
        };
        if every == Span::ZERO {
            return Err(SimulationError::Queues);
        }
        for (switch, port) in ports {
            let node = self.nodes.get(switch.0 as usize);
            let node = node.filter(|node| usize::from(port.0) < node.switch.ports());
            let Some(node) = node else {
                return Err(SimulationError::Queues);
            };
            let link = node.first_link as usize + usize::from(port.0);
            self.records.watched[link] = watch;
        }
        Ok(())
    }

    /// Runs flows to the end. They come in the order of their start. `progress` is called now
    /// and then with how far it is.
    ///
    /// # Errors
    /// A flow is impossible, or the run does not account for every packet.
    pub fn run(
        mut self,
        flows: impl IntoIterator<Item = FlowSpec>,
        mut progress: impl FnMut(&Progress),
    ) -> Result<Results, SimulationError> {
        let flows = flows.into_iter();
        let on_change = matches!(self.settings.queues, QueueSeries::OnChange { .. });
        let features = self.features.lines.is_some() || self.features.extras;
        if on_change || self.settings.packets || features {
            self.drive::<true>(flows, &mut progress)?;
        } else {
            self.drive::<false>(flows, &mut progress)?;
        }
        self.finish()
    }

    fn drive<const WATCH: bool>(
        &mut self,
        mut flows: impl Iterator<Item = FlowSpec>,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<(), SimulationError> {
        let until = self.settings.until;
        let mut next_flow = flows.next();
        let mut flow_at = self.begins_at(next_flow.as_ref());
        let sampling = match &self.settings.queues {
            QueueSeries::Sampled { every, .. } => Some(*every),
            _ => None,
        };
        let mut next_queues = sampling.map_or(Time::MAX, |every| Time::ZERO + every);
        let windows = self.settings.windows_every.filter(|every| every.0 > 0);
        let mut next_windows = windows.map_or(Time::MAX, |_| Time::ZERO);
        let large = self.links.len() > LINKS_IN_CACHE;
        loop {
            let other = self.timers.next().min(flow_at);
            let next_sample = next_queues.min(next_windows);
            if self.wheel.turn() && large {
                self.warm();
            }
            if WATCH && let Some(at) = self.due_of_lines(other.min(next_sample)) {
                if at > until {
                    break;
                }
                self.next_of_lines::<WATCH>(at);
                continue;
            }
            if let Some((at, source)) = self.wheel.peek()
                && at <= other
                && at <= next_sample
            {
                if at > until {
                    break;
                }
                self.wheel.pop();
                self.now = at;
                if (source as usize) < self.links.len() {
                    self.arrive::<WATCH>(source);
                } else {
                    let host = source - self.links.len() as u32;
                    self.interfaces[host as usize].hold &= !SCHEDULED;
                    self.kick(host);
                }
            } else if other <= next_sample {
                if other > until || other == Time::MAX {
                    break;
                }
                self.now = other;
                if self.timers.next() <= flow_at {
                    self.expire();
                } else if let Some(flow) = next_flow.take() {
                    self.begin(&flow)?;
                    next_flow = flows.next();
                    flow_at = self.begins_at(next_flow.as_ref());
                    check_order(&flow, next_flow.as_ref())?;
                }
            } else {
                if next_sample > until || self.is_idle(other) {
                    break;
                }
                self.now = next_sample;
                if next_windows <= next_queues {
                    self.record_windows();
                    self.record_lines();
                    next_windows += windows.unwrap_or(Span::ZERO);
                } else {
                    self.sample::<WATCH>();
                    next_queues += sampling.unwrap_or(Span::ZERO);
                }
            }
            self.events += 1;
            if self.events.is_multiple_of(PROGRESS_EVERY) {
                progress(&self.progress());
            }
        }
        self.now = self.now.min(until);
        Ok(())
    }

    /// Whether nothing is to come, in what `other` has and elsewhere.
    fn is_idle(&self, other: Time) -> bool {
        let lines = self.features.lines.as_ref();
        let calm = lines.is_none_or(|lines| lines.next().0 == Time::MAX)
            && self.due_of_flow_control() == Time::MAX;
        calm && other == Time::MAX && self.wheel.peek().is_none()
    }

    fn progress(&self) -> Progress {
        Progress {
            now: self.now,
            until: self.settings.until,
            events: self.events,
            hops: self.counts.hops,
        }
    }

    /// When a flow is to begin.
    fn begins_at(&self, flow: Option<&FlowSpec>) -> Time {
        flow.map_or(Time::MAX, |flow| self.at_host(flow.start))
    }

    /// When a host notices what happens then: Linux's clock counts nanoseconds.
    #[inline]
    fn at_host(&self, at: Time) -> Time {
        if self.features.kernels {
            Time(at.0.next_multiple_of(NANOSECOND))
        } else {
            at
        }
    }

    /// Looks at what the events of the tick that has just begun will look at: one miss of
    /// the cache then hides behind the others, where one event after the other would wait
    /// for each. The sum is there so that the loads are not optimised away.
    #[inline(never)]
    fn warm(&mut self) {
        for source in self.wheel.tick() {
            if let Some(link) = self.links.get(source as usize) {
                prefetch(link);
            }
        }
        let mut sum = 0;
        for source in self.wheel.tick() {
            let Some(link) = self.links.get(source as usize) else {
                continue;
            };
            let Some(Flying { arrival, hop }) = link.flying.front() else {
                continue;
            };
            if link.due <= *arrival {
                sum += self.nodes[link.from as usize]
                    .switch
                    .depth(link.from_port)
                    .packets;
            }
            if link.to & HOST == 0 {
                let switch = &self.nodes[link.to as usize].switch;
                if let Some(port) = switch.next_port(hop.destination(), hop.flow()) {
                    sum += switch.depth(port).packets;
                }
            } else {
                let body = self.bodies.at(hop.body());
                let connection = &self.connections.places[body.connection as usize];
                if body.is_segment() {
                    prefetch(&connection.receiver);
                } else {
                    prefetch(&connection.sender);
                }
            }
        }
        self.warmed = self.warmed.wrapping_add(sum);
    }
}

/// Asks for all of a value to be brought near.
#[inline]
fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..size_of::<T>().div_ceil(CACHE_LINE) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = core::ptr::from_ref(value).cast::<i8>();
        // SAFETY: a prefetch reads nothing and never faults; the address is that of a live
        // value, or less than a line beyond its end.
        unsafe { _mm_prefetch(start.wrapping_add(line * CACHE_LINE), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Flows come in the order of their start.
fn check_order(flow: &FlowSpec, next: Option<&FlowSpec>) -> Result<(), SimulationError> {
    match next {
        Some(next) if next.start < flow.start => Err(SimulationError::Flow(
            next.id,
            "it starts before the one before it",
        )),
        _ => Ok(()),
    }
}

/// The links, those of the hosts first, and the switches as nodes between them.
fn links_and_nodes(network: &Network, switches: Vec<Switch<Hop>>) -> (Vec<Link>, Vec<Node>) {
    let mut links: Vec<Link> = Vec::new();
    let topology = &network.topology;
    for (number, host) in topology.hosts().iter().enumerate() {
        let (to, to_port) = far_end(host.port.peer, host.port.peer_port);
        links.push(Link {
            flying: InFlight::new(),
            due: Time::MAX,
            to,
            from: number as u32 | HOST,
            to_port,
            from_port: PortId(0),
        });
    }
    let mut nodes = Vec::new();
    for (number, switch) in switches.into_iter().enumerate() {
        let config = &network.switches[number];
        nodes.push(Node {
            switch,
            catch_up: if config.shared.is_some() {
                CatchUp::All
            } else if config.detour.is_some() {
                CatchUp::AllWhenFull
            } else {
                CatchUp::One
            },
            first_link: links.len() as u32,
            decrements: config.decrement_ttl,
        });
        for (number_of_port, port) in topology.switches()[number].ports.iter().enumerate() {
            let (to, to_port) = far_end(port.peer, port.peer_port);
            links.push(Link {
                flying: InFlight::new(),
                due: Time::MAX,
                to,
                from: number as u32,
                to_port,
                from_port: PortId(number_of_port as u16),
            });
        }
    }
    (links, nodes)
}

/// A link's far end.
fn far_end(peer: End, port: u16) -> (u32, PortId) {
    match peer {
        End::Host(host) => (host | HOST, PortId(port)),
        End::Switch(switch) => (switch, PortId(port)),
    }
}

/// The configuration of a connection. Datagrams have none of their own and use none.
#[inline]
fn config_of<'a>(configs: &'a [TcpConfig], connection: &Connection) -> &'a TcpConfig {
    match connection.kind {
        Transport::Tcp(kind) => &configs[usize::from(kind)],
        Transport::Datagrams(_) => &configs[0],
    }
}
