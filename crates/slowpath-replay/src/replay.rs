// SPDX-License-Identifier: Apache-2.0
//! Recorded connections on a laboratory kernel once more, each by itself: two hosts, nothing between them.
//!
//! What enters is the recording and nothing else. What leaves is for each connection whether every run of every handler left what it had left
//! then, or where the first difference is; captures of both hosts with the recording's times; and, if wanted, the state after each run.

use super::observed;
use super::result::{Difference, DifferenceKind, Probe, Replayed, Result, RunReport};
use super::script::{self, Stretch};
use super::settings::{self, Unknown};
use slowpath_lab::virtual_time::Kernel;
use slowpath_lab::virtual_time::RunError;
use slowpath_lab::virtual_time::plan::{self, Direct, Options, Plan};
use slowpath_lab::virtual_time::wire::{
    CAPTURE, FOLLOW, PROBE, PROBE_MORE, REPLAY, REPORT, RawDone, RawProbe, RawReplayed, Reader,
    WHAT_IF, status,
};
use slowpath_lab::virtual_time::{Progress, machine};
use slowpath_recording::fields::{MORE, SocketFields};
use slowpath_recording::{
    Connection, Decision, Moment, Outcome, RecorderKind, Recording, Unreplayable,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The first port of the end that connects: one more for each connection.
pub const FIRST_PORT: u16 = 10_000;
/// What one kernel replays.
const MOST: usize = u16::MAX as usize - FIRST_PORT as usize;
/// `LAB_ACCOUNT_RUN`.
const REPORTED_RUN: u8 = 255;

/// How it is replayed; nothing of it may change the outcome.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Of the kernel's random numbers.
    pub seed: u64,
    /// The kernel's clock when it starts, in nanoseconds since 1970-01-01 UTC.
    pub epoch: u64,
    /// Bytes of each packet that captures keep; `None`: no captures.
    pub capture: Option<u32>,
    /// The state after each run.
    pub probe: bool,
    /// With it the further variables of the socket.
    pub more: bool,
    /// What each run left, as two numbers.
    pub report: bool,
    /// Runs whose functions are listed.
    pub functions: Option<Stretch>,
    /// The run before which `slowpath_replay_stop` is called, for a debugger: the first of these.
    pub stop: Option<Stretch>,
    /// Something about the connections is not as it was: the replay goes on with another state, and timers that were not recorded fire.
    pub what_if: bool,
    /// The kernel is killed after so much silence.
    pub patience: Duration,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions {
            seed: 1,
            epoch: plan::EPOCH_NS,
            capture: Some(120),
            probe: false,
            more: false,
            report: false,
            functions: None,
            stop: None,
            what_if: false,
            patience: Duration::from_secs(60),
        }
    }
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The kernel failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The recording says what the kernel cannot have.
    #[error(transparent)]
    Setting(#[from] Unknown),
    /// The kernel is another.
    #[error("the recording is of a kernel with {recorded} ticks a second, this one has {found}")]
    Ticks {
        /// Of the recording.
        recorded: u32,
        /// Of the kernel.
        found: u32,
    },
    /// One kernel has one set of sysctls.
    #[error("connections {0} and {1} have different sysctls: they need a kernel each")]
    Mixed(usize, usize),
    /// More than a host has ports.
    #[error("{0} connections are too many for one kernel: {MOST} at most")]
    TooMany(usize),
    /// Something is missing that it needs: a replay would not be one.
    #[error("connection {number}: {reason}")]
    Unreplayable {
        /// Its place in the recording.
        number: usize,
        /// What.
        reason: Unreplayable,
    },
}

/// Connections that one kernel can replay, at most `MOST` each: those with the same sysctls, spread so that `jobs` kernels have work.
pub fn batches(recording: &Recording, chosen: &[usize], jobs: usize) -> Vec<Vec<usize>> {
    let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for place in chosen {
        if let Some(connection) = recording.connections.get(*place) {
            let settings = &connection.settings;
            let kernel = (&settings.sysctls, settings.mtu);
            alike.entry(kernel).or_default().push(*place);
        }
    }
    let share = chosen.len().div_ceil(jobs.max(1)).clamp(1, MOST);
    let parts = alike.values().flat_map(|places| places.chunks(share));
    parts.map(<[usize]>::to_vec).collect()
}

/// Replays some connections of a recording, by their places in it, in a folder that is there and empty.
///
/// # Errors
/// A connection has gaps; the recording is of another kernel or of nothing that this one can have; the kernel fails, dies or hangs; a file cannot be written or read.
pub fn replay(
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    options: &ReplayOptions,
    folder: &Path,
    progress: &mut dyn FnMut(&Progress),
) -> std::result::Result<Replayed, ReplayError> {
    let light = observed::is_light(recording);
    let probing = ReplayOptions {
        probe: options.probe || light,
        ..options.clone()
    };
    let Some((plan, connections)) = prepare(kernel, recording, chosen, &probing, folder)? else {
        return Ok(Replayed::default());
    };
    let count = connections.len();
    let run = Options {
        patience: options.patience,
        ..Options::default()
    };
    let wall = machine::run(kernel, &plan, &run, folder, progress)?;
    for name in ["plan.bin", "script.bin", "flows.bin", "summary.bin"] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let (path, bytes) = slowpath_lab::virtual_time::take(folder, "replayed.bin")?;
    let mut results = results(&bytes, count).ok_or(RunError::Garbled(path))?;
    let (path, bytes) = slowpath_lab::virtual_time::take(folder, "probes.bin")?;
    let mut probes = probes(&bytes).ok_or(RunError::Garbled(path))?;
    if options.probe && options.more {
        let (path, bytes) = slowpath_lab::virtual_time::take(folder, "more.bin")?;
        add_more(&mut probes, &bytes).ok_or(RunError::Garbled(path))?;
    }
    if light {
        observed::compare(&connections, &probes, &mut results);
        if !options.probe {
            probes.retain(|probe| {
                let result = results.get(probe.connection as usize);
                result.is_some_and(|it| it.difference.is_some())
            });
        }
    }
    let (path, bytes) = slowpath_lab::virtual_time::take(folder, "account.bin")?;
    let reported = reported(&bytes, count).ok_or(RunError::Garbled(path))?;
    let (_, functions) = slowpath_lab::virtual_time::take(folder, "functions.txt")?;
    Ok(Replayed {
        results,
        captures: options
            .capture
            .map(|_| [0, 1].map(|host| folder.join(format!("capture-{host}.pcap")))),
        probes,
        reported,
        functions: String::from_utf8_lossy(&functions).into_owned(),
        wall,
    })
}

/// The same under a debugger: what is to be started in that folder, which must stay.
///
/// # Errors
/// As [`replay`].
pub fn command(
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    options: &ReplayOptions,
    folder: &Path,
) -> std::result::Result<Option<Command>, ReplayError> {
    let prepared = prepare(kernel, recording, chosen, options, folder)?;
    Ok(prepared.map(|(plan, _)| machine::command(kernel, &plan, &Options::default(), folder)))
}

/// Writes what the kernel reads; the connections. `None`: none.
fn prepare<'a>(
    kernel: &Kernel,
    recording: &'a Recording,
    chosen: &[usize],
    options: &ReplayOptions,
    folder: &Path,
) -> std::result::Result<Option<(Plan, Vec<&'a Connection>)>, ReplayError> {
    if recording.origin.hz != kernel.hz {
        return Err(ReplayError::Ticks {
            recorded: recording.origin.hz,
            found: kernel.hz,
        });
    }
    if chosen.len() > MOST {
        return Err(ReplayError::TooMany(chosen.len()));
    }
    let mut connections: Vec<&Connection> = Vec::with_capacity(chosen.len());
    for number in chosen.iter().copied() {
        if let Some(connection) = recording.connections.get(number) {
            let all_there = connection.replayable();
            all_there.map_err(|reason| ReplayError::Unreplayable { number, reason })?;
            connections.push(connection);
        }
    }
    let follow = follows(recording);
    let Some(plan) = make_plan(&connections, chosen, options, follow)? else {
        return Ok(None);
    };
    let (reported, stop) = (options.functions.as_ref(), options.stop.as_ref());
    let checked = !observed::is_light(recording);
    let script = script::script(&connections, reported, stop, follow, checked)?;
    for (name, bytes) in [("plan.bin", plan.encode()), ("script.bin", script)] {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|error| RunError::file(&path, error))?;
    }
    Ok(Some((plan, connections)))
}

/// Recorded on a stock kernel, whose calls wait and which has queues.
pub(crate) fn follows(recording: &Recording) -> bool {
    recording.origin.recorder == RecorderKind::Bpf || observed::is_light(recording)
}

fn make_plan(
    connections: &[&Connection],
    chosen: &[usize],
    options: &ReplayOptions,
    follow: bool,
) -> std::result::Result<Option<Plan>, ReplayError> {
    let mut kinds = Vec::new();
    let mut planned = Vec::new();
    let mut shared = None;
    for (place, connection) in connections.iter().enumerate() {
        let settings = &connection.settings;
        let sysctls = settings::take_sysctls(settings)?;
        if *shared.get_or_insert_with(|| sysctls.clone()) != sysctls {
            return Err(ReplayError::Mixed(chosen[0], chosen[place]));
        }
        let kind = settings::take_kind(connection)?;
        let number = match kinds.iter().position(|known| *known == kind) {
            Some(number) => number,
            None => {
                kinds.push(kind);
                kinds.len() - 1
            }
        };
        planned.push(plan::Connection {
            from: 0,
            to: 1,
            key: 0,
            // At most 65,535: there are no more than MOST.
            port: FIRST_PORT + place as u16,
            // A kind a recorded one: a byte.
            kind: number as u8,
            class: 0,
            label: 0,
        });
    }
    if kinds.len() > 256 {
        return Err(ReplayError::TooMany(kinds.len()));
    }
    let Some((sysctls, ttl, own)) = shared else {
        return Ok(None);
    };
    let mut flags = REPLAY;
    flags |= if options.capture.is_some() {
        CAPTURE
    } else {
        0
    };
    flags |= if options.probe { PROBE } else { 0 };
    flags |= if options.probe && options.more {
        PROBE_MORE
    } else {
        0
    };
    flags |= if options.report { REPORT } else { 0 };
    flags |= if follow { FOLLOW } else { 0 };
    flags |= if options.what_if { WHAT_IF } else { 0 };
    Ok(Some(Plan::direct(Direct {
        connections: planned,
        kinds,
        sysctls,
        own,
        flags,
        snap: options.capture.unwrap_or(0),
        ttl,
        seed: options.seed,
        epoch: options.epoch,
    })))
}

fn results(bytes: &[u8], count: usize) -> Option<Vec<Result>> {
    if bytes.len() != count * size_of::<RawReplayed>() {
        return None;
    }
    let mut from = Reader(bytes);
    (0..count)
        .map(|_| {
            let raw: RawReplayed = from.get()?;
            let how = match raw.status {
                status::EXACT => None,
                status::STATE => Some(DifferenceKind::State),
                status::RESULT => Some(DifferenceKind::Result),
                status::TIMER => Some(DifferenceKind::Timer),
                status::PACKET => Some(DifferenceKind::Packet),
                status::DECISION => Some(DifferenceKind::Decision),
                status::DIGEST => Some(DifferenceKind::Digest),
                status::CALL => Some(DifferenceKind::Call),
                status::NOT_REPLAYED => Some(DifferenceKind::NotReplayed),
                _ => return None,
            };
            Some(Result {
                difference: how.map(|how| Difference {
                    end: raw.end as u8,
                    run: raw.run,
                    how,
                    expected: raw.expected,
                    found: raw.found,
                }),
                runs: raw.runs,
                packets: raw.packets,
            })
        })
        .collect()
}

fn reported(bytes: &[u8], count: usize) -> Option<Vec<[Vec<RunReport>; 2]>> {
    let mut all: Vec<[Vec<RunReport>; 2]> = vec![Default::default(); count];
    let mut decided = Vec::new();
    let mut from = Reader(bytes);
    while !from.is_empty() {
        let raw: RawDone = from.get()?;
        if raw.decision != REPORTED_RUN {
            let decision = *Decision::ALL.get(usize::from(raw.decision))?;
            let outcome = Outcome::from_numbers(decision, raw.first, raw.second)?;
            decided.push((outcome, raw.needed != 0));
            continue;
        }
        let ends = all.get_mut(raw.connection as usize)?;
        ends.get_mut(usize::from(raw.end))?.push(RunReport {
            check: raw.first,
            effect: raw.second,
            decided: std::mem::take(&mut decided),
        });
    }
    Some(all)
}

fn probes(bytes: &[u8]) -> Option<Vec<Probe>> {
    if !bytes.len().is_multiple_of(size_of::<RawProbe>()) {
        return None;
    }
    let mut from = Reader(bytes);
    (0..bytes.len() / size_of::<RawProbe>())
        .map(|_| {
            let raw: RawProbe = from.get()?;
            Some(Probe {
                connection: raw.connection,
                end: raw.end,
                run: raw.run,
                at: Moment(raw.at),
                fields: Box::new(SocketFields(raw.fields)),
                more: Box::default(),
            })
        })
        .collect()
}

/// As many as there are probes, each of [`MORE`].
fn add_more(probes: &mut [Probe], bytes: &[u8]) -> Option<()> {
    let mut from = Reader(bytes);
    for probe in probes {
        let values = (0..MORE.len()).map(|_| from.i64());
        probe.more = values.collect::<Option<_>>()?;
    }
    from.is_empty().then_some(())
}
