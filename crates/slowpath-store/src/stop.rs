// SPDX-License-Identifier: Apache-2.0
//! The end of reading before the log's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the reading of a log before the log's end; clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// No further row is wanted: what is being read ends as if the log ended there.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was said.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
