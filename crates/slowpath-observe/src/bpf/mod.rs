// SPDX-License-Identifier: Apache-2.0
//! The BPF tier: loads the probes one by one and walks the socket storage at each poll.
//!
//! The event probes note which connections change. One poll runs the program that copies
//! those into the mapped area (again only if the area fills up) and hands them over, then
//! the connections that closed since the last poll. Connections whose limited time is
//! running change without an event and are copied at every poll. Now and then, and always
//! on kernels before 6.2, the poll is a walk over the socket storage instead, which finds
//! what was missed. No snapshot is copied through a system call.

mod listeners;
mod load;
mod look;
mod poll;
mod rates;
mod seed;
mod thin;

pub use thin::RATE_COUNT;

pub use look::{Held, Unheld};

use crate::mapped::Mapped;
use crate::probes::{self, Probe};
use crate::wire::layouts::direction::DIRECTION_SEND;
use crate::wire::{CallRecord, Context, Note, Rates, Record, Shared};
use crate::{Call, Direction, Feature, FeatureState, ProgramCost, boot_id, monotonic};
use libbpf_rs::{Iter, Link, MapHandle, RingBuffer};
use listeners::ListenerEyes;
pub use load::ring;
use load::{Loaded, load, map};
use slowpath_model::{LossCounters, Micros, MonoNanos};
use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use thin::Waiting;
use zerocopy::FromBytes;

/// Call records kept for [`BpfTier::take_calls`]; older ones are dropped and counted.
const MAX_CALLS: usize = 65_536;

/// How the tier is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Snapshots that one pass can hold; a poll with more makes further passes. Each takes
    /// about 600 bytes of memory. Default 16,384.
    pub area: u32,
    /// Connections that may change between two polls before a poll has to walk over all.
    /// Each takes 72 bytes of memory. Default 65,536.
    pub notes: u32,
    /// Walk over all connections at every poll, as kernels before 6.2 need. Default false.
    pub walk: bool,
    /// How far a sample lies above the connection's lowest before its acknowledgement counts as
    /// late: the least delay of an ACK, less a queueing allowance. Default 30 ms.
    pub late_margin: Micros,
    /// Hand over every connection at every poll, changed or not. Default false.
    pub emit_all: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            area: 16_384,
            notes: 65_536,
            walk: false,
            late_margin: Micros::from_millis(30),
            emit_all: false,
        }
    }
}

/// Why the tier cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A probe that the tier cannot do without did not load.
    #[error(
        "loading BPF probe {probe}: {source:#} (needs Linux {since} with BTF, and root or CAP_BPF and CAP_PERFMON)"
    )]
    Probe {
        /// The probe's name.
        probe: &'static str,
        /// First Linux version that has what it needs.
        since: &'static str,
        /// What libbpf says.
        source: libbpf_rs::Error,
    },
    /// A map could not be mapped into this process.
    #[error("mapping BPF map {map}: {source}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// The first pass over the sockets failed.
    #[error("first pass over the sockets: {0}")]
    FirstPass(PollError),
    /// The kernel's timer frequency does not come out as any that Linux knows.
    #[error(
        "finding the kernel's timer frequency: jiffies {jiffies} at {now_ns} ns after boot fit none of 100, 250, 300, 1000 Hz"
    )]
    TimerFrequency {
        /// `jiffies_64`.
        jiffies: u64,
        /// The monotonic clock at the same moment.
        now_ns: u64,
    },
}

/// Why a poll failed; the next one may succeed.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The iterator could not be opened.
    #[error("opening the iterator over {what}: {source:#}")]
    Open {
        /// What it walks.
        what: &'static str,
        /// What libbpf says.
        source: libbpf_rs::Error,
    },
    /// The iterator could not be read.
    #[error("reading the iterator over {what}: {source}")]
    Read {
        /// What it walks.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// The program that collects changed connections could not be run.
    #[error("collecting changed connections: {0:#}")]
    Collect(libbpf_rs::Error),
    /// The ring of closed connections could not be read.
    #[error("reading the ring of closed connections: {0:#}")]
    Closes(libbpf_rs::Error),
}

/// The BPF tier.
pub struct BpfTier {
    snapshot_link: Link,
    /// Namespaces in which connections older than the tier were looked for.
    walked: HashSet<u32>,
    seed_link: Option<Link>,
    seed_held_link: Option<Link>,
    /// A seed under way, and how many had been seeded before.
    seeding: Option<(Iter, u64)>,
    owner_link: Option<Link>,
    listener: Option<ListenerEyes>,
    unheld_link: Option<Link>,
    in_flight_link: Option<Link>,
    closes: RingBuffer<'static>,
    closed: Rc<RefCell<Vec<Record>>>,
    calls: Option<RingBuffer<'static>>,
    called: Rc<RefCell<CallLog>>,
    rates: Mapped<Rates>,
    suspected: Vec<u64>,
    area: Mapped<Record>,
    notes: Mapped<Note>,
    /// Capacity of each of the three lists of notes.
    note_entries: u32,
    /// Whether polls collect what was noted instead of walking over all.
    by_notes: bool,
    /// Connections whose chronograph was running at the last poll: they change without an
    /// event.
    carried: Vec<Note>,
    /// How far each list of notes was read.
    read_until: [u32; 2],
    walk_next: bool,
    /// What waits for a later poll; without thinning nothing does.
    waiting: Option<Waiting>,
    /// What is due at a poll: kept for its memory.
    due: Vec<Note>,
    shared: Mapped<Shared>,
    context: Context,
    epoch: u32,
    features: Vec<Feature>,
    statistics: Option<OwnedFd>,
    sampling: Option<OwnedFd>,
    /// Programs live as long as their objects and links.
    loaded: Vec<Loaded>,
}

#[derive(Default)]
struct CallLog {
    calls: VecDeque<Call>,
    dropped: u64,
}

impl BpfTier {
    /// Loads the probes, gives every existing connection its storage, and makes the first
    /// pass.
    ///
    /// # Errors
    /// If a probe that the tier cannot do without does not load; what was loaded until then
    /// is unloaded again.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        Self::with_probes(&probes::ALL, options)
    }

    fn with_probes(probes: &[&'static Probe], options: &Options) -> Result<Self, OpenError> {
        libbpf_rs::set_print(None);
        let area_entries = options.area.max(1);
        let note_entries = options.notes.clamp(1, 1 << 24);
        let sizes = [("area", area_entries), ("notes", 3 * note_entries)];
        let mut loaded = Vec::new();
        let mut features = Vec::new();
        let mut shared_maps: Vec<MapHandle> = Vec::new();
        for &probe in probes {
            let state = match load(probe, &mut shared_maps, &sizes) {
                Ok(probe) => {
                    loaded.push(probe);
                    FeatureState::Active
                }
                Err(source) if probe.required => {
                    return Err(OpenError::Probe {
                        probe: probe.name,
                        since: probe.since,
                        source,
                    });
                }
                Err(error) => FeatureState::Missing {
                    reason: format!("{error:#} (needs Linux {})", probe.since),
                },
            };
            features.push(Feature {
                name: probe.name,
                measures: probe.measures,
                state,
                serves: probe.serves.iter().copied().collect(),
            });
        }
        let active = |name| loaded.iter().any(|l: &Loaded| l.probe.name == name);
        let context = Context {
            boot_id: boot_id(),
            hz: 0,
            rtt_sums: active("segment"),
            recovery: active("recovery"),
            calls: active("calls"),
        };
        let by_notes = active("changes") && !options.walk;
        let mapping = |map, source| OpenError::Map { map, source };
        let shared = Mapped::<Shared>::new(map(&loaded, "lifecycle", "shared")?.as_fd(), 1)
            .map_err(|e| mapping("shared", e))?;
        let area = Mapped::<Record>::new(
            map(&loaded, "snapshot", "area")?.as_fd(),
            area_entries as usize,
        )
        .map_err(|e| mapping("area", e))?;
        let notes = Mapped::<Note>::new(
            map(&loaded, "lifecycle", "notes")?.as_fd(),
            3 * note_entries as usize,
        )
        .map_err(|e| mapping("notes", e))?;
        let rates = Mapped::<Rates>::new(map(&loaded, "lifecycle", "rates")?.as_fd(), 1)
            .map_err(|e| mapping("rates", e))?;

        let closed = Rc::new(RefCell::new(Vec::new()));
        let called = Rc::new(RefCell::new(CallLog::default()));
        let ring_error = |probe, source| OpenError::Probe {
            probe,
            since: "5.8",
            source,
        };
        let closes = ring(&map(&loaded, "lifecycle", "closes")?, {
            let closed = Rc::clone(&closed);
            move |bytes: &[u8]| {
                if let Ok((record, _)) = Record::read_from_prefix(bytes) {
                    closed.borrow_mut().push(record);
                }
            }
        })
        .map_err(|e| ring_error("lifecycle", e))?;
        let calls = match map(&loaded, "calls", "call_log") {
            Err(_) => None,
            Ok(log) => Some(
                ring(&log, {
                    let called = Rc::clone(&called);
                    move |bytes: &[u8]| {
                        if let Ok((call, _)) = CallRecord::read_from_prefix(bytes) {
                            called.borrow_mut().push(&call);
                        }
                    }
                })
                .map_err(|e| ring_error("calls", e))?,
            ),
        };
        let mut take = |name| {
            loaded
                .iter_mut()
                .find(|l| l.probe.name == name)
                .and_then(|l| l.links.pop())
        };
        let Some(snapshot_link) = take("snapshot") else {
            return Err(mapping("snapshot", io::ErrorKind::NotFound.into()));
        };
        let seed_link = take("seed");
        let seed_held_link = take("seed_held");
        // The last link first.
        let unheld_link = take("owner");
        let owner_link = take("owner");
        let in_flight_link = take("in_flight");
        let listener = ListenerEyes::open(&mut loaded);

        let mut tier = BpfTier {
            snapshot_link,
            walked: HashSet::new(),
            seed_link,
            seed_held_link,
            seeding: None,
            owner_link,
            listener,
            unheld_link,
            in_flight_link,
            closes,
            closed,
            calls,
            called,
            rates,
            suspected: Vec::new(),
            area,
            notes,
            note_entries,
            by_notes,
            carried: Vec::new(),
            read_until: [0; 2],
            walk_next: true,
            waiting: None,
            due: Vec::new(),
            shared,
            context,
            epoch: 0,
            features,
            statistics: None,
            sampling: None,
            loaded,
        };
        let delay = u32::try_from(options.late_margin.0).unwrap_or(u32::MAX);
        tier.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe {
                (&raw mut (*s).late_margin_us).write_volatile(delay);
                (&raw mut (*s).list_capacity).write_volatile(note_entries);
                (&raw mut (*s).emit_all).write_volatile(options.emit_all.into());
                (&raw mut (*s).now_ns).write_volatile(monotonic().0);
            }
        });
        tier.find_timer_frequency()?;
        // Epoch 0 stands for "never" in the storage of a connection.
        tier.epoch = 1;
        tier.begin_poll(monotonic(), [0; 2]);
        tier.seed();
        Ok(tier)
    }

    fn find_timer_frequency(&mut self) -> Result<(), OpenError> {
        self.begin_poll(monotonic(), [0; 2]);
        self.walk().map_err(OpenError::FirstPass)?;
        let jiffies = self.shared.first().jiffies;
        let now_ns = monotonic().0;
        let hz = timer_frequency(jiffies, now_ns)
            .ok_or(OpenError::TimerFrequency { jiffies, now_ns })?;
        self.context.hz = hz;
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe { (&raw mut (*s).hz).write_volatile(hz) }
        });
        Ok(())
    }

    /// Has the next poll walk over every connection, whether it noted a change or not, and
    /// count those it misses.
    pub fn walk_next(&mut self) {
        self.walk_next = true;
    }

    /// The calls logged since the last time, oldest first.
    pub fn take_calls(&mut self) -> Vec<Call> {
        if let Some(ring) = &self.calls {
            // A ring that cannot be read now is read the next time; drops are counted.
            let _ = ring.consume();
        }
        self.called.borrow_mut().calls.drain(..).collect()
    }

    /// Whether the next polls hand over every connection, changed or not.
    pub fn emit_all(&mut self, all: bool) {
        self.walk_next |= all;
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe { (&raw mut (*s).emit_all).write_volatile(all.into()) }
        });
    }

    /// What this kernel offers and what not.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Closes whose state change did not reach the probe and that were noticed when the
    /// socket was destroyed, since the start.
    pub fn late_closes(&self) -> u64 {
        self.shared.first().late_closes
    }

    /// Losses since the start, events missed by the probes included; `records_dropped` is
    /// the log's and stays 0 here.
    pub fn losses(&self) -> LossCounters {
        let shared = self.shared.first();
        LossCounters {
            storage_failed: shared.storage_failed,
            snapshots_dropped: 0,
            // A close that one program missed is mended when the socket goes.
            closes_dropped: shared.closes_dropped
                + self
                    .missed_runs("lifecycle", "lifecycle")
                    .saturating_sub(shared.late_closes),
            calls_dropped: shared.calls_dropped
                + self.called.borrow().dropped
                + self.missed_runs("calls", "sends")
                + self.missed_runs("calls", "receives"),
            records_dropped: 0,
        }
    }

    /// Events that a probe's program missed: an event inside another one's handler on the
    /// same processor does not run the program again (`bpf_prog_inc_misses_counter`).
    fn missed_runs(&self, probe: &str, program: &str) -> u64 {
        self.loaded
            .iter()
            .filter(|l| l.probe.name == probe)
            .flat_map(|l| l.object.progs())
            .filter(|p| p.name() == program)
            .filter_map(|p| Some(program_info(&p)?.recursion_misses))
            .sum()
    }

    /// Connections opened and closed since the start.
    pub fn turnover(&self) -> (u64, u64) {
        let shared = self.shared.first();
        (shared.opened, shared.closed)
    }

    /// Has the kernel measure the run time of BPF programs until the tier is dropped.
    ///
    /// # Errors
    /// See [`enable_statistics`].
    pub fn enable_statistics(&mut self) -> io::Result<()> {
        if self.statistics.is_none() {
            self.statistics = Some(enable_statistics()?);
        }
        Ok(())
    }

    /// Has the kernel measure the run time of BPF programs from now on, or no longer, unless
    /// [`BpfTier::enable_statistics`] keeps it doing so.
    ///
    /// # Errors
    /// See [`enable_statistics`].
    pub fn sample_statistics(&mut self, on: bool) -> io::Result<()> {
        self.sampling = match on {
            true => Some(enable_statistics()?),
            false => None,
        };
        Ok(())
    }

    /// Runs and time of each program since it was loaded, as far as the statistics were on.
    pub fn programs(&self) -> Vec<ProgramCost> {
        self.loaded
            .iter()
            .flat_map(|l| l.object.progs().map(move |p| (l.probe.name, p)))
            .filter_map(|(probe, program)| {
                let info = program_info(&program)?;
                Some(ProgramCost {
                    probe,
                    program: program.name().to_string_lossy().into_owned(),
                    runs: info.run_cnt,
                    nanos: info.run_time_ns,
                })
            })
            .collect()
    }
}

/// Has the kernel measure the run time of every BPF program on the machine until the
/// descriptor is closed (`BPF_ENABLE_STATS`, Linux 5.8); each run then costs some 20 ns more.
///
/// # Errors
/// What the kernel says, for example without CAP_SYS_ADMIN.
pub fn enable_statistics() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a constant and gives a file descriptor or an error.
    let fd = unsafe {
        libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor that the call above made and nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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

/// The frequency at which `jiffies` counts: `jiffies_64` starts 300 s before its lower half
/// wraps (`INITIAL_JIFFIES`, include/linux/jiffies.h).
fn timer_frequency(jiffies: u64, now_ns: u64) -> Option<u32> {
    [100u32, 250, 300, 1000]
        .into_iter()
        .map(|hz| {
            let start = (1u64 << 32) - 300 * u64::from(hz);
            let counted = jiffies as f64 - start as f64;
            let expected = now_ns as f64 / 1e9 * f64::from(hz);
            (hz, (counted - expected).abs() / f64::from(hz))
        })
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, error_seconds)| *error_seconds < 60.0)
        .map(|(hz, _)| hz)
}

/// Programs, to ask what they took; another thread may have loaded them.
#[derive(Debug, Default)]
pub struct Programs(Vec<OwnedFd>);

impl Programs {
    /// All programs of an object.
    pub fn of(object: &libbpf_rs::Object) -> Programs {
        let programs = object.progs();
        let owned = programs.filter_map(|program| program.as_fd().try_clone_to_owned().ok());
        Programs(owned.collect())
    }

    /// Nanoseconds that they ran while the kernel booked it.
    pub fn nanos(&self) -> u64 {
        let infos = self.0.iter().filter_map(|program| info(program.as_fd()));
        infos.map(|info| info.run_time_ns).sum()
    }

    /// Runs and time of each; `probe` is where they are from.
    pub fn costs(&self, probe: &'static str) -> Vec<ProgramCost> {
        let infos = self.0.iter().filter_map(|program| info(program.as_fd()));
        let name = |info: &libbpf_rs::libbpf_sys::bpf_prog_info| {
            let letters = info.name.iter().map(|letter| *letter as u8);
            let letters: Vec<u8> = letters.take_while(|letter| *letter != 0).collect();
            String::from_utf8_lossy(&letters).into_owned()
        };
        infos
            .map(|info| ProgramCost {
                probe,
                program: name(&info),
                runs: info.run_cnt,
                nanos: info.run_time_ns,
            })
            .collect()
    }
}

/// What the kernel says of a program.
pub fn program_info(
    program: &libbpf_rs::Program<'_>,
) -> Option<libbpf_rs::libbpf_sys::bpf_prog_info> {
    info(program.as_fd())
}

fn info(program: BorrowedFd<'_>) -> Option<libbpf_rs::libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_rs::libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is plain data of `length` bytes, which the call fills.
    let result = unsafe {
        libbpf_rs::libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &mut length,
        )
    };
    (result == 0).then_some(info)
}

#[cfg(test)]
mod tests;
