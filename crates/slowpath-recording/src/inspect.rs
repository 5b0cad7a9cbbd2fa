// SPDX-License-Identifier: Apache-2.0
//! Where the bytes of a recording's file go.

use super::block::{self, Size};
use super::error::DecodeError;
use super::frame::{self, Kind};
use std::collections::BTreeMap;

/// Where the bytes of a file go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the file.
    pub file: u64,
    /// Of its header, and of what stands before each frame's payload.
    pub framing: u64,
    /// Addresses and settings.
    pub connections: u64,
    /// Packets of one-sided ends.
    pub packets: u64,
    /// How much there was of each end.
    pub totals: u64,
    /// The columns of runs, by name.
    pub columns: BTreeMap<&'static str, Size>,
    /// Frames.
    pub frames: u64,
}

/// Says where the bytes of a file go; what is damaged is left out.
///
/// # Errors
/// As [`decode`](super::decode), where something makes no sense.
pub fn inspect(file: &[u8]) -> Result<Sizes, DecodeError> {
    let (_, frames) = frame::open(file)?;
    let mut sizes = Sizes {
        file: file.len() as u64,
        ..Sizes::default()
    };
    let mut payloads = 0;
    for frame in frames {
        let bytes = frame.payload.len() as u64;
        payloads += bytes;
        sizes.frames += 1;
        match frame.kind {
            Kind::Connections | Kind::OneSided | Kind::Joints => sizes.connections += bytes,
            Kind::Packets => sizes.packets += bytes,
            Kind::Totals => sizes.totals += bytes,
            Kind::Runs => {
                let columns = block::sizes(frame.payload);
                let columns = columns.map_err(|reason| DecodeError::Nonsense {
                    part: "frame of runs",
                    offset: frame.offset,
                    reason,
                })?;
                for (name, size) in columns {
                    let sum = sizes.columns.entry(name).or_default();
                    sum.plain += size.plain;
                    sum.kept += size.kept;
                }
            }
        }
    }
    sizes.framing = sizes.file - payloads;
    Ok(sizes)
}
