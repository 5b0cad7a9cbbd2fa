// SPDX-License-Identifier: Apache-2.0
//! The section `[measure]`: what is written down over time.

use super::error::{Problem, ScenarioError};
use super::lines::lines_called;
use super::network::fits;
use super::section::{Section, Value};
use crate::engine::{QueueSeries, SwitchId};
use crate::topology::Topology;
use crate::workload::Workload;
use slowpath_switch::{PortId, Span};

/// Patterns of ports, of links and of workloads, each.
const MAX_NAMES: usize = 1024;

/// Flows and links that are written down again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// From one sample to the next. Not 0.
    pub every: Span,
    /// Whose flows, by the workloads' numbers.
    pub workloads: Vec<u8>,
    /// Directions of links: twice a link's number in the topology, and one more for the way from its second end to its first.
    pub lines: Vec<u32>,
}

/// What leaves flows without one path.
const FLOWLETS: &str = "switch.ecmp = \"flowlet\": a flow takes several paths";

/// What the section says.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub queues: QueueSeries,
    pub paths: bool,
    pub series: Option<Series>,
    pub warm_up: Span,
}

pub(super) fn read(
    section: Option<Section<'_>>,
    duration: Span,
    topology: &Topology,
    workloads: &[Workload],
    flowlets: bool,
) -> Result<Measured, ScenarioError> {
    let Some(section) = section else {
        return Ok(Measured::default());
    };
    let every = section.get("every");
    let span = every.as_ref().map(Value::positive_span).transpose()?;
    let mut ports = Vec::new();
    let queues = section.get("queues");
    for name in names(queues.as_ref())? {
        ports_called(&name, topology, &mut ports)?;
    }
    ports.sort_unstable();
    ports.dedup();
    let queues = match (queues, span) {
        (None, _) => QueueSeries::Off,
        (Some(_), Some(every)) => QueueSeries::Sampled { every, ports },
        (Some(_), None) => QueueSeries::OnChange { ports },
    };
    let (flows, links) = (section.get("flows"), section.get("links"));
    let series = match (&flows, &links, span) {
        (None, None, _) => None,
        (_, _, None) => return Err(section.needs_one_of(&["every"])),
        (_, _, Some(every)) => Some(Series {
            every,
            workloads: workloads_called(flows.as_ref(), workloads)?,
            lines: links_called(links.as_ref(), topology)?,
        }),
    };
    if let (Some(every), QueueSeries::Off, None) = (every, &queues, &series) {
        return Err(every.error(Problem::OneOf(&["queues", "flows", "links"])));
    }
    let paths = section
        .get("paths")
        .map_or(Ok(false), |value| match value.boolean()? {
            true if flowlets => Err(value.error(Problem::Conflict(FLOWLETS))),
            paths => Ok(paths),
        })?;
    let warm_up = section.get("warm-up");
    let warm_up = warm_up.map_or(Ok(Span::ZERO), |value| before(&value, duration))?;
    section.finish()?;
    Ok(Measured {
        queues,
        paths,
        series,
        warm_up,
    })
}

/// A span that ends before the run does.
fn before(value: &Value<'_>, duration: Span) -> Result<Span, ScenarioError> {
    let span = value.span()?;
    if span < duration {
        return Ok(span);
    }
    Err(value.error(Problem::Range {
        given: value.scalar()?,
        least: "0 s".to_owned(),
        most: format!("the duration ({} ms)", duration.0 as f64 / 1e9),
    }))
}

fn names<'a>(list: Option<&Value<'a>>) -> Result<Vec<Value<'a>>, ScenarioError> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let names = list.list()?;
    if names.len() > MAX_NAMES {
        return Err(list.error(Problem::TooMany(MAX_NAMES)));
    }
    Ok(names)
}

fn workloads_called(
    list: Option<&Value<'_>>,
    workloads: &[Workload],
) -> Result<Vec<u8>, ScenarioError> {
    let mut chosen = Vec::new();
    for name in names(list)? {
        let pattern = name.string()?;
        let fitting = (0..)
            .zip(workloads)
            .filter(|(_, workload)| fits(pattern, &workload.name));
        let before = chosen.len();
        chosen.extend(fitting.map(|(number, _): (u8, _)| number));
        if chosen.len() == before {
            let all: Vec<&str> = workloads.iter().map(|one| one.name.as_str()).collect();
            return Err(name.error(Problem::NoSuchWorkload {
                given: pattern.to_owned(),
                workloads: all.join(", "),
            }));
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn links_called(list: Option<&Value<'_>>, topology: &Topology) -> Result<Vec<u32>, ScenarioError> {
    let mut lines = Vec::new();
    for name in names(list)? {
        lines.extend(lines_called(&name, topology)?);
    }
    lines.sort_unstable();
    lines.dedup();
    Ok(lines)
}

fn ports_called(
    value: &Value<'_>,
    topology: &Topology,
    ports: &mut Vec<(SwitchId, PortId)>,
) -> Result<(), ScenarioError> {
    let text = value.string()?;
    let no_such_port = || value.error(Problem::NoSuchPort(text.to_owned()));
    let (from, to) = text.split_once("->").ok_or_else(no_such_port)?;
    let before = ports.len();
    for (number, switch) in topology.switches().iter().enumerate() {
        if !fits(from.trim(), &switch.name) {
            continue;
        }
        for (port, link) in switch.ports.iter().enumerate() {
            if fits(to.trim(), topology.name(link.peer)) {
                ports.push((SwitchId(number as u32), PortId(port as u16)));
            }
        }
    }
    if ports.len() == before {
        Err(no_such_port())
    } else {
        Ok(())
    }
}
