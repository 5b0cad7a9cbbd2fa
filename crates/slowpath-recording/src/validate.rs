// SPDX-License-Identifier: Apache-2.0
//! What no kernel does: a recording that says it is not replayed.
//!
//! The file's own structure has been checked when it was decoded. Here it is about what the values mean, so that a replayer never waits for what cannot come and
//! never takes memory for what cannot be.

use super::{
    Connection, Decision, End, Handler, OneSided, Outcome, RecorderKind, Recording, Run, options,
};
use std::collections::BTreeMap;

/// Bytes that one call moves at most: `MAX_RW_COUNT` of `include/linux/fs.h`, with pages of 4 KiB.
const MOST_BYTES: u32 = 0x7fff_f000;
/// Errors are -1 to -4,095: `MAX_ERRNO` of `include/linux/err.h`.
const LEAST_RESULT: i32 = -4_095;
/// Packets that one run of a handler sends at most: a send buffer of 2 GiB, the largest that `SO_SNDBUF` takes, in segments of 536 bytes, and as many acknowledgments.
const PACKETS_A_RUN: u64 = 1 << 23;
/// The smallest packet that every IPv4 host takes (RFC 791, section 3.2), and the largest of a device (loopback).
const MTU: std::ops::RangeInclusive<u32> = 68..=65_536;
/// `CONFIG_HZ` is 100 to 1,000 (`kernel/Kconfig.hz`); some architectures had 24 to 1,200.
const HZ: std::ops::RangeInclusive<u32> = 24..=1_200;

/// What in a recording cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Of the recording.
    #[error("a kernel has 24 to 1200 ticks a second, not {0}")]
    Hz(u32),
    /// Of a connection.
    #[error(
        "connection {connection}: a device sends packets of 68 to 65536 bytes at most, not {mtu}"
    )]
    Mtu {
        /// Its place.
        connection: usize,
        /// Bytes.
        mtu: u32,
    },
    /// Of an end: its gap is after its last run, or something was lost without one.
    #[error("connection {connection}, {}: what it says of lost events contradicts itself", side(*end))]
    Gap {
        /// The connection's place.
        connection: usize,
        /// 0 or 1.
        end: usize,
    },
    /// Of an end's samples.
    #[error("connection {connection}, {}: sample {sample} is not of a later packet and time than the one before", side(*end))]
    Sample {
        /// The connection's place.
        connection: usize,
        /// 0 or 1.
        end: usize,
        /// Its place.
        sample: usize,
    },
    /// Of a run.
    #[error("connection {connection}, {}, run {run}: {reason}", side(*end))]
    Run {
        /// The connection's place.
        connection: usize,
        /// 0 or 1.
        end: usize,
        /// Its place.
        run: usize,
        /// What.
        reason: Impossible,
    },
}

/// Why a connection cannot be replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreplayable {
    /// The program did what no replay can do.
    #[error("its {} is not replayable after event {after}: {what}", side(*end))]
    Refused {
        /// 0 or 1.
        end: usize,
        /// Number of events before it.
        after: u64,
        /// What it was.
        what: String,
    },
    /// Events are missing.
    #[error("its {} is not replayable after event {after}: events are missing there", side(*end))]
    Gap {
        /// 0 or 1.
        end: usize,
        /// Number of events before it.
        after: u64,
    },
    /// Its runs have no times.
    #[error("its {}'s times were sampled: there is no replayer for those yet", side(*end))]
    Sampled {
        /// 0 or 1.
        end: usize,
    },
}

impl Unreplayable {
    /// What of an end's settings no replay has.
    pub fn of_socket(end: usize, socket: &BTreeMap<String, String>) -> Option<Self> {
        let what = options::refused_congestion(socket.get("congestion")?)?;
        let after = 0;
        Some(Unreplayable::Refused { end, after, what })
    }

    /// What of a run no replay can do; `after`: the number of the end's runs before it.
    pub fn of_run(end: usize, after: u64, run: &Run) -> Option<Self> {
        let what = options::refused(&run.handler)?;
        Some(Unreplayable::Refused { end, after, what })
    }
}

impl Connection {
    /// Whether all is there that a replay needs.
    ///
    /// # Errors
    /// What is not.
    pub fn replayable(&self) -> Result<(), Unreplayable> {
        for (end, socket) in self.settings.socket.iter().enumerate() {
            if let Some(refused) = Unreplayable::of_socket(end, socket) {
                return Err(refused);
            }
        }
        for (place, end) in self.ends.iter().enumerate() {
            let mut runs = end.runs.iter().zip(0..);
            if let Some(refused) = runs.find_map(|(it, run)| Unreplayable::of_run(place, run, it)) {
                return Err(refused);
            }
        }
        for (place, end) in self.ends.iter().enumerate() {
            if let Some(after) = end.gap {
                return Err(Unreplayable::Gap { end: place, after });
            }
            if end.sent.is_some() {
                return Err(Unreplayable::Sampled { end: place });
            }
        }
        Ok(())
    }
}

/// `client` or `server`.
fn side(end: usize) -> &'static str {
    if end == 0 { "client" } else { "server" }
}

/// What in a run cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// Clocks do not go back.
    #[error("it is before the run that ran before it")]
    Back,
    /// The other end has not that many.
    #[error("packet {0} is more than the other end can have sent")]
    Packet(u64),
    /// Of nothing.
    #[error("a packet of none merged")]
    Merged,
    /// Packets are merged in the backlog only: the laboratory has no GRO, and BPF takes them as they come to TCP.
    #[error(
        "{0} packets that were merged before they came to the socket, which no recorder writes and no replay does"
    )]
    MergedBefore(u16),
    /// A replay of other recordings does not look.
    #[error("what was observed of a socket, in a recording that has its runs' checks")]
    Observed,
    /// More bytes than a call moves.
    #[error("a call with {0} bytes")]
    Bytes(u32),
    /// More than was asked for, or no error number.
    #[error("a call with the result {0}")]
    Result(i32),
    /// Neither 0, 1 nor 2.
    #[error("a shutdown of kind {0}")]
    Shutdown(u8),
    /// A connection is opened once, by one end, and accepted by the other.
    #[error("this end cannot be opened here")]
    Opening,
    /// A stretch of nothing, or of fewer sequence numbers than packets.
    #[error("{further} packets behind another one joined to {length} bytes")]
    Joined {
        /// Sequence numbers.
        length: u32,
        /// Packets.
        further: u32,
    },
    /// Number of packets that were merged.
    #[error("what is recorded of packet {0} of those that were merged, of which there are fewer")]
    Place(u32),
    /// How often something was decided before only grows.
    #[error("its decisions are not in their order")]
    Decisions,
}

impl Recording {
    /// Looks for what cannot be.
    ///
    /// # Errors
    /// The first that there is.
    pub fn validate(&self) -> Result<(), Invalid> {
        // Events give it: a recorder without any does not know it.
        let nothing = self.connections.is_empty() && self.one_sided.is_empty();
        if !(HZ.contains(&self.origin.hz) || nothing && self.origin.hz == 0) {
            return Err(Invalid::Hz(self.origin.hz));
        }
        self.connections
            .iter()
            .enumerate()
            .try_for_each(|(place, connection)| connection.validate(place))?;
        if self.origin.recorder != RecorderKind::Tracepoints {
            let mut connections = self.connections.iter().enumerate();
            connections.try_for_each(|(place, connection)| connection.is_exact(place))?;
        }
        (self.connections.len()..)
            .zip(&self.one_sided)
            .try_for_each(|(place, one_sided)| one_sided.validate(place))
    }
}

impl OneSided {
    fn validate(&self, place: usize) -> Result<(), Invalid> {
        if !MTU.contains(&self.mtu) {
            return Err(Invalid::Mtu {
                connection: place,
                mtu: self.mtu,
            });
        }
        self.end
            .validate(place, self.side, Some(self.came.len() as u64))
    }
}

impl Connection {
    /// Only the light recorder says what it saw, and infers from bytes what it calls merged.
    fn is_exact(&self, connection: usize) -> Result<(), Invalid> {
        for (end, runs) in self.ends.iter().map(|end| &end.runs).enumerate() {
            for (run, it) in runs.iter().enumerate() {
                it.is_exact().map_err(|reason| Invalid::Run {
                    connection,
                    end,
                    run,
                    reason,
                })?;
            }
        }
        Ok(())
    }

    fn validate(&self, place: usize) -> Result<(), Invalid> {
        if let Some(mtu) = self.settings.mtu.iter().find(|mtu| !MTU.contains(mtu)) {
            let mtu = *mtu;
            return Err(Invalid::Mtu {
                connection: place,
                mtu,
            });
        }
        for (side, end) in self.ends.iter().enumerate() {
            let other = &self.ends[1 - side];
            // What the other end's missing runs sent is not known.
            let packets = match other.gap {
                Some(_) => None,
                None => Some((other.runs.len() as u64).saturating_mul(PACKETS_A_RUN)),
            };
            end.validate(place, side, packets)?;
        }
        Ok(())
    }
}

impl End {
    /// `packets`: as many can have come, if that is known.
    fn validate(&self, connection: usize, end: usize, packets: Option<u64>) -> Result<(), Invalid> {
        let gap = self.gap.unwrap_or(0);
        if gap > self.runs.len() as u64 || (self.gap.is_none() && self.lost > 0) {
            return Err(Invalid::Gap { connection, end });
        }
        if let Some(sent) = &self.sent {
            let wrong = sent
                .samples
                .windows(2)
                .position(|two| two[0].index >= two[1].index || two[0].time > two[1].time);
            if let Some(sample) = wrong {
                let sample = sample + 1;
                return Err(Invalid::Sample {
                    connection,
                    end,
                    sample,
                });
            }
        }
        let packets = packets.unwrap_or(u64::MAX);
        for (place, run) in self.runs.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| &self.runs[before]);
            // After a gap anything may have been before.
            let whole = self.gap.is_none_or(|gap| place as u64 <= gap);
            run.validate(before, end, packets, whole)
                .map_err(|reason| Invalid::Run {
                    connection,
                    end,
                    run: place,
                    reason,
                })?;
        }
        Ok(())
    }
}

impl Run {
    fn is_exact(&self) -> Result<(), Impossible> {
        let mut outcomes = self.outcomes.iter();
        if outcomes.any(|it| it.decision() == Decision::Observed) {
            return Err(Impossible::Observed);
        }
        match self.handler {
            Handler::Packet {
                merged: merged @ 2..,
                backlog: false,
                ..
            } => Err(Impossible::MergedBefore(merged)),
            _ => Ok(()),
        }
    }

    /// Set before the socket was connected.
    fn is_option(&self) -> bool {
        matches!(self.handler, Handler::Option { .. })
    }

    /// What it says of packets that were made of several, of pieces, and of those merged in the backlog.
    fn joined(&self, number: u32, packets: u64) -> Result<(), Impossible> {
        // The first is the run's own.
        let mut numbers = vec![number];
        numbers.extend(self.outcomes.iter().filter_map(|it| match it {
            Outcome::Merged { further, .. } => Some(number.wrapping_add(*further)),
            _ => None,
        }));
        for outcome in &self.outcomes {
            let (Outcome::Piece { packet, .. } | Outcome::Joined { packet, .. }) = *outcome else {
                continue;
            };
            let number = numbers.get(packet as usize);
            let number = *number.ok_or(Impossible::Place(packet))?;
            let Outcome::Joined { stretch, .. } = outcome else {
                continue;
            };
            let (length, further) = (stretch.length(), stretch.further());
            if length <= further {
                return Err(Impossible::Joined { length, further });
            }
            let last = u64::from(number) + u64::from(further);
            if last >= packets {
                return Err(Impossible::Packet(last));
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        before: Option<&Run>,
        end: usize,
        packets: u64,
        whole: bool,
    ) -> Result<(), Impossible> {
        if let Some(before) = before {
            let ticks = self.jiffies.wrapping_sub(before.jiffies) as i32;
            if self.at < before.at || (ticks < 0 && whole) {
                return Err(Impossible::Back);
            }
        }
        match self.handler {
            Handler::Connect if end != 0 || before.is_some_and(|it| !it.is_option()) => {
                Err(Impossible::Opening)
            }
            Handler::Accept if end != 1 => Err(Impossible::Opening),
            Handler::Send { bytes, result, .. } | Handler::Receive { bytes, result, .. } => {
                call(bytes, result)
            }
            Handler::Shutdown { how } if how > 2 => Err(Impossible::Shutdown(how)),
            Handler::Packet { merged: 0, .. } => Err(Impossible::Merged),
            Handler::Packet { number, merged, .. } => {
                let last = u64::from(number) + u64::from(merged) - 1;
                if last < packets {
                    self.joined(number, packets)
                } else {
                    Err(Impossible::Packet(last))
                }
            }
            _ => Ok(()),
        }?;
        let mut nths = BTreeMap::new();
        for outcome in &self.outcomes {
            let (decision, nth) = outcome.key();
            let earlier = nths.insert(decision, nth);
            if earlier.is_some_and(|earlier| earlier >= nth) {
                return Err(Impossible::Decisions);
            }
        }
        Ok(())
    }
}

fn call(bytes: u32, result: i32) -> Result<(), Impossible> {
    if bytes > MOST_BYTES {
        return Err(Impossible::Bytes(bytes));
    }
    if result < LEAST_RESULT || i64::from(result) > i64::from(bytes) {
        return Err(Impossible::Result(result));
    }
    Ok(())
}
