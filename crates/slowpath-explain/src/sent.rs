// SPDX-License-Identifier: Apache-2.0
//! What an end sent over the whole connection, and when its timers made it send: the marks of a plot.

use super::timeline::{Packet, Timeline};
use super::wait_kind::Waited;
use super::waits::timer;
use super::{Facts, Unexplained};
use slowpath_recording::{Handler, Moment, Timer};
use std::ops::Range;

/// A packet's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentBytes {
    /// When it was sent.
    pub at: Moment,
    /// Its number among the end's packets, from 0.
    pub number: usize,
    /// Its bytes.
    pub bytes: Range<u64>,
    /// Some of it had been sent before.
    pub again: bool,
    /// It did not arrive.
    pub lost: bool,
}

impl SentBytes {
    pub(super) fn new(number: usize, packet: &Packet<'_>) -> Self {
        SentBytes {
            at: packet.at,
            number,
            bytes: packet.bytes.clone(),
            again: packet.again,
            lost: packet.got.is_none(),
        }
    }
}

/// What one end did, by its own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All of its packets, those without payload too.
    pub packets: Vec<SentBytes>,
    /// When its timer of retransmissions sent what had been sent.
    pub timeouts: Vec<Moment>,
    /// When the same timer sent a tail loss probe.
    pub probes: Vec<Moment>,
}

/// What both ends of a connection sent, the end that connected first.
///
/// # Errors
/// The headers are not of the recorded connection.
pub fn sent(facts: &Facts<'_>) -> Result<[Sent; 2], Unexplained> {
    let timeline = Timeline::new(facts)?;
    Ok([0, 1].map(|end: usize| of(&timeline, end)))
}

fn of(timeline: &Timeline<'_>, end: usize) -> Sent {
    let packets = &timeline.packets[end];
    let all = packets.iter().enumerate();
    let mut sent = Sent {
        packets: all.map(|(number, it)| SentBytes::new(number, it)).collect(),
        ..Sent::default()
    };
    for step in &timeline.steps[end] {
        let Handler::Timer {
            timer: Timer::Write,
            ..
        } = step.handler
        else {
            continue;
        };
        let again = packets[step.sent.clone()].iter().any(|it| it.again);
        match timer(step, again) {
            Some(Waited::Timeout) => sent.timeouts.push(step.at),
            Some(Waited::LossProbe) if !step.sent.is_empty() => sent.probes.push(step.at),
            _ => {}
        }
    }
    sent
}
