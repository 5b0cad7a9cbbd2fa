// SPDX-License-Identifier: Apache-2.0
//! `slowpath path throughput`.

use super::archive::{Archiver, Archiving};
use super::{CommandError, keys};
use crate::pscheduler::throughput_of;
use crate::report::text::moment;
use crate::requests::PORT;
use crate::requests::message::{Direction, StreamOptions};
use crate::socket::WallClock;
use crate::throughput::ndt7::{Ndt7Options, measure_ndt7};
use crate::throughput::{
    Iperf3Error, ThroughputOptions, ThroughputReport, measure_throughput, read_iperf3, report,
};
use clap::{Args, ValueEnum};
use std::io::{self, IsTerminal, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// With whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThroughputProtocol {
    /// `slowpath path serve`
    Slowpath,
    /// A server of M-Lab's ndt7; PEER is ws://HOST:PORT, wss://HOST or HOST
    Ndt7,
}

/// `slowpath path throughput`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath path throughput peer                       10 s of TCP to the peer, and what limited it
  slowpath path throughput peer --reverse             from the peer
  slowpath path throughput peer --streams 4 --congestion cubic --for 30s
  slowpath path throughput peer --pace 90M            at most 90 Mbit/s a stream
  slowpath path throughput --protocol ndt7 --reverse wss://ndt.example
  iperf3 -c peer --json | slowpath path throughput --iperf3 -
The peer runs `slowpath path serve` with this host in --allow.
docs/reference/path-throughput.md describes the numbers.")]
pub struct Throughput {
    /// A host, or HOST:PORT
    #[arg(value_name = "PEER", required_unless_present = "iperf3")]
    pub peer: Option<String>,
    /// Read a result of iperf3 (--json) instead of measuring; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "peer")]
    pub iperf3: Option<PathBuf>,
    /// With whom: another slowpath, or a server of ndt7
    #[arg(long, value_enum, default_value_t = ThroughputProtocol::Slowpath)]
    pub protocol: ThroughputProtocol,
    /// The peer sends
    #[arg(long)]
    pub reverse: bool,
    /// TCP connections
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub streams: u16,
    /// What counts, after the warm-up
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = seconds)]
    pub length: Duration,
    /// What passes before it counts; shown, but in no sum
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    pub warm_up: Duration,
    /// The sender's congestion control, such as cubic [default: its host's]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub buffers: Buffers,
    /// The largest segment (TCP_MAXSEG), octets
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(88..=32_767))]
    pub mss: Option<u32>,
    /// The most bits a second of each stream (SO_MAX_PACING_RATE), such as 90M
    #[arg(long, value_name = "RATE", value_parser = bits)]
    pub pace: Option<u64>,
    /// The peer's port, if PEER names none
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    pub v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    pub v6: bool,
    /// Connect from this address
    #[arg(short = 'S', value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// The name of the key
    #[arg(short = 'u', value_name = "NAME", requires = "keys")]
    pub user: Option<String>,
    /// The file with the keys: a line each, name and passphrase in hexadecimal
    #[arg(short = 'k', value_name = "FILE", requires = "user")]
    pub keys: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub archiving: Archiving,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Sizes of socket buffers.
#[derive(Debug, Args)]
pub struct Buffers {
    /// The sender's SO_SNDBUF and the receiver's SO_RCVBUF, octets [default: Linux sizes them]
    #[arg(long, value_name = "BYTES", value_parser = octets)]
    pub window: Option<u32>,
    /// The sender's SO_SNDBUF only
    #[arg(long, value_name = "BYTES", value_parser = octets, conflicts_with = "window")]
    pub send_buffer: Option<u32>,
    /// The receiver's SO_RCVBUF only
    #[arg(long, value_name = "BYTES", value_parser = octets, conflicts_with = "window")]
    pub receive_buffer: Option<u32>,
}

/// At least a second, at most an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(length) if (1..=3_600).contains(&length.as_secs()) => Ok(length),
        Ok(_) => Err("a test takes from 1s to 1h".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A number with `k`, `M` or `G`.
fn scaled(text: &str, thousand: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => thousand,
        "M" => thousand * thousand,
        "G" => thousand * thousand * thousand,
        _ => return Err("write a number, and k, M or G behind it if you like".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is no number"))?;
    number
        .checked_mul(factor)
        .filter(|number| *number > 0)
        .ok_or_else(|| "it is 0, or too large".to_owned())
}

/// Octets by powers of 1,024, as socket buffers are given.
fn octets(text: &str) -> Result<u32, String> {
    let octets = scaled(text, 1_024)?;
    // Linux doubles what it is given.
    u32::try_from(octets)
        .ok()
        .filter(|octets| *octets <= i32::MAX as u32 / 2)
        .ok_or_else(|| "a buffer has at most 1023M".to_owned())
}

/// Bits a second by powers of 1,000, as octets a second.
fn bits(text: &str) -> Result<u64, String> {
    scaled(text, 1_000).map(|bits| (bits / 8).max(1))
}

/// Does it.
pub(super) fn run(
    throughput: &Throughput,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let archiver = Archiver::new(&throughput.archiving, false)?;
    if let Some(file) = &throughput.iperf3 {
        if archiver.is_wanted() {
            let text = "--format and --archive are of a test of our own: leave out --iperf3";
            return Err(CommandError::Usage(text.to_owned()));
        }
        return of_iperf3(file, throughput.json, out);
    }
    let start = moment(WallClock::default().timestamp());
    if throughput.protocol == ThroughputProtocol::Ndt7 {
        let options = ndt7_options(throughput)?;
        announce(&options.server, 10.0);
        let report = measure_ndt7(&options, interrupted)?;
        return deliver(&report, throughput, (&archiver, start), out);
    }
    let options = options(throughput)?;
    let seconds = (options.warm_up + options.length).as_secs_f64() + 1.0;
    announce(&options.peer.to_string(), seconds);
    let report = measure_throughput(&options, interrupted)?;
    deliver(&report, throughput, (&archiver, start), out)
}

/// Prints the report, and gives it to those who were named.
fn deliver(
    report: &ThroughputReport,
    throughput: &Throughput,
    (archiver, start): (&Archiver, String),
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    if !archiver.prints() {
        write(report, throughput.json, out)?;
    }
    if archiver.is_wanted() {
        archiver.deliver(&[throughput_of(report, start)?], out)?;
    }
    Ok(())
}

/// Octets of a file of iperf3: an hour of 128 streams has 100 MB.
const MOST_OCTETS: u64 = 256 << 20;

fn of_iperf3(file: &Path, json: bool, out: &mut dyn Write) -> Result<(), CommandError> {
    let failed = |source: Iperf3FileError| CommandError::Iperf3 {
        file: file.to_owned(),
        source,
    };
    let text = match file == Path::new("-") {
        false => slowpath_files::read_text(file, MOST_OCTETS),
        true => {
            let mut text = String::new();
            let mut input = io::stdin().lock().take(MOST_OCTETS);
            input.read_to_string(&mut text).map(|_| text)
        }
    };
    let text = text.map_err(|error| failed(error.into()))?;
    let report = read_iperf3(&text).map_err(|error| failed(error.into()))?;
    Ok(write(&report, json, out)?)
}

/// Why a file of iperf3 is not reported.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3FileError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It has no result.
    #[error("{0}")]
    Result(#[from] Iperf3Error),
}

fn write(report: &ThroughputReport, json: bool, out: &mut dyn Write) -> io::Result<()> {
    match json {
        true => {
            serde_json::to_writer(&mut *out, report)?;
            writeln!(out)?;
        }
        false => out.write_all(report::text(report).as_bytes())?,
    }
    out.flush()
}

/// What takes more than two seconds says so to a terminal.
fn announce(peer: &str, seconds: f64) {
    if io::stderr().is_terminal() {
        eprintln!(
            "measuring with {} for {seconds:.0} s",
            slowpath_text::plain(peer)
        );
    }
}

fn ndt7_options(throughput: &Throughput) -> Result<Ndt7Options, CommandError> {
    if throughput.streams != 1 || throughput.user.is_some() {
        let text = "ndt7 has one stream and no keys: leave out --streams, -u and -k";
        return Err(CommandError::Usage(text.to_owned()));
    }
    if throughput.reverse && (throughput.congestion.is_some() || throughput.pace.is_some()) {
        let text = "with --reverse the server of ndt7 sends, and chooses: leave out --congestion and --pace";
        return Err(CommandError::Usage(text.to_owned()));
    }
    Ok(Ndt7Options {
        server: throughput.peer.clone().unwrap_or_default(),
        local: throughput.source,
        direction: direction(throughput),
        options: StreamOptions {
            congestion: throughput.congestion.clone(),
            send_buffer: throughput.buffers.send_buffer.or(throughput.buffers.window),
            receive_buffer: throughput
                .buffers
                .receive_buffer
                .or(throughput.buffers.window),
            mss: throughput.mss,
            pace: throughput.pace,
        },
    })
}

fn direction(throughput: &Throughput) -> Direction {
    match throughput.reverse {
        true => Direction::Back,
        false => Direction::There,
    }
}

fn options(throughput: &Throughput) -> Result<ThroughputOptions, CommandError> {
    let sender = StreamOptions {
        congestion: throughput.congestion.clone(),
        send_buffer: throughput.buffers.send_buffer.or(throughput.buffers.window),
        receive_buffer: None,
        mss: throughput.mss,
        pace: throughput.pace,
    };
    let receiver = StreamOptions {
        receive_buffer: throughput
            .buffers
            .receive_buffer
            .or(throughput.buffers.window),
        // The smaller of both ends' segments counts: a receiver announces its own.
        mss: throughput.mss,
        ..StreamOptions::default()
    };
    Ok(ThroughputOptions {
        peer: resolve(throughput)?,
        local: throughput.source,
        credentials: keys::named(throughput.user.as_deref(), throughput.keys.as_deref())?,
        direction: direction(throughput),
        streams: throughput.streams,
        length: throughput.length,
        warm_up: throughput.warm_up,
        sender,
        receiver,
    })
}

fn resolve(throughput: &Throughput) -> Result<SocketAddr, CommandError> {
    let peer = throughput.peer.as_deref().unwrap_or_default();
    let failed = |source| CommandError::Resolve {
        name: peer.to_owned(),
        source,
    };
    let bare = peer.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = match bare.parse() {
        Ok(address) => vec![SocketAddr::new(address, throughput.port)],
        Err(_) => match peer.to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(_) => (peer, throughput.port)
                .to_socket_addrs()
                .map_err(failed)?
                .collect(),
        },
    };
    let wanted = |address: &&SocketAddr| {
        !(throughput.v4 && address.is_ipv6() || throughput.v6 && address.is_ipv4())
    };
    let none = "it has none of this family";
    addresses
        .iter()
        .find(wanted)
        .copied()
        .ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, none)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_have_their_letters() {
        assert_eq!(octets("64k"), Ok(65_536));
        assert_eq!(octets("1000"), Ok(1_000));
        assert_eq!(bits("90M"), Ok(11_250_000));
        assert_eq!(bits("1G"), Ok(125_000_000));
        for wrong in ["", "k", "4x", "0", "-1", "1.5M", "99999999999G", "64kB"] {
            assert!(octets(wrong).is_err() && bits(wrong).is_err(), "{wrong}");
        }
        assert!(octets("2G").is_err());
        assert!(seconds("999ms").is_err() && seconds("2h").is_err() && seconds("10s").is_ok());
    }
}
