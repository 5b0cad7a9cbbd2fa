// SPDX-License-Identifier: Apache-2.0
//! The recorder of a stock kernel: which of TCP's handlers ran on the sockets of chosen connections, in the order in which they had the lock.
//!
//! What enters is the kernel, by BPF programs at the entries and exits of TCP's functions (fentry and fexit). What leaves are events as bytes, each behind its
//! length; [`stock`](crate::stock) knows what they mean. What is promised: no event is left out without being counted ([`Losses`]).

use crate::stock::wire;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, RingBuffer,
};
use slowpath_layout::Struct;
use slowpath_observe::bpf::{Programs, program_info};
use slowpath_observe::object;
use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::Mutex;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Most ports that can be chosen: `PORTS` in `ports.bpf.h`.
pub const MOST_PORTS: usize = 16;

/// Programs end with it that are the second of two at one function: see `TWICE` in `ring.bpf.h`.
const SECOND: &str = "_again";

/// Programs whose function a kernel may lack: CUBIC and IPv6 may be modules that are not loaded, SYN cookies may not be built in; then no socket uses them.
const OPTIONAL: [(&str, &str); 13] = [
    ("on_packet_ipv6", "tcp_v6_do_rcv"),
    ("on_packet_ipv6_again", "tcp_v6_do_rcv"),
    ("after_packet_ipv6", "tcp_v6_do_rcv"),
    ("after_packet_ipv6_again", "tcp_v6_do_rcv"),
    ("on_named", "inet6_csk_xmit"),
    ("on_named_again", "inet6_csk_xmit"),
    ("on_asked_ipv6", "tcp_v6_conn_request"),
    ("on_reset_ipv6", "tcp_v6_send_reset"),
    ("on_cookie", "tcp_get_cookie_sock"),
    ("before_cubic", "cubictcp_cong_avoid"),
    ("before_cubic_again", "cubictcp_cong_avoid"),
    ("after_cubic", "cubictcp_cong_avoid"),
    ("after_cubic_again", "cubictcp_cong_avoid"),
];

/// Why there is no recorder.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Too many ports.
    #[error("at most {MOST_PORTS} ports can be recorded at once, not {0}")]
    Ports(usize),
    /// The programs cannot be loaded or attached.
    #[error(
        "the recorder's BPF programs cannot be loaded: {source:#}{}; recording needs root, Linux 6.12 and a kernel that lets BPF attach to its \
         functions (fentry: CONFIG_FUNCTION_TRACER, CONFIG_DEBUG_INFO_BTF), which virtual machines and containers sometimes forbid; \
         `slowpath lab guest` boots a kernel that does",
        said()
    )]
    Load {
        /// What libbpf said.
        #[from]
        source: libbpf_rs::Error,
    },
}

/// What was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events for which the ring had no room.
    pub ring: u64,
    /// Runs of programs that the kernel left out, and for which there is no second program.
    pub missed: u64,
}

impl Losses {
    /// Both.
    pub fn total(self) -> u64 {
        self.ring + self.missed
    }
}

/// It records until it is dropped.
pub struct Recorder {
    events: Events,
    object: Object,
    links: Vec<Link>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// Records connections that are opened from now on to or from one of these ports; none: all.
    ///
    /// # Errors
    /// If the kernel does not allow it.
    pub fn open(ports: &[u16]) -> Result<Recorder, OpenError> {
        prepare(ports)?;
        let mut builder = ObjectBuilder::default();
        builder.name("handlers")?;
        let bytes = object!("handlers");
        compare(bytes, &[&wire::MIRRORS])?;
        let mut open = builder.open_memory(bytes)?;
        for mut map in open.maps_mut() {
            choose(&mut map, ports);
        }
        let functions = functions();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let wants = OPTIONAL.iter().find(|(program, _)| *program == name);
            if wants.is_some_and(|(_, function)| !functions.contains(*function)) {
                program.set_autoload(false);
            }
        }
        let object = open.load()?;
        let mut recorder = Recorder {
            events: Events::of(&object)?,
            object,
            links: Vec::new(),
        };
        recorder.resume()?;
        Ok(recorder)
    }

    /// Records nothing until [`Recorder::resume`], and does not count that as lost: for measurements of its cost.
    pub fn pause(&mut self) {
        self.links.clear();
    }

    /// Goes on with the sockets that it knew.
    ///
    /// # Errors
    /// If the kernel does not allow it.
    pub fn resume(&mut self) -> Result<(), libbpf_rs::Error> {
        // Of programs of one function the kernel runs the one attached last first.
        for second in [true, false] {
            for program in self.object.progs_mut() {
                if program.name().to_string_lossy().ends_with(SECOND) == second
                    && program.autoload()
                {
                    self.links.push(program.attach()?);
                }
            }
        }
        Ok(())
    }

    /// The events since the last time; the ring holds 64 MiB of them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&mut self) -> Result<Vec<u8>, libbpf_rs::Error> {
        self.events.take()
    }

    /// Time that its programs took so far, if the kernel measures it ([`slowpath_observe::bpf::enable_statistics`]).
    pub fn run_time(&self) -> std::time::Duration {
        run_time(&self.object)
    }

    /// How many events of a socket were lost so far, by its key in the events; none: it is not recorded.
    pub fn lost_of(&self, socket: u64) -> Option<u32> {
        let value = self.ends()?.lookup(&socket.to_ne_bytes(), MapFlags::ANY);
        let known = wire::TrackedSocket::read_from_bytes(&value.ok()??).ok()?;
        Some(known.lost)
    }

    /// Records a socket no longer.
    pub fn forget(&mut self, socket: u64) {
        if let Some(ends) = self.ends() {
            // It may have gone by itself.
            let _ = ends.delete(&socket.to_ne_bytes());
        }
    }

    fn ends(&self) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == "ends")
    }

    fn counters(&self) -> wire::Counters {
        counters(&self.object).unwrap_or(wire::Counters::new_zeroed())
    }

    /// What was not recorded, so far.
    pub fn losses(&self) -> Losses {
        let all: Vec<_> = self.object.progs().collect();
        let names: Vec<String> = all
            .iter()
            .map(|it| it.name().to_string_lossy().into_owned())
            .collect();
        // Of two at one function one always runs.
        let single =
            |name: &str| !name.ends_with(SECOND) && !names.contains(&format!("{name}{SECOND}"));
        let single = all.iter().zip(&names).filter(|(_, name)| single(name));
        let missed =
            single.filter_map(|(program, _)| Some(program_info(program)?.recursion_misses));
        Losses {
            ring: self.counters().lost,
            missed: missed.sum(),
        }
    }

    /// Its programs.
    pub fn programs(&self) -> Programs {
        Programs::of(&self.object)
    }

    /// Sockets that are not recorded, because 4,096 others are.
    pub fn unrecorded(&self) -> u64 {
        self.counters().unrecorded
    }

    /// Events that only the second of two programs recorded.
    pub fn healed(&self) -> u64 {
        self.counters().healed
    }
}

/// What a recorder's programs put into their ring.
pub(crate) struct Events {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<u8>>>,
}

impl Events {
    pub(crate) fn of(object: &Object) -> Result<Events, libbpf_rs::Error> {
        let taken = Rc::new(RefCell::new(Vec::new()));
        let ring = slowpath_observe::bpf::ring(&map(object, "events")?, {
            let taken = Rc::clone(&taken);
            move |event: &[u8]| {
                let mut taken = taken.borrow_mut();
                taken.extend((event.len() as u32).to_le_bytes());
                taken.extend(event);
            }
        })?;
        Ok(Events { ring, taken })
    }

    /// Each behind its length.
    pub(crate) fn take(&mut self) -> Result<Vec<u8>, libbpf_rs::Error> {
        self.ring.consume()?;
        Ok(std::mem::take(&mut self.taken.borrow_mut()))
    }
}

pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, libbpf_rs::Error> {
    let map = object.maps().find(|map| map.name() == name);
    let map =
        map.ok_or_else(|| libbpf_rs::Error::from(io::Error::from(io::ErrorKind::NotFound)))?;
    MapHandle::try_from(&map)
}

/// What the programs took so far.
pub(crate) fn run_time(object: &Object) -> std::time::Duration {
    let programs = object.progs();
    let nanos = programs.filter_map(|program| Some(program_info(&program)?.run_time_ns));
    std::time::Duration::from_nanos(nanos.sum())
}

/// What the programs count: all of `.bss`.
pub(crate) fn counters<T: FromBytes + KnownLayout + Immutable>(object: &Object) -> Option<T> {
    let map = object
        .maps()
        .find(|map| map.name().to_string_lossy().ends_with(".bss"))?;
    let value = map.lookup(&[0; 4], MapFlags::ANY).ok()??;
    Some(T::read_from_prefix(&value).ok()?.0)
}

/// Before programs are loaded.
pub(crate) fn prepare(ports: &[u16]) -> Result<(), OpenError> {
    if ports.len() > MOST_PORTS {
        return Err(OpenError::Ports(ports.len()));
    }
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Warn, keep)));
    Ok(())
}

/// Writes to `.rodata` which ports are chosen.
pub(crate) fn choose(map: &mut OpenMapMut<'_>, ports: &[u16]) {
    if map.name().to_string_lossy().ends_with(".rodata")
        && let Some(data) = map.initial_value_mut()
    {
        let mut chosen = wire::Chosen {
            count: ports.len() as u16,
            ports: [0; MOST_PORTS],
        };
        for (to, port) in chosen.ports.iter_mut().zip(ports) {
            *to = *port;
        }
        // There is room: the object passed the comparison.
        let _ = chosen.write_to_prefix(data);
    }
}

/// Compares an object's structs with Rust's, before it is loaded.
pub(crate) fn compare(object: &[u8], mirrors: &[&[Struct<'_>]]) -> Result<(), libbpf_rs::Error> {
    let checked = slowpath_layout::btf::check(object, mirrors);
    Ok(checked.map_err(io::Error::other)?)
}

/// What libbpf said last: which program the kernel refused, and why.
static SAID: Mutex<String> = Mutex::new(String::new());

const MOST_SAID: usize = 1 << 16;

fn keep(_: libbpf_rs::PrintLevel, line: String) {
    if let Ok(mut said) = SAID.lock()
        && said.len() + line.len() < MOST_SAID
    {
        said.push_str(&line);
    }
}

/// Which program it was.
fn said() -> String {
    let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
    let last = said.lines().rfind(|line| line.starts_with("libbpf: prog "));
    last.map(|line| format!(" ({line})")).unwrap_or_default()
}

/// The kernel's functions, by name.
fn functions() -> HashSet<String> {
    let all = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let wanted = |line: &str| {
        let name = line.split_ascii_whitespace().nth(2)?;
        OPTIONAL
            .iter()
            .any(|(_, function)| *function == name)
            .then(|| name.to_owned())
    };
    all.lines().filter_map(wanted).collect()
}
