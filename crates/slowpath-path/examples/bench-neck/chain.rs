// SPDX-License-Identifier: Apache-2.0
//! Chains: hosts a and b, routers between, and for a congested link hosts x and y whose traffic crosses only that one.

use slowpath_lab::emulator::{Lab, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_path::socket::{monotonic, precise_timers, sleep_until};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The rate of all other links, bits a second.
const WIDE: f64 = 100e6;
/// Octets of IP of a packet of cross traffic.
const CROSS_OCTETS: usize = 1_000;

/// What limits the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A link of 20 to 60 Mbit/s.
    Narrow,
    /// A link that others load with 60 to 95 Mbit/s.
    Congested,
    /// A link that a TCP connection of others fills.
    Tcp,
    /// A narrow link, and two silent routers.
    Silent,
    /// A narrow link, and three routers that limit their ICMP or answer after a random time.
    Limited,
    /// A narrow link, and routers that all answer as Linux does: six times, then once a second.
    Linux,
}

impl Kind {
    /// Whether others limit the path.
    pub fn is_shared(self) -> bool {
        matches!(self, Kind::Congested | Kind::Tcp)
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Narrow => "narrow",
            Kind::Congested => "congested",
            Kind::Tcp => "tcp",
            Kind::Silent => "silent",
            Kind::Limited => "limited",
            Kind::Linux => "linux",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [
            Kind::Narrow,
            Kind::Congested,
            Kind::Tcp,
            Kind::Silent,
            Kind::Limited,
            Kind::Linux,
        ];
        let found = all.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("no kind {text}"))
    }
}

/// A chain.
#[derive(Clone, Debug)]
pub struct Chain {
    pub kind: Kind,
    /// Links from a to b.
    pub hops: u8,
    /// The link that limits.
    pub position: u8,
    /// Its rate if it is narrow, the cross traffic if it is congested, bits a second.
    rate: f64,
    /// Routers that answer otherwise than at once, and how.
    pub faulty: Vec<(u8, &'static str)>,
    /// Delay of a link, microseconds.
    delay: u64,
    /// Packets that a router's queue holds.
    buffer: u64,
}

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most.max(1)
    }
}

impl Chain {
    /// That of a run: positions go round, all else is drawn.
    pub fn drawn(seed: u64, run: usize, kind: Kind) -> Self {
        let mut draw = Draw(seed.wrapping_mul(1_000_003).wrapping_add(run as u64));
        let hops = 8 + draw.below(7) as u8;
        // Cross traffic needs a router before the link.
        let first = if kind.is_shared() { 2 } else { 1 };
        let position = first + draw.below(u64::from(hops - first) + 1) as u8;
        let rate = match kind {
            Kind::Congested => 60e6 + draw.below(35_000_000) as f64,
            Kind::Tcp => WIDE,
            _ => 20e6 + draw.below(40_000_000) as f64,
        };
        let faults: &[&str] = match kind {
            Kind::Narrow | Kind::Congested | Kind::Tcp | Kind::Linux => &[],
            Kind::Silent => &["silent = true"; 2],
            Kind::Limited => &[
                "icmp-rate = 1\nicmp-burst = 6",
                "icmp-rate = 5",
                "icmp-delay = { least = \"1 ms\", most = \"20 ms\" }",
            ],
        };
        let mut faulty: Vec<(u8, &str)> = match kind {
            Kind::Linux => (1..hops)
                .map(|router| (router, "icmp-rate = 1\nicmp-burst = 6"))
                .collect(),
            _ => Vec::new(),
        };
        while faulty.len() < faults.len() {
            let router = 1 + draw.below(u64::from(hops - 1)) as u8;
            if faulty.iter().all(|it| it.0 != router) {
                faulty.push((router, faults[faulty.len()]));
            }
        }
        Chain {
            kind,
            hops,
            position,
            rate,
            faulty,
            delay: 200 + draw.below(2_000),
            buffer: [60, 100, 200][draw.below(3) as usize],
        }
    }

    /// At which rate a train leaves the neck: the narrow link's own; or, first in, first out, its share of the
    /// congested one, which it reaches at the rate of the links before.
    pub fn rate_bound(&self) -> f64 {
        match self.kind {
            Kind::Congested | Kind::Tcp => WIDE * WIDE / (WIDE + self.rate),
            _ => self.rate,
        }
    }

    /// What the link carries, and what others leave of it.
    pub fn capacity(&self) -> (f64, f64) {
        match self.kind.is_shared() {
            true => (WIDE, WIDE - self.rate),
            false => (self.rate, self.rate),
        }
    }

    /// Brings it up.
    pub fn up(&self) -> Result<Lab, Box<dyn std::error::Error>> {
        let routers: Vec<String> = (1..self.hops).map(|hop| format!("r{hop}")).collect();
        let mut nodes = vec!["a".to_owned()];
        nodes.extend(routers.iter().cloned());
        nodes.push("b".to_owned());
        let mut links = String::new();
        for (link, ends) in (1..).zip(nodes.windows(2)) {
            let own = match link == self.position && !self.kind.is_shared() {
                true => format!(", rate = \"{} bit/s\"", self.rate as u64),
                false => String::new(),
            };
            writeln!(
                links,
                "  {{ ends = [\"{}\", \"{}\"]{own} }},",
                ends[0], ends[1]
            )?;
        }
        let mut hosts = vec!["a", "b"];
        if self.kind.is_shared() {
            let (before, behind) = self.ends();
            hosts.extend(["x", "y"]);
            for (host, router) in [("x", before), ("y", behind)] {
                writeln!(
                    links,
                    "  {{ ends = [\"{host}\", \"{router}\"], rate = \"1 Gbit/s\", delay = \"0 s\" }},"
                )?;
            }
        }
        let mut more = String::new();
        for (router, fault) in &self.faulty {
            writeln!(more, "[[router]]\non = \"r{router}\"\n{fault}")?;
        }
        let text = format!(
            "[topology]\nkind = \"custom\"\nhosts = {hosts:?}\nswitches = {routers:?}\n\
             links = {{ rate = \"100 Mbit/s\", delay = \"{} us\" }}\nlink = [\n{links}]\n\
             [switch]\nbuffer = \"{} packets\"\n{more}",
            self.delay, self.buffer
        );
        let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        let scenario = Scenario::parse_for(&text, &files, Substrate::Emulator)
            .map_err(|error| format!("{error}\n{text}"))?;
        Ok(Lab::up(&scenario, &Options::default())?)
    }

    /// Routers at both ends of the link, that behind it for the last link the last router: y is then not used.
    fn ends(&self) -> (String, String) {
        let behind = self.position.min(self.hops - 1);
        (format!("r{}", self.position - 1), format!("r{behind}"))
    }

    /// Starts the cross traffic.
    pub fn start_cross(&self, network: &Lab) -> Result<Option<Cross>, Box<dyn std::error::Error>> {
        if !self.kind.is_shared() {
            return Ok(None);
        }
        let sink = if self.position == self.hops { "b" } else { "y" };
        let sink = network.host(sink).ok_or("no sink")?;
        let to = (sink.ipv4(), 9_000);
        let source = network.host("x").ok_or("no source")?;
        let stop = Arc::new(AtomicBool::new(false));
        if self.kind == Kind::Tcp {
            let listener = sink.run(|| TcpListener::bind(to))??;
            let sender = source.run(|| TcpStream::connect(to))??;
            rustix::net::sockopt::set_tcp_congestion(&sender, "cubic")?;
            let (receiver, _) = listener.accept()?;
            let own = Arc::clone(&stop);
            std::thread::spawn(move || drain(receiver));
            let thread = std::thread::spawn(move || fill(sender, &own));
            return Ok(Some(Cross {
                stop,
                thread: Some(thread),
                _receiver: None,
            }));
        }
        let receiver = sink.run(|| UdpSocket::bind(to))??;
        let sender = source.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        sender.connect(to)?;
        let (rate, seed) = (self.rate, u64::from(self.position));
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || cross(&sender, rate, seed, &stop))
        };
        Ok(Some(Cross {
            stop,
            thread: Some(thread),
            _receiver: Some(receiver),
        }))
    }
}

/// Sends as much as TCP lets it.
fn fill(mut sender: TcpStream, stop: &AtomicBool) {
    let data = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) && sender.write_all(&data).is_ok() {}
}

/// Reads until the end.
fn drain(mut receiver: TcpStream) {
    let mut data = vec![0; 64 << 10];
    while receiver.read(&mut data).is_ok_and(|count| count > 0) {}
}

/// Packets at exponential intervals until it is stopped.
fn cross(sender: &UdpSocket, rate: f64, seed: u64, stop: &AtomicBool) {
    precise_timers();
    let payload = vec![0; CROSS_OCTETS - 28];
    let mean = CROSS_OCTETS as f64 * 8e9 / rate;
    let mut draw = Draw(seed);
    let mut due = monotonic() as f64;
    while sleep_until(due as i64, stop) {
        let _ = sender.send(&payload);
        let uniform = (draw.below(1 << 53) as f64 + 1.0) / (1u64 << 53) as f64;
        due -= uniform.ln() * mean;
    }
}

/// Cross traffic; it ends when dropped.
pub struct Cross {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _receiver: Option<UdpSocket>,
}

impl Drop for Cross {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
