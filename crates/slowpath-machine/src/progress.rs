// SPDX-License-Identifier: Apache-2.0
//! Progress with the time left, on standard error, on a terminal only.

// Its own words and figures only, with the codes that take a line away.
#![expect(clippy::print_stderr)]

use slowpath_model::Micros;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Work shorter than this shows no progress.
const WORTH: Duration = Duration::from_secs(2);

/// A line that is rewritten while work goes on and gone when it is done.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    length: Duration,
    shown: bool,
    on: bool,
}

impl Progress {
    /// Progress of work that takes `length`.
    pub fn new(what: &'static str, length: Duration) -> Self {
        Progress {
            what,
            length,
            shown: false,
            on: length > WORTH && std::io::stderr().is_terminal(),
        }
    }

    /// The work takes `length` after all.
    pub fn expect(&mut self, length: Duration) {
        self.length = length;
        self.on = self.shown || length > WORTH && std::io::stderr().is_terminal();
    }

    /// Shows how far it is.
    pub fn at(&mut self, elapsed: Micros, note: &str) {
        if self.on {
            self.shown = true;
            let line = line(self.what, self.length.into(), elapsed, note);
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(what: &str, length: Micros, elapsed: Micros, note: &str) -> String {
    const CELLS: usize = 20;
    let share = elapsed.0 as f64 / length.0.max(1) as f64;
    let full = (share.min(1.0) * CELLS as f64) as usize;
    format!(
        "{what} [{}{}] {} left  {note}",
        "#".repeat(full),
        ".".repeat(CELLS - full),
        length.saturating_sub(elapsed),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_much_is_left() {
        let half = line("looking", Micros(4_000_000), Micros(1_000_000), "");
        assert!(half.contains("3.00s left"));
        assert_eq!(half.matches('#').count(), 5);
        assert!(line("x", Micros(1), Micros(9), "").contains("0us left"));
    }
}
