// SPDX-License-Identifier: Apache-2.0
//! The offsets on disk: `intake/offsets`, what is taken of segments that go on, as of the end of an
//! intake file; and `intake/ended`, to which segments that ended are appended.
//!
//! `offsets` is written by draft and rename. Numbers are little-endian; at its end stands the CRC-32
//! of all before. `ended` has the frames of an intake file.

use crate::FleetError;
use crate::decide::Position;
use crate::frame::{self, Fields, Frames};
use crate::layout;
use crate::offsets::{EndedSegment, Offsets};
use crate::runs::Runs;
use slowpath_ship::batch::Prefix;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"slowoff1";

/// Where the offsets are kept.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    dir: PathBuf,
    /// Entries in `ended`, those that were replaced or forgotten included.
    entries: usize,
}

impl Checkpoint {
    /// Reads the offsets in a directory, and the number of the intake file that they include.
    pub(crate) fn load(dir: &Path) -> Result<(Checkpoint, Offsets, u64), FleetError> {
        let path = dir.join("offsets");
        let (mut offsets, as_of) = match fs::read(&path) {
            Ok(bytes) => decode(&bytes).ok_or_else(|| FleetError::Unreadable {
                path: path.clone(),
                reason: "it is damaged or of a newer version; restore it from a copy, or remove \
                         it: agents then send again what they still have, and those rows are \
                         there twice"
                    .to_owned(),
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Offsets::default(), 0),
            Err(e) => return Err(FleetError::io("read", &path)(e)),
        };
        let mut checkpoint = Checkpoint {
            dir: dir.to_owned(),
            entries: 0,
        };
        let path = checkpoint.ended();
        match File::open(&path) {
            Ok(file) => {
                let mut frames = Frames::new(file);
                let read = FleetError::io("read", &path);
                let mut each = || -> io::Result<()> {
                    while let Some((_, payload)) = frames.next_frame()? {
                        checkpoint.entries += 1;
                        if let Some((host, segment)) = decode_ended(payload) {
                            offsets.host(&host).end(segment);
                        }
                    }
                    Ok(())
                };
                each().map_err(read)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(FleetError::io("open", &path)(e)),
        }
        Ok((checkpoint, offsets, as_of))
    }

    /// Writes the offsets as of the end of an intake file.
    pub(crate) fn save(&mut self, offsets: &mut Offsets, as_of: u64) -> Result<(), FleetError> {
        offsets.settle();
        self.append(offsets)?;
        layout::replace(&self.dir.join("offsets"), |file| {
            file.write_all(&encode(offsets, as_of))
        })
    }

    fn ended(&self) -> PathBuf {
        self.dir.join("ended")
    }

    fn append(&mut self, offsets: &mut Offsets) -> Result<(), FleetError> {
        let fresh = offsets.fresh();
        if fresh.is_empty() {
            return Ok(());
        }
        let path = self.ended();
        let kept: usize = offsets.hosts().map(|(_, host)| host.ended.len()).sum();
        if self.entries > 2 * kept + 100_000 {
            layout::replace(&path, |file| {
                for (name, host) in offsets.hosts() {
                    let mut bytes = Vec::new();
                    let entries = host.ended.iter();
                    entries.for_each(|segment| encode_ended(name, segment, &mut bytes));
                    file.write_all(&bytes)?;
                }
                Ok(())
            })?;
            self.entries = kept;
        } else {
            let mut bytes = Vec::new();
            for (host, segment) in fresh {
                encode_ended(host, segment, &mut bytes);
            }
            let file = layout::options().append(true).create(true).open(&path);
            let mut file = file.map_err(FleetError::io("open", &path))?;
            let written = file.write_all(&bytes).and_then(|()| file.sync_data());
            written.map_err(FleetError::io("append to", &path))?;
            self.entries += fresh.len();
        }
        offsets.forget_fresh();
        Ok(())
    }
}

fn encode_ended(host: &str, segment: &EndedSegment, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; frame::HEAD]);
    put_text(host, out);
    out.extend(segment.hash.to_le_bytes());
    put_position(segment.position, out);
    frame::seal(&mut out[start..]);
}

fn decode_ended(payload: &[u8]) -> Option<(String, EndedSegment)> {
    let mut fields = Fields(payload);
    let host = fields.text()?.to_owned();
    let hash = u64::from_le_bytes(fields.array()?);
    let position = take_position(&mut fields)?;
    Some((host, EndedSegment { hash, position }))
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_position(position: Position, out: &mut Vec<u8>) {
    out.extend(position.offset.to_le_bytes());
    out.extend(position.crc.0.to_le_bytes());
    out.push(u8::from(position.ended));
}

fn take_position(fields: &mut Fields<'_>) -> Option<Position> {
    Some(Position {
        offset: u64::from_le_bytes(fields.array()?),
        crc: Prefix(u32::from_le_bytes(fields.array()?)),
        ended: fields.array()? != [0],
    })
}

fn encode(offsets: &Offsets, as_of: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(as_of.to_le_bytes());
    for (name, host) in offsets.hosts() {
        put_text(name, &mut out);
        out.extend((host.live.len() as u32).to_le_bytes());
        for (segment, position) in &host.live {
            put_text(segment, &mut out);
            put_position(*position, &mut out);
        }
        let (spoke, clones) = host.runs.parts();
        for runs in [spoke, clones] {
            out.push(runs.len() as u8);
            runs.iter().for_each(|run| out.extend(run.to_le_bytes()));
        }
    }
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<(Offsets, u64)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut fields = Fields(body.strip_prefix(&MAGIC)?);
    let as_of = u64::from_le_bytes(fields.array()?);
    let mut offsets = Offsets::default();
    while !fields.0.is_empty() {
        let name = fields.text()?.to_owned();
        let live = u32::from_le_bytes(fields.array()?);
        let host = offsets.host(&name);
        for _ in 0..live {
            let segment = fields.text()?.to_owned();
            let position = take_position(&mut fields)?;
            host.live.insert(segment, position);
        }
        let spoke = take_runs(&mut fields)?;
        host.runs = Runs::from_parts(spoke, take_runs(&mut fields)?);
    }
    Some((offsets, as_of))
}

fn take_runs(fields: &mut Fields<'_>) -> Option<Vec<u128>> {
    let [count] = fields.array()?;
    let runs = (0..count).map(|_| Some(u128::from_le_bytes(fields.array()?)));
    runs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_come_back_and_damage_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut checkpoint, mut offsets, as_of) = Checkpoint::load(dir.path()).expect("nothing");
        assert_eq!(as_of, 0);
        let at = |offset, ended| Position {
            offset,
            crc: Prefix(offset as u32),
            ended,
        };
        for n in 0..40u64 {
            offsets.take(&format!("h{}", n % 3), &format!("s{n}"), at(n, n % 2 == 0));
        }
        checkpoint.save(&mut offsets, 7).expect("is saved");
        offsets.take("h0", "s0", at(100, true));
        checkpoint.save(&mut offsets, 8).expect("is saved");
        let (_, again, as_of) = Checkpoint::load(dir.path()).expect("is loaded");
        assert_eq!(as_of, 8);
        for n in 1..40u64 {
            let (host, segment) = (format!("h{}", n % 3), format!("s{n}"));
            assert_eq!(again.position(&host, &segment), at(n, n % 2 == 0));
        }
        assert_eq!(again.position("h0", "s0"), at(100, true));
        assert_eq!(again.position("h1", "s0"), Position::default());
        let path = dir.path().join("offsets");
        let mut bytes = fs::read(&path).expect("is there");
        bytes[30] ^= 1;
        fs::write(&path, bytes).expect("is written");
        assert!(Checkpoint::load(dir.path()).is_err());
    }
}
