// SPDX-License-Identifier: Apache-2.0
//! A record of a laboratory kernel's runs of TCP's handlers, as it writes them and as it takes them to replay: twin of
//! `lab/kernel/driver/script.h`, which says what each field means.

use super::wire::{Reader, Writer};
use slowpath_recording::{Handler, Timer};

/// `SPLSPCST`.
pub const MAGIC: u64 = 0x5453_4350_534c_5053;
/// Of a run itself (`LAB_RUN_UNCHECKED`): nothing is compared.
pub const UNCHECKED: u8 = 1;

/// Kinds of records; script.h has more, which no laboratory kernel writes yet.
pub mod kind {
    /// A decision of the run that follows it among the kernel's records, or that precedes it in a script.
    pub const DECISION: u8 = 0;
    pub(super) const CONNECT: u8 = 1;
    pub(super) const ACCEPT: u8 = 2;
    pub(super) const BEGIN: u8 = 3;
    pub(super) const SEND: u8 = 4;
    pub(super) const RECEIVE: u8 = 5;
    /// A packet came in.
    pub const PACKET: u8 = 10;
    pub(super) const FIRST_TIMER: u8 = 11;
    pub(super) const LAST_TIMER: u8 = 16;
    pub(super) const SMALL_QUEUE: u8 = 17;
}

const MARKED: u8 = 1;
const BACKLOG: u8 = 2;
const OWNED: u8 = 4;

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
        Some(Record {
            at: from.u64()?,
            jiffies: from.u32()?,
            connection: from.u32()?,
            end: from.u8()?,
            kind: from.u8()?,
            flags: from.u8()?,
            decision: from.u8()?,
            value: from.u32()?,
            result: from.u32()?,
            check: from.u32()?,
            decisions: from.u32()?,
            more: from.u32()?,
        })
    }

    /// As the kernel reads it.
    pub fn write(&self, out: &mut Writer) {
        out.u64s([self.at]);
        out.u32s([self.jiffies, self.connection]);
        out.u8s(&[self.end, self.kind, self.flags, self.decision]);
        out.u32s([
            self.value,
            self.result,
            self.check,
            self.decisions,
            self.more,
        ]);
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
