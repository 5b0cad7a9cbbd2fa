// SPDX-License-Identifier: Apache-2.0
//! Files: whose they are, what they replace, and how much is read of them.

mod command;

use command::{slowpath, text};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

/// 10 flows of 1 ms each, or so.
const SCENARIO: &str = r#"duration = "1 ms"
drain = "10 ms"
[topology]
kind = "dumbbell"
left = 2
right = 2
[topology.links]
rate = "1 Gbit/s"
delay = "5 us"
[switch]
buffer = "100 packets"
[[workload]]
kind = "poisson"
gap = "100 us"
sizes = "20 kB"
"#;

fn scenario(folder: &Path, text: &str) -> String {
    let file = folder.join("scenario.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// All files and folders below.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(below(&path));
        }
        all.push(path);
    }
    all
}

#[track_caller]
fn are_their_owners_only(folder: &Path, at_least: usize) {
    let all = below(folder);
    assert!(all.len() >= at_least, "{all:?}");
    for path in all {
        let about = fs::symlink_metadata(&path).unwrap();
        let mode = if about.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(about.mode() & 0o777, mode, "{}", path.display());
    }
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn reports_and_logs_are_their_owners_only() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(folder.path(), SCENARIO);
    let outputs = folder.path().join("outputs");
    let tables = outputs.join("tables");
    let page = tables.join("page.html");
    let (tables, page) = (tables.to_str().unwrap(), page.to_str().unwrap());
    succeeded(&slowpath(&[
        "sim", &scenario, "--out", tables, "--html", page,
    ]));
    // Six tables, a page and their folder.
    are_their_owners_only(&outputs, 8);
    let log = folder.path().join("state/log");
    succeeded(&slowpath(&[
        "up",
        "--lines",
        "--for",
        "300ms",
        "--tier",
        "inet-diag",
        "--log",
        log.to_str().unwrap(),
    ]));
    are_their_owners_only(log.parent().unwrap(), 3);
}

#[test]
fn a_page_that_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(folder.path(), SCENARIO);
    let output = slowpath(&["sim", &scenario, "--html", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dev/full"));
    let device = fs::symlink_metadata("/dev/full").unwrap();
    assert!(device.file_type().is_char_device());
}

#[test]
fn a_recording_replaces_no_device() {
    let test = "a_recording_replaces_no_device";
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("full");
    // As /dev/full, which a failure of this test would take from the machine: major 1, minor 7.
    let made = std::process::Command::new("mknod")
        .arg(&device)
        .args(["c", "1", "7"])
        .output();
    if !made.is_ok_and(|it| it.status.success()) || fs::write(&device, "x").is_ok() {
        println!("SKIPPED {test}: no device can be made here");
        return;
    }
    let link = folder.path().join("link");
    symlink(&device, &link).unwrap();
    for out in [&device, &link] {
        let output = slowpath(&["record", "--for", "100ms", "--out", out.to_str().unwrap()]);
        let said = text(&output.stderr);
        if said.contains("cannot record") {
            println!("SKIPPED {test}: {said}");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("No space left"), "{said}");
        let about = fs::symlink_metadata(&device).unwrap();
        assert!(about.file_type().is_char_device());
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

#[test]
fn inputs_without_an_end_are_refused_with_their_bound() {
    let folder = tempfile::tempdir().unwrap();
    let endless = SCENARIO.replace("\"20 kB\"", "{ file = \"/dev/zero\" }");
    let sizes = scenario(folder.path(), &endless);
    let here = folder.path().to_str().unwrap();
    for (arguments, code, bound) in [
        (&["sim", &sizes][..], 1, "256 MiB"),
        (&["sim", "/dev/zero"], 1, "16 MiB"),
        (&["queues", here, "--topology", "/dev/zero"], 1, "16 MiB"),
        (&["agent", "--check", "--config", "/dev/zero"], 2, "1 MiB"),
        (&["watch", "--owners", "/dev/zero"], 2, "4 MiB"),
    ] {
        let output = slowpath(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(bound), "{arguments:?}: {said}");
    }
}

#[test]
fn more_flows_than_a_run_keeps_are_refused_with_their_bound() {
    let folder = tempfile::tempdir().unwrap();
    let many = scenario(folder.path(), &SCENARIO.replace("100 us", "1 ps"));
    let output = slowpath(&["sim", &many]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // Two hosts on either side send: one flow a picosecond each, for 1 ms.
    assert!(said.contains("4000000000 flows"), "{said}");
    assert!(said.contains("at most 16777216"), "{said}");
}
