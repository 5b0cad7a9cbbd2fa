// SPDX-License-Identifier: Apache-2.0
//! A sweep as text for a terminal.

use super::points::{Estimate, Point, PointWorkload};
use crate::terminal::time;
use slowpath_netsim::sweep::Sweep;
use slowpath_text::{Columns, Paint, bit_rate, plain, plural};
use std::io::{self, Write};

/// Writes a line for each combination and workload.
pub(super) fn write(
    name: &str,
    sweep: &Sweep,
    points: &[Point],
    paint: Paint,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", paint.bold(&plain(name)))?;
    let seeds = sweep.seeds.len() as u64;
    writeln!(
        out,
        "{}: {} with {} each; means over the seeds, with 95 % confidence intervals",
        plural(sweep.runs(), "run"),
        plural(sweep.points(), "combination"),
        plural(seeds, "seed")
    )?;
    writeln!(out)?;
    let all = || points.iter().flat_map(|point| &point.workloads);
    let with_queries = all().any(|workload| workload.qct_p99_us.is_some());
    let keys = sweep.vary.iter().map(|one| plain(&one.key));
    let mut head: Vec<String> = keys.collect();
    head.push("workload".to_owned());
    head.extend([">done", ">FCT p50", ">FCT p99", ">slowdown p99"].map(str::to_owned));
    if with_queries {
        head.push(">QCT p99".to_owned());
    }
    head.extend([">goodput", ">dropped", ">timeouts"].map(str::to_owned));
    let mut table = Columns::new(&head);
    for point in points {
        for workload in &point.workloads {
            let values = sweep.vary.iter().map(|one| point.values.get(&one.key));
            let values = values.map(|value| value.map_or(String::new(), |value| plain(value)));
            table.row(values.chain(cells(workload, with_queries)));
        }
    }
    for line in table.lines(0, paint) {
        writeln!(out, "{line}")?;
    }
    if seeds == 1 {
        writeln!(out)?;
        writeln!(
            out,
            "one seed says nothing of what another would give: --seeds 20"
        )?;
    }
    Ok(())
}

fn cells(of: &PointWorkload, with_queries: bool) -> Vec<String> {
    let share = format!("{}/{}", of.flows_done, of.flows);
    let mut cells = vec![plain(&of.name), share];
    cells.extend([of.fct_p50_us, of.fct_p99_us].map(|it| interval(it, time)));
    cells.push(interval(of.slowdown_p99, |it| format!("{it:.2}")));
    if with_queries {
        cells.push(interval(of.qct_p99_us, time));
    }
    cells.push(interval(of.goodput_bits_per_second, |bits| {
        bit_rate(bits / 8.0)
    }));
    let count = |it: f64| format!("{it:.1}");
    cells.extend([of.packets_dropped, of.timeouts].map(|it| interval(it, count)));
    cells
}

/// The mean and half of its interval.
fn interval(of: Option<Estimate>, unit: impl Fn(f64) -> String) -> String {
    match of {
        None => "-".to_owned(),
        Some(of) => match of.high {
            Some(high) if high > of.mean => {
                format!("{} +-{}", unit(of.mean), unit(high - of.mean))
            }
            _ => unit(of.mean),
        },
    }
}
