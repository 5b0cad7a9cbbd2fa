// SPDX-License-Identifier: Apache-2.0
//! Reports of the queues of switches, from the packets of hosts.
//!
//! What enters: captures of hosts ([`captures`]), the network of a scenario, bounds of errors
//! of times. What leaves: what every queue held, who filled it, where lost packets were
//! dropped, and the findings ([`slowpath_queues::findings`]); as text or JSON ([`Report`]), as
//! tables ([`tables`]), as a page with plots ([`page`]).
//!
//! What is promised: what is not known is counted and stated; the same captures give the same
//! bytes; captures that make no sense are an error or counted, never a panic.
//!
//! What it never does: run a TCP, read clocks.

pub mod captures;
mod packets;
pub mod page;
pub mod report;
pub mod tables;

pub use packets::{ErrorBounds, Wire};
pub use report::Report;

use captures::Captures;
use packets::offered;
use slowpath_netsim::scenario::Scenario;
use slowpath_queues::findings::{Sender, findings, reports};
use slowpath_queues::{Margin, Offered, Outcome, ReplayError, replay_watched, settled};
use slowpath_switch::Span;
use slowpath_trace::segment::Endpoint;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Why an address of a host cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `HOST=ADDRESS`.
    #[error("cannot read --address {0}: say HOST=ADDRESS")]
    Form(String),
    /// The topology has no such host.
    #[error("cannot read --address {argument}: no host of the topology is called '{name}'")]
    Host {
        /// The argument.
        argument: String,
        /// The unknown host.
        name: String,
    },
    /// Not an IP address.
    #[error("cannot read --address {argument}: {error}")]
    Address {
        /// The argument.
        argument: String,
        /// The cause.
        error: std::net::AddrParseError,
    },
}

/// Hosts by address, from arguments of the form `HOST=ADDRESS`.
///
/// # Errors
/// The first argument that cannot be read.
pub fn addresses(
    arguments: &[String],
    scenario: &Scenario,
) -> Result<BTreeMap<IpAddr, u32>, AddressError> {
    let hosts = scenario.topology.hosts_by_name();
    let one = |text: &String| {
        let argument = || text.clone();
        let (name, address) = text
            .split_once('=')
            .ok_or_else(|| AddressError::Form(argument()))?;
        let host = hosts.get(name).ok_or_else(|| AddressError::Host {
            argument: argument(),
            name: name.to_owned(),
        })?;
        let address = address.parse().map_err(|error| AddressError::Address {
            argument: argument(),
            error,
        })?;
        Ok((address, *host))
    };
    arguments.iter().map(one).collect()
}

/// The queues, replayed from captures.
#[derive(Debug)]
pub struct Answer {
    /// Whose network it is.
    pub scenario: Scenario,
    /// The packets.
    pub captures: Captures,
    /// What every queue held, and the drops.
    pub replayed: Outcome,
    /// The report.
    pub report: Report,
}

impl Answer {
    /// Replays the queues.
    ///
    /// # Errors
    /// The packets do not fit the network.
    pub fn new(
        scenario: Scenario,
        captures: Captures,
        wire: &Wire,
        errors: ErrorBounds,
    ) -> Result<Self, ReplayError> {
        let network = scenario.network();
        let origin = captures.sent.iter().map(|sent| sent.at).min().unwrap_or(0);
        let mut packets = offered(&captures.sent, origin, wire, errors.times_ns);
        let margin = if errors == ErrorBounds::default() {
            Margin {
                bytes: 0,
                packets: 0,
            }
        } else {
            let clocks = Span::from_nanos(errors.clocks_ns);
            packets = settled(&network, packets, clocks, Margin::default())?;
            Margin::default()
        };
        let replayed = replay_watched(&network, &packets, margin)?;
        let report = reported(&scenario, &captures, &packets, &replayed, origin);
        Ok(Answer {
            scenario,
            captures,
            replayed,
            report,
        })
    }
}

fn reported(
    scenario: &Scenario,
    captures: &Captures,
    packets: &[Offered],
    replayed: &Outcome,
    origin: i64,
) -> Report {
    let mut ends: HashMap<Sender, (Endpoint, Endpoint)> = HashMap::new();
    for (packet, sent) in packets.iter().zip(&captures.sent) {
        let sender = (packet.source, packet.key);
        ends.entry(sender).or_insert((sent.from, sent.to));
    }
    let sources = report::Sources {
        scenario,
        captures,
        replayed,
        ends: &ends,
        origin,
    };
    let network = &scenario.network();
    let queues = reports(network, packets, replayed);
    let found = findings(network, packets, replayed);
    Report::new(&sources, &queues, &found)
}
