// SPDX-License-Identifier: Apache-2.0
//! How a log is written.

use slowpath_model::Micros;
use std::time::Duration;

/// Whose log it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// The host's name, as in the partition `host=`; at most 255 bytes are kept.
    pub host: String,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`) as a 128-bit number.
    pub boot_id: u128,
}

/// What is deleted when the log is too large or too old: whole hours, and of the newest one whole
/// segments where it is too large by itself. The newest segment always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Most bytes of Parquet files and spools; 1 GiB by default.
    pub max_bytes: u64,
    /// Greatest age, by the wall clock; none by default, because a clock that jumps ahead
    /// would empty the log.
    pub max_age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            max_bytes: 1 << 30,
            max_age: None,
        }
    }
}

/// A part of one core's time: more than nothing, at most all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuShare {
    millionths: u32,
}

impl CpuShare {
    const ALL: u32 = 1_000_000;

    /// From a fraction, 0.01 for one percent; kept within a millionth and all of the core.
    pub fn of_core(fraction: f64) -> Self {
        let millionths = (fraction * f64::from(Self::ALL)).round() as u32;
        CpuShare {
            millionths: millionths.clamp(1, Self::ALL),
        }
    }

    /// So many times as much, at most all.
    pub(crate) fn times(self, count: u64) -> Self {
        let millionths = u64::from(self.millionths).saturating_mul(count);
        CpuShare {
            millionths: millionths.clamp(1, u64::from(Self::ALL)) as u32,
        }
    }

    /// The time in which the share comes to `cpu`.
    pub(crate) fn time_for(self, cpu: Duration) -> Duration {
        cpu.saturating_mul(Self::ALL) / self.millionths
    }
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The age at which records are written to the spool; 250 ms by default. A record is
    /// readable, also after a `kill -9`, once it is twice this age.
    pub batch_age: Duration,
    /// Records waiting for the disk, in bytes of their spool form; 8 MiB by default. Past
    /// that they are dropped and counted.
    pub buffer_bytes: usize,
    /// Length of a segment, by the wall time given to `tick`: a new one begins when that
    /// passes a multiple of it. One hour by default, at least one millisecond.
    pub segment_time: Micros,
    /// Size of a spool at which a new segment begins early; 16 MiB by default, and at most a
    /// quarter of [`Retention::max_bytes`].
    pub segment_bytes: u64,
    /// How often the spool is flushed to the disk; every 10 s by default, `None` for only
    /// when a segment ends. A killed process loses nothing either way; a power cut loses
    /// what was not flushed.
    pub sync_every: Option<Duration>,
    /// Longest row made of contiguous intervals of a connection with the same problems;
    /// 2 s by default, SNAP's aggregation interval (section 3.2). Zero keeps every
    /// interval.
    pub merge_up_to: Micros,
    /// What the conversion of finished segments into Parquet may take of a core while the
    /// writer is open; three times that where several segments wait, and as much as it needs
    /// from 16 on. A conversion then takes minutes: its segment is read from the spool until
    /// it is done. Closing ends the restraint. Default none: as fast as possible.
    pub conversion: Option<CpuShare>,
    /// What is deleted.
    pub retention: Retention,
    /// Whether spools that are in Parquet are moved into `ship` instead of being removed. Whoever
    /// sets it has to ship and delete them; retention counts only what it may delete. Those that a writer before left are
    /// moved in any case where there is such a folder. Default no.
    pub ship: bool,
}

impl Options {
    /// Least size of a spool: a batch of records.
    const LEAST_SEGMENT: u64 = 64 << 10;

    /// With segments so small that a spool, which retention cannot delete, is at most a quarter of
    /// what the log may take.
    pub(crate) fn within_limits(self) -> Self {
        let most = (self.retention.max_bytes / 4).max(Self::LEAST_SEGMENT);
        Options {
            segment_bytes: self.segment_bytes.min(most),
            ..self
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_age: Duration::from_millis(250),
            buffer_bytes: 8 << 20,
            segment_time: Micros(3_600_000_000),
            segment_bytes: 16 << 20,
            sync_every: Some(Duration::from_secs(10)),
            merge_up_to: Micros(2_000_000),
            conversion: None,
            retention: Retention::default(),
            ship: false,
        }
    }
}
