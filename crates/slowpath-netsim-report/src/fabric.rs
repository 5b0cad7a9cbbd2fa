// SPDX-License-Identifier: Apache-2.0
//! What switches did beyond queueing: flowlets, pauses.

use super::distribution::micros;
use serde::Serialize;
use slowpath_netsim::engine::SwitchId;
use slowpath_netsim::results::{HostRecord, PortRecord, Results};
use slowpath_netsim::topology::{Node, Topology};
use slowpath_switch::{FlowletCounts, PortId};

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

/// What switches did beside forwarding; nothing where they do nothing else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FabricSummary {
    /// What switches made of flows, where they divide them into flowlets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flowlets: Vec<FlowletSummary>,
    /// What priority flow control did; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_control: Option<FlowControlSummary>,
}

impl FabricSummary {
    pub(crate) fn new(topology: &Topology, results: &Results) -> Self {
        FabricSummary {
            flowlets: flowlets(topology, results),
            flow_control: flow_control(topology, results),
        }
    }
}

fn flowlets(topology: &Topology, results: &Results) -> Vec<FlowletSummary> {
    let of_switch = |(switch, counts): &(SwitchId, FlowletCounts)| FlowletSummary {
        switch: topology.name(Node::Switch(switch.0)).to_owned(),
        flowlets: counts.flowlets,
        path_changes: counts.path_changes,
    };
    results.flowlets.iter().map(of_switch).collect()
}

/// What priority flow control did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowControlSummary {
    /// Pauses that switches sent.
    pub pauses: u64,
    /// Packets that came to a switch and were dropped, as their input's buffer and headroom were full.
    pub overruns: u64,
    /// Ports, of hosts too, at which any of it happened.
    pub ports: Vec<PauseSummary>,
    /// Ports that wait for each other for good; `None`: there are none.
    pub deadlock: Option<DeadlockSummary>,
}

/// What flow control did at a port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseSummary {
    /// Whose port.
    pub node: String,
    /// What is at the end of its link.
    pub neighbour: String,
    /// Pauses that it sent there.
    pub pauses_sent: u64,
    /// Pauses that it received from there.
    pub pauses_received: u64,
    /// For how long it was to send nothing, of one class or more.
    pub paused_us: f64,
    /// Packets that came in here and were dropped, as buffer and headroom were full.
    pub overruns: u64,
}

/// Ports that wait for each other for good.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadlockSummary {
    /// Since when.
    pub since_us: f64,
    /// The circle, as `SWITCH -> NEIGHBOUR`: each waits for the next one, the last for the first.
    pub circle: Vec<String>,
    /// Ports that wait for good: the circle, and those that wait for it.
    pub ports: usize,
}

/// What is at the end of a port's link.
fn peer(topology: &Topology, switch: SwitchId, port: PortId) -> Node {
    topology.switches()[switch.0 as usize].ports[usize::from(port.0)].peer
}

fn flow_control(topology: &Topology, results: &Results) -> Option<FlowControlSummary> {
    let record = results.pauses.as_ref()?;
    let name = |node| topology.name(node).to_owned();
    let of_host = |host: &HostRecord| {
        let number = host.host.0;
        (
            Node::Host(number),
            topology.hosts()[number as usize].port.peer,
        )
    };
    let of_port = |port: &PortRecord| {
        (
            Node::Switch(port.switch.0),
            peer(topology, port.switch, port.port),
        )
    };
    let hosts = results.hosts.iter().map(of_host).zip(&record.hosts);
    let ports = results.ports.iter().map(of_port).zip(&record.ports);
    let ports = hosts.chain(ports).filter_map(|((from, to), counts)| {
        let any = counts.sent + counts.received + counts.overruns > 0;
        any.then(|| PauseSummary {
            node: name(from),
            neighbour: name(to),
            pauses_sent: counts.sent,
            pauses_received: counts.received,
            paused_us: micros(counts.paused.0),
            overruns: counts.overruns,
        })
    });
    let ports: Vec<PauseSummary> = ports.collect();
    let deadlock = record.deadlock.as_ref().map(|deadlock| {
        let circle = deadlock.circle.iter().map(|(switch, port)| {
            let to = peer(topology, *switch, *port);
            format!("{} -> {}", name(Node::Switch(switch.0)), name(to))
        });
        DeadlockSummary {
            since_us: micros(deadlock.since.0),
            circle: circle.collect(),
            ports: deadlock.ports,
        }
    });
    Some(FlowControlSummary {
        pauses: ports.iter().map(|port| port.pauses_sent).sum(),
        overruns: ports.iter().map(|port| port.overruns).sum(),
        ports,
        deadlock,
    })
}

#[cfg(test)]
mod tests {
    use crate::Report;
    use serde_json::{Value, json};
    use slowpath_netsim::engine::Simulation;
    use slowpath_netsim::scenario::Scenario;
    use slowpath_text::Paint;

    /// The summary as JSON, and as text.
    fn reported(text: &str) -> (Value, String) {
        let none = |_: &str| unreachable!("it names no file");
        let scenario = Scenario::parse(text, &none).unwrap();
        let simulation = Simulation::new(&scenario.network(), scenario.settings()).unwrap();
        let results = simulation.run(scenario.flows(), |_| ()).unwrap();
        let report = Report::new("ring.toml", &scenario, &results);
        let mut out = Vec::new();
        report.write(Paint::OFF, &mut out).unwrap();
        (report.json("sim").unwrap(), String::from_utf8(out).unwrap())
    }

    /// Three switches in a ring; what each host sends to the one behind it goes round.
    const RING: &str = r#"
duration = "1 ms"
drain = "9 ms"
[topology]
kind = "custom"
hosts = ["h0", "h1", "h2"]
switches = ["s0", "s1", "s2"]
links = { rate = "10 Gbit/s", delay = "1 us" }
link = [
    { ends = ["s0", "s1"] }, { ends = ["s1", "s2"] }, { ends = ["s2", "s0"] },
    { ends = ["h0", "s0"] }, { ends = ["h1", "s1"] }, { ends = ["h2", "s2"] },
]
[switch]
pfc = true
[[route]]
on = "s0"
to = ["h2"]
via = ["s1"]
[[route]]
on = "s1"
to = ["h0"]
via = ["s2"]
[[route]]
on = "s2"
to = ["h1"]
via = ["s0"]
[[workload]]
kind = "bulk"
from = ["h0"]
to = ["h2"]
bytes = "2 MB"
datagram = "1500 B"
[[workload]]
kind = "bulk"
from = ["h1"]
to = ["h0"]
bytes = "2 MB"
datagram = "1500 B"
[[workload]]
kind = "bulk"
from = ["h2"]
to = ["h1"]
bytes = "2 MB"
datagram = "1500 B"
"#;

    #[test]
    fn a_deadlock_is_in_text_and_json_with_its_ports() {
        let (json, text) = reported(RING);
        let control = &json["flow_control"];
        let mut circle: Vec<&str> = control["deadlock"]["circle"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        circle.sort_unstable();
        assert_eq!(circle, ["s0 -> s1", "s1 -> s2", "s2 -> s0"]);
        assert_eq!(control["deadlock"]["ports"], json!(3));
        let since = control["deadlock"]["since_us"].as_f64().unwrap();
        assert!(since > 0.0 && since < 10_000.0);
        // Three ports of switches and three hosts are paused, each by the other end of its link.
        let ports = control["ports"].as_array().unwrap();
        let sum = |key: &str| -> u64 { ports.iter().filter_map(|it| it[key].as_u64()).sum() };
        assert_eq!(sum("pauses_sent"), control["pauses"].as_u64().unwrap());
        assert_eq!(sum("pauses_received"), sum("pauses_sent"));
        assert_eq!(control["overruns"], json!(0));
        let host = ports.iter().find(|it| it["node"] == "h0").unwrap();
        assert_eq!(host["neighbour"], "s0");
        // It is until the end, which is when nothing moves any more.
        let paused = host["paused_us"].as_f64().unwrap();
        let end = json["simulated_us"].as_f64().unwrap();
        assert!(paused > 0.0 && paused < end && since < end && end < 10_000.0);
        let says = "3 ports wait for each other in a circle: s";
        assert!(text.contains(says), "{text}");
        assert!(
            text.contains("3 ports in all will never send again"),
            "{text}"
        );
        assert!(text.contains("pauses by port"), "{text}");
    }

    #[test]
    fn without_flow_control_and_flowlets_nothing_says_so() {
        let (before, _) = RING.split_once("[[route]]").unwrap();
        let (_, workload) = RING.split_once("[[workload]]").unwrap();
        let plain = before.replace("pfc = true", "buffer = \"1 MB\"");
        let (json, text) = reported(&format!("{plain}[[workload]]{workload}"));
        assert!(json.get("flow_control").is_none() && json.get("flowlets").is_none());
        assert!(
            !text.contains("pauses") && !text.contains("flowlets"),
            "{text}"
        );
        // By the shortest ways nothing waits in a circle.
        let (json, text) = reported(&format!("{before}[[workload]]{workload}"));
        assert_eq!(json["flow_control"]["deadlock"], Value::Null);
        assert!(!text.contains("deadlock"), "{text}");
    }

    /// Two spines: each of two transfers begins one flowlet at its sender's leaf, and its
    /// acknowledgments one at its receiver's; the spines have no choice.
    #[test]
    fn flowlets_are_in_text_and_json_by_switch() {
        let text = r#"
duration = "5 ms"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts-per-leaf = 2
links = { rate = "1 Gbit/s", delay = "1 us" }
[switch]
buffer = "1 MB"
ecmp = { kind = "flowlet", gap = "1 s" }
[[workload]]
kind = "bulk"
from = ["host-0-*"]
to = ["host-1-*"]
"#;
        let (json, text) = reported(text);
        let of =
            |switch, flowlets| json!({ "switch": switch, "flowlets": flowlets, "path_changes": 0 });
        let all = [
            of("spine-0", 0),
            of("spine-1", 0),
            of("leaf-0", 2),
            of("leaf-1", 2),
        ];
        assert_eq!(json["flowlets"], json!(all));
        assert!(text.contains("flowlets by switch"), "{text}");
    }
}
