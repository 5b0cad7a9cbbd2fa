// SPDX-License-Identifier: Apache-2.0
//! SendBufferBelowBdp: the send buffer cannot hold what the path could have in flight
//! (SNAP sections 5.3 and 6.2; a buffer of zero, as SNAP found, does not exist on Linux).
//!
//! 1. The send buffer limits the connection (SendBufferLimited) for 30 % of the window.
//! 2. What fits into it is less than one bandwidth-delay product, or than one write. What
//!    fits: the most bytes observed in it, and at least half of its memory, as the kernel's
//!    overhead takes up to half (socket(7) on SO_SNDBUF).
//! 3. The bandwidth is not known while the buffer is the limit. At least: the fastest
//!    delivery rate of this process's host to that peer. At most: one congestion window a
//!    minimum RTT; the window was reached when the path carried it. Below the product of
//!    either the buffer is too small; the numbers say which.

use super::{Interaction, InteractionEvidence, InteractionKind, LIMITS, Peers, Recent};
use crate::advice::bytes_in;
use crate::{Actor, Advice};
use slowpath_model::Problem;

/// Condition 1.
pub(super) fn is_limit(recent: &Recent) -> bool {
    recent.share(Problem::SendBufferLimited) >= LIMITS
}

pub(super) fn below_bdp(recent: &Recent, peers: &Peers) -> Option<Interaction> {
    if !is_limit(recent) {
        return None;
    }
    let send_buffer = recent.send_buffer?;
    let min_rtt = recent.min_rtt.filter(|rtt| rtt.0 > 0)?;
    let most = recent.pieces.iter().map(|p| p.send_queue).max()?;
    let capacity = u64::from(most.max(send_buffer / 2));
    let rate = peers
        .rates
        .get(&recent.tuple.remote.ip())
        .copied()
        .unwrap_or(0);
    let cwnd = recent.pieces.iter().map(|p| p.cwnd).max()?;
    let window = u64::from(cwnd) * u64::from(recent.send_mss);
    let product = bytes_in(rate, min_rtt);
    let high = window.max(product);
    let bandwidth_high = u64::try_from(u128::from(high) * 1_000_000 / u128::from(min_rtt.0));
    let write = recent.average_write();
    let message = write.filter(|write| capacity < *write);
    if capacity >= high && message.is_none() {
        return None;
    }
    let mut what = format!("The send buffer holds about {capacity} bytes: ");
    what += &if capacity < product {
        format!(
            "less than one bandwidth-delay product, {product} bytes at the {rate} bytes a second \
             that this path is known to carry"
        )
    } else if capacity < high {
        format!(
            "less than the congestion window of {window} bytes, which one RTT could carry; the \
             path is known to carry {rate} bytes a second at least, so the product is between \
             {product} and {high} bytes"
        )
    } else {
        String::new()
    };
    if let Some(write) = message {
        if capacity < high {
            what += ", and ";
        }
        what += &format!("less than one write of {write} bytes");
    }
    let evidence = InteractionEvidence::SendBufferBelowBdp {
        capacity_bytes: capacity,
        send_buffer_bytes: send_buffer,
        bandwidth_low: rate,
        bandwidth_high: bandwidth_high.unwrap_or(u64::MAX),
        min_rtt_us: min_rtt.0,
        product_low_bytes: product,
        product_high_bytes: high,
        average_write_bytes: write,
    };
    let wanted = evidence.send_buffer_wanted().unwrap_or(high);
    what += &format!(
        ". Remove SO_SNDBUF, so that Linux sizes it, or set it to {wanted}; net.core.wmem_max and \
         net.ipv4.tcp_wmem bound it."
    );
    Some(Interaction {
        kind: InteractionKind::SendBufferBelowBdp,
        connections: vec![recent.id],
        evidence,
        advice: Advice {
            who: Actor::SenderDeveloper,
            what,
            source: "SNAP sections 5.3 and 6.2; socket(7) on SO_SNDBUF",
        },
    })
}
