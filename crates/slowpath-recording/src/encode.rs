// SPDX-License-Identifier: Apache-2.0
//! Whole recordings into bytes.

use super::block::{self, MAX_OUTCOMES, Piece};
use super::error::EncodeError;
use super::frame::{Framer, Kind};
use super::inexact;
use super::one_sided::{Joint, OneSided};
use super::one_sided_frames::{self, FRAME_PACKETS, Stretch};
use super::varint::{put, put_address, put_map, put_signed, put_text};
use super::{Connection, End, Handler, Origin, Recording, Run, Settings};
use crate::sampling::Sample;

/// zstd's level: higher ones gain little on columns (decision 0023).
const LEVEL: i32 = 3;
/// Events of a frame, about: what a reader holds at once, and what is lost with one damaged byte.
pub(super) const FRAME_EVENTS: usize = 1 << 18;
/// Runs of a piece, about.
pub(super) const PIECE_RUNS: usize = 1 << 14;
/// Texts of a frame of connections, about.
const FRAME_TEXTS: usize = 1 << 20;

/// Encodes a whole recording.
///
/// # Errors
/// What does not fit a frame, by name. Nothing is left out silently.
pub fn encode(recording: &Recording) -> Result<Vec<u8>, EncodeError> {
    let kept = recording.kept();
    let (mut encoder, mut out) = Encoder::new(&kept.origin)?;
    let numbered = || {
        kept.connections
            .iter()
            .enumerate()
            .map(|(number, connection)| (number as u32, connection))
    };
    // Behind the connections.
    let one_sided = || {
        let first = kept.connections.len();
        (first as u32..).zip(&kept.one_sided)
    };
    if u32::try_from(kept.connections.len() + kept.one_sided.len()).is_err() {
        return Err(EncodeError::Connections);
    }
    encoder.connections(numbered(), &mut out)?;
    let joints = numbered().filter_map(|(number, it)| Some((number, it.joint.as_ref()?)));
    encoder.joints(joints, &mut out)?;
    encoder.one_sided(one_sided(), &mut out)?;
    let packets = one_sided().flat_map(|(number, it)| {
        let sent = one_sided_frames::stretches(number, 0, 0, &it.sent);
        sent.chain(one_sided_frames::stretches(number, 1, 0, &it.came))
    });
    encoder.packets(packets, &mut out)?;
    let mut block = Block::default();
    let both =
        numbered().flat_map(|(number, it)| [(number, 0, &it.ends[0]), (number, 1, &it.ends[1])]);
    let ends: Vec<(u32, usize, &End)> = both
        .chain(one_sided().map(|(number, it)| (number, it.side & 1, &it.end)))
        .collect();
    for (number, place, end) in &ends {
        for piece in pieces(*number, *place, end)? {
            block.push(piece);
            if block.events >= FRAME_EVENTS {
                encoder.runs(&block.take(), &mut out)?;
            }
        }
    }
    if !block.pieces.is_empty() {
        encoder.runs(&block.take(), &mut out)?;
    }
    let totals = ends
        .iter()
        .map(|(number, place, end)| Total::of(*number, *place, end));
    let mut totals: Vec<Total> = totals.collect();
    let both = 2 * kept.connections.len();
    for (total, it) in totals[both..].iter_mut().zip(&kept.one_sided) {
        total.samples = (it.sent.len() + it.came.len()) as u64;
    }
    encoder.totals(&totals, true, &mut out)?;
    Ok(out)
}

fn long(what: &str) -> EncodeError {
    EncodeError::Long {
        what: what.to_owned(),
    }
}

fn origin(origin: &Origin) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, &origin.kernel);
    put_text(&mut out, origin.recorder.name());
    put(&mut out, origin.hz.into());
    put_signed(&mut out, origin.epoch);
    out
}

/// Pieces for one frame.
#[derive(Default)]
pub(super) struct Block<'a> {
    pub(super) pieces: Vec<Piece<&'a [Run]>>,
    pub(super) events: usize,
}

impl<'a> Block<'a> {
    pub(super) fn push(&mut self, piece: Piece<&'a [Run]>) {
        self.events += piece.events();
        self.pieces.push(piece);
    }

    pub(super) fn take(&mut self) -> Vec<Piece<&'a [Run]>> {
        self.events = 0;
        std::mem::take(&mut self.pieces)
    }
}

/// The pieces of an end.
fn pieces(connection: u32, place: usize, end: &End) -> Result<Vec<Piece<&[Run]>>, EncodeError> {
    let mut pieces = Vec::new();
    let mut expected = 0;
    let mut first = 0;
    let mut samples: &[Sample] = end.sent.as_ref().map_or(&[], |sent| &sent.samples);
    let mut before = 0;
    loop {
        let rest = &end.runs[first..];
        let mut length = 0;
        let mut events = 0;
        for run in rest {
            if length >= PIECE_RUNS || events >= FRAME_EVENTS {
                break;
            }
            length += 1;
            events += 1 + run.outcomes.len();
        }
        let runs = &rest[..length];
        if let Some(place_of) = runs
            .iter()
            .position(|run| run.outcomes.len() > MAX_OUTCOMES)
        {
            return Err(EncodeError::Outcomes {
                connection,
                end: place,
                run: (first + place_of) as u64,
                outcomes: runs[place_of].outcomes.len(),
            });
        }
        let last = first + length == end.runs.len();
        let here = first as u64..(first + length) as u64 + u64::from(last);
        let gap = end
            .gap
            .filter(|gap| here.contains(gap))
            .map(|gap| (gap - first as u64, end.lost));
        let (now, later) = samples.split_at(samples.len().min(PIECE_RUNS));
        let piece = Piece {
            connection,
            end: place,
            first: first as u64,
            gap,
            expected,
            runs,
            near: inexact::unit(end.within),
            sampled: end.sent.as_ref().map(|_| (before, now.to_vec())),
        };
        for run in runs {
            if let Handler::Packet { number, merged, .. } = run.handler {
                expected = block::after(expected, number, merged);
            }
        }
        first += length;
        before += now.len() as u64;
        samples = later;
        if !runs.is_empty() || gap.is_some() || !now.is_empty() {
            pieces.push(piece);
        }
        if last && samples.is_empty() {
            return Ok(pieces);
        }
    }
}

/// How much there was of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) connection: u32,
    pub(super) end: usize,
    pub(super) runs: u64,
    pub(super) samples: u64,
    pub(super) digest: u32,
}

impl Total {
    fn of(connection: u32, place: usize, end: &End) -> Total {
        Total {
            connection,
            end: place,
            runs: end.runs.len() as u64,
            samples: end
                .sent
                .as_ref()
                .map_or(0, |sent| sent.samples.len() as u64),
            digest: end.digest,
        }
    }
}

/// Frames of a recording.
#[derive(Clone)]
pub(super) struct Encoder {
    framer: Framer,
    hz: u32,
}

impl Encoder {
    /// And the header.
    pub(super) fn new(from: &Origin) -> Result<(Encoder, Vec<u8>), EncodeError> {
        let hz = from.hz;
        let (framer, header) = Framer::new(&origin(from)).ok_or_else(|| long("the origin"))?;
        Ok((Encoder { framer, hz }, header))
    }

    pub(super) fn hz(&self) -> u32 {
        self.hz
    }

    pub(super) fn connections<'a>(
        &mut self,
        connections: impl Iterator<Item = (u32, &'a Connection)>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.texts(Kind::Connections, connections, put_connection, out)
    }

    pub(super) fn one_sided<'a>(
        &mut self,
        one_sided: impl Iterator<Item = (u32, &'a OneSided)>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.texts(
            Kind::OneSided,
            one_sided,
            one_sided_frames::put_one_sided,
            out,
        )
    }

    pub(super) fn joints<'a>(
        &mut self,
        joints: impl Iterator<Item = (u32, &'a Joint)>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.texts(Kind::Joints, joints, one_sided_frames::put_joint, out)
    }

    /// Something about each of some connections.
    fn texts<T>(
        &mut self,
        kind: Kind,
        all: impl Iterator<Item = (u32, T)>,
        put: impl Fn(u32, T, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut texts = Vec::new();
        let mut last = String::new();
        for (number, it) in all {
            let before = texts.len();
            put(number, it, &mut texts);
            last = format!("connection {number}");
            if texts.len() - before > block::MAX_BYTES {
                return Err(long(&last));
            }
            if texts.len() >= FRAME_TEXTS {
                self.packed(kind, &texts, &last, out)?;
                texts.clear();
            }
        }
        if texts.is_empty() {
            return Ok(());
        }
        self.packed(kind, &texts, &last, out)
    }

    /// Frames of packets of one-sided ends, if there are any.
    pub(super) fn packets<'a>(
        &mut self,
        stretches: impl Iterator<Item = Stretch<'a>>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut stretches = stretches.peekable();
        while stretches.peek().is_some() {
            let mut count = 0;
            let mut some = Vec::new();
            while let Some(it) = stretches.next_if(|_| count < FRAME_PACKETS) {
                count += 1 + it.packets.len();
                some.push(it);
            }
            let payload = one_sided_frames::encode(&some, LEVEL)?;
            if !self.framer.frame(Kind::Packets, &payload, out) {
                return Err(long("packets"));
            }
        }
        Ok(())
    }

    pub(super) fn runs(
        &mut self,
        pieces: &[Piece<&[Run]>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let payload = block::encode(pieces, self.hz, LEVEL)?;
        if self.framer.frame(Kind::Runs, &payload, out) {
            return Ok(());
        }
        Err(long("runs"))
    }

    pub(super) fn totals(
        &mut self,
        totals: &[Total],
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        // At most 26 bytes each.
        let mut chunks = totals.chunks(1 << 17);
        let mut chunk = chunks.next().unwrap_or(&[]);
        loop {
            let next = chunks.next();
            let mut texts = vec![u8::from(last && next.is_none())];
            let mut before = 0;
            for total in chunk {
                let who = i64::from(total.connection) << 1 | total.end as i64;
                put_signed(&mut texts, who - before);
                before = who;
                put(&mut texts, total.runs);
                put(&mut texts, total.samples);
                texts.extend(total.digest.to_le_bytes());
            }
            self.packed(Kind::Totals, &texts, "the totals", out)?;
            match next {
                Some(next) => chunk = next,
                None => return Ok(()),
            }
        }
    }

    fn packed(
        &mut self,
        kind: Kind,
        texts: &[u8],
        what: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut payload = Vec::new();
        block::compress(texts, LEVEL, &mut payload)?;
        if texts.len() <= block::MAX_BYTES && self.framer.frame(kind, &payload, out) {
            return Ok(());
        }
        Err(long(what))
    }
}

fn put_connection(number: u32, connection: &Connection, out: &mut Vec<u8>) {
    put(out, number.into());
    for address in &connection.addresses {
        put_address(address, out);
    }
    let Settings {
        sysctls,
        socket,
        mtu,
    } = &connection.settings;
    for map in sysctls.iter().chain(socket) {
        put_map(map, out);
    }
    for bytes in mtu {
        put(out, (*bytes).into());
    }
    for end in &connection.ends {
        // 0: each run has its time.
        let sampled = end
            .sent
            .as_ref()
            .map_or(0, |sent| 1 + u64::from(sent.threshold));
        put(out, sampled);
        put(out, end.within.into());
    }
}
