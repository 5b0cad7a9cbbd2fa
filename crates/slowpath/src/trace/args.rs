// SPDX-License-Identifier: Apache-2.0
//! The arguments of `slowpath trace`.

use crate::options::{duration, share};
use clap::Args;
use slowpath_model::did_you_mean;
use slowpath_trace::report::ConnectionSelector;
use slowpath_trace::verdict::{TraceFinding, TraceProblem};
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
  slowpath trace ring.pcapng --connection 3 --long  everything about one connection
  slowpath trace ring.pcapng --annotate out.pcapng  our findings as comments for Wireshark
  slowpath trace sender.pcap --pair receiver.pcap  true loss and one-way times between two ends
  slowpath trace ring.pcapng --exit-code --problem Timeout --min-share 5   status 3 for such timeouts

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
    /// Write one HTML page with zoomable graphs, in which each finding leads to its packets, replacing it
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the graph of the worst connection, or of the chosen one, as SVG, replacing it
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write graphs for xplot into this directory, named as tcptrace -G names them, in place of an earlier run's
    #[arg(long, value_name = "DIR")]
    pub xpl: Option<PathBuf>,
    /// Write the capture as pcapng with comments on the packets that decided a finding, replacing it; not one of FILE
    #[arg(long, value_name = "FILE")]
    pub annotate: Option<PathBuf>,
    /// Write one connection's packets as pcapng, replacing it; not one of FILE
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
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// Exit with status 3 if a problem was found
    #[arg(long)]
    pub exit_code: bool,
    /// With --exit-code: only if it took this part of a connection's time or more, as in 5%
    #[arg(long, value_name = "PERCENT", requires = "exit_code", value_parser = share)]
    pub min_share: Option<f64>,
    /// With --exit-code: only if it is one of these, as in Timeout,Refused
    #[arg(
        long = "problem",
        value_name = "NAME[,NAME...]",
        requires = "exit_code",
        value_delimiter = ',',
        value_parser = problem
    )]
    pub problems: Vec<TraceProblem>,
}

impl Trace {
    /// The connections that are named. What cannot be read is said where it is used.
    pub fn named(&self) -> impl Iterator<Item = ConnectionSelector> {
        let extracted = self.extract.as_ref().and_then(|e| e.first()?.parse().ok());
        self.connection.into_iter().chain(extracted)
    }

    /// Whether only some problems count for the exit status.
    pub fn selects_findings(&self) -> bool {
        self.min_share.is_some() || !self.problems.is_empty()
    }

    /// Whether the finding counts for the exit status. Only a problem that was named counts if
    /// nothing waited for it; a connection that failed has failed for all of its time.
    pub fn counts(&self, finding: &TraceFinding) -> bool {
        let named = match self.problems.as_slice() {
            [] => !finding.problem.is_harmless(),
            problems => problems.contains(&finding.problem),
        };
        let least = self.min_share.unwrap_or(0.0);
        named && (finding.share >= least || finding.problem.is_failure())
    }
}

fn problem(text: &str) -> Result<TraceProblem, String> {
    let mut all = TraceProblem::ALL.into_iter();
    let named = all.find(|p| p.name().eq_ignore_ascii_case(text.trim()));
    named.ok_or_else(|| {
        let names = TraceProblem::ALL.map(TraceProblem::name);
        let known = did_you_mean(text, &names);
        format!("there is no problem {text:?}{known}")
    })
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be listed; give 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}; give 1 or more")),
    }
}
