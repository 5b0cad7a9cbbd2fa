// SPDX-License-Identifier: Apache-2.0
//! What is known of each host: for the operator, and for the roll of CAs.

use crate::clock::DAY_US;
use crate::state::{self, StateError};
use serde::{Deserialize, Serialize};
use slowpath_model::WallMicros;
use slowpath_ship::answers::RefusalKind;
use slowpath_ship::batch::{Batch, ClockOffset, Content};
use slowpath_ship::identity::HostName;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The most clones, and segments in conflict, that are kept of a host.
const KEPT: usize = 16;
/// A host that was there within this time must have the next CA before that signs.
const RECENT_US: i64 = 7 * DAY_US;

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRecord {
    /// When its certificate expires, microseconds since 1970.
    pub certificate_expires_us: i64,
    /// The hash of the CA certificates that it fetched.
    pub bundle: Option<String>,
    /// Its address when a batch came last.
    pub address: Option<IpAddr>,
    /// The boot id of the agent whose batch came last, in hexadecimal.
    pub boot_id: String,
    /// When a batch of it was flushed last, microseconds since 1970; 0: never.
    pub flushed_us: i64,
    /// Batches that were flushed.
    pub batches: u64,
    /// Bytes that its agent has lost.
    pub gap_bytes: u64,
    /// How far its clock is behind the server's.
    pub clock: Option<ClockOffset>,
    /// The name in its spools, if it is another.
    pub spool_host: Option<String>,
    /// The last batch that was refused.
    pub refused: Option<LastRefusal>,
    /// Segments of which the server has other bytes.
    pub conflicts: Vec<String>,
    /// Processes that ship under its identity and came later.
    pub clones: Vec<CloneRecord>,
}

/// When and why a batch was refused last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastRefusal {
    /// Microseconds since 1970.
    pub at_us: i64,
    /// Why.
    pub error: RefusalKind,
}

/// A process that ships under the identity of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloneRecord {
    /// Its run, in hexadecimal.
    pub run: String,
    /// Its boot id, in hexadecimal.
    pub boot_id: String,
    /// Its address.
    pub address: IpAddr,
    /// When it was refused last, microseconds since 1970.
    pub last_us: i64,
}

/// All hosts, by their names.
#[derive(Debug)]
pub struct Hosts {
    path: PathBuf,
    records: BTreeMap<String, HostRecord>,
    is_changed: bool,
}

impl Hosts {
    /// Reads those of a state directory.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn load(directory: &Path) -> Result<Self, StateError> {
        let path = directory.join("hosts.json");
        Ok(Hosts {
            records: state::read_json(&path)?.unwrap_or_default(),
            path,
            is_changed: false,
        })
    }

    /// All of them.
    pub fn records(&self) -> &BTreeMap<String, HostRecord> {
        &self.records
    }

    /// What has to be written, and where; `None`: nothing changed since the last call.
    pub fn take_changes(&mut self) -> Option<(PathBuf, BTreeMap<String, HostRecord>)> {
        std::mem::take(&mut self.is_changed).then(|| (self.path.clone(), self.records.clone()))
    }

    /// It got a certificate. Whoever was a clone before is forgotten.
    pub fn certified(&mut self, host: &HostName, expires: WallMicros, is_new: bool) {
        let record = self.record(host);
        record.certificate_expires_us = expires.0;
        if is_new {
            record.clones.clear();
            record.refused = None;
        }
    }

    /// It fetched the CA certificates of this hash.
    pub fn fetched_bundle(&mut self, host: &HostName, hash: &str) {
        let record = self.record(host);
        if record.bundle.as_deref() != Some(hash) {
            record.bundle = Some(hash.to_owned());
        }
    }

    /// A batch of it was flushed.
    pub fn flushed(&mut self, host: &HostName, address: IpAddr, batch: &Noted, at: WallMicros) {
        let record = self.record(host);
        record.address = Some(address);
        record.boot_id.clone_from(&batch.boot_id);
        record.flushed_us = at.0;
        record.batches += 1;
        record.gap_bytes = record.gap_bytes.saturating_add(batch.gap_bytes);
        if batch.clock.is_some() {
            record.clock = batch.clock;
        }
        if let Some(spool_host) = &batch.spool_host {
            let differs = spool_host != host.as_str();
            record.spool_host = differs.then(|| spool_host.clone());
        }
    }

    /// A batch of it was refused.
    pub fn refused(&mut self, host: &HostName, error: RefusalKind, at: WallMicros) {
        let at_us = at.0;
        self.record(host).refused = Some(LastRefusal { at_us, error });
    }

    /// The server has other bytes of a segment of it.
    pub fn conflict(&mut self, host: &HostName, segment: &str) {
        let conflicts = &mut self.record(host).conflicts;
        if !conflicts.iter().any(|it| it == segment) {
            if conflicts.len() >= KEPT {
                conflicts.remove(0);
            }
            conflicts.push(segment.to_owned());
        }
    }

    /// Another process ships under its identity. Returns whether that was not known.
    pub fn clone_met(
        &mut self,
        host: &HostName,
        address: IpAddr,
        batch: &Noted,
        at: WallMicros,
    ) -> bool {
        let clones = &mut self.record(host).clones;
        if let Some(known) = clones.iter_mut().find(|it| it.run == batch.run) {
            known.last_us = at.0;
            known.address = address;
            return false;
        }
        if clones.len() >= KEPT {
            clones.remove(0);
        }
        clones.push(CloneRecord {
            run: batch.run.clone(),
            boot_id: batch.boot_id.clone(),
            address,
            last_us: at.0,
        });
        true
    }

    /// Whether every host that was there lately has the CA certificates of this hash.
    pub fn have_bundle(&self, hash: &str, now: WallMicros) -> bool {
        let mut recent = self
            .records
            .values()
            .filter(|record| record.flushed_us > now.0 - RECENT_US);
        recent.all(|record| record.bundle.as_deref() == Some(hash))
    }

    fn record(&mut self, host: &HostName) -> &mut HostRecord {
        self.is_changed = true;
        if !self.records.contains_key(host.as_str()) {
            let record = HostRecord::default();
            self.records.insert(host.to_string(), record);
        }
        self.records.entry(host.to_string()).or_default()
    }
}

/// What is noted of a batch before it is given away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    run: String,
    boot_id: String,
    segment: String,
    gap_bytes: u64,
    clock: Option<ClockOffset>,
    spool_host: Option<String>,
}

impl Noted {
    /// Of this batch.
    pub fn of(batch: &Batch) -> Self {
        let header = &batch.header;
        let mut noted = Noted {
            run: format!("{:032x}", header.run),
            boot_id: format!("{:032x}", header.boot_id),
            segment: header.segment.clone(),
            clock: header.clock_offset,
            ..Noted::default()
        };
        for piece in batch.pieces() {
            match piece.content {
                Content::Gap(gap) => noted.gap_bytes += gap.length,
                Content::Header(bytes) => {
                    let header = slowpath_store::spool::header_of(bytes);
                    noted.spool_host = header.ok().map(|(header, _)| header.host.host);
                }
                Content::Record(_) => {}
            }
        }
        noted
    }

    /// The boot id, in hexadecimal.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The segment's id.
    pub fn segment(&self) -> &str {
        &self.segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const NOW: WallMicros = WallMicros(1_795_000_000_000_000);

    fn hosts(folder: &Path) -> Hosts {
        Hosts::load(folder).unwrap()
    }

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    #[test]
    fn only_hosts_that_were_there_lately_hold_up_the_next_ca() {
        let folder = tempfile::tempdir().unwrap();
        let mut hosts = hosts(folder.path());
        let before = WallMicros(NOW.0 - RECENT_US);
        hosts.flushed(&host("old"), ADDRESS, &Noted::default(), before);
        assert!(hosts.have_bundle("next", NOW));
        hosts.flushed(&host("here"), ADDRESS, &Noted::default(), NOW);
        assert!(!hosts.have_bundle("next", NOW));
        hosts.fetched_bundle(&host("here"), "next");
        assert!(hosts.have_bundle("next", NOW));
    }

    #[test]
    fn what_is_known_outlives_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let mut before = hosts(folder.path());
        before.flushed(&host("web-1"), ADDRESS, &Noted::default(), NOW);
        before.refused(&host("web-1"), RefusalKind::OtherBytes, NOW);
        let (path, records) = before.take_changes().unwrap();
        assert_eq!(before.take_changes(), None);
        state::write_json(&path, &records).unwrap();
        assert_eq!(hosts(folder.path()).records(), before.records());
    }

    #[test]
    fn a_clone_is_kept_once_and_forgotten_when_the_host_joins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut hosts = hosts(folder.path());
        let batch = Noted {
            run: "1".to_owned(),
            ..Noted::default()
        };
        assert!(hosts.clone_met(&host("web-1"), ADDRESS, &batch, NOW));
        assert!(!hosts.clone_met(&host("web-1"), ADDRESS, &batch, NOW));
        for run in 0..100 {
            let batch = Noted {
                run: format!("run {run}"),
                ..Noted::default()
            };
            hosts.clone_met(&host("web-1"), ADDRESS, &batch, NOW);
            hosts.conflict(&host("web-1"), &format!("segment {run}"));
        }
        assert_eq!(hosts.records()["web-1"].clones.len(), KEPT);
        assert_eq!(hosts.records()["web-1"].conflicts.len(), KEPT);
        hosts.certified(&host("web-1"), NOW, true);
        assert!(hosts.records()["web-1"].clones.is_empty());
    }
}
