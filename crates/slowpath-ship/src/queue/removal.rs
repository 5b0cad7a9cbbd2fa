// SPDX-License-Identifier: Apache-2.0
//! What gives way when `ship-limit` is reached: a pure choice of one step after the other.

/// Acknowledged segments that stay, for a server that was restored from an older copy. A server remembers 1,024 that ended
/// of a host: no more may be stated than it knows.
const MOST_ACKNOWLEDGED: usize = 512;

/// What the choice needs of a segment in `ship`, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Bytes on the disk.
    pub bytes: u64,
    /// The server has all of it.
    pub complete: bool,
    /// Its intervals, interactions and listeners are still there.
    pub whole: bool,
}

/// What gives way next, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// A segment that the server has.
    Acknowledged(usize),
    /// The intervals, interactions and listeners of one that waits.
    Details(usize),
    /// What is left of one that waits.
    Rest(usize),
}

/// The next step until `segments` take `limit` bytes at most, and no more than [`MOST_ACKNOWLEDGED`] are acknowledged;
/// `None` if that is so.
///
/// 1. The oldest segment that is acknowledged.
/// 2. The oldest that waits: first its details, then the rest.
pub(super) fn next_removal(segments: &[Stored], limit: u64) -> Option<Removal> {
    let acknowledged =
        || (0..segments.len()).filter(|at| segments[*at].complete && segments[*at].bytes > 0);
    if acknowledged().count() > MOST_ACKNOWLEDGED {
        return acknowledged().next().map(Removal::Acknowledged);
    }
    let total: u64 = segments.iter().map(|s| s.bytes).sum();
    if total <= limit {
        return None;
    }
    let with_bytes = |s: &Stored| s.bytes > 0;
    if let Some(at) = acknowledged().next() {
        return Some(Removal::Acknowledged(at));
    }
    // Details of all go before the summaries of any.
    if let Some(at) = segments.iter().position(|s| s.whole && with_bytes(s)) {
        return Some(Removal::Details(at));
    }
    segments.iter().position(with_bytes).map(Removal::Rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(bytes: u64, complete: bool, whole: bool) -> Stored {
        Stored {
            bytes,
            complete,
            whole,
        }
    }

    #[test]
    fn acknowledged_segments_go_first_then_details_then_the_oldest() {
        let mut segments = [
            stored(40, false, true),
            stored(40, true, true),
            stored(40, false, true),
        ];
        assert_eq!(next_removal(&segments, 120), None);
        assert_eq!(next_removal(&segments, 100), Some(Removal::Acknowledged(1)));
        segments[1].bytes = 0;
        assert_eq!(next_removal(&segments, 60), Some(Removal::Details(0)));
        segments[0] = stored(10, false, false);
        assert_eq!(next_removal(&segments, 45), Some(Removal::Details(2)));
        segments[2] = stored(10, false, false);
        assert_eq!(next_removal(&segments, 20), None);
        assert_eq!(next_removal(&segments, 19), Some(Removal::Rest(0)));
    }

    #[test]
    fn no_more_acknowledged_segments_stay_than_a_server_remembers() {
        let mut segments = vec![stored(1, true, true); MOST_ACKNOWLEDGED];
        segments.insert(0, stored(1, false, true));
        assert_eq!(next_removal(&segments, 1_000_000), None);
        segments.push(stored(1, true, true));
        assert_eq!(
            next_removal(&segments, 1_000_000),
            Some(Removal::Acknowledged(1))
        );
    }

    proptest! {
        #[test]
        fn room_is_made_in_three_steps_a_segment_at_most(
            sizes in prop::collection::vec((0u64..1000, any::<bool>(), any::<bool>()), 0..20),
            limit in 0u64..5000,
        ) {
            let mut segments: Vec<Stored> =
                sizes.into_iter().map(|(bytes, complete, whole)| stored(bytes, complete, whole)).collect();
            for _ in 0..=2 * segments.len() {
                match next_removal(&segments, limit) {
                    None => return Ok(()),
                    Some(Removal::Acknowledged(at) | Removal::Rest(at)) => segments[at].bytes = 0,
                    Some(Removal::Details(at)) => segments[at].whole = false,
                }
            }
            prop_assert_eq!(next_removal(&segments, limit), None);
        }
    }
}
