// SPDX-License-Identifier: Apache-2.0
//! `slowpath agent`: the agent as a service, without a terminal.
//!
//! What enters: a configuration file and options ([`Settings`]: every key of the file is
//! also an option, and the option wins), signals, and what systemd says in the environment.
//! What leaves: the log, and the agent's own life as lines on standard error
//! ([`slowpath_agent::service`]).
//!
//! What is promised: SIGTERM and SIGINT end it with the log closed and nothing lost;
//! SIGUSR1 keeps what is recorded; SIGHUP re-reads the file, applies what can be changed while
//! the agent runs and reports what cannot; a wrong configuration is refused with file and
//! line, also on a reload, which then changes nothing.

mod exporters;
mod file;
mod recording;
mod service;
mod settings;

pub use recording::{RecordSelection, RecordSettings, Recording};
pub use service::run;
pub use settings::{Effective, Settings};

use clap::Args;
use std::path::PathBuf;

/// `slowpath agent`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath agent --config /etc/slowpath/agent.toml
  slowpath agent --log /var/lib/slowpath --interval 1s --retention-age 30d
  slowpath agent --config agent.toml --check     check the file and print what would hold
  slowpath agent --record problems               keep recordings of connections with problems
  slowpath agent --record 'dport = :5432 and problem = Timeout' --record-to /var/tmp/recordings

Each key of the file is an option without its dashes; an option wins over the file.
SIGHUP re-reads the file; SIGUSR1 writes every recording that the ring holds to a file.
docs/reference/agent.md describes the keys.")]
pub struct Agent {
    /// Read the configuration from this file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the configuration that would hold, and exit
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub settings: Settings,
}
