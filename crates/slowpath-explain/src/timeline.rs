// SPDX-License-Identifier: Apache-2.0
//! One connection's runs and packets joined: which run sent which packets, which run of the other end got each, and which did not arrive.

use super::state::State;
use super::{Facts, Unexplained};
use slowpath_recording::headers::Header;
use slowpath_recording::{Handler, Moment};
use std::ops::Range;

/// `TCPHDR_SYN`, RFC 9293 section 3.1.
const SYN: u16 = 0x02;
/// The option of the maximum segment size, RFC 9293 section 3.7.1.
const MSS: u8 = 2;
/// Bytes of a timestamps option, aligned (`TCPOLEN_TSTAMP_ALIGNED`).
const TIMESTAMPS: u16 = 12;

/// A packet that an end sent.
pub(super) struct Packet<'a> {
    pub header: &'a Header,
    pub at: Moment,
    /// The run that sent it.
    pub run: usize,
    /// The run of the other end that got it first; `None`: it was lost.
    pub got: Option<usize>,
    /// Its payload's place in the stream.
    pub bytes: Range<u64>,
    /// Some of it had been sent before.
    pub again: bool,
    /// Bytes of the other direction's stream that it acknowledges.
    pub acknowledges: u64,
}

impl Packet<'_> {
    /// Whether some of its payload is of these bytes.
    pub fn carries(&self, bytes: &Range<u64>) -> bool {
        self.has_data() && self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }

    pub fn has_data(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Of nothing but an acknowledgment.
    pub fn is_pure(&self) -> bool {
        !self.has_data() && self.header.flags & SYN == 0 && self.header.acknowledgment.is_some()
    }
}

/// A run of a handler.
pub(super) struct Step<'a> {
    pub at: Moment,
    pub handler: &'a Handler,
    pub before: Option<&'a State>,
    pub after: Option<&'a State>,
    /// Numbers of the packets that it sent.
    pub sent: Range<usize>,
    /// Bytes of its own stream that are acknowledged after it.
    pub acknowledged: u64,
}

impl Step<'_> {
    /// Number of the packet that came in.
    pub fn packet(&self) -> Option<usize> {
        match self.handler {
            Handler::Packet { number, .. } => Some(*number as usize),
            _ => None,
        }
    }
}

/// Both ends.
pub(super) struct Timeline<'a> {
    pub packets: [Vec<Packet<'a>>; 2],
    pub steps: [Vec<Step<'a>>; 2],
    /// Bytes of the largest payload that each end sent.
    pub largest: [u64; 2],
    /// Bytes of data in a full segment of each end: less than the largest payload where the host's device cuts what it is handed.
    pub segment: [u64; 2],
}

/// Sequence numbers of 32 bits as places of 64.
#[derive(Default)]
struct Unwrapped(u64);

impl Unwrapped {
    fn place(&mut self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.0 as u32) as i32;
        let place = self.0.saturating_add_signed(i64::from(ahead));
        self.0 = self.0.max(place);
        place
    }
}

impl<'a> Timeline<'a> {
    pub fn new(facts: &Facts<'a>) -> Result<Self, Unexplained> {
        let mut packets = [sent(facts, 0), sent(facts, 1)];
        let mut steps: [Vec<Step<'a>>; 2] = [0, 1].map(|end| runs(facts, end));
        for end in 0..2 {
            assign(&mut steps[end], &mut packets[end]).ok_or(Unexplained::Times { end })?;
        }
        for end in 0..2 {
            let (theirs, mine) = (&mut packets[1 - end], &mut steps[end]);
            for (run, handler) in mine.iter().map(|step| step.handler).enumerate() {
                let Handler::Packet { number, merged, .. } = handler else {
                    continue;
                };
                let first = *number as usize;
                for number in first..first + usize::from(*merged).max(1) {
                    let packet = theirs.get_mut(number);
                    let packet = packet.ok_or(Unexplained::Packet { end, number })?;
                    packet.got.get_or_insert(run);
                }
            }
            let mut acknowledged = 0;
            for step in mine {
                if let Some(packet) = step.packet().and_then(|number| theirs.get(number)) {
                    acknowledged = acknowledged.max(packet.acknowledges);
                }
                step.acknowledged = acknowledged;
            }
        }
        let largest = [0, 1].map(|end: usize| {
            let sizes = packets[end].iter().map(|it| it.bytes.end - it.bytes.start);
            sizes.max().unwrap_or(0)
        });
        let segment = [0, 1].map(|end: usize| {
            let offered = maximum_segment(&packets[1 - end]);
            offered.map_or(largest[end], |offered| offered.min(largest[end]))
        });
        Ok(Timeline {
            packets,
            steps,
            largest,
            segment,
        })
    }
}

/// Bytes of data that a full segment has at most, by the SYN of the end that receives it (RFC 9293 section 3.7.1): its option, less that of
/// timestamps if it carries that too.
fn maximum_segment(packets: &[Packet<'_>]) -> Option<u64> {
    let opening = packets.first()?.header;
    let option = opening.options.iter().find(|(kind, _)| *kind == MSS)?;
    let offered = u16::from_be_bytes(*option.1.first_chunk()?);
    let timestamps = if opening.timestamps.is_some() {
        TIMESTAMPS
    } else {
        0
    };
    Some(u64::from(offered.saturating_sub(timestamps))).filter(|bytes| *bytes > 0)
}

/// What an end sent, by its own capture.
fn sent<'a>(facts: &Facts<'a>, end: usize) -> Vec<Packet<'a>> {
    let (mut own, mut other) = (Unwrapped::default(), Unwrapped::default());
    let headers = facts.headers[end].iter();
    let mut highest = 0;
    headers
        .filter(|header| header.forward == (end == 0))
        .map(|header| {
            // The SYN takes the number before the first byte.
            let start = own.place(header.sequence).saturating_sub(1);
            let acknowledges = header
                .acknowledgment
                .map_or(0, |number| other.place(number).saturating_sub(1));
            let bytes = start..start + u64::from(header.payload);
            let again = !bytes.is_empty() && bytes.start < highest;
            highest = highest.max(bytes.end);
            Packet {
                header,
                at: header.at,
                run: 0,
                got: None,
                bytes,
                again,
                acknowledges,
            }
        })
        .collect()
}

fn runs<'a>(facts: &Facts<'a>, end: usize) -> Vec<Step<'a>> {
    let states = facts.states[end];
    let state = |run: usize| states.get(run).filter(|state| state.is_there());
    let runs = facts.connection.ends[end].runs.iter().enumerate();
    runs.map(|(number, run)| Step {
        at: run.at,
        handler: &run.handler,
        before: number.checked_sub(1).and_then(state),
        after: state(number),
        sent: 0..0,
        acknowledged: 0,
    })
    .collect()
}

/// A replay's packets have the moments of the runs that sent them, or later ones within them. Of runs at one moment each has as many as its socket counted, the last what
/// is left.
fn assign(steps: &mut [Step<'_>], packets: &mut [Packet<'_>]) -> Option<()> {
    let (mut run, mut next) = (0, 0);
    while run < steps.len() {
        let at = steps[run].at;
        let joined = steps[run..].iter().take_while(|step| step.at == at).count();
        let later = steps.get(run + joined).map(|step| step.at);
        let here = packets[next..].iter();
        let here = here.take_while(|it| later.is_none_or(|later| it.at < later));
        let here = here.count();
        let end = next + here;
        for (place, step) in steps.iter_mut().enumerate().skip(run).take(joined) {
            let left = end - next;
            let counted = match (step.before, step.after) {
                (Some(before), Some(after)) => {
                    after.segments_out().wrapping_sub(before.segments_out()) as usize
                }
                (None, None) if place + 1 < run + joined => 0,
                _ => left,
            };
            let own = if place + 1 == run + joined {
                left
            } else {
                counted.min(left)
            };
            step.sent = next..next + own;
            for packet in &mut packets[next..next + own] {
                packet.run = place;
            }
            next += own;
        }
        run += joined;
    }
    (next == packets.len()).then_some(())
}
