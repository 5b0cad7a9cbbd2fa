// SPDX-License-Identifier: Apache-2.0
//! The alert rules and the dashboard of packaging/, in a real Prometheus that scrapes a real agent:
//! every query is accepted and gives data, every metric that they name exists.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TEST: &str = "the_dashboard_and_the_alerts_work_in_prometheus";

/// A test waits so long for an event only before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an agent exports after its first minute, or with a setting that this one has not.
const LATER: [&str; 3] = [
    "slowpath_connections_missed",
    "slowpath_owners_unknown",
    "slowpath_recorder_running",
];

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connections with requests and answers, and one whose receiver reads slowly.
struct Traffic {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start() -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for talk in [exchange as fn(&AtomicBool), stream] {
            let stop = stop.clone();
            threads.push(thread::spawn(move || talk(&stop)));
        }
        Traffic { stop, threads }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Requests of 100 bytes that are answered with as many after 2 ms.
fn exchange(stop: &AtomicBool) {
    let (mut client, mut server) = pair();
    let mut buffer = [0; 100];
    while !stop.load(Ordering::Relaxed) {
        client.write_all(&buffer).unwrap();
        server.read_exact(&mut buffer).unwrap();
        thread::sleep(Duration::from_millis(2));
        server.write_all(&buffer).unwrap();
        client.read_exact(&mut buffer).unwrap();
    }
}

/// As much as the sockets take, to a receiver that takes 64 KiB every 20 ms.
fn stream(stop: &AtomicBool) {
    let (mut client, mut server) = pair();
    client.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        while client.write(&buffer).is_ok() {}
        server.read_exact(&mut buffer).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
}

/// The body of an answer to a GET, or nothing if there is no server yet.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

fn quoted(text: &str) -> String {
    let byte = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => (b as char).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// A Prometheus that scrapes this agent and has our rules.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    fn start(directory: &Path, agent: SocketAddr) -> Option<Prometheus> {
        let rules = packaging("prometheus/slowpath.rules.yaml");
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n- job_name: slowpath\n  static_configs: [{{targets: ['{agent}']}}]\n",
            rules.display()
        );
        let file = directory.join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.join("prometheus.log")).unwrap())
            .spawn()
            .ok()?;
        Some(Prometheus {
            address,
            _process: Process(process),
        })
    }

    fn ask(&self, path: &str) -> Option<Value> {
        let answer: Value = serde_json::from_str(&get(self.address, path)?).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// How many samples a query gives.
    fn samples(&self, query: &str) -> usize {
        let data = self.ask(&format!("/api/v1/query?query={}", quoted(query)));
        let result = data.as_ref().and_then(|data| data["result"].as_array());
        result.map_or(0, Vec::len)
    }

    fn metrics(&self) -> BTreeSet<String> {
        let names = self.ask("/api/v1/label/__name__/values").unwrap();
        serde_json::from_value(names).unwrap()
    }

    /// Our rules, when each has been evaluated.
    fn rules(&self) -> Option<Vec<Value>> {
        let data = self.ask("/api/v1/rules")?;
        let groups = data["groups"].as_array()?.iter();
        let rules: Vec<Value> = groups
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect();
        let evaluated = rules.iter().all(|rule| rule["health"] != "unknown");
        (evaluated && !rules.is_empty()).then_some(rules)
    }
}

fn await_that<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = holds() {
            return result;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

/// The expressions of all panels, as Grafana would send them.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("expr", Value::String(expression)) => found.push(expression.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// The metrics of ours, and the process's, that an expression names.
fn named(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("slowpath_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// An agent and its address; nothing where it cannot start.
fn agent(directory: &Path) -> Option<(Process, SocketAddr)> {
    let file = directory.join("agent.log");
    let child = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(["agent", "--interval", "100ms", "--cpu-budget", "20,40"])
        .args(["--metrics", "127.0.0.1:0", "--metrics-labels", "port"])
        .arg("--log")
        .arg(directory.join("log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&file).unwrap())
        .spawn()
        .unwrap();
    let mut process = Process(child);
    await_that("the agent serves metrics, or ends", || {
        let ended = process.0.try_wait().unwrap().is_some();
        let said = fs::read_to_string(&file).unwrap();
        let url = said
            .lines()
            .find_map(|l| Some(l.split_once("serves http://")?.1));
        let address = url.map(|url| url.trim_end_matches("/metrics").parse().unwrap());
        (ended || address.is_some()).then_some(address)
    })
    .map(|address| (process, address))
}

#[test]
fn the_dashboard_and_the_alerts_work_in_prometheus() {
    if Command::new("prometheus")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIPPED {TEST}: no prometheus here (Debian: prometheus)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some((_agent, address)) = agent(directory.path()) else {
        println!("SKIPPED {TEST}: the agent cannot observe connections here");
        return;
    };
    let _traffic = Traffic::start();
    let prometheus = Prometheus::start(directory.path(), address).unwrap();
    await_that("Prometheus scrapes the agent", || {
        (prometheus.samples("up == 1") == 1).then_some(())
    });
    let bpf = prometheus.samples("slowpath_build_info{tier=\"bpf\"}") == 1;

    let text = fs::read_to_string(packaging("grafana/slowpath.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut all = Vec::new();
    expressions(&dashboard["panels"], &mut all);
    assert!(all.len() > 30, "{}", all.len());
    let mut used = BTreeSet::new();
    for expression in &all {
        used.extend(named(expression));
        let needs_bpf = expression.contains("answer_seconds") || expression.contains("opened");
        if LATER.iter().any(|name| expression.contains(name)) || needs_bpf && !bpf {
            continue;
        }
        let query = expression
            .replace("$__rate_interval", "10s")
            .replace("$__range", "30s")
            .replace("$job", ".*")
            .replace("$instance", ".*")
            .replace("$application", ".*");
        assert!(!query.contains('$'), "{query}");
        // What these show is what is wrong; here that something is known is enough.
        let query = query.replace(" == 0)", ")").replace(" == 1)", ")");
        await_that(&query, || (prometheus.samples(&query) > 0).then_some(()));
    }

    let rules = await_that("all rules are evaluated", || prometheus.rules());
    let runbook = fs::read_to_string(packaging("../docs/reference/alerts.md")).unwrap();
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        used.extend(named(rule["query"].as_str().unwrap()));
        let name = rule["name"].as_str().unwrap();
        assert!(runbook.contains(&format!("\n### {name}\n")), "{name}");
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let anchor = format!("docs/reference/alerts.md#{}", name.to_lowercase());
        assert!(url.ends_with(&anchor), "{url}");
        for key in ["summary", "description"] {
            assert!(rule["annotations"][key].is_string(), "{name}: {key}");
        }
    }
    // The same alerts, whatever their order, have a section each.
    assert_eq!(rules.len(), runbook.matches("\n### ").count());

    let exported = prometheus.metrics();
    let documented = fs::read_to_string(packaging("../docs/reference/metrics.md")).unwrap();
    for name in used {
        let later = LATER.contains(&name.as_str()) || name.contains("answer_seconds") && !bpf;
        let known = if later {
            documented.contains(name.trim_end_matches("_bucket").trim_end_matches("_count"))
        } else {
            exported.contains(&name)
        };
        assert!(known, "{name} is not exported");
    }
}
