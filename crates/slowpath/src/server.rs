// SPDX-License-Identifier: Apache-2.0
//! `slowpath server`: the half of a fleet that keeps every host's log.
//!
//! What enters: arguments, signals. What leaves: what `slowpath-server` says and does.

use crate::failure::{Failure, Outcome};
use crate::options::duration;
use crate::render::Paint;
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use slowpath_agent::service::Journal;
use slowpath_server::clock::Clock;
use slowpath_server::command::{self, CommandError, RunOptions};
use slowpath_server::log::Retention;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// `slowpath server`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  slowpath server init --name server.example.org   make the server's CA and certificate
  slowpath server --listen 0.0.0.0:7443            take batches of agents
  slowpath server invite web-17                    print a token for one host, valid for 24 hours
  slowpath server status                           hosts, lag, gaps, clocks, who was refused
  slowpath server revoke web-17                    end its connections, let it in no more
  slowpath server ca roll                          make the next CA; the old one stays for months

On the host: slowpath agent join server.example.org --token TOKEN
docs/reference/server.md describes all of it."
)]
pub struct Server {
    /// What to do; without it, run
    #[command(subcommand)]
    pub action: Option<Action>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: Run,
}

/// What the server does, or is asked.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Take batches of agents, until a signal ends it
    Run(Run),
    /// Make the CA, the server's certificate and the state directory
    Init(Init),
    /// Print a token that lets one host join, once, within 24 hours
    Invite(OfHost),
    /// Close a host's connections at once and accept its certificates no more
    Revoke(OfHost),
    /// Replace the CA
    #[command(subcommand)]
    Ca(CaAction),
    /// Show hosts, lag, gaps, clocks, who was refused, the disk
    Status(Status),
}

/// Where the state is.
#[derive(Debug, Args)]
pub struct Directory {
    /// The state directory [default: /var/lib/slowpath-server]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `slowpath server run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: Directory,
    /// Where agents connect to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    pub listen: SocketAddr,
    /// Where /metrics and /healthz are
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7444")]
    pub metrics: SocketAddr,
    /// Delete hours of the log that are older than this
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = duration)]
    pub retention_age: Duration,
    /// Delete the oldest hours when the log takes more of the file system than this, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub retention_share: u8,
    /// Write the tables to an object store as well: s3://BUCKET or s3://BUCKET/PREFIX, keys and endpoint from AWS_… of the environment
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
}

/// `slowpath server init`.
#[derive(Debug, Args)]
pub struct Init {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: Directory,
    /// A DNS name or an address by which agents reach the server
    #[arg(long = "name", value_name = "NAME", required = true, num_args = 1..)]
    pub names: Vec<String>,
    /// Leave a server that is there already as it is
    #[arg(long)]
    pub if_missing: bool,
}

/// A command about one host.
#[derive(Debug, Args)]
pub struct OfHost {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: Directory,
    /// Its name: letters, digits, `.`, `-`, `_`
    #[arg(value_name = "HOST")]
    pub host: String,
}

/// `slowpath server ca`.
#[derive(Debug, Subcommand)]
pub enum CaAction {
    /// Make the next CA, which signs once every host has it
    Roll(Roll),
}

/// `slowpath server ca roll`.
#[derive(Debug, Args)]
pub struct Roll {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: Directory,
    /// Sign by it at once: hosts that do not have it have to be invited anew
    #[arg(long)]
    pub now: bool,
}

/// `slowpath server status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: Directory,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Directory {
    fn path(&self) -> PathBuf {
        let given = self.dir.clone();
        given.unwrap_or_else(command::default_directory)
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Usage(text) => Failure::Usage(text),
            other => Failure::Server(other.to_string()),
        }
    }
}

/// Carries it out.
///
/// # Errors
/// What the server cannot do.
pub fn run(server: Server) -> Result<Outcome, Failure> {
    let clock = Clock::system();
    let text = match server.action.unwrap_or(Action::Run(server.run)) {
        Action::Run(args) => return serve(&args, clock),
        Action::Init(args) => {
            command::init(&args.directory.path(), &args.names, args.if_missing, &clock)?
        }
        Action::Invite(args) => command::invite(&args.directory.path(), &args.host, &clock)?,
        Action::Revoke(args) => command::revoke(&args.directory.path(), &args.host, &clock)?,
        Action::Ca(CaAction::Roll(args)) => {
            command::roll(&args.directory.path(), args.now, &clock)?
        }
        Action::Status(args) => {
            let status = command::status(&args.directory.path(), &clock)?;
            match args.json {
                true => serde_json::to_string_pretty(&status).map_err(std::io::Error::from)?,
                false => status.text(Paint::for_stdout()).join("\n"),
            }
        }
    };
    writeln!(stdout().lock(), "{text}")?;
    Ok(Outcome::Done)
}

fn serve(args: &Run, clock: Clock) -> Result<Outcome, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let running = command::run(RunOptions {
        directory: args.directory.path(),
        listen: args.listen,
        metrics: args.metrics,
        retention: Retention {
            age_us: u64::try_from(args.retention_age.as_micros()).unwrap_or(u64::MAX),
            disk_share: f64::from(args.retention_share) / 100.0,
        },
        store: args.store.clone(),
        clock,
        journal: Arc::new(Lines(Journal::of_this_process())),
    })?;
    signals.forever().next();
    running.stop().map_err(CommandError::from)?;
    Ok(Outcome::Done)
}

/// The server's lines in this process's journal.
struct Lines(Journal);

impl slowpath_server::journal::Journal for Lines {
    fn say(&self, text: &str) {
        self.0.say(text);
    }

    fn warn(&self, text: &str) {
        self.0.warn(text);
    }
}
