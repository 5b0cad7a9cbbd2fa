// SPDX-License-Identifier: Apache-2.0
//! Tables of typed columns to and from Parquet files.
//!
//! What enters: columns ([`Column`]) and rows of [`Value`]s; or a Parquet file and the names of
//! the columns that are wanted. What leaves: a Parquet file, compressed with zstd, that any engine
//! reads ([`encode`], [`Writer`], [`extend`]); or its rows ([`Reader`]).
//!
//! What is promised:
//!
//! - The same rows and [`Settings`] give the same file, byte for byte.
//! - A damaged file gives an error, and a reader holds [`BATCH`] rows and one page a column.
//! - NULL is distinct from every value.
//!
//! What it never does: know what a column means, or which tables there are.
//!
//! It uses parquet's column interface. parquet's `arrow` feature would do the same with a third
//! of the whole workspace's build time (`docs/decisions/0036-build-time.md`).

mod column;
mod extend;
mod packed;
mod read;
mod relocate;
mod rows;
mod write;

pub use column::{Column, Encoding, Kind, Settings, Statistics};
pub use extend::{Old, extend, is_extendable, join};
pub use parquet::errors::ParquetError;
pub use read::{BATCH, Group, Reader, RowReader};
pub use relocate::{Layout, cut, forward};
pub use rows::{Rows, Value};
pub use write::{Writer, encode};

#[cfg(test)]
mod tests;
