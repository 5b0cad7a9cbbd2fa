// SPDX-License-Identifier: Apache-2.0
//! The recorder that this kernel allows: all handlers by their functions' entries and exits, or tracepoints only.

use super::unwritable;
use crate::failure::Failure;
use crate::message;
use slowpath_files::OutputFile;
use slowpath_recorder::handlers::{Losses, Recorder};
use slowpath_recorder::packets::LightRecorder;
use slowpath_recorder::stock::{Host, Joined};
use slowpath_recorder::{light, stock};
use slowpath_recording::RecorderKind;
use std::io::Write;
use std::path::Path;

/// One of them, and the joiner of its events.
pub(super) enum KernelRecorder {
    Handlers(Box<Recorder>, Box<stock::Joiner>),
    Tracepoints(Box<LightRecorder>, Box<light::Joiner>),
}

/// What was left out.
pub(super) struct Unrecorded {
    pub(super) losses: Losses,
    /// Sockets, because of others.
    pub(super) too_many: u64,
    /// Sockets that speak IPv6, whose packets tracepoints cannot distinguish.
    pub(super) ipv6: u64,
}

/// The file that the raw events also go to, if the user wants one.
pub(super) struct EventsFile<'a>(Option<(&'a Path, OutputFile)>);

impl<'a> EventsFile<'a> {
    pub(super) fn open(path: Option<&'a Path>) -> Result<Self, Failure> {
        let open = |path| match OutputFile::create(path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(unwritable(path, &error)),
        };
        Ok(EventsFile(path.map(open).transpose()?))
    }

    fn append(&mut self, events: &[u8]) -> Result<(), Failure> {
        let Some((path, file)) = &mut self.0 else {
            return Ok(());
        };
        file.write_all(events)
            .map_err(|error| unwritable(path, &error))
    }

    /// Gives the file its name: nothing follows.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self.0 {
            Some((path, file)) => file.commit().map_err(|error| unwritable(path, &error)),
            None => Ok(()),
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Record(format!("{error:#}"))
}

impl KernelRecorder {
    /// Opens the recorder of all handlers, if the kernel allows it and the user does not want the light one.
    /// Without `both_ends` also ends whose other end is on another machine.
    pub(super) fn open(
        ports: &[u16],
        light: bool,
        both_ends: bool,
    ) -> Result<KernelRecorder, Failure> {
        let joiner = match both_ends {
            true => stock::Joiner::default().pairs_only(),
            false => stock::Joiner::default(),
        };
        let refused = if light {
            None
        } else {
            match Recorder::open(ports) {
                Ok(recorder) => {
                    return Ok(KernelRecorder::Handlers(
                        Box::new(recorder),
                        Box::new(joiner),
                    ));
                }
                Err(error) => Some(error),
            }
        };
        match (LightRecorder::open(ports), refused) {
            (Ok(recorder), refused) => {
                if refused.is_some() {
                    message::say(format_args!(
                        "this kernel does not let BPF attach to its functions (fentry): recording by tracepoints, a replay may part from it"
                    ));
                }
                if !recorder.knows_timers() {
                    message::say(format_args!(
                        "/proc/kallsyms hides addresses: TCP's timers are not recorded"
                    ));
                }
                Ok(KernelRecorder::Tracepoints(
                    Box::new(recorder),
                    Box::default(),
                ))
            }
            // What is missing for the other one is missing for both.
            (Err(error), refused) => Err(failed(refused.unwrap_or(error))),
        }
    }

    pub(super) fn kind(&self) -> RecorderKind {
        match self {
            KernelRecorder::Handlers(..) => RecorderKind::Bpf,
            KernelRecorder::Tracepoints(..) => RecorderKind::Tracepoints,
        }
    }

    pub(super) fn take(&mut self, file: &mut EventsFile<'_>) -> Result<(), Failure> {
        match self {
            KernelRecorder::Handlers(recorder, joiner) => {
                let events = recorder.take().map_err(failed)?;
                file.append(&events)?;
                joiner.take(&events).map_err(failed)
            }
            KernelRecorder::Tracepoints(recorder, joiner) => {
                let events = recorder.take().map_err(failed)?;
                file.append(&events)?;
                joiner.take(&events).map_err(failed)
            }
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        match self {
            KernelRecorder::Handlers(_, joiner) => joiner.is_busy(),
            KernelRecorder::Tracepoints(_, joiner) => joiner.is_busy(),
        }
    }

    /// What was recorded, and what was not; `host` with all that was lost.
    pub(super) fn finish(
        self,
        host: impl FnOnce(u64) -> Host,
    ) -> Result<(Joined, Unrecorded), Failure> {
        match self {
            KernelRecorder::Handlers(recorder, joiner) => {
                let unrecorded = Unrecorded {
                    losses: recorder.losses(),
                    too_many: recorder.unrecorded(),
                    ipv6: 0,
                };
                let host = host(unrecorded.losses.total());
                Ok((joiner.finish(host), unrecorded))
            }
            KernelRecorder::Tracepoints(mut recorder, mut joiner) => {
                let rest = recorder.stop().map_err(failed)?;
                joiner.take(&rest).map_err(failed)?;
                let unrecorded = Unrecorded {
                    losses: recorder.losses(),
                    too_many: 0,
                    ipv6: recorder.ipv6(),
                };
                let host = host(unrecorded.losses.total());
                Ok((joiner.finish(host), unrecorded))
            }
        }
    }
}
