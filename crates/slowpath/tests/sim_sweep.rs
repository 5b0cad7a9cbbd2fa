// SPDX-License-Identifier: Apache-2.0
//! Sweeps of `slowpath sim`: the runs, one table, what an interrupted sweep leaves, errors.

use serde_json::Value;
use slowpath_table::{Reader, Value as Cell};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Six senders to one receiver at random times.
const SCENARIO: &str = "seed = 11\nduration = \"20 ms\"\ndrain = \"200 ms\"\n[topology]\n\
    kind = \"dumbbell\"\nleft = 6\nright = 2\n[topology.links]\nrate = \"1 Gbit/s\"\n\
    delay = \"10 us\"\n[switch]\nbuffer = \"20 packets\"\n[[workload]]\nname = \"flows\"\n\
    kind = \"poisson\"\nrate = \"3000 /s\"\nsizes = \"30 kB\"\n";

fn written(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("flows.toml");
    fs::write(&path, text).unwrap();
    path
}

fn command(file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.arg("sim").arg(file).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn done(file: &Path, arguments: &[&str]) -> Output {
    let output = command(file, arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    output
}

fn json(file: &Path, arguments: &[&str]) -> Value {
    let output = done(file, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(file: &Path, arguments: &[&str]) -> String {
    let output = command(file, arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

const VARY: [&str; 6] = [
    "--seeds",
    "3",
    "--vary",
    "tcp.congestion=newreno,cubic",
    "--vary",
    "workload.rate=1000..3000 /s/3",
];

/// A sweep's means are those of the same runs made one by one, and its table has each run's own numbers.
#[test]
fn a_sweep_is_its_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), SCENARIO);
    let out = directory.path().join("sweep");
    let swept = json(
        &file,
        &[&VARY[..], &["--out", out.to_str().unwrap()]].concat(),
    );
    assert_eq!(swept["type"], "sim-sweep");
    assert_eq!(swept["runs"], 18);
    assert_eq!(swept["seeds"], serde_json::json!([11, 12, 13]));
    let points = swept["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    let mut single = Vec::new();
    for (point, values) in points.iter().zip([
        ("newreno", "1000 /s"),
        ("newreno", "2000 /s"),
        ("newreno", "3000 /s"),
        ("cubic", "1000 /s"),
        ("cubic", "2000 /s"),
        ("cubic", "3000 /s"),
    ]) {
        assert_eq!(point["values"]["tcp.congestion"], values.0);
        assert_eq!(point["values"]["workload.rate"], values.1);
        let mut sum = 0.0;
        for seed in ["11", "12", "13"] {
            let algorithm = format!("tcp.algorithm={}", values.0);
            let rate = format!("workload[0].rate={}", values.1);
            let one = json(
                &file,
                &["--seed", seed, "--set", &algorithm, "--set", &rate],
            );
            let p99 = one["workloads"][0]["fct"]["p99_us"].as_f64().unwrap();
            single.push((seed.parse::<i64>().unwrap(), values.0, values.1, p99));
            sum += p99;
        }
        let mean = &point["workloads"][0]["fct_p99_us"];
        assert!(
            (mean["mean"].as_f64().unwrap() - sum / 3.0).abs() < 1e-6,
            "{mean}"
        );
        assert!(mean["low"].as_f64() < mean["mean"].as_f64(), "{mean}");
    }
    let columns = ["seed", "tcp.congestion", "workload.rate", "fct_p99_ps"];
    let reader = Reader::new(File::open(out.join("sweep.parquet")).unwrap()).unwrap();
    let mut rows = reader.rows(&columns).unwrap();
    for (seed, algorithm, rate, p99) in single {
        assert!(rows.advance().unwrap());
        let row: Vec<Cell<'_>> = (0..4).map(|column| rows.value(column).unwrap()).collect();
        let ps = (p99 * 1e6).round() as i64;
        let expected = [
            Cell::Int(seed),
            Cell::Text(algorithm),
            Cell::Text(rate),
            Cell::Int(ps),
        ];
        assert_eq!(row, expected);
    }
    assert!(!rows.advance().unwrap());
}

/// Killed again and again while it runs, it goes on with what it had, and the table is the same.
#[test]
fn an_interrupted_sweep_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), SCENARIO);
    let folder = |name: &str| directory.path().join(name);
    let whole = folder("whole");
    let arguments = |out: &Path| {
        let out = out.to_str().unwrap().to_owned();
        let own = ["--jobs", "2", "--quiet", "--out"].map(str::to_owned);
        let vary = VARY.map(str::to_owned).into_iter();
        vary.chain(own).chain([out]).collect::<Vec<String>>()
    };
    let run = |out: &Path| {
        let arguments = arguments(out);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        command(&file, &arguments)
    };
    assert!(run(&whole).status().unwrap().success());
    let killed = folder("killed");
    let runs = killed.join("sweep.runs");
    let lines = || fs::read(&runs).map_or(0, |text| text.split(|it| *it == b'\n').count());
    for least in [2, 5, 9, 14] {
        let mut child = run(&killed).spawn().unwrap();
        while lines() < least && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A line that was being written.
    let mut text = fs::read(&runs).unwrap();
    text.extend_from_slice(b"{\"run\":17,\"workl");
    fs::write(&runs, text).unwrap();
    assert!(run(&killed).status().unwrap().success());
    let table = |folder: &Path| fs::read(folder.join("sweep.parquet")).unwrap();
    assert!(table(&whole) == table(&killed), "the tables differ");
    // Nothing is left to do, and nothing is done twice.
    let before = fs::read(&runs).unwrap();
    assert!(run(&killed).status().unwrap().success());
    assert_eq!(before, fs::read(&runs).unwrap());
}

#[test]
fn what_cannot_be_swept_is_refused_before_the_first_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), SCENARIO);
    let out = directory.path().join("sweep");
    let out = out.to_str().unwrap();
    done(&file, &["--seeds", "1", "--quiet", "--out", out]);
    for (arguments, says) in [
        (&["--seeds", "2", "--out", out][..], "another sweep"),
        (
            &["--vary", "workload.rate=1000..b/2"],
            "from one number to another",
        ),
        (&["--vary", "workload.rate=3000 /s,fast"], "workload"),
        (&["--vary", "tcp.congestion=dctcp,qubic"], "congestion"),
        (
            &["--vary", "workload[1].rate=1 /s,2 /s"],
            "there is no workload[1]",
        ),
        (&["--vary", "seed=1,2"], "--seeds"),
        (&["--jobs", "2"], "--vary KEY=VALUES"),
        (&["--seeds", "0"], "--seeds"),
    ] {
        let error = refused(&file, arguments);
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    let several = SCENARIO.to_owned()
        + "[[workload]]\nname = \"more\"\nkind = \"poisson\"\nrate = \"10 /s\"\nsizes = \"1 kB\"\n";
    let file = written(directory.path(), &several);
    let error = refused(&file, &["--vary", "workload.rate=10 /s,20 /s"]);
    assert!(error.contains("workload[0] to workload[1]"), "{error}");
}

#[test]
fn text_has_a_line_for_each_combination_and_its_interval() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), SCENARIO);
    let page = directory.path().join("sweep.html");
    let arguments = [&VARY[..], &["--html", page.to_str().unwrap()]].concat();
    let text = String::from_utf8(done(&file, &arguments).stdout).unwrap();
    assert!(
        text.contains("18 runs: 6 combinations with 3 seeds each"),
        "{text}"
    );
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("+-")).collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[5].starts_with("cubic"), "{text}");
    let page = fs::read_to_string(page).unwrap();
    // Three rates on the axis, two algorithms as lines, in each of at least three charts.
    assert!(page.matches("<figure>").count() >= 3, "{page}");
    assert_eq!(page.matches("<circle").count() % 6, 0);
    assert!(page.contains("tcp.congestion cubic"), "{page}");
    let one = String::from_utf8(done(&file, &["--seeds", "1"]).stdout).unwrap();
    assert!(one.contains("--seeds 20"), "{one}");
    assert!(!one.contains("+-"), "{one}");
}

fn compared(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.args(["sim", "compare"]).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// What it says of runs is what they said of themselves.
#[test]
fn runs_are_compared_from_their_tables() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), SCENARIO);
    let folder = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (folder("first"), folder("second"));
    let made = [
        json(&file, &["--out", &first]),
        json(
            &file,
            &["--out", &second, "--set", "switch.buffer=4 packets"],
        ),
    ];
    let output = compared(&[&first, &second, "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["type"], "sim-compare");
    let flows = document["flows"].as_array().unwrap();
    // All flows are of one size.
    assert_eq!(flows.len(), 1);
    for (run, made) in flows[0]["runs"].as_array().unwrap().iter().zip(&made) {
        assert_eq!(run["flows"], made["workloads"][0]["flows"]);
        assert_eq!(run["fct"], made["workloads"][0]["fct"]);
    }
    let p99 = |run: usize| made[run]["workloads"][0]["fct"]["p99_us"].as_f64().unwrap();
    let ratio = flows[0]["runs"][1]["p99_ratio"].as_f64().unwrap();
    assert!((ratio - p99(1) / p99(0)).abs() < 1e-9);
    let text = String::from_utf8(compared(&[&first, &second]).stdout).unwrap();
    assert!(text.contains("flows.toml, seed 11"), "{text}");
    let missing = folder("missing");
    let output = compared(&[&first, &missing]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("flows.parquet") && error.contains("--out"),
        "{error}"
    );
    assert_eq!(compared(&[&first]).status.code(), Some(2));
}

/// The program of the source tree knows its scenarios by name; a wrong one is answered with theirs.
#[test]
fn scenarios_have_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let run = |name: &str| {
        let mut command = command(Path::new(name), &["--set", "duration=2 ms", "--json"]);
        command.env("SLOWPATH_SCENARIOS", &folder).output().unwrap()
    };
    for name in ["dumbbell", "leaf-spine", "incast.toml"] {
        let output = run(name);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {error}");
    }
    let output = run("incst");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("incast, leaf-spine"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

/// Slowdowns by the table: completion over the ideal, and what is not done over the time until the end; none is faster than ideal.
#[test]
fn slowdowns_follow_from_the_table_with_flows_that_are_not_done() {
    let directory = tempfile::tempdir().unwrap();
    // More than the links carry, and nothing after the last start: some are under way.
    let busy = SCENARIO
        .replace("200 ms", "0 s")
        .replace("3000 /s", "9000 /s");
    let file = written(directory.path(), &busy);
    let out = directory.path().join("out");
    let result = json(&file, &["--out", out.to_str().unwrap()]);
    let end = result["simulated_us"].as_f64().unwrap() * 1e6;
    let reader = Reader::new(File::open(out.join("flows.parquet")).unwrap()).unwrap();
    let columns = ["start_ps", "completion_ps", "ideal_ps"];
    let mut rows = reader.rows(&columns).unwrap();
    let (mut all, mut unfinished) = (Vec::new(), 0);
    while rows.advance().unwrap() {
        let number = |column| match rows.value(column).unwrap() {
            Cell::Int(number) => Some(number as f64),
            _ => None,
        };
        unfinished += u64::from(number(1).is_none());
        let took = number(1).unwrap_or(end - number(0).unwrap());
        all.push((took / number(2).unwrap(), number(1).is_some()));
    }
    assert!(unfinished > 0);
    assert!(all.iter().all(|(slowdown, done)| !done || *slowdown >= 1.0));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rank = |share: f64| all[(all.len() as f64 * share).ceil() as usize - 1].0;
    let slowdown = &result["workloads"][0]["slowdown"];
    assert_eq!(slowdown["flows"], all.len());
    assert_eq!(slowdown["unfinished"], unfinished);
    for (key, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)] {
        let found = slowdown[key].as_f64().unwrap();
        assert!((found - rank(share)).abs() < 1e-6, "{key}: {found}");
    }
}
