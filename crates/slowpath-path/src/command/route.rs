// SPDX-License-Identifier: Apache-2.0
//! `slowpath path route`.

use super::archive::{Archiver, Archiving};
use super::{CommandError, keys};
use crate::pscheduler::trace_of;
use crate::report::text::moment;
use crate::requests::{PORT, Requester};
use crate::route::result::Ecn;
use crate::route::{Engine, Route, Step, TraceOptions, text, trace};
use crate::socket::WallClock;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// With what the way is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RouteProtocol {
    /// UDP with constant ports in each flow (Paris traceroute): all ways, the MTU; needs no privilege
    Udp,
    /// UDP as the first traceroute had it: each probe to another port
    UdpClassic,
    /// UDP whose probes differ by the IP identification (Dublin traceroute)
    UdpDublin,
    /// TCP SYN
    Tcp,
    /// ICMP echo
    Icmp,
}

/// ECN of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EcnChoice {
    /// 00
    NotEct,
    /// 01
    Ect1,
    /// 10
    Ect0,
    /// 11
    Ce,
}

/// `slowpath path route`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath path route 192.0.2.7                       every hop and way, loss, MTU, where ECN and DSCP change
  slowpath path route peer --for 60s                  also what changes within a minute
  slowpath path route peer --confidence 0.99          more flows, so that a way is missed more rarely
  slowpath path route peer --protocol tcp --port 443  as a web client's packets go (needs CAP_NET_RAW)
  slowpath path route peer --from-peer                also from there to here; `slowpath path serve` runs there
  slowpath path route peer --json
UDP needs no privilege; quoted headers (ECN, DSCP) and the other protocols need CAP_NET_RAW.
docs/reference/path-route.md describes the numbers.")]
pub struct RouteArgs {
    /// A host
    #[arg(value_name = "PEER")]
    pub peer: String,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    pub v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    pub v6: bool,
    /// Send from this address
    #[arg(short = 'S', value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// What is sent
    #[arg(long, value_enum, default_value_t = RouteProtocol::Udp)]
    pub protocol: RouteProtocol,
    /// The peer's port [default: 33434; TCP: 443]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The most hops
    #[arg(long, value_name = "HOPS", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub max_ttl: u8,
    /// How sure it is to be that no way was missed, 0.5 to 0.9999
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub confidence: f64,
    /// Rounds after the search for all ways
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=3_600))]
    pub rounds: u32,
    /// Repeat rounds for so long, one a second, and say what changed
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with = "rounds")]
    pub repeat_for: Option<Duration>,
    /// Probes a second
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rate: u32,
    /// Echo requests by which loss is measured; 0: none
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub echo: u32,
    /// DSCP of the probes whose quoted headers are compared
    #[arg(long, value_name = "DSCP", default_value_t = 46, value_parser = clap::value_parser!(u8).range(..=63))]
    pub dscp: u8,
    /// ECN of the same
    #[arg(long, value_enum, default_value_t = EcnChoice::Ect0)]
    pub ecn: EcnChoice,
    /// Send no probes with DSCP and ECN
    #[arg(long)]
    pub no_marks: bool,
    /// Do not search for the path MTU
    #[arg(long)]
    pub no_mtu: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub back: FromPeer,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub archiving: Archiving,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The route from the peer to here.
#[derive(Debug, Args)]
pub struct FromPeer {
    /// Ask the peer, where `slowpath path serve` runs, for the route from there to here as well
    #[arg(long)]
    pub from_peer: bool,
    /// The port at which it answers requests
    #[arg(long, value_name = "PORT", default_value_t = PORT, requires = "from_peer", value_parser = clap::value_parser!(u16).range(1..))]
    pub peer_port: u16,
    /// The name of the key
    #[arg(short = 'u', value_name = "NAME", requires_all = ["keys", "from_peer"])]
    pub user: Option<String>,
    /// The file with the keys: a line each, name and passphrase in hexadecimal
    #[arg(short = 'k', value_name = "FILE", requires = "user")]
    pub keys: Option<PathBuf>,
}

/// Does it.
pub(super) fn run(
    route: &RouteArgs,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let target = resolve(route)?;
    let terminal = io::stderr().is_terminal();
    let mut progress = |step: Step| {
        if terminal {
            eprintln!("{}", step_text(step));
        }
    };
    let options = options(route)?;
    let archiver = Archiver::new(&route.archiving, false)?;
    let peer = (route.peer.as_str(), target);
    let (start, begin) = (moment(WallClock::default().timestamp()), Instant::now());
    let found = trace(&options, peer, interrupted, &mut progress)?;
    let took = begin.elapsed();
    let back = match route.back.from_peer {
        false => None,
        true => {
            if terminal {
                eprintln!("waiting for the route from the peer …");
            }
            Some(from_peer(route, &options, target, interrupted)?)
        }
    };
    if !archiver.prints() {
        write(&found, back.as_ref(), route.json, out)?;
    }
    if archiver.is_wanted() {
        archiver.deliver(&[trace_of(&found, &options, (start, took))?], out)?;
    }
    Ok(())
}

/// The route from the peer to this host.
fn from_peer(
    route: &RouteArgs,
    options: &TraceOptions,
    target: IpAddr,
    interrupted: &AtomicBool,
) -> Result<Route, CommandError> {
    let credentials = keys::named(route.back.user.as_deref(), route.back.keys.as_deref())?;
    let requester = Requester {
        peer: SocketAddr::new(target, route.back.peer_port),
        local: route.source,
        credentials: credentials.as_ref(),
        interrupted,
    };
    Ok(requester.route(options)?)
}

/// Routes there and back: the one from the peer is `from_peer` of the other.
#[derive(Serialize)]
struct WithReturn<'a> {
    #[serde(flatten)]
    there: &'a Route,
    from_peer: &'a Route,
}

fn write(there: &Route, back: Option<&Route>, json: bool, out: &mut dyn Write) -> io::Result<()> {
    match (json, back) {
        (true, None) => {
            serde_json::to_writer(&mut *out, there)?;
            writeln!(out)?;
        }
        (true, Some(from_peer)) => {
            serde_json::to_writer(&mut *out, &WithReturn { there, from_peer })?;
            writeln!(out)?;
        }
        (false, back) => {
            out.write_all(text::route(there).as_bytes())?;
            if let Some(back) = back {
                writeln!(out, "\nFrom {} to here:", there.peer)?;
                out.write_all(text::route(back).as_bytes())?;
            }
        }
    }
    out.flush()
}

fn step_text(step: Step) -> &'static str {
    match step {
        Step::Ways => "searching all ways …",
        Step::Rounds => "repeating them, and asking the peer for echo replies …",
        Step::Loss => "looking where the loss begins …",
        Step::Marks => "comparing quoted headers …",
        Step::Mtu => "searching the path MTU …",
    }
}

fn options(route: &RouteArgs) -> Result<TraceOptions, CommandError> {
    if !(0.5..=0.9999).contains(&route.confidence) {
        let text = format!(
            "a confidence of {} cannot be: write 0.5 to 0.9999",
            route.confidence
        );
        return Err(CommandError::Usage(text));
    }
    Ok(TraceOptions {
        engine: match route.protocol {
            RouteProtocol::Udp => Engine::Udp,
            RouteProtocol::UdpClassic => Engine::UdpClassic,
            RouteProtocol::UdpDublin => Engine::UdpDublin,
            RouteProtocol::Tcp => Engine::Tcp,
            RouteProtocol::Icmp => Engine::Icmp,
        },
        source: route.source,
        port: route.port,
        max_ttl: route.max_ttl,
        confidence: route.confidence,
        rounds: route.rounds,
        repeat_for: route.repeat_for,
        rate: route.rate,
        loss_probes: route.echo,
        mtu: !route.no_mtu,
        dscp: route.dscp,
        ecn: match route.ecn {
            EcnChoice::NotEct => Ecn::NotEct,
            EcnChoice::Ect1 => Ecn::Ect1,
            EcnChoice::Ect0 => Ecn::Ect0,
            EcnChoice::Ce => Ecn::Ce,
        },
        marks: !route.no_marks,
    })
}

/// The peer's address: of a name the first of the wanted family.
fn resolve(route: &RouteArgs) -> Result<IpAddr, CommandError> {
    let failed = |source| CommandError::Resolve {
        name: route.peer.clone(),
        source,
    };
    let bare = route.peer.trim_start_matches('[').trim_end_matches(']');
    let found: Vec<IpAddr> = match bare.parse() {
        Ok(address) => vec![address],
        Err(_) => {
            let found = (bare, 0).to_socket_addrs().map_err(failed)?;
            found.map(|address| address.ip()).collect()
        }
    };
    let v4 = route.v4 || route.source.is_some_and(|source| source.is_ipv4());
    let v6 = route.v6 || route.source.is_some_and(|source| source.is_ipv6());
    let fits = |address: &&IpAddr| !(v4 && address.is_ipv6() || v6 && address.is_ipv4());
    found.iter().find(fits).copied().ok_or_else(|| {
        let why = "it has none of this family";
        failed(io::Error::new(io::ErrorKind::NotFound, why))
    })
}
