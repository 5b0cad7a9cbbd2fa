// SPDX-License-Identifier: Apache-2.0
//! `slowpath path loss`.

use super::arguments::{Ends, Protocol};
use super::{CommandError, keys, owd};
use crate::signature::{LossOptions, LossProtocol, LossReport, measure_loss};
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// `slowpath path loss`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath path loss peer                                  a minute, both directions, by OWAMP
  slowpath path loss peer --for 5m --json                  smaller shares of loss
  slowpath path loss peer --max-rate 90000000              a policer of up to 90 Mbit/s
  slowpath path loss router --protocol stamp --size 1280   a router that reflects STAMP
It sends up to --max-rate for some seconds of each minute, about 30 MB in each direction.
The peer runs `slowpath path serve`, owampd, twampd, or reflects STAMP.
docs/reference/path-loss.md describes the kinds of loss and the tests.")]
pub struct Loss {
    /// A host, or HOST:PORT
    #[arg(value_name = "PEER")]
    pub peer: String,
    /// How long it may take in all
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub length: Duration,
    /// The most bits a second that each end sends
    #[arg(long, value_name = "BITS", default_value_t = 50_000_000)]
    pub max_rate: u64,
    /// Octets of a full packet, IP header included
    #[arg(long, value_name = "OCTETS", default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(576..=9_000))]
    pub size: u32,
    /// A packet that takes longer is lost, seconds
    #[arg(short = 'L', value_name = "SECONDS", default_value_t = 2.0)]
    pub timeout: f64,
    /// Modes that are acceptable: A authenticated, E encrypted, M mixed (TWAMP), O open
    #[arg(short = 'A', value_name = "MODES", default_value = "O")]
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
    #[command(flatten)]
    #[allow(missing_docs)]
    pub ends: Ends,
    /// The protocol
    #[arg(long, value_enum, default_value_t = Protocol::Owamp)]
    pub protocol: Protocol,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Does it.
pub(super) fn run(
    loss: &Loss,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let options = options(loss)?;
    let plan = options
        .plan()
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    if std::io::stderr().is_terminal() {
        let (seconds, bytes) = (loss.length.as_secs(), plan.octets() as f64 / 1e6);
        eprintln!("measuring for up to {seconds} s; {bytes:.0} MB in each direction");
    }
    let outcome = measure_loss(&options, interrupted)?;
    let report = LossReport::of(&loss.peer, &outcome);
    match loss.json {
        true => {
            serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        false => out.write_all(report.text().as_bytes())?,
    }
    out.flush()?;
    Ok(())
}

fn options(loss: &Loss) -> Result<LossOptions, CommandError> {
    let (timeout, kind) = (owd::timeout(loss.timeout)?, owd::kind(loss.protocol));
    let credentials = keys::named(loss.user.as_deref(), loss.keys.as_deref())?;
    let peer = owd::resolve(&loss.peer, &loss.ends, loss.protocol)?;
    let modes = match credentials {
        Some(_) if loss.modes == "O" => owd::modes("AE")?,
        _ => owd::modes(&loss.modes)?,
    };
    let protocol = kind.map_or(LossProtocol::OneWay, LossProtocol::Reflected);
    let seed = u64::from_be_bytes(crate::session::random()?);
    Ok(LossOptions {
        test: owd::test_options(peer, &loss.ends, (timeout, loss.dscp), (modes, credentials)),
        whole: loss.length,
        full: loss.size,
        max_rate: loss.max_rate,
        ..LossOptions::new(peer, protocol, seed)
    })
}
