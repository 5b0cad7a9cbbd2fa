// SPDX-License-Identifier: Apache-2.0
//! Socket calls: sums for all, call by call for suspects.
//!
//! Without it nothing is known of writes and reads, nor of what data waits for in queues, nor of
//! requests and answers.

use super::connection::{Sums, layouts};
use super::load::Attaching;
use super::{Loss, Probe, object};
use crate::bpf::BpfTier;
use crate::{Call, Direction};
use layouts::direction::DIRECTION_SEND;
use libbpf_rs::{Link, RingBuffer};
use slowpath_layout::{Mirror, mirror};
use slowpath_model::{MonoNanos, Problem};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use zerocopy::FromBytes;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "calls",
    measures: "socket calls, and with `segment` whose turn it is",
    since: "6.3",
    serves: &[Problem::SmallWrites],
    sums: &[Sums::Calls],
    losses: &[("sends", Loss::Call), ("receives", Loss::Call)],
    mirrors: &[CallRecord::LAYOUT],
    object: object!("calls"),
    attach,
    ..Probe::EVENTS
};

/// Call records kept for [`BpfTier::take_calls`]; older ones are dropped and counted.
const MAX_CALLS: usize = 65_536;

mirror! {
    /// `struct call`.
    pub(crate) struct CallRecord = layouts::CALL {
        cookie: u64,
        at_ns: u64,
        bytes: u32,
        direction: u32,
    }
}

/// What the probe keeps while it runs.
struct Calls {
    log: RingBuffer<'static>,
    kept: Rc<RefCell<CallLog>>,
    _events: Vec<Link>,
}

#[derive(Default)]
struct CallLog {
    calls: VecDeque<Call>,
    dropped: u64,
}

fn attach(attaching: &mut Attaching<'_>) -> Result<Box<dyn Any>, libbpf_rs::Error> {
    let kept = Rc::new(RefCell::new(CallLog::default()));
    let log = attaching.ring("call_log", {
        let kept = Rc::clone(&kept);
        move |bytes: &[u8]| {
            if let Ok(call) = CallRecord::read_from_bytes(bytes) {
                kept.borrow_mut().push(&call);
            }
        }
    })?;
    Ok(Box::new(Calls {
        log,
        kept,
        _events: attaching.attach_all()?,
    }))
}

impl CallLog {
    fn push(&mut self, call: &CallRecord) {
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
            self.dropped += 1;
        }
        self.calls.push_back(Call {
            cookie: call.cookie,
            at: MonoNanos(call.at_ns),
            bytes: call.bytes,
            direction: if call.direction == DIRECTION_SEND {
                Direction::Send
            } else {
                Direction::Receive
            },
        });
    }
}

impl BpfTier {
    /// The calls logged since the last time, oldest first.
    pub fn take_calls(&mut self) -> Vec<Call> {
        let Some(calls) = self.state_mut::<Calls>() else {
            return Vec::new();
        };
        // A ring that cannot be read now is read the next time; drops are counted.
        let _ = calls.log.consume();
        calls.kept.borrow_mut().calls.drain(..).collect()
    }

    /// Calls that were dropped because they were not taken in time.
    pub(crate) fn calls_not_kept(&self) -> u64 {
        self.state::<Calls>()
            .map_or(0, |calls| calls.kept.borrow().dropped)
    }
}
