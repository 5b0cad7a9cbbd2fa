// SPDX-License-Identifier: Apache-2.0
//! What this machine has that views and commands take as arguments.
//!
//! What enters: names and targets as a user writes them. What leaves: [`system_names`], ports and
//! addresses; [`process_state`], the process of a target; [`family_tree`], a command's descendants;
//! [`clock`], the time; [`scenarios`], the files of installed scenarios; [`progress`], a line on the
//! terminal while work goes on.
//!
//! What it never does: judge.

pub mod clock;
pub mod family_tree;
pub mod process_state;
pub mod progress;
pub mod scenarios;
pub mod system_names;
