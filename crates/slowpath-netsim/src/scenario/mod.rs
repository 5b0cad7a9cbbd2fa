// SPDX-License-Identifier: Apache-2.0
//! Scenarios as data: a network, its switches, how its hosts speak TCP, and who sends what
//! to whom, in one TOML file.
//!
//! What enters: the file's text, and a way to the files that it names.
//!
//! What leaves: a [`Scenario`], and from it what the engine takes: a network, settings and
//! flows.
//!
//! What is promised: whatever the text, an answer; every error names line and key. A key
//! that means nothing is an error, never passed over. Quantities carry their unit and are
//! read exactly (see `units`). What else can run a scenario reads it with this reader; a key
//! that the [`Substrate`] cannot do is an error, not a silence.
//!
//! # The format
//!
//! ```toml
//! description = "what this is, for a person"   # optional
//! seed = 1                  # decides everything random
//! duration = "1 s"          # no flow begins later
//! drain = "100 ms"          # and so long it goes on for those that are not done
//!
//! [topology]
//! kind = "fat-tree"         # k; "leaf-spine": leaves, spines, hosts-per-leaf;
//! k = 8                     # "dumbbell": left, right; "custom": hosts, switches, link
//! [topology.links]
//! rate = "1 Gbit/s"
//! delay = "1 us"
//! # buffer, marking and aqm here hold for these links instead of those of [switch]
//! [topology.fabric-links]   # optional: what is different between switches
//! rate = "10 Gbit/s"
//! # [[topology.link]] ends = ["a", "b"], with the keys of links where it differs: "custom"
//!
//! [switch]
//! buffer = "100 packets"    # of each port; or bytes, or ["100 packets", "200 kB"]
//! shared-buffer = "2 MB"    # instead, or as well: memory of all ports, with
//! alpha = "1/2"             # dynamic thresholds
//! marking = "20 packets"    # ECN, from this queue on; none if it is not there
//! # or aqm = "codel", "pie", { kind = "red", min = "30 packets", max = "90 packets" }
//! classes = 1               # strict priorities
//! ecmp = "flow"             # or "flowlet", { kind = "flowlet", gap = "500 us", entries = 65536 }
//! decrement-ttl = true
//! count-flows = false
//! pfc = false               # or true, { xoff = "100 kB", xon = "90 kB", headroom = "50 kB" }: no buffer
//!                           # is needed then
//! [switch.detour]           # or detour = true, false
//! arrival-port = true
//! mark = true
//!
//! [host]
//! ttl = 255
//! # queue, sysctls = { "net.ipv4.tcp_ecn" = 1 }, [[host.group]] with hosts, clock, sysctls
//! # [[line]], [[route]], [[router]]: what happens to links and routes and how routers answer, see
//! # `lines`, `conditions`, `routers`
//!
//! [tcp]                     # every key is optional
//! preset = "linux"          # or "rfc-newreno", "dctcp": what the other keys start from
//! algorithm = "dctcp"       # "newreno", "cubic", "fixed"
//! # hystart, ecn ("off", "classic", "dctcp"), sack, loss-detection ("rack",
//! # "duplicate-acks", "timeout-only"), duplicate-ack-threshold, tail-loss-probe,
//! # proportional-rate-reduction, limited-transmit, mss, header, initial-window,
//! # initial-ssthresh, slow-start-limit, slow-start-after-idle, rto-estimator ("linux",
//! # "rfc6298"), rto-min, rto-max, rto-initial, delayed-ack ("off", "linux", or a time),
//! # receive-window (a size, or { initial, max }), handshake, frto, dsack-undo
//!
//! [[workload]]
//! kind = "poisson"          # flows at random moments
//! load = 0.3                # of the senders' links; or rate = "1000 /s", or gap = "10 ms"
//! sizes = "20 kB"           # or { file = "web-search.txt" }
//! among = "any"             # "other-rack", "other-pod"
//! from = ["host-0-*"]       # also to; unless given, all hosts that have a partner
//! # every kind: name, class, start, stop, tcp (keys of [tcp] that differ),
//! # datagram = "1500 B" (no TCP), write = { bytes, every }, keep-connections
//!
//! [[workload]]
//! kind = "incast"           # queries: degree hosts answer at once
//! rate = "300 /s"
//! degree = 40
//! response = "20 kB"        # of each
//! # arrivals ("poisson", "periodic"), jitter, count, among, from (answer), to (ask)
//!
//! # kind = "bulk": from and to in pairs, flows, bytes (endless unless given), stagger, jitter
//! # kind = "permutation": hosts, bytes; every host to one other
//! # kind = "trace": file, with lines of time,from,to,bytes
//!
//! [measure]
//! queues = ["left -> right"]   # ports whose queue is written down: SWITCH -> NEIGHBOUR
//! every = "1 ms"               # whenever it changes unless given
//! paths = false
//! warm-up = "0 s"           # distributions are of what begins after it
//! ```

mod aqm;
mod conditions;
mod ecmp;
mod error;
mod hosts;
mod lines;
mod measure;
mod network;
pub mod overrides;
mod pfc;
mod plan;
mod routers;
mod run;
mod section;
mod substrate;
mod tcp;
mod units;
mod workload;

pub use error::{Problem, ScenarioError};
pub use hosts::{HostGroup, HostOptions, HostSetup};
pub use measure::Series;
pub use network::fits;
pub use pfc::PfcOptions;
pub use routers::{IcmpOptions, IcmpRate, RouterChange};
pub use substrate::Substrate;
pub use units::UnitError;

use crate::engine::QueueSeries;
use crate::tcp::TcpConfig;
use crate::topology::Topology;
use crate::workload::Workload;
use section::{Section, line_of};
use slowpath_switch::fabric::Change;
use slowpath_switch::{Aqm, Detour, Flowlets, Limit, Shared, Span, Threshold, Time};
use std::path::Path;
use toml::de::DeTable;

/// Time to live of a new packet unless the file says otherwise.
const TTL: u8 = 255;

/// The longest name or text that is kept.
const MAX_TEXT: usize = 4096;

/// What all switches have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchOptions {
    /// The buffer of a port.
    pub buffer: Limit,
    /// Memory that ports share.
    pub shared: Option<Shared>,
    /// Where marking begins.
    pub marking: Option<Threshold>,
    /// How queues are managed.
    pub aqm: Option<Aqm>,
    /// How flows are divided among equal ways; `None`: each keeps its own.
    pub flowlets: Option<Flowlets>,
    /// Pauses instead of drops.
    pub pfc: Option<PfcOptions>,
    /// How many classes.
    pub classes: u8,
    /// Detours instead of drops.
    pub detour: Option<Detour>,
    /// Routers, not bridges.
    pub decrement_ttl: bool,
    /// Whether what waits is counted by flow.
    pub count_flows: bool,
}

/// A network and what happens in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// For a person.
    pub description: String,
    /// Decides everything random.
    pub seed: u64,
    /// No flow begins later.
    pub duration: Span,
    /// It ends here.
    pub until: Time,
    /// Who is linked with whom.
    pub topology: Topology,
    /// What all switches have in common.
    pub switch: SwitchOptions,
    /// Time to live of a new packet.
    pub ttl: u8,
    /// Further settings of hosts.
    pub host: HostOptions,
    /// What happens to lines and routes; at time zero, from the beginning.
    pub changes: Vec<Change>,
    /// How routers answer, in the order of time.
    pub routers: Vec<RouterChange>,
    /// The kinds of TCP; the first is that of `[tcp]`.
    pub tcp: Vec<TcpConfig>,
    /// What makes flows.
    pub workloads: Vec<Workload>,
    /// Which queues are written down.
    pub queues: QueueSeries,
    /// Whether flows say their path.
    pub paths: bool,
    /// Flows and links that are written down again and again.
    pub series: Option<Series>,
    /// What happens before this is no part of a run's distributions; less than its duration.
    pub warm_up: Span,
}

/// The most that is read of a scenario: a custom topology of all hosts and links that there can
/// be has less.
pub const MOST_TEXT: u64 = 16 << 20;
/// The most that is read of a file that a scenario names: some million flows of a trace.
pub const MOST_NAMED: u64 = 256 << 20;

/// A scenario's text.
///
/// # Errors
/// It cannot be read, or is longer than [`MOST_TEXT`].
pub fn text_of(path: &Path) -> std::io::Result<String> {
    slowpath_files::read_text(path, MOST_TEXT)
}

/// The text of a file that a scenario names.
///
/// # Errors
/// It cannot be read, or is longer than [`MOST_NAMED`].
pub fn named_text(path: &Path) -> std::io::Result<String> {
    slowpath_files::read_text(path, MOST_NAMED)
}

/// A way to the files that a scenario names.
pub type Files<'a> = dyn Fn(&str) -> std::io::Result<String> + 'a;

impl Scenario {
    /// Reads a scenario file; files that it names lie beside it unless their path is
    /// absolute.
    ///
    /// # Errors
    /// It cannot be read, or says something impossible.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        Self::load_for(path, Substrate::Simulator)
    }

    /// The same for something else that runs it.
    ///
    /// # Errors
    /// As [`Scenario::load`], or a key is given that the substrate cannot do.
    pub fn load_for(path: &Path, substrate: Substrate) -> Result<Self, ScenarioError> {
        let text = text_of(path).map_err(|error| ScenarioError {
            line: 1,
            key: String::new(),
            problem: Problem::Unreadable(error.kind()),
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let files = |file: &str| named_text(&folder.join(file));
        Self::parse_for(&text, &files, substrate)
    }

    /// Reads a scenario's text, for the simulator.
    ///
    /// # Errors
    /// It says something impossible.
    pub fn parse(text: &str, files: &Files<'_>) -> Result<Self, ScenarioError> {
        Self::parse_for(text, files, Substrate::Simulator)
    }

    /// The same for something else that runs it.
    ///
    /// # Errors
    /// It says something impossible, or a key is given that the substrate cannot do.
    pub fn parse_for(
        text: &str,
        files: &Files<'_>,
        substrate: Substrate,
    ) -> Result<Self, ScenarioError> {
        let table = DeTable::parse(text).map_err(|error| ScenarioError {
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            key: String::new(),
            problem: Problem::Toml(error.message().to_owned()),
        })?;
        let root = Section::root(text, table.get_ref());
        let scenario = Self::read(&root, files, substrate)?;
        root.finish()?;
        substrate.check(text, table.get_ref())?;
        Ok(scenario)
    }

    fn read(
        root: &Section<'_>,
        files: &Files<'_>,
        substrate: Substrate,
    ) -> Result<Self, ScenarioError> {
        let description = match root.get("description") {
            Some(text) => text.string()?.chars().take(MAX_TEXT).collect(),
            None => String::new(),
        };
        let seed = match root.get("seed") {
            Some(seed) => seed.integer(0..=i64::MAX as u64)?,
            None => 1,
        };
        let duration = match (root.get("duration"), substrate.is_only_network()) {
            (None, true) => Span(u64::MAX),
            (None, false) => root.need("duration")?.positive_span()?,
            (Some(duration), _) => duration.positive_span()?,
        };
        let drain = match root.get("drain") {
            Some(drain) => drain.span()?,
            None => Span::ZERO,
        };
        let topology = network::topology(&root.need("topology")?.section()?)?;
        let switch = network::switch(&root.need("switch")?.section()?)?;
        let host = hosts::read(root.section("host")?, &topology)?;
        let mut changes = Vec::new();
        lines::lines(root, &topology, &mut changes)?;
        lines::routes(root, &topology, &mut changes)?;
        let routers = routers::read(root, &topology)?;
        let mut kinds = vec![match root.section("tcp")? {
            Some(section) => tcp::read(section, TcpConfig::linux())?,
            None => TcpConfig::linux(),
        }];
        let end = Time::ZERO + duration;
        let mut reader = workload::Reader {
            topology: &topology,
            by_name: topology.hosts_by_name(),
            files,
            end,
            classes: switch.classes,
            kinds: &mut kinds,
        };
        let workloads = match root.get("workload") {
            None if substrate.is_only_network() => Vec::new(),
            _ => reader.all(root)?,
        };
        let flowlets = switch.flowlets.is_some();
        let section = root.section("measure")?;
        let measured = measure::read(section, duration, &topology, &workloads, flowlets)?;
        Ok(Scenario {
            description,
            seed,
            duration,
            until: end + drain,
            topology,
            switch,
            ttl: host.ttl.unwrap_or(TTL),
            host,
            changes,
            routers,
            tcp: kinds,
            workloads,
            queues: measured.queues,
            paths: measured.paths,
            series: measured.series,
            warm_up: measured.warm_up,
        })
    }
}

#[cfg(test)]
mod any_value;
#[cfg(test)]
mod lab_tests;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;
