// SPDX-License-Identifier: Apache-2.0
//! Partitions of all connections, small enough to keep one at a time in memory. A partition
//! that proves too large is halved; the other half is read later.

use slowpath_model::ConnectionId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The connections whose hash is `number` modulo `of`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    number: u64,
    of: u64,
}

impl Partition {
    /// Whether the connection is in it.
    pub fn has(&self, id: &ConnectionId) -> bool {
        if self.of == 1 {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        hasher.finish() % self.of == self.number
    }
}

/// The partitions that are left; at first a single one with every connection.
#[derive(Debug)]
pub struct Partitions(Vec<Partition>);

impl Default for Partitions {
    fn default() -> Self {
        Partitions(vec![Partition { number: 0, of: 1 }])
    }
}

impl Partitions {
    /// Halves the partition and keeps the other half for later; `false` if it cannot be halved.
    pub fn split(&mut self, part: &mut Partition) -> bool {
        let Some(of) = part.of.checked_mul(2) else {
            return false;
        };
        self.0.push(Partition {
            number: part.number + part.of,
            of,
        });
        part.of = of;
        true
    }
}

impl Iterator for Partitions {
    type Item = Partition;

    fn next(&mut self) -> Option<Partition> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_model::MonoNanos;

    fn id(cookie: u64) -> ConnectionId {
        ConnectionId {
            boot_id: 1,
            netns: 1,
            cookie,
            start: MonoNanos(cookie),
        }
    }

    #[test]
    fn partitions_cover_all_and_do_not_overlap() {
        let ids: Vec<_> = (0..1_000).map(id).collect();
        let mut left = Partitions::default();
        let mut counted = vec![0; ids.len()];
        let mut parts = 0;
        while let Some(mut part) = left.next() {
            let has = |part: &Partition| ids.iter().filter(|id| part.has(id)).count();
            while has(&part) > 60 {
                assert!(left.split(&mut part));
            }
            for (id, counted) in ids.iter().zip(&mut counted) {
                *counted += usize::from(part.has(id));
            }
            parts += 1;
        }
        assert!(parts >= 17, "{parts}");
        assert!(counted.iter().all(|n| *n == 1));
    }
}
