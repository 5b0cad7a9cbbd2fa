// SPDX-License-Identifier: Apache-2.0
//! Verdicts from packets only: what limited each direction of a connection, when, and how that
//! is known.
//!
//! What enters: the segments of a connection ([`Trial`], which an [`engine`](crate::engine)
//! can follow), or what a [`Connection`](crate::tcp::Connection) reports of them ([`Judge`]).
//!
//! What leaves: [`Verdicts`]. Of each direction a [`Line`]: what its sender waited for,
//! moment by moment; [`Finding`](slowpath_model::Finding)s with the words, thresholds and evidence of the
//! classifier of live connections (`slowpath-diagnose`), so that both can stand side by side
//! ([`join`](mod@join)); of the connection [`TraceFinding`]s, the worst of both directions first, in
//! the words of [`TraceProblem`]; what that classifier has no word for ([`Observed`]); where losses come from
//! ([`Losses`]); delayed ACKs by the oracle's rule ([`DelayedAcks`]); and
//! [`messages`](crate::message). And where the capture was made ([`Vantage`]).
//!
//! What is promised: the times of a line are exclusive and sum to the connection's; memory
//! is bounded by [`Options`], and what was forgotten is counted; no clock, no I/O. What
//! packets cannot show is `unmeasured` or `inferred`, never a zero. The rules stand above
//! the code, the thresholds and their sources in docs/reference/trace-verdicts.md.

mod agreed;
mod delayed;
mod failure;
mod findings;
pub mod join;
mod judge;
mod limit;
mod loss;
mod opening;
mod plateau;
mod problem;
mod ranking;
mod rate;
mod sender;
mod size;
mod spread;
mod think;
mod vantage;

pub use agreed::InitialNumbers;
pub use delayed::{DelayedAcks, Wait};
pub use findings::{DirectionVerdict, Observation, Observed};
pub use judge::{Judge, Judged, Options, Trial, Verdicts};
pub use limit::{Interval, Limit, Line, Shares};
pub use loss::{Losses, Origin};
pub use problem::{TraceFinding, TraceProblem};
pub use rate::PathRate;
pub use think::Think;
pub use vantage::{Basis, Vantage, VantagePoint};

pub(crate) use sender::{Sender, Sent};
