// SPDX-License-Identifier: Apache-2.0
//! The agent as a service: what it reports to systemd, reloads, its end, its log.

mod command;

use serde_json::Value;
use slowpath_lab::virtual_time::{Kernel, SOURCE};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Long enough for the slowest start; a test waits for it only before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Service {
    directory: TempDir,
    manager: UnixDatagram,
    child: Option<Child>,
}

impl Service {
    /// Starts the agent with this configuration, `LOG` in it standing for a directory.
    fn start(configuration: &str, arguments: &[&str]) -> Service {
        let directory = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut service = Service {
            directory,
            manager,
            child: None,
        };
        service.configure(configuration);
        let child = Command::new(env!("CARGO_BIN_EXE_slowpath"))
            .arg("agent")
            .arg("--config")
            .arg(service.path("agent.toml"))
            .args(arguments)
            .env("NOTIFY_SOCKET", service.path("notify"))
            .env("WATCHDOG_USEC", "2000000")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(service.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        service.child = Some(child);
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self, configuration: &str) {
        let log = self.path("log");
        let text = configuration.replace("LOG", log.to_str().unwrap());
        fs::write(self.path("agent.toml"), text).unwrap();
    }

    /// The next message whose first line is this; `None` if the agent has ended before.
    fn hears(&mut self, wanted: &str) -> Option<String> {
        let mut buffer = [0; 4096];
        self.manager
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let end = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < end {
            let child = self.child.as_mut().unwrap();
            let ended = child.try_wait().unwrap().is_some();
            while let Ok(length) = self.manager.recv(&mut buffer) {
                let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
                if text.lines().next().unwrap().starts_with(wanted) {
                    return Some(text);
                }
            }
            if ended {
                return None;
            }
        }
        panic!("no {wanted} in {PATIENCE:?}");
    }

    fn signal(&self, signal: i32) {
        let child = self.child.as_ref().unwrap();
        // SAFETY: kill takes plain numbers; the child has not been waited for.
        unsafe {
            libc::kill(child.id() as i32, signal);
        }
    }

    /// What it said so far.
    fn said(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap()
    }

    fn output(&mut self) -> Output {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        Output {
            stderr: self.said().into_bytes(),
            ..output
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Nothing stays behind of a test that fails.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Ready, or a reason to skip.
fn ready(service: &mut Service, test: &str) -> bool {
    if service.hears("READY=1").is_some() {
        return true;
    }
    let text = said(&service.output());
    assert!(
        text.contains("cannot start observing connections"),
        "{text}"
    );
    println!("SKIPPED {test}: {text}");
    false
}

fn report(log: &Path) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(["report", "--json", "--log"])
        .arg(log)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_service_is_ready_reloads_and_ends_with_its_log_closed() {
    const TEST: &str = "a_service_is_ready_reloads_and_ends_with_its_log_closed";
    let mut service = Service::start(
        "log = \"LOG\"\nhost = \"web-17\"\ninterval = \"50ms\"\n",
        &[],
    );
    if !ready(&mut service, TEST) {
        return;
    }
    assert!(service.hears("WATCHDOG=1").is_some());

    service
        .configure("log = \"LOG\"\nhost = \"web-18\"\ninterval = \"70ms\"\ntier = \"inet-diag\"\n");
    service.signal(libc::SIGHUP);
    let reloading = service.hears("RELOADING=1").unwrap();
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    assert!(service.hears("READY=1").is_some());

    service.configure("log = \"LOG\"\nintervall = \"1s\"\n");
    service.signal(libc::SIGHUP);
    assert!(service.hears("RELOADING=1").is_some());
    assert!(service.hears("READY=1").is_some());

    service.signal(libc::SIGTERM);
    assert!(service.hears("STOPPING=1").is_some());
    let output = service.output();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("reloaded: interval = 70ms"), "{text}");
    assert!(
        text.contains("changed only by a restart: host, tier"),
        "{text}"
    );
    assert!(
        text.contains("agent.toml:2: unknown field `intervall`"),
        "{text}"
    );
    assert!(text.contains("the log is closed"), "{text}");
    assert!(output.stdout.is_empty());

    // Closed: no spool waits for its conversion.
    let spools = fs::read_dir(service.path("log").join("spool")).unwrap();
    assert_eq!(spools.count(), 0);
    let polls = report(&service.path("log"))["coverage"]["polls"].as_u64();
    assert!(polls > Some(1), "{polls:?}");
    assert_eq!(hosts(&service.path("log")), ["host=web-17"]);
}

/// The partitions of hosts in a log, each once.
fn hosts(log: &Path) -> Vec<String> {
    let below = |folder: PathBuf, prefix: &'static str| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries.filter(move |e| e.file_name().to_string_lossy().starts_with(prefix))
    };
    let hours = below(log.to_owned(), "date=").flat_map(|date| below(date.path(), "hour="));
    let mut hosts: Vec<String> = hours
        .flat_map(|hour| below(hour.path(), ""))
        .map(|host| host.file_name().to_string_lossy().into_owned())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[test]
fn a_wrong_configuration_is_2_with_its_line() {
    for (configuration, words) in [
        ("\nsecret = 1\n", "agent.toml:2: unknown field `secret`"),
        ("interval = \"1ns\"\n", "agent.toml:1: must be between"),
    ] {
        let output = Service::start(configuration, &[]).output();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(["agent", "--config", "/nosuch/agent.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("/nosuch/agent.toml"));
}

#[test]
fn wrong_rules_of_owners_are_named_with_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("owners.toml");
    for (rules, words) in [
        (
            "[[application]]\nnme = \"x\"\n",
            "line 2: unknown field `nme`",
        ),
        (
            "[[application]]\nname = \"x\"\nport = \"9-\"\n",
            "line 3: port: ",
        ),
    ] {
        fs::write(&file, rules).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_slowpath"))
            .args(["agent", "--check", "--owners"])
            .arg(&file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let named = format!("reading owner rules {}: {words}", file.display());
        assert!(said(&output).contains(&named), "{}", said(&output));
    }
}

#[test]
fn check_prints_what_holds() {
    let output = Service::start("log = \"/a b\"\n", &["--check", "--interval", "2s"]).output();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("log = \"/a b\"\nnamespaces = \"all\"\ninterval = \"2s\"\n"),
        "{text}"
    );
}

/// The metrics that the service shows, once `wanted` likes them. If it never does, the test fails with the samples whose name begins with `about` and what the service printed.
fn metrics(service: &mut Service, about: &str, wanted: impl Fn(&str) -> bool) -> String {
    let said = service.said();
    let (_, address) = said.split_once("serves http://").unwrap();
    let (address, _) = address.split_once("/metrics").unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        if wanted(&text) {
            return text;
        }
        if std::time::Instant::now() >= end {
            let samples = text.lines().filter(|line| line.starts_with(about));
            let samples: Vec<&str> = samples.collect();
            panic!("{samples:#?}\n{}", service.said());
        }
        // What it reports to its manager must not pile up.
        let wait = Some(Duration::from_millis(200));
        service.manager.set_read_timeout(wait).unwrap();
        while service.manager.recv(&mut [0; 4096]).is_ok() {}
    }
}

#[test]
fn the_problem_of_an_application_is_a_metric_and_stays_one() {
    const TEST: &str = "the_problem_of_an_application_is_a_metric_and_stays_one";
    let configuration = "log = \"none\"\ninterval = \"50ms\"\nmetrics = \"127.0.0.1:0\"\n";
    let mut service = Service::start(configuration, &[]);
    if !ready(&mut service, TEST) {
        return;
    }
    // A receiver that never reads: its window is full. Both ends are this process's.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 65_536]).is_ok() {}
    // All applications: the tests run side by side.
    let of_applications = |text: &str| -> f64 {
        let lines = text.lines().filter(|l| {
            l.starts_with("slowpath_application_problem_time_seconds_total{")
                && l.contains("problem=\"ReceiverWindowLimited\"")
                && !l.contains("application=\"unknown\"")
        });
        lines
            .map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum()
    };
    let value = |text: &str, line: &str| -> Option<f64> {
        let found = text.lines().find_map(|l| l.strip_prefix(line))?;
        Some(found.parse().unwrap())
    };
    let text = metrics(&mut service, "slowpath_application", |text| {
        of_applications(text) > 0.0
    });
    let closed = "slowpath_connections_closed_total ";
    let closed_before = value(&text, closed).unwrap();
    let time_before = of_applications(&text);
    drop((sender, receiver));
    let text = metrics(&mut service, "slowpath_connections", |text| {
        value(text, closed) >= Some(closed_before + 1.0)
    });
    assert!(of_applications(&text) >= time_before, "{text}");
    assert!(value(&text, "process_resident_memory_bytes ") > Some(0.0));

    // The address can be given up while it runs.
    service.configure("log = \"none\"\ninterval = \"50ms\"\n");
    service.signal(libc::SIGHUP);
    assert!(service.hears("RELOADING=1").is_some());
    assert!(service.hears("READY=1").is_some());
    service.signal(libc::SIGINT);
    let output = service.output();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        said(&output).contains("serves metrics no more"),
        "{}",
        said(&output)
    );
}

/// What was kept says how it is replayed, as `recording list` does, and a replay takes it.
fn can_be_replayed(file: &Path, test: &str) {
    let description = fs::read(file.with_extension("json")).unwrap();
    let description: Value = serde_json::from_slice(&description).unwrap();
    let file = file.to_str().unwrap();
    let list = command::slowpath(&["recording", "list", file, "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let replay = &list["connections"][0]["replay"];
    assert_eq!(&description["replay"], replay, "{description}");
    // Both ends are here; Linux 6.12 is what replays run on.
    let kernel = description["kernel"].as_str().unwrap();
    let expected = match description["recorder"].as_str() {
        Some("tracepoints") => "inferred",
        _ if kernel.starts_with("6.12.") => "exact",
        _ => "other_kernel",
    };
    assert_eq!(*replay, expected, "{description}");
    let recording = slowpath_recording::decode(&fs::read(file).unwrap()).unwrap();
    if let Err(missing) = Kernel::find(SOURCE, recording.origin.hz) {
        println!("SKIPPED {test}: the replay: {missing}");
        return;
    }
    let replayed = command::slowpath(&["replay", file, "--quiet"]);
    let error = command::text(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(0), "{error}");
}

/// A chosen connection is kept when it has closed; where the kernel forbids all recorders that is said once, and the agent goes on. SIGUSR1 does no harm either way.
#[test]
fn a_chosen_connection_is_kept_or_it_is_said_that_nothing_is_recorded() {
    const TEST: &str = "a_chosen_connection_is_kept_or_it_is_said_that_nothing_is_recorded";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let configuration = format!(
        "log = \"LOG\"\ninterval = \"50ms\"\nrecord = \"dport = :{port}\"\nrecord-ports = \"{port}\"\nmetrics = \"127.0.0.1:0\"\n"
    );
    let mut service = Service::start(&configuration, &[]);
    if !ready(&mut service, TEST) {
        return;
    }
    let records = service
        .said()
        .contains("records connections into a ring of 64MiB");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let chosen = client.local_addr().unwrap();
    for _ in 0..20 {
        client.write_all(&[7; 100]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        server.write_all(&[7; 300]).unwrap();
        client.read_exact(&mut [0; 300]).unwrap();
    }
    drop((client, server));
    let saved = "slowpath_recorder_saved_total 1";
    let text = metrics(&mut service, "slowpath_recorder", |text| {
        !records || text.contains(saved)
    });
    assert_eq!(
        text.contains("slowpath_recorder_running 1"),
        records,
        "{text}"
    );
    service.signal(libc::SIGUSR1);
    service.signal(libc::SIGTERM);
    let output = service.output();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let refused = text.matches("nothing is recorded: ").count();
    assert_eq!(refused, usize::from(!records), "{text}");
    if !records {
        assert!(text.contains("slowpath lab guest"), "the way out: {text}");
        println!("SKIPPED {TEST}: this kernel lets nothing be recorded");
        return;
    }
    let kept = fs::read_dir(service.path("log").join("recordings")).unwrap();
    let kept: Vec<PathBuf> = kept.map(|it| it.unwrap().path()).collect();
    let kept: Vec<&PathBuf> = kept
        .iter()
        .filter(|it| it.extension().is_some_and(|it| it == "rec"))
        .collect();
    let [file] = kept.as_slice() else {
        panic!("{kept:?}: {text}")
    };
    assert!(text.contains(&format!("kept {chosen}")), "{text}");
    can_be_replayed(file, TEST);
    let recording = slowpath_recording::decode(&fs::read(file).unwrap()).unwrap();
    let [connection] = recording.connections.as_slice() else {
        panic!("{recording:?}")
    };
    assert_eq!(
        connection.addresses,
        [chosen, ([127, 0, 0, 1], port).into()]
    );
    // Twenty questions, as many answers.
    assert!(
        connection
            .ends
            .iter()
            .all(|end| end.runs.len() >= 40 && end.gap.is_none()),
        "{recording:?}"
    );
}
