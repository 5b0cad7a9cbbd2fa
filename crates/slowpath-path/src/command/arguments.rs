// SPDX-License-Identifier: Apache-2.0
//! The arguments of `slowpath path`.

use crate::schedule::Slots;
use crate::serve::Cidr;
use crate::socket::PortRange;
use clap::{Args, Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// `slowpath path`.
#[derive(Debug, Args)]
pub struct PathCommand {
    /// What to do.
    #[command(subcommand)]
    pub action: PathAction,
}

/// What is measured, or answered.
#[derive(Debug, Subcommand)]
pub enum PathAction {
    /// Measure one-way delay, loss, reordering and hops to and from a peer
    Owd(Box<Owd>),
    /// Find the link that limits a path, and its rate
    Neck(Box<super::neck::NeckArguments>),
    /// Trace the route: every way, loss that is loss, the path MTU, where ECN and DSCP change
    Route(Box<super::RouteArgs>),
    /// Find out what kind of loss a path has
    Loss(Box<super::loss::Loss>),
    /// Measure several peers all the time, and serve metrics for Prometheus
    Mesh(Box<super::mesh::MeshArguments>),
    /// Measure what TCP carries to or from a peer, and what limits it
    Throughput(Box<super::throughput::Throughput>),
    /// Answer measurements of others: OWAMP, TWAMP, STAMP, throughput
    Serve(Box<Serve>),
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// RFC 4656: both directions each by itself
    Owamp,
    /// RFC 5357: the peer reflects, with a control connection
    Twamp,
    /// The same without a control connection
    TwampLight,
    /// RFC 8762 and RFC 8972
    Stamp,
}

/// What can be taken out of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Correction {
    /// The clocks' difference
    Offset,
    /// Their different speed
    Skew,
    /// Steps of a clock in mid-session
    Steps,
}

/// Between which addresses.
#[derive(Debug, Args)]
pub struct Ends {
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    pub v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    pub v6: bool,
    /// Send from this address
    #[arg(short = 'S', value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// Use these ports for test packets, such as 8760-9960
    #[arg(short = 'P', value_name = "FIRST-LAST")]
    pub ports: Option<PortRange>,
}

/// `slowpath path owd`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath path owd 192.0.2.7                               100 packets each way, by OWAMP
  slowpath path owd peer -c 10000 -i 1.0e,0f,0f,0f -L 20    trains of four, a second from each other
  slowpath path owd peer -t --save there.owp                one way, kept as owstats reads it
  slowpath path owd peer --protocol stamp -c 600 -i 0.1f    a router that reflects STAMP
  slowpath path owd peer --rolling 60s --json               for hours, a line a minute and direction
  slowpath path owd peer --archive https://archive/results  posted as pScheduler posts its results
The peer runs `slowpath path serve`, owampd, twampd, or reflects STAMP.
docs/reference/path.md describes the numbers.")]
pub struct Owd {
    /// A host, or HOST:PORT
    #[arg(value_name = "PEER")]
    pub peer: String,
    /// Packets in each direction [default: 100; without end with --rolling]
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub count: Option<u32>,
    /// The schedule: seconds, `e` exponential or `f` fixed, separated by commas
    #[arg(short = 'i', value_name = "SCHEDULE", default_value = "0.1e")]
    pub interval: Slots,
    /// Octets of padding in each packet
    #[arg(short = 's', value_name = "OCTETS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=65_000))]
    pub padding: u16,
    /// A packet that takes longer is lost, seconds
    #[arg(short = 'L', value_name = "SECONDS", default_value_t = 10.0)]
    pub timeout: f64,
    /// Measure to the peer only
    #[arg(short = 't', conflicts_with = "from")]
    pub to: bool,
    /// Measure from the peer only
    #[arg(short = 'f')]
    pub from: bool,
    /// Modes that are acceptable: A authenticated, E encrypted, M mixed (TWAMP), O open
    #[arg(short = 'A', value_name = "MODES", default_value = "AEO")]
    pub modes: String,
    /// The name of the key
    #[arg(short = 'u', value_name = "NAME", requires = "keys")]
    pub user: Option<String>,
    /// The file with the keys: a line each, name and passphrase in hexadecimal
    #[arg(short = 'k', value_name = "FILE", requires = "user")]
    pub keys: Option<PathBuf>,
    /// DSCP of the packets: a number below 64
    #[arg(short = 'D', value_name = "DSCP", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=63))]
    pub dscp: u8,
    /// Percentiles of the delay to print
    #[arg(short = 'a', value_name = "PERCENT,…", value_delimiter = ',')]
    pub percentiles: Vec<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub ends: Ends,
    /// The protocol
    #[arg(long, value_enum, default_value_t = Protocol::Owamp)]
    pub protocol: Protocol,
    /// Keep the packets in owamp's session file; both directions: FILE.there and FILE.back; such files are replaced
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Print each packet instead of a summary; with --format, each packet as well
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub archiving: super::archive::Archiving,
    /// Report each stretch of this length by itself, until -c packets or a signal
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["save", "raw"])]
    pub rolling: Option<Duration>,
    /// Take these out of the delays, where both directions show them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,…")]
    pub correct: Vec<Correction>,
}

/// `slowpath path serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath path serve --allow 192.0.2.0/24     answer that network on ports 861, 862 and 8863
  slowpath path serve --allow 0.0.0.0/0 --key keys --modes AE
  slowpath path serve --allow ::1 --listen [::1]:8861 --once
Without --allow only this machine is answered. Nothing goes to an address that did not ask.")]
pub struct Serve {
    /// Answer these addresses, and no others
    #[arg(long, value_name = "CIDR", num_args = 1..)]
    pub allow: Vec<Cidr>,
    /// The file with the keys: a line each, name and passphrase in hexadecimal
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Modes to offer: A authenticated, E encrypted, M mixed (TWAMP), O open
    #[arg(long, value_name = "MODES", default_value = "AEMO")]
    pub modes: String,
    /// Where OWAMP is answered [default: port 861 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 1..)]
    pub listen: Vec<SocketAddr>,
    /// Where TWAMP is answered [default: port 862 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 1..)]
    pub listen_twamp: Vec<SocketAddr>,
    /// Where STAMP and TWAMP light are answered [default: UDP port 862 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 1..)]
    pub listen_stamp: Vec<SocketAddr>,
    /// Where requests of other slowpaths are answered (`path throughput`) [default: port 8863 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 1..)]
    pub listen_requests: Vec<SocketAddr>,
    /// Use these ports for test packets, such as 8760-9960
    #[arg(long, value_name = "FIRST-LAST")]
    pub ports: Option<PortRange>,
    /// End after the first measurement
    #[arg(long)]
    pub once: bool,
    /// The most bits a second of one session
    #[arg(long, value_name = "BITS", default_value_t = 100_000_000)]
    pub max_rate: u64,
    /// The most octets of padding in a packet
    #[arg(long, value_name = "OCTETS", default_value_t = 8_972)]
    pub max_padding: u32,
    /// The most packets of a session
    #[arg(long, value_name = "PACKETS", default_value_t = 1_000_000)]
    pub max_packets: u32,
    /// The most connections of one peer at a time
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    pub max_sessions: usize,
    /// The most seconds of a throughput test; 0: none are answered
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub max_throughput_seconds: u64,
}

/// `90s`, `5m`: at least a second.
fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration >= Duration::from_secs(1) => Ok(duration),
        Ok(_) => Err("a stretch is at least 1s long".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
