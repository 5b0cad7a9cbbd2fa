// SPDX-License-Identifier: Apache-2.0
//! A record of a laboratory kernel's runs of TCP's handlers, as it writes them and as it takes them to replay: twin of
//! `lab/kernel/driver/script.h`, which says what each field means.

use super::wire::layouts::lab_run_flag;
use super::wire::{RawRun, Reader, Writer};
use slowpath_recording::{Handler, Timer};

/// `SPLSPCST`.
pub const MAGIC: u64 = 0x5453_4350_534c_5053;
/// Of a run itself (`LAB_RUN_UNCHECKED`): nothing is compared.
pub const UNCHECKED: u8 = 1;

/// Kinds of records; script.h has more, which no laboratory kernel writes yet.
pub mod kind {
    use crate::virtual_time::wire::layouts::lab_run_kind as c;

    /// A decision of the run that follows it among the kernel's records, or that precedes it in a script.
    pub const DECISION: u8 = c::LAB_RUN_DECISION as u8;
    pub(super) const CONNECT: u8 = c::LAB_RUN_CONNECT as u8;
    pub(super) const ACCEPT: u8 = c::LAB_RUN_ACCEPT as u8;
    pub(super) const BEGIN: u8 = c::LAB_RUN_BEGIN as u8;
    pub(super) const SEND: u8 = c::LAB_RUN_SEND as u8;
    pub(super) const RECEIVE: u8 = c::LAB_RUN_RECEIVE as u8;
    /// A packet came in.
    pub const PACKET: u8 = c::LAB_RUN_PACKET as u8;
    pub(super) const FIRST_TIMER: u8 = c::LAB_RUN_WRITE_TIMER as u8;
    pub(super) const LAST_TIMER: u8 = c::LAB_RUN_REQUEST_TIMER as u8;
    pub(super) const SMALL_QUEUE: u8 = c::LAB_RUN_SMALL_QUEUE as u8;
}

const MARKED: u8 = lab_run_flag::LAB_RUN_MARKED as u8;
const BACKLOG: u8 = lab_run_flag::LAB_RUN_BACKLOG as u8;
const OWNED: u8 = lab_run_flag::LAB_RUN_OWNED as u8;

const TIMERS: [Timer; 6] = Timer::ALL;

/// `struct lab_run_record`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Nanoseconds of the recorded host's monotonic clock.
    pub at: u64,
    /// `jiffies` then, the lower 32 bits.
    pub jiffies: u32,
    /// The connection's place.
    pub connection: u32,
    /// 0: the end that connected.
    pub end: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// `LAB_RUN_*`.
    pub flags: u8,
    /// Which decision; of a run [`UNCHECKED`] or 0.
    pub decision: u8,
    /// By kind.
    pub value: u32,
    /// By kind.
    pub result: u32,
    /// The check of the state that the run left.
    pub check: u32,
    /// How many decisions belong to the run.
    pub decisions: u32,
    /// By kind.
    pub more: u32,
}

impl Record {
    /// `None`: the bytes end.
    pub fn read(from: &mut Reader<'_>) -> Option<Self> {
        let raw: RawRun = from.get()?;
        Some(Record {
            at: raw.at,
            jiffies: raw.jiffies,
            connection: raw.connection,
            end: raw.end,
            kind: raw.kind,
            flags: raw.flags,
            decision: raw.decision,
            value: raw.value,
            result: raw.result,
            check: raw.check,
            decisions: raw.decisions,
            more: raw.more,
        })
    }

    /// As the kernel reads it.
    pub fn write(&self, out: &mut Writer) {
        out.put(&RawRun {
            at: self.at,
            jiffies: self.jiffies,
            connection: self.connection,
            end: self.end,
            kind: self.kind,
            flags: self.flags,
            decision: self.decision,
            value: self.value,
            result: self.result,
            check: self.check,
            decisions: self.decisions,
            more: self.more,
        });
    }

    /// `None`: the kernel of the laboratory writes none such.
    pub fn handler(&self) -> Option<Handler> {
        Some(match self.kind {
            kind::CONNECT => Handler::Connect,
            kind::ACCEPT => Handler::Accept,
            kind::BEGIN => Handler::Begin {
                fresh: self.value != 0,
            },
            kind::SEND => Handler::Send {
                bytes: self.value,
                flags: 0,
                result: self.result as i32,
            },
            kind::RECEIVE => Handler::Receive {
                bytes: self.value,
                flags: 0,
                result: self.result as i32,
            },
            kind::PACKET => Handler::Packet {
                number: self.value,
                marked: self.flags & MARKED != 0,
                backlog: self.flags & BACKLOG != 0,
                merged: 1,
                truesize: self.result,
            },
            kind @ kind::FIRST_TIMER..=kind::LAST_TIMER => Handler::Timer {
                timer: *TIMERS.get(usize::from(kind - kind::FIRST_TIMER))?,
                deferred: self.flags & OWNED != 0,
            },
            kind::SMALL_QUEUE => Handler::SmallQueue,
            _ => return None,
        })
    }
}
