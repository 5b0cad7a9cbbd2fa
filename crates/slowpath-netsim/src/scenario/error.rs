// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a scenario, and where.

use super::substrate::Substrate;
use super::units::UnitError;
use super::{MOST_NAMED, MOST_TEXT};
use crate::tcp::TcpConfigError;
use crate::topology::TopologyError;
use crate::workload::{CdfError, EndpointError, TraceError};
use slowpath_files::TooLarge;
use slowpath_model::clean;
use slowpath_switch::ConfigError;
use std::io::ErrorKind;

/// What is wrong with a scenario, and where. What it quotes displays clean.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}", what(.key, .problem))]
pub struct ScenarioError {
    /// From 1 on.
    pub line: usize,
    /// The way to the key: `topology.link[2].rate`. Empty if the file as a whole is meant.
    pub key: String,
    /// What.
    pub problem: Problem,
}

impl ScenarioError {
    /// Key and problem, without the line.
    pub fn what(&self) -> String {
        what(&self.key, &self.problem)
    }
}

fn what(key: &str, problem: &Problem) -> String {
    let text = match key.is_empty() {
        true => problem.to_string(),
        false => format!("{key}: {problem}"),
    };
    clean(&text).into_owned()
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file itself cannot be read.
    #[error("cannot be read: {}", reason(*.0, MOST_TEXT))]
    Unreadable(ErrorKind),
    /// Not TOML.
    #[error("{0}")]
    Toml(String),
    /// A key that means nothing here.
    #[error("unknown key; there are {}", .known.join(", "))]
    UnknownKey {
        /// Those that mean something.
        known: Vec<&'static str>,
    },
    /// A key is missing.
    #[error("missing")]
    Missing,
    /// A value of another type.
    #[error("{wanted} is wanted, not {found}")]
    Type {
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A word that is none of those that mean something.
    #[error("'{given}' is none of {}", .choices.join(", "))]
    Choice {
        /// The word.
        given: String,
        /// Those that mean something.
        choices: Vec<&'static str>,
    },
    /// A quantity that is none.
    #[error("'{given}': {error}")]
    Quantity {
        /// The text.
        given: String,
        /// What is wrong with it.
        error: UnitError,
    },
    /// A value out of its bounds.
    #[error("{given} is not between {least} and {most}")]
    Range {
        /// The value.
        given: String,
        /// The least.
        least: String,
        /// The most.
        most: String,
    },
    /// Two keys that exclude each other.
    #[error("cannot be combined with {0}")]
    Conflict(&'static str),
    /// One of several keys is missing.
    #[error("one of {} is needed", .0.join(", "))]
    OneOf(&'static [&'static str]),
    /// A name or pattern that fits no host.
    #[error("no host is called '{0}'")]
    NoSuchHost(String),
    /// A name or pattern that fits no port.
    #[error("no switch port is called '{0}'; it is 'SWITCH -> NEIGHBOUR'")]
    NoSuchPort(String),
    /// Lists that should be of one length are not.
    #[error("{from} senders and {to} receivers are not pairs")]
    Pairs {
        /// How many senders.
        from: usize,
        /// How many receivers.
        to: usize,
    },
    /// Too many of something.
    #[error("more than {0}")]
    TooMany(usize),
    /// More flows than a run keeps the results of.
    #[error("about {flows} flows would begin, with the workloads before; at most {most} do")]
    TooManyFlows {
        /// As many on average.
        flows: u64,
        /// The bound.
        most: u64,
    },
    /// A key that this substrate cannot do.
    #[error("{0} cannot do this")]
    Substrate(Substrate),
    /// A name or pattern that fits no direction of a link.
    #[error("no link is called '{0}'; it is 'FROM -> TO', or 'FROM <-> TO' for both directions")]
    NoSuchLine(String),
    /// A name or pattern that fits no switch.
    #[error("no switch is called '{0}'")]
    NoSuchSwitch(String),
    /// A route to a host by another host.
    #[error("the way to host '{0}' does not lead through another host")]
    Astray(String),
    /// Numbers of packets.
    #[error("numbers of packets, or ranges as in '7-9', are wanted, from 1 on and in order")]
    NotInOrder,
    /// A sysctl that hosts do not have for themselves, or a value with control characters.
    #[error("'{0}' is not a sysctl of a network namespace: its name begins with 'net.'")]
    NotOfNamespace(String),
    /// A name that a terminal or page would not show as it is.
    #[error("'{}' is no name: it has characters that cannot be shown", clean(.0))]
    Unprintable(String),
    /// Nothing that makes flows.
    #[error("a scenario has at least one [[workload]]")]
    NoWorkload,
    /// An impossible network.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// An impossible switch.
    #[error(transparent)]
    Switch(#[from] ConfigError),
    /// An impossible TCP.
    #[error(transparent)]
    Tcp(#[from] TcpConfigError),
    /// Impossible senders or receivers.
    #[error(transparent)]
    Endpoints(#[from] EndpointError),
    /// A file that a key names cannot be read.
    #[error("the file '{file}' cannot be read: {}", reason(*.kind, MOST_NAMED))]
    File {
        /// Which.
        file: String,
        /// Why.
        kind: ErrorKind,
    },
    /// A file of flow sizes.
    #[error("the file '{file}', {error}")]
    Cdf {
        /// Which.
        file: String,
        /// What.
        error: CdfError,
    },
    /// A file of flows.
    #[error("the file '{file}', {error}")]
    Trace {
        /// Which.
        file: String,
        /// What.
        error: TraceError,
    },
}

/// Why a file cannot be read of which `most` bytes are.
fn reason(kind: ErrorKind, most: u64) -> String {
    match kind {
        ErrorKind::FileTooLarge => TooLarge { most }.to_string(),
        kind => kind.to_string(),
    }
}
