// SPDX-License-Identifier: Apache-2.0
//! Opening and closing of connections. Nothing works without it.

use super::connection::Record;
use super::load::Attaching;
use super::{Loss, Probe, object};
use libbpf_rs::{Link, RingBuffer};
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use zerocopy::FromBytes;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "lifecycle",
    measures: "opening and closing, in every network namespace",
    since: "5.11",
    required: true,
    losses: &[("lifecycle", Loss::Close)],
    object: object!("lifecycle"),
    attach,
    ..Probe::EVENTS
};

/// What the probe keeps while it runs: connections that have closed.
pub(crate) struct Closes {
    ring: RingBuffer<'static>,
    closed: Rc<RefCell<Vec<Record>>>,
    _events: Vec<Link>,
}

fn attach(attaching: &mut Attaching<'_>) -> Result<Box<dyn Any>, libbpf_rs::Error> {
    let closed = Rc::new(RefCell::new(Vec::new()));
    let ring = attaching.ring("closes", {
        let closed = Rc::clone(&closed);
        move |bytes: &[u8]| {
            if let Ok(record) = Record::read_from_bytes(bytes) {
                closed.borrow_mut().push(record);
            }
        }
    })?;
    Ok(Box::new(Closes {
        ring,
        closed,
        _events: attaching.attach_all()?,
    }))
}

impl Closes {
    /// The final records since the last time.
    pub(crate) fn take(&mut self) -> Result<Rc<RefCell<Vec<Record>>>, libbpf_rs::Error> {
        self.ring.consume()?;
        Ok(Rc::clone(&self.closed))
    }
}
