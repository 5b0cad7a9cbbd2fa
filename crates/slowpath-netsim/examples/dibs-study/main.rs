// SPDX-License-Identifier: Apache-2.0
//! The part of the DIBS study that searches: where DIBS breaks (docs/journal/dibs.md).
//!
//! `dibs-study search SECONDS` measures the points that scenarios/dibs/break.jsonl does not
//! have yet, first those held out, and begins none after that time. `dibs-study draw` prints
//! the held-out points and what the model says of them. `dibs-study fit` fits the model and
//! says how far it is off on each point. `dibs-study plots` draws the
//! pictures of docs/journal/dibs.md from both files of results.

mod breaking;
mod experiment;
mod plot;

use breaking::{
    FITTED, FRESH, Measurements, Point, SECOND_FRESH, fitted, found, fresh, measured, panels,
    sliced,
};
use plot::{Chart, Series};
use serde_json::Value as Json;
use std::error::Error;
use std::time::{Duration, Instant};

fn write(found: &Measurements) -> Result<(), Box<dyn Error>> {
    let lines: Vec<String> = found.values().map(|json| format!("{json}\n")).collect();
    Ok(std::fs::write(
        experiment::folder().join("break.jsonl"),
        lines.concat(),
    )?)
}

fn search(budget: Duration) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let mut found = found()?;
    for (name, point) in fresh(&fitted(&found)).into_iter().chain(sliced()) {
        if found.contains_key(&name) {
            continue;
        }
        if begin.elapsed() >= budget {
            break;
        }
        let mut json = point.search()?;
        json["name"] = Json::from(name.clone());
        println!("{json}");
        found.insert(name, json);
        write(&found)?;
    }
    Ok(())
}

/// The 99th percentiles of QCT without and with DIBS, from what tools/dibs_study.py kept of
/// the runs in which only that setting was varied.
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
            let only_one = settings.len() == 3 && settings.contains_key("duration");
            let wanted = only_one && settings["switch.detour"] == detour;
            let x = value.split(' ').next()?.parse().ok()?;
            let tail = line.pointer("/workloads/0/qct/p99_us")?.as_f64()?;
            wanted.then_some((x, tail / 1000.0))
        };
        let mut points: Vec<(f64, f64)> = lines.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|point| point.0);
        (name, points)
    };
    let series = [of("dropped", "false"), of("DIBS", "true")];
    let series = series.into_iter().enumerate();
    let series = series.map(|(colour, (name, points))| Series {
        name,
        points,
        line: true,
        colour,
    });
    Ok(series.collect())
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
    let compared = |set| -> Vec<(f64, f64)> {
        let points = measured(&found, set).into_iter();
        points
            .filter_map(|(_, p, load)| Some((load?, model.predict(&p))))
            .collect()
    };
    let series = |name, points, line, colour| Series {
        name,
        points,
        line,
        colour,
    };
    let chart = Chart {
        title: "Where DIBS breaks",
        x: "load of queries at which it broke",
        y: "predicted",
        log: (true, true),
        series: vec![
            series(
                "fitted",
                FITTED.into_iter().flat_map(compared).collect(),
                false,
                0,
            ),
            series(
                "held out",
                [FRESH, SECOND_FRESH]
                    .into_iter()
                    .flat_map(compared)
                    .collect(),
                false,
                1,
            ),
            series("equal", vec![(0.03, 0.03), (0.5, 0.5)], true, 2),
            series("20 % off", vec![(0.03, 0.036), (0.5, 0.6)], true, 3),
            series("", vec![(0.03, 0.024), (0.5, 0.4)], true, 3),
        ],
    };
    draw("bound", &chart)?;
    let slices = sliced();
    let broke = |point: &Point| {
        let (name, _) = slices.iter().find(|(_, known)| known == point)?;
        found.get(name)?["load"].as_f64()
    };
    for panel in panels() {
        let mut both = Vec::new();
        for (colour, (name, points)) in panel.curves.into_iter().enumerate() {
            let mut bound = Vec::new();
            let mut runs = Vec::new();
            for (x, point) in points {
                bound.push((x, model.predict(&point)));
                runs.extend(broke(&point).map(|load| (x, load)));
            }
            both.push(series(name, bound, true, colour));
            both.push(series("", runs, false, colour));
        }
        let chart = Chart {
            title: panel.title,
            x: panel.x,
            y: "load of queries",
            log: (panel.log, false),
            series: both,
        };
        draw(&format!("phase-{}", panel.name), &chart)?;
    }
    Ok(())
}

fn fit() -> Result<(), Box<dyn Error>> {
    let found = found()?;
    let model = fitted(&found);
    println!(
        "share {:.3}, reserve {:.2} packets",
        model.share, model.reserve
    );
    for set in FITTED.into_iter().chain([FRESH, SECOND_FRESH, "slice"]) {
        let mut within = 0;
        let points = measured(&found, set);
        for (name, point, load) in &points {
            within += usize::from(model.is_near(point, *load));
            let predicted = model.predict(point);
            let measured = load.map_or("below the least tried".to_owned(), |load| {
                format!("{load:.3}")
            });
            let off = load.map_or("-".to_owned(), |load| {
                format!("{:+.0} %", (predicted / load - 1.0) * 100.0)
            });
            println!("{} {measured} | {predicted:.3} | {off} |", row(name, point));
        }
        println!("{set}: {within} of {} within 20 %", points.len());
    }
    Ok(())
}

fn row(name: &str, point: &Point) -> String {
    format!(
        "| {name} | {} | {} | {} | {} | {} |",
        point.shape.name(),
        point.degree,
        point.response / 1000,
        point.buffer,
        point.background,
    )
}

/// Prints the held-out points before they are run.
fn print_fresh() -> Result<(), Box<dyn Error>> {
    let model = fitted(&found()?);
    for (name, point) in fresh(&model) {
        println!("{} {:.3} |", row(&name, &point), model.predict(&point));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["search", seconds] => search(Duration::from_secs(seconds.parse()?)),
        ["fit"] => fit(),
        ["draw"] => print_fresh(),
        ["plots"] => plots(),
        _ => Err("usage: dibs-study search SECONDS | draw | fit | plots".into()),
    }
}
