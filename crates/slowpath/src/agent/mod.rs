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

mod file;
mod recording;
mod service;
mod settings;
mod shipping;

pub use recording::{RecordSelection, RecordSettings, Recording};
pub use settings::{Effective, Settings};
pub use shipping::ShipSettings;

use crate::failure::{Failure, Outcome};
use clap::{Args, Subcommand};
use slowpath_ship::client::ServerAddress;
use slowpath_ship::identity::Token;
use std::path::PathBuf;

/// `slowpath agent`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  slowpath agent --config /etc/slowpath/agent.toml
  slowpath agent --log /var/lib/slowpath --interval 1s --retention-age 30d
  slowpath agent --config agent.toml --check     check the file and print what would hold
  slowpath agent join fleet.example.org --token sp1.web-17.…
  slowpath agent --record problems               keep recordings of connections with problems
  slowpath agent --record 'dport = :5432 and problem = Timeout' --record-to /var/tmp/recordings

Each key of the file is an option without its dashes; an option wins over the file.
SIGHUP re-reads the file; SIGUSR1 writes every recording that the ring holds to a file.
docs/reference/agent.md describes the keys."
)]
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
    /// What to do instead
    #[command(subcommand)]
    pub action: Option<AgentAction>,
}

/// What `slowpath agent` does beside being one.
#[derive(Debug, Subcommand)]
pub enum AgentAction {
    /// Get a certificate of a server, to which the log is shipped then
    Join(Join),
    /// Show how shipping the log fares
    Status(ShipStatusOf),
}

/// `slowpath agent join`.
#[derive(Debug, Args)]
pub struct Join {
    /// The server, as HOST or HOST:PORT
    pub server: ServerAddress,
    /// What `slowpath server invite` printed for this host
    #[arg(long, value_name = "TOKEN")]
    pub token: Token,
    /// Where to keep the key [default: identity in the log's default directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `slowpath agent status`.
#[derive(Debug, Args)]
pub struct ShipStatusOf {
    /// The log that is shipped [default: the agent's default]
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
}

/// Runs the agent until a signal ends it, or does what is to be done instead.
///
/// # Errors
/// A wrong configuration; when the agent does not start; when five polls in a row fail;
/// when the log is incomplete in the end; when there is no certificate or no status.
pub fn run(args: &Agent) -> Result<Outcome, Failure> {
    match &args.action {
        None => service::run(args),
        Some(AgentAction::Join(join)) => shipping::join(join),
        Some(AgentAction::Status(status)) => shipping::status(status),
    }
}
