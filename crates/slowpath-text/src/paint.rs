// SPDX-License-Identifier: Apache-2.0
//! Colours of a terminal.

use slowpath_model::Problem;
use std::io::IsTerminal;

/// Colours, if the stream may have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// No colours.
    pub const OFF: Paint = Paint { on: false };

    /// Colours if standard output is a terminal, `NO_COLOR` is unset or empty
    /// (<https://no-color.org>) and `TERM` is not `dumb`.
    pub fn for_stdout() -> Self {
        let unset = |name| std::env::var_os(name).is_none_or(|v| v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Paint {
            on: std::io::stdout().is_terminal() && unset("NO_COLOR") && !dumb,
        }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Dim.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// The colour of a problem: none for the application, red for losses, yellow for the
    /// rest.
    pub fn problem(self, problem: Problem, text: &str) -> String {
        match problem {
            Problem::SenderAppLimited => text.to_owned(),
            Problem::FastRetransmit | Problem::Timeout => self.wrap("31", text),
            _ => self.wrap("33", text),
        }
    }
}
