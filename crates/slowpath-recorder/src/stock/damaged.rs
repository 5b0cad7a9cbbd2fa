// SPDX-License-Identifier: Apache-2.0
//! Packets that were damaged on the way, which the socket throws away. What was sent does not tell what came: any number of its header may be wrong.

use super::event::Event;
use super::side::Side;
use super::wire::Kind;

impl Side {
    /// An event in the run of a packet that cannot be told: until its end nothing is known but that the clock was read. Whether it fits; `None`: go on as usual.
    pub(super) fn goes_on_strangely(&mut self, event: &Event) -> Option<bool> {
        match event.kind {
            _ if !self.strange => None,
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
        if damaged && !self.forget_last() || self.strange && !damaged {
            self.cut();
        } else if damaged {
            self.current = None;
        }
        std::mem::take(&mut self.strange) || damaged
    }
}
