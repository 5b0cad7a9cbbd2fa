// SPDX-License-Identifier: Apache-2.0
//! Packets that were damaged on the way, which the socket drops. They cannot be matched with what was sent: any number of the header may be wrong.

use super::event::Event;
use super::side::Side;
use super::wire::Kind;

impl Side {
    /// An event in the run of a packet that matches none that was sent: until the run's end only readings of the clock are known. Returns whether the event fits; `None`: go on as usual.
    pub(super) fn in_unmatched_packet(&mut self, event: &Event) -> Option<bool> {
        match event.kind {
            _ if !self.unmatched => None,
            Kind::RunEnd => None,
            Kind::Clock => Some(true),
            _ => {
                self.cut();
                self.gone |= event.kind == Kind::Gone;
                Some(false)
            }
        }
    }

    /// The packet was damaged on the way, and thrown away: as if it had been lost. Whether the run was one of such a packet.
    pub(super) fn was_damaged(&mut self, damaged: bool) -> bool {
        if damaged && !self.forget_last() || self.unmatched && !damaged {
            self.cut();
        } else if damaged {
            self.current = None;
        }
        std::mem::take(&mut self.unmatched) || damaged
    }
}
