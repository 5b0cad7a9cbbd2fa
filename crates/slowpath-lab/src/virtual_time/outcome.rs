// SPDX-License-Identifier: Apache-2.0
//! What a run left.

use super::error::RunError;
use super::plan::Plan;
use super::wire;
use super::wire::{
    FORMAT, MAGIC, NEVER, RECORD, RawEvent, RawResult, RawSeries, RawSummary, Reader, SWITCH,
};
use slowpath_netsim::engine::{FlowSpec, HostId, SwitchId};
use slowpath_netsim::results::{
    Conservation, FlowRecord, HostRecord, LABELS, LabelRecord, PortRecord, QueryRecord,
    QueueSample, Results, StretchRecord,
};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::{Node, Port, Topology};
use slowpath_recording::Recording;
use slowpath_switch::{Counters, Destination, DropReason, Header, PortId, Span, Switch, Time};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Stretches of time in which events are counted: this many at most.
const STRETCHES: u64 = 1024;

/// What came out of a run.
#[derive(Debug)]
pub struct Run {
    /// As the simulator reports them. `path` of flows is empty; packets of the warm-up count.
    pub results: Results,
    /// What switches did to packets, in the order of time. Queues that are written down are in
    /// the results.
    pub events: Vec<Event>,
    /// The series of senders, in the order of time.
    pub series: Vec<Series>,
    /// The connection of each flow.
    pub carried_by: Vec<u32>,
    /// The captures by host, if there are any. Time 0 of the scenario is 2000-01-01 00:00 UTC.
    pub captures: Vec<PathBuf>,
    /// What TCP's handlers did, if that was recorded.
    pub recording: Option<Recording>,
    /// Packets that sockets gave to devices.
    pub packets: u64,
    /// Packets that were damaged on the way and thrown away by their host.
    pub corrupted: u64,
    /// How long the scenario lasted, without the warm-up.
    pub virtual_time: Span,
    /// What the kernel's process took, start included.
    pub wall: Duration,
}

/// What happened to a packet at a switch, or at a host's own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in picoseconds of the scenario; the warm-up is before 0.
    pub at: i64,
    /// Where.
    pub node: Node,
    /// At which port; of a drop before a port was chosen, the one it came in by.
    pub port: Option<PortId>,
    /// What.
    pub kind: EventKind,
    /// Packets and bytes that its queue held as it was marked; otherwise 0.
    pub depth: (u32, u32),
    /// Its connection, an index of [`Plan::connections`].
    pub connection: u32,
    /// Whether it went from the receiver to the sender.
    pub reply: bool,
    /// Its bytes on the wire.
    pub bytes: u16,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was dropped; the cause as in [`slowpath_switch::fabric::DropCause`].
    Dropped(u8),
    /// It was marked.
    Marked,
    /// It went to another port than it should have: the lower eight bits of which.
    Detoured(u8),
}

/// The state of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// When.
    pub at: Time,
    /// An index of [`Plan::connections`].
    pub connection: u32,
    /// `struct tcp_info` as the kernel gave it (include/uapi/linux/tcp.h).
    pub info: Box<[u8]>,
}

impl Series {
    /// A 32-bit field at its offset; `None` where the kernel has none.
    pub fn field(&self, offset: usize) -> Option<u32> {
        let bytes = self.info.get(offset..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }
}

/// summary.bin.
struct Summary {
    end: u64,
    sent: u64,
    delivered: u64,
    dropped: u64,
    copied: u64,
    inside: u64,
    host_packets: u64,
    corrupted: u64,
    most_inside: u64,
    sent_by_tag: [u64; LABELS],
    detoured_by_tag: [u64; LABELS],
    hosts: Vec<(u64, u64)>,
    /// Packets and bytes by line.
    lines: Vec<(u64, u64)>,
}

impl Summary {
    fn read(bytes: &[u8], plan: &Plan) -> Option<Self> {
        let mut from = Reader(bytes);
        let raw: RawSummary = from.get()?;
        let whole = raw.magic == MAGIC && raw.version == FORMAT && raw.complete == 1;
        if !whole || raw.lost_records != 0 {
            return None;
        }
        let hosts = plan.network().hosts.iter();
        let hosts = hosts
            .map(|_| Some((from.u64()?, from.u64()?)))
            .collect::<Option<_>>()?;
        let lines = 0..2 * plan.network().links.len();
        let lines = lines.map(|_| {
            let [packets, bytes, _, _, _, _, _] = numbers(&mut from)?;
            Some((packets, bytes))
        });
        let lines = lines.collect::<Option<_>>()?;
        from.is_empty().then_some(Summary {
            end: raw.end,
            sent: raw.sent,
            delivered: raw.delivered,
            dropped: raw.dropped,
            copied: raw.copied,
            inside: raw.inside,
            host_packets: raw.host_packets,
            corrupted: raw.corrupted,
            most_inside: raw.most_inside,
            sent_by_tag: raw.sent_by_tag,
            detoured_by_tag: raw.detoured_by_tag,
            hosts,
            lines,
        })
    }
}

fn numbers<const N: usize>(from: &mut Reader<'_>) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = from.u64()?;
    }
    Some(numbers)
}

/// A file's content, removed.
///
/// # Errors
/// It cannot be read or removed.
pub fn take(folder: &Path, name: &str) -> Result<(PathBuf, Vec<u8>), RunError> {
    let path = folder.join(name);
    let failed = |error| RunError::file(&path, error);
    let bytes = std::fs::read(&path).map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    Ok((path, bytes))
}

/// Reads what a run left.
pub(super) fn read(
    scenario: &Scenario,
    plan: &Plan,
    folder: &Path,
    wall: Duration,
) -> Result<Run, RunError> {
    let (path, bytes) = take(folder, "summary.bin")?;
    let summary = Summary::read(&bytes, plan).ok_or(RunError::Garbled(path))?;
    let (path, bytes) = take(folder, "flows.bin")?;
    let flows = flows(plan, &bytes).ok_or(RunError::Garbled(path))?;
    let (path, bytes) = take(folder, "events.bin")?;
    let reported = events(&bytes).ok_or(RunError::Garbled(path))?;
    let (path, bytes) = take(folder, "series.bin")?;
    let series = series(&bytes).ok_or(RunError::Garbled(path))?;
    let captures = if plan.snap > 0 {
        captures(scenario, folder)?
    } else {
        Vec::new()
    };
    let recording = if plan.flags & RECORD != 0 {
        let (path, bytes) = take(folder, "handlers.bin")?;
        Some(super::recording::read(plan, &bytes).ok_or(RunError::Garbled(path))?)
    } else {
        None
    };
    let conservation = conservation(&summary)?;
    let mut results = Results {
        queries: queries(plan, &flows),
        flows,
        end: Time(summary.end),
        conservation,
        most_packets: summary.most_inside,
        most_connections: plan.connections.len() as u64,
        events: conservation.hops,
        ..Results::default()
    };
    results.hosts = hosts(&scenario.topology, &summary);
    let mut ports = ports(scenario, &summary);
    for label in 0..LABELS {
        results.labels[label].sent = summary.sent_by_tag[label];
        results.labels[label].detoured_packets = summary.detoured_by_tag[label];
    }
    results.stretch = stretch(plan.until);
    let events = count_all(plan, reported, &mut results, &mut ports);
    for sample in &results.queues {
        if let Some(port) = ports.get_mut(&(sample.switch, sample.port)) {
            port.most_packets = port.most_packets.max(Some(sample.packets));
        }
    }
    results.ports = ports.into_values().collect();
    Ok(Run {
        results,
        events,
        series,
        carried_by: plan.carried_by.clone(),
        captures,
        recording,
        packets: summary.host_packets,
        corrupted: summary.corrupted,
        virtual_time: Span(summary.end),
        wall,
    })
}

/// Where all packets are; an error if some are missing, or of those that sockets sent not all
/// came to the network.
fn conservation(summary: &Summary) -> Result<Conservation, RunError> {
    let conservation = Conservation {
        sent: summary.sent,
        copies: summary.copied,
        delivered: summary.delivered,
        dropped: summary.dropped,
        in_network: summary.inside,
        hops: summary.lines.iter().map(|line| line.0).sum(),
        path_lengths: summary.lines.iter().map(|line| line.0).sum(),
        ..Conservation::default()
    };
    if conservation.holds() && summary.sent == summary.host_packets {
        Ok(conservation)
    } else {
        Err(RunError::Conservation(conservation.to_string()))
    }
}

/// The kernel names captures by number; people by host.
fn captures(scenario: &Scenario, folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let hosts = scenario.topology.hosts().iter().enumerate();
    hosts
        .map(|(number, host)| {
            let from = folder.join(format!("capture-{number}.pcap"));
            let name: String = host
                .name
                .chars()
                .map(|c| if c == '/' { '_' } else { c })
                .collect();
            let to = folder.join(format!("{name}.pcap"));
            std::fs::rename(&from, &to).map_err(|error| RunError::file(&from, error))?;
            Ok(to)
        })
        .collect()
}

fn flows(plan: &Plan, bytes: &[u8]) -> Option<Vec<FlowRecord>> {
    if bytes.len() != plan.flows.len() * size_of::<RawResult>() {
        return None;
    }
    let mut from = Reader(bytes);
    let record = |flow: &FlowSpec| {
        let raw: RawResult = from.get()?;
        Some(FlowRecord {
            id: flow.id,
            label: flow.label,
            query: flow.query.map(|query| query.id),
            source: flow.source,
            destination: flow.destination,
            bytes: flow.bytes,
            arrived: raw.arrived,
            start: flow.start,
            finish: (raw.finish != NEVER).then_some(Time(raw.finish)),
            retransmissions: raw.retransmissions,
            timeouts: raw.timeouts,
            path: Vec::new(),
        })
    };
    plan.flows.iter().map(record).collect()
}

fn queries(plan: &Plan, flows: &[FlowRecord]) -> Vec<QueryRecord> {
    let mut queries: BTreeMap<u64, (QueryRecord, u32)> = BTreeMap::new();
    for (spec, flow) in plan.flows.iter().zip(flows) {
        let Some(query) = spec.query else { continue };
        let (record, done) = queries.entry(query.id).or_insert((
            QueryRecord {
                id: query.id,
                start: query.asked,
                finish: None,
                flows: query.flows,
            },
            0,
        ));
        *done += u32::from(flow.finish.is_some());
        record.finish = record.finish.max(flow.finish);
    }
    let whole = |(mut record, done): (QueryRecord, u32)| {
        record.finish = record.finish.filter(|_| done == record.flows);
        record
    };
    queries.into_values().map(whole).collect()
}

enum EventRecord {
    Packet(Event, u8),
    Queue(QueueSample),
}

fn events(bytes: &[u8]) -> Option<Vec<EventRecord>> {
    if !bytes.len().is_multiple_of(size_of::<RawEvent>()) {
        return None;
    }
    let mut from = Reader(bytes);
    let count = bytes.len() / size_of::<RawEvent>();
    (0..count).map(|_| event(&from.get()?)).collect()
}

fn event(raw: &RawEvent) -> Option<EventRecord> {
    // Before the scenario it is negative.
    let at = raw.at as i64;
    let depth = (raw.packets, raw.bytes);
    let kind = match raw.kind {
        wire::event::DROPPED => EventKind::Dropped(raw.cause),
        wire::event::MARKED => EventKind::Marked,
        wire::event::DETOURED => EventKind::Detoured(raw.cause),
        wire::event::QUEUE => {
            return Some(EventRecord::Queue(QueueSample {
                at: Time(at.max(0) as u64),
                switch: SwitchId(raw.node & !SWITCH),
                port: PortId(raw.port),
                packets: raw.packets,
                bytes: u64::from(raw.bytes),
            }));
        }
        _ => return None,
    };
    let event = Event {
        at,
        node: match raw.node & SWITCH {
            0 => Node::Host(raw.node),
            _ => Node::Switch(raw.node & !SWITCH),
        },
        port: (raw.port != u16::MAX).then_some(PortId(raw.port)),
        kind,
        depth,
        connection: raw.connection,
        reply: raw.reply != 0,
        bytes: raw.length,
    };
    Some(EventRecord::Packet(event, raw.tag))
}

fn series(bytes: &[u8]) -> Option<Vec<Series>> {
    let mut from = Reader(bytes);
    let mut series = Vec::new();
    while !from.is_empty() {
        let raw: RawSeries = from.get()?;
        series.push(Series {
            at: Time(raw.at),
            connection: raw.connection,
            info: from.bytes(raw.length as usize)?.into(),
        });
    }
    Some(series)
}

fn hosts(topology: &Topology, summary: &Summary) -> Vec<HostRecord> {
    let hosts = topology.hosts().iter().zip(&summary.hosts).enumerate();
    let record = |(number, (host, &(packets, bytes)))| {
        let host: &slowpath_netsim::topology::Host = host;
        HostRecord {
            host: HostId(number as u32),
            rate: host.port.options.rate,
            packets,
            bytes,
        }
    };
    hosts.map(record).collect()
}

type Ports = BTreeMap<(SwitchId, PortId), PortRecord>;

/// What each port sent; drops, marks and detours are counted event by event.
fn ports(scenario: &Scenario, summary: &Summary) -> Ports {
    let topology = &scenario.topology;
    let mut ports = BTreeMap::new();
    for (switch, node) in topology.switches().iter().enumerate() {
        let id = SwitchId(switch as u32);
        for (number, port) in node.ports.iter().enumerate() {
            let (packets, bytes) = summary.lines[line(topology, Node::Switch(id.0), number, port)];
            let counters = Counters {
                enqueued: packets,
                enqueued_bytes: bytes,
                dequeued: packets,
                dequeued_bytes: bytes,
                ..Counters::default()
            };
            let record = PortRecord {
                switch: id,
                port: PortId(number as u16),
                rate: port.options.rate,
                counters,
                most_packets: None,
            };
            ports.insert((id, record.port), record);
        }
    }
    ports
}

/// The line that begins at a port: twice its link, and one more if it is the second end.
fn line(topology: &Topology, node: Node, number: usize, port: &Port) -> usize {
    let link = port.link as usize;
    let second = topology.links()[link].ends[1] == (node, number as u16);
    2 * link + usize::from(second)
}

/// A power of two, so that there are not too many.
fn stretch(until: Time) -> Span {
    Span((until.0 / STRETCHES).max(1).next_power_of_two())
}

/// Which ports packets go to: a packet that found no room is counted at the port that had
/// none, not at the one it came in by.
struct Ways(Vec<Option<Switch<Header>>>);

impl Ways {
    fn new(plan: &Plan) -> Self {
        let network = plan.network();
        let switches = network.switches.iter();
        // The kernel has made the same switches and routes.
        let mut switches: Vec<_> = switches.map(|config| Switch::new(config).ok()).collect();
        for route in &network.routes {
            if let Some(Some(switch)) = switches.get_mut(route.switch as usize) {
                let _ = switch.set_route(route.destination, &route.ports);
            }
        }
        Ways(switches)
    }

    fn port(&self, plan: &Plan, event: &Event) -> Option<(SwitchId, PortId)> {
        let Node::Switch(number) = event.node else {
            return None;
        };
        let id = SwitchId(number);
        if event.kind != EventKind::Dropped(DropReason::BufferFull as u8) {
            return Some((id, event.port?));
        }
        let connection = plan.connections.get(event.connection as usize)?;
        let (to, key) = match event.reply {
            false => (connection.to, connection.key),
            true => (connection.from, connection.key.wrapping_add(1)),
        };
        let switch = self.0.get(number as usize)?.as_ref()?;
        Some((id, switch.next_port(Destination(to), u64::from(key))?))
    }
}

/// Counts all events and keeps the samples of queues; gives the events of packets.
fn count_all(
    plan: &Plan,
    reported: Vec<EventRecord>,
    results: &mut Results,
    ports: &mut Ports,
) -> Vec<Event> {
    let ways = Ways::new(plan);
    let mut of_packets = Vec::new();
    for event in reported {
        match event {
            EventRecord::Queue(sample) => results.queues.push(sample),
            EventRecord::Packet(event, label) => {
                let port = ways.port(plan, &event);
                count(&event, label, port, results, ports);
                of_packets.push(event);
            }
        }
    }
    of_packets
}

fn count(
    event: &Event,
    label: u8,
    port: Option<(SwitchId, PortId)>,
    results: &mut Results,
    ports: &mut Ports,
) {
    let label = usize::from(label) % LABELS;
    let record: &mut LabelRecord = &mut results.labels[label];
    let at = event.at.max(0) as u64 / results.stretch.0;
    let at = at.min(2 * STRETCHES) as usize;
    if results.stretches.len() <= at {
        results.stretches.resize(at + 1, StretchRecord::default());
    }
    let stretch = &mut results.stretches[at];
    let mut unknown = Counters::default();
    let port = port.and_then(|port| ports.get_mut(&port));
    let counters = port.map_or(&mut unknown, |port| &mut port.counters);
    match event.kind {
        EventKind::Dropped(cause) => {
            // Causes of links have no place among the reasons of switches.
            let reason = usize::from(cause);
            if reason <= DropReason::NoRoute as usize {
                record.dropped[reason] += 1;
            }
            stretch.dropped[label] += 1;
            counters.dropped += 1;
            counters.dropped_bytes += u64::from(event.bytes);
        }
        EventKind::Marked => {
            record.marked += 1;
            stretch.marked[label] += 1;
            counters.marked += 1;
        }
        EventKind::Detoured(_) => {
            record.detours += 1;
            stretch.detours[label] += 1;
            counters.detoured += 1;
        }
    }
}
