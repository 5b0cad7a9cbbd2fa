// SPDX-License-Identifier: Apache-2.0
//! Lines on standard error, as the journal likes them.

use std::io::Write;

/// The levels of syslog (RFC 5424 section 6.2.1) in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Warning = 4,
    Information = 6,
}

/// Writes lines; where standard error is the journal, each with its level
/// (sd-daemon(3), "<6>"). What cannot be written is not missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Journal {
    levels: bool,
}

impl Journal {
    /// For this process's standard error.
    pub(super) fn of_this_process() -> Self {
        Journal {
            levels: std::env::var("JOURNAL_STREAM")
                .is_ok_and(|stream| standard_error().is_some_and(|own| own == stream)),
        }
    }

    /// Something a person may want to know.
    pub(super) fn say(self, text: &str) {
        self.line(Level::Information, text);
    }

    /// Something a person may want to mend.
    pub(super) fn warn(self, text: &str) {
        self.line(Level::Warning, text);
    }

    fn line(self, level: Level, text: &str) {
        // What comes from outside must not look like a line of its own.
        let text = text.replace(['\n', '\r'], " ");
        let _ = if self.levels {
            writeln!(std::io::stderr(), "<{}>{text}", level as u8)
        } else {
            writeln!(std::io::stderr(), "slowpath: {text}")
        };
    }
}

/// `DEVICE:INODE` of standard error, as systemd.exec(5) puts it into `$JOURNAL_STREAM`.
fn standard_error() -> Option<String> {
    // SAFETY: a zeroed stat is a valid one to be written over.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a stat that lives until the call returns.
    let done = unsafe { libc::fstat(libc::STDERR_FILENO, &mut status) };
    (done == 0).then(|| format!("{}:{}", status.st_dev, status.st_ino))
}
