// SPDX-License-Identifier: Apache-2.0
//! `ship/state`: what was acknowledged of each segment. An older one only means that bytes are
//! sent again, so nothing waits for its flush, and one that cannot be read counts as none.

use super::form::{Remains, SpoolFacts};
use crate::batch::{GapReason, Prefix};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What is kept of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentState {
    /// Up to where the server has flushed it, bytes.
    pub acknowledged: u64,
    /// The running CRC up to there.
    pub prefix: Prefix,
    /// The server has its end.
    #[serde(default)]
    pub complete: bool,
    /// Up to where its gaps were counted as lost.
    #[serde(default)]
    pub counted: u64,
    /// The server has other bytes of it.
    #[serde(default)]
    pub conflict: bool,
    /// What the server could not read, as begins and ends.
    #[serde(default)]
    pub refused: Vec<(u64, u64)>,
    /// What its spool's header says, once it was read.
    #[serde(default)]
    pub facts: Option<SpoolFacts>,
    /// Its file is gone.
    #[serde(default)]
    pub gone: Option<Remains>,
}

/// The file's contents.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueueState {
    pub segments: BTreeMap<String, SegmentState>,
    /// Bytes that the server will never get, by reason; since the agent joined.
    pub lost_bytes: BTreeMap<GapReason, u64>,
    /// The `start` of the server that answered last.
    #[serde(default)]
    pub server_start: String,
}

/// The most bytes of the file: [`MAX_SEGMENTS`](crate::answers::MAX_SEGMENTS) are 4 MiB.
const MOST: u64 = 16 << 20;

impl QueueState {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match slowpath_files::read(path, MOST) {
            Ok(bytes) => Ok(Self::parse(&bytes).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    /// Behind a line with their checksum.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (line, json) = bytes.split_at_checked(9)?;
        let crc = u32::from_str_radix(std::str::from_utf8(&line[..8]).ok()?, 16).ok()?;
        let intact = line[8] == b'\n' && crc32fast::hash(json) == crc;
        intact.then(|| serde_json::from_slice(json).ok()).flatten()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        // Maps with text keys and numbers: nothing that JSON cannot say.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut bytes = format!("{:08x}\n", crc32fast::hash(&json)).into_bytes();
        bytes.extend(json);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_not_whole_counts_as_none() {
        let mut state = QueueState {
            server_start: "7".to_owned(),
            ..QueueState::default()
        };
        let segment = SegmentState {
            acknowledged: 5,
            facts: Some(SpoolFacts {
                framing: 1,
                schema: 2,
                boot_id: u128::MAX,
                begun_us: -1,
                header: 70,
            }),
            ..SegmentState::default()
        };
        state.segments.insert("a-0".to_owned(), segment);
        state.lost_bytes.insert(GapReason::Damaged, 9);
        let bytes = state.bytes();
        assert_eq!(QueueState::parse(&bytes), Some(state));
        for length in 0..bytes.len() {
            assert_eq!(QueueState::parse(&bytes[..length]), None);
        }
    }
}
