// SPDX-License-Identifier: Apache-2.0
//! What can run a scenario, and which keys each of them cannot do.

use super::error::{Problem, ScenarioError};
use super::section::line_of;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// What runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substrate {
    /// This crate's simulator.
    Simulator,
    /// The emulator: namespaces of this machine's kernel, in real time.
    Emulator,
    /// The emulator, for whoever wants a file's network only and leaves all else aside:
    /// who sends what, for how long, and by which TCP.
    Network,
    /// Linux's TCP in virtual time.
    VirtualTime,
    /// A guest kernel.
    Guest,
}

impl fmt::Display for Substrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Substrate::Simulator => "the simulator",
            Substrate::Emulator | Substrate::Network => "the emulator",
            Substrate::VirtualTime => "virtual time",
            Substrate::Guest => "the guest",
        })
    }
}

/// Hosts are no kernels there.
const SIMULATOR: &[&str] = &[
    "host.queue",
    "host.sysctls",
    "host.group",
    "tcp.receiver-rto-min",
    "workload[].tcp.receiver-rto-min",
    "tcp.reading",
    "workload[].tcp.reading",
    "line[].mtu",
    "line[].mtu-icmp",
    "line[].police",
    "line[].ecn",
    "line[].dscp",
    "router",
];

/// The TCP is this machine's, and traffic is what people run in the hosts.
const EMULATOR: &[&str] = &[
    "workload",
    "tcp",
    "measure",
    "drain",
    "switch.count-flows",
    "switch.ecmp=flowlet",
    "switch.ecmp.kind=flowlet",
    "switch.pfc",
    "switch.aqm",
    "topology.links.aqm",
    "topology.fabric-links.aqm",
    "topology.link[].aqm",
];

/// What is left if a file's other keys are meant for others.
const NETWORK: &[&str] = &[
    "switch.count-flows",
    "switch.ecmp=flowlet",
    "switch.ecmp.kind=flowlet",
    "switch.pfc",
    "switch.aqm",
    "topology.links.aqm",
    "topology.fabric-links.aqm",
    "topology.link[].aqm",
];

/// The TCP is Linux's: what Linux has no knob for cannot be. Values that Linux cannot have
/// are refused by `slowpath_lab::virtual_time`, which knows the kernel.
const VIRTUAL_TIME: &[&str] = &[
    "tcp.preset=rfc-newreno",
    "workload[].tcp.preset=rfc-newreno",
    "tcp.algorithm=fixed",
    "workload[].tcp.algorithm=fixed",
    "tcp.loss-detection=timeout-only",
    "workload[].tcp.loss-detection=timeout-only",
    "tcp.rto-estimator=rfc6298",
    "workload[].tcp.rto-estimator=rfc6298",
    "tcp.slow-start-limit",
    "workload[].tcp.slow-start-limit",
    "workload[].datagram",
    "measure.flows",
    "measure.links",
    "switch.ecmp=flowlet",
    "switch.ecmp.kind=flowlet",
    "switch.pfc",
    "switch.aqm",
    "topology.links.aqm",
    "topology.fabric-links.aqm",
    "topology.link[].aqm",
    "host.sysctls",
    "host.group",
    "line[].mtu",
    "line[].mtu-icmp",
    "line[].police",
    "line[].ecn",
    "line[].dscp",
    "router",
];

impl Substrate {
    /// The keys that it cannot do, with all that is below them; with a `=`, only that value.
    /// `[]` stands for any member of an array.
    pub const fn refused(self) -> &'static [&'static str] {
        match self {
            Substrate::Simulator => SIMULATOR,
            Substrate::Emulator | Substrate::Guest => EMULATOR,
            Substrate::Network => NETWORK,
            Substrate::VirtualTime => VIRTUAL_TIME,
        }
    }

    /// Whether someone else makes the traffic, so that a scenario needs none of its own and
    /// no end.
    pub(super) fn is_only_network(self) -> bool {
        matches!(
            self,
            Substrate::Emulator | Substrate::Network | Substrate::Guest
        )
    }

    /// # Errors
    /// The first key of the file that it cannot do.
    pub(super) fn check(self, text: &str, table: &DeTable<'_>) -> Result<(), ScenarioError> {
        let mut found = None;
        let mut search = Search {
            refused: self.refused(),
            found: &mut found,
        };
        search.table(table, "", "");
        match found {
            None => Ok(()),
            Some((at, key)) => Err(ScenarioError {
                line: line_of(text, at),
                key,
                problem: Problem::Substrate(self),
            }),
        }
    }
}

/// The first refused key, by its place.
struct Search<'a> {
    refused: &'static [&'static str],
    found: &'a mut Option<(usize, String)>,
}

impl Search<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &str, pattern: &str) {
        for (key, value) in table {
            let name: &str = key.get_ref();
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{name}");
            let pattern = format!("{pattern}{dot}{name}");
            let at = key.span().start;
            self.value(value.get_ref(), at, &path, &pattern);
        }
    }

    fn value(&mut self, value: &DeValue<'_>, at: usize, path: &str, pattern: &str) {
        let refused = |refused: &&&str| match refused.split_once('=') {
            None => **refused == pattern,
            Some((key, given)) => key == pattern && value.as_str() == Some(given),
        };
        if self.refused.iter().any(|key| refused(&key)) {
            if self.found.as_ref().is_none_or(|(first, _)| at < *first) {
                *self.found = Some((at, path.to_owned()));
            }
            return;
        }
        match value {
            DeValue::Table(table) => self.table(table, path, pattern),
            DeValue::Array(array) => {
                for (number, member) in array.iter().enumerate() {
                    let path = format!("{path}[{number}]");
                    let pattern = format!("{pattern}[]");
                    self.value(member.get_ref(), member.span().start, &path, &pattern);
                }
            }
            _ => {}
        }
    }
}
