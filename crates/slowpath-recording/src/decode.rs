// SPDX-License-Identifier: Apache-2.0
//! Bytes into recordings: whatever is intact of them, and where something is not.

use super::block::{self, ReadPiece};
use super::encode::Total;
use super::error::{DecodeError, Nonsense};
use super::frame::{self, Damage, Kind};
use super::one_sided::{Joint, OneSided};
use super::one_sided_frames;
use super::varint::Bytes;
use super::{Connection, End, Origin, Recording, Sent, Settings};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Runs, outcomes and samples that [`decode`] takes: 1 to 2 GB of memory.
pub const MAX_EVENTS: u64 = 1 << 24;

/// Bytes of a frame, decompressed, that count as an event where they hold fewer.
const BYTES: usize = 64;
/// Events of connections that are not wanted that count as one.
const PASSED: u64 = 16;

/// A recording, and what was wrong with its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What is intact. Where something is not, the ends that it touches have a gap.
    pub recording: Recording,
    /// What is not.
    pub damage: Damage,
}

/// What of a file is wanted, and how much may be taken.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// Only the runs of the connection with that number; of the others, no runs and a gap at the beginning.
    pub connection: Option<u32>,
    /// Runs, outcomes and samples at most.
    pub events: u64,
}

impl Default for Selection {
    fn default() -> Self {
        Selection {
            connection: None,
            events: MAX_EVENTS,
        }
    }
}

/// Decodes a recording. Ends of which something is missing have a gap: they cannot be replayed from there on.
///
/// # Errors
/// When it is no recording, or no intact one of this version; when an intact part of it makes no sense; when it holds too much.
pub fn decode(file: &[u8]) -> Result<Recording, DecodeError> {
    decode_with(file, Selection::default()).map(|decoded| decoded.recording)
}

/// The same, with what is wrong.
///
/// # Errors
/// See [`decode`].
pub fn decode_with(file: &[u8], wanted: Selection) -> Result<Decoded, DecodeError> {
    let (header, mut frames) = frame::open(file)?;
    let origin = origin(header).map_err(|reason| DecodeError::Nonsense {
        part: "header",
        offset: 0,
        reason,
    })?;
    let mut reading = Reading {
        wanted,
        hz: origin.hz,
        left: wanted.events,
        connections: BTreeMap::new(),
        one_sided: BTreeMap::new(),
        joints: BTreeMap::new(),
        orphans: 0,
        ended: false,
    };
    for frame in frames.by_ref() {
        let (part, read) = match frame.kind {
            Kind::Connections => ("frame of connections", reading.connections(frame.payload)),
            Kind::Runs => ("frame of runs", reading.runs(frame.payload)),
            Kind::Totals => ("frame of totals", reading.totals(frame.payload)),
            Kind::OneSided => ("frame of one-sided ends", reading.one_sided(frame.payload)),
            Kind::Packets => ("frame of packets", reading.packets(frame.payload)),
            Kind::Joints => ("frame of joints", reading.joints(frame.payload)),
        };
        read.map_err(|refused| match refused {
            Refused::Nonsense(reason) => DecodeError::Nonsense {
                part,
                offset: frame.offset,
                reason,
            },
            Refused::TooMany => DecodeError::TooMany {
                limit: wanted.events,
            },
        })?;
    }
    let mut damage = std::mem::take(&mut frames.damage);
    damage.cut = !reading.ended;
    damage.orphans = reading.orphans;
    let (connections, one_sided) = reading.finish();
    Ok(Decoded {
        recording: Recording {
            origin,
            connections,
            one_sided,
        },
        damage,
    })
}

fn origin(header: &[u8]) -> Result<Origin, Nonsense> {
    let mut bytes = Bytes::new(header, "the origin");
    let origin = Origin {
        kernel: bytes.text()?,
        recorder: bytes.text()?.into(),
        hz: bytes.narrow()?,
        epoch: bytes.signed()?,
    };
    bytes.end()?;
    Ok(origin)
}

enum Refused {
    Nonsense(Nonsense),
    TooMany,
}

impl From<Nonsense> for Refused {
    fn from(reason: Nonsense) -> Self {
        Refused::Nonsense(reason)
    }
}

/// An end as far as it is read.
#[derive(Default)]
struct Partial {
    end: End,
    /// Runs that were written before the next piece's, also those that are missing here.
    runs: u64,
    samples: u64,
    /// Of a one-sided end: those that are here.
    packets: Option<u64>,
    complete: bool,
}

struct Entry {
    addresses: [SocketAddr; 2],
    settings: Settings,
    ends: [Partial; 2],
}

struct Reading {
    wanted: Selection,
    hz: u32,
    left: u64,
    connections: BTreeMap<u32, Entry>,
    /// Its end is assembled separately.
    one_sided: BTreeMap<u32, (OneSided, Partial)>,
    joints: BTreeMap<u32, Joint>,
    orphans: u64,
    ended: bool,
}

fn contradiction(what: &'static str) -> Refused {
    Refused::Nonsense(Nonsense::Contradiction { what })
}

impl Reading {
    /// Counts events against what may be taken.
    fn spend(&mut self, events: usize) -> Result<(), Refused> {
        self.left = self
            .left
            .checked_sub(events as u64)
            .ok_or(Refused::TooMany)?;
        Ok(())
    }

    fn connections(&mut self, payload: &[u8]) -> Result<(), Refused> {
        let texts = unpack(payload, "connections")?;
        self.spend(texts.len() / BYTES)?;
        let mut bytes = Bytes::new(&texts, "connections");
        while bytes.len() > 0 {
            let (number, entry) = connection(&mut bytes)?;
            let twice = self.connections.insert(number, entry).is_some();
            if twice || self.one_sided.contains_key(&number) {
                return Err(contradiction("connections"));
            }
        }
        Ok(())
    }

    fn one_sided(&mut self, payload: &[u8]) -> Result<(), Refused> {
        let texts = unpack(payload, "one-sided ends")?;
        self.spend(texts.len() / BYTES)?;
        let mut bytes = Bytes::new(&texts, "one-sided ends");
        while bytes.len() > 0 {
            let (number, one_sided) = one_sided_frames::one_sided(&mut bytes)?;
            let mut partial = Partial {
                packets: Some(0),
                ..Partial::default()
            };
            partial.end.within = one_sided.end.within;
            let twice = self
                .one_sided
                .insert(number, (one_sided, partial))
                .is_some();
            if twice || self.connections.contains_key(&number) {
                return Err(contradiction("one-sided ends"));
            }
        }
        Ok(())
    }

    fn joints(&mut self, payload: &[u8]) -> Result<(), Refused> {
        let texts = unpack(payload, "joints")?;
        self.spend(texts.len() / BYTES)?;
        let mut bytes = Bytes::new(&texts, "joints");
        while bytes.len() > 0 {
            let (number, joint) = one_sided_frames::joint(&mut bytes)?;
            if self.joints.insert(number, joint).is_some() {
                return Err(contradiction("joints"));
            }
        }
        Ok(())
    }

    fn packets(&mut self, payload: &[u8]) -> Result<(), Refused> {
        let (stretches, bytes) = one_sided_frames::decode(payload)?;
        let count: usize = stretches.iter().map(|it| 1 + it.packets.len()).sum();
        self.spend(count.max(bytes / BYTES))?;
        for stretch in stretches {
            let Some((one_sided, partial)) = self.one_sided.get_mut(&stretch.number) else {
                self.orphans += 1;
                continue;
            };
            let list = match stretch.way {
                0 => &mut one_sided.sent,
                _ => &mut one_sided.came,
            };
            match stretch.before.checked_sub(list.len() as u64) {
                Some(0) if !partial.complete => {
                    list.extend_from_slice(&stretch.packets);
                    let packets = partial.packets.get_or_insert_default();
                    *packets += stretch.packets.len() as u64;
                }
                // Some are missing: nothing can be said of any behind them.
                Some(1..) => partial.end.gap = Some(0),
                None if partial.end.gap == Some(0) => {}
                _ => return Err(contradiction("packets")),
            }
        }
        Ok(())
    }

    /// An end of a connection, or a one-sided end.
    fn partial(&mut self, number: u32, end: usize) -> Option<&mut Partial> {
        match self.one_sided.get_mut(&number) {
            Some((one_sided, partial)) => (one_sided.side == end).then_some(partial),
            None => Some(&mut self.connections.get_mut(&number)?.ends[end]),
        }
    }

    fn runs(&mut self, payload: &[u8]) -> Result<(), Refused> {
        let block = block::decode(payload, self.hz)?;
        let events: usize = block.pieces.iter().map(ReadPiece::events).sum();
        self.spend((block.bytes / BYTES).saturating_sub(events))?;
        for piece in block.pieces {
            let events = piece.events() as u64;
            let wanted = self.wanted.connection;
            let wanted = wanted.is_none_or(|wanted| wanted == piece.connection);
            let left = self.left;
            let Some(partial) = self.partial(piece.connection, piece.end) else {
                self.orphans += 1;
                continue;
            };
            let spent = if wanted { events } else { events / PASSED };
            let left = left.checked_sub(spent).ok_or(Refused::TooMany)?;
            partial.take(piece, wanted)?;
            self.left = left;
        }
        Ok(())
    }

    fn totals(&mut self, payload: &[u8]) -> Result<(), Refused> {
        if self.ended {
            return Err(contradiction("totals"));
        }
        let texts = unpack(payload, "totals")?;
        self.spend(texts.len() / BYTES)?;
        let mut bytes = Bytes::new(&texts, "totals");
        self.ended = match bytes.byte()? {
            0 => false,
            1 => true,
            number => {
                let number = number.into();
                return Err(Nonsense::Unknown {
                    what: "totals",
                    number,
                }
                .into());
            }
        };
        let mut who = 0i64;
        while bytes.len() > 0 {
            who = who.wrapping_add(bytes.signed()?);
            let connection = u32::try_from(who >> 1);
            let total = Total {
                connection: connection.map_err(|_| Nonsense::Large { what: "totals" })?,
                end: (who & 1) as usize,
                runs: bytes.number()?,
                samples: bytes.number()?,
                digest: u32::from_le_bytes(bytes.array()?),
            };
            let Some(partial) = self.partial(total.connection, total.end) else {
                self.orphans += 1;
                continue;
            };
            partial.total(&total)?;
        }
        Ok(())
    }

    fn finish(self) -> (Vec<Connection>, Vec<OneSided>) {
        let mut joints = self.joints;
        let connections = self.connections.into_iter();
        let connections = connections.map(|(number, entry)| Connection {
            addresses: entry.addresses,
            settings: entry.settings,
            ends: entry.ends.map(Partial::finish),
            joint: joints.remove(&number),
        });
        let one_sided = self
            .one_sided
            .into_values()
            .map(|(one_sided, partial)| OneSided {
                end: partial.finish(),
                ..one_sided
            });
        (connections.collect(), one_sided.collect())
    }
}

impl Partial {
    /// `lost` events are missing here.
    fn gap(&mut self, lost: u64) {
        self.end.gap.get_or_insert(self.end.runs.len() as u64);
        self.end.lost = self.end.lost.saturating_add(lost);
    }

    fn take(&mut self, piece: ReadPiece, wanted: bool) -> Result<(), Refused> {
        let samples = piece.sampled.as_ref().map(|(before, _)| *before);
        if self.complete || self.end.sent.is_some() != samples.is_some() {
            return Err(contradiction("runs"));
        }
        self.skip(piece.first, samples.unwrap_or(0))?;
        let runs = piece.runs.len() as u64;
        self.runs = self
            .runs
            .checked_add(runs)
            .ok_or_else(|| contradiction("runs"))?;
        if !wanted {
            // Said in `Selection`.
            self.end.gap = Some(0);
            return Ok(());
        }
        if let Some((after, lost)) = piece.gap {
            let place = self.end.runs.len() as u64 + after;
            self.end.gap.get_or_insert(place);
            self.end.lost = self.end.lost.saturating_add(lost);
        }
        self.end.runs.extend(piece.runs);
        if let (Some(sent), Some((_, samples))) = (&mut self.end.sent, piece.sampled) {
            self.samples += samples.len() as u64;
            sent.samples.extend(samples);
        }
        Ok(())
    }

    /// Goes on at that run and sample. What is between is missing.
    fn skip(&mut self, runs: u64, samples: u64) -> Result<(), Refused> {
        let lost = runs
            .checked_sub(self.runs)
            .ok_or_else(|| contradiction("runs"))?;
        let unsampled = samples.checked_sub(self.samples);
        let unsampled = unsampled.ok_or_else(|| contradiction("samples"))?;
        if lost > 0 || unsampled > 0 {
            self.gap(lost);
        }
        self.runs = runs;
        self.samples = samples;
        Ok(())
    }

    fn total(&mut self, total: &Total) -> Result<(), Refused> {
        if self.complete {
            return Err(contradiction("totals"));
        }
        let samples = match self.packets {
            None => total.samples,
            Some(here) if here > total.samples && self.end.gap != Some(0) => {
                return Err(contradiction("totals"));
            }
            Some(here) => {
                if here < total.samples {
                    self.end.gap = Some(0);
                }
                0
            }
        };
        self.skip(total.runs, samples)?;
        self.end.digest = total.digest;
        self.complete = true;
        Ok(())
    }

    fn finish(mut self) -> End {
        if !self.complete {
            self.gap(0);
        }
        self.end
    }
}

fn unpack(payload: &[u8], what: &'static str) -> Result<Vec<u8>, Nonsense> {
    let mut bytes = Bytes::new(payload, what);
    let mut budget = block::MAX_BYTES;
    let texts = block::decompress(&mut bytes, &mut budget, what)?;
    bytes.end()?;
    Ok(texts)
}

fn connection(bytes: &mut Bytes<'_>) -> Result<(u32, Entry), Nonsense> {
    let number = bytes.narrow()?;
    let addresses = [address(bytes)?, address(bytes)?];
    let settings = Settings {
        sysctls: [map(bytes)?, map(bytes)?],
        socket: [map(bytes)?, map(bytes)?],
        mtu: [bytes.narrow()?, bytes.narrow()?],
    };
    let mut ends = [Partial::default(), Partial::default()];
    for partial in &mut ends {
        if let Some(threshold) = bytes.number()?.checked_sub(1) {
            let threshold = u32::try_from(threshold);
            partial.end.sent = Some(Sent {
                threshold: threshold.map_err(|_| Nonsense::Large {
                    what: "connections",
                })?,
                samples: Vec::new(),
            });
        }
        partial.end.within = bytes.narrow()?;
    }
    let entry = Entry {
        addresses,
        settings,
        ends,
    };
    Ok((number, entry))
}

pub(super) fn address(bytes: &mut Bytes<'_>) -> Result<SocketAddr, Nonsense> {
    match bytes.byte()? {
        4 => {
            let ip = Ipv4Addr::from(bytes.array::<4>()?);
            Ok(SocketAddrV4::new(ip, bytes.narrow()?).into())
        }
        6 => {
            let ip = Ipv6Addr::from(bytes.array::<16>()?);
            let (flow, scope) = (bytes.narrow()?, bytes.narrow()?);
            Ok(SocketAddrV6::new(ip, bytes.narrow()?, flow, scope).into())
        }
        family => Err(Nonsense::Unknown {
            what: "address family",
            number: family.into(),
        }),
    }
}

pub(super) fn map(bytes: &mut Bytes<'_>) -> Result<BTreeMap<String, String>, Nonsense> {
    let mut map = BTreeMap::new();
    for _ in 0..bytes.number()? {
        let name = bytes.text()?;
        if map.insert(name, bytes.text()?).is_some() {
            return Err(Nonsense::Contradiction { what: "settings" });
        }
    }
    Ok(map)
}
