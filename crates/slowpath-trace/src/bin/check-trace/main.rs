// SPDX-License-Identifier: Apache-2.0
//! `make check-trace`: our analysis of captures against tcptrace's and tshark's.
//!
//! For each capture every row of `tcptrace -l -r` is compared connection by connection, and
//! every `tcp.analysis` flag of tshark frame by frame. Differences are printed with the frame
//! they begin at; those in `explained.tsv` are reviewed ones, those with a rule are of a kind
//! that docs/reference/trace.md describes ("Known differences"). A file `NAME.long.txt` beside a
//! capture `NAME.gz` stands for tcptrace's output. The last line is JSON; the exit code is 1
//! if a difference has no explanation.

mod explain;
mod imitate;
mod tcptrace;
mod tshark;

use explain::Explained;
use imitate::Passed;
use slowpath_trace::engine::{self, Began, Finished, Follow};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::{Endpoint, Segment, Timestamp};
use slowpath_trace::tcp::wireshark::{self, Flag};
use slowpath_trace::tcp::{Connection, ConnectionReport, Event, Options, Side};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A connection's report and what its frames were.
pub struct Analysed {
    /// The report.
    pub report: ConnectionReport,
    /// Frames and their flags by tshark's rules.
    flags: Vec<(u64, wireshark::Flags)>,
    /// What may explain differences.
    pub hints: explain::Hints,
    /// The segments.
    pub passed: Vec<Passed>,
}

struct Follower {
    connection: Connection,
    flags: Vec<(u64, wireshark::Flags)>,
    hints: explain::Hints,
    passed: Vec<Passed>,
}

impl Follow for Follower {
    type Report = Analysed;

    fn segment(&mut self, segment: &Segment<'_>) {
        let Follower {
            connection,
            flags,
            hints,
            passed,
        } = self;
        passed.push(Passed::new(segment));
        connection.segment_with(segment, &mut |event: &Event<'_>| {
            flags.push((event.frame, event.wireshark));
            hints.event(event, segment);
        });
    }

    fn finish(self) -> Analysed {
        Analysed {
            report: self.connection.finish(),
            flags: self.flags,
            hints: self.hints,
            passed: self.passed,
        }
    }
}

/// The two ends in an order that does not depend on who spoke.
type Pair = (Endpoint, Endpoint);

fn pair(a: Endpoint, b: Endpoint) -> Pair {
    (a.min(b), a.max(b))
}

fn analyse(capture: &Path) -> Result<Vec<Analysed>, String> {
    let inputs = Inputs::new(vec![Input::File(capture.to_owned())])
        .map_err(|e| format!("{}: {e}", capture.display()))?;
    let begin = |first: &Segment<'_>, began: Began| {
        let options = Options::default();
        Follower {
            connection: if began == Began::OnReusedPorts {
                Connection::on_reused_ports(first, &options)
            } else {
                Connection::new(first, &options)
            },
            flags: Vec::new(),
            hints: explain::Hints::default(),
            passed: Vec::new(),
        }
    };
    let mut observed = Vec::new();
    engine::run(
        inputs,
        &engine::Options::default(),
        begin,
        |finished: Finished<Analysed>| observed.push(finished.report),
        |_| ControlFlow::Continue(()),
    )
    .map_err(|e| format!("{}: {e}", capture.display()))?;
    observed.sort_by_key(|s| s.report.first.frame);
    Ok(observed)
}

/// One difference.
pub struct Difference {
    /// Whose opinion.
    pub tool: &'static str,
    /// The connection.
    pub connection: String,
    /// The row, or "flags"; the rule that explains it in brackets.
    pub what: String,
    /// The frame that shows it, or where the connection starts.
    pub frame: u64,
    /// What we say.
    pub ours: String,
    /// What the tool says.
    pub theirs: String,
}

#[derive(Default)]
struct Tally {
    captures: u64,
    connections: u64,
    compared: u64,
    differences: u64,
    explained: u64,
}

fn main() -> ExitCode {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut verbose = false;
    for argument in std::env::args_os().skip(1) {
        if argument == "--verbose" {
            verbose = true;
        } else {
            files.push(argument.into());
        }
    }
    if files.is_empty() {
        eprintln!("usage: check-trace [--verbose] CAPTURE...");
        return ExitCode::from(2);
    }
    let explained = Explained::reviewed();
    let mut tally = Tally::default();
    let mut missing: HashSet<&'static str> = HashSet::new();
    for file in &files {
        if let Err(error) = check(file, &explained, &mut tally, &mut missing, verbose) {
            println!("{}: {error}", file.display());
            tally.differences += 1;
        }
    }
    for tool in missing {
        println!("SKIPPED {tool}: not installed");
    }
    println!(
        "{{\"captures\": {}, \"connections\": {}, \"compared\": {}, \"differences\": {}, \"explained\": {}}}",
        tally.captures, tally.connections, tally.compared, tally.differences, tally.explained
    );
    ExitCode::from(u8::from(tally.differences > 0))
}

fn check(
    file: &Path,
    explained: &Explained,
    tally: &mut Tally,
    missing: &mut HashSet<&'static str>,
    verbose: bool,
) -> Result<(), String> {
    let observed = analyse(file)?;
    tally.captures += 1;
    tally.connections += observed.len() as u64;
    let mut found = Vec::new();
    let mut ignored = BTreeSet::new();
    let expectation = expectation(file);
    let text = match &expectation {
        Some(path) => {
            Some(std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?)
        }
        None => tcptrace::run(file)?,
    };
    if let Some(text) = &text {
        ignored = tcptrace::ignored(text);
    }
    match text {
        Some(text) if !tcptrace::understood(&text) => {
            println!("SKIPPED tcptrace: cannot read {}", file.display());
        }
        Some(text) => {
            tally.compared += against_tcptrace(
                &observed,
                &tcptrace::parse(&text)?,
                &ignored,
                snap_length(file),
                &mut found,
            );
        }
        None => _ = missing.insert("tcptrace"),
    }
    match tshark::run(file)? {
        Some(said) => {
            tally.compared += against_tshark(&observed, &said, &mut found);
        }
        None => _ = missing.insert("tshark"),
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    for difference in found {
        let reason = explained.find(file, &difference);
        let word = if reason.is_some() {
            tally.explained += 1;
            "explained"
        } else {
            tally.differences += 1;
            "DIFFERENT"
        };
        if reason.is_none() || verbose {
            let Difference {
                tool,
                connection,
                what,
                frame,
                ours,
                theirs,
            } = &difference;
            println!(
                "{word}\t{name}\t{tool}\t{connection}\t{what}\t{frame}\t{ours}\t{theirs}\t{}",
                reason.unwrap_or_default()
            );
        }
    }
    Ok(())
}

/// `NAME.long.txt` beside `NAME.gz`.
fn expectation(file: &Path) -> Option<PathBuf> {
    let text = file.with_extension("long.txt");
    (file.extension()? == "gz" && text.exists()).then_some(text)
}

fn against_tcptrace(
    observed: &[Analysed],
    printed: &[tcptrace::Printed],
    ignored: &BTreeSet<u64>,
    snap_length: Option<u32>,
    found: &mut Vec<Difference>,
) -> u64 {
    let mut ours: BTreeMap<Pair, Vec<&Analysed>> = BTreeMap::new();
    for s in observed {
        ours.entry(pair(s.report.client, s.report.server))
            .or_default()
            .push(s);
    }
    let mut theirs: BTreeMap<Pair, Vec<&tcptrace::Printed>> = BTreeMap::new();
    for p in printed {
        if p.a != tcptrace::UNREADABLE && p.b != tcptrace::UNREADABLE {
            theirs.entry(pair(p.a, p.b)).or_default().push(p);
        }
    }
    let mut compared = 0;
    let none = Vec::new();
    let tuples: HashSet<&Pair> = ours.keys().chain(theirs.keys()).collect();
    for tuple in tuples {
        let (ours, theirs) = (
            ours.get(tuple).unwrap_or(&Vec::new()).clone(),
            theirs.get(tuple).unwrap_or(&none),
        );
        compared += 1;
        if ours.len() != theirs.len() {
            let mut difference = other_count(tuple, &ours, theirs.len());
            let ends = [tuple.0.address, tuple.1.address];
            if ours.is_empty()
                && let Some((rule, frame)) = imitate::out_of_extensions(observed, ends)
            {
                difference.what = format!("connections [{rule}]");
                difference.frame = frame;
            }
            found.push(difference);
            continue;
        }
        for (observed, printed) in ours.iter().zip(theirs) {
            compared += compare(observed, printed, ignored, snap_length, found);
        }
    }
    compared
}

/// Not as many connections on a 4-tuple.
fn other_count(ends: &Pair, ours: &[&Analysed], theirs: usize) -> Difference {
    let passed = on_tuple(ours);
    let first: Vec<u64> = ours.iter().map(|s| s.report.first.frame).collect();
    let shift = |from: &Endpoint| {
        let scale = |s: &&Analysed| {
            let offers = [Side::Client, Side::Server].map(|side| {
                let scale = s.report.sent_by(side).offered.window_scale;
                (s.report.endpoint(side) == *from, scale)
            });
            let both = offers.iter().all(|(_, scale)| scale.is_some());
            let own = offers.into_iter().find(|(own, _)| *own)?;
            own.1.filter(|_| both)
        };
        ours.iter()
            .find_map(scale)
            .map_or(0, |s| u32::from(s.min(14)))
    };
    let imitated = imitate::connections(&passed, &first, theirs, shift);
    let silence = ours.iter().find_map(|s| s.hints.silence);
    let odd = ours.iter().find_map(|s| s.hints.odd_syn);
    let rule = silence
        .map(|frame| ("four-minutes", frame))
        .or(odd.map(|frame| ("syn-with-fin", frame)))
        .filter(|_| theirs > ours.len())
        .or(imitated);
    // Other link types, IPv6 addresses that it does not print, ports of 0.
    let first = ours.first().map(|s| s.report.first.frame);
    let rule = rule.or(first
        .filter(|_| theirs == 0)
        .map(|f| ("unread-by-tcptrace", f)));
    let last = ours.last().map_or(0, |s| s.report.first.frame);
    Difference {
        tool: "tcptrace",
        connection: format!(
            "{}:{} - {}:{}",
            ends.0.address, ends.0.port, ends.1.address, ends.1.port
        ),
        what: match rule {
            Some((rule, _)) => format!("connections [{rule}]"),
            None => "connections".to_owned(),
        },
        frame: rule.map_or(last, |(_, frame)| frame),
        ours: ours.len().to_string(),
        theirs: theirs.to_string(),
    }
}

/// The segments of several connections, in the capture's order.
fn on_tuple(observed: &[&Analysed]) -> Vec<Passed> {
    let mut passed: Vec<Passed> = observed
        .iter()
        .flat_map(|s| s.passed.iter().copied())
        .collect();
    passed.sort_by_key(|p| p.frame);
    passed
}

/// The snap length in the header of a pcap file.
fn snap_length(file: &Path) -> Option<u32> {
    let mut header = [0; 24];
    let mut opened = std::fs::File::open(file).ok()?;
    opened.read_exact(&mut header).ok()?;
    if header[..2] == [0x1f, 0x8b] {
        let opened = std::fs::File::open(file).ok()?;
        flate2::read::MultiGzDecoder::new(opened)
            .read_exact(&mut header)
            .ok()?;
    }
    let [a, b, c, d] = header[16..20].try_into().ok()?;
    match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => {
            Some(u32::from_le_bytes([a, b, c, d]))
        }
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => {
            Some(u32::from_be_bytes([a, b, c, d]))
        }
        _ => None,
    }
}

/// One connection's rows.
fn compare(
    observed: &Analysed,
    printed: &tcptrace::Printed,
    ignored: &BTreeSet<u64>,
    snap_length: Option<u32>,
    found: &mut Vec<Difference>,
) -> u64 {
    let report = &observed.report;
    let ignored = observed
        .flags
        .iter()
        .find(|(frame, _)| ignored.contains(frame))
        .map(|(frame, _)| ("ignored-by-tcptrace", *frame));
    let lengths = [Side::Client, Side::Server].map(|side| {
        let column = usize::from(report.endpoint(side) != printed.a);
        let theirs = ["actual data bytes", "total packets"]
            .map(|label| printed.rows.get(label)?[column].parse().ok());
        imitate::lengths(observed, side, theirs)
    });
    let mut compared = 0;
    for (label, values) in &printed.rows {
        for (column, theirs) in values.iter().enumerate() {
            let end = [printed.a, printed.b][column];
            // Who talks to itself is the client in the first column.
            let side = if end == report.client && (column == 0 || printed.a != printed.b) {
                Side::Client
            } else {
                Side::Server
            };
            let Some((row, ours)) = tcptrace::ours(report, side, label) else {
                continue;
            };
            compared += 1;
            let equal = match row {
                tcptrace::Row::Text => ours == *theirs,
                tcptrace::Row::Number(tolerance) => {
                    match (ours.parse::<f64>(), theirs.parse::<f64>()) {
                        (Ok(a), Ok(b)) => (a - b).abs() <= tolerance,
                        _ => ours == *theirs,
                    }
                }
            };
            if !equal {
                let rule = ignored
                    .or(lengths[side as usize])
                    .or_else(|| observed.hints.tcptrace(report, side, label, &ours, theirs))
                    .or_else(|| imitate::row(observed, side, label, (&ours, theirs), snap_length));
                found.push(Difference {
                    tool: "tcptrace",
                    connection: describe(report, side),
                    what: match &rule {
                        Some((rule, _)) => format!("{label} [{rule}]"),
                        None => label.clone(),
                    },
                    frame: rule.map_or(report.first.frame, |(_, frame)| frame),
                    ours,
                    theirs: theirs.clone(),
                });
            }
        }
    }
    compared
}

fn describe(report: &ConnectionReport, side: Side) -> String {
    let (from, to) = (report.endpoint(side), report.endpoint(side.peer()));
    format!(
        "{}:{} > {}:{}",
        from.address, from.port, to.address, to.port
    )
}

fn against_tshark(
    observed: &[Analysed],
    said: &tshark::TsharkOutput,
    found: &mut Vec<Difference>,
) -> u64 {
    let mut ours: BTreeMap<u64, (&Analysed, wireshark::Flags)> = BTreeMap::new();
    for s in observed {
        ours.extend(s.flags.iter().map(|(frame, flags)| (*frame, (s, *flags))));
    }
    let inside = said.inside.iter().filter(|f| !ours.contains_key(f)).count() as u64;
    let frames = said.frames - inside;
    if ours.len() as u64 != frames {
        found.push(Difference {
            tool: "tshark",
            connection: "all".to_owned(),
            what: "TCP frames".to_owned(),
            frame: 0,
            ours: ours.len().to_string(),
            theirs: frames.to_string(),
        });
    }
    let names = |flags: &[Flag]| {
        let names: Vec<&str> = flags.iter().map(|f| f.name()).collect();
        names.join("+")
    };
    let mut tuples: BTreeMap<Pair, Vec<&Analysed>> = BTreeMap::new();
    for s in observed {
        let ends = pair(s.report.client, s.report.server);
        tuples.entry(ends).or_default().push(s);
    }
    for (frame, (observed, flags)) in &ours {
        let mine: Vec<Flag> = flags.iter().collect();
        let other = said.flagged.get(frame).map_or(&[][..], Vec::as_slice);
        if mine != other {
            let on_it = &tuples[&pair(observed.report.client, observed.report.server)];
            let reused = on_it[0].report.first.frame < observed.report.first.frame;
            let rule = (observed.hints)
                .tshark(reused, *frame, &mine, other)
                .or_else(|| imitate::flags(&on_tuple(on_it), *frame, &mine, other));
            found.push(Difference {
                tool: "tshark",
                connection: describe(&observed.report, Side::Client),
                what: match rule {
                    Some((rule, first)) => format!("flags [{rule} in frame {first}]"),
                    None => "flags".to_owned(),
                },
                frame: *frame,
                ours: names(&mine),
                theirs: names(other),
            });
        }
    }
    for (frame, flags) in &said.flagged {
        if !ours.contains_key(frame) && !said.inside.contains(frame) {
            found.push(Difference {
                tool: "tshark",
                connection: "none".to_owned(),
                what: "flags".to_owned(),
                frame: *frame,
                ours: "no segment".to_owned(),
                theirs: names(flags),
            });
        }
    }
    frames * Flag::ALL.len() as u64
}

/// When a capture's time is needed in microseconds, as tcptrace has it.
pub fn micros(time: Timestamp) -> i64 {
    time.0.div_euclid(1000)
}
