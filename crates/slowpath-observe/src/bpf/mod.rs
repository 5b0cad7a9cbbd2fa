// SPDX-License-Identifier: Apache-2.0
//! The BPF tier: loads the probes one by one and walks the socket storage at each poll.
//!
//! The event probes note which connections change. One poll runs the program that copies
//! those into the mapped area (again only if the area fills up) and hands them over, then
//! the connections that closed since the last poll. Connections whose limited time is
//! running change without an event and are copied at every poll. Now and then, and always
//! on kernels before 6.2, the poll is a walk over the socket storage instead, which finds
//! what was missed. No snapshot is copied through a system call.

pub(crate) mod iterator;
pub(crate) mod mapped;
mod poll;
mod rates;
mod thin;

pub use crate::probes::load::ring;
pub use thin::RATE_COUNT;

use crate::namespaces::{Namespaces, own_inode};
use crate::probes::connection::{Context, Note, Rates, Record, Shared};
use crate::probes::load::{Loaded, Maps, SHARED, Setup, load};
use crate::probes::{self, Loss, Probe};
use crate::{Feature, FeatureState, ProgramCost, boot_id, monotonic};
use libbpf_rs::Iter;
use mapped::Mapped;
use slowpath_model::{LossCounters, Micros};
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use thin::Waiting;

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
    /// The network namespaces whose sockets are observed. Default all.
    pub namespaces: Namespaces,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            area: 16_384,
            notes: 65_536,
            walk: false,
            late_margin: Micros::from_millis(30),
            emit_all: false,
            namespaces: Namespaces::All,
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
    /// Which network namespace is the own one is not known.
    #[error(
        "reading this process's network namespace in /proc: {0}; mount /proc, or observe all of them"
    )]
    OwnNamespace(io::Error),
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

/// The BPF tier. What it offers beyond polls stands in the probes' folders.
pub struct BpfTier {
    /// A seed under way, and how many had been seeded before.
    pub(crate) seeding: Option<(Iter, u64)>,
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
    pub(crate) shared: Mapped<Shared>,
    pub(crate) context: Context,
    epoch: u32,
    features: Vec<Feature>,
    statistics: Option<OwnedFd>,
    sampling: Option<OwnedFd>,
    /// Programs live as long as their objects and links.
    pub(crate) loaded: Vec<Loaded>,
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
        let netns = match options.namespaces {
            Namespaces::All => 0,
            Namespaces::Own => own_inode().map_err(OpenError::OwnNamespace)?,
        };
        let setup = Setup {
            sizes: &sizes,
            netns,
        };
        let mut maps = Maps::default();
        let (loaded, features) = load_all(probes, &mut maps, &setup)?;
        let mut context = Context {
            boot_id: boot_id(),
            ..Context::default()
        };
        for it in &loaded {
            context.add(it.probe.sums);
        }
        let changes = |it: &Loaded| it.probe.name == probes::changes::PROBE.name;
        let mut tier = BpfTier {
            seeding: None,
            rates: mapped(&maps, "rates", 1)?,
            suspected: Vec::new(),
            area: mapped(&maps, "area", area_entries as usize)?,
            notes: mapped(&maps, "notes", 3 * note_entries as usize)?,
            note_entries,
            by_notes: loaded.iter().any(changes) && !options.walk,
            carried: Vec::new(),
            read_until: [0; 2],
            walk_next: true,
            waiting: None,
            due: Vec::new(),
            shared: mapped(&maps, SHARED, 1)?,
            context,
            epoch: 0,
            features,
            statistics: None,
            sampling: None,
            loaded,
        };
        tier.start(options)?;
        Ok(tier)
    }

    fn start(&mut self, options: &Options) -> Result<(), OpenError> {
        let delay = u32::try_from(options.late_margin.0).unwrap_or(u32::MAX);
        let note_entries = self.note_entries;
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe {
                (&raw mut (*s).late_margin_us).write_volatile(delay);
                (&raw mut (*s).list_capacity).write_volatile(note_entries);
                (&raw mut (*s).emit_all).write_volatile(options.emit_all.into());
                (&raw mut (*s).now_ns).write_volatile(monotonic().0);
            }
        });
        self.find_timer_frequency()?;
        // Epoch 0 stands for "never" in the storage of a connection.
        self.epoch = 1;
        self.begin_poll(monotonic(), [0; 2]);
        self.seed();
        Ok(())
    }

    /// What a probe keeps while it runs, by its type; `None` where the probe did not load.
    pub(crate) fn state<T: Any>(&self) -> Option<&T> {
        self.loaded.iter().find_map(|it| it.state.downcast_ref())
    }

    /// The same, to be changed.
    pub(crate) fn state_mut<T: Any>(&mut self) -> Option<&mut T> {
        let mut all = self.loaded.iter_mut();
        all.find_map(|it| it.state.downcast_mut())
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
                    .missed_runs(Loss::Close)
                    .saturating_sub(shared.late_closes),
            calls_dropped: shared.calls_dropped
                + self.calls_not_kept()
                + self.missed_runs(Loss::Call),
            records_dropped: 0,
        }
    }

    /// Events that probes' programs missed: an event inside another one's handler on the
    /// same processor does not run the program again (`bpf_prog_inc_misses_counter`).
    fn missed_runs(&self, loss: Loss) -> u64 {
        let runs = |it: &Loaded| {
            let programs = it.object.progs();
            let counts = |program: &libbpf_rs::Program<'_>| {
                let mut losses = it.probe.losses.iter();
                losses.any(|(name, of)| *of == loss && program.name() == *name)
            };
            programs
                .filter(counts)
                .filter_map(|program| Some(program_info(&program)?.recursion_misses))
                .sum::<u64>()
        };
        self.loaded.iter().map(runs).sum()
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
    // SAFETY: a descriptor that the call above made and that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads what can be loaded.
fn load_all(
    probes: &[&'static Probe],
    maps: &mut Maps,
    setup: &Setup<'_>,
) -> Result<(Vec<Loaded>, Vec<Feature>), OpenError> {
    let mut loaded = Vec::new();
    let mut features = Vec::new();
    for &probe in probes {
        let state = match load(probe, maps, setup) {
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
        features.push(probe.feature(state));
    }
    Ok((loaded, features))
}

fn mapped<T: slowpath_layout::Mirror + zerocopy::FromBytes + Copy>(
    maps: &Maps,
    map: &'static str,
    entries: usize,
) -> Result<Mapped<T>, OpenError> {
    let found = maps.get(map).map_err(|_| io::ErrorKind::NotFound.into());
    let mapped = found.and_then(|found| Mapped::new(found, entries));
    mapped.map_err(|source| OpenError::Map { map, source })
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

    /// Nanoseconds that they ran while the kernel measured run time.
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
