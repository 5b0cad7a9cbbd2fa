// SPDX-License-Identifier: Apache-2.0
//! Sets of TCP states with `ss`'s names (iproute2 `misc/ss.c`, `scan_state`).

use slowpath_model::TcpState;
use std::fmt;

/// A set of TCP states; never mentions `NewSynReceived`, which counts as `SynReceived`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSet(u16);

const NAMED: [(TcpState, &str); 11] = [
    (TcpState::Established, "established"),
    (TcpState::SynSent, "syn-sent"),
    (TcpState::SynReceived, "syn-recv"),
    (TcpState::FinWait1, "fin-wait-1"),
    (TcpState::FinWait2, "fin-wait-2"),
    (TcpState::TimeWait, "time-wait"),
    (TcpState::Close, "closed"),
    (TcpState::CloseWait, "close-wait"),
    (TcpState::LastAck, "last-ack"),
    (TcpState::Listen, "listening"),
    (TcpState::Closing, "closing"),
];

impl StateSet {
    /// No state.
    pub const NONE: StateSet = StateSet(0);

    /// The states that `ss` means by `name`, whatever its case.
    pub fn named(name: &str) -> Option<Self> {
        let all = NAMED
            .iter()
            .fold(Self::NONE, |set, (state, _)| set.with(*state));
        let bucket = Self::NONE
            .with(TcpState::SynReceived)
            .with(TcpState::TimeWait);
        let idle = Self::NONE.with(TcpState::Close).with(TcpState::Listen);
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "all" => all,
            "connected" => all.without(idle),
            "synchronized" => all.without(idle.with(TcpState::SynSent)),
            "bucket" => bucket,
            "big" => all.without(bucket),
            "close" | "unconnected" => Self::NONE.with(TcpState::Close),
            "syn-rcv" => Self::NONE.with(TcpState::SynReceived),
            _ => {
                let (state, _) = NAMED.iter().find(|(_, n)| *n == name)?;
                Self::NONE.with(*state)
            }
        })
    }

    const fn with(self, state: TcpState) -> Self {
        StateSet(self.0 | 1 << state as u16)
    }

    /// What is in either.
    pub const fn union(self, other: Self) -> Self {
        StateSet(self.0 | other.0)
    }

    /// What is in `self` only.
    pub const fn without(self, other: Self) -> Self {
        StateSet(self.0 & !other.0)
    }

    /// Whether `state` is in.
    pub const fn contains(self, state: TcpState) -> bool {
        let state = match state {
            TcpState::NewSynReceived => TcpState::SynReceived,
            s => s,
        };
        self.0 & 1 << state as u16 != 0
    }
}

impl fmt::Display for StateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("exclude all");
        }
        let mut gap = "";
        for (_, name) in NAMED.iter().filter(|(state, _)| self.contains(*state)) {
            write!(f, "{gap}state {name}")?;
            gap = " ";
        }
        Ok(())
    }
}
