// SPDX-License-Identifier: Apache-2.0
//! Packets that come for what is left of a socket: for time wait, or for nobody.

use super::event::Event;
use super::side::{MARKED, Side, Theirs};
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{Handler, Moment, Run};

/// `TCP_TW_RST` of `enum tcp_tw_status`.
const TIME_WAIT_RESET: u8 = 1;
/// `TCP_TW_ACK`.
const TIME_WAIT_ACK: u8 = 2;
/// `TCP_TW_SYN`.
const TIME_WAIT_SYN: u8 = 3;
/// The same of the probe: no socket at all.
pub(super) const RESET: u8 = 64;
/// And that was a reset itself.
pub(super) const UNANSWERED: u8 = 65;

impl Side {
    /// A packet came for what is left of the socket. Whether it fits.
    pub(super) fn time_wait(&mut self, event: &Event, theirs: Theirs<'_>) -> bool {
        // A new connection with the same addresses begins.
        if event.what == TIME_WAIT_SYN {
            return true;
        }
        // A program that has not closed its socket yet still has one; nothing changes in it.
        let state = match self.states.last() {
            _ if self.gone => SocketFields::NONE,
            Some(state) => *state,
            None => return false,
        };
        if self.cut {
            return false;
        }
        let here = theirs.sent.filter(|_| !self.is_alone());
        let here = here.and_then(|sent| sent.packet(event.stub(), event.data_sent));
        let number = here.map(|came| came.number);
        let number = number.or_else(|| self.came_late(event));
        let Some(number) = number else {
            self.cut = true;
            return false;
        };
        let run = Run {
            at: Moment(event.at),
            jiffies: event.jiffies,
            handler: Handler::Packet {
                number,
                marked: event.a & 3 == MARKED,
                backlog: false,
                merged: 1,
                truesize: 0,
            },
            outcomes: Vec::new(),
            check: None,
        };
        let place = self.count() + usize::from(self.current.is_some()) + self.put_off.len();
        if self.current.is_some() {
            self.put_off.push(run);
        } else {
            self.runs.push(run);
            self.states.push(state);
        }
        match event.what {
            TIME_WAIT_ACK | RESET => self.packets.after(event.received, event.more, place),
            // It begins where the packet acknowledges, as any reset.
            TIME_WAIT_RESET => self.packets.after(event.data_sent, 0, place),
            _ => {}
        }
        true
    }
}
