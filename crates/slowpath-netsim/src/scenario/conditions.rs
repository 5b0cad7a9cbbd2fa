// SPDX-License-Identifier: Apache-2.0
//! The keys of `[[line]]` for what it does to packets by length, rate and marks.
//!
//! ```toml
//! [[line]]
//! on = "r3 -> r4"
//! mtu = 1400                # longer packets: fragments, or an answer to who sent them
//! mtu-icmp = false          # no such answer: a black hole
//! police = { rate = "20 Mbit/s", burst = "30 kB" }   # or false
//! ecn = "clear"             # or "keep"
//! dscp = "CS1"              # or a number below 64, "keep"
//! ```
//!
//! Each stays as it was unless given.

use super::error::{Problem, ScenarioError};
use super::section::{Section, Value};
use crate::topology::{Node, Topology};
use slowpath_switch::Time;
use slowpath_switch::fabric::{Condition, Mtu, Police, Remark};

/// The least MTU: RFC 791 section 3.2.
const LEAST_MTU: u32 = 68;
/// The least of an interface that has IPv6: RFC 8200 section 5.
const LEAST_HOST_MTU: u32 = 1280;
/// Hosts send nothing longer.
const MOST_MTU: u32 = 1500;

/// Names of DSCPs: RFC 2474 section 4.2.2.2, RFC 2597 section 6, RFC 3246 section 2.7, RFC 8622.
const DSCPS: &[(&str, Option<u8>)] = &[
    ("keep", None),
    ("CS0", Some(0)),
    ("LE", Some(1)),
    ("CS1", Some(8)),
    ("AF11", Some(10)),
    ("AF12", Some(12)),
    ("AF13", Some(14)),
    ("CS2", Some(16)),
    ("AF21", Some(18)),
    ("AF22", Some(20)),
    ("AF23", Some(22)),
    ("CS3", Some(24)),
    ("AF31", Some(26)),
    ("AF32", Some(28)),
    ("AF33", Some(30)),
    ("CS4", Some(32)),
    ("AF41", Some(34)),
    ("AF42", Some(36)),
    ("AF43", Some(38)),
    ("CS5", Some(40)),
    ("EF", Some(46)),
    ("CS6", Some(48)),
    ("CS7", Some(56)),
];

/// What an entry says of them, for each of its lines.
pub(super) fn read(
    section: &Section<'_>,
    lines: &[u32],
    topology: &Topology,
    at: Time,
) -> Result<Vec<Condition>, ScenarioError> {
    let mut found = Vec::new();
    found.extend(mtu(section, lines, topology, at)?);
    if let Some(value) = section.get("police") {
        found.push(Condition::Police(police(&value)?));
    }
    if let Some(value) = section.get("ecn") {
        let clear = value.choice(&[("clear", true), ("keep", false)])?;
        found.push(Condition::ClearEcn(clear));
    }
    if let Some(value) = section.get("dscp") {
        let dscp = match value.string() {
            Ok(_) => value.choice(DSCPS)?,
            // At most 63, so it fits.
            Err(_) => Some(value.small(0..=63)? as u8),
        };
        let remark = dscp.map(|dscp| Remark {
            dscp,
            // As for packets that come with it: the highest precedence is served first.
            class: 7 - (dscp >> 3),
        });
        found.push(Condition::Dscp(remark));
    }
    Ok(found)
}

fn mtu(
    section: &Section<'_>,
    lines: &[u32],
    topology: &Topology,
    at: Time,
) -> Result<Option<Condition>, ScenarioError> {
    let icmp = section.get("mtu-icmp");
    let Some(value) = section.get("mtu") else {
        return match icmp {
            Some(icmp) => Err(icmp.error(Problem::OneOf(&["mtu"]))),
            None => Ok(None),
        };
    };
    let host_line = lines.iter().find_map(|line| {
        let [a, b] = topology.links()[*line as usize / 2].ends;
        let [(from, _), (to, _)] = if line % 2 == 0 { [a, b] } else { [b, a] };
        matches!(from, Node::Host(_)).then_some((from, to))
    });
    let least = match host_line {
        Some(_) => LEAST_HOST_MTU,
        None => LEAST_MTU,
    };
    let bytes = value.small(least..=MOST_MTU)?;
    if let (Some((from, to)), true) = (host_line, at > Time::ZERO) {
        let name = format!("{} -> {}", topology.name(from), topology.name(to));
        return Err(value.error(Problem::HostMtu(name)));
    }
    let reported = icmp.map_or(Ok(true), |icmp| icmp.boolean())?;
    let mtu = Mtu { bytes, reported };
    Ok(Some(Condition::Mtu((bytes < MOST_MTU).then_some(mtu))))
}

fn police(value: &Value<'_>) -> Result<Option<Police>, ScenarioError> {
    if !value.is_table() {
        return match value.boolean() {
            Ok(false) => Ok(None),
            _ => Err(value.error(Problem::Type {
                wanted: "{ rate = \"20 Mbit/s\", burst = \"30 kB\" }, or false,",
                found: value.type_name(),
            })),
        };
    }
    let section = value.section()?;
    let police = Police {
        rate: section.need("rate")?.rate()?,
        // A gigabyte is more than any queue here holds.
        burst: section.need("burst")?.size(1..=1_000_000_000)?,
    };
    section.finish()?;
    Ok(Some(police))
}
