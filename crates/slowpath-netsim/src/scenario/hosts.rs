// SPDX-License-Identifier: Apache-2.0
//! The section of hosts: settings of their kernels.

use super::error::{Problem, ScenarioError};
use super::network::fits;
use super::section::{Section, Value};
use crate::topology::{Topology, listed};
use slowpath_switch::Limit;

/// The most sysctls of one list, and groups.
const MAX_ENTRIES: usize = 256;
/// The longest sysctl name or value.
const MAX_SYSCTL: usize = 256;

/// What hosts have in common, and where they differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Time to live of a new packet, if the file says it.
    pub ttl: Option<u8>,
    /// What may wait for a host's link.
    pub queue: Option<Limit>,
    /// Sysctls of each host: name with dots, value.
    pub sysctls: Vec<(String, String)>,
    /// Hosts that differ.
    pub groups: Vec<HostGroup>,
}

/// Hosts that have something of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGroup {
    /// Which, by their numbers in the topology.
    pub hosts: Vec<u32>,
    /// How far their clocks are ahead, in nanoseconds.
    pub clock: Option<i64>,
    /// Sysctls on top of those of all.
    pub sysctls: Vec<(String, String)>,
}

/// The settings of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSetup {
    /// How far its clock is ahead, in nanoseconds.
    pub clock: i64,
    /// Sysctls in the order in which they are set; a later one of the same name wins.
    pub sysctls: Vec<(String, String)>,
}

impl HostOptions {
    /// The settings of a host: those of all, then its groups' in the order of the file.
    pub fn of(&self, host: u32) -> HostSetup {
        let mut setup = HostSetup {
            clock: 0,
            sysctls: self.sysctls.clone(),
        };
        for group in self
            .groups
            .iter()
            .filter(|group| group.hosts.contains(&host))
        {
            setup.clock = group.clock.unwrap_or(setup.clock);
            setup.sysctls.extend_from_slice(&group.sysctls);
        }
        setup
    }
}

pub(super) fn read(
    section: Option<Section<'_>>,
    topology: &Topology,
) -> Result<HostOptions, ScenarioError> {
    let mut options = HostOptions::default();
    let Some(section) = section else {
        return Ok(options);
    };
    if let Some(value) = section.get("ttl") {
        // At most 255, so it fits.
        options.ttl = Some(value.small(1..=255)? as u8);
    }
    options.queue = section
        .get("queue")
        .map(|queue| queue.limit())
        .transpose()?;
    options.sysctls = sysctls(&section)?;
    if let Some(list) = section.get("group") {
        let groups = list.list()?;
        if groups.len() > MAX_ENTRIES {
            return Err(list.error(Problem::TooMany(MAX_ENTRIES)));
        }
        for group in groups {
            options.groups.push(one_group(&group.section()?, topology)?);
        }
    }
    section.finish()?;
    Ok(options)
}

fn one_group(section: &Section<'_>, topology: &Topology) -> Result<HostGroup, ScenarioError> {
    let list = section.need("hosts")?;
    let names = list.list()?;
    if names.len() > MAX_ENTRIES {
        return Err(list.error(Problem::TooMany(MAX_ENTRIES)));
    }
    let mut hosts = Vec::new();
    for name in names {
        hosts.extend(hosts_called(&name, topology)?);
    }
    hosts.sort_unstable();
    hosts.dedup();
    let group = HostGroup {
        hosts,
        clock: section
            .get("clock")
            .map(|clock| clock.offset())
            .transpose()?,
        sysctls: sysctls(section)?,
    };
    section.done()?;
    Ok(group)
}

/// That no host is called like that.
pub(super) fn no_such_host(given: &str, topology: &Topology) -> Problem {
    let hosts = topology.hosts().iter().map(|host| host.name.as_str());
    Problem::NoSuchHost {
        given: given.to_owned(),
        hosts: listed(hosts),
    }
}

/// The hosts that a name or pattern means; at least one.
pub(super) fn hosts_called(
    value: &Value<'_>,
    topology: &Topology,
) -> Result<Vec<u32>, ScenarioError> {
    let pattern = value.string()?;
    let found: Vec<u32> = (0..)
        .zip(topology.hosts())
        .filter(|(_, host)| fits(pattern, &host.name))
        .map(|(number, _)| number)
        .collect();
    if found.is_empty() {
        return Err(value.error(no_such_host(pattern, topology)));
    }
    Ok(found)
}

fn sysctls(section: &Section<'_>) -> Result<Vec<(String, String)>, ScenarioError> {
    let Some(table) = section.get("sysctls") else {
        return Ok(Vec::new());
    };
    let entries = table.entries()?;
    if entries.len() > MAX_ENTRIES {
        return Err(table.error(Problem::TooMany(MAX_ENTRIES)));
    }
    let one = |(name, value): (String, Value<'_>)| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let ours = name.starts_with("net.") && name.len() <= MAX_SYSCTL;
        if !ours || !name.chars().all(is_plain) || name.contains("..") {
            return Err(value.error(Problem::NotOfNamespace(name)));
        }
        let text = value.scalar()?;
        if text.len() > MAX_SYSCTL || text.chars().any(char::is_control) {
            return Err(value.error(Problem::NotOfNamespace(name)));
        }
        Ok((name, text))
    };
    entries.into_iter().map(one).collect()
}
