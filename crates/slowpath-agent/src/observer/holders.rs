// SPDX-License-Identifier: Apache-2.0
//! Who holds which socket, read from the kernel in either tier.

use super::{Observer, PollError};
use crate::machine::{descriptors, process};
use crate::owners::assign::{HolderScan, Reasons};
use rustc_hash::FxHashMap;
use slowpath_model::Tier;
use slowpath_observe::exhausted;

impl Observer {
    /// Scans all descriptors.
    pub(crate) fn scan_holders(&mut self) -> Result<HolderScan, PollError> {
        let mut scan = HolderScan::default();
        match self {
            Observer::Bpf(tier) => {
                scan.supported =
                    tier.holders(|held| scan.add(held.cookie, held.listens, held.process))?;
            }
            Observer::InetDiag {
                inodes, listening, ..
            } => {
                let connections = inodes.iter().map(|(c, inode)| (*inode, (*c, false)));
                let listeners = listening.iter().map(|(c, inode)| (*inode, (*c, true)));
                // A socket without a file has none: 0.
                let wanted: FxHashMap<u32, (u64, bool)> =
                    connections.chain(listeners).filter(|w| w.0 != 0).collect();
                let found = descriptors::scan(&wanted).map_err(PollError::Processes)?;
                scan.supported = true;
                scan.restricted = found.restricted;
                scan.exhausted = found.exhausted.map(|errno| {
                    exhausted(errno.raw_os_error()).unwrap_or_else(|| errno.to_string())
                });
                for (inode, holder) in found.held {
                    if let Some((cookie, listens)) = wanted.get(&inode) {
                        scan.add(*cookie, *listens, holder);
                    }
                }
                let vanished = found.vanished.iter().filter_map(|i| wanted.get(i));
                scan.vanished = vanished.map(|(cookie, _)| *cookie).collect();
                let without_file = inodes.iter().filter(|(_, inode)| **inode == 0);
                scan.without_file = without_file.map(|(cookie, _)| *cookie).collect();
            }
        }
        Ok(scan)
    }

    /// Why sockets have no holder.
    pub(crate) fn why_unheld(&mut self) -> Result<Reasons, PollError> {
        let tier = match self {
            Observer::Bpf(_) => Tier::Bpf,
            Observer::InetDiag { .. } => Tier::InetDiag,
        };
        let mut reasons = Reasons {
            all_processes: process::sees_all_processes(tier),
            ..Reasons::default()
        };
        if let Observer::Bpf(tier) = self {
            tier.unheld(|cookie, why| {
                reasons.unheld.insert(cookie, why);
            })?;
            reasons.in_flight = tier.in_flight().into_iter().collect();
        }
        Ok(reasons)
    }
}
