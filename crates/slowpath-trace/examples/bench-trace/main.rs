// SPDX-License-Identifier: Apache-2.0
//! How fast captures are analysed, beside tcptrace and tshark on the same captures in the same
//! run; the last line is one JSON object.
//!
//! Two captures of 1 GiB with 10,240 connections at a time are made: one cut to 96 bytes a
//! frame, one whole. Ours (all figures of all connections; then with verdicts, as `slowpath trace`
//! gives them) and tcptrace (`-n -l -r`: long output, RTT, no name service) take turns on
//! them; ratios are medians over the rounds. tshark (two passes, the frames with a
//! tcp.analysis flag) gets the beginning of the capture, and is compared by time a packet.
//! All files are in the page cache. The keys without `_96` and `_full` are the worse of the two captures.

mod generate;
mod rival;

use generate::{Made, Plan, generate};
use rival::{Cost, median};
use serde_json::{Map, Value, json};
use slowpath_trace::engine::{Began, Follow, Options, run};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::report::analysis;
use slowpath_trace::report::selection::Keep;
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
       bench-trace analyse|count|judge FILE THREADS";

/// Connections open at the same time.
const CONNECTIONS: u32 = 10_240;
/// Connections that a list has.
const KEPT: usize = 10;
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
        ["judge", file, threads] => judge(file, threads),
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

/// What was measured of one program on one capture.
#[derive(Clone, Copy)]
struct Measured {
    packets: u64,
    seconds: f64,
    packets_per_second: f64,
    gib_per_second: f64,
    tcptrace_ratio: f64,
    tshark_ratio: f64,
    rss_mib: f64,
}

fn bench(quick: bool, command: Option<&[&str]>) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let own: OsString = std::env::current_exe()?.into();
    // The program under test: FILE comes last, but for ours.
    let programs: Vec<(&str, Vec<OsString>)> = match command {
        Some(words) => vec![("", words.iter().map(OsString::from).collect())],
        None => vec![
            ("", vec![own.clone(), "analyse".into()]),
            ("verdicts_", vec![own, "judge".into()]),
        ],
    };
    let mut all = Map::new();
    let mut measured = vec![Vec::new(); programs.len()];
    for (suffix, snap) in [("96", 96), ("full", 65_535)] {
        let found = measure(folder.path(), snap, quick, &programs)?;
        for (n, m) in found.into_iter().enumerate() {
            let prefix = programs[n].0;
            println!(
                "{prefix}{suffix}: {} packets in {:.3} s, {:.1} times tcptrace, {:.0} times tshark, {:.0} MiB",
                m.packets, m.seconds, m.tcptrace_ratio, m.tshark_ratio, m.rss_mib
            );
            report(&mut all, prefix, &format!("_{suffix}"), &m);
            measured[n].push(m);
        }
    }
    for ((prefix, _), measured) in programs.iter().zip(&measured) {
        report(&mut all, prefix, "", &worst(measured));
    }
    println!("{}", Value::Object(all));
    Ok(())
}

/// The worse of each figure; the packets of the capture on which it is slower beside tcptrace.
fn worst(measured: &[Measured]) -> Measured {
    let least =
        |value: fn(&Measured) -> f64| measured.iter().map(value).fold(f64::INFINITY, f64::min);
    let slower = measured
        .iter()
        .min_by(|a, b| a.tcptrace_ratio.total_cmp(&b.tcptrace_ratio));
    Measured {
        packets: slower.map_or(0, |m| m.packets),
        packets_per_second: least(|m| m.packets_per_second),
        gib_per_second: least(|m| m.gib_per_second),
        tcptrace_ratio: least(|m| m.tcptrace_ratio),
        tshark_ratio: least(|m| m.tshark_ratio),
        rss_mib: measured.iter().map(|m| m.rss_mib).fold(0.0, f64::max),
        seconds: measured.iter().map(|m| m.seconds).fold(0.0, f64::max),
    }
}

fn report(all: &mut Map<String, Value>, prefix: &str, suffix: &str, m: &Measured) {
    all.insert(format!("{prefix}packets{suffix}"), json!(m.packets));
    for (key, value) in [
        ("packets_per_second", m.packets_per_second),
        ("gib_per_second", m.gib_per_second),
        ("tcptrace_ratio", m.tcptrace_ratio),
        ("tshark_ratio", m.tshark_ratio),
        ("rss_mib", m.rss_mib),
    ] {
        all.insert(format!("{prefix}{key}{suffix}"), json!(round(value)));
    }
}

/// One program on one capture.
fn ours(program: &[OsString], file: &Path) -> Result<Cost, Box<dyn Error>> {
    let (program, arguments) = program.split_first().ok_or(USAGE)?;
    let mut words: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    words.push(file.as_os_str());
    if ["analyse", "judge"].map(OsStr::new).contains(&words[0]) {
        words.push(OsStr::new("0"));
    }
    rival::run(program, &words)
}

fn measure(
    folder: &Path,
    snap: u32,
    quick: bool,
    programs: &[(&str, Vec<OsString>)],
) -> Result<Vec<Measured>, Box<dyn Error>> {
    let bytes = 1u64 << 30;
    let file: PathBuf = folder.join("capture.pcap");
    let made = make(&file, &plan(snap, bytes, CONNECTIONS))?;
    let tcptrace = || {
        let words = ["-n", "-l", "-r"].map(OsStr::new);
        rival::run(
            OsStr::new("tcptrace"),
            &[&words[..], &[file.as_os_str()]].concat(),
        )
    };
    for (_, program) in programs {
        ours(program, &file)?;
    }
    let mut rounds = Vec::new();
    for _ in 0..if quick { 3 } else { 7 } {
        let costs = programs.iter().map(|(_, program)| ours(program, &file));
        let costs: Vec<Cost> = costs.collect::<Result<_, _>>()?;
        rounds.push((costs, tcptrace()?.seconds));
    }
    let tshark = tshark(folder, snap, bytes / CUT, quick)?;
    std::fs::remove_file(&file)?;
    let of = |n: usize| {
        let each = |value: fn(Cost, f64) -> f64| {
            let values = rounds
                .iter()
                .map(|(costs, theirs)| value(costs[n], *theirs));
            values.collect::<Vec<f64>>()
        };
        let seconds = median(each(|mine, _| mine.seconds));
        Measured {
            packets: made.packets,
            seconds,
            packets_per_second: made.packets as f64 / seconds,
            gib_per_second: made.bytes as f64 / bytes as f64 / seconds,
            tcptrace_ratio: median(each(|mine, theirs| theirs / mine.seconds)),
            tshark_ratio: tshark / (seconds / made.packets as f64),
            rss_mib: each(|mine, _| mine.rss_mib).into_iter().fold(0.0, f64::max),
        }
    };
    Ok((0..programs.len()).map(of).collect())
}

/// Seconds a packet that tshark takes. The same seed: it gets how the capture begins.
fn tshark(folder: &Path, snap: u32, bytes: u64, quick: bool) -> Result<f64, Box<dyn Error>> {
    let file = folder.join("cut.pcap");
    let cut = make(&file, &plan(snap, bytes, CONNECTIONS))?;
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
    let words = [&words[..], &[file.as_os_str()]].concat();
    let mut seconds = Vec::new();
    for _ in 0..if quick { 1 } else { 3 } {
        seconds.push(rival::run(OsStr::new("tshark"), &words)?.seconds / cut.packets as f64);
    }
    Ok(median(seconds))
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

/// What `slowpath trace` does: verdicts on all connections, of which the worst are kept.
fn judge(file: &str, threads: &str) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let (inputs, options) = settings(file, threads)?;
    let go_on = |_| ControlFlow::Continue(());
    let analysis = analysis::analyse(inputs, &options, &Keep::worst(KEPT), go_on)?;
    say(began, &analysis.summary);
    for kept in &analysis.connections {
        println!("{} {:?}", kept.number, kept.findings());
    }
    Ok(())
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
