// SPDX-License-Identifier: Apache-2.0
//! Where batches go that were let in: what the server wants of the fleet's log.

use slowpath_model::WallMicros;
use slowpath_ship::batch::{Batch, Prefix};
use slowpath_ship::identity::HostName;
use std::net::SocketAddr;

/// A batch of a host that proved who it is.
#[derive(Debug)]
pub struct Delivery {
    /// The host, by its certificate.
    pub host: HostName,
    /// Its end of the connection.
    pub address: SocketAddr,
    /// What it sent.
    pub batch: Batch,
    /// When its last byte was there.
    pub received: WallMicros,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It is flushed up to there.
    Flushed {
        /// Bytes of the segment.
        offset: u64,
        /// The running CRC up to there.
        crc: Prefix,
    },
    /// It begins behind what is flushed.
    Behind {
        /// Up to where the segment is flushed.
        offset: u64,
        /// The running CRC up to there.
        crc: Prefix,
    },
    /// Other bytes are flushed at its place.
    OtherBytes {
        /// Up to where the segment is flushed.
        offset: u64,
        /// The running CRC up to there.
        crc: Prefix,
    },
    /// Another process ships under the same identity, and was there first.
    Clone,
    /// Too much waits: later.
    Busy,
    /// The disk is full.
    Full,
    /// It could not be stored, for this reason.
    Failed(String),
}

/// What the log has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IntakeCounts {
    /// Rows taken since the start.
    pub rows: u64,
    /// Bytes of intake files that are not yet in tables.
    pub unpublished_bytes: u64,
}

/// What an object store has taken of the tables since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreStatus {
    /// Objects written.
    pub objects: u64,
    /// When the last ones were, microseconds since 1970; `None`: none yet.
    pub last_us: Option<i64>,
    /// Why it takes none at present, and since when, microseconds since 1970.
    pub error: Option<(i64, String)>,
}

/// Takes what became of a batch.
pub type Reply = Box<dyn FnOnce(Receipt) + Send>;
/// Takes positions in segments: bytes, and the running CRC up to there.
pub type PositionsReply = Box<dyn FnOnce(Vec<(u64, Prefix)>) + Send>;

/// Who takes batches in.
pub trait Intake: Send + Sync + 'static {
    /// Takes a batch; `reply` is called once, from any thread, as soon as it is flushed or
    /// refused.
    fn submit(&self, delivery: Delivery, reply: Reply);

    /// Gives up to where segments of a host are flushed, in the order of `ids`; 0 of those that
    /// are not known. `reply` is called once, from any thread.
    fn positions(&self, host: &HostName, ids: Vec<String>, reply: PositionsReply);

    /// To be called every second or so.
    fn tick(&self, now: WallMicros) {
        let _ = now;
    }

    /// What was taken.
    fn counts(&self) -> IntakeCounts;

    /// What the object store has taken, if tables go to one.
    fn store(&self) -> Option<StoreStatus> {
        None
    }
}
