// SPDX-License-Identifier: Apache-2.0
//! One connection that the ring holds: its recording's file, as far as it is written.

use super::{Missing, Saved};
use slowpath_recording::{
    Connection, EncodeError, End, Moment, OneSided, Origin, Packet, Run, Settings, Unreplayable,
    Writer,
};
use std::net::SocketAddr;
use std::time::Duration;

/// Runs that are encoded at a time: the fixed cost of a frame, some hundred bytes, is then below a twentieth.
const FRAME: usize = 4_096;
/// What an event takes before it is encoded: a run, or one of its outcomes, which is less.
const EVENT: usize = size_of::<Run>();
/// Reasons that are kept of one connection.
const MOST_REASONS: usize = 16;
/// The only connection of its file.
const NUMBER: u32 = 0;

/// A caller's request to keep it.
pub(super) struct KeepRequest {
    pub(super) reasons: Vec<String>,
    /// When it is to be saved if it lives still; it was not asked for since it was saved: never.
    pub(super) due: Option<Moment>,
    patience: Duration,
}

/// What was not reported yet of a connection that is open.
pub(super) enum Rest {
    Nothing,
    Both([End; 2]),
    OneSided(End, [Vec<Packet>; 2]),
}

pub(super) struct HeldConnection {
    pub(super) addresses: [SocketAddr; 2],
    pub(super) opened: Moment,
    pub(super) ended: Option<Moment>,
    pub(super) asked: Option<KeepRequest>,
    /// Bytes that its joiner takes.
    pub(super) joined: usize,
    /// What the ring has counted for it.
    pub(super) counted: usize,
    pub(super) runs: [u64; 2],
    /// Which end it is, if the other is on another machine.
    one_sided: Option<usize>,
    /// Why it cannot be replayed, once that is known.
    pub(super) unreplayable: Option<Missing>,
    /// Until it has ended.
    writer: Option<Box<Writer>>,
    /// Stretches of the file, one behind the other: it would be copied each time it grows.
    file: Vec<Vec<u8>>,
    length: usize,
    /// Events in frames.
    pub(super) encoded: u64,
}

impl HeldConnection {
    pub(super) fn new(
        origin: &Origin,
        addresses: [SocketAddr; 2],
        settings: Settings,
        opened: Moment,
    ) -> Result<HeldConnection, EncodeError> {
        let (mut writer, mut file) = Writer::new(origin)?;
        let connection = Connection {
            addresses,
            settings,
            ends: Default::default(),
            joint: None,
        };
        writer.open(NUMBER, &connection, &mut file)?;
        Ok(HeldConnection {
            unreplayable: connection.replayable().err().map(Missing::Unreplayable),
            ..HeldConnection::opened(writer, file, addresses, opened)
        })
    }

    /// One whose other end is on another machine.
    pub(super) fn one_sided(
        origin: &Origin,
        one_sided: &OneSided,
        opened: Moment,
    ) -> Result<HeldConnection, EncodeError> {
        let (mut writer, mut file) = Writer::new(origin)?;
        writer.open_one_sided(NUMBER, one_sided, &mut file)?;
        let side = one_sided.side & 1;
        let refused = Unreplayable::of_socket(side, &one_sided.socket);
        Ok(HeldConnection {
            one_sided: Some(side),
            unreplayable: refused.map(Missing::Unreplayable),
            ..HeldConnection::opened(writer, file, one_sided.addresses, opened)
        })
    }

    fn opened(
        writer: Writer,
        mut file: Vec<u8>,
        addresses: [SocketAddr; 2],
        opened: Moment,
    ) -> HeldConnection {
        file.shrink_to_fit();
        HeldConnection {
            addresses,
            one_sided: None,
            opened,
            ended: None,
            asked: None,
            joined: 0,
            counted: 0,
            runs: [0; 2],
            unreplayable: None,
            writer: Some(Box::new(writer)),
            length: file.len(),
            file: vec![file],
            encoded: 0,
        }
    }

    pub(super) fn packets(&mut self, packets: &[Vec<Packet>; 2]) -> Result<(), EncodeError> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        for (way, some) in packets.iter().enumerate() {
            writer.packets(NUMBER, way, some)?;
        }
        if writer.held() >= FRAME {
            self.flush()?;
        }
        Ok(())
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let writer = self.writer.as_ref();
        let writer = writer.map_or(0, |writer| size_of::<Writer>() + writer.held() * EVENT);
        let reasons = self.asked.iter().flat_map(|asked| &asked.reasons);
        let reasons = reasons.map(|it| size_of::<String>() + it.capacity());
        let file = self.length + self.file.capacity() * size_of::<Vec<u8>>();
        size_of::<HeldConnection>() + file + writer + self.joined + reasons.sum::<usize>()
    }

    /// Events that wait to be encoded.
    pub(super) fn waiting(&self) -> usize {
        self.writer.as_ref().map_or(0, |writer| writer.held())
    }

    pub(super) fn file_bytes(&self) -> usize {
        self.length
    }

    fn append(&mut self, mut frames: Vec<u8>) {
        frames.shrink_to_fit();
        self.length += frames.len();
        self.file.push(frames);
    }

    pub(super) fn push(&mut self, end: usize, runs: Vec<Run>) -> Result<(), EncodeError> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        if let (0, Some(first)) = (self.runs[end], runs.first()) {
            self.opened = self.opened.min(first.at);
        }
        if self.unreplayable.is_none() {
            self.unreplayable = refused(end, self.runs[end], &runs).map(Missing::Unreplayable);
        }
        self.runs[end] += runs.len() as u64;
        for run in runs {
            writer.push(NUMBER, end, run)?;
        }
        if writer.held() >= FRAME {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), EncodeError> {
        if let Some(writer) = &mut self.writer {
            self.encoded += writer.held() as u64;
            let mut frames = Vec::new();
            writer.flush(&mut frames)?;
            self.append(frames);
        }
        Ok(())
    }

    /// Both ends are over.
    pub(super) fn close(&mut self, ends: [End; 2], now: Moment) -> Result<(), EncodeError> {
        self.ended = Some(now);
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        let reason = put(&mut writer, &mut self.runs, ends, self.one_sided)?;
        let known = self.unreplayable.take();
        self.unreplayable = known.or(reason.map(Missing::Unreplayable));
        self.encoded += writer.held() as u64;
        let mut frames = Vec::new();
        writer.finish(&mut frames)?;
        self.append(frames);
        Ok(())
    }

    /// It was asked for.
    pub(super) fn ask(&mut self, reason: &str, now: Moment, patience: Duration) {
        let asked = self.asked.get_or_insert_with(|| KeepRequest {
            reasons: Vec::new(),
            due: None,
            patience,
        });
        if asked.reasons.len() < MOST_REASONS && !asked.reasons.iter().any(|it| it == reason) {
            asked.reasons.push(reason.to_owned());
        }
        if asked.due.is_none() {
            let wait = u64::try_from(asked.patience.as_nanos()).unwrap_or(u64::MAX);
            asked.due = Some(Moment(now.0.saturating_add(wait)));
            asked.patience = asked.patience.saturating_mul(2);
        }
    }

    /// The recording as it is, with what has not been reported of it; it is not due any more. `None`: it cannot be replayed, and the reason is noted.
    pub(super) fn save(&mut self, number: u64, rest: Rest) -> Result<Option<Saved>, EncodeError> {
        let mut runs = self.runs;
        let mut file = self.file.concat();
        if let Some(writer) = &self.writer {
            let mut writer = writer.as_ref().clone();
            // Without it the joiner has forgotten the connection: then it is complete so far.
            let ends = match rest {
                Rest::Nothing => Default::default(),
                Rest::Both(ends) => ends,
                Rest::OneSided(end, packets) => {
                    for (way, some) in packets.iter().enumerate() {
                        writer.packets(NUMBER, way, some)?;
                    }
                    let mut ends: [End; 2] = Default::default();
                    ends[self.one_sided.unwrap_or(0)] = end;
                    ends
                }
            };
            let reason = put(&mut writer, &mut runs, ends, self.one_sided)?;
            let known = self.unreplayable.take();
            self.unreplayable = known.or(reason.map(Missing::Unreplayable));
            writer.finish(&mut file)?;
        }
        if self.unreplayable.is_some() {
            return Ok(None);
        }
        if let Some(asked) = &mut self.asked {
            asked.due = None;
        }
        Ok(Some(Saved {
            number,
            addresses: self.addresses,
            opened: self.opened,
            ended: self.ended,
            reasons: self.reasons(),
            runs,
            one_sided: self.one_sided.is_some(),
            cut_short: false,
            file,
        }))
    }

    /// What it was asked for.
    pub(super) fn reasons(&self) -> Vec<String> {
        let asked = self.asked.iter();
        asked.flat_map(|asked| asked.reasons.clone()).collect()
    }
}

/// What of an end's runs no replay can do; `before`: how many ran before them.
fn refused(end: usize, before: u64, runs: &[Run]) -> Option<Unreplayable> {
    let mut runs = runs.iter().zip(before..);
    runs.find_map(|(run, after)| Unreplayable::of_run(end, after, run))
}

/// The last runs of both ends; gives why they cannot be replayed.
fn put(
    writer: &mut Writer,
    runs: &mut [u64; 2],
    ends: [End; 2],
    one_sided: Option<usize>,
) -> Result<Option<Unreplayable>, EncodeError> {
    let mut found = None;
    let here = |(place, _): &(usize, End)| one_sided.is_none_or(|side| side == *place);
    for (place, end) in ends.into_iter().enumerate().filter(here) {
        found = found.or_else(|| refused(place, runs[place], &end.runs));
        runs[place] += end.runs.len() as u64;
        for run in end.runs {
            writer.push(NUMBER, place, run)?;
        }
        if end.gap.is_some() {
            writer.lost(NUMBER, place, end.lost)?;
            found = found.or(Some(Unreplayable::Gap {
                end: place,
                after: runs[place],
            }));
        }
        writer.close(NUMBER, place, end.digest)?;
    }
    Ok(found)
}
