// SPDX-License-Identifier: Apache-2.0
//! Damaged, missing and copied files, and runs that did not close their log: all of it is said, and
//! stays said.

mod flips;
mod log;
#[path = "../records/mod.rs"]
mod records;
mod reports;
