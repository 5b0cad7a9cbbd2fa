// SPDX-License-Identifier: Apache-2.0
//! What switches did beyond queueing: flowlets.

use serde::Serialize;
use slowpath_netsim::engine::SwitchId;
use slowpath_netsim::results::Results;
use slowpath_netsim::topology::{Node, Topology};
use slowpath_switch::FlowletCounts;

/// What a switch made of flows that it divides into flowlets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowletSummary {
    /// Its name.
    pub switch: String,
    /// Flowlets that began where several ports lead to the destination, the first of each flow included.
    pub flowlets: u64,
    /// Those that took another port than the flowlet before them.
    pub path_changes: u64,
}

pub(crate) fn flowlets(topology: &Topology, results: &Results) -> Vec<FlowletSummary> {
    let of_switch = |(switch, counts): &(SwitchId, FlowletCounts)| FlowletSummary {
        switch: topology.name(Node::Switch(switch.0)).to_owned(),
        flowlets: counts.flowlets,
        path_changes: counts.path_changes,
    };
    results.flowlets.iter().map(of_switch).collect()
}
