// SPDX-License-Identifier: Apache-2.0
//! The last lines of the guest's console, kept for messages.

use super::error::LastLines;
use std::collections::VecDeque;

/// Lines kept: a panic with its call traces.
const LINES: usize = 150;
/// Bytes kept of one line.
const WIDTH: usize = 400;

/// What the kernel said last.
#[derive(Clone, Debug, Default)]
pub struct Console {
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Console {
    /// More of the console.
    pub fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line();
            } else if self.partial.len() < WIDTH {
                self.partial.push(*byte);
            }
        }
    }

    fn end_line(&mut self) {
        let line = printable(&std::mem::take(&mut self.partial));
        if line.is_empty() {
            return;
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The last lines, for a message.
    pub fn last(mut self, count: usize) -> LastLines {
        self.end_line();
        let skipped = self.lines.len().saturating_sub(count);
        LastLines(self.lines.into_iter().skip(skipped).collect())
    }

    /// The first lines of the trouble that ended in a panic, for a message.
    pub fn trouble(mut self, count: usize) -> LastLines {
        // What the kernel's reports begin with (lib/bug.c, arch/x86/kernel/dumpstack.c, mm/fault.c).
        const BEGINNINGS: [&str; 6] = [
            "Kernel panic",
            "BUG: ",
            "kernel BUG at ",
            "Oops: ",
            "WARNING: ",
            "slowpath-guest-init: ",
        ];
        self.end_line();
        let begins = |line: &String| BEGINNINGS.iter().any(|beginning| line.contains(beginning));
        let first = self.lines.iter().position(begins).unwrap_or(0);
        LastLines(self.lines.into_iter().skip(first).take(count).collect())
    }

    /// What the kernel says when it panics (`kernel/panic.c`).
    pub fn panic(&self) -> Option<String> {
        let partial = printable(&self.partial);
        self.lines.iter().chain([&partial]).find_map(|line| {
            let (_, reason) = line.split_once("Kernel panic - not syncing: ")?;
            Some(reason.to_owned())
        })
    }
}

/// Nothing that could steer a terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let kept = text.chars().filter(|c| !c.is_control() || *c == '\t');
    kept.collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_and_the_panic() {
        let mut console = Console::default();
        for number in 0..100 {
            console.push(format!("[    1.0] line {number}\r\n").as_bytes());
        }
        assert_eq!(console.panic(), None);
        console.push(b"[    2.0] Kernel panic - not syncing: sysrq trig");
        console.push(b"gered crash\r\n\x1b[31mend");
        assert_eq!(console.panic().as_deref(), Some("sysrq triggered crash"));
        let trouble = console.clone().trouble(1).0;
        assert_eq!(
            trouble,
            ["[    2.0] Kernel panic - not syncing: sysrq triggered crash"]
        );
        let last = console.last(3).0;
        assert_eq!(last.len(), 3);
        assert_eq!(last[0], "[    1.0] line 99");
        assert_eq!(last[2], "[31mend", "no escape character is left");
    }

    #[test]
    fn a_console_without_line_ends_does_not_grow() {
        let mut console = Console::default();
        console.push(&[b'x'; 10_000]);
        assert_eq!(console.last(10).0, ["x".repeat(WIDTH)]);
    }
}
