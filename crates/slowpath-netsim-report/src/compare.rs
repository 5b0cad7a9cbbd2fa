// SPDX-License-Identifier: Apache-2.0
//! Runs that were made before, beside each other: read from their tables, whatever gave them.
//!
//! What enters: folders with a `flows.parquet`, of the simulator or of Linux in virtual time. What leaves: completion times of each workload and size
//! of flows, and how much longer they are than in the first run, as text or JSON.

use crate::distribution::{Percentiles, Times, micros};
use crate::summary::{SIZES, size_bin};
use crate::table::WARM_UP;
use crate::terminal::{size_name, time, times};
use serde::Serialize;
use slowpath_table::{ParquetError, Reader, Value};
use slowpath_text::{Columns, Paint, plain};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a run cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// It has no table of flows.
    #[error(
        "cannot read {path}: {error}; `slowpath sim SCENARIO --out {}` writes it",
        folder(path)
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The table is damaged, or another one.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: ParquetError,
    },
}

fn folder(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

/// Flows of a workload, of all sizes (`None`) or of one of [`SIZES`] or beyond.
type Part = (String, Option<usize>);

/// A run's flows.
#[derive(Clone, Debug)]
pub struct MadeRun {
    /// Its folder.
    pub name: String,
    /// The scenario file's name, if the table has it.
    pub scenario: String,
    /// Its seed, likewise.
    pub seed: Option<u64>,
    /// Picoseconds at its beginning of which flows are left out.
    pub warm_up: u64,
    parts: BTreeMap<Part, (u64, Times)>,
}

impl MadeRun {
    /// Reads the run in a folder.
    ///
    /// # Errors
    /// There is no table of flows, or it cannot be read.
    pub fn read(directory: &Path) -> Result<Self, CompareError> {
        let path = directory.join("flows.parquet");
        let file = File::open(&path).map_err(|error| CompareError::Open {
            path: path.clone(),
            error,
        })?;
        flows(directory, file).map_err(|error| CompareError::Read { path, error })
    }
}

fn flows(directory: &Path, file: File) -> Result<MadeRun, ParquetError> {
    let reader = Reader::new(file)?;
    let text = |key| reader.metadata(key).unwrap_or_default().to_owned();
    let warm_up: u64 = text(WARM_UP).parse().unwrap_or(0);
    let mut rows = reader.rows(&["workload", "bytes", "completion_ps", "start_ps"])?;
    let mut found: BTreeMap<Part, (u64, Vec<u64>)> = BTreeMap::new();
    while rows.advance()? {
        let name = match rows.value(0)? {
            Value::Text(name) => name.to_owned(),
            _ => String::new(),
        };
        let int = |column| -> Result<Option<u64>, ParquetError> {
            Ok(match rows.value(column)? {
                Value::Int(number) => u64::try_from(number).ok(),
                _ => None,
            })
        };
        let (bytes, completion, start) = (int(1)?, int(2)?, int(3)?);
        if start.is_some_and(|start| start < warm_up) {
            continue;
        }
        let sizes = [
            None,
            bytes.map(|bytes| Some(size_bin(bytes))).unwrap_or_default(),
        ];
        let sizes = if bytes.is_some() {
            &sizes[..]
        } else {
            &sizes[..1]
        };
        for size in sizes {
            let (flows, times) = found.entry((name.clone(), *size)).or_default();
            *flows += 1;
            times.extend(completion);
        }
    }
    let sorted = |(part, (flows, times)): (Part, (u64, Vec<u64>))| {
        (part, (flows, times.into_iter().collect::<Times>()))
    };
    Ok(MadeRun {
        name: directory.display().to_string(),
        scenario: text("slowpath.scenario_name"),
        seed: text("slowpath.seed").parse().ok(),
        warm_up,
        parts: found.into_iter().map(sorted).collect(),
    })
}

/// One run's flows of a workload and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// The run's folder.
    pub run: String,
    /// Flows that began, after the warm-up if there is one.
    pub flows: u64,
    /// Their completion times; `None` if none is done.
    pub fct: Option<Percentiles>,
    /// The median over the first run's; `None`: one of them is not known.
    pub p50_ratio: Option<f64>,
    /// The 99th percentile over the first run's.
    pub p99_ratio: Option<f64>,
}

/// Flows of a workload and size in all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The workload.
    pub workload: String,
    /// Flows larger than this, bytes; `None`: of all sizes.
    pub above_bytes: Option<u64>,
    /// The largest size, bytes; `None`: any.
    pub up_to_bytes: Option<u64>,
    /// The runs that have such flows, in their order.
    pub runs: Vec<ComparedRun>,
    #[serde(skip)]
    size: Option<usize>,
}

/// All workloads and sizes, compared. A workload whose flows are of one size has no parts.
pub fn compare(runs: &[MadeRun]) -> Vec<Compared> {
    let mut parts: Vec<&Part> = runs.iter().flat_map(|run| run.parts.keys()).collect();
    parts.sort();
    parts.dedup();
    let sizes = |name: &str| {
        let of = parts
            .iter()
            .filter(|part| part.0 == name && part.1.is_some());
        of.count()
    };
    let kept = parts
        .iter()
        .filter(|part| part.1.is_none() || sizes(&part.0) > 1);
    kept.map(|part| one(runs, part)).collect()
}

fn one(runs: &[MadeRun], part: &Part) -> Compared {
    let of = |run: &MadeRun| {
        let (flows, times) = run.parts.get(part)?;
        Some((*flows, times.percentiles()))
    };
    let first = runs.first().and_then(of).and_then(|(_, times)| times);
    let ratio = |times: Option<Percentiles>, which: fn(Percentiles) -> f64| {
        let (times, first) = (which(times?), which(first?));
        (first > 0.0).then(|| times / first)
    };
    let compared = runs.iter().filter_map(|run| {
        let (flows, fct) = of(run)?;
        Some(ComparedRun {
            run: run.name.clone(),
            flows,
            fct,
            p50_ratio: ratio(fct, |it| it.p50_us),
            p99_ratio: ratio(fct, |it| it.p99_us),
        })
    });
    let below = |size: usize| size.checked_sub(1).map_or(0, |below| SIZES[below]);
    Compared {
        workload: part.0.clone(),
        above_bytes: part.1.map(below),
        up_to_bytes: part.1.and_then(|size| SIZES.get(size).copied()),
        runs: compared.collect(),
        size: part.1,
    }
}

/// Writes the comparison as text.
///
/// # Errors
/// Writing fails.
pub fn write(runs: &[MadeRun], paint: Paint, out: &mut impl Write) -> io::Result<()> {
    for run in runs {
        let seed = run
            .seed
            .map_or(String::new(), |seed| format!(", seed {seed}"));
        let name = paint.bold(&plain(&run.name));
        let without = match run.warm_up {
            0 => String::new(),
            ps => format!(", without the first {}", time(micros(ps))),
        };
        writeln!(out, "{name}: {}{seed}{without}", plain(&run.scenario))?;
    }
    writeln!(out)?;
    let head = [
        "flows by workload",
        "run",
        ">flows",
        ">done",
        ">FCT p50",
        ">p95",
        ">p99",
        ">max",
        ">p50 x",
        ">p99 x",
    ];
    let mut table = Columns::new(&head);
    for compared in compare(runs) {
        for (place, run) in compared.runs.iter().enumerate() {
            let name = match compared.size {
                _ if place > 0 => String::new(),
                None => plain(&compared.workload),
                Some(_) => size_name(compared.above_bytes.unwrap_or(0), compared.up_to_bytes),
            };
            let done = run.fct.map_or(0, |fct| fct.count);
            let ratio = |it: Option<f64>| it.map_or("-".to_owned(), |it| format!("{it:.2}"));
            let cells = [
                name,
                plain(&run.run),
                run.flows.to_string(),
                done.to_string(),
            ];
            let ratios = [ratio(run.p50_ratio), ratio(run.p99_ratio)];
            table.row(cells.into_iter().chain(times(run.fct)).chain(ratios));
        }
    }
    for line in table.lines(0, paint) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, parts: &[(&str, Option<usize>, &[u64])]) -> MadeRun {
        let part = |(workload, size, times): &(&str, Option<usize>, &[u64])| {
            let times: Times = times.iter().map(|us| us * 1_000_000).collect();
            (((*workload).to_owned(), *size), (4, times))
        };
        MadeRun {
            name: name.to_owned(),
            scenario: "s.toml".to_owned(),
            seed: Some(1),
            warm_up: 0,
            parts: parts.iter().map(part).collect(),
        }
    }

    #[test]
    fn later_runs_are_multiples_of_the_first() {
        let first = run(
            "a",
            &[("w", None, &[10, 20, 30]), ("w", Some(0), &[10, 20, 30])],
        );
        let second = run(
            "b",
            &[("w", None, &[15, 30, 90]), ("w", Some(0), &[15, 30, 90])],
        );
        let compared = compare(&[first, second]);
        // Of one size only: no part of its own.
        assert_eq!(compared.len(), 1);
        let ratios: Vec<_> = compared[0]
            .runs
            .iter()
            .map(|it| (it.p50_ratio, it.p99_ratio))
            .collect();
        assert_eq!(ratios, [(Some(1.0), Some(1.0)), (Some(1.5), Some(3.0))]);
        assert_eq!(compared[0].runs[1].flows, 4);
    }

    #[test]
    fn what_a_run_lacks_is_left_out_and_unfinished_flows_have_no_ratio() {
        let first = run(
            "a",
            &[("w", None, &[]), ("w", Some(0), &[]), ("w", Some(4), &[])],
        );
        let second = run("b", &[("w", None, &[15]), ("x", None, &[1])]);
        let compared = compare(&[first, second]);
        let parts: Vec<_> = compared
            .iter()
            .map(|it| (it.workload.as_str(), it.above_bytes, it.up_to_bytes))
            .collect();
        assert_eq!(
            parts,
            [
                ("w", None, None),
                ("w", Some(0), Some(10_000)),
                ("w", Some(10_000_000), None),
                ("x", None, None)
            ]
        );
        assert_eq!(compared[0].runs[1].p99_ratio, None);
        assert_eq!(compared[3].runs.len(), 1);
        let mut text = Vec::new();
        write(&[run("a", &[("w", None, &[15])])], Paint::OFF, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(&time(15.0)), "{text}");
    }
}
