// SPDX-License-Identifier: Apache-2.0
//! `slowpath export --mlab`: polls the sockets of this network namespace and saves what the
//! kernel reports.

use crate::events::{self, Event};
use crate::failure::{Failure, Outcome};
use crate::message;
use slowpath_export::mlab::Recorder;
use slowpath_machine::clock;
use slowpath_observe::inet_diag::RawDump;
use std::io;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// `TCP_LISTEN`, include/net/tcp_states.h.
const LISTEN: u8 = 10;

/// Saves until the time is over or a signal comes.
///
/// # Errors
/// When the kernel or the disk refuses.
pub fn mlab(
    directory: &Path,
    interval: Duration,
    length: Option<Duration>,
) -> Result<Outcome, Failure> {
    let failed = |error: io::Error| {
        Failure::Write(format!(
            "cannot save series in {}: {error}",
            directory.display()
        ))
    };
    slowpath_files::create_folder(directory).map_err(failed)?;
    let mut dump = RawDump::open().map_err(|e| Failure::Start(e.to_string()))?;
    let (_sender, events) = events::with_signals()?;
    let host = slowpath_agent::host_name();
    let mut recorder = Recorder::new(directory, &host, boot_time().map_err(failed)?);
    let began = Instant::now();
    let mut next = began;
    let mut unreadable = 0;
    loop {
        let time = slowpath_text::wall(clock::now());
        let mut saved = Ok(());
        unreadable += dump
            .poll(|socket| {
                let cookie = socket.header.id.cookie();
                if saved.is_ok() && socket.header.state != LISTEN {
                    saved = recorder.see(&time, cookie, socket.message, &socket.attributes);
                }
            })
            .map_err(|e| Failure::Start(e.to_string()))?;
        saved.and_then(|()| recorder.looked()).map_err(failed)?;
        if length.is_some_and(|length| began.elapsed() >= length) {
            break;
        }
        next = (next + interval).max(Instant::now());
        match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    recorder.write_all().map_err(failed)?;
    message::say(format_args!(
        "{} lines of {} connections in {}; left out: {} sightings beyond the bound, {} that cannot be read",
        recorder.lines,
        recorder.files,
        directory.display(),
        recorder.left_out,
        unreadable
    ));
    Ok(Outcome::Done)
}

/// When this kernel started, in seconds since 1970 (`btime`, proc_stat(5)).
fn boot_time() -> io::Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let time = stat.lines().find_map(|l| l.strip_prefix("btime "));
    time.and_then(|t| t.trim().parse().ok())
        .ok_or_else(|| io::Error::other("/proc/stat has no btime"))
}
