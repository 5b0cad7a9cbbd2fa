// SPDX-License-Identifier: Apache-2.0
//! The packets of simulated hosts as pcap files, one a host: for `slowpath trace`, `slowpath queues`,
//! Wireshark.
//!
//! Raw IPv4 with the headers only, times in nanoseconds from 2000-01-01 UTC on, addresses as in the
//! laboratory: host n (from 0) has 10.0.(n / 250).(n mod 250 + 1). Sequence numbers begin where a hash of the
//! connection says. What the model has no word for is filled in as Linux does: ports, IP
//! identification, a window of the sending end, timestamps in milliseconds where `tcp.header` has
//! room for them.

use etherparse::TcpOptionElement::{self, Noop};
use etherparse::{IpEcn, IpNumber, Ipv4Header, TcpHeader, UdpHeader};
use slowpath_files::OutputFile;
use slowpath_netsim::engine::{CapturedPacket, Content, HostId, PacketSink};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::tcp::{Ack, Segment};
use slowpath_switch::Time;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Files are open at the same time; the usual limit is 1,024.
pub const MOST_HOSTS: usize = 512;
/// 2000-01-01 00:00 UTC, in seconds since 1970.
const EPOCH: u64 = 946_684_800;
const NANOSECONDS: u64 = 1_000_000_000;
/// Link type of packets that begin with the IP header.
const RAW_IP: u32 = 101;
/// Hosts in a row of addresses.
const ROW: u32 = 250;
/// Bytes of a packet beside its payload from which on it has timestamps: IPv4, TCP and the option.
const WITH_TIMESTAMPS: u16 = 20 + 20 + 12;
/// Of IPv4 and TCP with all options.
const MOST_HEADERS: usize = 20 + 60;
/// A payload.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// The shift of all windows.
const WINDOW_SCALE: u8 = 10;
const SERVER_PORT: u16 = 5001;
/// The client's ports go on from here.
const FIRST_PORT: u16 = 10_000;
/// What timestamps show at the start.
const FIRST_STAMP: u32 = 1_000;

/// Why captures could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file cannot be created or written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// No host fits.
    #[error("no host is called '{pattern}'; there is '{example}', for example")]
    NoHost {
        /// What was asked for.
        pattern: String,
        /// A name that there is.
        example: String,
    },
    /// Too many files.
    #[error(
        "'{pattern}' matches {hosts} hosts, and at most {MOST_HOSTS} are captured: choose fewer, for example --pcap='{example}'"
    )]
    TooManyHosts {
        /// How many.
        hosts: usize,
        /// What was asked for.
        pattern: String,
        /// A name that there is.
        example: String,
    },
}

/// A connection as its packets show it.
struct Conversation {
    client_port: u16,
    /// The sequence numbers of both ends' SYNs.
    first: [u32; 2],
    /// The timestamp that the receiving end echoes (RFC 7323 section 4.3).
    recent: u32,
    /// Up to where the receiving end has acknowledged.
    acknowledged: u64,
    /// What the ACK in hand echoes.
    echo: u32,
    /// The same of those in the network, by number; what is lost stays.
    echoes: HashMap<u64, u32>,
}

struct Output {
    path: PathBuf,
    file: OutputFile,
    out: BufWriter<File>,
}

/// The captures of a run, while it goes on.
#[derive(Default)]
pub struct Captures {
    /// By the number of the host.
    outputs: BTreeMap<u32, Output>,
    conversations: HashMap<u64, Conversation>,
    /// By the numbers of both hosts: the next client port.
    ports: HashMap<(u32, u32), u16>,
    seed: u64,
    failed: Option<CaptureError>,
}

/// The names of files of hosts: host names may hold slashes.
fn file_name(host: &str) -> String {
    format!("{}.pcap", host.replace('/', "_"))
}

impl Captures {
    /// Captures in that folder, which is created, of the hosts of a scenario whose names fit the
    /// pattern: a name, or its beginning and `*`.
    ///
    /// # Errors
    /// No host fits or too many do, or a file cannot be created.
    pub fn create(folder: &Path, scenario: &Scenario, pattern: &str) -> Result<Self, CaptureError> {
        let hosts = scenario.topology.hosts();
        let fitting: Vec<u32> = (0..)
            .zip(hosts)
            .filter(|(_, host)| slowpath_netsim::scenario::fits(pattern, &host.name))
            .map(|(number, _)| number)
            .collect();
        let pattern = pattern.to_owned();
        let example = hosts
            .first()
            .map_or_else(String::new, |host| host.name.clone());
        if fitting.is_empty() {
            return Err(CaptureError::NoHost { pattern, example });
        }
        if fitting.len() > MOST_HOSTS {
            let hosts = fitting.len();
            return Err(CaptureError::TooManyHosts {
                hosts,
                pattern,
                example,
            });
        }
        slowpath_files::create_folder(folder).map_err(|error| CaptureError::Write {
            path: folder.to_owned(),
            error,
        })?;
        let mut captures = Captures {
            seed: scenario.seed,
            ..Captures::default()
        };
        for number in fitting {
            let path = folder.join(file_name(&hosts[number as usize].name));
            let output =
                Output::create(&path).map_err(|error| CaptureError::Write { path, error })?;
            captures.outputs.insert(number, output);
        }
        Ok(captures)
    }

    /// Completes the files: their paths.
    ///
    /// # Errors
    /// One could not be written, now or during the run; then none is there.
    pub fn finish(self) -> Result<Vec<PathBuf>, CaptureError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut paths = Vec::new();
        for Output {
            path,
            file,
            mut out,
        } in self.outputs.into_values()
        {
            let done = out.flush().and_then(|()| file.commit());
            done.map_err(|error| CaptureError::Write {
                path: path.clone(),
                error,
            })?;
            paths.push(path);
        }
        Ok(paths)
    }

    fn write(&mut self, packet: &CapturedPacket<'_>) {
        let conversation = match self.conversations.get_mut(&packet.connection) {
            Some(known) => known,
            None => {
                let new = self.conversation(packet);
                self.conversations.entry(packet.connection).or_insert(new)
            }
        };
        conversation.follow(packet);
        let (here, at) = match packet.arrived {
            Some(at) => (packet.destination, at),
            None => (packet.source, packet.sent),
        };
        let Some(output) = self.outputs.get_mut(&here.0) else {
            return;
        };
        let (headers, length) = conversation.headers(packet);
        if let Err(error) = output.record(at, &headers, length) {
            let path = output.path.clone();
            self.failed
                .get_or_insert(CaptureError::Write { path, error });
        }
    }

    /// A connection that is new.
    fn conversation(&mut self, packet: &CapturedPacket<'_>) -> Conversation {
        let (client, server) = match packet.content {
            Content::Ack(_) => (packet.destination, packet.source),
            Content::Segment(_) | Content::Datagram(_) => (packet.source, packet.destination),
        };
        let port = self.ports.entry((client.0, server.0)).or_insert(FIRST_PORT);
        let client_port = *port;
        *port = port.checked_add(1).unwrap_or(FIRST_PORT);
        let mut random = slowpath_switch::Random::stream(self.seed, packet.connection);
        Conversation {
            client_port,
            // Either half of a random number.
            first: [random.next_u64() as u32, random.next_u64() as u32],
            recent: 0,
            acknowledged: 0,
            echo: 0,
            echoes: HashMap::new(),
        }
    }
}

impl Output {
    fn create(path: &Path) -> io::Result<Self> {
        let file = OutputFile::create(path)?;
        let mut out = BufWriter::new(file.handle()?);
        // Nanoseconds; version 2.4; no time zone, no accuracy; bytes of a packet; link type.
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, RAW_IP] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Output {
            path: path.to_owned(),
            file,
            out,
        })
    }

    /// One packet: its headers, and its length on the wire.
    fn record(&mut self, at: Time, headers: &[u8], length: u16) -> io::Result<()> {
        let nanoseconds = at.as_nanos();
        let seconds = EPOCH + nanoseconds / NANOSECONDS;
        for word in [
            // pcap counts seconds in 32 bits, until 2106.
            seconds as u32,
            (nanoseconds % NANOSECONDS) as u32,
            headers.len() as u32,
            u32::from(length),
        ] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(headers)
    }
}

/// A moment as a timestamp option shows it.
fn stamp(at: Time) -> u32 {
    // It wraps, as it does on the wire.
    ((at.as_nanos() / 1_000_000) as u32).wrapping_add(FIRST_STAMP)
}

impl Conversation {
    /// What later packets depend on.
    fn follow(&mut self, packet: &CapturedPacket<'_>) {
        match packet.content {
            Content::Segment(segment)
                if packet.arrived.is_some() && segment.seq <= self.acknowledged =>
            {
                self.recent = stamp(packet.sent);
            }
            Content::Ack(ack) if packet.arrived.is_none() => {
                self.acknowledged = ack.ack;
                self.echo = self.recent;
                self.echoes.insert(packet.number, self.recent);
            }
            Content::Ack(_) => {
                // A copy comes after its original took the note.
                let echo = self.echoes.remove(&packet.number);
                self.echo = echo.unwrap_or(self.recent);
            }
            _ => {}
        }
    }

    /// From IP on without the payload, and how long the packet is.
    fn headers(&self, packet: &CapturedPacket<'_>) -> (Vec<u8>, u16) {
        let (tcp, payload) = match packet.content {
            Content::Segment(segment) => (self.segment(packet, &segment), segment.len),
            Content::Ack(ack) => (self.acknowledgment(packet, &ack), 0),
            Content::Datagram(payload) => return self.datagram(packet, payload),
        };
        let payload = &ZEROS[..(payload as usize).min(ZEROS.len())];
        let ip = ip_header(packet, IpNumber::TCP, tcp.header_len() + payload.len());
        let checksum = tcp.calc_checksum_ipv4(&ip, payload).unwrap_or_default();
        let mut bytes = Vec::with_capacity(MOST_HEADERS);
        bytes.extend_from_slice(&ip.to_bytes());
        bytes.extend_from_slice(&TcpHeader { checksum, ..tcp }.to_bytes());
        (bytes, ip.total_len.max(packet.bytes))
    }

    fn segment(&self, packet: &CapturedPacket<'_>, segment: &Segment) -> TcpHeader {
        let [client, server] = self.first;
        let mut tcp = TcpHeader::new(self.client_port, SERVER_PORT, client, u16::MAX);
        tcp.syn = segment.syn;
        tcp.cwr = segment.cwr;
        tcp.psh = segment.push;
        if !segment.syn {
            // Sequence numbers wrap.
            tcp.sequence_number = client.wrapping_add(1).wrapping_add(segment.seq as u32);
            tcp.ack = true;
            tcp.acknowledgment_number = server.wrapping_add(1);
        }
        let echo = match segment.echo {
            Time::ZERO => 0,
            at => stamp(at),
        };
        let stamps = [stamp(packet.sent), echo];
        set_options(&mut tcp, packet, stamps, &[]);
        tcp
    }

    fn acknowledgment(&self, packet: &CapturedPacket<'_>, ack: &Ack) -> TcpHeader {
        let [client, server] = self.first;
        let window = match ack.syn {
            true => ack.window,
            false => ack.window >> WINDOW_SCALE,
        };
        let window = u16::try_from(window).unwrap_or(u16::MAX);
        let mut tcp = TcpHeader::new(SERVER_PORT, self.client_port, server, window);
        tcp.syn = ack.syn;
        tcp.ack = true;
        tcp.ece = ack.ece;
        if !ack.syn {
            tcp.sequence_number = server.wrapping_add(1);
        }
        let of_stream = |offset: u32| client.wrapping_add(1).wrapping_add(offset);
        tcp.acknowledgment_number = of_stream(ack.ack as u32);
        let blocks = ack.sack.as_slice().iter();
        let blocks: Vec<_> = blocks
            .map(|(start, end)| (of_stream(*start), of_stream(*end)))
            .collect();
        let stamps = [stamp(ack.stamp), self.echo];
        set_options(&mut tcp, packet, stamps, &blocks);
        tcp
    }

    fn datagram(&self, packet: &CapturedPacket<'_>, payload: u32) -> (Vec<u8>, u16) {
        let payload = &ZEROS[..(payload as usize).min(ZEROS.len())];
        let ip = ip_header(packet, IpNumber::UDP, UdpHeader::LEN + payload.len());
        let udp = UdpHeader::with_ipv4_checksum(self.client_port, SERVER_PORT, &ip, payload);
        let udp = udp.map_or([0; UdpHeader::LEN], |udp| udp.to_bytes());
        (
            [&ip.to_bytes()[..], &udp].concat(),
            ip.total_len.max(packet.bytes),
        )
    }
}

fn ip_header(packet: &CapturedPacket<'_>, protocol: IpNumber, payload: usize) -> Ipv4Header {
    // No topology has 65,536 rows.
    let address = |HostId(host)| {
        let row = host / ROW;
        [10, (row >> 8) as u8, row as u8, (host % ROW + 1) as u8]
    };
    let payload = u16::try_from(payload).unwrap_or(u16::MAX - Ipv4Header::MIN_LEN_U16);
    let mut ip = Ipv4Header {
        total_len: Ipv4Header::MIN_LEN_U16.saturating_add(payload),
        // The lower 16 bits: it wraps, as it does on the wire.
        identification: packet.number as u16,
        dont_fragment: true,
        time_to_live: packet.ttl,
        protocol,
        source: address(packet.source),
        destination: address(packet.destination),
        ecn: match (packet.marked, packet.ecn_capable) {
            (true, _) => IpEcn::CongestionExperienced,
            (false, true) => IpEcn::Ect0,
            (false, false) => IpEcn::NotEct,
        },
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    ip
}

/// The options, in Linux's order (`tcp_options_write`).
fn set_options(
    tcp: &mut TcpHeader,
    packet: &CapturedPacket<'_>,
    stamps: [u32; 2],
    blocks: &[(u32, u32)],
) {
    let config = packet.config;
    let mut options: Vec<TcpOptionElement> = Vec::new();
    let stamps = (config.header >= WITH_TIMESTAMPS)
        .then_some(TcpOptionElement::Timestamp(stamps[0], stamps[1]));
    if tcp.syn {
        options.push(TcpOptionElement::MaximumSegmentSize(config.mss));
        match config.sack {
            true => options.push(TcpOptionElement::SelectiveAcknowledgementPermitted),
            false => options.extend([Noop, Noop]),
        }
        match stamps {
            Some(stamps) => options.push(stamps),
            None => options.extend([Noop, Noop]),
        }
        options.extend([Noop, TcpOptionElement::WindowScale(WINDOW_SCALE)]);
    } else {
        if let Some(stamps) = stamps {
            options.extend([Noop, Noop, stamps]);
        }
        if let [first, rest @ ..] = blocks {
            let mut more = [None; 3];
            for (place, block) in more.iter_mut().zip(rest) {
                *place = Some(*block);
            }
            let blocks = TcpOptionElement::SelectiveAcknowledgement(*first, more);
            options.extend([Noop, Noop, blocks]);
        }
    }
    // Three blocks beside timestamps, or four: 40 bytes at most.
    tcp.set_options(&options).ok();
}

impl PacketSink for Captures {
    fn packet(&mut self, packet: &CapturedPacket<'_>) {
        if self.failed.is_none() {
            self.write(packet);
        }
    }
}
