// SPDX-License-Identifier: Apache-2.0
//! Shipping the log to a server: its settings, its start, and the commands around it.

use super::{Join, ShipStatusOf};
use crate::failure::{Failure, Outcome};
use clap::Args;
use slowpath_agent::service::{Age, Journal, Size};
use slowpath_ship::client::ServerChoice;
use slowpath_ship::keys;
use slowpath_ship::shipper::{
    DEFAULT_INTERVAL, DEFAULT_LIMIT, ShipSelection, ShipStatus, Shipper, ShipperOptions, Urgency,
    identity_of,
};
use std::io::Write;
use std::path::PathBuf;

/// What a file or the command line says of shipping.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct ShipSettings {
    /// Ship the log to the server that was joined, which may have moved to HOST:PORT, or to none
    /// [default: joined]
    #[arg(long, value_name = "SERVER")]
    pub server: Option<ServerChoice>,
    /// Where 'slowpath agent join' left this host's key [default: identity in the log's directory]
    #[arg(long, value_name = "DIR")]
    pub server_state: Option<PathBuf>,
    /// Keep so much of the log until the server has it [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub ship_limit: Option<Size>,
    /// Mean time between two batches of what is new [default: 5s]
    #[arg(long, value_name = "DURATION")]
    pub ship_interval: Option<Age>,
}

impl ShipSettings {
    /// These, and where they say nothing, `others`.
    #[must_use]
    pub fn or(self, others: ShipSettings) -> Self {
        ShipSettings {
            server: self.server.or(others.server),
            server_state: self.server_state.or(others.server_state),
            ship_limit: self.ship_limit.or(others.ship_limit),
            ship_interval: self.ship_interval.or(others.ship_interval),
        }
    }

    /// What holds if the log is kept there.
    pub(super) fn effective(self, log: Option<&PathBuf>) -> ShipSelection {
        ShipSelection {
            server: self.server.unwrap_or_default(),
            state: self.server_state.or_else(|| Some(identity_of(log?))),
            limit: self.ship_limit.map_or(DEFAULT_LIMIT, |limit| limit.0),
            interval: self.ship_interval.map_or(DEFAULT_INTERVAL, |age| age.0),
        }
    }
}

/// Each key with its value, as in the file.
pub(super) fn entries(ship: &ShipSelection) -> Vec<(&'static str, String)> {
    let mut entries = vec![("server", ship.server.to_string())];
    let state = ship.state.as_ref();
    entries.extend(state.map(|state| ("server-state", state.display().to_string())));
    entries.push(("ship-limit", Size(ship.limit).to_string()));
    entries.push(("ship-interval", Age(ship.interval).to_string()));
    entries
}

/// Starts to ship.
pub(super) fn start(options: ShipperOptions, journal: Journal) -> Result<Shipper, Failure> {
    let lines = Box::new(move |urgency, line: &str| match urgency {
        Urgency::Notice => journal.say(line),
        Urgency::Warning => journal.warn(line),
    });
    let shipper = Shipper::start(options, lines).map_err(|e| Failure::Export(e.to_string()))?;
    let ShipStatus { server, host, .. } = shipper.status();
    journal.say(&format!("ships the log to {server} as {host}"));
    Ok(shipper)
}

/// `slowpath agent join`.
pub(super) fn join(args: &Join) -> Result<Outcome, Failure> {
    let default = || default_log().map(|log| identity_of(&log));
    let state = args.state.clone().map_or_else(default, Ok)?;
    let joined = keys::join(&state, &args.server, &args.token)
        .map_err(|e| Failure::Export(format!("cannot join {}: {e}", args.server)))?;
    writeln!(
        std::io::stdout(),
        "joined {} as {}; the key is in {}. A running agent ships after a restart.",
        joined.server,
        joined.facts.host,
        state.display()
    )?;
    Ok(Outcome::Done)
}

/// `slowpath agent status`.
pub(super) fn status(args: &ShipStatusOf) -> Result<Outcome, Failure> {
    let log = args.log.clone().map_or_else(default_log, Ok)?;
    let status = ShipStatus::read(&log).map_err(|e| {
        let log = log.display();
        Failure::Export(format!("no agent ships the log in {log}: {e}"))
    })?;
    let lines = status.lines(slowpath_machine::clock::now().0).join("\n");
    writeln!(std::io::stdout(), "{lines}")?;
    Ok(Outcome::Done)
}

fn default_log() -> Result<PathBuf, Failure> {
    super::service::default_log()
        .ok_or_else(|| Failure::Usage("there is no home directory; name the directory".to_owned()))
}
