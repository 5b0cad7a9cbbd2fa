// SPDX-License-Identifier: Apache-2.0
//! `slowpath record`: connections of this machine as recordings that can be replayed, by BPF only.
//!
//! What enters: the events of the recorders of `slowpath-recorder`. What leaves: a recording's file, whole or not at all, and a summary. A connection is recorded if
//! it is opened while the recorder runs: with both ends, if both are on this machine (loopback, namespaces, containers), else this one, which another machine's recording completes.

mod recorder;

use crate::command::{self, Output, Running};
use crate::events::{self, Event};
use crate::failure::{Failure, Outcome};
use crate::message;
use crate::render::{bytes, plural};
use clap::Args;
use recorder::{EventsFile, KernelRecorder, Unrecorded};
use serde_json::json;
use slowpath_files::OutputFile;
use slowpath_lab::virtual_time::{SOURCE, version};
use slowpath_recorder::handlers::MOST_PORTS;
use slowpath_recorder::stock::{Host, Joined};
use slowpath_recording::{self as recording, Origin, RecorderKind};
use std::io::{Write, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// `slowpath record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath record --port 5432                          until Ctrl-C, to slowpath.rec
  slowpath record --for 30s --port 80 --port 443 --out web.rec
  slowpath record --out test.rec -- ./run-the-test     while a command runs
  slowpath replay test.rec                             then: does each behave as recorded?
  slowpath replay client.rec server.rec                connections between two machines that each recorded one end
It records connections that are opened while it runs; of those to other machines, this end. With --light it records only connections over IPv4 with both ends here. It needs root and a kernel that lets BPF attach to its
functions; docs/reference/replay.md says which kernels can be replayed.")]
pub struct Record {
    /// Write the recording to this file, replacing it at the end
    #[arg(long, value_name = "FILE", default_value = "slowpath.rec")]
    pub out: PathBuf,
    /// Stop after this time; without it, at Ctrl-C or at COMMAND's end
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::options::duration)]
    pub duration: Option<Duration>,
    /// Only connections to or from this port (repeat for more); without it, all
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Vec<u16>,
    /// Use tracepoints only: cheap enough to run always, but calls and deferred work are inferred, and a replay may diverge from the recording. Where the kernel does not let BPF
    /// attach to its functions this is the only way
    #[arg(long)]
    pub light: bool,
    /// Leave out connections whose other end is on another machine
    #[arg(long)]
    pub both_ends: bool,
    /// Print what was recorded as JSON; COMMAND's output then goes to standard error
    #[arg(long)]
    pub json: bool,
    /// Keep the recorder's raw events as well, for the example replay-stock of slowpath-lab
    #[arg(long, value_name = "FILE", hide = true)]
    pub events: Option<PathBuf>,
    /// Record while this command runs
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// How often events are taken out of the kernel's ring.
const TAKING: Duration = Duration::from_millis(100);

/// What still is on its way when none is left.
const LAST: Duration = Duration::from_millis(300);

/// Sockets that are closed still talk with each other: how long that is waited for.
const LINGER: Duration = Duration::from_secs(3);

/// Does what the arguments say.
///
/// # Errors
/// The kernel does not allow it, the command does not start, or the file cannot be written.
pub fn run(args: &Record) -> Result<Outcome, Failure> {
    if args.port.len() > MOST_PORTS {
        let reason = format!("at most {MOST_PORTS} ports can be recorded at once");
        return Err(Failure::Usage(reason));
    }
    // Found out now and not when all is recorded.
    let file = OutputFile::create(&args.out).map_err(|error| unwritable(&args.out, &error))?;
    let mut recorder = KernelRecorder::open(&args.port, args.light, args.both_ends)?;
    let kind = recorder.kind();
    for line in beforehand(&kind, &release(), SOURCE) {
        message::say(line);
    }
    let (sender, receiver) = events::with_signals()?;
    let mut running = match args.command.is_empty() {
        true => None,
        false => Some(command::start(
            &args.command,
            Output::StandardError,
            &sender,
        )?),
    };
    if running.is_none() {
        message::line(format_args!("recording; Ctrl-C ends it"));
    }
    record(args, &mut recorder, &receiver, running.as_mut())?;
    let (joined, unrecorded) = recorder.finish(|lost| Host {
        origin: origin(kind),
        hystart: hystart(),
        lost,
    })?;
    let size = write(file, &args.out, &joined)?;
    summary(args, &joined, &unrecorded, size)?;
    Ok(running.map_or(Outcome::Done, |running| outcome(args, &running)))
}

/// What a replay of such a recording cannot be, to be known before it is made.
pub(crate) fn beforehand(kind: &RecorderKind, release: &str, replays: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let this = version(release);
    let is_same = this == replays || this.starts_with(&format!("{replays}."));
    if !is_same {
        lines.push(format!(
            "this kernel is Linux {this}, and slowpath replay runs Linux {replays}: it follows each connection up to where the two differ, and says where"
        ));
    }
    if *kind == RecorderKind::Tracepoints {
        lines.push(
            "tracepoints give no calls and no deferred work (they are inferred), no IPv6, and no connection to another machine"
                .to_owned(),
        );
    }
    lines
}

/// As `uname -r` says it.
pub(crate) fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// That of the command; 1 if a signal ended it.
fn outcome(args: &Record, running: &Running) -> Outcome {
    let command = args.command.first().map_or("", String::as_str);
    let Some(status) = running.ended() else {
        message::say(format_args!("`{command}` was asked to end and goes on"));
        return Outcome::Done;
    };
    if let Some(signal) = status.signal() {
        message::say(format_args!(
            "signal {signal} ended `{command}`: the exit status is 1"
        ));
    }
    match status.code() {
        Some(0) => Outcome::Done,
        code => Outcome::Command(code.and_then(|it| u8::try_from(it).ok()).unwrap_or(1)),
    }
}

fn record(
    args: &Record,
    recorder: &mut KernelRecorder,
    receiver: &Receiver<Event>,
    mut running: Option<&mut Running>,
) -> Result<(), Failure> {
    let end = args.duration.map(|duration| Instant::now() + duration);
    let mut events = EventsFile::open(args.events.as_deref())?;
    loop {
        recorder.take(&mut events)?;
        match receiver.recv_timeout(TAKING) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::CommandEnded(status)) => {
                if let Some(running) = &mut running {
                    running.note_end(status);
                }
                break;
            }
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(_) => {}
        }
        if end.is_some_and(|end| end <= Instant::now()) {
            break;
        }
    }
    if let Some(running) = running {
        running.end(receiver);
    }
    let until = Instant::now() + LINGER;
    recorder.take(&mut events)?;
    while recorder.is_busy() && !args.command.is_empty() && Instant::now() < until {
        std::thread::sleep(TAKING);
        recorder.take(&mut events)?;
    }
    if !args.command.is_empty() {
        std::thread::sleep(LAST);
        recorder.take(&mut events)?;
    }
    events.finish()
}

fn origin(recorder: RecorderKind) -> Origin {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as i64);
    Origin {
        kernel: release(),
        // The events say it.
        hz: 0,
        epoch: now - slowpath_observe::monotonic().0 as i64,
        recorder,
    }
}

/// Whether CUBIC leaves slow start early; it does unless the user has changed it.
fn hystart() -> bool {
    let value = std::fs::read_to_string("/sys/module/tcp_cubic/parameters/hystart");
    value.map_or(true, |value| value.trim() != "0")
}

/// Writes the recording into the file that waits for it.
fn write(mut file: OutputFile, wanted: &Path, joined: &Joined) -> Result<usize, Failure> {
    let bytes = recording::encode(&joined.recording);
    let bytes = bytes.map_err(|error| unwritable(wanted, &error))?;
    let written = file.write_all(&bytes).and_then(|()| file.commit());
    written.map_err(|error| unwritable(wanted, &error))?;
    Ok(bytes.len())
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Write(format!(
        "cannot write the recording {}: {error}",
        path.display()
    ))
}

fn summary(
    args: &Record,
    joined: &Joined,
    unrecorded: &Unrecorded,
    size: usize,
) -> Result<(), Failure> {
    let connections = &joined.recording.connections;
    let runs: usize = connections
        .iter()
        .flat_map(|it| &it.ends)
        .chain(joined.recording.one_sided.iter().map(|it| &it.end))
        .map(|end| end.runs.len())
        .sum();
    let out = &mut stdout().lock();
    if args.json {
        let whole = connections.iter().filter(|it| it.replayable().is_ok());
        let value = json!({
            "file": args.out,
            "recorder": joined.recording.origin.recorder.name(),
            "bytes": size,
            "connections": connections.len(),
            "replayable": whole.count(),
            "ends_alone": joined.recording.one_sided.len(),
            "runs": runs,
            "one_end_only": joined.halves,
            "lost_events": unrecorded.losses.ring,
            "missed_programs": unrecorded.losses.missed,
            "unseen_sockets": unrecorded.too_many,
            "ipv6_sockets": unrecorded.ipv6,
            "unplaced_events": joined.unplaced,
        });
        writeln!(out, "{value}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{}: {} in {}, {} of handlers{}",
        args.out.display(),
        plural(connections.len() as u64, "connection"),
        bytes(size as u64),
        plural(runs as u64, "run"),
        if is_light(joined) {
            ", by tracepoints only"
        } else {
            ""
        },
    )?;
    if connections.is_empty() && joined.recording.one_sided.is_empty() {
        writeln!(out, "{}", nothing(args))?;
    }
    for connection in connections {
        if let Err(reason) = connection.replayable() {
            let [from, to] = connection.addresses;
            writeln!(out, "{from} to {to}: {reason}")?;
        }
    }
    write_left_out(joined, unrecorded, out)?;
    Ok(())
}

/// Why there is no connection.
fn nothing(args: &Record) -> String {
    let ports: Vec<String> = args.port.iter().map(ToString::to_string).collect();
    let which = match ports.len() {
        0 => String::new(),
        1 => format!(" to or from port {}", ports[0]),
        _ => format!(" to or from ports {}", ports.join(", ")),
    };
    format!(
        "there is nothing to replay: no connection{which} was opened while it recorded, and those that were open before are not recorded"
    )
}

/// Whether only tracepoints were used.
fn is_light(joined: &Joined) -> bool {
    joined.recording.origin.recorder == RecorderKind::Tracepoints
}

/// Says which ends are one-sided, and what was not recorded.
fn write_left_out(
    joined: &Joined,
    unrecorded: &Unrecorded,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let one_sided = joined.recording.one_sided.len() as u64;
    if one_sided > 0 {
        let ends = plural(one_sided, "connection");
        writeln!(
            out,
            "of {ends} the other end is on another machine: slowpath replay takes both machines' recordings"
        )?;
    }
    if joined.halves > 0 {
        let halves = plural(joined.halves, "connection");
        writeln!(
            out,
            "left out: {halves}{}, or open before the recorder",
            if is_light(joined) {
                " with one end elsewhere, which needs more than tracepoints"
            } else {
                " of which the handshake was not observed"
            }
        )?;
    }
    if unrecorded.too_many > 0 {
        let sockets = plural(unrecorded.too_many, "socket");
        writeln!(out, "not recorded: {sockets} too many at once")?;
    }
    if unrecorded.ipv6 > 0 {
        let sockets = plural(unrecorded.ipv6, "socket");
        writeln!(
            out,
            "not recorded: {sockets} of IPv6, whose packets tracepoints cannot distinguish; without --light, where BPF may attach to functions, they are"
        )?;
    }
    if unrecorded.losses.total() > 0 {
        let lost = plural(unrecorded.losses.total(), "event");
        let of = match joined.recording.connections.is_empty() {
            true => ", of sockets that are not in the recording",
            false => "",
        };
        writeln!(out, "lost: {lost}{of}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_replay_cannot_be_is_said_before() {
        let bpf = |release| beforehand(&RecorderKind::Bpf, release, "6.12");
        assert!(bpf("6.12.48+deb13-cloud-amd64").is_empty());
        assert!(bpf("6.12").is_empty());
        // 6.120 is not 6.12.
        for other in ["6.1.0-40-amd64", "6.120.1", "5.15.0-91-generic"] {
            let [line] = &bpf(other)[..] else {
                panic!("{other}")
            };
            assert!(line.contains("runs Linux 6.12"), "{line}");
        }
        let light = beforehand(&RecorderKind::Tracepoints, "6.12.1", "6.12");
        assert!(light[0].contains("no IPv6"), "{light:?}");
    }
}
