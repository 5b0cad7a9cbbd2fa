// SPDX-License-Identifier: Apache-2.0
//! Recorded connections replayed exactly (DETER, NSDI 2019): Linux's own TCP goes through the recorded runs once more, in virtual time.
//!
//! What enters: a recording ([`slowpath_recording`]), a laboratory kernel, a folder for the run. What leaves: for each connection whether every run of
//! every handler left what it had left then, or where the first difference is; captures, states after each run; what follows from them:
//! explanations ([`explain`]), answers to what would have been ([`WhatIf`]), recordings with fewer bytes ([`shrink`]), recordings of which something
//! was inferred, inferred better ([`fit`](fn@fit)), captures with the recorded addresses and times ([`relabel`]).
//!
//! What is promised: the same recording, options and kernel give the same files; nothing is replayed of which something is missing. Nothing here
//! records, and nothing models TCP.
//!
//! How recording and replaying work: `docs/decisions/0021-record-and-replay.md`.

pub mod continuation;
mod explained;
pub mod fit;
mod fitted;
mod observed;
pub mod relabel;
mod replay;
mod result;
mod script;
mod settings;
mod shrink;
mod what_if;

pub use explained::{Captures, ExplainError, Explained, explain, headers_of, sent};
pub use fitted::{FitOptions, FitProgress, Fitted, fit};
pub use replay::{
    FIRST_PORT, ReplayError, ReplayOptions, batches, command as replay_command, replay,
};
pub use result::{Difference, DifferenceKind, Probe, Replayed, Result as ReplayResult, RunReport};
pub use script::Stretch;
pub use settings::{Unknown, possible as possible_settings};
pub use shrink::{ShrinkOptions, Shrunk, shrink};
pub use what_if::{Altered, Answer, NoSetting, WhatIf, WhatIfError};
