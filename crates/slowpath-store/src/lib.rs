// SPDX-License-Identifier: Apache-2.0
//! The problem log: checksummed spool, Parquet segments, retention, readers.
//!
//! What enters: [`ProblemInterval`](slowpath_model::ProblemInterval),
//! [`ConnectionSummary`](slowpath_model::ConnectionSummary) and
//! [`Coverage`](slowpath_model::Coverage) records, one at a time, and the wall time.
//! What leaves: the same records over a range of time, and Parquet files that any engine
//! reads (`docs/reference/log-format.md`).
//!
//! What is promised:
//!
//! - [`LogWriter`] never blocks its caller on a disk and never fails it: records wait in a
//!   bounded buffer; those that find it full are counted, and [`WriterStatus`] says so.
//! - A record handed over a second ago is readable, also after `kill -9` (the [`spool`]),
//!   and none is read twice (`convert` describes the order that gives this).
//! - Counts of events and the connections' problem times are exact; the evidence of an
//!   interval is rounded as `docs/reference/log-format.md` states, and no share grows past its
//!   interval by it.
//! - Every file carries [`SCHEMA_VERSION`]; files of every released version stay readable.
//! - A Parquet file states checksums of all its bytes. A file whose checksum is wrong gives no row
//!   and is named in the [`ReadReport`], and so is all that a spool lacked when it was converted.
//! - [`LogReader`] works beside a writer, and reports what it could not read. It waits for no lock.
//!
//! What it never does: judge, aggregate, or use the network.

mod cells;
mod checksum;
mod column;
mod convert;
mod error;
mod hops;
mod identities;
mod interaction;
mod interval;
mod layout;
mod life_rows;
mod listener;
mod lock;
mod merging;
mod modes;
mod options;
mod owner_rows;
mod pieces;
mod read_report;
mod reader;
mod retention;
mod rows;
mod schema;
mod segment;
pub mod spool;
mod stats;
mod stop;
mod summary_rank;
mod table;
pub mod tables;
mod traffic;
mod version1;
mod writer;

pub use error::{OpenError, StoreError};
pub use identities::ConnectionNumber;
pub use options::{CpuShare, HostIdentity, Options, Retention};
pub use read_report::ReadReport;
pub use reader::{IntervalFilter, LogReader, ReadRows, TimeRange};
pub use retention::{Retained, retain};
pub use schema::describe;
pub use stop::Stop;
pub use summary_rank::{ConnectionIdentity, Rank, summary_rank};
pub use writer::{LogWriter, WriterStatus};

/// Version of the tables' schema: which columns there are and what they mean. Appending a
/// nullable column keeps it; everything else raises it.
pub const SCHEMA_VERSION: u16 = 2;
