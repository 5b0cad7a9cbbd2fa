// SPDX-License-Identifier: Apache-2.0
//! This machine's terminal, lent to a command in the guest.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, Stdin};

/// Columns and rows where there is no terminal to ask.
const USUAL: (u16, u16) = (80, 24);

/// Standard input that passes every key on. Dropping it restores the terminal.
#[derive(Debug)]
pub struct Raw {
    input: Stdin,
    before: Option<Termios>,
}

impl Raw {
    /// Takes it, if standard input is a terminal; else input is passed on as it comes.
    pub fn take() -> Self {
        let input = std::io::stdin();
        let before = tcgetattr(&input).ok().filter(|_| input.is_terminal());
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            let _ = tcsetattr(&input, OptionalActions::Flush, &raw);
        }
        Raw { input, before }
    }

    /// Where keys come from.
    pub fn input(&self) -> &Stdin {
        &self.input
    }

    /// Columns and rows.
    pub fn size() -> (u16, u16) {
        match tcgetwinsize(std::io::stdin()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => USUAL,
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.input, OptionalActions::Flush, before);
        }
    }
}
