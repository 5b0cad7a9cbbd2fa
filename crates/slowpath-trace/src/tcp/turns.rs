// SPDX-License-Identifier: Apache-2.0
//! Who speaks: runs of new data from one side, and the time between them.

use super::report::Side;
use super::samples::Samples;
use crate::segment::Segment;

/// Requests and responses: runs of new data from one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Runs of the client's data.
    pub from_client: u64,
    /// Runs of the server's data.
    pub from_server: u64,
    /// From the last byte of the client's run to the first of the server's: the server
    /// thinks, and the path between here and it, there and back.
    pub server_think: Samples,
    /// From the last byte of the server's run to the first of the client's.
    pub client_think: Samples,
    /// Payload of the client's longest run.
    pub largest_request: u64,
    /// Payload of the server's longest run.
    pub largest_response: u64,
}

/// Follows the turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnTaking {
    side: Option<Side>,
    /// The last new data of that side.
    last: i64,
    /// New data in this run.
    bytes: u64,
    turns: Turns,
}

impl TurnTaking {
    /// New data; returns whether a new run starts with it.
    #[inline]
    pub(super) fn data(&mut self, side: Side, s: &Segment<'_>, bytes: u64) -> bool {
        let now = s.time.0;
        if self.side == Some(side) {
            self.last = now;
            self.bytes += bytes;
            return false;
        }
        self.end_run();
        let thought = now.saturating_sub(self.last);
        match side {
            Side::Client => {
                self.turns.from_client += 1;
                if self.side.is_some() {
                    self.turns.client_think.add(thought);
                }
            }
            Side::Server => {
                self.turns.from_server += 1;
                if self.side.is_some() {
                    self.turns.server_think.add(thought);
                }
            }
        }
        self.side = Some(side);
        self.last = now;
        self.bytes = bytes;
        true
    }

    fn end_run(&mut self) {
        let largest = match self.side {
            Some(Side::Client) => &mut self.turns.largest_request,
            Some(Side::Server) => &mut self.turns.largest_response,
            None => return,
        };
        *largest = (*largest).max(self.bytes);
    }

    pub(super) fn finish(&mut self) -> Turns {
        self.end_run();
        self.turns
    }
}
