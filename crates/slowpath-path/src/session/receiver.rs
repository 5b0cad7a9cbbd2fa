// SPDX-License-Identifier: Apache-2.0
//! The receiving end of a one-way session.

use super::PathError;
use crate::packet::{Protection, read_test};
use crate::record::Record;
use crate::socket::{Received, StampedSocket, WallClock, clock_state, monotonic};
use crate::time::{ErrorEstimate, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Octets of a packet that are read: all of IPv4's longest datagram.
pub(crate) const LONGEST: usize = 65_536;

/// Datagrams between two readings of the clock's state.
const STATE_EVERY: u64 = 256;

/// What is expected.
#[derive(Clone, Debug)]
pub struct ReceiverPlan {
    /// How many packets.
    pub packets: u32,
    /// How they are protected.
    pub protection: Protection,
    /// Records that may be kept: copies of packets must not fill memory.
    pub most_records: usize,
}

/// What came.
#[derive(Clone, Debug, Default)]
pub struct ReceiverReport {
    /// Each arrival, in order.
    pub records: Vec<Record>,
    /// Packets dropped by the full receive buffer (SO_RXQ_OVFL).
    pub dropped: u32,
    /// Datagrams that were none of the session's.
    pub strangers: u64,
    /// Arrivals past [`ReceiverPlan::most_records`], which are not kept.
    pub not_kept: u64,
    /// Arrivals without a kernel's stamp.
    pub unstamped: u64,
}

/// How far a receiver is, for those who wait for it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Every packet has come; copies may still follow.
    pub complete: AtomicBool,
    /// When the last packet came, by [`monotonic`]; 0: none has.
    pub last: AtomicI64,
}

/// Packets that came, as bits.
#[derive(Debug)]
pub(crate) struct Arrived {
    bits: Vec<u64>,
    missing: u32,
}

impl Arrived {
    pub(crate) fn new(packets: u32) -> Self {
        Arrived {
            bits: vec![0; (packets as usize).div_ceil(64)],
            missing: packets,
        }
    }

    /// Notes a packet; true: all have come now.
    pub(crate) fn note(&mut self, sequence: u32) -> bool {
        let (word, bit) = (sequence as usize / 64, 1u64 << (sequence % 64));
        if self.bits[word] & bit == 0 {
            self.bits[word] |= bit;
            self.missing -= 1;
        }
        self.missing == 0
    }
}

/// When and how far a packet came: by the kernel's stamp, or else by the clock now.
pub(crate) fn arrival(received: &Received, clock: &WallClock) -> Timestamp {
    match received.stamp {
        Some(stamp) => clock.stamp(stamp),
        None => clock.timestamp(),
    }
}

/// Receives until `stop` is set.
///
/// # Errors
/// The socket fails.
pub fn run_receiver(
    socket: &StampedSocket,
    plan: &ReceiverPlan,
    clock: &WallClock,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<ReceiverReport, PathError> {
    let mut report = ReceiverReport::default();
    receive_until(socket, plan, clock, (stop, progress), &mut report)?;
    // What was dropped after the last packet that was read, too.
    report.dropped = report.dropped.max(socket.dropped().unwrap_or(0));
    Ok(report)
}

/// Receives until `stop` is set.
fn receive_until(
    socket: &StampedSocket,
    plan: &ReceiverPlan,
    clock: &WallClock,
    (stop, progress): (&AtomicBool, &Progress),
    report: &mut ReceiverReport,
) -> Result<(), PathError> {
    let mut buffer = vec![0; LONGEST];
    let mut arrived = Arrived::new(plan.packets);
    let mut error: ErrorEstimate = clock_state().estimate();
    let mut datagrams = 0u64;
    loop {
        let Some(received) = socket
            .receive(&mut buffer)
            .map_err(PathError::io("receive test packets"))?
        else {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            continue;
        };
        datagrams += 1;
        if datagrams.is_multiple_of(STATE_EVERY) {
            error = clock_state().estimate();
            // A flood must not keep the thread from ending.
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        report.dropped = report.dropped.max(received.dropped);
        let bytes = buffer.get_mut(..received.length);
        let packet = bytes.and_then(|bytes| read_test(bytes, &plan.protection).ok());
        let Some(packet) = packet.filter(|packet| packet.sequence < plan.packets) else {
            report.strangers += 1;
            continue;
        };
        if report.records.len() >= plan.most_records {
            report.not_kept += 1;
            continue;
        }
        progress.last.store(monotonic(), Ordering::Release);
        report.unstamped += u64::from(received.stamp.is_none());
        report.records.push(Record {
            sequence: packet.sequence,
            sent: packet.sent,
            sent_error: packet.error,
            received: arrival(&received, clock),
            received_error: error,
            ttl: received.ttl.unwrap_or(255),
        });
        if arrived.note(packet.sequence) {
            progress.complete.store(true, Ordering::Release);
        }
    }
}
