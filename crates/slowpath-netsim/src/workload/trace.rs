// SPDX-License-Identifier: Apache-2.0
//! Flows from a file: comma-separated values with a heading.
//!
//! ```text
//! time,from,to,bytes
//! 0.000125,host-0-0-1,host-3-0-0,20000
//! ```
//!
//! Times are in seconds from the workload's start and do not fall; hosts have their names.
//! Empty lines and lines that begin with `#` do not count.

use super::Flow;
use crate::topology::Topology;
use slowpath_switch::Time;
use std::collections::HashMap;

/// The heading.
const HEADING: &str = "time,from,to,bytes";
/// The most flows of a file.
const MAX_FLOWS: usize = 1 << 24;

/// What is wrong with a file of flows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// Where, from 1 on.
    pub line: usize,
    /// What.
    pub problem: TraceProblem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceProblem {
    /// Not the heading.
    #[error("the heading is {HEADING}")]
    Heading,
    /// Not four fields.
    #[error("a line is time, from, to and bytes, with commas between")]
    Fields,
    /// Not a time.
    #[error("the time is seconds with at most 12 decimals, not '{0}'")]
    Time(String),
    /// Earlier than the line before.
    #[error("times do not fall")]
    Falls,
    /// No such host.
    #[error("there is no host '{0}'")]
    NoSuchHost(String),
    /// From a host to itself.
    #[error("'{0}' sends to itself")]
    ToItself(String),
    /// Not a number of bytes.
    #[error("the number of bytes is 1 to 10^15, not '{0}'")]
    Bytes(String),
    /// Too many.
    #[error("more than {MAX_FLOWS} flows")]
    TooMany,
}

/// Reads a file's text.
///
/// # Errors
/// The first line that is wrong.
pub fn parse_trace(text: &str, topology: &Topology) -> Result<Vec<Flow>, TraceError> {
    let by_name = topology.hosts_by_name();
    let mut lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    match lines.next() {
        Some((_, line)) if line.trim() == HEADING => {}
        other => {
            return Err(TraceError {
                line: other.map_or(1, |(number, _)| number + 1),
                problem: TraceProblem::Heading,
            });
        }
    }
    let mut flows: Vec<Flow> = Vec::new();
    for (number, line) in lines {
        let flow = parse_line(line, &by_name).and_then(|flow| {
            if flows
                .last()
                .is_some_and(|last: &Flow| flow.start < last.start)
            {
                Err(TraceProblem::Falls)
            } else if flows.len() == MAX_FLOWS {
                Err(TraceProblem::TooMany)
            } else {
                Ok(flow)
            }
        });
        flows.push(flow.map_err(|problem| TraceError {
            line: number + 1,
            problem,
        })?);
    }
    Ok(flows)
}

fn parse_line(line: &str, by_name: &HashMap<&str, u32>) -> Result<Flow, TraceProblem> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, from, to, bytes] = fields[..] else {
        return Err(TraceProblem::Fields);
    };
    let host = |name: &str| {
        let found = by_name.get(name).copied();
        found.ok_or_else(|| TraceProblem::NoSuchHost(name.to_owned()))
    };
    let start = seconds(time).ok_or_else(|| TraceProblem::Time(time.to_owned()))?;
    let (from_host, to_host) = (host(from)?, host(to)?);
    if from_host == to_host {
        return Err(TraceProblem::ToItself(from.to_owned()));
    }
    let bytes = match bytes.parse::<u64>() {
        Ok(number @ 1..=1_000_000_000_000_000) => number,
        _ => return Err(TraceProblem::Bytes(bytes.to_owned())),
    };
    Ok(Flow {
        start,
        workload: 0,
        from: from_host,
        to: to_host,
        bytes: Some(bytes),
        query: None,
    })
}

/// Decimal seconds, exactly.
fn seconds(text: &str) -> Option<Time> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 12 {
        return None;
    }
    let picoseconds: u64 = format!("{decimals:0<12}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    Some(Time(
        whole
            .checked_mul(1_000_000_000_000)?
            .checked_add(picoseconds)?,
    ))
}
