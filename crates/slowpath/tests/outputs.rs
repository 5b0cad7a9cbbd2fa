// SPDX-License-Identifier: Apache-2.0
//! One rule for what commands write (docs/decisions/0050-outputs.md), tried on every option that it
//! is about: a file is replaced unless the command reads it, a folder of results is new, empty or
//! of the same command. What is refused is refused before anything else.

mod command;

use clap::{Command, CommandFactory};
use command::{slowpath, text};
use slowpath_cli::args::Cli;
use slowpath_files::LIST;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Stands for the output.
const OUT: &str = "OUT";
/// Stands for a file that is read.
const IN: &str = "IN";

/// Outputs that are a file: the option's name, and a command line.
const FILES: [(&str, &[&str]); 15] = [
    ("sim --html", &["sim", IN, "--html", OUT]),
    ("lab virtual --html", &["lab", "virtual", IN, "--html", OUT]),
    (
        "lab virtual --record",
        &["lab", "virtual", IN, "--record", OUT],
    ),
    (
        "queues --html",
        &["queues", "captures", "--topology", IN, "--html", OUT],
    ),
    ("explain --html", &["explain", IN, "--html", OUT]),
    (
        "replay --html",
        &["replay", IN, "--probe", "cwnd", "--html", OUT],
    ),
    ("record --out", &["record", "--out", OUT]),
    (
        "record --events",
        &["record", "--out", "/dev/null", "--events", OUT],
    ),
    (
        "recording join --out",
        &["recording", "join", "/dev/null", IN, "--out", OUT],
    ),
    ("recording shrink --to", &["recording", "shrink", IN, OUT]),
    ("trace --html", &["trace", IN, "--html", OUT]),
    ("trace --svg", &["trace", "/dev/null", IN, "--svg", OUT]),
    (
        "trace --annotate",
        &["trace", "/dev/null", "--pair", IN, "--annotate", OUT],
    ),
    ("trace --extract", &["trace", IN, "--extract", "1", OUT]),
    (
        "path owd --save",
        &["path", "owd", "::1", "-u", "name", "-k", IN, "--save", OUT],
    ),
];

/// Outputs that are a folder of results.
const FOLDERS: [(&str, &[&str]); 10] = [
    ("sim --out", &["sim", IN, "--out", OUT]),
    ("sim --out", &["sim", IN, "--seeds", "2", "--out", OUT]),
    ("lab virtual --out", &["lab", "virtual", IN, "--out", OUT]),
    (
        "lab virtual --out",
        &["lab", "virtual", IN, "--vary", "seed=1,2", "--out", OUT],
    ),
    (
        "lab guest --out",
        &["lab", "guest", "--out", OUT, "--", "true"],
    ),
    (
        "queues --out",
        &["queues", "captures", "--topology", IN, "--out", OUT],
    ),
    ("explain --out", &["explain", IN, "--out", OUT]),
    ("replay --out", &["replay", IN, "--out", OUT]),
    ("trace --xpl", &["trace", IN, "--xpl", OUT]),
    (
        "trace --xpl",
        &["trace", "/dev/null", "--pair", IN, "--xpl", OUT],
    ),
];

/// What the help says of an output.
const SAID: [&str; 3] = ["replacing", "are replaced", "is replaced"];
const SAID_OF_FOLDERS: &str = "in place of an earlier run's";
/// Names that only outputs have.
const NAMES: [&str; 9] = [
    "out", "html", "svg", "xpl", "annotate", "extract", "save", "events", "to",
];
/// They have a name of these, and write nothing: `-t` of `path owd` is a direction.
const OTHERS: [&str; 1] = ["path owd --to"];

/// `sim --html` and its help, of every command.
fn options(command: &Command, name: &str, into: &mut Vec<(String, String)>) {
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str().replace('_', "-");
        let help = argument.get_long_help().or(argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        into.push((format!("{name} --{id}").trim_start().to_owned(), help));
    }
    for below in command.get_subcommands() {
        options(
            below,
            format!("{name} {}", below.get_name()).trim_start(),
            into,
        );
    }
}

#[test]
fn the_help_of_every_output_says_what_becomes_of_what_is_there() {
    let mut all = Vec::new();
    options(&Cli::command(), "", &mut all);
    let tried = |table: &[(&str, &[&str])]| -> BTreeSet<String> {
        table.iter().map(|(name, _)| (*name).to_owned()).collect()
    };
    let said = |says: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
        let saying = all.iter().filter(|(_, help)| says(help));
        saying.map(|(name, _)| name.clone()).collect()
    };
    let mut files = said(&|help| SAID.iter().any(|part| help.contains(part)));
    // A developers' option, which the help does not show.
    files.insert("record --events".to_owned());
    assert_eq!(files, tried(&FILES));
    assert_eq!(
        said(&|help| help.contains(SAID_OF_FOLDERS)),
        tried(&FOLDERS)
    );
    for (name, _) in &all {
        let is_output = NAMES.iter().any(|it| name.ends_with(&format!(" --{it}")));
        let is_tried = tried(&FILES).contains(name) || tried(&FOLDERS).contains(name);
        assert!(
            !is_output || is_tried || OTHERS.contains(&name.as_str()),
            "{name}"
        );
    }
}

/// The exit status and what it says.
fn run(line: &[&str], input: &Path, out: &Path) -> (Option<i32>, String) {
    let [input, out] = [input, out].map(|path| path.to_str().unwrap());
    let line: Vec<&str> = line
        .iter()
        .map(|word| match *word {
            IN => input,
            OUT => out,
            word => word,
        })
        .collect();
    let output = slowpath(&line);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn no_output_replaces_what_the_command_reads() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    fs::write(&input, "precious").unwrap();
    for (name, line) in FILES {
        // A folder is no file.
        let (code, said) = run(line, &input, folder.path());
        assert_eq!(code, Some(1), "{name}: {said}");
        assert!(said.contains("cannot write"), "{name}: {said}");
        if line.contains(&IN) {
            let (code, said) = run(line, &input, &input);
            assert_eq!(code, Some(2), "{name}: {said}");
            assert!(said.contains("name another file"), "{name}: {said}");
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "precious", "{name}");
    }
    // One file for two outputs.
    let line = &["sim", IN, "--html", OUT, "--out", "/nowhere/at/all"];
    let page = folder.path().join("page");
    let (_, said) = run(line, &input, &page);
    assert!(!said.contains("two outputs"), "{said}");
    let line = &["trace", IN, "--html", OUT, "--svg", OUT];
    let (code, said) = run(line, &input, &page);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("two outputs") && !page.exists(), "{said}");
}

#[test]
fn no_folder_takes_results_beside_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("input"), "precious").unwrap();
    fs::create_dir(at("mine")).unwrap();
    fs::write(at("mine/letter"), "precious").unwrap();
    fs::create_dir(at("others")).unwrap();
    fs::write(at("others").join(LIST), "another program\nflows.parquet\n").unwrap();
    fs::write(at("others/flows.parquet"), "precious").unwrap();
    for (name, line) in FOLDERS {
        for (there, says) in [("mine", "is not empty"), ("others", "`another program`")] {
            let (code, said) = run(line, &at("input"), &at(there));
            assert_eq!(code, Some(2), "{name}: {said}");
            assert!(said.contains(says), "{name}: {said}");
            // The way out.
            assert!(said.contains("another"), "{name}: {said}");
        }
        let (code, said) = run(line, &at("input"), &at("input"));
        assert_eq!(code, Some(1), "{name}: {said}");
        assert!(said.contains("cannot write results"), "{name}: {said}");
    }
    for file in ["input", "mine/letter", "others/flows.parquet"] {
        assert_eq!(fs::read_to_string(at(file)).unwrap(), "precious");
    }
}

/// 10 flows of 1 ms each, or so.
const SCENARIO: &str = r#"duration = "1 ms"
drain = "10 ms"
[topology]
kind = "dumbbell"
left = 1
right = 1
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

#[test]
fn the_same_command_again_replaces_its_results_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("scenario.toml"), SCENARIO).unwrap();
    let (input, out) = (at("scenario.toml"), at("out"));
    let again = |more: &[&str]| {
        let line = [&["sim", IN, "--out", OUT, "--quiet"], more].concat();
        run(&line, &input, &out)
    };
    assert_eq!(again(&["--pcap", "--csv"]), (Some(0), String::new()));
    assert!(out.join("left-0.pcap").exists() && out.join("flows.csv").exists());
    let before = fs::read(out.join("flows.parquet")).unwrap();
    fs::write(out.join("notes"), "mine").unwrap();
    assert_eq!(again(&["--seed", "2"]), (Some(0), String::new()));
    // Nothing of the first run is left beside the second's.
    assert!(!out.join("left-0.pcap").exists() && !out.join("flows.csv").exists());
    assert_ne!(fs::read(out.join("flows.parquet")).unwrap(), before);
    assert_eq!(fs::read_to_string(out.join("notes")).unwrap(), "mine");
    // A sweep is another command; a run that fails leaves the folder as it is.
    let (code, said) = again(&["--seeds", "2"]);
    assert_eq!(code, Some(2), "{said}");
    let before = fs::read(out.join("flows.parquet")).unwrap();
    let (code, _) = again(&["--set", "topology.left=0"]);
    assert_eq!(code, Some(1));
    assert_eq!(fs::read(out.join("flows.parquet")).unwrap(), before);
}
