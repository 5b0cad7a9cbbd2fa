// SPDX-License-Identifier: Apache-2.0
//! Report pages as they are drawn: no two labels of a chart meet, the same name has the same colour
//! everywhere, and the warm-up is shaded and left out. The page of a run is drawn by its own script,
//! which runs here in Node.js with the little of a document that it uses.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the script of a page; prints what it draws, by selector.
const DRAW: &str = r#"
const html = require("fs").readFileSync(process.argv[1], "utf8");
const part = (from, to) => html.split(from)[1].split(to)[0];
const data = part('id="data">', "</script>");
const script = html.slice(html.lastIndexOf("<script>") + 8, html.lastIndexOf("</script>"));
const drawn = {};
const element = (name) => (drawn[name] ??= { innerHTML: "", textContent: "", dataset: {} });
globalThis.document = {
  getElementById: () => ({ textContent: data }), querySelector: element, addEventListener() {},
  documentElement: { setAttribute() {}, dataset: {} },
};
globalThis.matchMedia = () => ({ matches: false });
new Function(script)();
const texts = Object.entries(drawn).map(([name, it]) => [name, it.innerHTML + it.textContent]);
console.log(JSON.stringify(Object.fromEntries(texts)));
"#;

/// What a page's script draws; `None`, with the reason, without Node.js.
fn drawn(test: &str, page: &Path) -> Option<BTreeMap<String, String>> {
    let output = match Command::new("node").args(["-e", DRAW]).arg(page).output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED {test}: Node.js: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Left, top, right, bottom.
type Area = [f64; 4];

/// The value of an attribute in a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// Where a text is drawn: digits of DejaVu Sans are 0.636 em wide, and it rises 0.76 em above the
/// line and falls 0.24 em below.
fn area(tag: &str, content: &str) -> Area {
    let size = attribute(tag, "style").and_then(|it| it.split_once("font-size:"));
    let size = size.map_or(12.0, |(_, it)| number(it.trim_end_matches("px")));
    let plain = ["&lt;", "&gt;", "&amp;", "&quot;"]
        .iter()
        .fold(content.to_owned(), |text, entity| text.replace(entity, "x"));
    let width = plain.chars().count() as f64 * size * 0.636;
    let (up, down) = (size * 0.76, size * 0.24);
    if let Some(turned) = attribute(tag, "transform") {
        // translate(X Y) rotate(-90), its middle there.
        let at = turned.split(['(', ')', ' ']).collect::<Vec<_>>();
        let (x, y) = (number(at[1]), number(at[2]));
        return [x - up, y - width / 2.0, x + down, y + width / 2.0];
    }
    let [x, y] = ["x", "y"].map(|name| number(attribute(tag, name).expect("a place")));
    let left = match attribute(tag, "text-anchor") {
        Some("end") => x - width,
        Some("middle") => x - width / 2.0,
        _ => x,
    };
    [left, y - up, left + width, y + down]
}

fn meet(a: Area, b: Area) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// How many labels the charts have; none meets another one or leaves its chart.
#[track_caller]
fn labels_are_clear(markup: &str) -> usize {
    let mut count = 0;
    for chart in markup.split("<svg ").skip(1) {
        let (chart, _) = chart.split_once("</svg>").expect("an end");
        let head = format!(" {chart}");
        let size = attribute(&head, "viewBox").expect("a size");
        let size: Vec<f64> = size.split(' ').map(number).collect();
        let mut labels: Vec<(Area, &str)> = Vec::new();
        for label in chart.split("<text").skip(1) {
            let (tag, rest) = label.split_once('>').expect("a tag");
            let (content, _) = rest.split_once('<').expect("an end");
            let own = area(tag, content);
            let inside = own[0] >= -1.0 && own[1] >= -1.0 && own[2] <= size[2] + 1.0;
            assert!(
                inside && own[3] <= size[3] + 1.0,
                "'{content}' {own:?} in {size:?}"
            );
            for (other, said) in &labels {
                assert!(
                    !meet(own, *other),
                    "'{content}' {own:?} and '{said}' {other:?}"
                );
            }
            labels.push((own, content));
            count += 1;
        }
    }
    count
}

/// The colours of each name in legends.
fn legends(markup: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in markup.split("style=\"border-color:").skip(1) {
        let (colour, rest) = entry.split_once('"').expect("a colour");
        let (_, name) = rest.split_once("</i>").expect("a mark");
        let (name, _) = name.split_once('<').expect("an end");
        all.entry(name.to_owned())
            .or_default()
            .insert(colour.to_owned());
    }
    all
}

/// Long names, a limit and marking near each other, flows and links over time, 10 ms of warm-up.
const SCENARIO: &str = r#"duration = "60 ms"
seed = 3
[topology]
kind = "dumbbell"
left = 3
right = 3
[topology.links]
rate = "100 Mbit/s"
delay = "50 us"
[switch]
buffer = "100 packets"
marking = "98 packets"
[tcp]
preset = "dctcp"
[[workload]]
name = "background transfers of the night"
kind = "poisson"
load = 0.6
sizes = "20 kB"
[[workload]]
name = "long"
kind = "bulk"
from = ["left-0", "left-1"]
to = ["right-0", "right-1"]
[measure]
queues = ["left -> right", "right -> left"]
every = "200 us"
flows = ["long"]
links = ["left <-> right"]
warm-up = "10 ms"
"#;

/// A run with a page; its summary.
fn run(folder: &Path, arguments: &[&str]) -> Value {
    let file = folder.join("scenario.toml");
    fs::write(&file, SCENARIO).unwrap();
    let line = [&["sim", file.to_str().unwrap(), "--json"], arguments].concat();
    let output = slowpath(&line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn labels_of_a_runs_charts_do_not_meet_and_names_keep_their_colours() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    run(folder.path(), &["--html", page.to_str().unwrap()]);
    let test = "labels_of_a_runs_charts_do_not_meet_and_names_keep_their_colours";
    let Some(drawn) = drawn(test, &page) else {
        return;
    };
    let all: String = drawn.values().map(String::as_str).collect();
    // Two queues, three charts of series, and completion times, of ten labels or so each.
    assert!(labels_are_clear(&all) > 60);
    let legends = legends(&all);
    let mut colours = BTreeSet::new();
    // Medians and percentiles of a workload share its colour: they are named after neither.
    for (name, own) in legends
        .iter()
        .filter(|(name, _)| !name.contains("percentile"))
    {
        assert_eq!(own.len(), 1, "{name}: {own:?}");
        colours.extend(own.iter().filter(|_| !name.ends_with(": median")).cloned());
    }
    let names = [
        "background transfers of the night",
        "0: left-0 -&gt; right-0",
        "left -&gt; right",
    ];
    for name in names {
        assert!(legends.contains_key(name), "{name} in {legends:?}");
    }
    // Two workloads may have a legend, two flows and two links do: no two of one colour.
    let series = legends
        .keys()
        .filter(|name| !name.contains("median") && !name.contains("percentile"));
    assert_eq!(colours.len(), series.count());
}

/// The completion times in the table of flows of those that began after 10 ms and are done, in order; picoseconds.
fn late_flows(table: &Path) -> Vec<u64> {
    let table = fs::read_to_string(table).unwrap();
    let mut lines = table.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|it| *it == name).unwrap();
    let (workload, start, took) = (
        column("workload"),
        column("start_ps"),
        column("completion_ps"),
    );
    let mut counted = Vec::new();
    for line in lines {
        let row: Vec<&str> = line.split(',').collect();
        let late = row[start].parse::<u64>().unwrap() >= 10_000_000_000;
        if late && row[workload] != "long" {
            counted.extend(row[took].parse::<u64>());
        }
    }
    counted.sort_unstable();
    counted
}

#[test]
fn the_warm_up_is_left_out_of_distributions() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let written = ["--out", out.to_str().unwrap(), "--csv"];
    let summary = run(folder.path(), &written);
    let whole = run(folder.path(), &["--set", "measure.warm-up=0 s"]);
    // It changes nothing of the run itself.
    assert_eq!(summary["packets"], whole["packets"]);
    assert_eq!(summary["flows"], whole["flows"]);
    assert_eq!(summary["warm_up_us"], 10_000.0);
    assert!(whole.get("warm_up_us").is_none());
    let counted = late_flows(&out.join("flows.csv"));
    let fct = &summary["workloads"][0]["fct"];
    assert_eq!(fct["count"], counted.len());
    // The nearest rank.
    let median = counted[counted.len().div_ceil(2) - 1] as f64 / 1e6;
    assert_eq!(fct["p50_us"], median);
    assert!(whole["workloads"][0]["fct"]["count"].as_u64() > fct["count"].as_u64());
    let text_of = slowpath(&[
        "sim",
        "compare",
        out.to_str().unwrap(),
        out.to_str().unwrap(),
    ]);
    assert!(
        text(&text_of.stdout).contains("without the first 10.0ms"),
        "{text_of:?}"
    );
}

#[test]
fn charts_over_time_show_the_warm_up_shaded() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    run(folder.path(), &["--html", page.to_str().unwrap()]);
    let Some(drawn) = drawn("charts_over_time_show_the_warm_up_shaded", &page) else {
        return;
    };
    for part in ["#queues .charts", "#series .charts"] {
        let charts = drawn[part].matches("<svg ").count();
        assert_eq!(
            drawn[part].matches("class=\"warm\"").count(),
            charts,
            "{part}"
        );
    }
    // Its end is 10 ms of the time's scale.
    let chart = drawn["#series .charts"].split("<svg ").nth(1).unwrap();
    let shade = chart.split("<rect").nth(1).unwrap();
    let [x, width] = ["x", "width"].map(|name| number(attribute(shade, name).unwrap()));
    let tick = chart
        .split("<text")
        .find(|it| it.contains(">20 ms<"))
        .unwrap();
    let twenty = number(attribute(tick, "x").unwrap());
    assert!(
        (x + 2.0 * width - twenty).abs() < 0.1,
        "{x} {width} {twenty}"
    );
    assert!(!drawn["#completion .charts"].contains("class=\"warm\""));
    assert!(
        drawn["#description"].contains("warm-up"),
        "{}",
        drawn["#description"]
    );
}

#[test]
fn labels_of_a_sweeps_charts_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("sweep.html");
    let vary = "switch.buffer=20 packets,40 packets,60 packets,80 packets,100 packets,120 packets";
    let line = [
        "--vary",
        vary,
        "--vary",
        "tcp.preset=dctcp,linux",
        "--seeds",
        "2",
        "--html",
    ];
    run(
        folder.path(),
        &[&line[..], &[page.to_str().unwrap()]].concat(),
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(labels_are_clear(&html) > 40);
    for (name, colours) in legends(&html) {
        assert_eq!(colours.len(), 1, "{name}: {colours:?}");
    }
    // A chart by itself is no wider than one among others.
    assert!(
        !html.contains("auto-fit"),
        "a lone chart would fill the page"
    );
}
