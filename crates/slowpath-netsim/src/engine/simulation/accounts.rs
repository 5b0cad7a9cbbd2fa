// SPDX-License-Identifier: Apache-2.0
//! What is counted, during the run and at its end.

use super::Simulation;
use crate::engine::network::{HostId, SwitchId};
use crate::engine::settings::{QueueSeries, SimulationError};
use crate::results::{
    Conservation, HostRecord, LineSample, PortRecord, QueueSample, Results, WindowSample,
};
use crate::topology::Node;
use slowpath_switch::{FlowletCounts, Packet, PortId, Span};

impl Simulation {
    pub(super) fn sample<const WATCH: bool>(&mut self) {
        let QueueSeries::Sampled { ports, .. } = &self.settings.queues else {
            return;
        };
        for (switch, port) in ports.clone() {
            self.start_due::<WATCH>(switch.0, port);
            let depth = self.nodes[switch.0 as usize].switch.depth(port);
            self.records.sample(QueueSample {
                at: self.now,
                switch,
                port,
                packets: depth.packets,
                bytes: depth.bytes,
            });
        }
    }

    /// The congestion windows of connections that have something to do.
    pub(super) fn record_windows(&mut self) {
        let labels = self.settings.windows_of.as_deref();
        let most = self.records.max_queues;
        for connection in self.connections.places.iter().filter(|c| c.open) {
            if labels.is_some_and(|labels| !labels.contains(&connection.label)) {
                continue;
            }
            let Some(message) = connection.messages.front() else {
                continue;
            };
            if self.records.windows.len() >= most {
                self.records.queues_lost += 1;
                continue;
            }
            self.records.windows.push(WindowSample {
                at: self.now,
                flow: message.record.id,
                segments: connection.sender.congestion().window,
                arrived: connection.arrived_of(message),
            });
        }
    }

    /// What links carried until now.
    pub(super) fn record_lines(&mut self) {
        for line in &self.settings.lines {
            let link = self.network.topology.links().get(*line as usize / 2);
            let Some((from, port)) = link.map(|link| link.ends[*line as usize % 2]) else {
                continue;
            };
            let (packets, bytes) = match from {
                Node::Host(host) => {
                    let interface = &self.interfaces[host as usize];
                    (interface.sent_packets, interface.sent_bytes)
                }
                Node::Switch(switch) => {
                    let counters = self.nodes[switch as usize].switch.counters(PortId(port));
                    (counters.dequeued, counters.dequeued_bytes)
                }
            };
            if self.records.lines.len() >= self.records.max_queues {
                self.records.queues_lost += 1;
                continue;
            }
            self.records.lines.push(LineSample {
                at: self.now,
                line: *line,
                packets,
                bytes,
            });
        }
    }

    /// Counts everything at the end.
    pub(super) fn finish(mut self) -> Result<Results, SimulationError> {
        let mut in_network = 0;
        let mut unarrived = 0;
        for link in &self.links {
            for flying in link.flying.iter(&self.overflow) {
                in_network += 1;
                unarrived += u64::from(self.settings.ttl - flying.hop.ttl());
            }
        }
        for node in &self.nodes {
            for port in 0..node.switch.ports() {
                for class in 0..slowpath_switch::MAX_CLASSES {
                    for hop in node.switch.queued(PortId(port as u16), class) {
                        in_network += 1;
                        unarrived += u64::from(self.settings.ttl - hop.ttl());
                    }
                }
            }
        }
        let mut counts = Vec::new();
        if let Some(lines) = &self.features.lines {
            for hop in lines.delayed() {
                in_network += 1;
                unarrived += u64::from(self.settings.ttl - hop.ttl()) + 1;
            }
            counts.extend(lines.counts());
        }
        let waiting: usize = self.interfaces.iter().map(|i| i.packets.len()).sum();
        let routers = self.nodes.iter().all(|node| node.decrements);
        let mut conservation = Conservation {
            in_network,
            ..self.counts
        };
        conservation.path_lengths = if routers {
            conservation.path_lengths + unarrived
        } else {
            conservation.hops + conservation.copied_hops
        };
        if !conservation.holds() || self.bodies.live() != in_network + waiting as u64 {
            return Err(SimulationError::Conservation(conservation));
        }
        for connection in self.connections.places.iter_mut().filter(|c| c.open) {
            while let Some(record) = connection.take_unfinished() {
                self.flows.push(record);
            }
        }
        self.flows.sort_by_key(|flow| flow.id);
        let ports = self.port_records();
        let flowlets = self.flowlets();
        let pauses = self.pauses();
        let hosts = self.interfaces.iter().enumerate();
        let hosts = hosts.map(|(number, interface)| HostRecord {
            host: HostId(number as u32),
            rate: interface.line.rate(),
            packets: interface.sent_packets,
            bytes: interface.sent_bytes,
        });
        Ok(Results {
            hosts: hosts.collect(),
            ports,
            flowlets,
            pauses,
            flows: self.flows,
            queries: self.queries.into_records(),
            stretches: self.records.stretches,
            stretch: Span(1 << self.records.stretch_shift),
            queues: self.records.queues,
            windows: self.records.windows,
            lines: self.records.lines,
            impairments: counts,
            queue_samples_lost: self.records.queues_lost,
            labels: self.records.labels,
            packets: self.records.packets.map(|log| log.log),
            conservation,
            end: self.now,
            events: self.events,
            most_packets: self.bodies.most(),
            most_connections: self.connections.most(),
        })
    }

    /// What switches made of flows, where they divide them.
    fn flowlets(&self) -> Vec<(SwitchId, FlowletCounts)> {
        let nodes = (0..).map(SwitchId).zip(&self.nodes);
        nodes
            .filter_map(|(id, node)| Some((id, node.switch.flowlets()?)))
            .collect()
    }

    pub(super) fn port_records(&self) -> Vec<PortRecord> {
        let mut records = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for (port, config) in self.network.switches[number].ports.iter().enumerate() {
                let id = PortId(port as u16);
                let link = node.first_link as usize + port;
                records.push(PortRecord {
                    switch: SwitchId(number as u32),
                    port: id,
                    rate: config.rate,
                    counters: node.switch.counters(id),
                    most_packets: self.records.watched[link].then_some(self.records.most[link]),
                });
            }
        }
        records
    }
}
