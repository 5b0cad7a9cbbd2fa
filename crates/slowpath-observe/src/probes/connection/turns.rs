// SPDX-License-Identifier: Apache-2.0
//! The mirrors of what `turns.bpf.h` keeps of requests and answers, and their typed form.

use super::layouts;
use layouts::side::{SIDE_HERE, SIDE_PEER};
use layouts::turn::{TURN_HERE, TURN_PEER};
use slowpath_layout::mirror;
use slowpath_model::{
    AnswerSums, LATEST_TURNS, Micros, MonoNanos, TcpState, Turn, TurnEnd, TurnSums, Turns,
};

mirror! {
    /// `struct answers`.
    pub(crate) struct RecordAnswers = layouts::ANSWERS {
        sum_us: u64,
        count: u32,
        max_us: u32,
    }
}

mirror! {
    /// `struct turns`.
    pub(crate) struct RecordTurns = layouts::TURNS {
        overlapping: u32,
        pad: u32,
        since_us: u64,
        written: u32,
        whose: u8,
        by_ack: u8,
        by_clock: u8,
        pad1: u8,
        peer: RecordAnswers,
        here: RecordAnswers,
    }
}

mirror! {
    /// `struct latest_turns`; only as many as were counted are set.
    pub(crate) struct LatestTurns = layouts::LATEST_TURNS {
        lengths: [[u32; 2]; LATEST_TURNS],
    }
}

impl RecordAnswers {
    fn sums(&self, latest: &LatestTurns, side: u32) -> AnswerSums {
        let mut sums = AnswerSums {
            count: self.count.into(),
            time: Micros(self.sum_us),
            longest: Micros(self.max_us.into()),
            latest: [0; LATEST_TURNS],
        };
        let counted = LATEST_TURNS.min(self.count as usize);
        for (to, from) in sums.latest.iter_mut().zip(latest.lengths).take(counted) {
            *to = from[side as usize & 1];
        }
        sums
    }
}

impl RecordTurns {
    /// With the latest turns of the same record, of a connection in that state.
    pub(crate) fn turns(&self, latest: &LatestTurns, state: u8, closed: bool) -> Turns {
        let turn = |end| Turn {
            end,
            since: MonoNanos(self.since_us.saturating_mul(1_000)),
        };
        // After this end's FIN no segment is observed (tcp_rcv_state_process), after the peer's it
        // sends none.
        let turn = match (TcpState::from_kernel(state), u32::from(self.whose)) {
            _ if closed => None,
            (Some(TcpState::Established), TURN_PEER) => Some(turn(TurnEnd::Peer)),
            (Some(TcpState::Established | TcpState::CloseWait), TURN_HERE) => {
                Some(turn(TurnEnd::Here))
            }
            _ => None,
        };
        let turns = Turns::watched(turn);
        if self.peer.count == 0 && self.here.count == 0 && self.overlapping == 0 {
            return turns;
        }
        turns.with(TurnSums {
            overlapping: self.overlapping.into(),
            peer: self.peer.sums(latest, SIDE_PEER),
            here: self.here.sums(latest, SIDE_HERE),
        })
    }
}
