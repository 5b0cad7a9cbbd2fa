// SPDX-License-Identifier: Apache-2.0
//! A reading of the clock that no event shows. `tcp_tsq_write` reads it, finds it too early to send again what was lost (`tcp_pacing_check`) and sets a
//! timer, reads it once more, and sends what is new; `tcp_xmit_retransmit_queue`, before which the recorder looks, is inlined there. Of the first
//! reading only matters that it was too early, as is when the run began.

use super::side::Side;
use super::wire::Sent;
use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::{Decision, Handler, Moment, Outcome, TicksAt, Timer};

/// `TCPF_TSQ_DEFERRED`.
const SMALL_QUEUE: u32 = 1 << 2;

/// What identifies a run in which that happens.
#[derive(Clone, Copy, Default)]
pub(super) struct Paced {
    /// Behind what was sent last.
    ahead: u32,
    /// Something that was lost was not sent again, and the window would let it.
    again: bool,
}

impl Paced {
    pub(super) fn look(&mut self, fields: &SocketFields) {
        let [cwnd, out, sacked, lost, again] = [
            Field::CongestionWindow,
            Field::PacketsOut,
            Field::SackedOut,
            Field::LostOut,
            Field::RetransmittedOut,
        ]
        .map(|field| fields[field]);
        let in_flight = (out + again).saturating_sub(sacked + lost);
        self.again = lost > again && cwnd > in_flight;
    }
}

impl Side {
    /// A packet is on its way.
    pub(super) fn sends(&mut self, sent: &Sent) {
        let new = sent.begins == self.paced.ahead;
        if (sent.ends.wrapping_sub(self.paced.ahead) as i32) > 0 || self.paced.ahead == 0 {
            self.paced.ahead = sent.ends;
        }
        if new {
            self.looked_before();
        }
    }

    /// Nothing that was lost was sent again by the run: either it is over, or sends something new.
    pub(super) fn looked_before(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let by_small_queues = match current.run.handler {
            Handler::Timer { timer, deferred } => timer == Timer::Pacing && !deferred,
            Handler::SmallQueue => true,
            Handler::Release { flags } => flags & SMALL_QUEUE != 0,
            _ => false,
        };
        let busy = |it: &Outcome| it.decision() == Decision::HostQueue;
        let first =
            current.clocks == 1 && current.sent == 0 && !current.run.outcomes.iter().any(busy);
        if !(first && by_small_queues && self.paced.again) {
            return;
        }
        let observed = current.run.at;
        let begun = current.begun.min(observed.0);
        current.run.at = Moment(begun);
        // What was recorded from the observed reading on.
        for outcome in &mut current.run.outcomes {
            if let Outcome::Ticks {
                at: TicksAt::Done(done),
                ..
            }
            | Outcome::Backlog { done, .. } = outcome
                && *done == 1
            {
                *done = 2;
            }
        }
        current.run.outcomes.push(Outcome::Clock {
            reading: 1,
            after: (observed.0 - begun) as u32,
        });
        current.clocks = 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stock::event::{Event, Report};
    use crate::stock::wire::Kind;
    use zerocopy::{FromZeros, IntoBytes};

    fn sends(at: u64, clock: u64, begins: u32, ends: u32) -> (Event, Sent) {
        let mut sent = Sent::new_zeroed();
        sent.event.head.at = at;
        sent.event.head.kind = Kind::Sent as u8;
        sent.event.clock = clock;
        (sent.begins, sent.ends) = (begins, ends);
        let mut bytes = (size_of::<Sent>() as u32).to_le_bytes().to_vec();
        bytes.extend(sent.as_bytes());
        match Report::read(&bytes).expect("an event").0 {
            Report::Socket(event) => (event, sent),
            Report::Stub(_) => panic!("an event of a socket"),
        }
    }

    /// 20 on their way, of which 6 are lost and as many acknowledged; 10 may be. Data up to 9000 was sent, and a run of small queues reads 700.
    fn clocks(retransmitted: u32, begins: Option<u32>) -> (u64, Vec<Outcome>) {
        let mut side = Side::new(0);
        side.sends(&sends(1, 1, 1000, 9000).1);
        let mut fields = SocketFields::NONE;
        for (place, value) in [(10, 10), (13, 20), (14, 6), (15, 6), (16, retransmitted)] {
            fields.0[place] = value;
        }
        side.paced.look(&fields);
        side.begin(&sends(500, 400, 0, 0).0, Handler::SmallQueue);
        let current = side.current.as_mut().expect("a run");
        current.run.at = Moment(700);
        current.clocks = 1;
        current.outcome(ticks(1));
        match begins {
            Some(begins) => side.sends(&sends(710, 700, begins, begins + 1000).1),
            None => side.looked_before(),
        }
        let run = side.current.expect("a run").run;
        (run.at.0, run.outcomes)
    }

    fn ticks(done: u32) -> Outcome {
        let at = TicksAt::Done(done);
        Outcome::Ticks { at, ticks: 1 }
    }

    #[test]
    fn new_data_or_nothing_before_what_was_lost_had_been_too_early() {
        for begins in [Some(9000), None] {
            let (at, mut outcomes) = clocks(0, begins);
            outcomes.retain(|it| it.decision() != Decision::DeviceMemory);
            assert_eq!(at, 500);
            let clock = Outcome::Clock {
                reading: 1,
                after: 200,
            };
            let both = [ticks(2), clock];
            assert_eq!(outcomes, both);
        }
    }

    #[test]
    fn otherwise_the_clock_was_read_once() {
        // What was lost is sent again; or was.
        for (retransmitted, begins) in [(0, Some(3000)), (6, Some(9000)), (6, None)] {
            let (at, mut outcomes) = clocks(retransmitted, begins);
            outcomes.retain(|it| it.decision() != Decision::DeviceMemory);
            assert_eq!(at, 700);
            assert_eq!(outcomes, [ticks(1)]);
        }
    }
}
