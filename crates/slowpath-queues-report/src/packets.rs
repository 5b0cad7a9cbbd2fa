// SPDX-License-Identifier: Apache-2.0
//! Captured packets as the replay of queues takes them.

use crate::captures::Sent;
use slowpath_netsim::engine::HostId;
use slowpath_queues::Offered;
use slowpath_switch::Time;
use slowpath_trace::segment::Endpoint;
use std::collections::HashMap;
use std::net::IpAddr;

/// Picoseconds a nanosecond.
const PICOS: u64 = 1_000;
/// IPv4 and TCP without options, and with timestamps: what captures have of a packet.
const HEADERS: [u16; 2] = [40, 52];
/// Where a laboratory's hosts listen, one port a kind of TCP.
const FIRST_LISTENER: u16 = 5_000;

/// Bounds of the errors of captured times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorBounds {
    /// How far times in captures are at most from when packets were sent.
    pub times_ns: u64,
    /// How far clocks of hosts are from each other at most.
    pub clocks_ns: u64,
}

/// What captures do not have of packets: the keys that switches hash, and bytes on the wire
/// beside the captured ones.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    keys: HashMap<(u32, u32, u16), u32>,
    /// By kind of TCP.
    framing: Vec<u16>,
}

impl Wire {
    /// `keys`: the hash keys of known connections, by sending host, receiving host and the
    /// sender's port. `headers`: the bytes of IP and TCP headers of each kind of TCP.
    pub fn new(
        keys: HashMap<(u32, u32, u16), u32>,
        headers: impl IntoIterator<Item = u16>,
    ) -> Self {
        let more = |header: u16| match HEADERS.contains(&header) {
            true => 0,
            false => header.saturating_sub(HEADERS[0]),
        };
        Wire {
            keys,
            framing: headers.into_iter().map(more).collect(),
        }
    }

    /// The key of a packet's connection in its direction.
    fn key(&self, sent: &Sent) -> u32 {
        let forth = (sent.source, sent.destination, sent.from.port);
        let back = (sent.destination, sent.source, sent.to.port);
        if let Some(key) = self.keys.get(&forth) {
            return *key;
        }
        if let Some(key) = self.keys.get(&back) {
            return key.wrapping_add(1);
        }
        hash(sent.from, sent.to)
    }

    fn bytes(&self, sent: &Sent) -> u16 {
        let kind = [sent.to.port, sent.from.port].into_iter().find_map(|port| {
            let kind = port.checked_sub(FIRST_LISTENER)?;
            self.framing.get(usize::from(kind))
        });
        let bytes = sent
            .bytes
            .saturating_add(u32::from(kind.copied().unwrap_or(0)));
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}

/// FNV-1a, 32 bits, of both ends.
fn hash(from: Endpoint, to: Endpoint) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    for end in [from, to] {
        match end.address {
            IpAddr::V4(address) => add(&address.octets()),
            IpAddr::V6(address) => add(&address.octets()),
        }
        add(&end.port.to_be_bytes());
    }
    hash
}

/// The packets as the replay of queues takes them: times since `origin` (nanoseconds since
/// 1970), each known within `error` nanoseconds.
pub fn offered(sent: &[Sent], origin: i64, wire: &Wire, error: u64) -> Vec<Offered> {
    let packet = |(number, sent): (u32, &Sent)| {
        let at = sent.at.saturating_sub(origin).max(0).unsigned_abs();
        let moment = |nanos: u64| Time(nanos.saturating_mul(PICOS));
        Offered {
            number,
            at: moment(at),
            earliest: moment(at.saturating_sub(error)),
            latest: moment(at.saturating_add(error)),
            after: sent.after,
            source: HostId(sent.source),
            destination: HostId(sent.destination),
            key: wire.key(sent),
            bytes: wire.bytes(sent),
            lost: sent.lost,
        }
    };
    (0..).zip(sent).map(packet).collect()
}
