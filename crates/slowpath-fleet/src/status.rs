// SPDX-License-Identifier: Apache-2.0
//! What a server knows of each host that ships to it.

use crate::frame;
use slowpath_model::WallMicros;
use slowpath_ship::batch::{ClockOffset, Header, SentClock};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// A process that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// From where.
    pub address: IpAddr,
    /// The boot id of the segment that it shipped last.
    pub boot_id: u128,
    /// Its run.
    pub run: u128,
}

/// What is known of a host since the intake was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Its certificate's name.
    pub host: String,
    /// The process that ships.
    pub peer: Option<Peer>,
    /// Another one that was refused as a clone.
    pub clone: Option<Peer>,
    /// When it was last heard of, by the server's clock.
    pub received: WallMicros,
    /// Its clock when it sent its last batch.
    pub clock: Option<SentClock>,
    /// How far that is from the server's.
    pub clock_offset: Option<ClockOffset>,
    /// Batches of which something was new.
    pub batches: u64,
    /// Records taken.
    pub records: u64,
    /// Bytes of items.
    pub bytes: u64,
    /// Bytes of its segments that gaps stand for.
    pub gap_bytes: u64,
    /// Batches that were refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

/// The hosts, by name.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    hosts: HashMap<String, HostStatus>,
    /// Requests refused since the intake's file began, and when the last one was.
    refusals: BTreeMap<String, (u64, WallMicros)>,
}

impl Statuses {
    fn of(&mut self, host: &str) -> &mut HostStatus {
        let new = || HostStatus {
            host: host.to_owned(),
            peer: None,
            clone: None,
            received: WallMicros(0),
            clock: None,
            clock_offset: None,
            batches: 0,
            records: 0,
            bytes: 0,
            gap_bytes: 0,
            refused: BTreeMap::new(),
        };
        self.hosts.entry(host.to_owned()).or_insert_with(new)
    }

    /// Whether requests were refused that no frame states yet.
    pub(crate) fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Their frames.
    pub(crate) fn refusals(&self) -> Vec<u8> {
        let mut frames = Vec::new();
        for (host, (count, last)) in &self.refusals {
            frame::write_refusals((host, *last), *count, &mut frames);
        }
        frames
    }

    /// A frame states them.
    pub(crate) fn forget_refusals(&mut self) {
        self.refusals.clear();
    }

    pub(crate) fn spoke(
        &mut self,
        host: &str,
        address: IpAddr,
        header: &Header,
        received: WallMicros,
    ) {
        let status = self.of(host);
        status.peer = Some(peer(address, header));
        status.received = status.received.max(received);
        status.clock = Some(header.clock);
        status.clock_offset = header.clock_offset.or(status.clock_offset);
    }

    pub(crate) fn took(&mut self, host: &str, (records, bytes, gaps): (u64, u64, u64)) {
        let status = self.of(host);
        status.batches += 1;
        status.records += records;
        status.bytes += bytes;
        status.gap_bytes += gaps;
    }

    pub(crate) fn refused(&mut self, host: &str, reason: &'static str, now: WallMicros) {
        let status = self.of(host);
        status.received = status.received.max(now);
        *status.refused.entry(reason).or_default() += 1;
        let (count, last) = self.refusals.entry(host.to_owned()).or_insert((0, now));
        *count += 1;
        *last = now.max(*last);
    }

    /// Notes a clone; gives the process of the run that goes on, if that is the last one heard of.
    pub(crate) fn cloned(
        &mut self,
        host: &str,
        address: IpAddr,
        header: &Header,
        present: Option<u128>,
    ) -> Option<Peer> {
        let status = self.of(host);
        status.clone = Some(peer(address, header));
        status.peer.filter(|peer| Some(peer.run) == present)
    }

    pub(crate) fn all(&self) -> Vec<HostStatus> {
        let mut all: Vec<HostStatus> = self.hosts.values().cloned().collect();
        all.sort_unstable_by(|a, b| a.host.cmp(&b.host));
        all
    }
}

fn peer(address: IpAddr, header: &Header) -> Peer {
    Peer {
        address,
        boot_id: header.boot_id,
        run: header.run,
    }
}
