// SPDX-License-Identifier: Apache-2.0
//! The arguments of `slowpath trace`.

use crate::options::{Answering, duration};
use clap::Args;
use slowpath_trace::report::ConnectionSelector;
use std::path::PathBuf;
use std::time::Duration;

/// `slowpath trace`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath trace ring.pcapng                       what limits each connection, worst first
  slowpath trace ring.pcap0 ring.pcap1 ring.pcap2  a ring buffer's files as one capture
  tcpdump -w - -s 128 | slowpath trace -           from a pipe
  slowpath trace --interface eth0 --duration 10s   live
  slowpath trace ring.pcapng --html ring.html      time-sequence graphs, in any browser
  slowpath trace ring.pcapng --connection 3 --long everything about one connection
  slowpath trace ring.pcapng --annotate out.pcapng our findings as comments for Wireshark
  slowpath trace sender.pcap --pair receiver.pcap  true loss and one-way times between two ends

A connection is named by its number in the list, or by its ends: 10.0.0.1:40000-10.0.0.2:443,
either end first; [2001:db8::1]:443 for IPv6.
Filters are those of pcap-filter(7): 'host 10.0.0.1 and tcp port 443'.")]
pub struct Trace {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` is standard input; several count as one
    #[arg(
        value_name = "FILE",
        required_unless_present = "interface",
        conflicts_with = "interface"
    )]
    pub files: Vec<PathBuf>,
    /// Capture on this interface instead of reading files
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Stop the capture after this time; without it, at Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Only packets that this pcap-filter expression selects
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Only this connection: its number, or A:PORT-B:PORT
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<ConnectionSelector>,
    /// How many connections to list and draw
    #[arg(long, value_name = "N", default_value = "10", value_parser = at_least_one)]
    pub top: usize,
    /// Print every figure of each of them
    #[arg(long, conflicts_with = "csv")]
    pub long: bool,
    /// Print comma-separated values, one line per connection
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Write one HTML page with zoomable graphs, in which each finding leads to its packets
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the graph of the worst connection, or of the chosen one, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write graphs for xplot into this directory, named as tcptrace -G names them
    #[arg(long, value_name = "DIR")]
    pub xpl: Option<PathBuf>,
    /// Write the capture as pcapng with comments on the packets that decided a finding
    #[arg(long, value_name = "FILE")]
    pub annotate: Option<PathBuf>,
    /// Write one connection's packets as pcapng
    #[arg(long, num_args = 2, value_names = ["CONNECTION", "FILE"])]
    pub extract: Option<Vec<String>>,
    /// Compare with the counters of the same time in this slowpath log
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// The other end's capture of the same connections
    #[arg(long, value_name = "FILE")]
    pub pair: Option<PathBuf>,
    /// Look for TCP inside VXLAN, Geneve, GRE and IP in IP
    #[arg(long)]
    pub tunnels: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: Answering,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be listed; give 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}; give 1 or more")),
    }
}
