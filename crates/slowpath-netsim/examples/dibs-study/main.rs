// SPDX-License-Identifier: Apache-2.0
//! The part of the DIBS study that searches: where DIBS breaks (docs/dibs.md).
//!
//! `dibs-study search SECONDS` measures the points that scenarios/dibs/break.jsonl does not
//! have yet, and begins none after that time. `dibs-study fit` fits the model to the
//! training points and says how far it is off on the others. `dibs-study plots` draws the
//! pictures of docs/dibs.md from both files of results.

mod breaking;
mod experiment;
mod plot;

use breaking::{Found, fitted, found, measured, points};
use plot::{Chart, Series};
use serde_json::Value as Json;
use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const THREADS: usize = 2;

fn write(found: &Found) -> Result<(), Box<dyn Error>> {
    let lines: Vec<String> = found.values().map(|json| format!("{json}\n")).collect();
    Ok(std::fs::write(
        experiment::folder().join("break.jsonl"),
        lines.concat(),
    )?)
}

fn search(budget: Duration) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let found = found()?;
    let mut missing = points();
    missing.retain(|(name, _)| !found.contains_key(name));
    missing.reverse();
    let (missing, found) = (Mutex::new(missing), Mutex::new(found));
    let worker = || -> Result<(), String> {
        while begin.elapsed() < budget {
            let Some((name, point)) = missing.lock().map_err(|e| e.to_string())?.pop() else {
                break;
            };
            let mut json = point.search().map_err(|error| error.to_string())?;
            json["name"] = Json::from(name.clone());
            println!("{json}");
            let mut found = found.lock().map_err(|e| e.to_string())?;
            found.insert(name, json);
            write(&found).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        Ok(())
    })
}

/// The 99th percentiles of QCT without and with DIBS, from what tools/dibs_study.py kept of
/// the runs in which that setting alone was varied.
fn swept(key: &str) -> Result<Vec<Series>, Box<dyn Error>> {
    let text = std::fs::read_to_string(experiment::folder().join("results.jsonl"))?;
    let lines: Vec<Json> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let of = |name, detour: &str| {
        let point = |line: &Json| {
            let settings = line["settings"].as_object()?;
            let value = settings.get(key)?.as_str()?;
            let alone = settings.len() == 3 && settings.contains_key("duration");
            let wanted = alone && settings["switch.detour"] == detour;
            let x = value.split(' ').next()?.parse().ok()?;
            let tail = line.pointer("/workloads/0/qct/p99_us")?.as_f64()?;
            wanted.then_some((x, tail / 1000.0))
        };
        let mut points: Vec<(f64, f64)> = lines.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|point| point.0);
        let line = true;
        Series { name, points, line }
    };
    Ok(vec![of("dropped", "false"), of("DIBS", "true")])
}

fn sweeps() -> Result<(), Box<dyn Error>> {
    for (file, title, x, key) in [
        ("rate", "Query rate", "queries a second", "workload[0].rate"),
        (
            "degree",
            "Degree",
            "answers to a query",
            "workload[0].degree",
        ),
        ("buffer", "Buffer", "packets a port", "switch.buffer"),
        ("ttl", "Time to live", "hops", "host.ttl"),
    ] {
        let chart = Chart {
            title,
            x,
            y: "99th percentile of QCT, ms",
            log: (true, true),
            series: swept(key)?,
        };
        draw(file, &chart)?;
    }
    Ok(())
}

fn draw(name: &str, chart: &Chart) -> Result<(), Box<dyn Error>> {
    let images = experiment::folder().join("../../docs/images");
    std::fs::create_dir_all(&images)?;
    Ok(std::fs::write(
        images.join(format!("dibs-{name}.svg")),
        chart.svg(),
    )?)
}

fn plots() -> Result<(), Box<dyn Error>> {
    sweeps()?;
    let found = found()?;
    let model = fitted(&found);
    let compared = |set| {
        let points = measured(&found, set).into_iter();
        points
            .filter_map(|(_, p, load)| Some((load?, model.predict(&p))))
            .collect()
    };
    let totals = |set| {
        let points = measured(&found, set).into_iter();
        points
            .filter_map(|(_, p, load)| Some((p.room(), p.relative(load?))))
            .collect()
    };
    let all = points();
    let rooms = all.iter().map(|(_, point)| point.room());
    let least = rooms.clone().fold(f64::INFINITY, f64::min);
    let most = rooms.fold(0.0, f64::max);
    let curve = (0..=40).map(|step| least * (most / least).powf(f64::from(step) / 40.0));
    let series = |name, points, line| Series { name, points, line };
    let charts = [
        (
            "bound",
            Chart {
                title: "Where DIBS breaks",
                x: "load of queries at which it broke",
                y: "predicted",
                log: (true, true),
                series: vec![
                    series("fitted", compared("training"), false),
                    series("held out", compared("second"), false),
                    series("equal", vec![(0.1, 0.1), (0.8, 0.8)], true),
                ],
            },
        ),
        (
            "phase",
            Chart {
                title: "Works below, broken above",
                x: "room: places for packets a host, over half a burst",
                y: "load of queries over what the background leaves",
                log: (true, false),
                series: vec![
                    series("fitted", totals("training"), false),
                    series("held out", totals("second"), false),
                    series(
                        "bound",
                        curve.map(|room| (room, model.load(room))).collect(),
                        true,
                    ),
                ],
            },
        ),
    ];
    for (name, chart) in charts {
        draw(name, &chart)?;
    }
    Ok(())
}

fn fit() -> Result<(), Box<dyn Error>> {
    let found = found()?;
    let model = fitted(&found);
    println!(
        "ln(rho / (1 - rho)) = {:.3} + {:.3} ln(room)",
        model.offset, model.slope
    );
    for set in ["training", "held-out", "second", "slides"] {
        let mut within = 0;
        let points = measured(&found, set);
        for (name, point, load) in &points {
            within += usize::from(model.is_near(point, *load));
            let predicted = model.predict(point);
            let measured = load.map_or("below 0.03".to_owned(), |load| format!("{load:.3}"));
            let off = load.map_or("-".to_owned(), |load| {
                format!("{:+.0} %", (predicted / load - 1.0) * 100.0)
            });
            println!(
                "| {name} | {} | {} | {} | {} | {} | {:.2} | {measured} | {predicted:.3} | {off} |",
                point.shape.name(),
                point.degree,
                point.response / 1000,
                point.buffer,
                point.background,
                point.room(),
            );
        }
        println!("{set}: {within} of {} within 20 %", points.len());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["search", seconds] => search(Duration::from_secs(seconds.parse()?)),
        ["fit"] => fit(),
        ["plots"] => plots(),
        _ => Err("usage: dibs-study search SECONDS | fit | plots".into()),
    }
}
