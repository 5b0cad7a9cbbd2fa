// SPDX-License-Identifier: Apache-2.0
//! Lines on standard error, in the form that the journal reads.

use slowpath_model::{clean, without_url_secrets};
use std::io::Write;

/// The levels of syslog (RFC 5424 section 6.2.1) in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Warning = 4,
    Information = 6,
}

/// Writes lines; where standard error is the journal, each with its level
/// (sd-daemon(3), "<6>"). A line that cannot be written is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Journal {
    levels: bool,
}

impl Journal {
    /// For this process's standard error.
    pub fn of_this_process() -> Self {
        Journal {
            levels: std::env::var("JOURNAL_STREAM")
                .is_ok_and(|stream| standard_error().is_some_and(|own| own == stream)),
        }
    }

    /// Writes something that an administrator may want to know.
    pub fn say(self, text: &str) {
        self.line(Level::Information, text);
    }

    /// Writes something that an administrator may want to mend.
    pub fn warn(self, text: &str) {
        self.line(Level::Warning, text);
    }

    fn line(self, level: Level, text: &str) {
        // What comes from outside must not look like a line of its own, nor steer a terminal.
        let text = clean(text);
        let text = without_url_secrets(&text);
        let _ = if self.levels {
            writeln!(std::io::stderr(), "<{}>{text}", level as u8)
        } else {
            writeln!(std::io::stderr(), "slowpath: {text}")
        };
    }
}

/// `DEVICE:INODE` of standard error, as systemd.exec(5) puts it into `$JOURNAL_STREAM`.
fn standard_error() -> Option<String> {
    let status = rustix::fs::fstat(std::io::stderr()).ok()?;
    Some(format!("{}:{}", status.st_dev, status.st_ino))
}
