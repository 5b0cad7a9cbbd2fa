// SPDX-License-Identifier: Apache-2.0
//! Packets that arrive after the socket has gone: in time wait, or for no socket at all.

use super::event::{Stub, stub_name};
use super::side::{MARKED, PeerView, Side};
use super::wire::{Late, LatePacket};
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{Handler, Moment, Run};

impl Side {
    /// A packet came for what is left of the socket. Whether it fits.
    pub(super) fn time_wait(&mut self, stub: &Stub, late: &LatePacket, peer: PeerView<'_>) -> bool {
        let made = Late::from_raw(late.late);
        // A new connection with the same addresses begins.
        if made == Some(Late::Syn) {
            return true;
        }
        // A program that has not closed its socket yet still has one; nothing changes in it.
        let state = match self.log.states.last() {
            _ if self.gone => SocketFields::NONE,
            Some(state) => *state,
            None => return false,
        };
        if self.cut {
            return false;
        }
        let name = stub_name(stub.at, late.id, late.alike, late.begins);
        let here = peer.sent.filter(|_| !self.is_one_sided());
        let here = here.and_then(|sent| sent.packet(name, late.acknowledges));
        let number = here.map(|came| came.number);
        let number = number.or_else(|| self.came_late(late, name));
        let Some(number) = number else {
            self.cut = true;
            return false;
        };
        let run = Run {
            at: Moment(stub.at),
            jiffies: stub.jiffies,
            handler: Handler::Packet {
                number,
                marked: late.ecn == MARKED,
                backlog: false,
                merged: 1,
                truesize: 0,
            },
            outcomes: Vec::new(),
            check: None,
        };
        let place = self.log.count() + usize::from(self.current.is_some()) + self.put_off.len();
        if self.current.is_some() {
            self.put_off.push(run);
        } else {
            self.log.push(run, state);
        }
        match made {
            Some(Late::Ack | Late::NoSocketReset) => {
                let (begins, acknowledges) = (late.answer_begins, late.answer_acknowledges);
                self.packets.after(begins, acknowledges, place);
            }
            // It begins where the packet acknowledges, as any reset.
            Some(Late::Reset) => self.packets.after(late.acknowledges, 0, place),
            _ => {}
        }
        true
    }
}
