// SPDX-License-Identifier: Apache-2.0
//! Captures that other people made: tcptrace's own expectations, and tshark where it is
//! installed. Runs the program of `make check-trace`, which describes what is compared.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared captures lie beside the repository.
fn captures() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    folder.is_dir().then_some(folder)
}

fn files(folder: &Path, with: &[&str]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("lists the captures")
        .map(|entry| entry.expect("reads an entry").path())
        .filter(|path| {
            let name = path.to_string_lossy();
            with.iter().any(|ending| name.ends_with(ending))
        })
        .collect();
    files.sort();
    files
}

/// Runs it; tools that are not installed are reported as skipped.
fn check(files: &[PathBuf], tools: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_check-trace"))
        .args(files)
        .output()
        .expect("runs check-trace");
    let text = String::from_utf8_lossy(&output.stdout);
    for tool in tools {
        let skipped = format!("SKIPPED {tool}: not installed");
        if text.lines().any(|line| line == skipped) {
            println!("SKIPPED agreement with {tool}: not installed");
        }
    }
    let last = text.lines().last().expect("prints a last line");
    let tally: Value = serde_json::from_str(last).expect("it is JSON");
    assert_eq!(tally["differences"], 0, "{text}");
    assert_eq!(tally["captures"], files.len() as u64);
    tally
}

#[test]
fn agrees_with_tcptraces_own_expectations_and_tshark() {
    let Some(folder) = captures() else {
        println!("SKIPPED agreement with tcptrace: no shared captures");
        return;
    };
    let files = files(&folder.join("tcptrace"), &[".dmp.gz"]);
    let tally = check(&files, &["tshark"]);
    assert_eq!(files.len(), 11);
    assert!(tally["compared"].as_u64() > Some(10_000), "{tally}");
}

#[test]
fn agrees_on_ordinary_connections() {
    let Some(folder) = captures() else {
        println!("SKIPPED agreement on ordinary connections: no shared captures");
        return;
    };
    let files = files(&folder.join("packets"), &[".pcapng"]);
    check(&files, &["tcptrace", "tshark"]);
}
