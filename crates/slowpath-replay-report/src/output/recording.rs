// SPDX-License-Identifier: Apache-2.0
//! What a recording holds.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where a recording was made.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct OriginOutput {
    /// `recording`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The version of the format.
    pub format: u16,
    /// `laboratory`, `bpf` or `tracepoints`.
    pub recorder: String,
    /// The kernel's release.
    pub kernel: String,
    /// Ticks a second.
    pub hz: u32,
    /// Nanoseconds to add to the times of runs for nanoseconds since 1970-01-01 UTC.
    pub epoch_ns: i64,
}

/// A connection with both ends.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ConnectionOutput<'a> {
    /// `recorded_connection`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its number, from 0.
    pub connection: usize,
    /// Address and port of the end that connected.
    pub client: String,
    /// Address and port of the end that accepted.
    pub server: String,
    /// Sysctls of both ends that are not the kernel's defaults.
    pub sysctls: &'a [BTreeMap<String, String>; 2],
    /// Settings of both ends' sockets.
    pub socket: &'a [BTreeMap<String, String>; 2],
    /// The largest IP packet of each end's device.
    pub mtu_bytes: [u32; 2],
}

/// A one-sided end.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RecordedEndOutput<'a> {
    /// `recorded_end`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its number, behind those of the connections.
    pub connection: usize,
    /// `client` or `server`.
    pub end: &'static str,
    /// Address and port of the end that connected.
    pub client: String,
    /// Address and port of the end that accepted.
    pub server: String,
    /// Of the SYN and the SYN-ACK; null: not known.
    pub initial_sequence_numbers: [Option<u32>; 2],
    /// Sysctls that are not the kernel's defaults.
    pub sysctls: &'a BTreeMap<String, String>,
    /// Settings of the socket.
    pub socket: &'a BTreeMap<String, String>,
    /// The largest IP packet of its device.
    pub mtu_bytes: u32,
}

/// A packet by which a one-sided end is joined with its peer.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PacketOutput {
    /// `packet`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The end's number.
    pub connection: usize,
    /// `client` or `server`.
    pub end: &'static str,
    /// `sent` or `came`.
    pub way: &'static str,
    /// Its number among those, from 0.
    pub packet: usize,
    /// The run that sent it.
    pub run: u64,
    /// The IP identification.
    pub identification: u16,
    /// Its sequence number.
    pub begins: u32,
    /// Bytes of sequence space.
    pub length: u32,
    /// What distinguishes packets without identification; 0: nothing.
    pub mark: u32,
}

/// A run of a handler.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RunOutput {
    /// `run`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The connection's number.
    pub connection: usize,
    /// `client` or `server`.
    pub end: &'static str,
    /// Its number, from 0.
    pub run: usize,
    /// When it began, by the host's monotonic clock; null where times are sampled.
    pub at_ns: Option<u64>,
    /// The kernel's ticks then.
    pub jiffies: u32,
    /// The handler.
    pub handler: &'static str,
    /// What the handler was called with.
    #[serde(flatten)]
    pub arguments: ArgumentsOutput,
    /// What it decided from state that a replay lacks.
    pub outcomes: Vec<OutcomeOutput>,
    /// The hash of the connection's state after the run; null: none was kept.
    pub check: Option<u32>,
}

/// What a handler was called with.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) enum ArgumentsOutput {
    /// `send` and `receive`.
    Transfer {
        /// Bytes that the call asked for.
        asked_bytes: u32,
        /// `MSG_*`.
        flags: u32,
        /// What it returned.
        result: i32,
    },
    /// `begin`.
    Begin {
        /// Nothing is known of the path.
        fresh: bool,
    },
    /// `shutdown`.
    Shutdown {
        /// `SHUT_*`.
        how: u8,
    },
    /// `setsockopt`.
    Option {
        /// Its level.
        level: u16,
        /// Its number.
        option: u16,
        /// Its value.
        value: i64,
    },
    /// A packet that came.
    Packet {
        /// Its number among those that the other end sent.
        packet: u32,
        /// It has CE.
        marked: bool,
        /// It waited in the socket's backlog.
        backlog: bool,
        /// The number of packets that are one.
        merged: u16,
        /// Its memory.
        truesize_bytes: u32,
    },
    /// A timer.
    Timer {
        /// Which.
        timer: &'static str,
        /// It was put off until the call had released the lock.
        deferred: bool,
    },
    /// Deferred work.
    Release {
        /// `sk_tsq_flags`.
        flags: u32,
    },
    /// Nothing.
    Nothing {},
}

/// A decision of a run.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct OutcomeOutput {
    /// Its name.
    pub decision: &'static str,
    /// Its place in the run: readings, packets sent or the like before it.
    pub before: u32,
    /// Its result.
    pub value: u32,
}

/// A sample of the times at which an end sent its packets.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SampleOutput {
    /// `sample`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The connection's number.
    pub connection: usize,
    /// `client` or `server`.
    pub end: &'static str,
    /// The packet's number, from 0.
    pub packet: u64,
    /// When it was sent.
    pub sent_ns: u64,
    /// `step_packets` packets from there take so long.
    pub step_ns: u64,
    /// See `step_ns`.
    pub step_packets: u64,
    /// The largest error of a time.
    pub threshold_ns: u32,
}

/// The end of an end.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct EndOutput {
    /// `end`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The connection's number.
    pub connection: usize,
    /// `client` or `server`.
    pub end: &'static str,
    /// Runs recorded.
    pub runs: usize,
    /// Runs before anything is missing.
    pub replayable_runs: u64,
    /// Whether something is missing.
    pub gap: bool,
    /// Runs that are missing; null: not counted.
    pub lost_runs: Option<u64>,
    /// The hash of the last state.
    pub digest: u32,
    /// The largest error of a run's time.
    pub within_ns: u32,
}

/// What a recording's file holds.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct InfoOutput {
    /// Where it was made.
    #[serde(flatten)]
    pub origin: OriginOutput,
    /// The first run, RFC 3339 in UTC.
    pub began: Option<String>,
    /// Connections with both ends.
    pub connections: usize,
    /// One-sided ends.
    pub ends_alone: usize,
    /// Connections that were joined from two machines' recordings.
    pub joined: usize,
    /// Runs of handlers.
    pub runs: u64,
    /// Decisions.
    pub outcomes: u64,
    /// Samples of times.
    pub samples: u64,
    /// Runs whose times are near the true ones.
    pub near_runs: u64,
    /// Where the file's bytes go.
    #[serde(flatten)]
    pub sizes: SizesOutput,
    /// Whether a kernel can have done what it says.
    pub possible: bool,
    /// Why not.
    pub impossible: Option<String>,
    /// Ends of which something is missing.
    pub gaps: Vec<GapOutput>,
    /// What is damaged of the file.
    pub damage: DamageOutput,
}

/// Where a file's bytes go.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SizesOutput {
    /// The file's size.
    pub bytes: u64,
    /// The same for each run.
    pub bytes_per_run: Option<f64>,
    /// Frames of the file.
    pub frames: u64,
    /// Bytes of headers and checksums.
    pub framing_bytes: u64,
    /// Bytes of connections' addresses and settings.
    pub connections_bytes: u64,
    /// Bytes of ends' totals.
    pub totals_bytes: u64,
    /// Bytes of one-sided ends' packets.
    pub packets_bytes: u64,
    /// Bytes of each column.
    pub columns: BTreeMap<&'static str, ColumnOutput>,
}

/// An end of which something is missing.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct GapOutput {
    /// The connection's number.
    pub connection: usize,
    /// `client` or `server`.
    pub end: &'static str,
    /// Runs before it.
    pub replayable_runs: Option<u64>,
    /// Runs that are missing; null: not counted.
    pub lost_runs: Option<u64>,
}

/// What is damaged of a file.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DamageOutput {
    /// The recorder did not end it, or it was cut.
    pub cut: bool,
    /// Damaged stretches.
    pub stretches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Frames that are missing.
    pub missing_frames: u64,
    /// Frames that came twice or late, left out.
    pub repeated_frames: u64,
    /// Frames of kinds that this version does not know.
    pub unknown_frames: u64,
    /// Parts of connections whose beginning is lost.
    pub orphans: u64,
}

/// What a column takes.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ColumnOutput {
    /// Before compression.
    pub plain_bytes: u64,
    /// In the file.
    pub bytes: u64,
}

/// A recording with fewer bytes, compared with the original.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ShrunkOutput<'a> {
    /// `shrunk_recording`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The original's size.
    pub bytes_before: u64,
    /// Its size.
    pub bytes: u64,
    /// Connections in it.
    pub connections: usize,
    /// How many connections have times with each bound.
    pub within: Vec<WithinOutput>,
    /// Numbers of connections that stay as they were.
    pub left_as_they_are: &'a [usize],
    /// Replays of connections.
    pub replays: usize,
    /// What the kernels' processes took.
    pub wall_seconds: f64,
}

/// Connections whose times have one bound.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct WithinOutput {
    /// The largest error of a time; 0: exact.
    pub within_ns: u32,
    /// How many there are.
    pub connections: usize,
}

/// The connections of a recording.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ListOutput {
    /// `recording_list`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `laboratory`, `bpf` or `tracepoints`.
    pub recorder: String,
    /// Those with both ends, then one-sided ends.
    pub connections: Vec<ListedConnection>,
}

/// A connection of a recording.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ListedConnection {
    /// Its number, from 0.
    pub connection: usize,
    /// Address and port of the end that connected.
    pub client: String,
    /// Address and port of the end that accepted.
    pub server: String,
    /// What the client's application wrote; null: that end was not recorded.
    pub client_bytes: Option<u64>,
    /// What the server's application wrote.
    pub server_bytes: Option<u64>,
    /// From an end's first run to its last, of the end that lasted longer.
    pub milliseconds: f64,
    /// Runs of handlers, of both ends.
    pub runs: u64,
    /// Runs of the timer of retransmissions and probes.
    pub write_timers: u64,
    /// Runs of the timer of delayed acknowledgments.
    pub delayed_acks: u64,
    /// `exact`, `other_kernel` (recorded exactly, on another version of Linux than replays run on), `inferred`, `one_sided` or `not_possible`.
    pub replay: &'static str,
    /// Why it cannot be replayed; null: it can.
    pub reason: Option<String>,
}
