// SPDX-License-Identifier: Apache-2.0
//! Captures of hosts, matched: which packets left which host when, and which of them arrived.
//!
//! What enters: a folder of captures, one a host or several hosts' interfaces in one, or the two
//! of `slowpath replay`, and who the hosts are. What leaves: every packet that a host sent ([`Sent`]). A packet that its
//! receiver's capture does not have was lost; where that capture ends before it could have
//! arrived, or is missing, the loss is not known and the packet counts as arrived.

use slowpath_netsim::topology::Topology;
use slowpath_trace::decode::Link;
use slowpath_trace::read::open;
use slowpath_trace::segment::{Endpoint, Flags, Segment};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// More packets are a mistake in the folder.
const MOST: usize = 200_000_000;
/// Bytes of an Ethernet header, which switches' buffers do not count here.
const ETHERNET: u32 = 14;
/// A packet may be under way for twice as long as any that arrived, or for so long where none did: one sent that
/// shortly before its receiver's capture ends is not known to be lost.
const UNDER_WAY_NS: i64 = 10_000_000;

/// A packet that a host sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When, by its host's clock: nanoseconds since 1970.
    pub at: i64,
    /// Numbers of hosts.
    pub source: u32,
    /// The number of the receiving host.
    pub destination: u32,
    /// The sending end.
    pub from: Endpoint,
    /// The receiving end.
    pub to: Endpoint,
    /// From the IP header on.
    pub bytes: u32,
    /// It did not arrive.
    pub lost: bool,
    /// The packet of the same connection that its host received last before it.
    pub after: Option<u32>,
}

/// The packets of all captures.
#[derive(Debug, Default)]
pub struct Captures {
    /// In the order of hosts, of each in the order of its capture.
    pub sent: Vec<Sent>,
    /// Captures read.
    pub files: u64,
    /// Packets from or to an address that no host of the topology has.
    pub elsewhere: u64,
    /// Packets that were received and that no host sent.
    pub unmatched: u64,
    /// Packets that may have been lost or not.
    pub unknown: u64,
    /// Hosts without a capture.
    pub without: Vec<String>,
}

/// What makes a packet the same at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    from: Endpoint,
    to: Endpoint,
    sequence: u32,
    acknowledgement: u32,
    flags: u16,
    window: u16,
    length: u32,
    id: Option<u16>,
}

/// A captured packet.
struct Captured {
    at: i64,
    identity: Identity,
    bytes: u32,
}

impl Captured {
    fn new(segment: &Segment<'_>, bytes: u32) -> Self {
        Captured {
            at: segment.time.0,
            bytes,
            identity: Identity {
                from: segment.source,
                to: segment.destination,
                sequence: segment.sequence,
                acknowledgement: segment.acknowledgement,
                flags: segment.flags.0,
                window: segment.window,
                length: segment.length,
                id: segment.ip_id,
            },
        }
    }
}

/// Why captures cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A folder or file cannot be read, or holds no capture of a host.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A capture's packets do not show its host's address.
    #[error(
        "cannot determine which address of the capture of '{0}' is its own: say --address {0}=ADDRESS"
    )]
    Address(String),
}

fn unreadable(file: &Path, reason: impl std::fmt::Display) -> CaptureError {
    CaptureError::Unreadable {
        path: file.to_owned(),
        reason: reason.to_string(),
    }
}

/// The captures of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, CaptureError> {
    let failed = |error| unreadable(folder, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let known = path.extension().and_then(|extension| extension.to_str());
        if matches!(known, Some("pcap" | "pcapng")) {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let reason = "there is no .pcap or .pcapng file in it; `slowpath lab virtual --out DIR` \
                      and `slowpath replay` write some";
        return Err(unreadable(folder, reason));
    }
    Ok(files)
}

/// As the laboratory names files: a slash cannot be in a name.
fn host_called(name: &str, topology: &Topology) -> Option<u32> {
    let is = |host: &slowpath_netsim::topology::Host| host.name.replace('/', "_") == name;
    let exact = topology.hosts().iter().position(|host| host.name == name);
    let found = exact.or_else(|| topology.hosts().iter().position(is))?;
    u32::try_from(found).ok()
}

/// The addresses that hosts have in the laboratory.
fn laboratory(host: u32) -> IpAddr {
    let (row, place) = (host / 250 % 250, host % 250 + 1);
    IpAddr::V4(Ipv4Addr::new(10, 0, row as u8, place as u8))
}

/// The host with an address: as given, or as in the laboratory.
fn by_address(address: IpAddr, topology: &Topology, given: &BTreeMap<IpAddr, u32>) -> Option<u32> {
    let hosts = 0..topology.hosts().len() as u32;
    let laboratory = || hosts.into_iter().find(|host| laboratory(*host) == address);
    given.get(&address).copied().or_else(laboratory)
}

/// A capture of `slowpath replay`: one end of connections of any hosts.
struct OneEnd {
    accepting: bool,
    /// Who connected to whom.
    opened: HashSet<(Endpoint, Endpoint)>,
}

impl OneEnd {
    fn named(stem: &str) -> Option<Self> {
        let accepting = ["client", "server"].iter().position(|end| *end == stem)? == 1;
        Some(OneEnd {
            accepting,
            opened: HashSet::new(),
        })
    }

    /// The address of the host that a packet was captured at; `None`: its connection is not captured from its beginning.
    fn address(&mut self, it: &Segment<'_>) -> Option<IpAddr> {
        let (there, back) = ((it.source, it.destination), (it.destination, it.source));
        if it.flags.any(Flags::SYN) && !it.flags.any(Flags::ACK) {
            self.opened.insert(there);
        }
        let known = [there, back]
            .into_iter()
            .find(|it| self.opened.contains(it));
        known.map(|(client, server)| match self.accepting {
            false => client.address,
            true => server.address,
        })
    }
}

/// Reads a folder's captures. `addresses`: the host of each address that does not follow from
/// the captures.
///
/// # Errors
/// A file is not a capture, or its host is not known.
pub fn read(
    folder: &Path,
    topology: &Topology,
    addresses: &BTreeMap<IpAddr, u32>,
) -> Result<Captures, CaptureError> {
    let mut reader = Reader {
        topology,
        addresses: addresses.clone(),
        packets: BTreeMap::new(),
        captures: Captures::default(),
        total: 0,
        one_end: false,
    };
    for file in files(folder)? {
        reader.file(&file)?;
    }
    reader.finish()
}

/// Captured packets by host, while captures are read.
struct Reader<'a> {
    topology: &'a Topology,
    addresses: BTreeMap<IpAddr, u32>,
    packets: BTreeMap<u32, Vec<Captured>>,
    captures: Captures,
    total: usize,
    /// A capture was of one end of connections of several hosts.
    one_end: bool,
}

impl Reader<'_> {
    fn file(&mut self, file: &Path) -> Result<(), CaptureError> {
        self.captures.files += 1;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let by_file = host_called(&stem, self.topology);
        let mut capture = open(file).map_err(|error| unreadable(file, error))?;
        let mut by_interface: HashMap<u32, u32> = HashMap::new();
        let mut one_end = OneEnd::named(&stem).filter(|_| by_file.is_none());
        self.one_end |= one_end.is_some();
        while let Some(packet) = capture.next().map_err(|error| unreadable(file, error))? {
            let Ok(segment) = packet.segment() else {
                continue;
            };
            self.total += 1;
            if self.total > MOST {
                let reason = format!("more than {MOST} packets in all");
                return Err(unreadable(file, reason));
            }
            let header = match packet.link() {
                Link::Ethernet => ETHERNET,
                _ => 0,
            };
            let number = packet.interface();
            let captured = Captured::new(&segment, packet.wire_length().saturating_sub(header));
            let own = one_end.as_mut().and_then(|end| end.address(&segment));
            if let Some(host) = by_interface.get(&number) {
                self.packets.entry(*host).or_default().push(captured);
                continue;
            }
            let interface = capture.notes().interfaces.get(number as usize);
            let name = interface.and_then(|interface| interface.name.as_deref());
            let named = name.and_then(|name| host_called(name, self.topology));
            if named.is_none() && one_end.is_some() {
                match own.and_then(|address| self.owner(address)) {
                    Some(host) => self.packets.entry(host).or_default().push(captured),
                    None => self.captures.elsewhere += 1,
                }
                continue;
            }
            let host = named.or(by_file).ok_or_else(|| {
                let reason = format!(
                    "no host of the topology is called '{stem}', nor is its interface: \
                     name the file after its host"
                );
                unreadable(file, reason)
            })?;
            by_interface.insert(number, host);
            self.packets.entry(host).or_default().push(captured);
        }
        Ok(())
    }

    /// The host with an address, which is noted.
    fn owner(&mut self, address: IpAddr) -> Option<u32> {
        let host = by_address(address, self.topology, &self.addresses)?;
        self.addresses.insert(address, host);
        Some(host)
    }

    fn finish(mut self) -> Result<Captures, CaptureError> {
        if self.one_end {
            // A host may connect and accept: in two files.
            for packets in self.packets.values_mut() {
                packets.sort_by_key(|packet| packet.at);
            }
        }
        let owners = owners(&self.packets, self.topology, &self.addresses)?;
        self.captures.without = (0..)
            .zip(self.topology.hosts())
            .filter(|(number, _)| !self.packets.contains_key(number))
            .map(|(_, host)| host.name.clone())
            .collect();
        matched(&self.packets, &owners, &mut self.captures);
        Ok(self.captures)
    }
}

/// Hosts by address: those given, otherwise the only address that is in every packet
/// of a host's capture.
fn owners(
    captured: &BTreeMap<u32, Vec<Captured>>,
    topology: &Topology,
    given: &BTreeMap<IpAddr, u32>,
) -> Result<HashMap<IpAddr, u32>, CaptureError> {
    let mut owners: HashMap<IpAddr, u32> = given.iter().map(|(a, host)| (*a, *host)).collect();
    let stated: BTreeSet<u32> = given.values().copied().collect();
    let mut open: BTreeMap<u32, BTreeSet<IpAddr>> = BTreeMap::new();
    for (host, packets) in captured.iter().filter(|(host, _)| !stated.contains(host)) {
        let ends = |one: &Captured| [one.identity.from.address, one.identity.to.address];
        let mut own: BTreeSet<IpAddr> = packets.first().map(ends).into_iter().flatten().collect();
        for packet in packets {
            let ends = ends(packet);
            own.retain(|address| ends.contains(address));
        }
        open.insert(*host, own);
    }
    while !open.is_empty() {
        let taken = |own: &mut BTreeSet<IpAddr>, owners: &HashMap<IpAddr, u32>| {
            own.retain(|address| !owners.contains_key(address));
        };
        for own in open.values_mut() {
            taken(own, &owners);
        }
        let next = open.iter().find(|(_, own)| own.len() == 1);
        let next = next.or_else(|| {
            open.iter()
                .find(|(host, own)| own.contains(&laboratory(**host)))
        });
        let Some((&host, own)) = next else {
            let host = open.keys().next().copied().unwrap_or(0);
            let name = &topology.hosts()[host as usize].name;
            return Err(CaptureError::Address(name.clone()));
        };
        let address = match own.len() {
            1 => own.first().copied(),
            _ => Some(laboratory(host)),
        };
        open.remove(&host);
        owners.extend(address.map(|address| (address, host)));
    }
    Ok(owners)
}

/// Matches what was received with what was sent.
fn matched(
    captured: &BTreeMap<u32, Vec<Captured>>,
    owners: &HashMap<IpAddr, u32>,
    captures: &mut Captures,
) {
    // Sent packets by what they are, the oldest first; they count as lost until found.
    let mut waiting: HashMap<Identity, VecDeque<u32>> = HashMap::new();
    let mut numbers: BTreeMap<u32, Vec<Option<u32>>> = BTreeMap::new();
    for (host, packets) in captured {
        let of_host = numbers.entry(*host).or_default();
        for packet in packets {
            let owner = |end: &Endpoint| owners.get(&end.address).copied();
            let ends = (owner(&packet.identity.from), owner(&packet.identity.to));
            let (Some(source), Some(destination)) = ends else {
                captures.elsewhere += 1;
                of_host.push(None);
                continue;
            };
            if source != *host || destination == *host {
                of_host.push(None);
                continue;
            }
            let number = captures.sent.len() as u32;
            of_host.push(Some(number));
            let same = waiting.entry(packet.identity).or_default();
            same.push_back(number);
            captures.sent.push(Sent {
                at: packet.at,
                source,
                destination,
                from: packet.identity.from,
                to: packet.identity.to,
                bytes: packet.bytes,
                lost: true,
                after: None,
            });
        }
    }
    let slowest = receive(captured, owners, waiting, numbers, captures);
    undecided(captured, slowest, captures);
}

/// Marks the sent packets that were received; gives how many ns the slowest of them took.
fn receive(
    captured: &BTreeMap<u32, Vec<Captured>>,
    owners: &HashMap<IpAddr, u32>,
    mut waiting: HashMap<Identity, VecDeque<u32>>,
    mut numbers: BTreeMap<u32, Vec<Option<u32>>>,
    captures: &mut Captures,
) -> i64 {
    let mut slowest = 0;
    for (host, packets) in captured {
        let mut last: HashMap<(Endpoint, Endpoint), u32> = HashMap::new();
        let of_host = numbers.remove(host).unwrap_or_default();
        for (packet, number) in packets.iter().zip(of_host) {
            let identity = &packet.identity;
            if let Some(number) = number {
                let received = last.get(&(identity.to, identity.from));
                captures.sent[number as usize].after = received.copied();
            } else if owners.get(&identity.to.address) == Some(host)
                && owners.contains_key(&identity.from.address)
            {
                let connection = (identity.from, identity.to);
                let before = last.get(&connection).copied();
                let found = waiting.get_mut(identity);
                let found = found.and_then(|same| next_of(same, before));
                match found {
                    Some(number) => {
                        let sent = &mut captures.sent[number as usize];
                        sent.lost = false;
                        slowest = slowest.max(packet.at.saturating_sub(sent.at));
                        last.insert(connection, number);
                    }
                    None => captures.unmatched += 1,
                }
            }
        }
    }
    slowest
}

/// Takes the one that arrived of packets that look the same, of which some may have been lost. Packets of one connection
/// arrive in their order, as a rule: the oldest that was sent behind the one that arrived before, or the oldest.
fn next_of(same: &mut VecDeque<u32>, before: Option<u32>) -> Option<u32> {
    let behind = before.and_then(|before| same.iter().position(|number| *number > before));
    same.remove(behind.unwrap_or(0))
}

/// Counts as arrived what may have been lost or still under way when its receiver's capture
/// ended, the longest of those on their way being `slowest` ns.
fn undecided(captured: &BTreeMap<u32, Vec<Captured>>, slowest: i64, captures: &mut Captures) {
    let ends: HashMap<u32, i64> = captured
        .iter()
        .filter_map(|(host, packets)| Some((*host, packets.iter().map(|one| one.at).max()?)))
        .collect();
    // What was sent before something that arrived on the same way is no longer under way. Only packets of one
    // connection are known to have one way; those of a burst have one time, and their order.
    let mut arrived: HashMap<(Endpoint, Endpoint), usize> = HashMap::new();
    for (number, packet) in captures.sent.iter().enumerate() {
        if !packet.lost {
            arrived.insert((packet.from, packet.to), number);
        }
    }
    let under_way = match slowest {
        0 => UNDER_WAY_NS,
        _ => slowest.saturating_mul(2),
    };
    for (number, packet) in captures.sent.iter_mut().enumerate() {
        if !packet.lost {
            continue;
        }
        let end = ends.get(&packet.destination);
        let late = end.is_none_or(|end| packet.at > end.saturating_sub(under_way));
        let last = arrived.get(&(packet.from, packet.to));
        if late && last.is_none_or(|last| number > *last) {
            packet.lost = false;
            captures.unknown += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_packets_that_look_the_same_the_one_that_keeps_the_order_arrived() {
        let mut same = VecDeque::from([3, 9, 12]);
        // Behind packet 5, which had arrived: 3 was lost.
        assert_eq!(next_of(&mut same, Some(5)), Some(9));
        assert_eq!(next_of(&mut same, Some(20)), Some(3), "overtaken");
        assert_eq!(next_of(&mut same, None), Some(12));
        assert_eq!(next_of(&mut same, None), None);
    }
}
