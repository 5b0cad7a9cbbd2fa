// SPDX-License-Identifier: Apache-2.0
//! What can go wrong before, in and after a guest.

use super::wire::WireError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines of a guest's console, for a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastLines(pub Vec<String>);

impl fmt::Display for LastLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("; its console said nothing");
        }
        f.write_str("; from its console:")?;
        for line in &self.0 {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// Why a command did not run, or did not end, in a guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// No emulator.
    #[error("cannot find {program}; `make lab-guest` installs it (Debian package qemu-system-x86)")]
    QemuMissing {
        /// What was looked for.
        program: String,
    },
    /// The emulator does not start.
    #[error("cannot start {program}: {source}")]
    QemuStart {
        /// Which.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The emulator ended by itself and not because of the guest.
    #[error("QEMU gave up: {reason}")]
    Qemu {
        /// What it said.
        reason: String,
    },
    /// Nothing to boot.
    #[error(
        "no guest kernel in {}; `make lab-guest` fetches Debian's, or name one with --kernel and --modules", folder.display()
    )]
    KernelMissing {
        /// Where it would be.
        folder: PathBuf,
    },
    /// A module that this kernel does not have.
    #[error("this kernel has no module {name}{}", near(similar))]
    UnknownModule {
        /// As asked for.
        name: String,
        /// Names that it has and that look alike.
        similar: Vec<String>,
    },
    /// A module is wanted and there is no folder of modules.
    #[error("module {name} is wanted and no folder of modules is named (--modules DIR)")]
    NoModules {
        /// As asked for.
        name: String,
    },
    /// A program is not on this machine.
    #[error("cannot find {name} on this machine to take it into the guest")]
    ProgramMissing {
        /// As asked for.
        name: String,
    },
    /// A program needs a library that is not on this machine.
    #[error("cannot find {library}, which {} needs", wanted_by.display())]
    LibraryMissing {
        /// Its name.
        library: String,
        /// Who needs it.
        wanted_by: PathBuf,
    },
    /// Not a program for this machine.
    #[error("cannot read {} as a program: {reason}", path.display())]
    Program {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The program that becomes the guest's first process is missing.
    #[error(
        "cannot find slowpath-guest-init beside {}; build it with `cargo build -p slowpath-lab \
         --bins` or name it in SLOWPATH_GUEST_INIT", beside.display()
    )]
    InitMissing {
        /// The running program.
        beside: PathBuf,
    },
    /// A name that cannot be used in the guest.
    #[error("cannot use {path:?} as a path in the guest: {reason}")]
    GuestPath {
        /// The name.
        path: String,
        /// Why.
        reason: &'static str,
    },
    /// An argument of the command, or a variable, is not UTF-8.
    #[error("cannot pass {text:?} to the guest: it is not UTF-8")]
    NotText {
        /// It, as far as it can be shown.
        text: String,
    },
    /// No command.
    #[error("no command to run in the guest")]
    NoCommand,
    /// What is taken along does not fit.
    #[error(
        "{memory} MiB of memory are too few for a guest that takes {image} MiB along; ask for {wanted} (--memory)"
    )]
    Memory {
        /// What it would get.
        memory: u32,
        /// What it takes along.
        image: u64,
        /// What would do.
        wanted: u64,
    },
    /// A file of this machine.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// What was attempted.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel did not come up.
    #[error("the guest did not start within {} s{console}", after.as_secs())]
    NotBooted {
        /// How long it was waited for.
        after: Duration,
        /// What it said.
        console: LastLines,
    },
    /// The kernel panicked.
    #[error("the guest's kernel panicked: {reason}{console}")]
    Panicked {
        /// In its own words.
        reason: String,
        /// What it said around that.
        console: LastLines,
    },
    /// The guest went away without a word.
    #[error("the guest ended before the command did{console}")]
    Ended {
        /// What it said.
        console: LastLines,
    },
    /// The kernel stands still.
    #[error("the guest hangs: no sign of life for {} s{console}", silence.as_secs())]
    Hung {
        /// For how long.
        silence: Duration,
        /// What it said.
        console: LastLines,
    },
    /// The command took too long.
    #[error(
        "the command was stopped after {} s (--timeout){}{console}", after.as_secs_f64(),
        if *results_kept { "; what it wrote to /out so far is kept" } else { "" }
    )]
    TimedOut {
        /// How long it had.
        after: Duration,
        /// Whether the files of `/out` came out.
        results_kept: bool,
        /// What the console said.
        console: LastLines,
    },
    /// The first process could not do its part.
    #[error("inside the guest: {reason}")]
    Inside {
        /// In its words.
        reason: String,
    },
    /// What came from the guest makes no sense.
    #[error("the guest's messages are damaged: {0}")]
    Wire(#[from] WireError),
    /// A result did not come out whole.
    #[error("cannot keep the result {path}: {reason}")]
    Result {
        /// Its path below `/out`.
        path: String,
        /// Why.
        reason: String,
    },
    /// No one takes the command's output.
    #[error("cannot pass the command's output on: {0}")]
    Output(io::Error),
    /// A system call of ours.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was attempted.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

fn near(similar: &[String]) -> String {
    match similar {
        [] => String::new(),
        names => format!("; it has {}", names.join(", ")),
    }
}

impl GuestError {
    pub(super) fn file(
        operation: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> GuestError {
        let path = path.as_ref().to_owned();
        move |source| GuestError::File {
            operation,
            path,
            source,
        }
    }

    pub(super) fn system<E: Into<io::Error>>(
        operation: &'static str,
    ) -> impl FnOnce(E) -> GuestError {
        move |source| GuestError::System {
            operation,
            source: source.into(),
        }
    }

    /// Whether the caller asked for something impossible, so that nothing was started.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            GuestError::UnknownModule { .. }
                | GuestError::NoModules { .. }
                | GuestError::GuestPath { .. }
                | GuestError::NotText { .. }
                | GuestError::NoCommand
        )
    }
}
