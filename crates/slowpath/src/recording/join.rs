// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording join`: recordings of several machines as one.

use crate::failure::{Failure, Outcome};
use clap::Args;
use serde_json::{Value, json};
use slowpath_recording::encode;
use slowpath_replay_report::collection::gather;
use slowpath_text::{Paint, bytes, plural};
use std::io::Write;
use std::path::PathBuf;

/// `slowpath recording join`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath recording join client.rec server.rec --out both.rec
  slowpath recording join /var/lib/slowpath/collected --out all.rec      every *.rec in that folder
  slowpath replay both.rec
Two ends are one connection if both have the same initial sequence numbers; addresses may have been translated on the way. Ends whose other end is in none of the
files are named, and with --exit-code the exit status is 3.")]
pub struct Join {
    /// Recordings of the machines, or folders of recordings
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the joined recording to this file, replacing it; not one of FILE
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Exit with status 3 if an end stays one-sided, or a connection is joined only in part
    #[arg(long)]
    pub exit_code: bool,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &Join, paint: Paint, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let collection = gather(&args.files, &[])?;
    let connections = &collection.joined.recording.connections;
    let notes = collection.notes();
    if connections.is_empty() {
        let reason = notes.first().cloned();
        return Err(Failure::Recording {
            file: args.files[0].clone(),
            reason: reason.unwrap_or_else(|| "there is nothing to join in it".to_owned()),
        });
    }
    let unwritable = |error: &dyn std::fmt::Display| {
        Failure::Write(format!("cannot write {}: {error}", args.out.display()))
    };
    let file = encode(&collection.joined.recording).map_err(|error| unwritable(&error))?;
    slowpath_files::write(&args.out, &file).map_err(|error| unwritable(&error))?;
    let count = connections.iter().filter(|it| it.joint.is_some()).count();
    if args.json {
        let unmatched = collection.unmatched();
        let unmatched: Vec<Value> = unmatched
            .map(|(end, why)| json!({"end": end, "why": why}))
            .collect();
        let short = collection.joined.short.iter();
        let short: Vec<Value> = short
            .map(|(place, it)| {
                let [(client, all_client), (server, all_server)] = it.runs;
                json!({
                    "connection": place,
                    "client_runs": [client, all_client],
                    "server_runs": [server, all_server],
                    "why": it.to_string(),
                })
            })
            .collect();
        let line = json!({
            "type": "joined_recording",
            "file": args.out,
            "bytes": file.len(),
            "connections": connections.len(),
            "joined": count,
            "short": short,
            "alone": unmatched,
        });
        writeln!(out, "{line}")?;
    } else {
        let joined = plural(count as u64, "connection");
        let size = bytes(file.len() as u64);
        let line = format!("{}: {joined} joined, {size}", args.out.display());
        writeln!(out, "{}", paint.bold(&line))?;
        for note in &notes {
            writeln!(out, "{note}")?;
        }
    }
    let left = !(collection.joined.unmatched.is_empty() && collection.joined.short.is_empty());
    Ok(Outcome::of(args.exit_code, left))
}
