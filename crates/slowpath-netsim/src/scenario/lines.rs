// SPDX-License-Identifier: Apache-2.0
//! The sections of what happens to links and routes.
//!
//! ```toml
//! [[line]]                    # one direction of a link: "a -> b"; "a <-> b": both
//! on = "left -> right"        # patterns may end in *
//! at = "2 s"                  # from the beginning unless given
//! rate = "10 Mbit/s"          # these three stay as they were unless given
//! delay = "20 ms"             # the link's own
//! up = false                  # the whole link, both directions
//! extra-delay = "10 ms"       # all below: an entry with one of them says all of them
//! jitter = "2 ms"             # or { most = "2 ms", overtaking = true }
//! loss = "0.1 %"              # or a table, as below
//! corruption = { packets = [3, "7-9"], at-least = "100 B" }
//! duplication = { every = 100, first = 5 }
//! reordering = { share = "1 %", by = "5 ms" }
//! # mtu, mtu-icmp, police, ecn, dscp: see `conditions`
//! # burst = { begin = "1 %", end = "25 %", bad = "50 %", good = "0 %" }: Gilbert-Elliott
//!
//! [[route]]
//! on = "left"                 # a switch, or a pattern
//! to = ["right-*"]            # hosts
//! via = ["upper"]             # neighbours, all equally good; none: no way
//! at = "1 s"                  # from the beginning unless given
//! ```

use super::conditions;
use super::error::{Problem, ScenarioError};
use super::hosts::hosts_called;
use super::network::fits;
use super::section::{Section, Value};
use crate::topology::{Node, Topology};
use slowpath_switch::fabric::{
    Action, BitErrors, Burst, Change, Impairment, Jitter, Late, Pick, Route, Share,
};
use slowpath_switch::{Destination, PortId, Span, Time};

/// The most entries of a list.
const MAX_ENTRIES: usize = 4096;
/// The most changes that all entries make in all.
const MAX_CHANGES: usize = 1 << 20;

/// What the entries say, in the order of the file.
pub(super) fn lines(
    root: &Section<'_>,
    topology: &Topology,
    changes: &mut Vec<Change>,
) -> Result<(), ScenarioError> {
    for entry in entries(root.get("line"))? {
        let section = entry.section()?;
        let on = section.need("on")?;
        let lines = lines_called(&on, topology)?;
        let at = moment(&section)?;
        let mut actions: Vec<Box<dyn Fn(u32) -> Action>> = Vec::new();
        if let Some(value) = section.get("rate") {
            let rate = value.rate()?;
            actions.push(Box::new(move |line| Action::Rate(line, rate)));
        }
        if let Some(value) = section.get("delay") {
            let delay = value.span()?;
            actions.push(Box::new(move |line| Action::Propagation(line, delay)));
        }
        if let Some(impairment) = impairment(&section)? {
            let boxed = Box::new(impairment);
            actions.push(Box::new(move |line| Action::Impair(line, boxed.clone())));
        }
        let conditions = conditions::read(&section, &lines, topology, at)?;
        let up = section.get("up").map(|up| up.boolean()).transpose()?;
        section.done()?;
        let mut links: Vec<u32> = lines.iter().map(|line| line / 2).collect();
        links.dedup();
        let all = actions
            .iter()
            .flat_map(|action| lines.iter().map(|line| action(*line)))
            .chain(conditions.iter().flat_map(|condition| {
                lines
                    .iter()
                    .map(|line| Action::Condition(*line, *condition))
            }))
            .chain(
                up.iter()
                    .flat_map(|up| links.iter().map(|link| Action::Up(*link, *up))),
            );
        changes.extend(all.map(|action| Change { at, action }));
        if changes.len() > MAX_CHANGES {
            return Err(on.error(Problem::TooMany(MAX_CHANGES)));
        }
    }
    Ok(())
}

pub(super) fn entries(list: Option<Value<'_>>) -> Result<Vec<Value<'_>>, ScenarioError> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let entries = list.list()?;
    if entries.len() > MAX_ENTRIES {
        return Err(list.error(Problem::TooMany(MAX_ENTRIES)));
    }
    Ok(entries)
}

pub(super) fn moment(section: &Section<'_>) -> Result<Time, ScenarioError> {
    let at = section.get("at").map(|at| at.span()).transpose()?;
    Ok(Time::ZERO + at.unwrap_or(Span::ZERO))
}

/// The lines that a name means: link l is lines 2 l, and back 2 l + 1.
pub(super) fn lines_called(
    value: &Value<'_>,
    topology: &Topology,
) -> Result<Vec<u32>, ScenarioError> {
    let text = value.string()?;
    let no_such_line = || value.error(Problem::NoSuchLine(text.to_owned()));
    let (both, ends) = match text.split_once("<->") {
        Some(ends) => (true, Some(ends)),
        None => (false, text.split_once("->")),
    };
    let (from, to) = ends.ok_or_else(no_such_line)?;
    let (from, to) = (from.trim(), to.trim());
    let named = |pattern, node| fits(pattern, topology.name(node));
    let mut found = Vec::new();
    for (number, link) in (0..).zip(topology.links()) {
        let [(a, _), (b, _)] = link.ends;
        let there = named(from, a) && named(to, b);
        let back = named(from, b) && named(to, a);
        if there || (both && back) {
            found.push(2 * number);
        }
        if back || (both && there) {
            found.push(2 * number + 1);
        }
    }
    if found.is_empty() {
        return Err(no_such_line());
    }
    Ok(found)
}

fn impairment(section: &Section<'_>) -> Result<Option<Impairment>, ScenarioError> {
    let keys = [
        "extra-delay",
        "jitter",
        "loss",
        "bit-errors",
        "corruption",
        "duplication",
        "reordering",
    ];
    let [delay, jitter, loss, bits, corruption, copies, late] = keys.map(|key| section.get(key));
    let all = [&delay, &jitter, &loss, &bits, &corruption, &copies, &late];
    if all.iter().all(|value| value.is_none()) {
        return Ok(None);
    }
    let pick = |value: Option<Value<'_>>| value.map_or(Ok(Pick::default()), |value| pick(&value));
    Ok(Some(Impairment {
        delay: delay.map_or(Ok(Span::ZERO), |value| value.span())?,
        jitter: jitter.map_or(Ok(Jitter::default()), |value| read_jitter(&value))?,
        loss: pick(loss)?,
        bit_errors: bits.map_or(Ok(BitErrors::NONE), |value| bit_errors(&value))?,
        corruption: pick(corruption)?,
        copies: pick(copies)?,
        late: late.map_or(Ok(Late::default()), |value| reordering(&value))?,
    }))
}

/// A probability of at most 1/1,000, as in `"1e-7"`.
fn bit_errors(value: &Value<'_>) -> Result<BitErrors, ScenarioError> {
    let text = value.scalar()?;
    let share: Option<f64> = text.trim().parse().ok();
    let share = share.filter(|share| (0.0..=1e-3).contains(share));
    // At most 10^12 parts of 10^15.
    let parts = share.map(|share| BitErrors((share * 1e15).round() as u64));
    parts.ok_or_else(|| value.range(&text, "0", "1e-3"))
}

fn read_jitter(value: &Value<'_>) -> Result<Jitter, ScenarioError> {
    if !value.is_table() {
        return Ok(Jitter {
            most: value.span()?,
            overtaking: false,
        });
    }
    let section = value.section()?;
    let jitter = Jitter {
        most: section.need("most")?.span()?,
        overtaking: section
            .get("overtaking")
            .map_or(Ok(false), |value| value.boolean())?,
    };
    section.finish()?;
    Ok(jitter)
}

fn reordering(value: &Value<'_>) -> Result<Late, ScenarioError> {
    let section = value.section()?;
    let by = section.need("by")?.positive_span()?;
    let pick = pick_of(&section, value)?;
    section.finish()?;
    Ok(Late { pick, by })
}

fn pick(value: &Value<'_>) -> Result<Pick, ScenarioError> {
    if !value.is_table() {
        return Ok(Pick {
            share: share(value)?,
            ..Pick::default()
        });
    }
    let section = value.section()?;
    let pick = pick_of(&section, value)?;
    section.finish()?;
    Ok(pick)
}

fn pick_of(section: &Section<'_>, value: &Value<'_>) -> Result<Pick, ScenarioError> {
    let number = |value: Value<'_>| value.integer(1..=i64::MAX as u64);
    let at_least = section.get("at-least");
    let first = section.get("first");
    let every = section.get("every").map(number).transpose()?;
    if let (Some(first), None) = (&first, every) {
        return Err(first.error(Problem::OneOf(&["every"])));
    }
    let first = first.map(number).transpose()?;
    let pick = Pick {
        share: section
            .get("share")
            .map_or(Ok(Share::NONE), |value| share(&value))?,
        burst: section
            .get("burst")
            .map(|value| burst(&value))
            .transpose()?,
        numbers: match section.get("packets") {
            Some(list) => numbers(&list)?,
            None => Vec::new(),
        },
        every: every.map(|step| (first.unwrap_or(step), step)),
        // At most 65,535, so it fits.
        at_least: at_least.map_or(Ok(0), |value| value.size(0..=65_535))? as u32,
    };
    if pick.is_none() {
        return Err(value.error(Problem::OneOf(&["share", "burst", "packets", "every"])));
    }
    Ok(pick)
}

fn share(value: &Value<'_>) -> Result<Share, ScenarioError> {
    value.parts().map(Share)
}

fn burst(value: &Value<'_>) -> Result<Burst, ScenarioError> {
    let section = value.section()?;
    let burst = Burst {
        begin: share(&section.need("begin")?)?,
        end: share(&section.need("end")?)?,
        bad: section
            .get("bad")
            .map_or(Ok(Share::ALL), |value| share(&value))?,
        good: section
            .get("good")
            .map_or(Ok(Share::NONE), |value| share(&value))?,
    };
    section.finish()?;
    Ok(burst)
}

/// Numbers and ranges of them, in order.
fn numbers(list: &Value<'_>) -> Result<Vec<(u64, u64)>, ScenarioError> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let members = list.list()?;
    if members.len() > MAX_CHANGES {
        return Err(list.error(Problem::TooMany(MAX_CHANGES)));
    }
    for member in members {
        let last = ranges.last().map_or(0, |range| range.1);
        let wrong = || member.error(Problem::NotInOrder);
        let range = match member.string() {
            Ok(text) => {
                let ends = text.split_once('-').and_then(|(first, last)| {
                    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
                });
                ends.ok_or_else(wrong)?
            }
            Err(_) => {
                let number = member.integer(1..=i64::MAX as u64)?;
                (number, number)
            }
        };
        if range.0 <= last || range.1 < range.0 {
            return Err(wrong());
        }
        ranges.push(range);
    }
    Ok(ranges)
}

/// What the entries of routes say, in the order of the file.
pub(super) fn routes(
    root: &Section<'_>,
    topology: &Topology,
    changes: &mut Vec<Change>,
) -> Result<(), ScenarioError> {
    for entry in entries(root.get("route"))? {
        let section = entry.section()?;
        let on = section.need("on")?;
        let pattern = on.string()?;
        let to = section.need("to")?;
        let via = section.need("via")?;
        let at = moment(&section)?;
        section.done()?;
        let mut hosts = Vec::new();
        for name in to.list()? {
            hosts.extend(hosts_called(&name, topology)?);
        }
        let before = changes.len();
        for (number, switch) in (0..).zip(topology.switches()) {
            if !fits(pattern, &switch.name) {
                continue;
            }
            let mut ports = Vec::new();
            for name in via.list()? {
                ports.extend(ports_to(&name, topology, number)?);
            }
            ports.sort_unstable();
            ports.dedup();
            for host in &hosts {
                let last_hop = |port: &PortId| {
                    let peer = switch.ports[usize::from(port.0)].peer;
                    matches!(peer, Node::Host(at) if at != *host)
                };
                if ports.iter().any(last_hop) {
                    return Err(via.error(Problem::Astray(
                        topology.hosts()[*host as usize].name.clone(),
                    )));
                }
                let route = Route {
                    switch: number,
                    destination: Destination(*host),
                    ports: ports.clone(),
                };
                let action = Action::Route(route);
                changes.push(Change { at, action });
            }
            if changes.len() > MAX_CHANGES {
                return Err(on.error(Problem::TooMany(MAX_CHANGES)));
            }
        }
        if changes.len() == before {
            return Err(on.error(Problem::NoSuchSwitch(pattern.to_owned())));
        }
    }
    Ok(())
}

/// The ports of a switch that lead to neighbours of that name; at least one.
fn ports_to(
    value: &Value<'_>,
    topology: &Topology,
    switch: u32,
) -> Result<Vec<PortId>, ScenarioError> {
    let pattern = value.string()?;
    let switch = &topology.switches()[switch as usize];
    let found: Vec<PortId> = (0..)
        .zip(&switch.ports)
        .filter(|(_, port)| fits(pattern, topology.name(port.peer)))
        .map(|(number, _)| PortId(number))
        .collect();
    if found.is_empty() {
        let name = format!("{} -> {pattern}", switch.name);
        return Err(value.error(Problem::NoSuchPort(name)));
    }
    Ok(found)
}
