// SPDX-License-Identifier: Apache-2.0
//! Where lost packets were dropped.
//!
//! 1. A lost packet is dropped at the first queue on its way that has no more room than
//!    [`Margin`].
//! 2. One that finds none arrives, and takes the room of others. But it was lost, and the
//!    queue that had least room for it is where: once all have been replayed, that is known,
//!    and it is dropped there in the next pass, unless a queue before is full now.
//! 3. With these packets gone, others may find no full queue: 2 is repeated until none does,
//!    [`PASSES`] times at most.
//!
//! With exact times (a margin of nothing) rule 1 is the switch's own, and 2 is not applied:
//! what finds no full queue was lost otherwise. Neither is a packet placed by 2 whose queues
//! all had more room than [`NEAR`] times the margin.

use super::engine::{Offered, Outcome, ReplayError, once};
use super::free_space::Margin;
use slowpath_netsim::engine::Network;
use std::collections::HashMap;

/// The passes that are worth while. Of 65,646 lost packets of 1,024 hosts arrived 655 in the first pass, 343 in the
/// second, 207 in the fourth, 176 in the sixth (docs/decisions/0022-queues.md).
const PASSES: usize = 6;
/// Of 600 packets of 65,646 that found no full queue one had more room than this.
const NEAR: u64 = 12;

/// Sends the packets, of which each connection's come in the order in which they were sent,
/// through the network.
///
/// # Errors
/// The network or a packet is impossible.
pub fn replay(
    network: &Network,
    packets: &[Offered],
    margin: Margin,
) -> Result<Outcome, ReplayError> {
    passes(network, packets, margin, false, PASSES)
}

/// The same with [`Outcome::levels`].
///
/// # Errors
/// As [`replay`].
pub fn replay_watched(
    network: &Network,
    packets: &[Offered],
    margin: Margin,
) -> Result<Outcome, ReplayError> {
    passes(network, packets, margin, true, PASSES)
}

/// The same with a number of passes.
pub(super) fn passes(
    network: &Network,
    packets: &[Offered],
    margin: Margin,
    watch: bool,
    most: usize,
) -> Result<Outcome, ReplayError> {
    let mut placed: HashMap<u32, u32> = HashMap::new();
    let (mut outcome, mut nearest) = once(network, packets, margin, watch, &placed)?;
    for _ in 1..most {
        let before = placed.len();
        let near = nearest
            .iter()
            .filter(|(_, nearest)| nearest.room.bytes < margin.bytes.saturating_mul(NEAR));
        placed.extend(near.map(|(packet, nearest)| (*packet, nearest.queue)));
        if placed.len() == before {
            break;
        }
        (outcome, nearest) = once(network, packets, margin, watch, &placed)?;
    }
    Ok(outcome)
}
