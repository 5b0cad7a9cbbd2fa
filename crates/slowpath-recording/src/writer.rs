// SPDX-License-Identifier: Apache-2.0
//! A recording written while its connections live: events enter as they happen, frames leave when asked for.

use super::block::{self, MAX_OUTCOMES, Piece};
use super::encode::{Block, Encoder, FRAME_EVENTS, PIECE_RUNS, Total};
use super::error::EncodeError;
use super::inexact;
use super::one_sided::{OneSided, Packet};
use super::one_sided_frames;
use super::{Connection, Handler, Moment, Origin, Run};
use crate::sampling::Sample;
use std::collections::BTreeMap;

/// Writes a recording frame by frame. What it holds between frames is what was pushed since; [`Writer::held`] says how much that is.
///
/// Frames can be left out later (a ring of the last minutes), all but those of [`Writer::open`]: the ends that they are about have a gap then.
#[derive(Clone)]
pub struct Writer {
    encoder: Encoder,
    live: BTreeMap<u32, [Live; 2]>,
    /// Packets of one-sided ends: sent, received.
    packets: BTreeMap<u32, [Way; 2]>,
    held: usize,
}

/// Packets that were not written, and how many were.
#[derive(Clone, Default)]
struct Way {
    held: Vec<Packet>,
    before: u64,
}

/// An end that is not closed.
#[derive(Clone, Default)]
struct Live {
    sampled: bool,
    near: u64,
    runs: Vec<Run>,
    samples: Vec<Sample>,
    /// The number of held runs that came before a loss, and of those lost.
    gap: Option<(u64, u64)>,
    /// Runs and samples that were written.
    first: u64,
    earlier: u64,
    expected: u64,
    before: Option<(Moment, u32)>,
    /// Its digest.
    closed: Option<u32>,
    /// It was recorded elsewhere.
    elsewhere: bool,
}

impl Writer {
    /// A writer, and the header, which comes first in the file.
    ///
    /// # Errors
    /// An origin that is too long.
    pub fn new(origin: &Origin) -> Result<(Writer, Vec<u8>), EncodeError> {
        let (encoder, header) = Encoder::new(origin)?;
        let writer = Writer {
            encoder,
            live: BTreeMap::new(),
            packets: BTreeMap::new(),
            held: 0,
        };
        Ok((writer, header))
    }

    /// Events that are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// A connection begins: appends a frame with its addresses and settings, and which of its ends have sampled times. Its runs are not looked at. Numbers are the caller's, each once.
    ///
    /// # Errors
    /// Settings that are too long.
    pub fn open(
        &mut self,
        number: u32,
        connection: &Connection,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let one = std::iter::once((number, connection));
        self.encoder.connections(one, out)?;
        if let Some(joint) = &connection.joint {
            self.encoder.joints(std::iter::once((number, joint)), out)?;
        }
        let live = [0, 1].map(|end| Live {
            sampled: connection.ends[end].sent.is_some(),
            near: inexact::unit(connection.ends[end].within),
            ..Live::default()
        });
        self.live.insert(number, live);
        Ok(())
    }

    /// The same of an end whose other end is elsewhere; its packets are not looked at either.
    ///
    /// # Errors
    /// Settings that are too long.
    pub fn open_one_sided(
        &mut self,
        number: u32,
        one_sided: &OneSided,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.encoder
            .one_sided(std::iter::once((number, one_sided)), out)?;
        let mut live: [Live; 2] = Default::default();
        live[one_sided.side & 1].near = inexact::unit(one_sided.end.within);
        let elsewhere = &mut live[1 - (one_sided.side & 1)];
        elsewhere.elsewhere = true;
        elsewhere.closed = Some(0);
        self.live.insert(number, live);
        self.packets.insert(number, Default::default());
        Ok(())
    }

    /// A one-sided end sent these (0), or they came to it (1).
    ///
    /// # Errors
    /// One that is not open.
    pub fn packets(
        &mut self,
        connection: u32,
        way: usize,
        packets: &[Packet],
    ) -> Result<(), EncodeError> {
        let known = self.packets.get_mut(&connection);
        let known = known.and_then(|ways| ways.get_mut(way));
        let end = way;
        let way = known.ok_or(EncodeError::Closed { connection, end })?;
        way.held.extend_from_slice(packets);
        self.held += packets.len();
        Ok(())
    }

    fn live(&mut self, connection: u32, end: usize) -> Result<&mut Live, EncodeError> {
        let ends = self.live.get_mut(&connection);
        let live = ends.and_then(|ends| ends.get_mut(end));
        live.filter(|live| live.closed.is_none())
            .ok_or(EncodeError::Closed { connection, end })
    }

    /// A handler ran.
    ///
    /// # Errors
    /// An end that is not open, more outcomes than a run may have.
    pub fn push(&mut self, connection: u32, end: usize, mut run: Run) -> Result<(), EncodeError> {
        let hz = self.encoder.hz();
        let live = self.live(connection, end)?;
        let place = live.first + live.runs.len() as u64;
        let outcomes = run.outcomes.len();
        if outcomes > MAX_OUTCOMES {
            return Err(EncodeError::Outcomes {
                connection,
                end,
                run: place,
                outcomes,
            });
        }
        if live.sampled {
            run.keep_tick(&mut live.before, hz);
        }
        live.runs.push(run);
        self.held += 1 + outcomes;
        Ok(())
    }

    /// A sample of the packets that this end sent.
    ///
    /// # Errors
    /// An end that is not open, or whose runs have their times.
    pub fn sample(
        &mut self,
        connection: u32,
        end: usize,
        sample: Sample,
    ) -> Result<(), EncodeError> {
        let live = self.live(connection, end)?;
        if !live.sampled {
            return Err(EncodeError::Closed { connection, end });
        }
        live.samples.push(sample);
        self.held += 1;
        Ok(())
    }

    /// `lost` runs were lost here; 0 if it is not known how many.
    ///
    /// # Errors
    /// An end that is not open.
    pub fn lost(&mut self, connection: u32, end: usize, runs: u64) -> Result<(), EncodeError> {
        let live = self.live(connection, end)?;
        let gap = live.gap.get_or_insert((live.runs.len() as u64, 0));
        gap.1 = gap.1.saturating_add(runs);
        Ok(())
    }

    /// An end is complete.
    ///
    /// # Errors
    /// An end that is not open.
    pub fn close(&mut self, connection: u32, end: usize, digest: u32) -> Result<(), EncodeError> {
        self.live(connection, end)?.closed = Some(digest);
        Ok(())
    }

    /// Appends frames of what is held.
    ///
    /// # Errors
    /// The compression library refuses.
    pub fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.write(false, out)
    }

    /// Appends the last frames. Ends that are open are whole so far, without a digest.
    ///
    /// # Errors
    /// The compression library refuses.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        for live in self.live.values_mut().flatten() {
            live.closed.get_or_insert(0);
        }
        self.write(true, out)
    }

    fn write(&mut self, last: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.write_packets(out)?;
        let mut block = Block::default();
        for (number, ends) in &self.live {
            for (end, live) in ends.iter().enumerate() {
                for piece in live.pieces(*number, end) {
                    block.push(piece);
                    if block.events >= FRAME_EVENTS {
                        self.encoder.runs(&block.take(), out)?;
                    }
                }
            }
        }
        if !block.pieces.is_empty() {
            self.encoder.runs(&block.take(), out)?;
        }
        let mut totals = Vec::new();
        for (number, ends) in &mut self.live {
            for (end, live) in ends.iter_mut().enumerate() {
                live.written();
                let mut total = live.total(*number, end);
                if let (Some(total), Some(ways)) = (&mut total, self.packets.get(number)) {
                    total.samples = ways.iter().map(|way| way.before).sum();
                }
                totals.extend(total.filter(|_| !live.elsewhere));
            }
        }
        // Written once, when both ends are complete.
        let done: Vec<u32> = (self.live.iter())
            .filter(|(_, ends)| ends.iter().all(|live| live.closed.is_some()))
            .map(|(number, _)| *number)
            .collect();
        totals.retain(|total| done.contains(&total.connection));
        if last || !totals.is_empty() {
            self.encoder.totals(&totals, last, out)?;
        }
        for number in done {
            self.live.remove(&number);
            self.packets.remove(&number);
        }
        self.held = self.live.values().flatten().map(Live::events).sum();
        Ok(())
    }

    fn write_packets(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let ways = self.packets.iter().flat_map(|(number, ways)| {
            let ways = ways.iter().enumerate();
            ways.map(move |(way, it)| (*number, way, it))
        });
        let stretches = ways.flat_map(|(number, way, it)| {
            one_sided_frames::stretches(number, way, it.before, &it.held)
        });
        self.encoder.packets(stretches, out)?;
        for way in self.packets.values_mut().flatten() {
            way.before += way.held.len() as u64;
            way.held.clear();
        }
        Ok(())
    }
}

impl Live {
    fn events(&self) -> usize {
        let outcomes: usize = self.runs.iter().map(|run| run.outcomes.len()).sum();
        self.runs.len() + outcomes + self.samples.len()
    }

    fn pieces(&self, connection: u32, end: usize) -> Vec<Piece<&[Run]>> {
        let ready = self.runs.as_slice();
        let mut pieces = Vec::new();
        let mut expected = self.expected;
        let mut at = 0;
        let mut samples = self.samples.chunks(PIECE_RUNS);
        let mut earlier = self.earlier;
        loop {
            let runs = &ready[at..ready.len().min(at + PIECE_RUNS)];
            let here = at as u64..(at + runs.len()) as u64;
            let last = here.end == ready.len() as u64;
            let gap = self
                .gap
                .filter(|(place, _)| here.contains(place) || (last && *place == here.end));
            let some = samples.next().unwrap_or(&[]);
            if !runs.is_empty() || !some.is_empty() || gap.is_some() {
                pieces.push(Piece {
                    connection,
                    end,
                    first: self.first + here.start,
                    gap: gap.map(|(place, lost)| (place - here.start, lost)),
                    expected,
                    runs,
                    near: self.near,
                    sampled: self.sampled.then(|| (earlier, some.to_vec())),
                });
            }
            earlier += some.len() as u64;
            expected = expected_after(expected, runs);
            at += runs.len();
            if at == ready.len() && samples.len() == 0 {
                return pieces;
            }
        }
    }

    /// Forgets what [`Live::pieces`] gave.
    fn written(&mut self) {
        let ready = self.runs.len();
        self.expected = expected_after(self.expected, &self.runs);
        self.runs.clear();
        self.first += ready as u64;
        self.earlier += self.samples.len() as u64;
        self.samples.clear();
        let later = self
            .gap
            .and_then(|(place, lost)| Some((place.checked_sub(ready as u64)?, lost)));
        self.gap = later.filter(|(place, _)| *place > 0);
    }

    fn total(&self, connection: u32, end: usize) -> Option<Total> {
        Some(Total {
            connection,
            end,
            runs: self.first,
            samples: self.earlier,
            digest: self.closed?,
        })
    }
}

fn expected_after(mut expected: u64, runs: &[Run]) -> u64 {
    for run in runs {
        if let Handler::Packet { number, merged, .. } = run.handler {
            expected = block::after(expected, number, merged);
        }
    }
    expected
}
