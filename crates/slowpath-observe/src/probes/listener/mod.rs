// SPDX-License-Identifier: Apache-2.0
//! Listening sockets: their queues and what they dropped. A walk over their storage hands over those that have
//! something to show, in every network namespace.
//!
//! Without it listeners come from inet_diag, of the namespaces that it can enter, and nothing
//! says who called listen(2).

use super::load::Attaching;
use super::{Probe, object};
use crate::bpf::mapped::Mapped;
use crate::bpf::iterator::drain;
use crate::bpf::{BpfTier, PollError};
use crate::listeners::{ListenerRound, ListenerSighting};
use crate::probes::connection::layouts::{self, listener_flag::*};
use libbpf_rs::{Iter, Link, RingBuffer};
use slowpath_layout::{Mirror, mirror};
use slowpath_model::{
    ListenSettings, ListenerId, ListenerSnapshot, Micros, MonoNanos, Owner, Problem, Tier,
    normalise,
};
use std::any::Any;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use zerocopy::FromBytes;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "listener",
    measures: "queues of listening sockets, in every network namespace",
    since: "5.11",
    serves: &[Problem::AcceptQueueOverflow, Problem::SynQueueOverflow],
    within_polls: &["walk_listeners"],
    mirrors: &[ListenerRecord::LAYOUT, Listening::LAYOUT],
    object: object!("listener"),
    attach,
    ..Probe::EVENTS
};

const AF_INET6: u8 = 10;
mirror! {
    /// `struct listener_record` of `probes/listener/mod.bpf.c`.
    struct ListenerRecord = layouts::LISTENER_RECORD {
        cookie: u64,
        netns_cookie: u64,
        at_ns: u64,
        netns: u32,
        pid: u32,
        base_drops: u32,
        drops: u32,
        accept_queue: u32,
        backlog: u32,
        syn_queue: u32,
        young: u32,
        cookie_jiffies: u32,
        somaxconn: u32,
        max_syn_backlog: u32,
        port: u16,
        family: u8,
        flags: u8,
        syncookies: u8,
        abort_on_overflow: u8,
        pad: u16,
        address: [u8; 16],
        command: [u8; 16],
        pad2: u32,
    }

    /// `struct listening`.
    struct Listening = layouts::LISTENING {
        emit_all: u64,
        opened: u64,
        closed: u64,
        storage_failed: u64,
        closes_dropped: u64,
        visited: u64,
    }
}

impl ListenerRecord {
    fn has(&self, flag: u32) -> bool {
        u32::from(self.flags) & flag != 0
    }

    fn sighting(&self, boot_id: u128, hz: u32) -> ListenerSighting {
        let ip: IpAddr = if self.family == AF_INET6 {
            Ipv6Addr::from(self.address).into()
        } else {
            let [a, b, c, d, ..] = self.address;
            Ipv4Addr::new(a, b, c, d).into()
        };
        let cookie_age = (self.cookie_jiffies != u32::MAX).then(|| {
            let jiffies = u64::from(self.cookie_jiffies);
            Micros(jiffies * 1_000_000 / u64::from(hz.max(1)))
        });
        ListenerSighting {
            snapshot: ListenerSnapshot {
                id: ListenerId {
                    boot_id,
                    netns: self.netns,
                    cookie: self.cookie,
                },
                local: SocketAddr::new(normalise(ip), self.port),
                at: MonoNanos(self.at_ns),
                closed: self.has(LISTENER_CLOSED),
                tier: Tier::Bpf,
                opener: self
                    .has(LISTENER_OPENER_KNOWN)
                    .then(|| Owner::named(self.pid, &command(&self.command))),
                reuse_port: Some(self.has(LISTENER_REUSE_PORT)),
                accept_queue: self.accept_queue,
                backlog: self.backlog,
                drops: Some(self.drops.into()),
                syn_queue: Some(self.syn_queue),
                young: Some(self.young),
                cookie_age,
            },
            settings: ListenSettings {
                somaxconn: Some(self.somaxconn),
                max_syn_backlog: Some(self.max_syn_backlog),
                syncookies: Some(self.syncookies.into()),
                abort_on_overflow: Some(self.abort_on_overflow != 0),
            },
            first_drops: Some(self.base_drops.into()),
            netns_cookie: self.netns_cookie,
            inode: None,
        }
    }
}

/// The text up to the first NUL.
fn command(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// What the probe keeps while it runs.
struct Listeners {
    walk: Link,
    _events: Vec<Link>,
    page: Mapped<Listening>,
    closes: RingBuffer<'static>,
    closed: Rc<RefCell<Vec<ListenerRecord>>>,
    /// Walks made.
    walks: u64,
}

fn attach(attaching: &mut Attaching<'_>) -> Result<Box<dyn Any>, libbpf_rs::Error> {
    let walk = attaching.iterate("walk_listeners", "listeners")?;
    let closed = Rc::new(RefCell::new(Vec::new()));
    let closes = attaching.ring("listeners_closed", {
        let closed = Rc::clone(&closed);
        move |bytes: &[u8]| {
            if let Ok(record) = ListenerRecord::read_from_bytes(bytes) {
                closed.borrow_mut().push(record);
            }
        }
    })?;
    Ok(Box::new(Listeners {
        walk,
        _events: attaching.attach(&["listens"])?,
        page: Mapped::new(attaching.map("listening")?, 1)?,
        closes,
        closed,
        walks: 0,
    }))
}

fn read(link: &Link, what: &'static str) -> Result<Vec<u8>, PollError> {
    let mut iterator = Iter::new(link).map_err(|source| PollError::Open { what, source })?;
    drain(&mut iterator).map_err(|source| PollError::Read { what, source })
}

impl BpfTier {
    /// One round over the listeners: those that dropped something since the last round,
    /// whose queues are full, that sent cookies of late or that are new; with `all`, every
    /// one; and those that closed. `None` without the `listener` feature.
    ///
    /// # Errors
    /// If the iterator or the ring of closed listeners cannot be read.
    pub fn listeners(&mut self, all: bool) -> Result<Option<ListenerRound>, PollError> {
        let (boot_id, hz) = (self.context.boot_id, self.context.hz);
        let Some(listeners) = self.state_mut::<Listeners>() else {
            return Ok(None);
        };
        listeners.page.update(|page| {
            // SAFETY: `page` points to the mapped value.
            unsafe { (&raw mut (*page).emit_all).write_volatile(all.into()) }
        });
        let bytes = read(&listeners.walk, "listeners")?;
        listeners.walks += 1;
        listeners.closes.consume().map_err(PollError::Closes)?;
        let page = listeners.page.first();
        let mut sightings: Vec<ListenerSighting> = bytes
            .chunks_exact(size_of::<ListenerRecord>())
            .filter_map(|record| ListenerRecord::read_from_bytes(record).ok())
            .map(|record| record.sighting(boot_id, hz))
            .collect();
        let closed = listeners.closed.borrow_mut().split_off(0);
        sightings.extend(closed.iter().map(|record| record.sighting(boot_id, hz)));
        Ok(Some(ListenerRound {
            sightings,
            complete: all,
            dropped: page.storage_failed + page.closes_dropped,
        }))
    }

    /// Listeners met by all rounds so far, those left out included, and the number of rounds.
    pub fn listeners_visited(&self) -> (u64, u64) {
        self.state::<Listeners>()
            .map_or((0, 0), |it| (it.page.first().visited, it.walks))
    }
}
