// SPDX-License-Identifier: Apache-2.0
//! `slowpath explain`: why messages of recorded connections were slow.
//!
//! Each connection is replayed, what came out is asked for waits and their causes, and causes are tried by replaying once more without them.

use crate::failure::{Failure, Outcome};
use crate::render::{Paint, plural};
use crate::replay::{NOTHING, end_name, files, outputs, together};
use clap::Args;
use serde_json::{Value, json};
use slowpath_explain::{Category, Explanation, Link, Wait, confirm};
use slowpath_lab::virtual_time::{self, Kernel};
use slowpath_recording::Recording;
use slowpath_replay::WhatIf;
use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `slowpath explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/replay/story-2.1.toml --record run.rec
  slowpath explain run.rec                          every slow message, and what it waited for
  slowpath explain run.rec --connection 4 --all     all messages of one connection
  slowpath explain run.rec --json
A message is slow if it took more than twice as long as alone on its path. docs/reference/explain.md has the categories and the rules.")]
pub struct Explain {
    /// The recording
    pub file: PathBuf,
    /// Those of further machines, of connections with one end on each; or folders of recordings
    #[arg(value_name = "FILE")]
    pub more: Vec<PathBuf>,
    /// Only these, by their number from 0 (again for more)
    #[arg(long, value_name = "N")]
    pub connection: Vec<usize>,
    /// Messages that were not slow, too
    #[arg(long)]
    pub all: bool,
    /// Do not try causes by further replays
    #[arg(long)]
    pub quick: bool,
    /// Exit with 3 if a message was slow
    #[arg(long)]
    pub exit_code: bool,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// What is said of one connection.
struct Told {
    number: usize,
    messages: Result<Vec<Explanation>, String>,
}

/// Does what the arguments say.
///
/// # Errors
/// The recording cannot be read or replayed.
pub fn run(args: &Explain) -> Result<Outcome, Failure> {
    let recording = together::read(&files(&args.file, &args.more), &args.connection)?;
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
    for (batch, places) in slowpath_replay::batches(&recording, &chosen, 1)
        .iter()
        .enumerate()
    {
        let folder = fresh(&working.path, &format!("batch-{batch}"))?;
        let explained = slowpath_replay::explain(&kernel, &recording, places, &folder, &mut |_| {});
        let explained = explained.map_err(|error| failed(args, &error))?;
        for (number, messages) in places.iter().copied().zip(explained) {
            all.push(Told {
                number,
                messages: messages.map_err(|error| error.to_string()),
            });
        }
    }
    all.sort_by_key(|told| told.number);
    if !args.quick {
        for told in &mut all {
            try_causes(args, &kernel, &recording, told, &working.path)?;
        }
    }
    let out = &mut stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json(args, &recording, &all))?;
    } else {
        as_text(args, &recording, &all, out)?;
    }
    if all.iter().all(|told| told.messages.is_err()) {
        out.flush()?;
        return Err(Failure::Recording {
            file: args.file.clone(),
            reason: "none of its connections can be explained".to_owned(),
        });
    }
    let slow = sums(&all).keys().any(|it| *it != Category::NotSlow);
    Ok(Outcome::of(args.exit_code, slow))
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
    told: &mut Told,
    folder: &Path,
) -> Result<(), Failure> {
    let Ok(messages) = &mut told.messages else {
        return Ok(());
    };
    let wanted = |message: &Explanation| message.chain().next().is_some();
    if !messages.iter().any(wanted) {
        return Ok(());
    }
    let folder = fresh(folder, &format!("connection-{}", told.number))?;
    let what_if = WhatIf::new(kernel, recording, told.number, &folder);
    let mut what_if = what_if.map_err(|error| failed(args, &error))?;
    for message in messages {
        let end = message.message.end;
        confirm(end, &mut message.waits, &mut what_if).map_err(|error| failed(args, &error))?;
    }
    Ok(())
}

/// How many messages there are of each category.
fn sums(all: &[Told]) -> BTreeMap<Category, u64> {
    let mut sums = BTreeMap::new();
    for message in all
        .iter()
        .filter_map(|told| told.messages.as_ref().ok())
        .flatten()
    {
        *sums.entry(message.category).or_default() += 1;
    }
    sums
}

fn shown<'a>(args: &Explain, messages: &'a [Explanation]) -> Vec<&'a Explanation> {
    let all = messages.iter();
    all.filter(|it| args.all || it.category != Category::NotSlow)
        .collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn as_text(
    args: &Explain,
    recording: &Recording,
    all: &[Told],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    for told in all {
        let connection = &recording.connections[told.number];
        let [client, server] = connection.addresses;
        let head = format!("connection {}  {client} -> {server}", told.number);
        match &told.messages {
            Err(reason) => writeln!(out, "{}\n  {reason}", paint.bold(&head))?,
            Ok(messages) => {
                let shown = shown(args, messages);
                if !shown.is_empty() {
                    writeln!(out, "{}", paint.bold(&head))?;
                }
                for message in shown {
                    message_text(message, out)?;
                }
            }
        }
    }
    let sums = sums(all);
    let parts: Vec<String> = sums
        .iter()
        .map(|(category, count)| format!("{count} {}", category.words()))
        .collect();
    let total = plural(sums.values().sum(), "message");
    match parts.is_empty() {
        true => writeln!(out, "no messages")?,
        false => writeln!(out, "{}: {}", paint.bold(&total), parts.join(", "))?,
    }
    Ok(())
}

fn message_text(it: &Explanation, out: &mut impl Write) -> Result<(), Failure> {
    let bytes = it.message.bytes.end - it.message.bytes.start;
    write!(
        out,
        "  message {} of the {}: {bytes} bytes",
        it.message.number,
        end_name(it.message.end)
    )?;
    if let Some(took) = it.message.duration() {
        write!(out, " in {:.3} ms", ms(took))?;
    }
    if let Some(alone) = it.unimpeded {
        write!(out, ", alone {:.3} ms", ms(alone))?;
    }
    writeln!(out, ": {}", it.category.words())?;
    for wait in &it.waits {
        let from = wait.from.0.saturating_sub(it.message.begun.0);
        writeln!(
            out,
            "    after {:.3} ms it waited {:.3} ms for {}",
            ms(Duration::from_nanos(from)),
            ms(wait.duration()),
            wait.waited.words()
        )?;
        for link in &wait.links {
            writeln!(out, "      {link}")?;
        }
        match wait.confirmed {
            Some(true) => writeln!(out, "      tried: without that it goes on earlier")?,
            Some(false) => writeln!(out, "      tried: without that nothing changes")?,
            None => {}
        }
    }
    Ok(())
}

fn as_json(args: &Explain, recording: &Recording, all: &[Told]) -> Value {
    let connections: Vec<Value> = all
        .iter()
        .map(|told| {
            let [client, server] = recording.connections[told.number].addresses;
            let mut value = json!({
                "connection": told.number,
                "client": client.to_string(),
                "server": server.to_string(),
            });
            match &told.messages {
                Ok(messages) => {
                    let shown = shown(args, messages);
                    value["messages"] = shown.into_iter().map(message_json).collect();
                }
                Err(reason) => value["error"] = reason.as_str().into(),
            }
            value
        })
        .collect();
    let sums = sums(all);
    let sums: serde_json::Map<String, Value> = sums
        .into_iter()
        .map(|(category, count)| (category.name().to_owned(), count.into()))
        .collect();
    json!({ "categories": sums, "connections": connections })
}

fn message_json(it: &Explanation) -> Value {
    json!({
        "end": end_name(it.message.end),
        "message": it.message.number,
        "first_byte": it.message.bytes.start,
        "bytes": it.message.bytes.end - it.message.bytes.start,
        "begun_ns": it.message.begun.0,
        "milliseconds": it.message.duration().map(ms),
        "alone_milliseconds": it.unimpeded.map(ms),
        "slowdown": it.slowdown(),
        "category": it.category.name(),
        "bytes_sent_again": it.sent_again,
        "waits": it.waits.iter().map(wait_json).collect::<Vec<_>>(),
    })
}

fn wait_json(wait: &Wait) -> Value {
    json!({
        "for": wait.waited.name(),
        "from_ns": wait.from.0,
        "milliseconds": ms(wait.duration()),
        "run": wait.run,
        "late": wait.late,
        "confirmed": wait.confirmed,
        "causes": wait.links.iter().map(link_json).collect::<Vec<_>>(),
    })
}

fn link_json(link: &Link) -> Value {
    json!({ "cause": link.name(), "text": link.to_string() })
}
