// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a scenario, and where.

use super::substrate::Substrate;
use super::units::UnitError;
use super::{MOST_NAMED, MOST_TEXT};
use crate::tcp::TcpConfigError;
use crate::topology::TopologyError;
use crate::workload::{CdfError, EndpointError, TraceError};
use slowpath_files::TooLarge;
use slowpath_model::{clean, nearest};
use slowpath_switch::{AqmError, ConfigError};
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
    let mut text = match key.is_empty() {
        true => problem.to_string(),
        false => format!("{key}: {problem}"),
    };
    let name = key.rsplit('.').next().unwrap_or(key);
    let near = match problem {
        Problem::UnknownKey { known } => nearest(name, known),
        Problem::Choice { given, choices } => nearest(given, choices),
        _ => None,
    };
    if let Some(near) = near {
        text += &format!(". Did you mean '{near}'?");
    }
    match problem {
        Problem::Substrate(substrate) => text += &way_out(*substrate, key),
        Problem::OneTable => text += &format!(", [[{key}]]"),
        Problem::UnknownKey { .. } if key.contains("links.") && LINE_KEYS.contains(&name) => {
            text += ". What links do to packets is in [[line]]";
        }
        _ => {}
    }
    clean(&text).into_owned()
}

/// Keys of `[[line]]` that people look for at links.
const LINE_KEYS: [&str; 10] = [
    "jitter",
    "loss",
    "bit-errors",
    "corruption",
    "duplication",
    "reordering",
    "mtu",
    "police",
    "ecn",
    "dscp",
];

/// What can do that key, behind the error.
fn way_out(refuses: Substrate, key: &str) -> String {
    let mut pattern = String::new();
    let mut inside = false;
    for letter in key.chars() {
        inside = letter == '[' || inside && letter != ']';
        if !inside || letter == '[' {
            pattern.push(letter);
        }
    }
    let can = |(substrate, _): &&(Substrate, &str)| {
        let refused = substrate.refused().iter();
        let keys = refused.map(|refused| refused.split('=').next().unwrap_or(refused));
        *substrate != refuses && !keys.clone().any(|refused| refused == pattern)
    };
    let others = COMMANDS.iter().filter(can);
    let others: Vec<String> = others.map(|(_, command)| format!("`{command}`")).collect();
    match others.is_empty() {
        true => String::new(),
        false => format!(", but {} can", others.join(" and ")),
    }
}

/// What runs a scenario as which command.
const COMMANDS: [(Substrate, &str); 3] = [
    (Substrate::Simulator, "slowpath sim"),
    (Substrate::VirtualTime, "slowpath lab virtual"),
    (Substrate::Emulator, "slowpath lab up"),
];

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file itself cannot be read.
    #[error("cannot be read: {}", match .0 { ErrorKind::NotFound => "there is no such file".to_owned(), kind => reason(*kind, MOST_TEXT) })]
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
    /// A key is missing, and another one is nearly it.
    #[error("unknown key. Did you mean '{0}'?")]
    Misspelt(&'static str),
    /// A number in place of a quantity.
    #[error("{given} of what? Write it with its unit, as in \"{example}\"")]
    NoUnit {
        /// The number.
        given: String,
        /// A quantity of that kind.
        example: &'static str,
    },
    /// A value of another type.
    #[error("{wanted} is wanted, not {found}")]
    Type {
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A list of tables that is written as a table.
    #[error("a list of tables is wanted: write it with two brackets")]
    OneTable,
    /// A value that is no word where one of several words is wanted.
    #[error("one of \"{}\" is wanted, not {found}", .choices.join("\", \""))]
    NoWord {
        /// Those that mean something.
        choices: Vec<&'static str>,
        /// What it is.
        found: &'static str,
    },
    /// A number that is probably in percent.
    #[error("{given} is more than 1, which is all: {given} in a hundred are {share} or \"{given} %\"", given = .0, share = .0.parse::<f64>().unwrap_or(f64::NAN) / 100.0)]
    Percent(String),
    /// A file's name in place of a size.
    #[error("'{0}' is no size; sizes from a file are {{ file = \"{0}\" }}")]
    FileOfSizes(String),
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
    /// A value that is less than another key's.
    #[error("is less than {0}")]
    LessThan(&'static str),
    /// One of several keys is missing.
    #[error("one of {} is needed", .0.join(", "))]
    OneOf(&'static [&'static str]),
    /// A name or pattern that fits no host.
    #[error("no host is called '{given}'; there are {hosts}")]
    NoSuchHost {
        /// The name or pattern.
        given: String,
        /// Hosts that there are, the first few.
        hosts: String,
    },
    /// A name or pattern that fits no workload.
    #[error("no workload is called '{given}'; there are {workloads}")]
    NoSuchWorkload {
        /// The name or pattern.
        given: String,
        /// Those that there are.
        workloads: String,
    },
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
    /// An MTU of a host's own line that changes: it is its interface's.
    #[error(
        "the line '{0}' begins at a host, whose interface has its MTU from the beginning: without 'at', or only from a router on"
    )]
    HostMtu(String),
    /// Numbers of packets.
    #[error("numbers of packets, or ranges as in '7-9', are wanted, from 1 on and in order")]
    NotInOrder,
    /// A sysctl that hosts do not have for themselves, or a value with control characters.
    #[error("'{0}' is not a sysctl of a network namespace: its name begins with 'net.'")]
    NotOfNamespace(String),
    /// A name that a terminal or page would not show as it is.
    #[error("'{}' is no name: it has characters that cannot be shown", clean(.0))]
    Unprintable(String),
    /// RED without its thresholds.
    #[error(
        "red needs its thresholds: {{ kind = \"red\", min = \"30 packets\", max = \"90 packets\" }}"
    )]
    RedThresholds,
    /// A weight that RED's average does not have.
    #[error("'{0}' is no weight: it is 1/2, 1/4, 1/8 and so on to 1/65536, 1/512 for instance")]
    Weight(String),
    /// Management of a queue that is impossible.
    #[error(transparent)]
    Aqm(#[from] AqmError),
    /// Flow control that goes on only above where it stops.
    #[error("{xon} B is not at most xoff, which is {xoff} B")]
    PfcThresholds {
        /// Bytes.
        xon: u64,
        /// Bytes.
        xoff: u64,
    },
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
        ErrorKind::NotFound => "there is no such file beside the scenario".to_owned(),
        kind => kind.to_string(),
    }
}
