// SPDX-License-Identifier: Apache-2.0
//! A scenario file with some values changed, run, and the few figures the study asks for.

use slowpath_netsim::engine::{Simulation, SimulationError};
use slowpath_netsim::results::{FlowRecord, Results};
use slowpath_netsim::scenario::{Scenario, ScenarioError};
use slowpath_switch::{DropReason, Span};
use std::fmt;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Why there is no figure.
#[derive(Debug)]
pub enum ExperimentError {
    File(std::io::Error),
    Toml(toml::de::Error),
    Key(String),
    Scenario(ScenarioError),
    Simulation(SimulationError),
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "{error}"),
            Self::Toml(error) => write!(f, "{error}"),
            Self::Key(key) => write!(f, "there is no place for {key}"),
            Self::Scenario(error) => write!(f, "{error}"),
            Self::Simulation(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ExperimentError {}

/// Where the study's scenario files are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/dibs")
}

/// Reads a scenario of the study with some values changed: what `slowpath sim FILE --set
/// KEY=VALUE` reads. A number in a key is an index.
///
/// # Errors
/// There is no such file, or it says something impossible.
pub fn scenario(file: &str, settings: &[(&str, Value)]) -> Result<Scenario, ExperimentError> {
    let folder = folder();
    let text = std::fs::read_to_string(folder.join(file)).map_err(ExperimentError::File)?;
    let mut root = Value::Table(text.parse::<Table>().map_err(ExperimentError::Toml)?);
    for (key, value) in settings {
        set(&mut root, key, value)?;
    }
    let keys = root.as_table().into_iter().flatten();
    let text: String = keys
        .map(|(key, value)| format!("{key} = {}\n", inline(value)))
        .collect();
    Scenario::parse(&text, &|file| std::fs::read_to_string(folder.join(file)))
        .map_err(ExperimentError::Scenario)
}

fn set(table: &mut Value, key: &str, value: &Value) -> Result<(), ExperimentError> {
    let missing = || ExperimentError::Key(key.to_owned());
    let mut place = table;
    for step in key.split('.') {
        place = match place {
            Value::Table(table) => table
                .entry(step)
                .or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => {
                let at: usize = step.parse().map_err(|_| missing())?;
                list.get_mut(at).ok_or_else(missing)?
            }
            _ => return Err(missing()),
        };
    }
    *place = value.clone();
    Ok(())
}

/// A value as TOML, on one line. Strings of scenarios are plain text.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(value) => value.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(list) => {
            let all: Vec<String> = list.iter().map(inline).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Table(table) => {
            let keys = table.iter();
            let all: Vec<String> = keys.map(|(k, v)| format!("{k} = {}", inline(v))).collect();
            format!("{{ {} }}", all.join(", "))
        }
    }
}

/// Runs a scenario, with or without detours.
///
/// # Errors
/// The run does not account for every packet.
pub fn run(scenario: &Scenario, detours: bool) -> Result<Results, ExperimentError> {
    let mut scenario = scenario.clone();
    scenario.switch.detour = detours.then(Default::default);
    Simulation::new(&scenario.network(), scenario.settings())
        .and_then(|simulation| simulation.run(scenario.flows(), |_| ()))
        .map_err(ExperimentError::Simulation)
}

/// A percentile by nearest rank, in milliseconds; 0 of nothing.
pub fn percentile(mut times: Vec<Span>, percent: f64) -> f64 {
    times.sort_unstable();
    let rank = (percent / 100.0 * times.len() as f64).ceil() as usize;
    let at = rank.clamp(1, times.len().max(1)) - 1;
    times.get(at).map_or(0.0, |time| time.0 as f64 / 1e9)
}

/// Query completion times; a query that is not complete has the time it has waited, which
/// is less than its own.
pub fn queries(results: &Results) -> Vec<Span> {
    let waited = |query: &slowpath_netsim::results::QueryRecord| {
        query.completion().unwrap_or(results.end - query.start)
    };
    results.queries.iter().map(waited).collect()
}

/// Completion times of the flows of one label up to a size.
#[allow(dead_code, reason = "the tests' half")]
pub fn flows(results: &Results, label: u8, up_to: u64) -> Vec<Span> {
    let wanted = |flow: &&FlowRecord| flow.label == label && flow.bytes <= up_to;
    let waited = |flow: &FlowRecord| flow.completion().unwrap_or(results.end - flow.start);
    results.flows.iter().filter(wanted).map(waited).collect()
}

/// Packets dropped for want of room.
#[allow(dead_code, reason = "the tests' half")]
pub fn overflowed(results: &Results) -> u64 {
    let of = DropReason::BufferFull as usize;
    results.labels.iter().map(|label| label.dropped[of]).sum()
}
