// SPDX-License-Identifier: Apache-2.0
//! What commands write besides what they print, and the one rule for all of it
//! (docs/decisions/0050-outputs.md): a file is replaced, unless the command reads it; a folder of
//! results is new, empty, or of the same command.

use crate::args::Command;
use crate::failure::Failure;
use crate::lab::Lab;
use crate::recording::Recorded;
use crate::results::{
    EXPLAIN, GUEST, QUEUES, REPLAY, SIM, SIM_SWEEP, TRACE, VIRTUAL, VIRTUAL_SWEEP,
};
use slowpath_files::{check, refuse};
use slowpath_path::command::PathAction;
use std::path::{Path, PathBuf};

/// What a command line names.
#[derive(Default)]
struct Named<'a> {
    /// Files that are replaced.
    files: Vec<&'a Path>,
    /// A folder of results, and who writes it.
    folder: Option<(&'a Path, &'static str)>,
    /// Files that are read.
    inputs: Vec<&'a Path>,
}

impl<'a> Named<'a> {
    fn of(command: &'a Command) -> Self {
        match command {
            Command::Sim(args) => {
                let maker = if args.sweeping.is_any() {
                    SIM_SWEEP
                } else {
                    SIM
                };
                Named::new(&[&args.html], &args.out, maker, &args.scenario)
            }
            Command::Lab(Lab::Virtual(args)) => {
                let maker = match args.sweeping.is_any() {
                    true => VIRTUAL_SWEEP,
                    false => VIRTUAL,
                };
                let files = [&args.html, &args.record];
                Named::new(&files, &args.out, maker, [&args.scenario])
            }
            Command::Lab(Lab::Guest(args)) => Named::new(&[], &args.out, GUEST, &args.kernel),
            Command::Queues(args) => Named::new(&[&args.html], &args.out, QUEUES, [&args.topology]),
            Command::Replay(args) => {
                let inputs = args.more.iter().chain([&args.file]);
                Named::new(&[&args.html], &args.out, REPLAY, inputs)
            }
            Command::Trace(args) => {
                let files = [&args.html, &args.svg, &args.annotate];
                let inputs = args.files.iter().chain(&args.pair);
                let mut named = Named::new(&files, &args.xpl, TRACE, inputs);
                let extracted = args.extract.as_ref().and_then(|it| it.get(1));
                named.files.extend(extracted.map(Path::new));
                named
            }
            Command::Explain(args) => {
                let inputs = args.more.iter().chain([&args.file]);
                Named::new(&[&args.html], &args.out, EXPLAIN, inputs)
            }
            Command::Record(args) => Named::files([&args.events], []).and(&args.out),
            Command::Recording(Recorded::Join(args)) => {
                Named::files([], &args.files).and(&args.out)
            }
            Command::Recording(Recorded::Shrink(args)) => {
                Named::files([], [&args.file]).and(&args.to)
            }
            Command::Path(args) => match &args.action {
                PathAction::Owd(args) => Named::files([&args.save], &args.keys),
                _ => Named::default(),
            },
            _ => Named::default(),
        }
    }

    fn new(
        files: &[&'a Option<PathBuf>],
        folder: &'a Option<PathBuf>,
        maker: &'static str,
        inputs: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Self {
        Named {
            folder: folder.as_deref().map(|folder| (folder, maker)),
            ..Named::files(files.iter().copied(), inputs)
        }
    }

    fn files(
        files: impl IntoIterator<Item = &'a Option<PathBuf>>,
        inputs: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Self {
        Named {
            files: files.into_iter().filter_map(Option::as_deref).collect(),
            folder: None,
            inputs: inputs.into_iter().map(PathBuf::as_path).collect(),
        }
    }

    fn and(mut self, file: &'a Path) -> Self {
        self.files.push(file);
        self
    }
}

/// Refuses what a command must not write, before it does anything.
///
/// # Errors
/// An output is an input or another output, a folder has something else in it, or one of them
/// cannot be written.
pub(crate) fn refuse_wrong(command: &Command) -> Result<(), Failure> {
    let named = Named::of(command);
    refuse(&named.files, &named.inputs)?;
    if let Some((folder, maker)) = named.folder {
        check(folder, maker)?;
    }
    Ok(())
}
