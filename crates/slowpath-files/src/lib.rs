// SPDX-License-Identifier: Apache-2.0
//! How slowpath writes its outputs, and reads files that others wrote.
//!
//! What enters: paths that a user names, bytes to write, bounds. What leaves: whole files, or
//! the text of a file.
//!
//! What is promised:
//!
//! - An output is whole or not there: [`OutputFile`] writes a draft without a name and gives it
//!   the wanted one at the end. A full disk or a kill leaves what was there before.
//! - An output is for its owner only (0600, folders 0700). A file that it replaces keeps its
//!   mode, if it is the same user's.
//! - The results of a run are whole too: [`ResultsFolder`] puts them in place of those of an
//!   earlier run of the same command, and refuses a folder of anything else.
//! - Devices and pipes are written to and stay what they are. A symbolic link is followed only
//!   if this user or root made it; a link that someone else left in the way is an error.
//! - An input has a bound ([`read`], [`read_text`]), also where it has no end (`/dev/zero`).
//!
//! What it never does: know what is in a file.

mod input;
mod output;
mod results;

pub use input::{TooLarge, read, read_text};
pub use output::{
    OutputFile, RefusedOutput, append, create_folder, new_folder, refuse, write, write_with,
};
pub use results::{LIST, ResultsError, ResultsFolder, check, claim};
