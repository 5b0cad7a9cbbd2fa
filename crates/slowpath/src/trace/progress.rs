// SPDX-License-Identifier: Apache-2.0
//! Progress of a pass over a capture.

// Its own words and figures only, with the codes that take a line away.
#![expect(clippy::print_stderr)]

use slowpath_model::Micros;
use slowpath_text::bytes;
use slowpath_trace::engine::Progress;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Work shorter than this shows no progress.
const WORTH: Duration = Duration::from_secs(2);

/// Progress by bytes on standard error, on a terminal only.
pub struct Bar {
    what: &'static str,
    began: Instant,
    on: bool,
    shown: bool,
}

impl Bar {
    /// Progress of work that begins now.
    pub fn new(what: &'static str) -> Self {
        Bar {
            what,
            began: Instant::now(),
            on: std::io::stderr().is_terminal(),
            shown: false,
        }
    }

    /// Shows progress for as long as the pass keeps this.
    pub fn observer(mut self) -> impl FnMut(Progress) -> ControlFlow<()> {
        move |progress| self.at(progress)
    }

    fn at(&mut self, progress: Progress) -> ControlFlow<()> {
        let elapsed = self.began.elapsed();
        if self.on && elapsed > WORTH {
            self.shown = true;
            eprint!("\r\x1b[K{}", line(self.what, elapsed, progress));
            // A terminal that is gone shows no progress.
            let _ = std::io::stderr().flush();
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }
}

fn line(what: &str, elapsed: Duration, progress: Progress) -> String {
    const CELLS: usize = 20;
    let done = progress.bytes;
    let Some(total) = progress.total.filter(|total| *total > 0) else {
        return format!("{what} {}, {} packets", bytes(done), progress.frames);
    };
    let share = (done as f64 / total as f64).min(1.0);
    let full = (share * CELLS as f64) as usize;
    let left = if share > 0.0 {
        let seconds = elapsed.as_secs_f64() * (1.0 / share - 1.0);
        format!("{} left", Micros((seconds * 1e6) as u64))
    } else {
        String::new()
    };
    format!(
        "{what} [{}{}] {left}  {} of {}, {} packets",
        "#".repeat(full),
        ".".repeat(CELLS - full),
        bytes(done),
        bytes(total),
        progress.frames,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_bytes() {
        let at = |bytes, total| Progress {
            bytes,
            total,
            frames: 7,
        };
        let text = line("reading", Duration::from_secs(5), at(250, Some(1000)));
        assert!(text.contains("15.0s left"), "{text}");
        assert_eq!(text.matches('#').count(), 5);
        assert!(line("reading", WORTH, at(2048, None)).contains("2.0 KiB, 7 packets"));
    }
}
