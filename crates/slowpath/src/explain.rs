// SPDX-License-Identifier: Apache-2.0
//! `slowpath explain`: why messages of recorded connections were slow.
//!
//! Each connection is replayed, its waits and their causes are found in the result, and causes are confirmed by replaying once more without them.

use crate::failure::{Failure, Outcome};
use crate::replay::{NOTHING, files, read};
use crate::results;
use clap::Args;
use slowpath_explain::{Category, Explanation, confirm};
use slowpath_lab::virtual_time::{self, Kernel};
use slowpath_recording::Recording;
use slowpath_replay::WhatIf;
use slowpath_replay_report::explanation::{self, ConnectionExplanation, Selection};
use slowpath_replay_report::frames::Frames;
use slowpath_replay_report::{explanation_page, outputs};
use slowpath_text::Paint;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// `slowpath explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/replay/story-2.1.toml --record run.rec
  slowpath explain run.rec                          every slow message, and what it waited for, the worst first
  slowpath explain run.rec --top 3                  the three that lost the most time
  slowpath explain run.rec --connection 4 --all     all messages of one connection
  slowpath explain run.rec --html run.html          with a time-sequence graph of each
  slowpath explain run.rec --connection 4 --out four    the packets as captures, and the frame of each that is named
  slowpath explain run.rec --json
A message is slow if it took more than twice as long as it would by itself on its path. docs/reference/explain.md has the categories and the rules.")]
pub struct Explain {
    /// The recording
    pub file: PathBuf,
    /// Recordings by other machines, for connections with one end on each; or folders of recordings
    #[arg(value_name = "FILE")]
    pub more: Vec<PathBuf>,
    /// Only the connection with this number, from 0 (repeat for more)
    #[arg(long, value_name = "N")]
    pub connection: Vec<usize>,
    /// Show messages that were not slow, too
    #[arg(long)]
    pub all: bool,
    /// Show only the N messages that lost the most time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Write a page with a time-sequence graph of each of them, replacing it
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write client.pcapng and server.pcapng into this directory, in place of an earlier run's, and name the packets by their frames there, too (Wireshark: frame.number == N)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Do not confirm causes by further replays
    #[arg(long)]
    pub quick: bool,
    /// Exit with status 3 if a message was slow
    #[arg(long)]
    pub exit_code: bool,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// Does what the arguments say.
///
/// # Errors
/// The recording cannot be read or replayed.
pub fn run(args: &Explain) -> Result<Outcome, Failure> {
    let recording = read(&files(&args.file, &args.more), &args.connection)?;
    let count = recording.connections.len();
    let chosen: Vec<usize> = if args.connection.is_empty() {
        (0..count).collect()
    } else {
        args.connection.clone()
    };
    if let Some(number) = chosen.iter().find(|number| **number >= count) {
        return Err(Failure::Usage(format!(
            "there is no connection {number} in {}: it has {count}, from 0",
            args.file.display()
        )));
    }
    if count == 0 {
        return Err(Failure::Recording {
            file: args.file.clone(),
            reason: NOTHING.to_owned(),
        });
    }
    let kernel = Kernel::find(virtual_time::SOURCE, recording.origin.hz)
        .map_err(|error| Failure::Lab(error.to_string()))?;
    let working = outputs::Working::new()?;
    let mut all = Vec::new();
    let mut captures = Vec::new();
    for (batch, places) in slowpath_replay::batches(&recording, &chosen, 1)
        .iter()
        .enumerate()
    {
        let folder = fresh(&working.path, &format!("batch-{batch}"))?;
        let explained = slowpath_replay::explain(&kernel, &recording, places, &folder, &mut |_| {});
        let (explained, captured) = explained.map_err(|error| failed(args, &error))?;
        captures.extend(captured);
        for (number, messages) in places.iter().copied().zip(explained) {
            all.push(ConnectionExplanation {
                number,
                messages: messages.map_err(|error| error.to_string()),
            });
        }
    }
    all.sort_by_key(|one| one.number);
    let mut frames = Frames::default();
    if let Some(folder) = results::open(args.out.as_ref(), results::EXPLAIN)? {
        frames = outputs::captures(folder.draft(), &recording, &captures)?;
        folder.commit()?;
    }
    if !args.quick {
        for one in &mut all {
            try_causes(args, &kernel, &recording, one, &working.path)?;
        }
    }
    let selection = Selection {
        everything: args.all,
        top: args.top.map(|top| top as usize),
    };
    report(args, selection, &recording, &all, &frames)?;
    if all.iter().all(|one| one.messages.is_err()) {
        return Err(Failure::Recording {
            file: args.file.clone(),
            reason: "none of its connections can be explained".to_owned(),
        });
    }
    let slow = explanation::sums(&all)
        .keys()
        .any(|it| *it != Category::NotSlow);
    Ok(Outcome::of(args.exit_code, slow))
}

/// Writes the page if it is wanted, and prints the explanations.
fn report(
    args: &Explain,
    selection: Selection,
    recording: &Recording,
    all: &[ConnectionExplanation],
    frames: &Frames,
) -> Result<(), Failure> {
    let out = &mut stdout().lock();
    if let Some(path) = &args.html {
        let title = args.file.display().to_string();
        let page = explanation_page::page(selection, recording, all, frames, &title);
        slowpath_files::write(path, page)
            .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))?;
    }
    if args.json {
        let value = explanation::json(selection, recording, all, frames);
        writeln!(out, "{value}")?;
    } else {
        let paint = Paint::for_stdout();
        explanation::write(selection, recording, all, frames, paint, out)?;
    }
    Ok(out.flush()?)
}

fn failed(args: &Explain, error: &dyn std::error::Error) -> Failure {
    Failure::Recording {
        file: args.file.clone(),
        reason: error.to_string(),
    }
}

fn fresh(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    std::fs::create_dir(&path)
        .map_err(|error| Failure::Write(format!("cannot create {}: {error}", path.display())))?;
    Ok(path)
}

fn try_causes(
    args: &Explain,
    kernel: &Kernel,
    recording: &Recording,
    one: &mut ConnectionExplanation,
    folder: &Path,
) -> Result<(), Failure> {
    let Ok(messages) = &mut one.messages else {
        return Ok(());
    };
    let wanted = |message: &Explanation| message.chain().next().is_some();
    if !messages.iter().any(wanted) {
        return Ok(());
    }
    let folder = fresh(folder, &format!("connection-{}", one.number))?;
    let what_if = WhatIf::new(kernel, recording, one.number, &folder);
    let mut what_if = what_if.map_err(|error| failed(args, &error))?;
    for message in messages {
        let end = message.message.end;
        confirm(end, &mut message.waits, &mut what_if).map_err(|error| failed(args, &error))?;
    }
    Ok(())
}
