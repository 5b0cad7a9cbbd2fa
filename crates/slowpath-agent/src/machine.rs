// SPDX-License-Identifier: Apache-2.0
//! The machine that the agent runs on, as the core's [`Host`]: the log, `/proc`, cgroups,
//! conntrack. This is where the agent does its I/O, besides the observer.

pub(crate) mod descriptors;
pub(crate) mod process;

use crate::host::{Host, ProcessFacts, Record};
use process::ProcessDirectory;
use rustc_hash::FxHashMap;
use slowpath_model::{FourTuple, MonoNanos, ProblemSet, WallMicros};
use slowpath_observe::conntrack::{Answer, Conntrack};
use slowpath_observe::{Feature, FeatureState};
use slowpath_store::{LogWriter, WriterStatus};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;

/// Directories that one walk over the cgroup hierarchy meets at most.
const MAX_CGROUPS: usize = 65_536;

/// The real machine.
pub(crate) struct Machine {
    log: Option<LogWriter>,
    conntrack: Option<Conntrack>,
    /// Where the unified cgroup hierarchy is mounted, once that was looked up.
    cgroups: Option<Option<PathBuf>>,
}

impl Machine {
    /// With a log, or without.
    pub(crate) fn new(log: Option<LogWriter>) -> Self {
        Machine {
            log,
            conntrack: None,
            cgroups: None,
        }
    }

    /// A poll begins.
    pub(crate) fn begin_poll(&mut self, now: MonoNanos) {
        if let Some(conntrack) = &mut self.conntrack {
            conntrack.begin(now);
        }
    }

    /// Tries to open conntrack, unless it is open; gives the feature's state.
    pub(crate) fn open_conntrack(&mut self) -> Feature {
        let opened = match &self.conntrack {
            Some(_) => Ok(()),
            None => Conntrack::open().map(|conntrack| {
                // In a container of its own it is the first process's that translates.
                self.conntrack = Some(conntrack.with_host(1));
            }),
        };
        Feature {
            name: "conntrack",
            measures: "the real peers behind address translation",
            state: match opened {
                Ok(()) => FeatureState::Active,
                Err(error) => FeatureState::Missing {
                    reason: error.to_string(),
                },
            },
            serves: ProblemSet::EMPTY,
        }
    }

    /// Lets the log write what is due at `wall`.
    pub(crate) fn tick_log(&mut self, wall: WallMicros) {
        if let Some(log) = &mut self.log {
            log.tick(wall);
        }
    }

    /// How the log is written; `None` without one.
    pub(crate) fn log_status(&self) -> Option<WriterStatus> {
        Some(self.log.as_ref()?.status())
    }

    /// Records that the log could not take.
    pub(crate) fn records_dropped(&self) -> u64 {
        self.log.as_ref().map_or(0, |l| l.status().records_dropped)
    }

    /// Closes the log; gives how it fared in the end.
    pub(crate) fn close_log(&mut self) -> Option<WriterStatus> {
        Some(self.log.take()?.close())
    }
}

impl Host for Machine {
    fn logs(&self) -> bool {
        self.log.is_some()
    }

    fn log_segment(&self) -> u32 {
        self.log.as_ref().map_or(0, LogWriter::segment)
    }

    fn record(&mut self, record: Record<'_>) -> bool {
        let Some(log) = &mut self.log else {
            return false;
        };
        match record {
            Record::Problem(interval) => log.problem(interval),
            Record::FirstProblem(summary, interval) => log.problem_of(summary, interval),
            Record::Summary(summary) => log.summary(summary),
            Record::Traffic(summary, traffic) => log.traffic_of(summary, traffic),
            Record::Hops(summary, hops) => log.hops_of(summary, hops),
            Record::Coverage(coverage) => log.coverage(coverage),
            Record::Listener(interval) => log.listener(interval),
            Record::Interaction(interval) => log.interaction(interval),
        }
    }

    fn process(&mut self, pid: u32) -> Option<ProcessFacts> {
        ProcessDirectory::open(pid).ok()?.facts().ok()
    }

    fn cgroup_paths(&mut self) -> FxHashMap<u64, String> {
        let mount = self.cgroups.get_or_insert_with(unified_mount);
        mount.clone().map(walk_cgroups).unwrap_or_default()
    }

    fn real_peer(&mut self, netns: u32, tuple: &FourTuple) -> Answer {
        match &mut self.conntrack {
            Some(conntrack) => conntrack.real_peer(netns, tuple),
            None => Answer::Same,
        }
    }
}

/// The cgroups below `mount`, by inode number.
fn walk_cgroups(mount: PathBuf) -> FxHashMap<u64, String> {
    let mut paths = FxHashMap::default();
    if let Ok(root) = fs::metadata(&mount) {
        paths.insert(root.ino(), "/".to_owned());
    }
    let mut pending = vec![(mount, String::new())];
    while let Some((directory, path)) = pending.pop() {
        // A cgroup may go while it is walked.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if paths.len() >= MAX_CGROUPS {
                return paths;
            }
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                let below = format!("{path}/{}", entry.file_name().to_string_lossy());
                paths.insert(entry.ino(), below.clone());
                pending.push((entry.path(), below));
            }
        }
    }
    paths
}

/// Where the unified hierarchy is mounted (`proc_pid_mountinfo(5)`).
fn unified_mount() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let path = fields.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then(|| path.into())
    })
}
