// SPDX-License-Identifier: Apache-2.0
//! Reports of runs of [`slowpath_netsim`], and of whatever gives its results.
//!
//! What enters: a scenario and its [`Results`]. What leaves: a [`Summary`] as text or JSON,
//! an HTML page with plots ([`page`]), Parquet tables ([`tables`]), pcap files of
//! hosts ([`captures`]).
//!
//! What is promised: the same scenario and results give the same bytes; everything that a
//! summary or a page says follows from the tables.
//!
//! What it never does: run anything, read clocks.

pub mod captures;
pub mod charts;
pub mod colours;
pub mod compare;
pub mod distribution;
pub mod fabric;
pub mod page;
pub mod plot;
pub mod queues;
pub mod series;
pub mod slowdown;
pub mod summary;
pub mod sweep;
pub mod table;
pub mod tables;
pub mod terminal;

pub use summary::Summary;

use queues::Series;
use serde_json::Value;
use slowpath_netsim::results::Results;
use slowpath_netsim::scenario::Scenario;
use slowpath_switch::Time;
use slowpath_text::Paint;
use std::io::{self, Write};

/// A run, reported.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    scenario: &'a Scenario,
    results: &'a Results,
    queues: Vec<Series>,
    /// The run in numbers.
    pub summary: Summary,
}

impl<'a> Report<'a> {
    /// The report of a run of the scenario in the file of that name.
    pub fn new(name: &str, scenario: &'a Scenario, results: &'a Results) -> Self {
        let queues = queues::series(&results.queues, Time(scenario.warm_up.0), results.end);
        let summary = summary::summary(name, scenario, results, &queues);
        Report {
            scenario,
            results,
            queues,
            summary,
        }
    }

    /// The summary as a JSON object, with `kind` as its `type`.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn json(&self, kind: &str) -> serde_json::Result<Value> {
        let mut document = serde_json::to_value(&self.summary)?;
        if let Value::Object(map) = &mut document {
            map.insert("type".to_owned(), Value::from(kind));
        }
        Ok(document)
    }

    /// Writes the summary as text.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write(&self, paint: Paint, out: &mut impl Write) -> io::Result<()> {
        terminal::write(&self.summary, paint, out)
    }

    /// The page with plots; `text` is the scenario's.
    pub fn page(&self, text: &str) -> String {
        let charts = charts::charts(self.scenario, self.results, &self.queues);
        page::page(&self.summary, &charts, text)
    }
}
