// SPDX-License-Identifier: Apache-2.0
//! All connections in parts that are small enough to be kept in memory, one after the other.
//! A part that turns out too large is halved; the other half comes later.

use slowpath_model::ConnectionId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The connections whose hash is `number` modulo `of`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    number: u64,
    of: u64,
}

impl Part {
    pub(super) fn has(&self, id: &ConnectionId) -> bool {
        if self.of == 1 {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        hasher.finish() % self.of == self.number
    }
}

/// The parts that are left; at first one that is all.
#[derive(Debug)]
pub(super) struct Parts(Vec<Part>);

impl Default for Parts {
    fn default() -> Self {
        Parts(vec![Part { number: 0, of: 1 }])
    }
}

impl Parts {
    /// Halves the part and keeps the other half for later; `false` if it is as small as can
    /// be.
    pub(super) fn split(&mut self, part: &mut Part) -> bool {
        let Some(of) = part.of.checked_mul(2) else {
            return false;
        };
        self.0.push(Part {
            number: part.number + part.of,
            of,
        });
        part.of = of;
        true
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        self.0.pop()
    }
}
