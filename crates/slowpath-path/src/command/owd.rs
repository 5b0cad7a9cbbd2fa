// SPDX-License-Identifier: Apache-2.0
//! `slowpath path owd`.

use super::archive::{Archiver, Outcome};
use super::arguments::{Correction, Ends, Owd, Protocol};
use super::{CommandError, keys};
use crate::control::{Credentials, Modes};
use crate::file::{Finished, SessionFile, SkipsPlace};
use crate::pscheduler::Run;
use crate::report::{PathReport, Reading, of_one_way, of_two_way, text};
use crate::results::Corrections;
use crate::session::{
    Measured, OneWayOutcome, PathError, TestOptions, TwoWayKind, measure, measure_two_way,
};
use crate::socket::{monotonic, sleep_until};
use crate::time::Span;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

/// Packets of a measurement where nothing else is asked.
const PACKETS: u32 = 100;

/// Packets of one stretch of a rolling measurement.
const MOST_OF_STRETCH: f64 = 1_000_000.0;

/// Measurements that overlap while one waits for its last packets.
const MOST_AT_ONCE: usize = 64;

/// Does it.
pub(super) fn run(
    owd: &Owd,
    interrupted: &Arc<AtomicBool>,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let options = options(owd)?;
    let reading = reading(owd)?;
    let archiver = Archiver::new(&owd.archiving, owd.raw)?;
    match owd.rolling {
        Some(length) => {
            let mean = options.slots.mean().as_duration().as_secs_f64();
            let packets = (length.as_secs_f64() / mean.max(1e-9))
                .ceil()
                .clamp(1.0, MOST_OF_STRETCH);
            let rolling = Rolling {
                owd,
                options: TestOptions {
                    packets: packets as u32,
                    ..options
                },
                reading,
                archiver,
            };
            rolling.run(interrupted, out)
        }
        None => once(owd, &options, (&reading, &archiver), interrupted, out),
    }
}

fn once(
    owd: &Owd,
    options: &TestOptions,
    (reading, archiver): (&Reading, &Archiver),
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let (outcome, report) = measure_by(kind(owd.protocol), options, reading, interrupted)?;
    if let (Outcome::OneWay(outcome), Some(file)) = (&outcome, &owd.save) {
        save(file, outcome)?;
    }
    match &outcome {
        _ if archiver.prints() => {}
        Outcome::OneWay(outcome) if owd.raw => write_raw(outcome, out)?,
        _ => write_report(&report, owd.json, out)?,
    }
    archiver.deliver(&archiver.runs(&outcome, &report, options)?, out)
}

/// Measures once; without a kind by OWAMP.
pub(super) fn measure_by(
    kind: Option<TwoWayKind>,
    options: &TestOptions,
    reading: &Reading,
    interrupted: &AtomicBool,
) -> Result<(Outcome, PathReport), PathError> {
    Ok(match kind {
        None => {
            let outcome = measure(options, interrupted)?;
            let report = of_one_way(&outcome, reading);
            (Outcome::OneWay(Box::new(outcome)), report)
        }
        Some(kind) => {
            let outcome = measure_two_way(options, kind, interrupted)?;
            let report = of_two_way(&outcome, kind, reading);
            (Outcome::TwoWay(Box::new(outcome)), report)
        }
    })
}

fn write_report(report: &PathReport, json: bool, out: &mut dyn Write) -> io::Result<()> {
    match json {
        true => {
            serde_json::to_writer(&mut *out, report)?;
            writeln!(out)?;
        }
        false => out.write_all(text::report(report).as_bytes())?,
    }
    out.flush()
}

fn write_raw(outcome: &OneWayOutcome, out: &mut dyn Write) -> io::Result<()> {
    for (way, measured) in [("there", &outcome.there), ("back", &outcome.back)] {
        let Some(measured) = measured else { continue };
        writeln!(
            out,
            "# {way}: from {} to {}",
            measured.request.sender, measured.request.receiver
        )?;
        for record in &measured.records {
            writeln!(out, "{}", text::raw(record))?;
        }
    }
    out.flush()
}

/// Writes one file a direction.
fn save(file: &Path, outcome: &OneWayOutcome) -> Result<(), CommandError> {
    let both = outcome.there.is_some() && outcome.back.is_some();
    let named = |ending: &str| -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        if both {
            name.push(ending);
        }
        name.into()
    };
    let save_one = |file: PathBuf, measured: &Measured| {
        let session = session_file(measured);
        let write = |out: &mut dyn Write| session.write(out);
        slowpath_files::write_with(&file, |out| write(out))
            .map_err(|source| CommandError::Save { file, source })
    };
    if let Some(there) = &outcome.there {
        save_one(named(".there"), there)?;
    }
    if let Some(back) = &outcome.back {
        save_one(named(".back"), back)?;
    }
    Ok(())
}

/// A direction as owamp's file has it: the packets' own times, to the bit.
fn session_file(measured: &Measured) -> SessionFile {
    SessionFile {
        finished: Finished::Normal,
        next_sequence: measured.next_sequence,
        request: measured.request.clone(),
        skips: measured.skips.clone(),
        records: measured.records.clone(),
        skips_place: match measured.skips.is_empty() {
            true => SkipsPlace::After,
            false => SkipsPlace::Before,
        },
    }
}

pub(super) fn kind(protocol: Protocol) -> Option<TwoWayKind> {
    match protocol {
        Protocol::Owamp => None,
        Protocol::Twamp => Some(TwoWayKind::Twamp),
        Protocol::TwampLight => Some(TwoWayKind::TwampLight),
        Protocol::Stamp => Some(TwoWayKind::Stamp),
    }
}

/// A measurement that goes on: stretches, each a session of its own, one after the other. Every packet is in exactly one,
/// and memory holds only those that still wait for their last packets.
struct Rolling<'a> {
    owd: &'a Owd,
    options: TestOptions,
    reading: Reading,
    archiver: Archiver,
}

/// A stretch and what others get of it.
type Stretch = Result<(PathReport, Vec<Run>), CommandError>;

impl Rolling<'_> {
    fn run(&self, interrupted: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<(), CommandError> {
        let (sender, results) = mpsc::channel();
        let length =
            i64::try_from(self.owd.rolling.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX);
        let mut left = self.owd.count.map(u64::from);
        let mut due = monotonic();
        let (mut running, mut number, mut next) = (0usize, 0u64, 0u64);
        let mut waiting = std::collections::BTreeMap::new();
        loop {
            let more = left != Some(0) && !interrupted.load(Ordering::Relaxed);
            if !more && running == 0 {
                return Ok(());
            }
            if more && running < MOST_AT_ONCE && sleep_until(due, interrupted) {
                let mut options = self.options.clone();
                if let Some(left) = &mut left {
                    options.packets = u64::from(options.packets).min(*left) as u32;
                    *left -= u64::from(options.packets);
                }
                self.start(number, options, interrupted, &sender);
                (number, running, due) = (number + 1, running + 1, due + length);
            }
            let pause = std::time::Duration::from_millis(50);
            while let Ok((number, report)) = results.recv_timeout(pause) {
                running -= 1;
                waiting.insert(number, report);
                // In order.
                while let Some(report) = waiting.remove(&next) {
                    let stretch: Stretch = report;
                    let (report, runs) = stretch?;
                    if !self.archiver.prints() {
                        write_report(&report, self.owd.json, out)?;
                    }
                    match self.archiver.deliver(&runs, out) {
                        // An archive that is away for a while must not end hours of measuring.
                        Err(CommandError::Archive(error)) => eprintln!("slowpath: {error}"),
                        delivered => delivered?,
                    }
                    next += 1;
                }
            }
        }
    }

    fn start(
        &self,
        number: u64,
        options: TestOptions,
        interrupted: &Arc<AtomicBool>,
        results: &mpsc::Sender<(u64, Stretch)>,
    ) {
        let (reading, archiver) = (self.reading.clone(), self.archiver.clone());
        let (interrupted, results) = (Arc::clone(interrupted), results.clone());
        let kind = kind(self.owd.protocol);
        thread::spawn(move || {
            let stretch = || {
                let (outcome, report) = measure_by(kind, &options, &reading, &interrupted)?;
                let runs = archiver.runs(&outcome, &report, &options)?;
                Ok((report, runs))
            };
            // The receiver outlives all senders.
            let _ = results.send((number, stretch()));
        });
    }
}

/// Modes by owping's letters.
pub(super) fn modes(letters: &str) -> Result<Modes, CommandError> {
    let mut modes = Modes::default();
    for letter in letters.chars() {
        modes = modes.or(match letter.to_ascii_uppercase() {
            'A' => Modes::AUTHENTICATED,
            'E' => Modes::ENCRYPTED,
            'M' => Modes::MIXED,
            'O' => Modes::OPEN,
            _ => {
                let text = format!("`{letter}` is no mode: write some of A, E, M and O");
                return Err(CommandError::Usage(text));
            }
        });
    }
    Ok(modes)
}

fn reading(owd: &Owd) -> Result<Reading, CommandError> {
    if let Some(wrong) = owd.percentiles.iter().find(|p| !(0.0..=100.0).contains(*p)) {
        return Err(CommandError::Usage(format!(
            "{wrong} is no percentile: write 0 to 100"
        )));
    }
    let has = |wanted: Correction| owd.correct.contains(&wanted);
    Ok(Reading {
        percents: owd.percentiles.clone(),
        corrections: Corrections {
            offset: has(Correction::Offset),
            skew: has(Correction::Skew),
            steps: has(Correction::Steps),
        },
        timeout: timeout(owd.timeout)?.as_duration(),
    })
}

pub(super) fn timeout(seconds: f64) -> Result<Span, CommandError> {
    Span::from_seconds(seconds)
        .filter(|span| span.0 > 0)
        .ok_or_else(|| CommandError::Usage(format!("a timeout of {seconds} s cannot be")))
}

/// Both directions of the default schedule, without padding.
pub(super) fn test_options(
    peer: SocketAddr,
    ends: &Ends,
    (timeout, dscp): (Span, u8),
    (modes, credentials): (Modes, Option<Credentials>),
) -> TestOptions {
    TestOptions {
        local: ends.source,
        timeout,
        dscp,
        modes,
        credentials,
        ports: ends.ports,
        ..TestOptions::to(peer)
    }
}

fn options(owd: &Owd) -> Result<TestOptions, CommandError> {
    if owd.protocol != Protocol::Owamp && (owd.to || owd.from || owd.save.is_some() || owd.raw) {
        let text =
            "-t, -f, --save and --raw need --protocol owamp: a reflector always measures both ways";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let credentials = keys::named(owd.user.as_deref(), owd.keys.as_deref())?;
    let one_way = owd.to || owd.from;
    let peer = resolve(&owd.peer, &owd.ends, owd.protocol)?;
    let how = (timeout(owd.timeout)?, owd.dscp);
    Ok(TestOptions {
        packets: owd.count.unwrap_or(PACKETS),
        slots: owd.interval.clone(),
        padding: owd.padding,
        there: owd.to || !one_way,
        back: owd.from || !one_way,
        ..test_options(peer, &owd.ends, how, (modes(&owd.modes)?, credentials))
    })
}

/// The peer's address: of a name the first of the wanted family.
pub(super) fn resolve(
    peer: &str,
    ends: &Ends,
    protocol: Protocol,
) -> Result<SocketAddr, CommandError> {
    let port = if protocol == Protocol::Owamp {
        861
    } else {
        862
    };
    let failed = |source| CommandError::Resolve {
        name: peer.to_owned(),
        source,
    };
    let bare = peer.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = match bare.parse() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => match peer.to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(_) => (peer, port).to_socket_addrs().map_err(failed)?.collect(),
        },
    };
    let wanted =
        |address: &&SocketAddr| !(ends.v4 && address.is_ipv6() || ends.v6 && address.is_ipv4());
    let found = addresses.iter().find(wanted).copied();
    found.ok_or_else(|| {
        failed(io::Error::new(
            io::ErrorKind::NotFound,
            "it has none of this family",
        ))
    })
}
