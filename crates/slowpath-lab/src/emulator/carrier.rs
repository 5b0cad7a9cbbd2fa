// SPDX-License-Identifier: Apache-2.0
//! The thread that carries packets: from the hosts' interfaces through the fabric, and out
//! again at their time.

use super::address::Addressee;
use super::lateness::Histogram;
use super::packet::{self, Complaint, Parsed};
use super::report::{Drops, Report};
use super::router::{IcmpCounts, Routers};
use super::system::{self, checked, monotonic};
use slowpath_switch::fabric::{
    Action, ConditionCounters, Delivered, DropCause, Dropped, End, Fabric, LineCounters, Node,
    Oversized, Sink,
};
use slowpath_switch::{Header, PortId, Time};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// Packets read from one host before the others have their turn.
const BATCH: usize = 64;
/// The shortest sleep, in nanoseconds: what becomes due meanwhile is late by as much at most,
/// and the machine is left to others.
const NAP: u64 = 15_000;
/// The longest sleep.
const REST: u64 = 500_000_000;
/// The longest packet that an interface gives.
const LONGEST: usize = 65_536;
/// Stands for the pipe among what has something to read.
const WAKE: u64 = u64::MAX;

/// What the thread is asked.
pub(super) enum Request {
    /// Changes the network; the answer is whether it could.
    Apply(Action, Sender<bool>),
    /// Says how it is.
    Report(Sender<Reported>),
    /// Ends.
    Stop,
}

/// What the thread reports.
pub(super) struct Reported {
    pub report: Report,
    pub lines: Vec<(LineCounters, ConditionCounters)>,
    pub routers: Vec<IcmpCounts>,
}

/// Bytes of packets inside.
#[derive(Default)]
struct Store {
    places: Vec<(Vec<u8>, u32)>,
    free: Vec<u32>,
}

impl Store {
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((Vec::new(), 0));
            // Packets inside are bounded by a `u32`.
            (self.places.len() - 1) as u32
        });
        let (own, uses) = &mut self.places[place as usize];
        own.clear();
        own.extend_from_slice(bytes);
        *uses = 1;
        u64::from(place)
    }

    /// One more packet has these bytes.
    fn share(&mut self, handle: u64) {
        self.places[handle as usize].1 += 1;
    }

    fn bytes(&mut self, handle: u64) -> &mut Vec<u8> {
        &mut self.places[handle as usize].0
    }

    fn release(&mut self, handle: u64) {
        let uses = &mut self.places[handle as usize].1;
        *uses -= 1;
        if *uses == 0 {
            // The index came from a `u32`.
            self.free.push(handle as u32);
        }
    }
}

/// What is around the fabric: it learns what happens to packets.
struct Surroundings {
    interfaces: Vec<File>,
    store: Store,
    /// When the fabric's time began, on the monotonic clock.
    began: u64,
    lateness: Histogram,
    drops: Drops,
    marked: u64,
    detours: u64,
    not_carried: u64,
    not_taken: u64,
    /// What routers send.
    routers: Routers,
    /// Whether they are none but bridges: those fragment nothing and say nothing of it.
    bridges: bool,
    scratch: Vec<u8>,
}

impl Surroundings {
    fn now(&self) -> u64 {
        monotonic() - self.began
    }

    /// A router that could not pass a packet on says so to its sender.
    fn complain(
        &mut self,
        at: Time,
        switch: u32,
        (header, dscp): (&Header, Option<u8>),
        kind: Complaint,
    ) {
        let router = Addressee::Router(switch);
        // It quotes the packet as it came here: what lines changed shows.
        self.scratch.clear();
        self.scratch
            .extend_from_slice(self.store.bytes(header.handle));
        packet::rewrite(&mut self.scratch, header.ttl.max(1), header.ecn, dscp);
        if let Some(answer) = packet::complaint(&self.scratch, kind, router.v4(), router.v6()) {
            self.routers.send(at, switch, answer);
        }
    }
}

impl Sink for Surroundings {
    fn delivered(&mut self, at: Time, delivered: Delivered) {
        let Delivered {
            packet: header,
            dscp,
            marked,
            corrupted,
            ..
        } = delivered;
        self.marked += u64::from(marked);
        // Copies share the bytes: what differs is written into a copy of them.
        self.scratch.clear();
        self.scratch
            .extend_from_slice(self.store.bytes(header.handle));
        packet::rewrite(&mut self.scratch, header.ttl, header.ecn, dscp);
        if corrupted {
            packet::damage(&mut self.scratch);
        }
        match delivered.node {
            Node::Host(host) => {
                let late = self.now().saturating_sub(at.as_nanos());
                self.lateness.add(late);
                let interface = &mut self.interfaces[host as usize];
                if interface.write(&self.scratch).is_err() {
                    self.not_taken += 1;
                }
            }
            Node::Switch(switch) => {
                let answer = packet::answer(&self.scratch);
                if let Some(answer) = answer {
                    self.routers.send(at, switch, answer);
                }
            }
        }
        self.store.release(header.handle);
    }

    fn dropped(&mut self, at: Time, dropped: Dropped) {
        let Dropped {
            packet: header,
            dscp,
            node,
            cause,
            ..
        } = dropped;
        let count = match cause {
            DropCause::BufferFull => &mut self.drops.buffer_full,
            DropCause::TtlExpired => &mut self.drops.ttl_expired,
            DropCause::NoRoute => &mut self.drops.no_route,
            DropCause::Lost => &mut self.drops.lost,
            DropCause::LinkDown => &mut self.drops.link_down,
            DropCause::TooMany => &mut self.drops.too_many,
            DropCause::TooLong => &mut self.drops.too_long,
            DropCause::Policed => &mut self.drops.policed,
        };
        *count += 1;
        if let Node::Switch(switch) = node {
            let kind = match cause {
                DropCause::TtlExpired => Some(Complaint::TimeExceeded),
                DropCause::NoRoute => Some(Complaint::Unreachable),
                _ => None,
            };
            if let Some(kind) = kind {
                self.complain(at, switch, (&header, dscp), kind);
            }
        }
        self.store.release(header.handle);
    }

    fn too_long(&mut self, at: Time, oversized: Oversized) -> Vec<Header> {
        let Oversized {
            end,
            packet: header,
            dscp,
            mtu,
        } = oversized;
        let (Node::Switch(switch), false) = (end.node, self.bridges) else {
            return Vec::new();
        };
        let bytes = self.store.bytes(header.handle);
        let Some(fragments) = packet::fragments(bytes, mtu.bytes) else {
            if mtu.reported {
                self.complain(at, switch, (&header, dscp), Complaint::TooBig(mtu.bytes));
            }
            return Vec::new();
        };
        self.store.release(header.handle);
        let fragment = |bytes: &Vec<u8>| Header {
            handle: self.store.put(bytes),
            // At most the MTU.
            bytes: bytes.len() as u32,
            ..header
        };
        fragments.iter().map(fragment).collect()
    }

    fn copied(&mut self, _: Time, header: &Header) {
        self.store.share(header.handle);
    }

    fn detoured(&mut self, _: Time, _: End, _: PortId, _: &Header) {
        self.detours += 1;
    }
}

/// What the thread carries packets through.
pub(super) struct Model {
    pub fabric: Fabric,
    pub routers: Routers,
    /// Classes of the switches.
    pub classes: u8,
    /// Whether the switches are bridges, not routers.
    pub bridges: bool,
}

pub(super) struct Carrier {
    fabric: Fabric,
    around: Surroundings,
    /// Classes of the switches.
    classes: u8,
    requests: Receiver<Request>,
    wake: io::PipeReader,
    events: OwnedFd,
    ready: Vec<libc::epoll_event>,
    buffer: Vec<u8>,
    real_time: bool,
}

impl Carrier {
    /// `interfaces` are the hosts', in their order; a byte in `wake` announces a request.
    pub fn new(
        interfaces: Vec<File>,
        model: Model,
        bound: Duration,
        requests: Receiver<Request>,
        wake: io::PipeReader,
    ) -> io::Result<Self> {
        // SAFETY: epoll_create1 takes an integer.
        let events = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made and nothing else owns it.
        let events = unsafe { OwnedFd::from_raw_fd(events) };
        let hosts = (0..).zip(interfaces.iter().map(File::as_raw_fd));
        for (number, fd) in hosts.chain([(WAKE, wake.as_raw_fd())]) {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: number,
            };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: the descriptors are open, and the event outlives the call.
            checked(unsafe { libc::epoll_ctl(events.as_raw_fd(), add, fd, &raw mut event) })?;
        }
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        Ok(Carrier {
            ready: vec![nothing; interfaces.len() + 1],
            around: Surroundings {
                interfaces,
                store: Store::default(),
                began: 0,
                lateness: Histogram::new(bound),
                drops: Drops::default(),
                marked: 0,
                detours: 0,
                not_carried: 0,
                not_taken: 0,
                routers: model.routers,
                bridges: model.bridges,
                scratch: Vec::new(),
            },
            fabric: model.fabric,
            classes: model.classes,
            requests,
            wake,
            events,
            buffer: vec![0; LONGEST],
            real_time: false,
        })
    }

    /// Carries packets until asked to stop.
    pub fn run(mut self) {
        self.real_time = system::hurry().real_time;
        self.around.began = monotonic();
        loop {
            self.catch_up();
            let next = [self.fabric.next_event(), self.around.routers.next()];
            let next = next.into_iter().flatten().min().map(Time::as_nanos);
            let now = self.around.now();
            let sleep = next.map_or(REST, |next| next.saturating_sub(now).clamp(NAP, REST));
            for at in 0..self.wait(sleep) {
                match self.ready[at].u64 {
                    WAKE => {
                        if !self.serve() {
                            return;
                        }
                    }
                    host => self.read(host as u32),
                }
            }
        }
    }

    /// How many have something to read.
    fn wait(&mut self, nanos: u64) -> usize {
        let timeout = libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as _,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the array has as many places as is said, the timeout outlives the call and
        // the signal mask is null.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.events.as_raw_fd(),
                self.ready.as_mut_ptr(),
                self.ready.len(),
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0,
            )
        };
        // Interrupted: nothing is ready.
        usize::try_from(count).unwrap_or(0)
    }

    /// Takes what a host has sent.
    fn read(&mut self, host: u32) {
        for _ in 0..BATCH {
            let interface = &mut self.around.interfaces[host as usize];
            let Ok(length @ 1..) = interface.read(&mut self.buffer) else {
                return;
            };
            let bytes = &self.buffer[..length];
            let Some(parsed) = Parsed::new(bytes).filter(is_carried) else {
                self.around.not_carried += 1;
                continue;
            };
            let header = header(
                &parsed,
                length,
                self.classes,
                self.fabric.hosts(),
                &mut self.around.store,
                bytes,
            );
            let now = self.catch_up();
            self.fabric.send(now, host, header, &mut self.around);
        }
    }

    /// Lets all happen that is due: in the network, and what its routers send, each at its moment
    /// however late it is.
    fn catch_up(&mut self) -> Time {
        let now = Time::from_nanos(self.around.now());
        loop {
            let event = self.fabric.next_event().filter(|at| *at <= now);
            let answer = self.around.routers.next().filter(|at| *at <= now);
            match (event, answer) {
                (None, None) => break,
                (Some(at), None) => self.fabric.advance(at, &mut self.around),
                (Some(at), Some(answer)) if at < answer => {
                    self.fabric.advance(at, &mut self.around);
                }
                (_, Some(_)) => self.send_answer(now),
            }
        }
        self.fabric.advance(now, &mut self.around);
        now
    }

    /// The next of the routers' own packets enters where its router is.
    fn send_answer(&mut self, now: Time) {
        let Some(answer) = self.around.routers.pop(now) else {
            return;
        };
        let bytes = answer.bytes;
        let Some(parsed) = Parsed::new(&bytes) else {
            return;
        };
        let header = header(
            &parsed,
            bytes.len(),
            self.classes,
            self.fabric.hosts(),
            &mut self.around.store,
            &bytes,
        );
        let (at, router) = (answer.at, answer.router);
        self.fabric.send_from(at, router, header, &mut self.around);
    }

    /// Does what was asked; false to end.
    fn serve(&mut self) -> bool {
        let mut byte = [0; 64];
        if !matches!(self.wake.read(&mut byte), Ok(1..)) {
            // The caller has gone.
            return false;
        }
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Apply(action, answer) => {
                    self.catch_up();
                    let applied = self.fabric.apply(&action).is_ok();
                    // Whoever asked may have gone.
                    let _ = answer.send(applied);
                }
                Request::Report(answer) => {
                    let _ = answer.send(self.report());
                }
                Request::Stop => return false,
            }
        }
        true
    }

    fn report(&self) -> Reported {
        let around = &self.around;
        let mut report = Report {
            milliseconds: around.now() / 1_000_000,
            dropped: around.drops,
            marked: around.marked,
            detours: around.detours,
            not_carried: around.not_carried,
            not_taken: around.not_taken,
            lateness: around.lateness.lateness(),
            real_time: self.real_time,
            ..Report::default()
        };
        report.counts(self.fabric.counts());
        let lines = 0..self.fabric.lines();
        let fabric = &self.fabric;
        let counters = |line| (fabric.line_counters(line), fabric.condition_counters(line));
        Reported {
            report,
            lines: lines.map(counters).collect(),
            routers: around.routers.counts(),
        }
    }
}

/// Whether a packet is for the network at all: hosts also talk to the neighbours that they
/// think they have.
fn is_carried(parsed: &Parsed) -> bool {
    match parsed.destination {
        IpAddr::V4(to) => !(to.is_multicast() || to.is_broadcast() || to.is_link_local()),
        IpAddr::V6(to) => !(to.is_multicast() || to.is_unicast_link_local()),
    }
}

/// A packet as the fabric sees it. One for an address that no host has goes to a destination
/// that is not there, and the first router says so.
fn header(
    parsed: &Parsed,
    length: usize,
    classes: u8,
    hosts: u32,
    store: &mut Store,
    bytes: &[u8],
) -> Header {
    let destination = match Addressee::of(parsed.destination) {
        Some(Addressee::Host(host)) if host < hosts => host,
        Some(Addressee::Router(router)) => hosts.saturating_add(router),
        _ => u32::MAX,
    };
    Header {
        handle: store.put(bytes),
        flow: parsed.flow,
        // At most 65,536.
        bytes: length as u32,
        destination,
        // The highest precedence is served first.
        class: (7 - parsed.precedence).min(classes - 1),
        ttl: parsed.ttl,
        ecn: parsed.ecn,
        tag: 0,
    }
}
