// SPDX-License-Identifier: Apache-2.0
//! Every example of every help text: all are accepted as they are printed, and those that need neither
//! another machine nor this machine's traffic run, one help text after another, in a folder of their own.

use clap::{Command, CommandFactory};
use slowpath_cli::args::Cli;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What the examples of one help text are.
struct Help {
    command: String,
    examples: Vec<String>,
}

/// The examples of a command and of all below it.
fn collect(command: &Command, name: &str, into: &mut Vec<Help>) {
    let help = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let examples: Vec<String> = help
        .lines()
        .skip_while(|line| !line.starts_with("Examples:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .map(|line| without_description(line.trim_start()).to_owned())
        .collect();
    if !examples.is_empty() {
        into.push(Help {
            command: name.to_owned(),
            examples,
        });
    }
    for below in command.get_subcommands() {
        collect(below, &format!("{name} {}", below.get_name()), into);
    }
}

fn all() -> Vec<Help> {
    let mut helps = Vec::new();
    collect(&Cli::command(), "slowpath", &mut helps);
    helps
}

/// Two spaces or more end the command.
fn without_description(line: &str) -> &str {
    line.split("  ").next().unwrap_or(line).trim_end()
}

/// The words of each slowpath command of a line, as a shell splits them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![vec![]];
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                let last = commands.last_mut().expect("one at least");
                last.extend(word.take());
            }
            (None, '|' | '>') => commands.push(vec![]),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    commands.retain(|words| words.first().is_some_and(|word| word == "slowpath"));
    commands
}

#[test]
fn every_example_is_accepted() {
    let helps = all();
    assert!(helps.len() > 20, "{}", helps.len());
    for help in helps {
        for example in &help.examples {
            let commands = commands(example);
            assert!(!commands.is_empty(), "{}: {example}", help.command);
            for words in commands {
                // What a server printed is no example's to know.
                if words.iter().any(|word| word.ends_with('…')) {
                    continue;
                }
                if let Err(error) = Cli::command().try_get_matches_from(&words) {
                    panic!("{}: {example}\n{error}", help.command);
                }
            }
        }
    }
}

/// How an example is tried beyond its arguments.
enum Way {
    /// As it is printed, with this behind it where a test has not its time.
    Run(&'static str),
    /// Its exit status may be 3: something was found.
    Found,
    /// Not here, for this reason.
    Not(&'static str),
}

/// The first that an example contains decides.
const WAYS: [(&str, Way); 36] = [
    ("example.org", Way::Not("another machine")),
    ("slowpath path ", Way::Not("another machine")),
    ("client.rec server.rec", Way::Not("two machines")),
    ("collected", Way::Not("other machines' recordings")),
    ("both.rec", Way::Not("two machines")),
    (
        "captures --topology",
        Way::Not("several machines' captures"),
    ),
    ("-i eth0", Way::Not("this machine's packets")),
    ("--interface", Way::Not("this machine's packets")),
    ("tcpdump", Way::Not("this machine's packets")),
    ("slowpath up", Way::Not("this machine's traffic")),
    ("slowpath watch", Way::Not("this machine's traffic")),
    ("slowpath why", Way::Not("this machine's traffic")),
    ("slowpath overhead", Way::Not("this machine's traffic")),
    ("slowpath record ", Way::Not("this machine's traffic")),
    ("slowpath agent", Way::Not("this machine's traffic")),
    ("test.rec", Way::Not("this machine's traffic")),
    ("slowpath server", Way::Not("a server's directory")),
    ("slowpath report", Way::Not("this machine's log")),
    ("slowpath export", Way::Not("this machine's log")),
    ("slowpath lab guest", Way::Not("a stock kernel in a guest")),
    ("slowpath lab up", Way::Not("namespaces: tests/lab.rs")),
    ("slowpath lab exec", Way::Not("namespaces: tests/lab.rs")),
    ("slowpath lab down", Way::Not("namespaces: tests/lab.rs")),
    ("--gdb", Way::Not("a terminal")),
    ("man -l", Way::Not("a terminal")),
    ("--pages", Way::Not("this machine's manual pages")),
    ("slowpath replay run.rec --connection 7 --set", Way::Found),
    ("exit-code", Way::Found),
    (
        "lab virtual scenarios/sim/leaf-spine.toml --seeds",
        Way::Run(" --set duration='2 ms'"),
    ),
    (
        "lab virtual scenarios/sim/dumbbell.toml",
        Way::Run(" --set duration='200 ms'"),
    ),
    (
        "lab virtual scenarios/sim/leaf-spine.toml",
        Way::Run(" --set duration='10 ms'"),
    ),
    ("--seeds", Way::Run(" --set duration='200 us'")),
    (
        "scenarios/sim/dumbbell.toml",
        Way::Run(" --set duration='500 ms'"),
    ),
    ("slowpath sim compare", Way::Run("")),
    ("slowpath sim ", Way::Run(" --set duration='20 ms'")),
    ("", Way::Run("")),
];

fn way(example: &str) -> &'static Way {
    let found = WAYS.iter().find(|(part, _)| example.contains(part));
    &found.expect("the last fits all").1
}

/// Whether it needs a laboratory kernel.
fn needs_kernel(help: &Help) -> bool {
    let all = help.examples.join("\n");
    ["lab virtual", "replay", "explain", "recording"]
        .iter()
        .any(|word| all.contains(word))
}

/// A folder as the help texts assume it: the scenarios, captures, a recording.
fn furnished(folder: &Path, with_kernel: bool) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::os::unix::fs::symlink(root.join("scenarios"), folder.join("scenarios")).unwrap();
    let captures = root.join("captures");
    for (name, from) in [
        ("ring.pcapng", "many-short-veth.pcap.gz"),
        ("capture.pcapng", "random-loss-20ms.pcap.gz"),
        ("ring.pcap0", "mixed-20ms.pcap.gz"),
        ("ring.pcap1", "mixed-20ms.pcap.gz"),
        ("ring.pcap2", "mixed-20ms.pcap.gz"),
        ("sender.pcap", "one-loss-80ms-client.pcap.gz"),
        ("receiver.pcap", "one-loss-80ms-server.pcap.gz"),
    ] {
        let from = captures.join(from);
        if from.exists() {
            fs::copy(from, folder.join(name)).unwrap();
        }
    }
    if with_kernel {
        let command =
            "slowpath lab virtual scenarios/replay/story-2.1.toml --record run.rec --quiet";
        run(folder, command, &[0]).unwrap();
    }
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_slowpath"))
}

/// Runs a line in the folder, by a shell that fails where a command of a pipe does.
fn run(folder: &Path, line: &str, allowed: &[i32]) -> Result<(), String> {
    let own = program().parent().unwrap().display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let output = std::process::Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .env("SLOWPATH_SCENARIOS", folder.join("scenarios"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    match output.status.code() {
        Some(code) if allowed.contains(&code) => Ok(()),
        code => Err(format!(
            "`{line}` ended with {code:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[test]
fn examples_run_as_printed() {
    let kernel = Kernel::find(SOURCE, HZ);
    if let Err(missing) = &kernel {
        println!("SKIPPED examples_run_as_printed: those of recordings: {missing}");
    }
    let (mut ran, mut failed) = (0, Vec::new());
    for help in all() {
        if needs_kernel(&help) && kernel.is_err() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        furnished(folder.path(), needs_kernel(&help));
        for example in &help.examples {
            let (behind, allowed) = match way(example) {
                Way::Run(behind) => (*behind, &[0][..]),
                Way::Found => ("", &[0, 3][..]),
                Way::Not(why) => {
                    println!("not run, for {why}: {example}");
                    continue;
                }
            };
            ran += 1;
            let (first, rest) = example.split_once(" |").unwrap_or((example, ""));
            let pipe = if rest.is_empty() { "" } else { " |" };
            let line = format!("{first}{behind}{pipe}{rest}");
            if let Err(error) = run(folder.path(), &line, allowed) {
                failed.push(format!("{}: {error}", help.command));
            }
        }
    }
    assert!(ran > 20, "{ran}");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
