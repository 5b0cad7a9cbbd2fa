// SPDX-License-Identifier: Apache-2.0
//! The sending end of a one-way session.

use super::{PathError, fill_random};
use crate::control::SendStamp;
use crate::keys::Block;
use crate::packet::{Protection, TestPacket, header_length, write_test};
use crate::record::SkipRange;
use crate::schedule::{Schedule, Slots};
use crate::socket::{
    StampedSocket, WallClock, clock_state, monotonic, precise_timers, sleep_until,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Stamps that are kept of a session.
const MOST_STAMPS: usize = 1 << 20;

/// With so much time to the next packet the stamps of the ones before are fetched, ns.
const SPARE: i64 = 200_000;

/// How long after the last packet its stamp is waited for, ns.
const LAST_STAMPS: i64 = 10_000_000;

/// More than this behind the schedule is late, ns.
pub(crate) const LATE: i64 = 1_000_000;

/// What is sent.
#[derive(Clone, Debug)]
pub struct SenderPlan {
    /// The session.
    pub session: Block,
    /// Its schedule.
    pub slots: Slots,
    /// How many packets.
    pub packets: u32,
    /// When the schedule begins, by [`monotonic`].
    pub begin: i64,
    /// Octets after the headers.
    pub padding: u16,
    /// How packets are protected.
    pub protection: Protection,
    /// A packet that is later than this is skipped, ns.
    pub give_up: i64,
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderReport {
    /// One more than the last packet that was sent.
    pub next_sequence: u32,
    /// Packets that were left out.
    pub skips: Vec<SkipRange>,
    /// When packets really left, by the kernel.
    pub stamps: Vec<SendStamp>,
    /// Packets that were sent more than 1 ms after their time.
    pub late: u64,
    /// Packets that the kernel refused; they are among the skips.
    pub refused: u64,
}

impl SenderReport {
    pub(crate) fn skip(&mut self, sequence: u32) {
        match self.skips.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(sequence) => range.last = sequence,
            _ => self.skips.push(SkipRange {
                first: sequence,
                last: sequence,
            }),
        }
    }
}

/// Which packet each number of the kernel's stamps stands for.
#[derive(Debug, Default)]
pub(crate) struct SentNumbers {
    sequences: Vec<u32>,
    base: usize,
}

impl SentNumbers {
    /// A packet left.
    pub(crate) fn push(&mut self, sequence: u32) {
        self.sequences.push(sequence);
    }

    /// The kernel refused one: it counts from 0 again, or its numbers are of no use any more.
    pub(crate) fn restart(&mut self, restarted: bool) {
        self.base = if restarted {
            self.sequences.len()
        } else {
            usize::MAX
        };
    }

    /// The packet of a number.
    pub(crate) fn sequence(&self, number: u32) -> Option<u32> {
        self.sequences
            .get(self.base.checked_add(number as usize)?)
            .copied()
    }
}

/// Sends a session's packets by its schedule until it ends or `stop` is set. The socket is connected to the
/// receiver.
///
/// # Errors
/// There are no random octets for the padding.
pub fn run_sender(
    socket: &StampedSocket,
    plan: SenderPlan,
    clock: &WallClock,
    stop: &AtomicBool,
) -> Result<SenderReport, PathError> {
    let protection = plan.protection.clone();
    let mut packet = vec![0; header_length(&protection) + usize::from(plan.padding)];
    fill_random(&mut packet)?;
    let write = |packet: &mut [u8], test: &TestPacket| write_test(packet, test, &protection);
    Ok(send_schedule(
        socket,
        &plan,
        (&mut packet, &write),
        clock,
        stop,
    ))
}

/// Writes a packet's headers into its buffer.
pub(crate) type Writer<'a> = dyn Fn(&mut [u8], &TestPacket) + 'a;

/// Sends by a plan's schedule what `write` makes of a buffer as long as the packets.
pub(crate) fn send_schedule(
    socket: &StampedSocket,
    plan: &SenderPlan,
    (packet, write): (&mut [u8], &Writer<'_>),
    clock: &WallClock,
    stop: &AtomicBool,
) -> SenderReport {
    precise_timers();
    let mut report = SenderReport::default();
    let mut numbers = SentNumbers::default();
    let mut estimate = clock_state().estimate();
    let mut estimated = monotonic();
    let schedule = Schedule::new(plan.slots.clone(), plan.session).take(plan.packets as usize);
    for (sequence, offset) in (0u32..).zip(schedule) {
        let offset = i64::try_from(offset.as_nanos()).unwrap_or(i64::MAX);
        let due = plan.begin.saturating_add(offset);
        let mut now = monotonic();
        if due - now > SPARE {
            take_stamps(socket, &numbers, clock, &mut report);
            if now - estimated > 1_000_000_000 {
                estimate = clock_state().estimate();
                estimated = now;
            }
            if !sleep_until(due, stop) {
                break;
            }
            now = monotonic();
        } else if stop.load(Ordering::Relaxed) {
            break;
        }
        report.next_sequence = sequence + 1;
        if now - due > plan.give_up {
            report.skip(sequence);
            continue;
        }
        report.late += u64::from(now - due > LATE);
        let test = TestPacket {
            sequence,
            sent: clock.timestamp(),
            error: estimate,
        };
        write(packet, &test);
        match socket.send(packet) {
            Ok(()) => numbers.push(sequence),
            Err(_) => {
                take_stamps(socket, &numbers, clock, &mut report);
                // Without it stamps after this one are those of other packets: they are left out from here on.
                let restarted = socket.restart_numbers().is_ok();
                numbers.restart(restarted);
                report.refused += 1;
                report.skip(sequence);
            }
        }
    }
    // A device may still hold the last ones.
    let never = AtomicBool::new(false);
    let _ = sleep_until(monotonic() + LAST_STAMPS, &never);
    take_stamps(socket, &numbers, clock, &mut report);
    report
}

fn take_stamps(
    socket: &StampedSocket,
    numbers: &SentNumbers,
    clock: &WallClock,
    report: &mut SenderReport,
) {
    socket.send_stamps(|number, stamp| {
        if let Some(sequence) = numbers.sequence(number)
            && report.stamps.len() < MOST_STAMPS
        {
            report.stamps.push(SendStamp {
                sequence,
                sent: clock.stamp(stamp),
            });
        }
    });
}
