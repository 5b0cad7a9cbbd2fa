// SPDX-License-Identifier: Apache-2.0
//! The command line.

use crate::lab::Lab;
use crate::options::{Answering, Observing, Since, duration, since};
use crate::sim::Sweeping;
use crate::trace::Trace;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  slowpath up                                   live verdicts on this machine, kept in a log
  slowpath watch dport = :443                   what limits each connection to port 443
  slowpath watch -- curl -sO https://example.org/file
  slowpath why 1234                             one answer for process 1234
  slowpath why db.example.org:5432 --for 10s    one answer for a peer
  slowpath report --since 1h --by application   the log's last hour
  slowpath sim scenarios/sim/incast.toml        a network, packet by packet
  slowpath trace capture.pcapng --html out.html  what a packet capture says, with graphs

What do you see?                                ask (docs/guide/symptoms.md has the answers)
  slow query, slow API, high response time      slowpath why postgres
  server hangs, no response                     slowpath why redis-server
  client does not read, slow consumer           slowpath why nginx
  connection refused, reset or timed out        slowpath why HOST:PORT
  no route to host, firewall                    slowpath why HOST:PORT
  backlog full, listen queue overflow           slowpath why :PORT
  packet loss, retransmissions, bufferbloat     slowpath why HOST
  slow upload, window or socket buffer small    slowpath why HOST
  chatty protocol, N+1 queries, 40 ms delays    slowpath why PROCESS
  it was slow an hour ago                       slowpath report --since 2h
  only a packet capture                         slowpath trace FILE

Exit status: 0 done; 1 the tool failed; 2 wrong usage; 3 problems found (with --exit-code).";

const FILTER_HELP: &str = "\
Filters are ss(8) expressions:
  state established dport = :443      dst 10.0.0.0/8 and not sport = :22
  ( dport = :https or sport = :https ) src [2001:db8::]/32
and these words: pid 1234, process nginx, process 'ngi*', problem Timeout.
As in ss, `and` and `or` group from the left: use parentheses where you mix them.
Quote the filter, or its parentheses, < > ! | and *, from the shell.";

/// Says why a connection is slow and who has to act: the sending application, the send
/// buffer, the network, or the receiver.
#[derive(Debug, Parser)]
#[command(name = "slowpath", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch this machine and keep a log: the main job
    Up(Up),
    /// Show live verdicts on connections, or on those of one command
    Watch(Watch),
    /// Watch this machine as a service: a log, no terminal
    Agent(Box<crate::agent::Agent>),
    /// Keep the logs of many machines, whose agents ship them here
    Server(Box<crate::server::Server>),
    /// Give one answer: what limits this process or peer
    Why(Why),
    /// Show verdicts over a time range, from the log
    Report(Report),
    /// Print the log as tables for other tools: CSV, JSON lines
    Export(crate::export::Export),
    /// Analyse a packet capture: verdicts, time-sequence graphs
    Trace(Box<Trace>),
    /// Measure what monitoring costs on this machine
    Overhead(Overhead),
    /// Measure the path to a peer: one-way delay, loss, reordering, hops
    Path(slowpath_path::command::PathCommand),
    /// Run a scenario in the packet-level simulator
    Sim(Sim),
    /// Reconstruct the queues of switches from the packets of hosts: who filled them, where packets were dropped
    Queues(Box<crate::queues::Queues>),
    /// Run networks for experiments: in real time, in virtual time, in a guest kernel
    #[command(subcommand)]
    Lab(Lab),
    /// Record connections of this machine for replay, by BPF
    Record(crate::record::Record),
    /// Run recorded connections again, each by itself, on real Linux TCP
    Replay(crate::replay::Replay),
    /// Show, join and shrink recordings
    #[command(subcommand)]
    Recording(crate::recording::Recorded),
    /// Say why messages of recorded connections were slow
    Explain(crate::explain::Explain),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the manual page
    Man(Manual),
}

/// `slowpath up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath up                     until Ctrl-C; then: slowpath report --since 10m
  slowpath up --for 30s --log /tmp/slow
The log is in /var/lib/slowpath for root, else in $XDG_STATE_HOME/slowpath
(~/.local/state/slowpath).")]
pub struct Up {
    /// Where to keep the log
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// Stop after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub length: Option<Duration>,
    /// Print lines instead of drawing the full screen
    #[arg(long)]
    pub lines: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub observing: Observing,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: Answering,
}

/// `slowpath watch`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  slowpath watch dport = :443
  slowpath watch --lines --for 1m process nginx
  slowpath watch -- curl -sO https://example.org/file

{FILTER_HELP}"))]
pub struct Watch {
    /// Which connections, as a filter of ss(8)
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Stop after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub length: Option<Duration>,
    /// Print lines instead of drawing the full screen
    #[arg(long)]
    pub lines: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub observing: Observing,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: Answering,
    /// Run this command and show its connections only, until it ends; its own exit
    /// status is reported, not passed on
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `slowpath why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath why nginx
  slowpath why db.example.org:5432 --for 10s
  slowpath why :5432 --exit-code --min-share 20     status 3 if one limit takes 20 % of the time

Targets:
  1234                 a process id
  10.0.0.1:5432        a peer; [2001:db8::1]:443 for IPv6; db.example.org:postgresql by name
  10.0.0.1             every connection to that host
  :443                 every connection from or to that port
  nginx                every process of that name, or every connection to the host of that name")]
pub struct Why {
    /// A process id, a process name, `HOST[:PORT]` or `:PORT`
    pub target: String,
    /// How long to observe
    #[arg(long = "for", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub length: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub observing: Observing,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: Answering,
}

/// `slowpath report`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  slowpath report --since 1h --by application
  slowpath report --since 1d --by unit             also: pod, container, port, peer, host
  slowpath report problem Timeout and dst 10.0.0.0/8
  slowpath report --since 1h --exit-code --problem Timeout,FastRetransmit --min-share 5
  slowpath report --tcp-info series.jsonl.zst

{FILTER_HELP}"))]
pub struct Report {
    /// Which connections, as a filter of ss(8)
    #[arg(value_name = "FILTER", conflicts_with = "tcp_info")]
    pub filter: Vec<String>,
    /// How far back: a duration (10m, 2h, 1d) or a moment (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = since)]
    pub since: Since,
    /// Where the log is
    #[arg(long, value_name = "DIR", conflicts_with = "tcp_info")]
    pub log: Option<PathBuf>,
    /// Add a table with one line for each of these groups
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "tcp_info")]
    pub by: Option<GroupArg>,
    /// Instead of the log, judge a series of tcp_info that another tool saved
    #[arg(long, value_name = "FILE")]
    pub tcp_info: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub answering: Answering,
}

/// `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupArg {
    /// The owner's command name
    Application,
    /// This host's address
    Host,
    /// The peer's address
    Peer,
    /// The owner's systemd unit
    Unit,
    /// The owner's container
    Container,
    /// The owner's Kubernetes pod
    Pod,
    /// The port of the service: that of the end that accepted the connection
    Port,
}

/// `slowpath overhead`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  slowpath overhead --for 30s --cpu-budget 1,2

The cost of each BPF program is the kernel's own count (the switch sysctl
kernel.bpf_stats_enabled, turned on for the time of the measurement only; it adds
about 20 ns to each run).")]
pub struct Overhead {
    /// How long to measure
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub length: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub observing: Observing,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// `slowpath sim`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath sim incast                               a scenario that comes with slowpath
  slowpath sim scenarios/sim/incast.toml --set switch.detour=true --html incast.html
  slowpath sim scenarios/sim/leaf-spine.toml --seed 7 --out results --json
  slowpath sim scenarios/sim/dumbbell.toml --set tcp.preset=dctcp --set 'switch.marking=20 packets'
  slowpath sim scenarios/sim/incast.toml --set 'workload[0].degree=20'
  slowpath sim scenarios/sim/lossless.toml --set switch.pfc=false --set 'switch.buffer=100 packets'
  slowpath sim scenarios/sim/dumbbell.toml --out dumbbell --pcap     then: slowpath trace dumbbell/left-0.pcap
  slowpath sim scenarios/sim/leaf-spine.toml --seeds 20 --out seeds
  slowpath sim scenarios/sim/leaf-spine.toml --seeds 20 --vary tcp.algorithm=dctcp,cubic --vary 'workload.load=0.1..0.8/8' --out sweep
A sweep (--seeds, --vary) writes one table of all its runs; the same command again goes on where an interrupted one ended.
docs/reference/simulator.md describes the scenario file, the tables and the report.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Sim {
    /// The scenario: a TOML file, or the name of one that comes with slowpath
    #[arg(required = true)]
    pub scenario: Option<PathBuf>,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Option<SimCommand>,
    /// Seed of everything random, instead of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Change a value of the scenario, or add it: switch.buffer='50 packets'
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sweeping: Sweeping,
    /// Write flows, queries, queues, links and counts into this directory, as Parquet files, in place of an earlier run's
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write those tables as CSV, too
    #[arg(long, requires = "out")]
    pub csv: bool,
    /// Also write the packets of each host into that directory, as HOST.pcap; --pcap='left-*' for some hosts only
    #[arg(
        long,
        value_name = "HOSTS",
        requires = "out",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "*"
    )]
    pub pcap: Option<String>,
    /// Write a report with plots, one file that needs nothing else, replacing it
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// No progress, and no summary
    #[arg(long)]
    pub quiet: bool,
}

/// What else `slowpath sim` does.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Compare runs that were made with --out: completion times side by side
    #[command(after_help = "\
Examples:
  slowpath sim scenarios/sim/leaf-spine.toml --out dctcp
  slowpath sim scenarios/sim/leaf-spine.toml --set tcp.preset=linux --out cubic
  slowpath lab virtual scenarios/sim/leaf-spine.toml --out kernel
  slowpath sim compare dctcp cubic kernel")]
    Compare(Compare),
}

/// `slowpath sim compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Directories of --out, of slowpath sim or slowpath lab virtual; ratios are to the first
    #[arg(value_name = "DIR", required = true, num_args = 2..)]
    pub runs: Vec<PathBuf>,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// `slowpath man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath man | man -l -
  slowpath man --pages /usr/local/share/man/man1")]
pub struct Manual {
    /// Write one page per command into this directory instead
    #[arg(long, value_name = "DIR")]
    pub pages: Option<PathBuf>,
}

/// `slowpath completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  slowpath completions bash > /usr/share/bash-completion/completions/slowpath")]
pub struct Completions {
    /// Which shell
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_filter_and_a_command_are_distinguished() {
        let cli = Cli::parse_from([
            "slowpath", "watch", "dport", "=", ":443", "--", "curl", "-s", "x",
        ]);
        let Command::Watch(watch) = cli.command else {
            panic!("not watch")
        };
        assert_eq!(watch.filter, ["dport", "=", ":443"]);
        assert_eq!(watch.command, ["curl", "-s", "x"]);
    }
}
