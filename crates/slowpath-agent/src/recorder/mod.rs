// SPDX-License-Identifier: Apache-2.0
//! Recording inside the agent: a ring of the last minutes, from which connections with problems are kept as files that `slowpath replay` reads.
//!
//! What enters: the recorder of the kernel ([`EventSource`]), and which connections the agent asks for ([`KeepFilter`]). What leaves: files in a folder, each with what it was asked for in
//! a second file beside it ([`KeptRecording`]), and what it costs and lost ([`RecorderState`]). What is known not to be replayable is not kept, and reported with the reason.
//!
//! What is promised: a thread of its own does all of it, so that no poll waits; the ring, the folder and what waits for the agent are bounded; what was asked for and
//! could not be kept is reported with the reason.

mod folder;
mod requests;
mod source;
#[cfg(test)]
mod tests;
mod thread;

pub use folder::FolderError;
pub use requests::KeepFilter;
pub(crate) use requests::KeepRequests;
pub use source::{EventSource, OpenRecorder, kernel};

use folder::Folder;
use slowpath_model::Micros;
use slowpath_observe::bpf::Programs;
use slowpath_recorder::ring::{Counts, Options, SettingsCheck};
use slowpath_recording::{RecorderKind, ReplayKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How to record.
pub struct RecordOptions {
    /// The ring's bounds.
    pub ring: Options,
    /// Where recordings are kept.
    pub folder: PathBuf,
    /// The folder's oldest recordings are deleted when it has more bytes.
    pub folder_bytes: u64,
    /// Which connections are kept.
    pub wanted: KeepFilter,
    /// What replays run on.
    pub laboratory: Laboratory,
    /// Opens the kernel's recorder, in the thread that uses it.
    pub open: Box<dyn FnOnce() -> Result<OpenRecorder, String> + Send>,
}

/// What replays run on. The agent has none: it only has to know what can be replayed there.
#[derive(Clone, Copy, Debug)]
pub struct Laboratory {
    /// Its version of Linux, as in 6.12.
    pub version: &'static str,
    /// Whether a connection's settings are possible there.
    pub takes: SettingsCheck,
}

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel's recorder does not start.
    #[error("{0}")]
    Source(String),
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The thread.
    #[error("starting the recorder's thread: {0}")]
    Thread(std::io::Error),
}

/// A recording that was kept, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecording {
    /// Who connected, and to whom; of what could not be kept, the agent's end and its peer.
    pub addresses: [SocketAddr; 2],
    /// What it was asked for.
    pub reasons: Vec<String>,
    /// The owners' names, in the order of the addresses, as far as they are known.
    pub owners: [Option<String>; 2],
    /// The file, or why there is none.
    pub file: Result<PathBuf, String>,
    /// How it is replayed; `None`: it was not kept.
    pub replay: Option<ReplayKind>,
    /// The connection lives on: a later recording takes the place of this one.
    pub lives: bool,
}

/// How the recorder is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecorderState {
    /// The kernel's recorder.
    pub recorder: RecorderKind,
    /// Bytes in the ring.
    pub ring_bytes: u64,
    /// How many it may hold.
    pub ring_limit: u64,
    /// Connections in the ring.
    pub ring_connections: u64,
    /// What became of connections.
    pub counts: Counts,
    /// Events that the kernel could not hand over.
    pub lost_events: u64,
    /// Sockets that were not recorded, because there were too many.
    pub excess_sockets: u64,
    /// Sockets that were not recorded, because they speak IPv6, of which tracepoints
    /// report too little.
    pub ipv6_sockets: u64,
    /// CPU time of the thread that joins, encodes and writes; the programs in the kernel are not in it.
    pub cpu: Micros,
    /// Recordings in the folder, and their bytes.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Recordings deleted for newer ones.
    pub files_deleted: u64,
    /// Recordings that could not be written.
    pub files_failed: u64,
    /// It has ended: why.
    pub ended: Option<String>,
}

/// What the thread is asked.
enum RecorderCommand {
    Keep(Vec<requests::KeepRequest>),
    KeepAll(String),
    Stop,
}

/// The recorder, as the agent sees it. It ends when it is dropped: what was asked for is written.
pub(crate) struct Recorder {
    commands: Sender<RecorderCommand>,
    kept: Receiver<KeptRecording>,
    state: Arc<Mutex<RecorderState>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts recording; `cpu` is the share of a core that it may take.
    pub(crate) fn start(
        options: RecordOptions,
        cpu: Option<f64>,
    ) -> Result<(Self, KeepRequests, Programs), RecordError> {
        let RecordOptions {
            ring,
            folder,
            folder_bytes,
            wanted,
            laboratory,
            open,
        } = options;
        let folder = Folder::open(folder, folder_bytes)?;
        let (commands, asked) = channel();
        let (reports, kept) = std::sync::mpsc::sync_channel(thread::MAX_REPORTED);
        let (begun, begins) = channel();
        let state = Arc::new(Mutex::new(RecorderState::default()));
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let body = move || match open() {
            Ok(mut opened) => {
                let programs = std::mem::take(&mut opened.programs);
                let work = thread::Work::new(opened, ring, folder, laboratory, reports, shared);
                let work = work.within(cpu);
                work.publish(None);
                let _ = begun.send(Ok(programs));
                work.run(&asked);
            }
            Err(reason) => {
                let _ = begun.send(Err(reason));
            }
        };
        let thread = thread.spawn(body).map_err(RecordError::Thread)?;
        let begins = begins.recv();
        let programs = begins
            .unwrap_or_else(|_| Err("the recorder's thread died".to_owned()))
            .map_err(RecordError::Source)?;
        let recorder = Recorder {
            commands,
            kept,
            state,
            thread: Some(thread),
        };
        Ok((recorder, KeepRequests::new(wanted), programs))
    }

    pub(crate) fn keep(&self, asks: Vec<requests::KeepRequest>) {
        if !asks.is_empty() {
            // Its end is in the state.
            let _ = self.commands.send(RecorderCommand::Keep(asks));
        }
    }

    pub(crate) fn keep_all(&self, reason: &str) {
        let _ = self
            .commands
            .send(RecorderCommand::KeepAll(reason.to_owned()));
    }

    pub(crate) fn kept(&self) -> Vec<KeptRecording> {
        self.kept.try_iter().collect()
    }

    pub(crate) fn state(&self) -> RecorderState {
        lock(&self.state).clone()
    }

    /// Ends it, and gives what it still kept and how it was.
    pub(crate) fn finish(mut self) -> (Vec<KeptRecording>, RecorderState) {
        self.end();
        (self.kept(), self.state())
    }

    fn end(&mut self) {
        let _ = self.commands.send(RecorderCommand::Stop);
        if let Some(thread) = self.thread.take() {
            // It has nothing to return; a panic has been reported on standard error.
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(state: &Mutex<RecorderState>) -> MutexGuard<'_, RecorderState> {
    // Whole values are written: a panic elsewhere leaves a good one.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
