// SPDX-License-Identifier: Apache-2.0
//! Files for xplot (xplot.org): the plot language of its `demo.0` and README. Coordinates are
//! `timeval double`: the README advises against `unsigned`, which wraps, and sequence numbers
//! here are relative and do not.
//!
//! What is drawn, and the files' names, are those of `tcptrace -G`; colours are as on its black
//! ground.

use super::html::endpoint;
use super::record::{Point, Recording};
use super::series::{Series, letters};
use crate::segment::{Flags, Timestamp};
use crate::tcp::{Kind, Marks, Side};
use std::fmt;
use std::io::{self, Write};

/// A graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// Sequence numbers over time.
    Sequence,
    /// RTT samples.
    Rtt,
    /// Throughput: of each segment, of ten, and the mean.
    Throughput,
    /// Data in flight, and the window.
    Outstanding,
    /// Payload of the segments.
    SegmentSize,
}

impl Graph {
    /// All graphs of a direction.
    pub const ALL: [Graph; 5] = [
        Graph::Sequence,
        Graph::Rtt,
        Graph::Throughput,
        Graph::Outstanding,
        Graph::SegmentSize,
    ];

    fn name(self) -> &'static str {
        match self {
            Graph::Sequence => "tsg",
            Graph::Rtt => "rtt",
            Graph::Throughput => "tput",
            Graph::Outstanding => "owin",
            Graph::SegmentSize => "ssize",
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Graph::Sequence => ("time sequence graph", "sequence number"),
            Graph::Rtt => ("rtt samples", "rtt (ms)"),
            Graph::Throughput => ("throughput", "throughput (bytes/sec)"),
            Graph::Outstanding => ("outstanding data", "outstanding data (bytes)"),
            Graph::SegmentSize => ("segment size graph", "segment size (bytes)"),
        }
    }
}

/// The n-th end's letter: a to z, then aa.
fn letter(mut number: u64) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(b'a' + (number % 26) as u8);
        if number < 26 {
            break;
        }
        number = number / 26 - 1;
    }
    letters.iter().rev().map(|b| char::from(*b)).collect()
}

/// A graph's file name: `a2b_tsg.xpl` for what the client of connection 1 sent.
#[must_use]
pub fn file_name(connection: u64, side: Side, graph: Graph) -> String {
    let first = connection.saturating_sub(1).saturating_mul(2);
    let (client, server) = (letter(first), letter(first.saturating_add(1)));
    let (from, to) = match side {
        Side::Client => (client, server),
        Side::Server => (server, client),
    };
    format!("{from}2{to}_{}.xpl", graph.name())
}

/// Writes a graph of what `side` sent.
///
/// # Errors
/// `out` refuses.
pub fn write(
    recording: &Recording,
    side: Side,
    graph: Graph,
    out: &mut dyn Write,
) -> io::Result<()> {
    let ends = [side, side.peer()].map(|s| endpoint(recording.report.endpoint(s)));
    let (title, label) = graph.words();
    let mut plot = Plot { out };
    writeln!(
        plot.out,
        "timeval double\ntitle\n{}_==>_{} ({title})\nxlabel\ntime\nylabel\n{label}",
        ends[0], ends[1]
    )?;
    let series = Series::new(recording, side);
    match graph {
        Graph::Sequence => sequence(&series, &mut plot)?,
        Graph::Rtt => round_trips(&series, &mut plot)?,
        Graph::Throughput => throughput(&series, &mut plot)?,
        Graph::Outstanding => outstanding(&series, &mut plot)?,
        Graph::SegmentSize => sizes(&series, &mut plot)?,
    }
    writeln!(plot.out, "go")?;
    plot.out.flush()
}

/// The time line's file name: `a_b_tline.xpl` for connection 1.
#[must_use]
pub fn time_line_name(connection: u64) -> String {
    let first = connection.saturating_sub(1).saturating_mul(2);
    let (client, server) = (letter(first), letter(first.saturating_add(1)));
    format!("{client}_{server}_tline.xpl")
}

/// Where the ends stand in a time line, of 0 to 100.
const CLIENT_AT: u32 = 40;
const SERVER_AT: u32 = 60;

/// Writes the time line of both sides: time goes down, each segment is an arrow from its sender
/// to the other end, with its numbers beside its sender. The arrows are level: a segment's time
/// is when it passed the place of capture.
///
/// # Errors
/// `out` refuses.
pub fn time_line(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let ends = [Side::Client, Side::Server].map(|s| endpoint(recording.report.endpoint(s)));
    writeln!(
        out,
        "unsigned dtime\ntitle\n{}_==>_{} (time line graph)\nxlabel\nsegments\nylabel\nrelative time",
        ends[0], ends[1]
    )?;
    let began = recording.report.first.time.0;
    let down = |time: Timestamp| (began - time.0) as f64 / 1e9;
    writeln!(out, "invisible 0 {:.6}\ninvisible 100 {:.6}", 0.0, 0.0)?;
    for point in &recording.points {
        let at = down(point.time);
        let (from, to, arrow, text) = match point.side {
            Side::Client => (CLIENT_AT, SERVER_AT, "rarrow", "ltext"),
            Side::Server => (SERVER_AT, CLIENT_AT, "larrow", "rtext"),
        };
        let color = match (point.kind, point.side) {
            (Kind::Retransmission(_), _) => "red",
            (Kind::OutOfOrder, _) => "pink",
            (Kind::HardwareDuplicate, _) => "blue",
            _ if point.flags.any(Flags::RST) => "magenta",
            _ if point.flags.any(Flags::SYN | Flags::FIN) => "orange",
            (_, Side::Client) => "green",
            (_, Side::Server) => "yellow",
        };
        writeln!(
            out,
            "{color}\nline {from} {at:.6} {to} {at:.6}\n{arrow} {to} {at:.6}"
        )?;
        writeln!(out, "white\n{text} {from} {at:.6}\n{}", Label(point))?;
    }
    let end = down(recording.report.last.time);
    for at in [CLIENT_AT, SERVER_AT] {
        writeln!(out, "line {at} {:.6} {at} {end:.6}", 0.0)?;
    }
    writeln!(out, "go")?;
    out.flush()
}

/// A segment as tcpdump puts it.
struct Label<'a>(&'a Point);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = self.0;
        for (flag, name) in [
            (Flags::SYN, "SYN "),
            (Flags::FIN, "FIN "),
            (Flags::RST, "RST "),
            (Flags::PSH, "PSH "),
        ] {
            if point.flags.any(flag) {
                f.write_str(name)?;
            }
        }
        write!(f, "{}:{}({})", point.sequence, point.end, point.length)?;
        if let Some(number) = point.acknowledgement {
            write!(f, " ack {number}")?;
        }
        if let Some(window) = point.window {
            write!(f, " win {window}")?;
        }
        Ok(())
    }
}

/// A time as xplot's `timeval` has it.
struct Timeval(Timestamp);

impl fmt::Display for Timeval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.0.div_euclid(1000);
        let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
        write!(f, "{seconds}.{fraction:06}")
    }
}

struct Plot<'a> {
    out: &'a mut dyn Write,
}

impl Plot<'_> {
    /// Everything that follows is in this colour.
    fn color(&mut self, color: &str) -> io::Result<()> {
        writeln!(self.out, "{color}")
    }

    fn mark(&mut self, sign: &str, at: Timestamp, y: impl fmt::Display) -> io::Result<()> {
        writeln!(self.out, "{sign} {} {y}", Timeval(at))
    }

    fn text(&mut self, at: Timestamp, y: impl fmt::Display, text: &str) -> io::Result<()> {
        writeln!(self.out, "atext {} {y}\n{text}", Timeval(at))
    }

    fn line<Y: fmt::Display>(
        &mut self,
        from: (Timestamp, Y),
        to: (Timestamp, Y),
    ) -> io::Result<()> {
        let ((t0, y0), (t1, y1)) = (from, to);
        writeln!(self.out, "line {} {y0} {} {y1}", Timeval(t0), Timeval(t1))
    }

    /// A line through points.
    fn through<Y: fmt::Display + Copy>(
        &mut self,
        color: &str,
        name: &str,
        points: impl Iterator<Item = (Timestamp, Y)>,
    ) -> io::Result<()> {
        self.color(color)?;
        let mut last = None;
        for point in points {
            match last {
                None => writeln!(self.out, "rtext {} {}\n{name}", Timeval(point.0), point.1)?,
                Some(last) => self.line(last, point)?,
            }
            self.mark("dot", point.0, point.1)?;
            last = Some(point);
        }
        Ok(())
    }
}

fn sequence(series: &Series<'_>, plot: &mut Plot<'_>) -> io::Result<()> {
    let (mut ack, mut edge) = (None, None);
    for point in &series.recording.points {
        if point.side == series.side {
            data(point, plot)?;
        } else if let Some(number) = point.acknowledgement {
            acknowledgement(series, point, number, &mut ack, plot)?;
            window(point, &mut edge, plot)?;
        }
    }
    Ok(())
}

fn data(point: &Point, plot: &mut Plot<'_>) -> io::Result<()> {
    let (at, from, to) = (point.time, point.sequence, point.end);
    if point.flags.any(Flags::RST) {
        plot.color("magenta")?;
        return plot.text(at, from, "RST_OUT");
    }
    plot.color(match point.kind {
        Kind::Retransmission(_) => "red",
        Kind::OutOfOrder => "pink",
        Kind::HardwareDuplicate => "blue",
        _ if point.flags.any(Flags::SYN | Flags::FIN) => "orange",
        _ => "white",
    })?;
    if let Some(text) = letters(point) {
        plot.text(at, to, &text)?;
    }
    if point.marks.any(Marks::CE) {
        plot.text(at, to, "CE")?;
    }
    if point.marks.any(Marks::CWR) {
        plot.text(at, to, "CWR")?;
    }
    if !point.occupies() {
        // Two arrow heads that meet, as tcptrace draws segments without data.
        plot.mark("darrow", at, from)?;
        return plot.mark("uarrow", at, from);
    }
    plot.mark(
        if point.flags.any(Flags::SYN) {
            "diamond"
        } else {
            "darrow"
        },
        at,
        from,
    )?;
    if point.flags.any(Flags::FIN) {
        plot.mark("box", at, to)?;
    } else if point.flags.any(Flags::PSH) && point.length > 0 {
        plot.mark("diamond", at, to)?;
        plot.mark("dot", at, to)?;
    } else {
        plot.mark("uarrow", at, to)?;
    }
    plot.line((at, from), (at, to))
}

fn acknowledgement(
    series: &Series<'_>,
    point: &Point,
    number: i64,
    last: &mut Option<(Timestamp, i64)>,
    plot: &mut Plot<'_>,
) -> io::Result<()> {
    let at = point.time;
    plot.color("green")?;
    if let Some((before, was)) = *last {
        plot.line((before, was), (at, was))?;
        if was == number {
            plot.mark("dtick", at, number)?;
        } else {
            plot.line((at, was), (at, number))?;
        }
    }
    if point.duplicate == 3 {
        plot.text(at, number, "3")?;
    }
    if point.marks.any(Marks::ECE) {
        plot.text(at, number, "ECE")?;
    }
    if point.flags.any(Flags::RST) {
        plot.text(at, number, "RST_IN")?;
    }
    *last = Some((at, number));
    let blocks = series.recording.sack(point);
    if let Some(top) = blocks.iter().map(|(_, right)| *right).max() {
        plot.color("purple")?;
        for (left, right) in blocks {
            plot.line((at, *left), (at, *right))?;
            plot.mark("htick", at, *left)?;
            plot.mark("htick", at, *right)?;
        }
        plot.text(at, top, "S")?;
    }
    Ok(())
}

fn window(
    point: &Point,
    last: &mut Option<(Timestamp, i64)>,
    plot: &mut Plot<'_>,
) -> io::Result<()> {
    let Some(edge) = point.window_edge() else {
        return Ok(());
    };
    let at = point.time;
    plot.color("yellow")?;
    if let Some((before, was)) = *last {
        plot.line((before, was), (at, was))?;
        if was == edge {
            plot.mark("utick", at, edge)?;
        } else {
            plot.line((at, was), (at, edge))?;
        }
    }
    if point.marks.any(Marks::ZERO_WINDOW) {
        plot.text(at, edge, "Z")?;
    }
    *last = Some((at, edge));
    Ok(())
}

fn round_trips(series: &Series<'_>, plot: &mut Plot<'_>) -> io::Result<()> {
    let samples = series.acks().filter_map(|(p, _)| {
        let rtt = p.rtt?;
        Some((p.time, rtt.as_nanos() as f64 / 1e6))
    });
    plot.through("red", "rtt", samples)
}

/// Segments in the moving mean, as many as tcptrace takes.
const AVERAGED: usize = 10;

fn throughput(series: &Series<'_>, plot: &mut Plot<'_>) -> io::Result<()> {
    let data: Vec<&Point> = series.sent().filter(|p| p.length > 0).collect();
    let rate = |from: &Point, bytes: u64, to: &Point| {
        let nanos = to.time.0.saturating_sub(from.time.0);
        (nanos > 0).then(|| (to.time, bytes as f64 * 1e9 / nanos as f64))
    };
    plot.color("yellow")?;
    for pair in data.windows(2) {
        if let Some((at, rate)) = rate(pair[0], pair[1].length, pair[1]) {
            plot.mark("dot", at, rate)?;
        }
    }
    let groups = data.chunks(AVERAGED).zip(data.chunks(AVERAGED).skip(1));
    let moving = groups.filter_map(|(before, now)| {
        let bytes = now.iter().map(|p| p.length).sum();
        rate(before.last()?, bytes, now.last()?)
    });
    plot.through("red", "of ten", moving)?;
    let mut sum = 0;
    let mean = data.iter().filter_map(|point| {
        sum += point.length;
        rate(data.first()?, sum, point)
    });
    plot.through("blue", "mean", mean)
}

fn outstanding(series: &Series<'_>, plot: &mut Plot<'_>) -> io::Result<()> {
    let flight = series.sent().map(|p| (p.time, p.flight));
    plot.through("red", "in flight", flight)?;
    let (mut sum, mut count) = (0, 0);
    let mean = series.sent().filter_map(|p| {
        sum += p.flight;
        count += 1;
        Some((p.time, sum.checked_div(count)?))
    });
    plot.through("blue", "mean", mean)?;
    let windows = series
        .edges()
        .filter_map(|(p, _)| Some((p.time, p.window?)));
    plot.through("yellow", "window", windows)
}

fn sizes(series: &Series<'_>, plot: &mut Plot<'_>) -> io::Result<()> {
    let data = || series.sent().filter(|p| p.length > 0);
    plot.through("red", "size", data().map(|p| (p.time, p.length)))?;
    let (mut sum, mut count) = (0, 0);
    let mean = data().filter_map(|p| {
        sum += p.length;
        count += 1;
        Some((p.time, sum.checked_div(count)?))
    });
    plot.through("blue", "mean", mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_tcptrace_names_them() {
        // tcptrace's manual: a2b, c2d; after z come aa and ab.
        for (connection, side, name) in [
            (1, Side::Client, "a2b_tsg.xpl"),
            (1, Side::Server, "b2a_tsg.xpl"),
            (13, Side::Client, "y2z_tsg.xpl"),
            (14, Side::Client, "aa2ab_tsg.xpl"),
        ] {
            assert_eq!(file_name(connection, side, Graph::Sequence), name);
        }
    }

    #[test]
    fn times_before_the_epoch_have_a_fraction_above_zero() {
        assert_eq!(Timeval(Timestamp(1_500_000_999)).to_string(), "1.500000");
        assert_eq!(Timeval(Timestamp(-1)).to_string(), "-1.999999");
    }
}
