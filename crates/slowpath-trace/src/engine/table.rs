// SPDX-License-Identifier: Apache-2.0
//! From hashes to slots: open addressing, so that the place where an entry will be looked
//! for is known, and can be prefetched, before it is needed.

/// Entries a new table has room for.
const FIRST: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u32,
    /// One more than the slot; 0: empty.
    slot: u32,
}

/// Entries from which a table is large: 2 MiB. Each search is a miss of the caches then, and the
/// next entries are mostly in the line that it fetched.
const LARGE: usize = 1 << 18;

/// An index of slots by 32 bits of their keys' hashes; at most a quarter full, so that most searches end at
/// the first entry; half full if it is large, so that an entry costs 32 bytes at most.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    used: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Table {
            entries: vec![Entry::default(); FIRST],
            used: 0,
        }
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// Where the search for a tag begins.
    #[inline]
    pub(super) fn home(&self, tag: u32) -> *const u8 {
        (&raw const self.entries[tag as usize & self.mask()]).cast()
    }

    /// The first slot of that tag, most probably the one.
    #[inline]
    pub(super) fn guess(&self, tag: u32) -> Option<u32> {
        let entry = self.entries[tag as usize & self.mask()];
        if entry.tag == tag {
            return entry.slot.checked_sub(1);
        }
        self.find(tag, |_| true)
    }

    /// The first slot of that tag that `is` the one.
    #[inline]
    pub(super) fn find(&self, tag: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = tag as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry.slot == 0 {
                return None;
            }
            if entry.tag == tag && is(entry.slot - 1) {
                return Some(entry.slot - 1);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a slot that is not in it.
    pub(super) fn insert(&mut self, tag: u32, slot: u32) {
        let sparse = if self.entries.len() < LARGE { 4 } else { 2 };
        if (self.used + 1) * sparse > self.entries.len() {
            let larger = vec![Entry::default(); self.entries.len() * 2];
            let old = std::mem::replace(&mut self.entries, larger);
            for entry in old.into_iter().filter(|entry| entry.slot != 0) {
                self.put(entry);
            }
        }
        self.put(Entry {
            tag,
            slot: slot + 1,
        });
        self.used += 1;
    }

    fn put(&mut self, entry: Entry) {
        let mask = self.mask();
        let mut at = entry.tag as usize & mask;
        while self.entries[at].slot != 0 {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    /// Takes a slot out that is in it.
    pub(super) fn remove(&mut self, tag: u32, slot: u32) {
        let mask = self.mask();
        let mut hole = tag as usize & mask;
        while self.entries[hole].slot != slot + 1 {
            if self.entries[hole].slot == 0 {
                return;
            }
            hole = (hole + 1) & mask;
        }
        self.used -= 1;
        // Entries behind the hole move up, as far as their search would pass it.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.slot == 0 {
                break;
            }
            let distance = at.wrapping_sub(entry.tag as usize) & mask;
            if distance >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = Entry::default();
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a set of pairs; few tags, so that they collide.
        #[test]
        fn finds_what_was_put_in(steps in prop::collection::vec((0u32..40, 0u32..200, any::<bool>()), 0..600)) {
            let mut table = Table::new();
            let mut there = BTreeSet::new();
            for (tag, slot, add) in steps {
                let tag = tag * 0x0100_0001;
                if add {
                    if !there.iter().any(|(_, s)| *s == slot) {
                        table.insert(tag, slot);
                        there.insert((tag, slot));
                    }
                } else if there.remove(&(tag, slot)) {
                    table.remove(tag, slot);
                }
                prop_assert_eq!(table.used, there.len());
            }
            for (tag, slot) in &there {
                prop_assert_eq!(table.find(*tag, |s| s == *slot), Some(*slot));
            }
            for slot in 0..200 {
                let expected = there.iter().find(|(_, s)| *s == slot);
                for tag in (0..40).map(|tag| tag * 0x0100_0001) {
                    let found = table.find(tag, |s| s == slot);
                    prop_assert_eq!(found.is_some(), expected == Some(&(tag, slot)));
                }
            }
        }
    }
}
