// SPDX-License-Identifier: Apache-2.0
//! The files between here and the laboratory kernel: the mirrors of `lab/kernel/driver/plan.h` and `script.h`,
//! which say what each field means. Little-endian.
//!
//! The build compares both sides field by field. A kernel that was built from other headers refuses these files,
//! and this side refuses its files, by [`FORMAT`].

#![allow(missing_docs)]

use slowpath_layout::mirror;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The C side, from the BTF of the driver's headers.
#[allow(dead_code)]
pub(crate) mod layouts {
    include!(concat!(env!("OUT_DIR"), "/layouts.rs"));
}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "the files are little-endian"
);

/// `SPLSPLAB`.
pub const MAGIC: u64 = 0x4241_4c50_534c_5053;
/// Raised with every change of these files; in the name of the kernel's file.
pub const VERSION: u32 = layouts::LAB_VERSION;
/// What files name as their version: it differs where the version or a struct does.
pub const FORMAT: u32 = layouts::LAB_LAYOUT ^ layouts::LAB_VERSION;
/// Not a time.
pub const NEVER: u64 = u64::MAX;

/// Captures are written.
pub const CAPTURE: u32 = layouts::lab_plan_flag::LAB_CAPTURE;
/// Drops, marks and detours are written one by one.
pub const EVENTS: u32 = layouts::lab_plan_flag::LAB_EVENTS;
/// Packets pass a process inside.
pub const THROUGH_PROCESS: u32 = layouts::lab_plan_flag::LAB_THROUGH_PROCESS;
/// Runs of handlers are recorded.
pub const RECORD: u32 = layouts::lab_plan_flag::LAB_RECORD;
/// A script is replayed.
pub const REPLAY: u32 = layouts::lab_plan_flag::LAB_REPLAY;
/// The state after each run is written.
pub const PROBE: u32 = layouts::lab_plan_flag::LAB_PROBE;
/// The script is of a stock kernel, whose calls wait and which has queues.
pub const FOLLOW: u32 = layouts::lab_plan_flag::LAB_FOLLOW;
/// Something about the connections is not as it was.
pub const WHAT_IF: u32 = layouts::lab_plan_flag::LAB_WHAT_IF;
/// What each run left is written.
pub const REPORT: u32 = layouts::lab_plan_flag::LAB_ACCOUNT;
/// With [`PROBE`]: further variables of the socket.
pub const PROBE_MORE: u32 = layouts::lab_plan_flag::LAB_PROBE_MORE;

/// Of a kind: the connection is opened by a handshake when it begins.
pub const HANDSHAKE: u32 = layouts::lab_kind_flag::LAB_HANDSHAKE;
/// Of a kind: no delayed acknowledgments.
pub const ACK_AT_ONCE: u32 = layouts::lab_kind_flag::LAB_ACK_AT_ONCE;
/// Of a kind: the connection speaks IPv6.
pub const IPV6: u32 = layouts::lab_kind_flag::LAB_IPV6;

/// The kinds of events (`enum lab_event_kind`).
pub(crate) mod event {
    use super::layouts::lab_event_kind as c;

    pub(crate) const DROPPED: u8 = c::LAB_DROPPED as u8;
    pub(crate) const MARKED: u8 = c::LAB_MARKED as u8;
    pub(crate) const DETOURED: u8 = c::LAB_DETOURED as u8;
    pub(crate) const QUEUE: u8 = c::LAB_QUEUE as u8;
}

/// How the replay of a connection ended (`enum lab_replay_status`).
pub mod status {
    use super::layouts::lab_replay_status as c;

    pub const EXACT: u32 = c::LAB_EXACT;
    pub const STATE: u32 = c::LAB_DIVERGED_STATE;
    pub const RESULT: u32 = c::LAB_DIVERGED_RESULT;
    pub const TIMER: u32 = c::LAB_DIVERGED_TIMER;
    pub const PACKET: u32 = c::LAB_DIVERGED_PACKET;
    pub const DECISION: u32 = c::LAB_DIVERGED_DECISION;
    pub const DIGEST: u32 = c::LAB_DIVERGED_DIGEST;
    pub const CALL: u32 = c::LAB_DIVERGED_CALL;
    pub const NOT_REPLAYED: u32 = c::LAB_NOT_REPLAYED;
}

mirror! {
    /// `struct lab_plan` of plan.h.
    pub struct RawPlan = layouts::LAB_PLAN {
        magic: u64,
        version: u32,
        hosts: u32,
        kinds: u32,
        connections: u32,
        flows: u64,
        until: u64,
        warm_up: u64,
        open_every: u64,
        info_every: u64,
        sample_every: u64,
        flags: u32,
        snap: u32,
        watched: u32,
        mtu: u32,
        ttl: u32,
        timestamps: u32,
        sack: u32,
        ecn: u32,
        recovery: u32,
        early_retrans: u32,
        reordering: u32,
        slow_start_after_idle: u32,
        moderate_rcvbuf: u32,
        rmem_default: u32,
        rmem_max: u32,
        lines: u32,
        fabric: u64,
        own_mtu: [u32; 2],
        own: [[u32; 60]; 2],
    }

    /// `struct lab_kind` of plan.h.
    pub struct RawKind = layouts::LAB_KIND {
        algorithm: [u8; 16],
        rto_min_ns: u64,
        rto_initial_ns: u64,
        ack_delay_ns: u64,
        accepted_rto_min_ns: u64,
        read_every_ns: u64,
        initial_window: u32,
        initial_ssthresh: u32,
        receive_window: u32,
        mss: u32,
        framing: u32,
        flags: u32,
        read_bytes: u32,
        reserved: u32,
    }

    /// `struct lab_connection` of plan.h.
    pub struct RawConnection = layouts::LAB_CONNECTION {
        from: u32,
        to: u32,
        key: u32,
        port: u16,
        kind: u8,
        class: u8,
        tag: u8,
        reserved: [u8; 7],
    }

    /// `struct lab_flow` of plan.h.
    pub struct RawFlow = layouts::LAB_FLOW {
        start: u64,
        bytes: u64,
        connection: u32,
        chunk: u32,
        every: u64,
    }

    /// `struct lab_watch` of plan.h.
    pub struct RawWatch = layouts::LAB_WATCH {
        node: u32,
        port: u32,
    }

    /// `struct lab_result` of plan.h.
    pub struct RawResult = layouts::LAB_RESULT {
        finish: u64,
        arrived: u64,
        retransmissions: u32,
        timeouts: u32,
    }

    /// `struct lab_event` of plan.h.
    pub struct RawEvent = layouts::LAB_EVENT {
        at: u64,
        node: u32,
        port: u16,
        kind: u8,
        cause: u8,
        packets: u32,
        bytes: u32,
        connection: u32,
        tag: u8,
        reply: u8,
        length: u16,
    }

    /// `struct lab_packet_head` of plan.h.
    pub struct RawPacketHead = layouts::LAB_PACKET_HEAD {
        handle: u64,
        flow: u64,
        bytes: u32,
        destination: u32,
        class_: u8,
        ttl: u8,
        ecn: u8,
        tag: u8,
        reserved: u32,
        host: u32,
        length: u32,
    }

    /// `struct lab_series` of plan.h.
    pub struct RawSeries = layouts::LAB_SERIES {
        at: u64,
        connection: u32,
        length: u32,
    }

    /// `struct lab_summary` of plan.h.
    pub struct RawSummary = layouts::LAB_SUMMARY {
        magic: u64,
        version: u32,
        complete: u32,
        end: u64,
        sent: u64,
        delivered: u64,
        dropped: u64,
        copied: u64,
        inside: u64,
        marked: u64,
        events: u64,
        host_packets: u64,
        captured: u64,
        lost_records: u64,
        corrupted: u64,
        most_inside: u64,
        sent_by_tag: [u64; 8],
        detoured_by_tag: [u64; 8],
    }

    /// `struct lab_run_record` of script.h.
    pub struct RawRun = layouts::LAB_RUN_RECORD {
        at: u64,
        jiffies: u32,
        connection: u32,
        end: u8,
        kind: u8,
        flags: u8,
        decision: u8,
        value: u32,
        result: u32,
        check: u32,
        decisions: u32,
        more: u32,
    }

    /// `struct lab_recording` of script.h.
    pub struct RawRecording = layouts::LAB_RECORDING {
        magic: u64,
        version: u32,
        hz: u32,
        origin: u64,
    }

    /// `struct lab_script` of script.h.
    pub struct RawScript = layouts::LAB_SCRIPT {
        magic: u64,
        version: u32,
        connections: u32,
        records: u64,
        traced_connection: u32,
        traced_side: u32,
        traced_first: u64,
        traced_end: u64,
        stop_connection: u32,
        stop_side: u32,
        stop_run: u64,
    }

    /// `struct lab_script_end` of script.h.
    pub struct RawScriptEnd = layouts::LAB_SCRIPT_END {
        first: u64,
        records: u64,
        packets: u32,
        digest: u32,
        clock: u64,
        flags: u32,
        reserved: u32,
    }

    /// `struct lab_replayed` of script.h.
    pub struct RawReplayed = layouts::LAB_REPLAYED {
        status: u32,
        end: u32,
        run: u64,
        expected: u32,
        found: u32,
        runs: [u64; 2],
        packets: [u64; 2],
    }

    /// `struct lab_done` of script.h.
    pub struct RawDone = layouts::LAB_DONE {
        connection: u32,
        end: u8,
        decision: u8,
        needed: u8,
        reserved: u8,
        first: u32,
        second: u32,
    }

    /// `struct lab_probe` of script.h.
    pub struct RawProbe = layouts::LAB_PROBE {
        connection: u32,
        end: u8,
        kind: u8,
        reserved: u16,
        run: u64,
        at: u64,
        fields: [u32; 40],
    }
}

/// In a node's number: a switch.
pub const SWITCH: u32 = 1 << 31;

/// Something of a fixed layout, written field by field.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// A struct.
    pub fn put(&mut self, it: &(impl IntoBytes + Immutable)) {
        self.u8s(it.as_bytes());
    }
    /// Bytes.
    pub fn u8s(&mut self, values: &[u8]) {
        self.0.extend_from_slice(values);
    }
    /// One number.
    pub fn u16(&mut self, value: u16) {
        self.u8s(&value.to_le_bytes());
    }
    /// Numbers.
    pub fn u32s<const N: usize>(&mut self, values: [u32; N]) {
        for value in values {
            self.u8s(&value.to_le_bytes());
        }
    }
    /// Numbers.
    pub fn u64s<const N: usize>(&mut self, values: [u64; N]) {
        for value in values {
            self.u8s(&value.to_le_bytes());
        }
    }
}

/// Reads field by field; `None` where the bytes end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// A struct.
    pub fn get<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        let (it, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(it)
    }
    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
    /// One number.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    /// One number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// One number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// One number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// One number.
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
    /// Whether all has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
