// SPDX-License-Identifier: Apache-2.0
//! The light recorder: on tracepoints alone, one program a packet, cheap enough to run always.
//!
//! What enters is the kernel, by BPF programs that any kernel since Linux 6.3 lets root load (no fentry). What leaves are pieces as bytes, each behind its length;
//! `slowpath-replay`'s `light` knows what they mean. It sees what [`crate::handlers`] sees of packets and of calls that have returned; what lies between it
//! leaves to inference. What is promised: what is left out is counted ([`Losses`]), with its socket wherever that is known.

use crate::bpf::program_info;
use crate::handlers::{Events, Losses, OpenError, choose, counter, map, prepare, run_time};
use crate::probes::object;
use libbpf_rs::{Iter, Link, Object, ObjectBuilder};
use std::io::Read;
use std::os::fd::AsFd;

/// The program that tells what is left, attached to nothing.
const REST: &str = "rest";

/// TCP's timers, in the order of `timers` in `probes/packets/block.bpf.h`.
const TIMERS: [&str; 5] = [
    "tcp_write_timer",
    "tcp_delack_timer",
    "tcp_keepalive_timer",
    "tcp_pace_kick",
    "tcp_compressed_ack_kick",
];

/// It records until it is dropped, or stopped.
pub struct LightRecorder {
    events: Events,
    object: Object,
    links: Vec<Link>,
    timers: bool,
}

impl std::fmt::Debug for LightRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LightRecorder").finish_non_exhaustive()
    }
}

impl LightRecorder {
    /// Records connections that are opened from now on to or from one of these ports; none: all.
    ///
    /// # Errors
    /// If the kernel does not allow it.
    pub fn open(ports: &[u16]) -> Result<LightRecorder, OpenError> {
        prepare(ports)?;
        let mut builder = ObjectBuilder::default();
        builder.name("packets")?;
        let mut open = builder.open_memory(object!("packets"))?;
        let functions = functions();
        for mut map in open.maps_mut() {
            choose(&mut map, ports);
            if map.name().to_string_lossy().ends_with(".timers")
                && let Some(data) = map.initial_value_mut()
            {
                for (place, address) in data.chunks_exact_mut(8).zip(functions) {
                    place.copy_from_slice(&address.to_ne_bytes());
                }
            }
        }
        let object = open.load()?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if program.name() != REST {
                links.push(program.attach()?);
            }
        }
        Ok(LightRecorder {
            events: Events::of(&object)?,
            object,
            links,
            timers: functions.iter().all(|address| *address != 0),
        })
    }

    /// The pieces since the last time; the ring holds 64 MiB of them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&mut self) -> Result<Vec<u8>, libbpf_rs::Error> {
        self.events.take()
    }

    /// Records no more; the pieces since the last time, and what waits with sockets that are still there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(&mut self) -> Result<Vec<u8>, libbpf_rs::Error> {
        self.links.clear();
        let sockets = map(&self.object, "sockets")?;
        let rest = self.object.progs_mut().find(|it| it.name() == REST);
        if let Some(rest) = rest {
            let link = rest.attach_iter(sockets.as_fd())?;
            Iter::new(&link)?.read_to_end(&mut Vec::new())?;
        }
        self.events.take()
    }

    /// Whether it knows TCP's timers when they fire: their functions' addresses (`/proc/kallsyms`) can be hidden.
    pub fn knows_timers(&self) -> bool {
        self.timers
    }

    /// What its programs took so far, if somebody has the kernel measure that ([`crate::bpf::enable_statistics`]).
    pub fn run_time(&self) -> std::time::Duration {
        run_time(&self.object)
    }

    /// How often they ran, if it is measured.
    pub fn runs(&self) -> u64 {
        let programs = self.object.progs();
        let runs = programs.filter_map(|program| Some(program_info(&program)?.run_cnt));
        runs.sum()
    }

    /// What was not recorded, so far.
    pub fn losses(&self) -> Losses {
        let programs = self.object.progs();
        let missed = programs.filter_map(|it| Some(program_info(&it)?.recursion_misses));
        Losses {
            ring: counter(&self.object, 0),
            missed: missed.sum(),
        }
    }
}

/// Where the kernel's timers' functions are; 0: hidden.
fn functions() -> [u64; 5] {
    let all = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut found = [0; 5];
    for line in all.lines() {
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next(), words.nth(1));
        if let Some(place) = TIMERS.iter().position(|timer| Some(*timer) == name) {
            found[place] = u64::from_str_radix(address.unwrap_or_default(), 16).unwrap_or(0);
        }
    }
    found
}
