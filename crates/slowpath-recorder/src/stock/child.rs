// SPDX-License-Identifier: Apache-2.0
//! How an end that accepts begins: without a socket.

use super::event::Event;
use super::side::{PeerView, Side};
use super::wire::Child;
use slowpath_recording::{Handler, Moment};

impl Side {
    /// A connection's beginning at the end that accepts: the SYN, then what made the child.
    pub(super) fn child(&mut self, event: &Event, child: &Child, peer: PeerView<'_>) {
        self.met(peer.sent.is_some() && !peer.one_sided);
        let runs = self.accept_one_sided(peer.request);
        let asked = runs.unwrap_or_else(|| peer.request.runs(peer.sent));
        let mut runs = match asked.first() {
            Some(first) => self.inherited_runs(first.at, first.jiffies),
            None => std::mem::take(&mut self.log.runs),
        };
        runs.extend(asked);
        self.log.begin(runs);
        // It had begun before the recorder.
        self.cut |= peer.request.is_empty();
        // What it is comes with the packet's own event.
        self.begin(event, Handler::SmallQueue);
        let measured = u64::from(child.round_trip) * 1000;
        if let Some(current) = &mut self.current {
            // Noted as it was made.
            current.run.jiffies = event.of.received;
            if peer.request.timed_out() {
                // The kernel measures how long the handshake took (`tcp_create_openreq_child`), unobserved.
                current.clocks = 1;
            }
        }
        if let (Some(current), 1..) = (&mut self.current, measured) {
            current.run.at = Moment(child.sent.wrapping_mul(1000).wrapping_add(measured));
            current.clocks = 1;
            current.tick(event.jiffies());
        }
    }
}
