// SPDX-License-Identifier: Apache-2.0
//! How an end that accepts begins: without a socket.

use super::event::Event;
use super::side::{Side, Theirs};
use super::wire::Child;
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{Handler, Moment};

impl Side {
    /// A connection's beginning at the end that accepts: the SYN, then what made the child.
    pub(super) fn child(&mut self, event: &Event, child: &Child, theirs: Theirs<'_>) {
        self.met(theirs.sent.is_some() && !theirs.alone);
        let alone = self.accepts_alone(theirs.request);
        let asked = alone.unwrap_or_else(|| theirs.request.runs(theirs.sent));
        if let Some(first) = asked.first() {
            self.runs = self.told_before(first.at, first.jiffies);
        }
        self.runs.extend(asked);
        self.states = vec![SocketFields::NONE; self.runs.len()];
        // It had begun before the recorder.
        self.cut |= theirs.request.is_empty();
        // What it is comes with the packet's own event.
        self.begin(event, Handler::SmallQueue);
        let measured = u64::from(child.round_trip) * 1000;
        if let Some(current) = &mut self.current {
            // Noted as it was made.
            current.run.jiffies = event.of.received;
            if theirs.request.timed_out() {
                // How long the handshake took is counted (`tcp_create_openreq_child`), for nobody to see.
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
