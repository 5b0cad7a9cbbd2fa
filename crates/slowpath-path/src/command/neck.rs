// SPDX-License-Identifier: Apache-2.0
//! `slowpath path neck`.

use super::CommandError;
use crate::neck::{NeckOptions, measure, report};
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;

/// `slowpath path neck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath path neck 192.0.2.7                     the link that limits the path, its rate, and how certain that is
  slowpath path neck -6 peer.example --json        one object, for programs
  slowpath path neck peer --max-rate 50000000      never load the path with more than 50 Mbit/s
  slowpath path neck peer --load-packets 30        shorter trains, for small buffers
It needs root or CAP_NET_RAW, and nothing of the peer. By default it sends mostly 10 MB, and 14 MB at
most, in about ten seconds: sixteen trains, then eight bursts of load just above the rate of the neck, of 1 MB
and 120 ms at most each.
docs/reference/path-neck.md describes the methods and the numbers.")]
pub struct NeckArguments {
    /// A host, by name or address
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
    /// Trains that are sent at once; two thirds as many follow at a lower rate
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub trains: u32,
    /// Packets of load in a train [default: 60, more on fast paths, less where buffers are small]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub load_packets: Option<u32>,
    /// Octets of a load packet, IP header included
    #[arg(long, value_name = "OCTETS", default_value_t = 1_400, value_parser = clap::value_parser!(u16).range(200..=9000))]
    pub size: u16,
    /// The most bits a second of the load; a train is sent at once
    #[arg(long, value_name = "BITS", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    pub max_rate: u64,
    /// The furthest hop to look for
    #[arg(long, value_name = "HOPS", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub max_ttl: u8,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Does it.
pub(super) fn run(
    neck: &NeckArguments,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let options = NeckOptions {
        name: neck.peer.clone(),
        peer: resolve(neck)?,
        source: neck.source,
        trains: neck.trains,
        load_packets: neck.load_packets,
        size: usize::from(neck.size),
        max_rate_bps: neck.max_rate,
        max_ttl: neck.max_ttl,
    };
    if neck
        .source
        .is_some_and(|source| source.is_ipv4() != options.peer.is_ipv4())
    {
        let text = format!("-S is of another family than {}", options.peer);
        return Err(CommandError::Usage(text));
    }
    let shown = io::stderr().is_terminal();
    let progress = |doing: &str| {
        if shown {
            eprintln!("{}: {doing}", options.name);
        }
    };
    let found = measure(&options, interrupted, &progress)?;
    if neck.json {
        serde_json::to_writer(&mut *out, &found).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(report::text(&found).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// The peer's address: of a name the first of the wanted family.
fn resolve(neck: &NeckArguments) -> Result<IpAddr, CommandError> {
    let failed = |source| CommandError::Resolve {
        name: neck.peer.clone(),
        source,
    };
    let bare = neck.peer.trim_start_matches('[').trim_end_matches(']');
    let addresses = (bare, 0).to_socket_addrs().map_err(failed)?;
    let wanted = |ip: &IpAddr| !(neck.v4 && ip.is_ipv6() || neck.v6 && ip.is_ipv4());
    let mut addresses = addresses.map(|address| address.ip()).filter(wanted);
    addresses.next().ok_or_else(|| {
        failed(io::Error::new(
            io::ErrorKind::NotFound,
            "it has none of this family",
        ))
    })
}
