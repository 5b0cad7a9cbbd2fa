// SPDX-License-Identifier: Apache-2.0
//! The kernel's TCP counters of a namespace: an account that owes nothing to slowpath.

use crate::{Namespace, TestbedError};
use std::collections::BTreeMap;
use std::fs;

/// `/proc/net/snmp` and `/proc/net/netstat` of one namespace, summed over all its
/// connections since the namespace was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, i64>);

impl Counters {
    pub(crate) fn read(namespace: &Namespace) -> Result<Self, TestbedError> {
        // Not /proc/net: that is the namespace of the process's first thread.
        let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let (snmp, netstat) = namespace.run(|| (read("snmp"), read("netstat")))?;
        let mut counters = Counters::default();
        for text in [snmp, netstat] {
            let text = text.map_err(TestbedError::io("read counters of", namespace.name()))?;
            counters.parse(&text);
        }
        Ok(counters)
    }

    fn parse(&mut self, text: &str) {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let Some((group, names)) = names.split_once(':') else {
                continue;
            };
            let values = values.split_whitespace().skip(1);
            for (name, value) in names.split_whitespace().zip(values) {
                if let Ok(value) = value.parse() {
                    self.0.insert(format!("{group}.{name}"), value);
                }
            }
        }
    }

    /// One counter by its name with its group, for example `Tcp.RetransSegs` or
    /// `TcpExt.TCPSackRecovery`; `None` if this kernel has none of that name.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn names_and_values_come_in_pairs_of_lines() {
        let mut counters = Counters::default();
        counters.parse("Tcp: MaxConn RetransSegs\nTcp: -1 7\nUdp: InErrors\nUdp: 3\n");
        assert_eq!(counters.get("Tcp.MaxConn"), Some(-1));
        assert_eq!(counters.get("Tcp.RetransSegs"), Some(7));
        assert_eq!(counters.get("Udp.InErrors"), Some(3));
        assert_eq!(counters.get("Udp.Other"), None);
    }
}
