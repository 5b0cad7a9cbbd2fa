// SPDX-License-Identifier: Apache-2.0
//! Events of the recorder, whatever they are: no panic, and what fits nowhere is counted.

use proptest::prelude::*;
use slowpath_replay::stock::{Host, Joined, Joiner, NotEvents};

/// `enum kind` of the probe.
const OPEN: u8 = 1;
const REQUEST: u8 = 20;
const TIME_WAIT: u8 = 22;

/// One event with its length before it: kind, task, end, and any numbers.
fn event() -> impl Strategy<Value = Vec<u8>> {
    let head = (0u64..1 << 40, 0u64..3, any::<u64>(), 1u8..=25, 0u8..9);
    let tail = (any::<bool>(), 0u8..2, any::<[u32; 8]>(), any::<bool>());
    (head, tail).prop_map(
        |((at, socket, clock, kind, what), (owned, end, words, state))| {
            let mut bytes = Vec::new();
            for long in [at, socket, clock] {
                bytes.extend(long.to_le_bytes());
            }
            bytes.extend([1u32, 7].map(u32::to_le_bytes).concat());
            bytes.extend([kind, what, u8::from(owned), end]);
            bytes.extend(words.map(u32::to_le_bytes).concat());
            bytes.extend([0; 28]);
            // Both addresses.
            if let OPEN | REQUEST | TIME_WAIT = kind {
                bytes.extend([words[0] as u8 % 3; 32]);
            } else if state {
                bytes.extend([1; 160]);
            }
            let mut all = (bytes.len() as u32).to_le_bytes().to_vec();
            all.extend(bytes);
            all
        },
    )
}

fn join(events: &[u8]) -> Result<Joined, NotEvents> {
    let mut joiner = Joiner::default();
    joiner.take(events)?;
    Ok(joiner.finish(Host::default()))
}

proptest! {
    #[test]
    fn any_events_are_joined_or_counted(events in prop::collection::vec(event(), 0..200)) {
        let all = events.concat();
        let joined = join(&all).expect("whole events");
        prop_assert!(joined.unplaced <= events.len() as u64);
        // Cut inside an event.
        if let Some(cut) = all.len().checked_sub(1) {
            prop_assert!(join(&all[..cut]).is_err());
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = join(&bytes);
    }
}
