// SPDX-License-Identifier: Apache-2.0
//! How fast captures are analysed, beside tcptrace and tshark on the same captures in the same
//! run; the last line is one JSON object.
//!
//! Two captures of 1 GiB with 10,240 connections at a time are made: one cut to 96 bytes a
//! frame, one whole. Ours and tcptrace (`-n -l -r`: long output, RTT, no name service) take turns on
//! them; ratios are medians over the pairs. tshark (two passes, the frames with a
//! tcp.analysis flag) gets the beginning of the capture, and is compared by time a packet.
//! All files are in the page cache. The plain keys are the worse of the two captures.

mod generate;
mod rival;

use generate::{Made, Plan, generate};
use rival::{Cost, median};
use serde_json::{Map, Value, json};
use slowpath_trace::engine::{Began, Follow, Options, run};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use slowpath_trace::tcp::{self, Connection};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: bench-trace [--quick] [--command PROGRAM ARGUMENT...]
       bench-trace generate FILE SNAP MIB CONNECTIONS
       bench-trace analyse|count FILE THREADS";

/// Connections open at the same time.
const CONNECTIONS: u32 = 10_240;
/// Bytes of the beginning that tshark gets, as a part of the whole.
const CUT: u64 = 40;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => bench(false, None),
        ["--quick"] => bench(true, None),
        ["--command", ref command @ ..] => bench(false, Some(command)),
        ["--quick", "--command", ref command @ ..] => bench(true, Some(command)),
        ["generate", file, snap, mib, connections] => make_one(file, [snap, mib, connections]),
        ["count", file, threads] => count(file, threads),
        ["analyse", file, threads] => analyse(file, threads),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-trace: {error}");
            ExitCode::FAILURE
        }
    }
}

fn plan(snap: u32, bytes: u64, connections: u32) -> Plan {
    Plan {
        bytes,
        snap,
        connections,
        segments: if snap < 200 { 500 } else { 80 },
        seed: 1,
    }
}

fn make(file: &Path, plan: &Plan) -> Result<Made, Box<dyn Error>> {
    let mut out = BufWriter::with_capacity(1 << 20, std::fs::File::create(file)?);
    let made = generate(plan, &mut out)?;
    // Writing back must not fall into what is measured.
    out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    Ok(made)
}

fn make_one(file: &str, numbers: [&str; 3]) -> Result<(), Box<dyn Error>> {
    let [snap, mib, connections] = numbers;
    let plan = plan(
        snap.parse()?,
        mib.parse::<u64>()? << 20,
        connections.parse()?,
    );
    println!("{:?}", make(Path::new(file), &plan)?);
    Ok(())
}

/// What was measured on one capture.
struct Measured {
    packets: u64,
    seconds: f64,
    gib: f64,
    tcptrace_ratio: f64,
    tshark_ratio: f64,
    rss_mib: f64,
}

fn bench(quick: bool, command: Option<&[&str]>) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let own: OsString = std::env::current_exe()?.into();
    // The program under test: FILE comes last, but for ours.
    let command: Vec<OsString> = match command {
        Some(words) => words.iter().map(OsString::from).collect(),
        None => vec![own, "analyse".into()],
    };
    let mut all = Map::new();
    let mut measured = Vec::new();
    for (suffix, snap) in [("96", 96), ("full", 65_535)] {
        let m = measure(folder.path(), snap, quick, &command)?;
        println!(
            "{suffix}: {} packets in {:.3} s, {:.1} times tcptrace, {:.0} times tshark, {:.0} MiB",
            m.packets, m.seconds, m.tcptrace_ratio, m.tshark_ratio, m.rss_mib
        );
        report(&mut all, &format!("_{suffix}"), &m);
        measured.push(m);
    }
    let worst =
        |value: fn(&Measured) -> f64| measured.iter().map(value).fold(f64::INFINITY, f64::min);
    let slower = measured
        .iter()
        .min_by(|a, b| a.tcptrace_ratio.total_cmp(&b.tcptrace_ratio));
    let rss = measured.iter().map(|m| m.rss_mib).fold(0.0, f64::max);
    all.insert("packets".to_owned(), json!(slower.map_or(0, |m| m.packets)));
    for (key, value) in [
        (
            "packets_per_second",
            worst(|m| m.packets as f64 / m.seconds),
        ),
        ("gib_per_second", worst(|m| m.gib / m.seconds)),
        ("tcptrace_ratio", worst(|m| m.tcptrace_ratio)),
        ("tshark_ratio", worst(|m| m.tshark_ratio)),
        ("rss_mib", rss),
    ] {
        all.insert(key.to_owned(), json!(round(value)));
    }
    println!("{}", Value::Object(all));
    Ok(())
}

fn report(all: &mut Map<String, Value>, suffix: &str, m: &Measured) {
    all.insert(format!("packets{suffix}"), json!(m.packets));
    for (key, value) in [
        ("packets_per_second", m.packets as f64 / m.seconds),
        ("gib_per_second", m.gib / m.seconds),
        ("tcptrace_ratio", m.tcptrace_ratio),
        ("tshark_ratio", m.tshark_ratio),
        ("rss_mib", m.rss_mib),
    ] {
        all.insert(format!("{key}{suffix}"), json!(round(value)));
    }
}

fn measure(
    folder: &Path,
    snap: u32,
    quick: bool,
    command: &[OsString],
) -> Result<Measured, Box<dyn Error>> {
    let bytes = 1u64 << 30;
    let file: PathBuf = folder.join("capture.pcap");
    let made = make(&file, &plan(snap, bytes, CONNECTIONS))?;
    let (program, arguments) = command.split_first().ok_or(USAGE)?;
    let ours = || -> Result<Cost, Box<dyn Error>> {
        let mut words: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        words.push(file.as_os_str());
        if words.first() == Some(&OsStr::new("analyse")) {
            words.push(OsStr::new("0"));
        }
        rival::run(program, &words)
    };
    let tcptrace = || {
        let words = ["-n", "-l", "-r"].map(OsStr::new);
        rival::run(
            OsStr::new("tcptrace"),
            &[&words[..], &[file.as_os_str()]].concat(),
        )
    };
    ours()?;
    let (mut seconds, mut ratios, mut rss) = (Vec::new(), Vec::new(), 0.0f64);
    for _ in 0..if quick { 3 } else { 7 } {
        let (mine, theirs) = (ours()?, tcptrace()?);
        seconds.push(mine.seconds);
        ratios.push(theirs.seconds / mine.seconds);
        rss = rss.max(mine.rss_mib);
    }
    let seconds = median(seconds);
    // The same seed: this is how the capture begins.
    let cut_file = folder.join("cut.pcap");
    let cut = make(&cut_file, &plan(snap, bytes / CUT, CONNECTIONS))?;
    let words = [
        "-n",
        "-2",
        "-Y",
        "tcp.analysis.flags",
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-r",
    ];
    let words = words.map(OsStr::new);
    let words = [&words[..], &[cut_file.as_os_str()]].concat();
    let mut theirs = Vec::new();
    for _ in 0..if quick { 1 } else { 3 } {
        theirs.push(rival::run(OsStr::new("tshark"), &words)?.seconds / cut.packets as f64);
    }
    std::fs::remove_file(&file)?;
    Ok(Measured {
        packets: made.packets,
        seconds,
        gib: made.bytes as f64 / bytes as f64,
        tcptrace_ratio: median(ratios),
        tshark_ratio: median(theirs) / (seconds / made.packets as f64),
        rss_mib: rss,
    })
}

/// Three significant digits are more than the machine repeats.
fn round(value: f64) -> f64 {
    let scale = 10f64.powi(2 - value.abs().max(1e-9).log10().floor() as i32);
    (value * scale).round() / scale
}

/// What the engine costs by itself: a follower that adds up.
#[derive(Default)]
struct Adding {
    segments: u64,
    bytes: u64,
}

impl Follow for Adding {
    type Report = (u64, u64);

    fn segment(&mut self, segment: &Segment<'_>) {
        self.segments += 1;
        self.bytes += u64::from(segment.length);
    }

    fn finish(self) -> Self::Report {
        (self.segments, self.bytes)
    }
}

fn settings(file: &str, threads: &str) -> Result<(Inputs, Options), Box<dyn Error>> {
    let inputs = Inputs::new(vec![Input::File(Path::new(file).to_owned())])?;
    let options = Options {
        threads: threads.parse()?,
        ..Options::default()
    };
    Ok((inputs, options))
}

fn count(file: &str, threads: &str) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let (inputs, options) = settings(file, threads)?;
    let (mut segments, mut bytes) = (0, 0);
    let add = |finished: slowpath_trace::engine::Finished<(u64, u64)>| {
        segments += finished.report.0;
        bytes += finished.report.1;
    };
    let go_on = |_| ControlFlow::Continue(());
    let summary = run(inputs, &options, |_, _| Adding::default(), add, go_on)?;
    say(began, &summary);
    println!("{segments} segments, {bytes} bytes of payload");
    Ok(())
}

fn say(began: Instant, summary: &slowpath_trace::engine::Summary) {
    let took = began.elapsed();
    let frames = summary.totals.all().frames;
    println!(
        "{frames} frames, {} connections: {:.3} s, {:.1} ns a frame",
        summary.connections,
        took.as_secs_f64(),
        took.as_nanos() as f64 / frames as f64
    );
}

/// All that is found out, connection after connection, and one line of each.
fn analyse(file: &str, threads: &str) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let (inputs, options) = settings(file, threads)?;
    let mut reports = Vec::new();
    let known = tcp::Options::default();
    let summary = run(
        inputs,
        &options,
        |first, began| match began {
            Began::Fresh => Connection::new(first, &known),
            Began::OnReusedPorts => Connection::on_reused_ports(first, &known),
        },
        |finished| reports.push(finished),
        |_| ControlFlow::Continue(()),
    )?;
    // They are large: what is put in order is their numbers.
    let mut order: Vec<usize> = (0..reports.len()).collect();
    order.sort_by_key(|n| reports[*n].first_frame);
    let mut out = BufWriter::new(std::io::stdout().lock());
    for finished in order.iter().map(|n| &reports[*n]) {
        let report = &finished.report;
        let duration = report.duration().as_secs_f64();
        writeln!(
            out,
            "{} {} {duration}",
            finished.first_frame,
            report.packets()
        )?;
    }
    drop(out);
    say(began, &summary);
    Ok(())
}
