// SPDX-License-Identifier: Apache-2.0
//! Links of a path, by number: link k joins hop k − 1 and hop k; hop 0 is this host.

use serde::Serialize;

/// One link, or several of which one is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Links {
    /// The nearest.
    #[serde(rename = "hop_least")]
    pub least: u8,
    /// The furthest.
    #[serde(rename = "hop_most")]
    pub most: u8,
}

impl Links {
    /// Those from one hop to a later one; `None`: it is not later.
    #[must_use]
    pub fn between(before: u8, after: u8) -> Option<Self> {
        (before < after).then(|| Links {
            least: before + 1,
            most: after,
        })
    }

    /// What both contain.
    #[must_use]
    pub fn common(self, other: Links) -> Option<Self> {
        let (least, most) = (self.least.max(other.least), self.most.min(other.most));
        (least <= most).then_some(Links { least, most })
    }

    /// The one link that this is.
    #[must_use]
    pub fn single(self) -> Option<u8> {
        (self.least == self.most).then_some(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lie_between_hops_and_have_a_common_part() {
        assert_eq!(Links::between(3, 3), None);
        let links = |least, most| Links { least, most };
        assert_eq!(Links::between(3, 4), Some(links(4, 4)));
        assert_eq!(links(4, 4).single(), Some(4));
        assert_eq!(Links::between(0, 3), Some(links(1, 3)));
        assert_eq!(links(1, 3).single(), None);
        assert_eq!(links(1, 3).common(links(3, 5)), Some(links(3, 3)));
        assert_eq!(links(1, 3).common(links(4, 5)), None);
    }
}
