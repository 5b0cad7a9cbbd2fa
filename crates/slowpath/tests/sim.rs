// SPDX-License-Identifier: Apache-2.0
//! `slowpath sim` from end to end: exact times, tables, the report, errors.

use serde_json::Value;
use slowpath_table::{self as table, Reader};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios/sim")
        .join(name)
}

fn sim(file: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .arg("sim")
        .arg(file)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn json(file: &Path, arguments: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend_from_slice(arguments);
    let output = sim(file, &all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// One sender and one receiver across two switches.
const PIPE: &str = "seed = 1\nduration = \"1 ms\"\ndrain = \"100 ms\"\n[topology]\n\
    kind = \"dumbbell\"\nleft = 1\nright = 1\n[topology.links]\nrate = \"1 Gbit/s\"\n\
    delay = \"10 us\"\n[switch]\nbuffer = \"100 packets\"\n[[workload]]\nname = \"one\"\n\
    kind = \"bulk\"\nfrom = [\"left-*\"]\nto = [\"right-*\"]\nbytes = \"1460 B\"\n";

fn written(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// 1,500 bytes take 12 us on each of three links and 10 us to the end of each.
#[test]
fn a_pipe_takes_as_long_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "pipe.toml", PIPE);
    let result = json(&file, &[]);
    let flow = &result["workloads"][0];
    assert_eq!(flow["fct"]["p50_us"], 66.0);
    // It meets no other traffic.
    assert_eq!(flow["slowdown"]["max"], 1.0);
    assert_eq!(flow["fct"]["max_us"], 66.0);
    assert_eq!(flow["flows_done"], 1);
    // One segment over three links, and its ACK back.
    assert_eq!(result["packets"]["sent"], 2);
    assert_eq!(result["packets"]["hops"], 6);
    assert_eq!(result["packets"]["conserved"], true);
    assert_eq!(result["type"], "sim");
    // Two full segments follow each other: 12 us more.
    let two = json(&file, &["--set", "workload[0].bytes=2920 B"]);
    assert_eq!(two["workloads"][0]["fct"]["p50_us"], 78.0);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let file = scenario("incast.toml");
    let arguments = ["--set", "duration=40 ms", "--set", "switch.detour=true"];
    let run = |seed: &str| {
        let directory = tempfile::tempdir().unwrap();
        let (out, html) = (directory.path().join("t"), directory.path().join("r.html"));
        let mut all = arguments.to_vec();
        all.extend(["--seed", seed, "--json", "--out", out.to_str().unwrap()]);
        all.extend(["--html", html.to_str().unwrap()]);
        let output = sim(&file, &all);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&out).unwrap() {
            let entry = entry.unwrap();
            files.insert(entry.file_name(), fs::read(entry.path()).unwrap());
        }
        // Six tables, and the list of them.
        assert_eq!(files.len(), 7);
        files.insert("html".into(), fs::read(html).unwrap());
        files.insert("stdout".into(), output.stdout);
        files
    };
    assert!(run("3") == run("3"));
    let flows = |seed| run(seed).remove(OsStr::new("flows.parquet"));
    assert!(flows("3") != flows("4"));
}

/// A table's columns; what is null is left out of the map of its row.
fn rows(path: &Path) -> (HashMap<String, String>, Vec<HashMap<String, Value>>) {
    let reader = Reader::new(File::open(path).unwrap()).unwrap();
    let keys = [
        "slowpath.schema_version",
        "slowpath.table",
        "slowpath.scenario",
        "slowpath.seed",
    ];
    let value = |key: &str| (key.to_owned(), reader.metadata(key).unwrap().to_owned());
    let metadata = keys.map(value).into();
    let columns = reader.columns();
    let mut read = reader.rows(&columns).unwrap();
    let mut rows = Vec::new();
    while read.advance().unwrap() {
        let mut values = HashMap::new();
        for (place, name) in columns.iter().enumerate() {
            let value = match read.value(place).unwrap() {
                table::Value::Null => continue,
                table::Value::Int(number) => Value::from(number),
                table::Value::Text(text) => Value::from(text),
                other => panic!("{name}: {other:?}"),
            };
            values.insert((*name).to_owned(), value);
        }
        rows.push(values);
    }
    (metadata, rows)
}

/// The nearest rank, in microseconds.
fn percentile(times: &[i64], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() as f64 * share).ceil() as usize;
    times[rank.max(1) - 1] as f64 / 1e6
}

fn number(row: &HashMap<String, Value>, column: &str) -> i64 {
    row[column].as_i64().unwrap()
}

fn in_page(html: &str) -> Value {
    let begin = "<script type=\"application/json\" id=\"data\">";
    let (_, rest) = html.split_once(begin).unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

/// What a run of the simulator answered, and the tables that the answers follow from.
struct RunOutput {
    /// What `--json` printed.
    said: Value,
    /// The data in the report's page.
    drawn: Value,
    tables: PathBuf,
    /// When the run ended, ps.
    end: i64,
}

impl RunOutput {
    fn table(&self, name: &str) -> Vec<HashMap<String, Value>> {
        rows(&self.tables.join(format!("{name}.parquet"))).1
    }

    /// The workloads of `--json`.
    fn workloads(&self) -> &[Value] {
        self.said["workloads"].as_array().unwrap()
    }

    fn seconds(&self) -> f64 {
        self.end as f64 / 1e12
    }

    /// Packets of the whole run.
    fn packets_agree(&self) {
        let counts = self.table("counts");
        let count = |what: &str| total(&counts, what);
        let packets = &self.said["packets"];
        for (key, what) in [
            ("sent", "packets_sent"),
            ("delivered", "packets_delivered"),
            ("dropped", "packets_dropped"),
            ("in_network", "packets_in_network"),
            ("hops", "packet_hops"),
        ] {
            assert_eq!(packets[key], count(what), "{key}");
        }
        assert!(
            packets["dropped"].as_i64().unwrap() > 0,
            "an incast that drops"
        );
    }

    /// Flows, queries and their completion times of each workload.
    fn workloads_agree(&self) {
        let (flows, queries) = (self.table("flows"), self.table("queries"));
        for (number_of, workload) in self.workloads().iter().enumerate() {
            let name = workload["name"].as_str().unwrap();
            let mine: Vec<_> = flows.iter().filter(|row| row["workload"] == name).collect();
            assert_eq!(workload["flows"], mine.len());
            let sum = |column| -> i64 { mine.iter().map(|row| number(row, column)).sum() };
            assert_eq!(workload["retransmissions"], sum("retransmissions"));
            assert_eq!(workload["timeouts"], sum("timeouts"));
            let goodput = sum("arrived_bytes") as f64 * 8.0 / self.seconds();
            let said_goodput = workload["goodput_bits_per_second"].as_f64().unwrap();
            assert!((said_goodput / goodput - 1.0).abs() < 1e-9);
            let done = |rows: &[&HashMap<String, Value>]| -> Vec<i64> {
                let done = rows.iter().filter(|row| row.contains_key("completion_ps"));
                done.map(|row| number(row, "completion_ps")).collect()
            };
            let asked: Vec<_> = queries
                .iter()
                .filter(|row| row["workload"] == name)
                .collect();
            assert_eq!(workload["queries"], asked.len());
            self.distribution_agrees(number_of, "fct", &done(&mine));
            self.distribution_agrees(number_of, "qct", &done(&asked));
            for row in mine {
                let switches = row["path"].as_str().unwrap().split(" > ").count();
                assert!(
                    [1, 3, 5].contains(&switches),
                    "a fat-tree's ways: {switches}"
                );
            }
        }
    }

    /// Completion times (`key`: fct or qct) of a workload, ps: percentiles and curve.
    fn distribution_agrees(&self, number_of: usize, key: &str, times: &[i64]) {
        let workload = &self.workloads()[number_of];
        if times.is_empty() {
            assert!(workload[key].is_null());
            return;
        }
        for (share, column) in [(0.5, "p50_us"), (0.95, "p95_us"), (0.99, "p99_us")] {
            assert_eq!(
                workload[key][column],
                percentile(times, share),
                "{key} {column}"
            );
        }
        // The curve's points lie on the distribution of the table.
        let curves = self.drawn["charts"][key].as_array().unwrap();
        let curve = curves.iter().find(|c| c["workload"] == number_of).unwrap();
        for point in curve["points"].as_array().unwrap() {
            let (us, share) = (point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
            let below = times.iter().filter(|t| **t as f64 / 1e6 <= us).count();
            assert!(below as f64 / times.len() as f64 >= share - 1e-12);
            assert!(times.iter().any(|t| *t as f64 / 1e6 == us));
        }
    }

    /// Load, drops, detours and marks of links.
    fn links_agree(&self) {
        let links = self.table("links");
        let load = |row: &HashMap<String, Value>| {
            number(row, "bytes") as f64 * 8.0
                / (number(row, "rate_bits_per_second") as f64 * self.seconds())
        };
        let hottest = links.iter().map(load).fold(0.0, f64::max);
        let said_load = self.said["hottest_link"]["load_share"].as_f64().unwrap();
        assert!((said_load - hottest).abs() < 1e-9, "{said_load} {hottest}");
        let groups = self.drawn["charts"]["links"].as_array().unwrap().iter();
        let cells = groups.flat_map(|g| g["rows"].as_array().unwrap());
        let cells: Vec<&Value> = cells.flat_map(|r| r["cells"].as_array().unwrap()).collect();
        assert_eq!(cells.len(), links.len());
        for (key, column) in [
            ("drops", "dropped"),
            ("detours", "detoured"),
            ("marks", "marked"),
        ] {
            let drawn: i64 = cells.iter().map(|cell| cell[key].as_i64().unwrap()).sum();
            assert_eq!(
                drawn,
                links.iter().map(|row| number(row, column)).sum::<i64>(),
                "{key}"
            );
        }
    }

    /// Events over time add up to the counts, in the table and in the charts.
    fn events_agree(&self) {
        let events = self.table("events");
        for (column, kind, key) in [
            ("dropped", "drops", "packets_dropped"),
            ("marked", "marks", "packets_marked"),
        ] {
            let charts = self.drawn["charts"]["events"].as_array().unwrap();
            let chart = charts.iter().find(|chart| chart["kind"] == kind).unwrap();
            for (label, workload) in self.workloads().iter().enumerate() {
                let mine = events
                    .iter()
                    .filter(|row| row["workload"] == workload["name"]);
                let sum: i64 = mine.map(|row| number(row, column)).sum();
                assert_eq!(workload[key], sum, "{kind}");
                let bars = chart["workloads"][label].as_array().unwrap();
                assert_eq!(
                    bars.iter().map(|bar| bar.as_i64().unwrap()).sum::<i64>(),
                    sum
                );
            }
        }
    }

    /// The mean of a queue over time, from its samples.
    fn queues_agree(&self) {
        let samples = self.table("queues");
        for queue in self.said["queues"].as_array().unwrap() {
            let mine = samples.iter().filter(|row| {
                row["switch"] == queue["switch"] && row["neighbour"] == queue["neighbour"]
            });
            let (mut area, mut from, mut packets, mut most) = (0.0, 0, 0, 0);
            for row in mine {
                area += (number(row, "time_ps") - from) as f64 * packets as f64;
                (from, packets) = (number(row, "time_ps"), number(row, "packets"));
                most = most.max(packets);
            }
            area += (self.end - from) as f64 * packets as f64;
            let mean = queue["mean_packets"].as_f64().unwrap();
            assert!((mean - area / self.end as f64).abs() < 1e-9);
            assert_eq!(queue["max_packets"], most);
        }
    }
}

/// A count of the whole run.
fn total(counts: &[HashMap<String, Value>], what: &str) -> i64 {
    let found = counts
        .iter()
        .find(|row| row.get("workload").is_none() && row["what"] == what);
    number(found.unwrap(), "count")
}

/// What JSON and the report say, computed again from the tables.
#[test]
fn the_summary_and_the_report_follow_from_the_tables() {
    let directory = tempfile::tempdir().unwrap();
    let (out, page) = (
        directory.path().join("tables"),
        directory.path().join("r.html"),
    );
    let arguments = ["--set", "duration=60 ms", "--set", "measure.paths=true"];
    let mut all = arguments.to_vec();
    all.extend([
        "--out",
        out.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ]);
    let said = json(&scenario("incast.toml"), &all);
    let html = fs::read_to_string(&page).unwrap();
    let drawn = in_page(&html);
    let mut summary = said.clone();
    summary.as_object_mut().unwrap().remove("type");
    assert_eq!(drawn["summary"], summary);

    let (about, _) = rows(&out.join("flows.parquet"));
    assert_eq!(about["slowpath.seed"], "1");
    assert_eq!(about["slowpath.schema_version"], "1");
    assert_eq!(about["slowpath.table"], "sim.flows");
    // The text that was run, ready to run again.
    let again = written(directory.path(), "again.toml", &about["slowpath.scenario"]);
    let mut second = json(&again, &[]);
    second["scenario"] = said["scenario"].clone();
    assert_eq!(second, said);

    let (_, counts) = rows(&out.join("counts.parquet"));
    let output = RunOutput {
        said,
        drawn,
        tables: out,
        end: total(&counts, "end_ps"),
    };
    output.packets_agree();
    output.workloads_agree();
    output.links_agree();
    output.events_agree();
    output.queues_agree();
}

#[test]
fn the_report_needs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("r.html");
    let name = "</script><script>alert(1)</script>";
    let with_name = PIPE.replace("\"one\"", &format!("'{name}'"));
    let file = written(directory.path(), "a&<b>.toml", &with_name);
    let output = sim(&file, &["--quiet", "--html", page.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    let html = fs::read_to_string(&page).unwrap();
    for reference in [
        "http:",
        "https:",
        "//cdn",
        " src=",
        "href=",
        "url(",
        "@import",
        "fetch(",
        "XMLHttp",
        "WebSocket",
        "import(",
        "<link",
        "<img",
        "<iframe",
    ] {
        assert!(!html.contains(reference), "{reference}");
    }
    // Names cannot become markup: the page's own two scripts and no more.
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(in_page(&html)["summary"]["workloads"][0]["name"], name);
    assert!(html.contains("<title>a&amp;&lt;b&gt;.toml"));
}

#[test]
fn a_bad_scenario_is_named_with_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for (name, from, to, wanted) in [
        (
            "unknown.toml",
            "buffer =",
            "bufer = 1\nbuffer =",
            &["line 12", "switch.bufer"][..],
        ),
        (
            "rate.toml",
            "1 Gbit/s",
            "1 Gbit",
            &["line 9", "topology.links.rate", "Gbit/s"],
        ),
        (
            "zero.toml",
            "100 packets",
            "0 packets",
            &["line 12", "switch.buffer"],
        ),
        (
            "host.toml",
            "left-*",
            "lift-*",
            &["line 16", "workload[0].from", "lift-*"],
        ),
        ("toml.toml", "kind = \"dumbbell\"", "kind = ", &["line 5"]),
    ] {
        let file = written(path, name, &PIPE.replacen(from, to, 1));
        let output = sim(&file, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(name), "{said}");
        for word in wanted {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    let output = sim(&path.join("nosuch.toml"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nosuch.toml"));
}

#[test]
fn a_bad_change_is_named_and_lines_stay_those_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "pipe.toml", PIPE);
    for argument in ["seed", "topology=3", "workload[7].bytes=1 B", "a b=1"] {
        let output = sim(&file, &["--set", argument]);
        assert_eq!(output.status.code(), Some(2), "{argument}");
        assert!(text(&output.stderr).contains(argument));
    }
    for (argument, wanted) in [
        ("switch.buffer=0 packets", "--set switch.buffer=0 packets"),
        ("switch.colour=red", "--set switch.colour=red"),
    ] {
        let output = sim(&file, &["--set", argument]);
        assert_eq!(output.status.code(), Some(1), "{argument}");
        let said = text(&output.stderr);
        assert!(said.contains(wanted), "{said}");
    }
    // Two lines more before it, and still the file's.
    let broken = written(directory.path(), "b.toml", &PIPE.replace("1460 B", "1460"));
    let output = sim(&broken, &["--set", "drain=1 ms", "--set", "description=x"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("line 18") && said.contains("workload[0].bytes"),
        "{said}"
    );
    let output = sim(&file, &["--seed", "minus"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "pipe.toml", PIPE);
    let inside = file.join("x");
    for option in ["--out", "--html"] {
        let output = sim(&file, &[option, inside.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("pipe.toml/x"), "{option}");
    }
}

/// What the descriptions of the scenarios in the repository promise.
#[test]
fn the_scenarios_show_what_they_say() {
    let short = ["--set", "duration=3 s"];
    let cubic = json(&scenario("dumbbell.toml"), &short);
    let mut dctcp = short.to_vec();
    dctcp.extend([
        "--set",
        "tcp.preset=dctcp",
        "--set",
        "switch.marking=20 packets",
    ]);
    let dctcp = json(&scenario("dumbbell.toml"), &dctcp);
    let goodput = |run: &Value| run["goodput_bits_per_second"].as_f64().unwrap();
    assert!((goodput(&cubic) / goodput(&dctcp) - 1.0).abs() < 0.03);
    assert!(cubic["queues"][0]["p95_packets"].as_i64().unwrap() >= 400);
    let median = dctcp["queues"][0]["p50_packets"].as_i64().unwrap();
    assert!((17..=25).contains(&median), "{median}");

    let incast = scenario("incast.toml");
    let drops = json(&incast, &["--set", "duration=60 ms"]);
    let detours = json(
        &incast,
        &["--set", "duration=60 ms", "--set", "switch.detour=true"],
    );
    let slowest = |run: &Value| run["workloads"][0]["qct"]["p99_us"].as_f64().unwrap();
    assert!(slowest(&detours) < slowest(&drops));
    assert!(drops["packets"]["timeouts"].as_i64().unwrap() > 0);
    assert!(detours["packets"]["detours"].as_i64().unwrap() > 0);
    assert!(detours["packets"]["dropped"].as_i64() < drops["packets"]["dropped"].as_i64());

    let web = json(&scenario("leaf-spine.toml"), &["--set", "duration=5 ms"]);
    let sizes = web["workloads"][0]["sizes"].as_array().unwrap();
    assert!(sizes.len() > 3, "short and long flows");
}

/// The first packet of a link is lost: it is sent again, and every count says so.
#[test]
fn links_lose_what_the_scenario_says() {
    let directory = tempfile::tempdir().unwrap();
    let lossy = PIPE.to_owned() + "[[line]]\non = \"left -> right\"\nloss = { packets = [1] }\n";
    let file = written(directory.path(), "lossy.toml", &lossy);
    // Its timeout takes a second, as no round trip was measured.
    let result = json(&file, &["--set", "drain=2 s"]);
    assert_eq!(result["packets"]["retransmissions"], 1, "{result}");
    assert_eq!(result["packets"]["dropped_on_links"], 1);
    assert_eq!(result["packets"]["dropped"], 1);
    assert_eq!(result["packets"]["conserved"], true);
    let links = result["links"].as_array().unwrap();
    assert_eq!(links.len(), 1);
    for (key, value) in [("from", "left"), ("to", "right")] {
        assert_eq!(links[0][key], value);
    }
    assert_eq!(
        (links[0]["lost"].as_u64(), links[0]["cut"].as_u64()),
        (Some(1), Some(0))
    );
}

/// What each link carried in the last 10 ms of 20: all of it data, or acknowledgements only.
fn links_are_written(out: &Path) {
    let links = rows(&out.join("link-series.parquet")).1;
    assert_eq!(links.len(), 3 * 41);
    let of = |node: &str, neighbour: &str| -> Vec<i64> {
        let mine = links
            .iter()
            .filter(|row| row["node"] == node && row["neighbour"] == neighbour);
        mine.map(|row| number(row, "bytes")).collect()
    };
    for (node, neighbour, least, most) in [
        ("left-0", "left", 0.99, 1.01),
        ("left", "right", 0.99, 1.01),
        // Acknowledgements only.
        ("left", "left-0", 0.001, 0.05),
    ] {
        let bytes = of(node, neighbour);
        let share = (bytes[40] - bytes[20]) as f64 * 8.0 / 0.01 / 1e9;
        assert!(
            (least..=most).contains(&share),
            "{node} -> {neighbour}: {share}"
        );
    }
}

/// The rows of the flow's series, and what is not known of it.
fn tables_are_written_as_csv(out: &Path, samples: &[HashMap<String, Value>]) {
    let text = fs::read_to_string(out.join("flow-series.csv")).unwrap();
    let mut lines = text.lines();
    let columns = "time_ps,flow,cwnd_packets,arrived_bytes";
    assert_eq!(lines.next(), Some(columns));
    for (line, row) in lines.zip(samples) {
        let cells: Vec<String> = columns
            .split(',')
            .map(|name| row[name].to_string())
            .collect();
        assert_eq!(line, cells.join(","));
    }
    // What is not known is empty: the endless flow has no size and is not done.
    let flows_text = fs::read_to_string(out.join("flows.csv")).unwrap();
    assert!(
        flows_text
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("0,one,left-0,right-0,,")
    );
}

/// One endless flow over three links of 1 Gbit/s: it fills them after its slow start, and what was written down says so.
#[test]
fn flows_and_links_are_written_down_over_time() {
    let directory = tempfile::tempdir().unwrap();
    let long = PIPE
        .replace(
            "duration = \"1 ms\"\ndrain = \"100 ms\"",
            "duration = \"20 ms\"",
        )
        .replace("bytes = \"1460 B\"\n", "")
        + "[measure]\nevery = \"500 us\"\nflows = [\"one\"]\nlinks = [\"left-0 <-> left\", \"left -> right\"]\n";
    let file = written(directory.path(), "long.toml", &long);
    let (out, page) = (
        directory.path().join("out"),
        directory.path().join("page.html"),
    );
    let out_text = out.to_str().unwrap();
    let result = json(
        &file,
        &["--out", out_text, "--csv", "--html", page.to_str().unwrap()],
    );
    let (metadata, samples) = rows(&out.join("flow-series.parquet"));
    assert_eq!(metadata["slowpath.table"], "sim.flow-series");
    // From 0 to the end; the flow begins at 0.
    assert_eq!(samples.len(), 41);
    let times: Vec<i64> = samples.iter().map(|row| number(row, "time_ps")).collect();
    assert!(
        times
            .windows(2)
            .all(|pair| pair[1] - pair[0] == 500_000_000)
    );
    let arrived: Vec<i64> = samples
        .iter()
        .map(|row| number(row, "arrived_bytes"))
        .collect();
    assert!(arrived.windows(2).all(|pair| pair[1] >= pair[0]));
    assert!(samples.iter().all(|row| number(row, "cwnd_packets") >= 1));
    // Of 1,500 bytes in a packet 1,460 are payload (RFC 9293 without options): the last half of the time is at that rate.
    let half = (arrived[40] - arrived[20]) as f64 * 8.0 / 0.01;
    assert!(
        (half / (1e9 * 1460.0 / 1500.0) - 1.0).abs() < 0.02,
        "{half}"
    );
    let flows = rows(&out.join("flows.parquet")).1;
    assert!(number(&flows[0], "arrived_bytes") >= arrived[40]);
    links_are_written(&out);
    tables_are_written_as_csv(&out, &samples);
    assert_eq!(result["queue_samples_lost"], 0);
    let drawn = in_page(&fs::read_to_string(page).unwrap());
    let titles: Vec<&str> = drawn["charts"]["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chart| chart["title"].as_str().unwrap())
        .collect();
    assert_eq!(
        titles,
        [
            "Throughput of flows",
            "Congestion windows",
            "Utilisation of links"
        ]
    );
}
