// SPDX-License-Identifier: Apache-2.0
//! `slowpath path` as it is called.
#![allow(dead_code, reason = "not every test file uses all of it")]

use clap::Parser;
use slowpath_path::command::{CommandError, PathCommand, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    path: PathCommand,
}

/// Whether these are arguments of a command.
pub fn takes(command: &str, arguments: &str) -> bool {
    parse(command, arguments).is_ok()
}

fn parse(command: &str, arguments: &str) -> Result<Cli, clap::Error> {
    let words = ["path", command].into_iter();
    Cli::try_parse_from(words.chain(arguments.split_whitespace()))
}

/// What a command prints, by its words behind `slowpath path`.
pub fn printed(command: &str, arguments: &str) -> Result<String, CommandError> {
    let cli = parse(command, arguments).expect("valid arguments");
    let mut out = Vec::new();
    run(&cli.path, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}
