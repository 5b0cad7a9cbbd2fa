// SPDX-License-Identifier: Apache-2.0
//! The runs of a sweep as one Parquet file: `docs/reference/simulator.md` describes it.

use super::{Completions, RunResult, SizeResult, WorkloadResult};
use crate::table::{Metadata, TableError, TableFiles};
use slowpath_netsim::sweep::{Sweep, SweepRun};
use slowpath_table::{Column, Kind, Value};
use std::path::Path;

/// Columns before those of the keys that vary.
const FIRST: [&str; 2] = ["run", "seed"];
/// Columns behind them, `workload` being text.
pub const COLUMNS: [&str; 28] = [
    "workload",
    "above_bytes",
    "up_to_bytes",
    "flows",
    "flows_done",
    "goodput_bits_per_second",
    "fct_mean_ps",
    "fct_p50_ps",
    "fct_p95_ps",
    "fct_p99_ps",
    "fct_max_ps",
    "queries",
    "queries_done",
    "qct_mean_ps",
    "qct_p50_ps",
    "qct_p95_ps",
    "qct_p99_ps",
    "qct_max_ps",
    "packets_sent",
    "packets_marked",
    "packets_dropped",
    "detours",
    "retransmissions",
    "timeouts",
    "point",
    "slowdown_p50_thousandths",
    "slowdown_p95_thousandths",
    "slowdown_p99_thousandths",
];

/// Writes `sweep.parquet`, and the CSV where that is wanted, into a directory.
///
/// # Errors
/// It cannot be created or written.
pub fn write(
    directory: &Path,
    metadata: Metadata<'_>,
    sweep: &Sweep,
    results: &[RunResult],
) -> Result<(), TableError> {
    let columns = columns(sweep);
    TableFiles::create(
        directory,
        ["sweep", "runs"],
        columns,
        metadata,
        |mut rows| {
            for result in results {
                let run = sweep.run(result.run);
                for workload in &result.workloads {
                    rows.row(row(sweep, &run, workload, None))?;
                    for size in &workload.sizes {
                        rows.row(row(sweep, &run, workload, Some(size)))?;
                    }
                }
            }
            Ok(rows)
        },
    )
}

fn columns(sweep: &Sweep) -> Vec<Column> {
    let first = FIRST.map(|name| Column::new(name, Kind::Int64));
    let keys = sweep.vary.iter();
    let keys = keys.map(|one| Column::new(one.key.as_str(), Kind::Text));
    let rest = COLUMNS.map(|name| {
        let kind = if name == "workload" {
            Kind::Text
        } else {
            Kind::Int64
        };
        Column::new(name, kind)
    });
    first.into_iter().chain(keys).chain(rest).collect()
}

/// Of all flows of a workload, or of those of a size; what is not counted by size is NULL there.
fn row<'a>(
    sweep: &'a Sweep,
    run: &SweepRun,
    of: &'a WorkloadResult,
    size: Option<&SizeResult>,
) -> Vec<Value<'a>> {
    let int = |number: u64| Value::Int(number.cast_signed());
    let known = |number: Option<u64>| number.map_or(Value::Null, int);
    let whole = |number: u64| known(size.is_none().then_some(number));
    let times = |times: Option<Completions>| {
        let of = times.map(|it| [it.mean, it.p50, it.p95, it.p99, it.max]);
        of.map_or([const { Value::Null }; 5], |of| of.map(int))
    };
    let fct = size.map_or(of.fct, |size| size.fct);
    let done = fct.map_or(0, |times| times.count);
    let mut row = vec![int(run.number), int(run.seed)];
    row.extend(sweep.values(run.point).into_iter().map(Value::Text));
    row.extend([
        Value::Text(&of.name),
        known(size.map(|size| size.above_bytes)),
        known(size.and_then(|size| size.up_to_bytes)),
        int(size.map_or(of.flows, |size| size.flows)),
        int(size.map_or(of.flows_done, |_| done)),
        whole(of.goodput_bits_per_second),
    ]);
    row.extend(times(fct));
    row.extend([whole(of.queries), whole(of.queries_done)]);
    row.extend(times(of.qct.filter(|_| size.is_none())));
    row.extend([
        whole(of.packets_sent),
        whole(of.packets_marked),
        whole(of.packets_dropped),
        whole(of.detours),
        whole(of.retransmissions),
        whole(of.timeouts),
        int(run.point),
    ]);
    let slowdown = size.map_or(of.slowdown, |size| size.slowdown);
    let slowdown = slowdown.map(|it| [it.p50, it.p95, it.p99]);
    row.extend(slowdown.map_or([const { Value::Null }; 3], |of| of.map(int)));
    row
}

#[cfg(test)]
mod tests {
    use super::COLUMNS;

    #[test]
    fn every_column_is_documented() {
        let doc = include_str!("../../../../docs/reference/simulator.md");
        let (_, section) = doc.split_once("### sweep.parquet").unwrap();
        let section = section.split("\n## ").next().unwrap_or(section);
        for column in COLUMNS {
            assert!(section.contains(&format!("`{column}`")), "{column}");
        }
    }
}
