// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab virtual`: the command.

use serde_json::Value;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SLOWPATH: &str = env!("CARGO_BIN_EXE_slowpath");

const SCENARIO: &str = r#"
duration = "20 ms"
drain = "2 s"
[topology]
kind = "dumbbell"
left = 4
right = 4
links = { rate = "1 Gbit/s", delay = "5 us" }
[switch]
buffer = "30 packets"
marking = "10 packets"
[tcp]
preset = "dctcp"
[[workload]]
name = "some"
kind = "poisson"
rate = "2000 /s"
sizes = "30 kB"
from = ["left-*"]
to = ["right-*"]
[measure]
queues = ["left -> right"]
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scenario(folder: &Path) -> PathBuf {
    let file = folder.join("scenario.toml");
    std::fs::write(&file, SCENARIO).expect("writes");
    file
}

fn lab(file: &Path, arguments: &[&str]) -> Output {
    Command::new(SLOWPATH)
        .args(["lab", "virtual"])
        .arg(file)
        .args(arguments)
        .output()
        .expect("starts")
}

/// Whether there is a kernel; otherwise the test is skipped.
fn has_kernel(test: &str) -> bool {
    match Kernel::find(SOURCE, HZ) {
        Ok(_) => true,
        Err(missing) => {
            println!("SKIPPED {test}: {missing}");
            false
        }
    }
}

/// The files of a folder and what is in them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a file");
            (PathBuf::from(path.file_name().expect("a name")), bytes)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_missing_kernel_says_how_to_get_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(SLOWPATH)
        .args(["lab", "virtual"])
        .arg(scenario(folder.path()))
        .env("SLOWPATH_LAB_KERNEL", folder.path().join("none"))
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("make lab-kernel"), "{said}");
}

#[test]
fn keys_that_linux_cannot_do_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = scenario(folder.path());
    for (set, key) in [
        ("tcp.algorithm=fixed", "tcp.algorithm"),
        ("tcp.slow-start-limit=2", "tcp.slow-start-limit"),
    ] {
        let output = lab(&file, &["--set", set]);
        assert_eq!(output.status.code(), Some(1), "{set}");
        let said = text(&output.stderr);
        assert!(
            said.contains(key) && said.contains("virtual time"),
            "{said}"
        );
    }
}

#[test]
fn results_go_to_a_folder_of_their_own() {
    let test = "results_go_to_a_folder_of_their_own";
    if !has_kernel(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = scenario(folder.path());
    let full = folder.path().to_str().expect("a path");
    let output = lab(&file, &["--out", full]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not empty"));
}

#[test]
fn the_same_run_twice_leaves_the_same_files() {
    if !has_kernel("the_same_run_twice_leaves_the_same_files") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = scenario(folder.path());
    let runs = ["one", "two"].map(|name| {
        let out = folder.path().join(name);
        let output = lab(&file, &["--json", "--out", out.to_str().expect("a path")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), files(&out))
    });
    assert_eq!(runs[0].0, runs[1].0);
    assert!(runs[0].1 == runs[1].1, "the files differ");
    let summary: Value = serde_json::from_str(&runs[0].0).expect("JSON");
    assert_eq!(summary["type"], "lab-virtual");
    assert_eq!(summary["flows"], summary["flows_done"]);
    let names: Vec<_> = runs[0]
        .1
        .iter()
        .map(|(name, _)| name.display().to_string())
        .collect();
    for name in [
        "left-0.pcap",
        "right-3.pcap",
        "tcp-info.csv",
        "events.csv",
        "flows.parquet",
    ] {
        assert!(
            names.iter().any(|known| known == name),
            "{name} in {names:?}"
        );
    }
    // What else is there would be the kernel's own.
    assert!(
        !names.iter().any(|name| name.ends_with(".bin")),
        "{names:?}"
    );
}

/// The processes that were started by that one, by the kernel's own list.
fn children(process: u32) -> Vec<u32> {
    let list = format!("/proc/{process}/task/{process}/children");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// Starts it and kills it without warning when its kernel has come so far; comes back when there is nothing left of it.
fn killed_at(moment: fn(u32) -> bool, endless: &Path, folder: &Path) {
    // Tens of millions of packets: it is not done before it is killed.
    let mut run = Command::new(SLOWPATH)
        .args(["lab", "virtual", "--quiet", "--set", "duration='600 s'"])
        .arg(endless)
        .env("TMPDIR", folder)
        .process_group(0)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let mut looks = 0;
    while !children(run.id())
        .first()
        .is_some_and(|kernel| moment(*kernel))
    {
        let ended = run.try_wait().expect("a state");
        assert!(ended.is_none(), "it ended by itself");
        std::thread::yield_now();
        looks += 1;
        if looks > MOST_LOOKS {
            // That moment is over.
            break;
        }
    }
    run.kill().expect("kills");
    run.wait().expect("waits");
    // The other end of a pipe that the kernel holds would be better to wait for, but it holds none of ours: it runs in a folder of its own.
    let killed = Instant::now();
    while is_inhabited(folder) {
        // For a machine that is busy; what is stopped stays for ever.
        assert!(
            killed.elapsed() < Duration::from_secs(60),
            "a process is left"
        );
        std::thread::yield_now();
    }
}

/// How often a passing moment is looked for.
const MOST_LOOKS: u32 = 100_000;

/// Whether a process that is alive, stopped ones too, has its working directory there.
fn is_inhabited(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    processes.flatten().any(|process| {
        let there = std::fs::read_link(process.path().join("cwd"));
        there.is_ok_and(|there| there.starts_with(folder))
    })
}

#[test]
fn a_killed_run_leaves_no_process() {
    if !has_kernel("a_killed_run_leaves_no_process") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = scenario(folder.path());
    let (network, _) = SCENARIO.split_once("[[workload]]").expect("a workload");
    let bulk = "[[workload]]\nkind = 'bulk'\nfrom = ['left-*']\nto = ['right-*']\n";
    let endless = folder.path().join("endless.toml");
    std::fs::write(&endless, format!("{network}{bulk}")).expect("writes");
    // As soon as the kernel is there, which may not have reported yet with which process it is to die; and while it tries out ptrace on a process of its own.
    let moments: [fn(u32) -> bool; 2] = [|_| true, |kernel| !children(kernel).is_empty()];
    for moment in moments {
        killed_at(moment, &endless, folder.path());
    }
    // The next run takes away what the killed one left.
    let output = Command::new(SLOWPATH)
        .args(["lab", "virtual", "--quiet"])
        .arg(&file)
        .env("TMPDIR", folder.path())
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 2, "more than the scenarios are left");
}

/// Runs side by side in folders of their own give what they give one by one.
#[test]
fn a_sweep_is_its_runs() {
    if !has_kernel("a_sweep_is_its_runs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = scenario(folder.path());
    let json = |arguments: &[&str]| -> Value {
        let output = lab(&file, &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let vary = "tcp.congestion=newreno,cubic";
    let swept = json(&["--seeds", "2", "--vary", vary, "--jobs", "2"]);
    assert_eq!(swept["type"], "lab-virtual-sweep");
    assert_eq!(swept["runs"], 4);
    for (point, algorithm) in ["newreno", "cubic"].iter().enumerate() {
        let set = format!("tcp.algorithm={algorithm}");
        let p99 = swept["seeds"]
            .as_array()
            .expect("seeds")
            .iter()
            .map(|seed| {
                let one = json(&["--seed", &seed.to_string(), "--set", &set]);
                one["workloads"][0]["fct"]["p99_us"].as_f64().expect("p99")
            });
        let mean = p99.sum::<f64>() / 2.0;
        let found = &swept["points"][point]["workloads"][0]["fct_p99_us"]["mean"];
        let found = found.as_f64().expect("a mean");
        assert!((found - mean).abs() < 1e-6, "{algorithm}: {found}, {mean}");
    }
    let output = lab(&file, &["--seeds", "2", "--record", "x.rec"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("one run"));
}
