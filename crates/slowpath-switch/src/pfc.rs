// SPDX-License-Identifier: Apache-2.0
//! Priority flow control (IEEE Std 802.1Qbb-2011; clause 36 of 802.1Q since 2014): a switch whose
//! buffer for one class of one input runs full stops the sender of that class at the link's other end.

use crate::packet::PortId;
use crate::time::{Rate, Span, Time};
use alloc::vec::Vec;
use core::fmt;

/// Picoseconds of a second, times bits of a byte.
const PICOSECONDS_TIMES_BITS: u64 = 8_000_000_000_000;

/// What of each class may wait that came in by a port. It counts what waits in queues; a packet leaves
/// it when its transmission starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pfc {
    /// Bytes above which the other end is to stop.
    pub xoff: u64,
    /// Bytes from which down it may go on; at most `xoff`.
    pub xon: u64,
    /// Bytes beyond `xoff` for what comes before the other end has stopped. A packet that would exceed
    /// both is dropped.
    pub headroom: u64,
}

impl Pfc {
    /// The length of a pause frame: the least of an Ethernet frame (802.1Q 36.1.3; IEEE Std 802.3
    /// 31B.2), in bytes.
    pub const FRAME: u32 = 64;

    /// The headroom with which nothing is lost on a link of that rate and propagation, whose packets
    /// have at most `most` bytes (after 802.1Q annex N, with no time for reacting): what is on the line
    /// and what is sent until a pause has arrived, `2 propagation + FRAME / rate`; the packet that
    /// exceeds `xoff`; and the packet in transmission when the pause arrives, which ends.
    pub fn enough(rate: Rate, propagation: Span, most: u32) -> u64 {
        let trip = on_the_line(rate, propagation).saturating_mul(2);
        trip.saturating_add(u64::from(Self::FRAME) + 2 * u64::from(most))
    }

    /// Thresholds for a link of that rate and propagation, whose packets have at most `most` bytes.
    /// A sender may go on while as much is left as leaves until its first packet arrives, if the line
    /// ahead is as fast: the way of the frame, and the packet's own. It is stopped two packets later.
    pub fn for_link(rate: Rate, propagation: Span, most: u32) -> Self {
        let trip = on_the_line(rate, propagation).saturating_mul(2);
        let xon = trip.saturating_add(u64::from(Self::FRAME) + u64::from(most));
        Pfc {
            xoff: xon.saturating_add(2 * u64::from(most)),
            xon,
            headroom: Self::enough(rate, propagation, most),
        }
    }
}

/// Bytes that fit on a line of that rate in that time, rounded up.
fn on_the_line(rate: Rate, time: Span) -> u64 {
    let bits = u128::from(rate.bits_per_second()) * u128::from(time.0);
    let bytes = bits.div_ceil(u128::from(PICOSECONDS_TIMES_BITS));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// What is impossible about flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfcError {
    /// The sender would go on only below what stops it again.
    Thresholds,
    /// The switch has no such port.
    NoSuchPort,
}

impl fmt::Display for PfcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PfcError::Thresholds => "xon is at most xoff",
            PfcError::NoSuchPort => "there is no such port",
        })
    }
}

impl core::error::Error for PfcError {}

/// A frame that a switch sends: to stop, or to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseFrame {
    /// The port that it leaves by.
    pub port: PortId,
    /// Of which class.
    pub class: u8,
    /// Whether the other end is to stop; otherwise it may go on.
    pub pause: bool,
    /// When it is at the other end. It takes [`Pfc::FRAME`] bytes at the line's rate and the line's
    /// propagation; it waits for no packet, and none for it.
    pub arrival: Time,
}

/// What flow control did at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseCounts {
    /// Pauses that it sent; a frame that ends one is not counted.
    pub sent: u64,
    /// Pauses that it received.
    pub received: u64,
    /// For how long it was to send nothing of one class or more.
    pub paused: Span,
    /// Packets that came in and were dropped, as `xoff` and the headroom were full.
    pub overruns: u64,
}

/// What waits of a class that came in by a port.
#[derive(Clone, Copy, Debug, Default)]
struct Input {
    bytes: u64,
    /// Whether the last frame that it sent stops the other end.
    stopped: bool,
    /// Whether it is in `changed`.
    changed: bool,
}

/// What a port may not send.
#[derive(Clone, Copy, Debug, Default)]
struct Output {
    /// A bit a class.
    paused: u8,
    since: Time,
    counts: PauseCounts,
}

/// The flow control of a switch's ports.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    classes: u8,
    /// By port; `None`: nothing is counted that comes in by it.
    limits: Vec<Option<Pfc>>,
    /// By port and class.
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    /// By the slot of a packet in a queue: the port that it came in by, and its class.
    origins: Vec<Option<usize>>,
    /// Inputs of which more or less waits than before.
    changed: Vec<usize>,
}

impl Pauses {
    pub fn new(ports: usize, classes: u8) -> Self {
        Pauses {
            classes,
            limits: alloc::vec![None; ports],
            inputs: alloc::vec![Input::default(); ports * usize::from(classes)],
            outputs: alloc::vec![Output::default(); ports],
            origins: Vec::new(),
            changed: Vec::new(),
        }
    }

    pub fn set(&mut self, port: PortId, pfc: Pfc) -> Result<(), PfcError> {
        if pfc.xon > pfc.xoff {
            return Err(PfcError::Thresholds);
        }
        let limit = self.limits.get_mut(port.index());
        *limit.ok_or(PfcError::NoSuchPort)? = Some(pfc);
        Ok(())
    }

    fn at(&self, port: PortId, class: u8) -> usize {
        port.index() * usize::from(self.classes) + usize::from(class)
    }

    /// The port and class of an input.
    fn place(&self, input: usize) -> (PortId, u8) {
        let classes = usize::from(self.classes);
        // Ports fit 16 bits and classes 8.
        (PortId((input / classes) as u16), (input % classes) as u8)
    }

    /// Whether a packet that came in by that port may wait; if not, it is counted.
    pub fn admits(&mut self, by: PortId, class: u8, bytes: u32) -> bool {
        let Some(Some(pfc)) = self.limits.get(by.index()) else {
            return true;
        };
        let waiting = self.inputs[self.at(by, class)].bytes;
        let fits =
            waiting.saturating_add(u64::from(bytes)) <= pfc.xoff.saturating_add(pfc.headroom);
        self.outputs[by.index()].counts.overruns += u64::from(!fits);
        fits
    }

    /// A packet that came in by that port joined a queue, in that slot.
    pub fn joined(&mut self, slot: usize, by: Option<PortId>, class: u8, bytes: u32) {
        if slot >= self.origins.len() {
            self.origins.resize(slot + 1, None);
        }
        let by = by.filter(|by| matches!(self.limits.get(by.index()), Some(Some(_))));
        let input = by.map(|by| self.at(by, class));
        self.origins[slot] = input;
        if let Some(input) = input {
            self.inputs[input].bytes += u64::from(bytes);
            self.note(input);
        }
    }

    /// The packet in that slot left its queue.
    pub fn left(&mut self, slot: usize, bytes: u32) {
        if let Some(Some(input)) = self.origins.get(slot).copied() {
            self.inputs[input].bytes -= u64::from(bytes);
            self.note(input);
        }
    }

    fn note(&mut self, input: usize) {
        if !core::mem::replace(&mut self.inputs[input].changed, true) {
            self.changed.push(input);
        }
    }

    /// The next frame that is to leave, if any: its port, its class, and whether it stops.
    pub fn next_frame(&mut self) -> Option<(PortId, u8, bool)> {
        while let Some(input) = self.changed.pop() {
            let (port, class) = self.place(input);
            let state = &mut self.inputs[input];
            state.changed = false;
            let Some(pfc) = self.limits[port.index()] else {
                continue;
            };
            let stop = match state.stopped {
                false => state.bytes > pfc.xoff,
                true => state.bytes > pfc.xon,
            };
            if stop != state.stopped {
                state.stopped = stop;
                self.outputs[port.index()].counts.sent += u64::from(stop);
                return Some((port, class, stop));
            }
        }
        None
    }

    /// The other end of a port's link stops or continues a class.
    pub fn receive(&mut self, now: Time, port: PortId, class: u8, pause: bool) {
        let output = &mut self.outputs[port.index()];
        let before = output.paused;
        match pause {
            true => output.paused |= 1 << class,
            false => output.paused &= !(1 << class),
        }
        output.counts.received += u64::from(pause);
        match (before, output.paused) {
            (0, 1..) => output.since = now,
            (1.., 0) => output.counts.paused = output.counts.paused + (now - output.since),
            _ => {}
        }
    }

    pub fn is_paused(&self, port: PortId, class: usize) -> bool {
        self.outputs[port.index()].paused >> class & 1 == 1
    }

    /// Since when a port has had a class that it may not send.
    pub fn since(&self, port: PortId) -> Time {
        self.outputs[port.index()].since
    }

    /// What a port has counted until then.
    pub fn counts(&self, port: PortId, until: Time) -> PauseCounts {
        let output = &self.outputs[port.index()];
        let mut counts = output.counts;
        if output.paused != 0 {
            counts.paused = counts.paused + (until - output.since);
        }
        counts
    }

    /// The port that the packet in a slot came in by, and its class.
    pub fn origin(&self, slot: usize) -> Option<(PortId, u8)> {
        let input = self.origins.get(slot).copied().flatten();
        input.map(|input| self.place(input))
    }

    /// Whether `bytes` of an input that wait keep its pause up.
    pub fn stays_stopped(&self, port: PortId, class: u8, bytes: u64) -> bool {
        let limit = self.limits.get(port.index()).copied().flatten();
        let input = self.inputs.get(self.at(port, class));
        let stopped = input.is_some_and(|input| input.stopped);
        limit.is_some_and(|pfc| stopped && bytes > pfc.xon)
    }
}
