// SPDX-License-Identifier: Apache-2.0
//! Replayed queues as Parquet files: `docs/reference/queues.md` describes them.

use super::Answer;
use slowpath_netsim::topology::Node;
use slowpath_netsim_report::table::{Columns, Metadata, Table, TableError, Value};
use slowpath_queues::findings::threshold;
use slowpath_trace::segment::Endpoint;
use std::net::SocketAddr;
use std::path::Path;

/// Columns of `queues.parquet`: a row for each change.
const QUEUES: Columns = &[
    ("time_ps", true),
    ("switch", false),
    ("neighbour", false),
    ("packets", true),
    ("bytes", true),
    ("switch_bytes", true),
    ("threshold_bytes", true),
];
/// Columns of `drops.parquet`.
const DROPS: Columns = &[
    ("time_ps", true),
    ("switch", false),
    ("neighbour", false),
    ("source", false),
    ("destination", false),
    ("packet_bytes", true),
    ("queue_bytes", true),
    ("switch_bytes", true),
    ("threshold_bytes", true),
];

/// Writes both into a directory, which is created if it does not exist.
///
/// # Errors
/// The first table that cannot be written.
pub fn write(directory: &Path, metadata: Metadata<'_>, answer: &Answer) -> Result<(), TableError> {
    slowpath_files::create_folder(directory).map_err(|error| TableError::Create {
        path: directory.to_owned(),
        error,
    })?;
    let topology = &answer.scenario.topology;
    let network = answer.scenario.network();
    // By the number of the queue.
    let mut ports = Vec::new();
    for (number, switch) in (0..).zip(topology.switches()) {
        let shared = network.switches[number as usize].shared;
        for port in &switch.ports {
            let names = (
                topology.name(Node::Switch(number)),
                topology.name(port.peer),
            );
            ports.push((names, shared));
        }
    }
    let limit = |shared: &Option<_>, used| match shared.and_then(|shared| threshold(shared, used)) {
        Some(bytes) => Value::Int(bytes),
        None => Value::Null,
    };
    Table::create(directory, "queues", QUEUES, metadata, |table| {
        for level in &answer.replayed.levels {
            let ((switch, neighbour), shared) = &ports[level.queue as usize];
            table.row([
                Value::Int(level.at.0),
                Value::Text(switch),
                Value::Text(neighbour),
                Value::Int(level.packets.into()),
                Value::Int(level.bytes),
                Value::Int(level.used),
                limit(shared, level.used),
            ])?;
        }
        Ok(())
    })?;
    Table::create(directory, "drops", DROPS, metadata, |table| {
        for (drop, found) in answer.replayed.dropped.iter().zip(&answer.replayed.found) {
            let ((switch, neighbour), shared) = &ports[found.queue as usize];
            let sent = &answer.captures.sent[drop.packet as usize];
            let text = |end: Endpoint| SocketAddr::from((end.address, end.port)).to_string();
            let ends = [sent.from, sent.to].map(text);
            table.row([
                Value::Int(drop.at.0),
                Value::Text(switch),
                Value::Text(neighbour),
                Value::Text(&ends[0]),
                Value::Text(&ends[1]),
                Value::Int(sent.bytes.into()),
                Value::Int(found.bytes),
                Value::Int(found.used),
                limit(shared, found.used),
            ])?;
        }
        Ok(())
    })
}
