// SPDX-License-Identifier: Apache-2.0
//! Test networks and workloads: namespaces, links, chosen losses, traffic.
//!
//! What enters: a [`Scenario`] (a TOML file of `scenarios/`) or direct calls. What leaves:
//! real Linux TCP connections between processes in network namespaces of their own, the
//! list of the segments that were dropped, each workload's own account of what happened,
//! and, from a packet capture, what tcptrace and tshark make of it.
//!
//! ```text
//!   namespace a                                     namespace b
//!   slowpath-workload drive ── sp0 ═ veth or delay line ═ sp0 ── slowpath-workload serve
//!                               TBF                      clsact: the drop program
//!   slowpath-workload drive ── sp1 ════════ veth ═══════ sp1 ── slowpath-workload serve
//!      (the healthy control)
//! ```
//!
//! It never observes or judges connections the way slowpath does: what is expected of a
//! scenario comes from what was injected, from the kernel's own counters
//! ([`Counters`], `TCP_INFO`) and from captures. Nothing outside the namespaces is
//! changed. It needs root and the programs `ip`, `tc` (Debian iproute2); captures need
//! `tcpdump`, their analysis `tcptrace` or `tshark`; [`missing_requirements`] lists what is missing.

mod actor;
mod attempts;
mod capture;
mod counters;
mod delay;
mod drops;
mod error;
pub mod json_schema;
mod link;
mod netns;
mod offload;
pub mod oracle;
mod process;
mod requirements;
mod running;
mod scenario;
mod testbed;
pub mod workload;

pub use actor::Actor;
pub use attempts::attempts;
pub use capture::{Capture, CaptureSummary};
pub use counters::Counters;
pub use drops::{DropRule, DropTotals, DroppedSegment, Dropper};
pub use error::TestbedError;
pub use link::{Family, Link, LinkOptions};
pub use netns::Namespace;
pub use process::Process;
pub use requirements::{Need, missing_requirements};
pub use running::{Outcome, Role, Running, ScenarioConnection};
pub use scenario::{BUILTIN_SCENARIOS, Count, Expectation, Scenario};
pub use testbed::{PINNED_SYSCTLS, Side, Testbed};
