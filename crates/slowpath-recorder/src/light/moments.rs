// SPDX-License-Identifier: Apache-2.0
//! When a run was, and its readings of the clock: inferred from the last readings before the runs around it.

use super::piece::{Observation, Opened, index};

/// A clock that was read that much later is not the packet's own, in nanoseconds.
const MOST_LATE: u64 = 50_000;

/// When a run was.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    /// TCP's clock read that during it, or before if it did not read it.
    Read(u64),
    /// It reads it as it begins.
    Packet(Packet),
    /// A packet that arrived when no tracepoint fired: its sender had sent it when its clock read that, or before.
    Sent(u64),
    /// A call that sends several times: what it read with the first, and with the last of them.
    Several(u64, u64),
    /// A timer was about to run; what it reads is a little later.
    TimerEvent(u64),
    /// It reads none.
    Same,
}

#[derive(Clone, Copy)]
pub(super) struct Packet {
    /// What it had read before.
    pub before: u64,
    /// What the sender's clock had read when it had sent it, or later; 0: it was not observed since.
    pub sent: u64,
    /// What it read first, in whole microseconds: an acknowledgment of something new leaves that.
    pub first: Option<u64>,
    /// When it arrived, nearly: of an acknowledgment of all that was sent.
    pub arrived: Option<u64>,
    /// What it read as it sent what had waited for that, nearly.
    pub again: Option<u64>,
}

impl Clock {
    /// What had been read then, if that is known.
    pub(super) fn read(self) -> Option<u64> {
        match self {
            Clock::Read(at) | Clock::Several(at, _) | Clock::Packet(Packet { before: at, .. }) => {
                Some(at)
            }
            Clock::Sent(_) | Clock::TimerEvent(_) | Clock::Same => None,
        }
    }
}

/// Something was sent between the two when nothing was under way: that leaves its own moment where acknowledgments leave theirs (`tcp_rate_skb_sent`).
fn idle(observed: &Observation, next: &Observation) -> bool {
    let left = observed.words[index::NEXT].wrapping_sub(next.words[index::ACKNOWLEDGED]) as i32;
    left <= 0 && next.words[index::NEXT] != observed.words[index::NEXT]
}

/// What TCP's clock read as it began with that packet, in whole microseconds, if the next observation shows it.
pub(super) fn first(observed: &Observation, next: &Observation) -> Option<u64> {
    delivered(observed, next).filter(|_| !idle(observed, next))
}

/// What it read as the first was sent of what was sent between the two when nothing was under way, in whole microseconds.
pub(super) fn begun(observed: &Observation, next: &Observation) -> Option<u64> {
    delivered(observed, next).filter(|_| idle(observed, next))
}

fn delivered(observed: &Observation, next: &Observation) -> Option<u64> {
    let low = next.delivered?;
    let near = observed.clock / 1000;
    let since = low.wrapping_sub(near as u32) as i32;
    // What it reported before is not new.
    u64::try_from(since)
        .ok()
        .map(|since| near.saturating_add(since))
}

/// What the clock read as that run began, as far as is known.
pub(super) fn moment(clocks: &[Clock], place: usize, clock: Clock, delay: u64) -> u64 {
    // What a packet finds is what the run before it has read.
    let mut behind = clocks[place + 1..].iter();
    let own = match behind.find(|clock| !matches!(clock, Clock::Same)) {
        Some(Clock::Packet(next)) => Some(next.before),
        _ => None,
    };
    match clock {
        Clock::Same => 0,
        Clock::Sent(at) => at.saturating_add(delay),
        Clock::Read(at) | Clock::Several(at, _) => at,
        Clock::TimerEvent(at) => own.unwrap_or(at).max(at),
        Clock::Packet(Packet {
            before,
            first: Some(first),
            ..
        }) => match own {
            Some(read) if read / 1000 == first => read,
            _ => first.saturating_mul(1000).max(before),
        },
        Clock::Packet(Packet {
            before,
            arrived: Some(arrived),
            again: None,
            ..
        }) => own.unwrap_or(arrived).max(before),
        Clock::Packet(Packet {
            before,
            arrived: Some(arrived),
            ..
        }) => arrived.max(before),
        Clock::Packet(Packet { before, sent, .. }) => {
            let later = later(clocks, place, before);
            // A call has read the clock since: the packet took as long as others, if it was not later.
            if own.is_none() && sent > 0 && later - before > MOST_LATE {
                sent.saturating_add(delay).clamp(before, later)
            } else {
                later
            }
        }
    }
}

/// What a run read last of the clock, if it may have read it more than once.
pub(super) fn again(clock: Clock, next: Option<&Clock>) -> Option<u64> {
    match (clock, next) {
        (Clock::Several(_, again), _) => Some(again),
        // What it sent read it once more.
        (Clock::Packet(Packet { first: Some(_), .. }), Some(Clock::Packet(next))) => {
            Some(next.before)
        }
        (Clock::Packet(Packet { again, .. }), _) => again,
        _ => None,
    }
}

/// The next reading of the clock after it had read that; never less.
fn later(clocks: &[Clock], place: usize, before: u64) -> u64 {
    let mut later = clocks[place + 1..].iter().filter_map(|clock| clock.read());
    later.find(|at| *at > before).unwrap_or(before)
}

/// How long a packet of the handshake took to this end.
pub(super) fn handshake(own: &Opened, peer: &Opened) -> u64 {
    match own.end {
        0 => {
            let there = peer.clock.saturating_sub(own.clock);
            let both = own.clock.saturating_sub(own.begun);
            both.saturating_sub(there)
        }
        _ => own.clock.saturating_sub(peer.clock),
    }
}

/// How long a packet needed, of those whose moment is known: the one in the middle.
pub(super) fn delay(clocks: &[Clock]) -> Option<u64> {
    let known = clocks.windows(2).filter_map(|two| match *two {
        [Clock::Packet(it), Clock::Packet(next)] if it.sent > 0 && next.before > it.before => {
            next.before.checked_sub(it.sent)
        }
        _ => None,
    });
    let mut known: Vec<u64> = known.collect();
    known.sort_unstable();
    known.get(known.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::piece::{Event, WORDS};
    use super::*;

    fn observation(
        clock: u64,
        sent: u32,
        acknowledged: u32,
        delivered: Option<u32>,
    ) -> Observation {
        let mut words = [0; WORDS];
        words[index::NEXT] = sent;
        words[index::ACKNOWLEDGED] = acknowledged;
        Observation {
            event: Event::Packet {
                id: 0,
                segments: 1,
                marked: false,
            },
            next: 0,
            clock,
            owned: false,
            full: false,
            data: false,
            changed: 0,
            words,
            delivered,
            arrived: None,
            last_sent: None,
        }
    }

    /// `tcp_rate_gen` leaves the moment of what it delivered, `tcp_rate_skb_sent` that of what was sent from nothing; one from before the packet is neither.
    #[test]
    fn an_acknowledgment_leaves_its_moment() {
        let before = observation(5_000_000_123, 2000, 1000, None);
        let moment = |sent, acknowledged, delivered| {
            first(&before, &observation(0, sent, acknowledged, delivered))
        };
        assert_eq!(moment(3000, 1500, Some(5_000_020)), Some(5_000_020));
        assert_eq!(moment(2000, 2000, Some(5_000_020)), Some(5_000_020));
        assert_eq!(moment(3000, 2000, Some(5_000_020)), None);
        assert_eq!(moment(3000, 1500, Some(4_999_999)), None);
        assert_eq!(moment(3000, 1500, None), None);
        // The lower half wraps each 71 minutes.
        let before = observation(((1 << 32) - 1) * 1000, 2000, 1000, None);
        let wrapped = first(&before, &observation(0, 2000, 1500, Some(4)));
        assert_eq!(wrapped, Some((1 << 32) + 4));
    }

    fn packet(before: u64, sent: u64, first: Option<u64>, arrived: Option<u64>) -> Clock {
        Clock::Packet(Packet {
            before,
            sent,
            first,
            arrived,
            again: None,
        })
    }

    #[test]
    fn a_packet_followed_by_one_has_what_that_found() {
        let clocks = [
            packet(1_000, 0, None, Some(900_000)),
            packet(905_500, 0, Some(950), None),
            packet(960_000, 700_000, None, None),
            Clock::Read(2_000_000),
            packet(2_000_000, 0, None, Some(2_400_000)),
            Clock::Read(2_900_000),
            Clock::TimerEvent(3_000_000),
            packet(3_001_000, 0, None, None),
        ];
        let at = |place: usize| moment(&clocks, place, clocks[place], 400_000);
        assert_eq!(at(0), 905_500);
        // It read 950 us, and once more.
        assert_eq!(at(1), 950_000);
        // A call comes behind it: as long as others were under way.
        assert_eq!(at(2), 1_100_000);
        assert_eq!(at(4), 2_400_000);
        assert_eq!(at(6), 3_001_000);
        assert_eq!(moment(&clocks, 3, Clock::Sent(7), 400_000), 400_007);
    }

    /// Whatever was noted: no overflow.
    #[test]
    fn moments_beyond_all_times() {
        let far = packet(u64::MAX, u64::MAX, Some(u64::MAX), None);
        let clocks = [far, packet(0, 0, None, Some(u64::MAX)), far];
        for place in 0..3 {
            let _ = moment(&clocks, place, clocks[place], u64::MAX);
        }
        let _ = moment(&clocks, 0, Clock::Sent(u64::MAX), u64::MAX);
        let _ = delay(&clocks);
        let _ = first(
            &observation(u64::MAX, 0, 0, None),
            &observation(0, 0, 0, Some(u32::MAX)),
        );
    }
}
