// SPDX-License-Identifier: Apache-2.0
//! The kernel's own account of a host, for who looks into a disagreement. No truth comes from
//! it.

use slowpath_lab::emulator::Host;
use std::collections::BTreeMap;

/// Counters of `/proc/net/netstat` that are worth a look.
const WORTH: &[&str] = &[
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPSackRecovery",
    "TCPSACKReorder",
    "TCPTSReorder",
    "TCPFullUndo",
    "TCPPartialUndo",
    "TCPDSACKUndo",
    "TCPDSACKRecv",
    "TCPSpuriousRTOs",
    "TCPLossUndo",
    "TCPFromZeroWindowAdv",
    "TCPToZeroWindowAdv",
    "DelayedACKs",
    "ListenOverflows",
    "ListenDrops",
    "TCPReqQFullDrop",
    "TCPReqQFullDoCookies",
];

/// Those of them that are not zero.
pub(crate) fn read(host: &Host) -> BTreeMap<String, u64> {
    // Not /proc/net: that is the namespace of the process's first thread.
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat");
    let text = host.run(read).and_then(|text| text).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|two| {
        let values = two[1].split_ascii_whitespace();
        two[0].split_ascii_whitespace().zip(values)
    });
    let counted = pairs.filter_map(|(name, value)| Some((name, value.parse().ok()?)));
    counted
        .filter(|(name, value)| WORTH.contains(name) && *value > 0)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
