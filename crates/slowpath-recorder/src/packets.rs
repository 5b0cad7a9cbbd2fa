// SPDX-License-Identifier: Apache-2.0
//! The light recorder: on tracepoints only, one program a packet, cheap enough to run always.
//!
//! What enters is the kernel, by BPF programs that any kernel since Linux 6.3 lets root load (no fentry). What leaves are pieces as bytes, each behind its length;
//! [`light`](crate::light) knows what they mean. It records what [`crate::handlers`] records of packets and of calls that have returned, and leaves what
//! lies between to inference. What is promised: what is left out is counted ([`Losses`]), with its socket wherever that is known.

use crate::handlers::{
    Events, Losses, OpenError, choose, compare, counters, map, prepare, run_time,
};
use crate::light::wire::{self as light, TimerName};
use crate::stock::wire as stock;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::{Iter, Link, Object, ObjectBuilder};
use slowpath_observe::bpf::{Programs, program_info};
use slowpath_observe::object;
use std::io::Read;
use std::os::fd::AsFd;
use zerocopy::{FromZeros, IntoBytes};

/// The programs that write what has not filled a block, attached to nothing, and the maps that they read.
const REST: [(&str, &str); 2] = [("rest_of_table", "table"), ("rest_of_sockets", "sockets")];

/// The functions of TCP's timers and small queues; the last has had two names.
const TIMERS: [(&str, TimerName); 7] = [
    ("tcp_write_timer", TimerName::Write),
    ("tcp_delack_timer", TimerName::DelayedAck),
    ("tcp_keepalive_timer", TimerName::Keepalive),
    ("tcp_pace_kick", TimerName::Pacing),
    ("tcp_compressed_ack_kick", TimerName::CompressedAck),
    ("tcp_tasklet_func", TimerName::SmallQueues),
    ("tcp_tsq_workfn", TimerName::SmallQueues),
];

/// Each kernel has one of them: the structure that small queues wait in, and the program that looks at it.
const SMALL_QUEUES: [(&str, &str); 2] = [("tsq_tasklet", "on_tasklet"), ("tsq_work", "on_work")];

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
        let bytes = object!("packets");
        compare(bytes, &[&light::MIRRORS, &stock::MIRRORS])?;
        let mut open = builder.open_memory(bytes)?;
        let timers = functions();
        let hidden = |address: &[u8]| address.iter().all(|byte| *byte == 0);
        let all_known = !timers.as_bytes().chunks_exact(8).any(hidden);
        let types = Btf::from_vmlinux()?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let wants = SMALL_QUEUES.iter().find(|(_, program)| *program == name);
            if wants.is_some_and(|(wanted, _)| types.type_by_name::<Struct<'_>>(wanted).is_none()) {
                program.set_autoload(false);
            }
        }
        for mut map in open.maps_mut() {
            choose(&mut map, ports);
            if map.name().to_string_lossy().ends_with(".timers")
                && let Some(data) = map.initial_value_mut()
            {
                // There is room: the object passed the comparison.
                let _ = timers.write_to_prefix(data);
            }
        }
        let object = open.load()?;
        let mut recorder = LightRecorder {
            events: Events::of(&object)?,
            object,
            links: Vec::new(),
            timers: all_known,
        };
        recorder.resume()?;
        Ok(recorder)
    }

    /// Sees nothing until [`LightRecorder::resume`], and does not count it: for measurements of what it costs.
    pub fn pause(&mut self) {
        self.links.clear();
    }

    /// Goes on with the sockets that it knew.
    ///
    /// # Errors
    /// If the kernel does not allow it.
    pub fn resume(&mut self) -> Result<(), libbpf_rs::Error> {
        for program in self.object.progs_mut() {
            let rest = REST.iter().any(|(name, _)| program.name() == *name);
            if !rest && program.autoload() {
                self.links.push(program.attach()?);
            }
        }
        Ok(())
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
        for (name, place) in REST {
            let known = map(&self.object, place)?;
            let rest = self.object.progs_mut().find(|it| it.name() == name);
            if let Some(rest) = rest {
                let link = rest.attach_iter(known.as_fd())?;
                Iter::new(&link)?.read_to_end(&mut Vec::new())?;
            }
        }
        self.events.take()
    }

    /// Whether it knows TCP's timers when they fire: their functions' addresses (`/proc/kallsyms`) can be hidden.
    pub fn knows_timers(&self) -> bool {
        self.timers
    }

    /// Time that its programs took so far, if the kernel measures it ([`slowpath_observe::bpf::enable_statistics`]).
    pub fn run_time(&self) -> std::time::Duration {
        run_time(&self.object)
    }

    /// Its programs.
    pub fn programs(&self) -> Programs {
        Programs::of(&self.object)
    }

    /// How often they ran, if it is measured.
    pub fn runs(&self) -> u64 {
        let programs = self.object.progs();
        let runs = programs.filter_map(|program| Some(program_info(&program)?.run_cnt));
        runs.sum()
    }

    /// Sockets that are not recorded, because they speak IPv6: it has no identification of packets, by which those that were lost are known.
    pub fn ipv6(&self) -> u64 {
        self.counters().ipv6
    }

    fn counters(&self) -> light::Counters {
        counters(&self.object).unwrap_or(light::Counters::new_zeroed())
    }

    /// What was not recorded, so far.
    pub fn losses(&self) -> Losses {
        let programs = self.object.progs();
        let missed = programs.filter_map(|it| Some(program_info(&it)?.recursion_misses));
        Losses {
            ring: self.counters().lost,
            missed: missed.sum(),
        }
    }
}

/// Where the kernel's timers' functions are; 0: hidden.
fn functions() -> light::Timers {
    let all = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut found = light::Timers::new_zeroed();
    for line in all.lines() {
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next(), words.nth(1));
        let Some((_, timer)) = TIMERS.iter().find(|(timer, _)| Some(*timer) == name) else {
            continue;
        };
        let place = match timer {
            TimerName::Write => &mut found.write,
            TimerName::DelayedAck => &mut found.delayed_ack,
            TimerName::Keepalive => &mut found.keepalive,
            TimerName::Pacing => &mut found.pacing,
            TimerName::CompressedAck => &mut found.compressed_ack,
            TimerName::SmallQueues => &mut found.small_queues,
        };
        *place = u64::from_str_radix(address.unwrap_or_default(), 16).unwrap_or(0);
    }
    found
}
