// SPDX-License-Identifier: Apache-2.0
//! A page with the probed variables of replayed connections over time: for each end one chart a unit, all on one axis, and across them when packets
//! were lost or sent again, and when the timer of retransmissions fired.

use crate::chart::{Chart, LEFT, Point, RIGHT, WIDTH, page_head, thinned};
use crate::end_name;
use crate::frames::Frames;
use crate::outputs::{OutputError, Probed};
use crate::replayed::Batch;
use slowpath_explain::{Sent, SentBytes};
use slowpath_recording::{Moment, Recording, Unit};
use slowpath_replay::Probe;
use slowpath_text::{html, plural};
use std::fmt::Write;

/// Connections that are drawn.
const DRAWN: usize = 12;
/// Pixels: of a chart, and above the first and each further one, where titles and names are.
const HEIGHT: f64 = 130.0;
const ABOVE: f64 = 40.0;
/// Below the last one.
const BELOW: f64 = 44.0;
/// A pixel of a name, about.
const LETTER: f64 = 6.4;
/// Colours of lines; further ones begin again, dashed.
const COLOURS: usize = 6;
/// Marks of one kind that are drawn of an end.
const MARKS: usize = 500;

const OWN_STYLE: &str = ".line{fill:none;stroke-width:1.4}.c0{stroke:#1f5fa8}.c1{stroke:#c2369b}.c2{stroke:#2e7d32}.c3{stroke:#8e44ad}.c4{stroke:#0b7285}.c5{stroke:#7a5c00}\
.dashed{stroke-dasharray:5 3}.lost{stroke:#c62828}.again{stroke:#d9730d}.timeout{stroke:#b71c1c;stroke-width:2.4;stroke-dasharray:7 3}.probe{stroke:#777;stroke-dasharray:2 3}\
.lost,.again,.timeout,.probe{stroke-opacity:.75}\
@media (prefers-color-scheme:dark){.c0{stroke:#7fb0ff}.c1{stroke:#ff7ad1}.c2{stroke:#47c878}.c3{stroke:#b58cff}.c4{stroke:#4fd0e0}.c5{stroke:#e8c33c}}";

/// What a mark is, and its class.
const KEY: [(&str, &str, &str); 4] = [
    ("lost", "#c62828", "a packet that was lost"),
    ("again", "#d9730d", "a packet that was sent again"),
    ("timeout", "#b71c1c", "the retransmission timer, dashed"),
    ("probe", "#777", "a tail loss probe, dotted"),
];

/// One end of a connection, as it is drawn.
struct DrawnEnd<'a> {
    number: usize,
    end: u8,
    probes: Vec<&'a Probe>,
    /// `None`: its replay is not exact, so that what happened to its packets is not known.
    sent: Option<&'a Sent>,
    frames: &'a Frames,
}

/// The page; the batches have probes and captures, `frames` are those of the written captures.
///
/// # Errors
/// A capture cannot be read.
pub fn page(
    recording: &Recording,
    batches: &[Batch],
    probed: &[Probed],
    frames: &Frames,
    title: &str,
) -> Result<String, OutputError> {
    let key = KEY.map(|(_, colour, words)| (colour, words));
    let mut page = page_head(title, "slowpath replay", OWN_STYLE, &key);
    let mut drawn: Vec<(usize, String)> = Vec::new();
    for batch in batches {
        drawn.extend(connections(recording, batch, probed, frames)?);
    }
    drawn.sort_by_key(|(number, _)| *number);
    let left_out = drawn.len().saturating_sub(DRAWN);
    for (_, text) in drawn.iter().take(DRAWN) {
        page += text;
    }
    if left_out > 0 {
        let more = plural(left_out as u64, "connection");
        let _ = write!(page, "<p>{more} more: --connection chooses.</p>");
    }
    page += "</body></html>\n";
    Ok(page)
}

/// The connections of a batch, as parts of the page.
fn connections(
    recording: &Recording,
    batch: &Batch,
    probed: &[Probed],
    frames: &Frames,
) -> Result<Vec<(usize, String)>, OutputError> {
    let sent = slowpath_replay::sent(recording, &batch.places, &batch.replayed);
    let sent = sent.map_err(|error| OutputError(error.to_string()))?;
    let mut all = Vec::new();
    for (place, (number, sent)) in batch.places.iter().copied().zip(&sent).enumerate() {
        let [client, server] = recording.connections[number].addresses;
        let mut text = format!("<h2>connection {number}  {client} -&gt; {server}</h2>");
        if let Err(error) = sent {
            let error = html(&error.to_string());
            let _ = write!(text, "<p>Losses are not marked: {error}.</p>");
        }
        let ends = [0, 1].map(|end: u8| {
            let own = |probe: &&Probe| probe.connection as usize == place && probe.end == end;
            DrawnEnd {
                number,
                end,
                probes: batch.replayed.probes.iter().filter(own).collect(),
                sent: sent.as_ref().ok().map(|sent| &sent[usize::from(end)]),
                frames,
            }
        });
        if let Some(range) = range(recording, &ends) {
            for end in &ends {
                text += &end.drawing(recording, probed, range);
            }
        }
        all.push((number, text));
    }
    Ok(all)
}

/// The moments of the first and the last run of both ends, by the recording's clock; `None`: there is no run.
fn range(recording: &Recording, ends: &[DrawnEnd<'_>; 2]) -> Option<(u64, u64)> {
    let moments = ends.iter().flat_map(|end| {
        let probes = end.probes.iter();
        probes.map(|probe| end.moment(recording, probe.at))
    });
    let (least, most) = moments.fold((u64::MAX, 0), |(least, most), at| {
        (least.min(at), most.max(at))
    });
    (least <= most).then_some((least, most))
}

impl DrawnEnd<'_> {
    /// By the recording's clock.
    fn moment(&self, recording: &Recording, at: Moment) -> u64 {
        let connection = &recording.connections[self.number];
        connection.moment(usize::from(self.end), at).0
    }

    /// Its charts, one below the other.
    fn drawing(&self, recording: &Recording, probed: &[Probed], range: (u64, u64)) -> String {
        let (begun, length) = (range.0, (range.1 - range.0).max(1) as f64 / 1e6);
        let ms = |at: Moment| self.moment(recording, at).saturating_sub(begun) as f64 / 1e6;
        let groups = groups(probed);
        let height = groups.len() as f64 * (HEIGHT + ABOVE) + BELOW;
        let name = end_name(self.end);
        let mut svg = format!(
            "<h3>{name}</h3><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"variables of the {name} over time\">"
        );
        let last = groups.len().saturating_sub(1);
        for (place, group) in groups.iter().enumerate() {
            let top = ABOVE + place as f64 * (HEIGHT + ABOVE);
            let lines: Vec<Vec<Point>> = group
                .iter()
                .map(|one| {
                    let values = self.probes.iter();
                    let hz = recording.origin.hz;
                    let points = values.map(|probe| (ms(probe.at), one.measured(probe, hz)));
                    thinned(&points.collect::<Vec<_>>(), (0.0, length))
                })
                .collect();
            let values = lines.iter().flatten().filter_map(|(_, value)| *value);
            let (least, most) = values.fold((0.0, 0.0), |(least, most): (f64, f64), value| {
                (least.min(value), most.max(value))
            });
            let up = (least * 1.05, if most > 0.0 { most * 1.08 } else { 1.0 });
            let chart = Chart::new((0.0, length), up, top, HEIGHT);
            chart.grid(place == last, &mut svg);
            let along = if place == last {
                "ms since the connection's first run"
            } else {
                ""
            };
            chart.titles(along, group[0].variable.unit().name(), &mut svg);
            let mut right = RIGHT;
            for (number, (one, points)) in group.iter().zip(lines).enumerate().rev() {
                let dashed = if number / COLOURS % 2 == 1 {
                    " dashed"
                } else {
                    ""
                };
                let class = format!("line c{}{dashed}", number % COLOURS);
                chart.steps(&class, points.into_iter(), &mut svg);
                right = legend(&class, &one.name, right, top - 10.0, &mut svg);
            }
            if let Some(sent) = self.sent {
                self.marks(sent, &ms, &chart, &mut svg);
            }
        }
        svg += "</svg>";
        svg
    }

    /// When packets were lost or sent again, and when the timer fired.
    fn marks(&self, sent: &Sent, ms: &impl Fn(Moment) -> f64, chart: &Chart, svg: &mut String) {
        type Mark = (&'static str, Moment, String);
        let packets = |class: &'static str, wanted: fn(&&SentBytes) -> bool| -> Vec<Mark> {
            let those = sent.packets.iter().filter(wanted).take(MARKS);
            let mark = |it: &SentBytes| {
                let frame = self.frames.name(self.number, self.end, &[it.number]);
                let frame = frame.map_or(String::new(), |frame| format!(", {frame},"));
                let words = format!("packet {}{frame} {}", it.number, class_words(class));
                (class, it.at, words)
            };
            those.map(mark).collect()
        };
        let timers = |class: &'static str, all: &[Moment]| -> Vec<Mark> {
            let mark = |at: &Moment| (class, *at, class_words(class).to_owned());
            all.iter().map(mark).take(MARKS).collect()
        };
        let all = [
            packets("lost", |it| it.lost),
            packets("again", |it| it.again && !it.lost),
            timers("timeout", &sent.timeouts),
            timers("probe", &sent.probes),
        ];
        for (class, at, words) in all.into_iter().flatten() {
            let at = ms(at);
            let _ = write!(
                svg,
                "<path class=\"{class}\" d=\"M{:.1} {}V{}\"><title>{words}, at {at:.3} ms</title></path>",
                chart.x(at),
                chart.top,
                chart.bottom
            );
        }
    }
}

/// The name of a line, to the left of what is there; gives where it begins.
fn legend(class: &str, name: &str, right: f64, y: f64, svg: &mut String) -> f64 {
    let begin = (right - name.chars().count() as f64 * LETTER - 34.0).max(LEFT);
    let _ = write!(
        svg,
        "<path class=\"{class}\" d=\"M{begin:.1} {:.1}h18\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
        y - 4.0,
        begin + 22.0,
        html(name)
    );
    begin
}

fn class_words(class: &str) -> &'static str {
    match class {
        "lost" => "lost",
        "again" => "sent again",
        "timeout" => "retransmission timeout",
        _ => "tail loss probe",
    }
}

/// What shares a chart: variables of one unit, in the order in which they were asked for. What counts something of its own has a chart of its own.
fn groups(probed: &[Probed]) -> Vec<Vec<&Probed>> {
    let mut groups: Vec<Vec<&Probed>> = Vec::new();
    for one in probed {
        let unit = one.variable.unit();
        let fits = |group: &&mut Vec<&Probed>| {
            unit != Unit::Number && group.iter().all(|it| it.variable.unit() == unit)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_recording::fields::variables;

    fn probed(names: &[&str]) -> Vec<Probed> {
        let all = variables(names.iter().copied()).unwrap();
        let named = names.iter().zip(all);
        named
            .map(|(name, variable)| Probed {
                name: (*name).to_owned(),
                variable,
            })
            .collect()
    }

    #[test]
    fn variables_of_one_unit_share_a_chart() {
        let names = ["cwnd", "srtt_us", "ssthresh", "ca_state", "rto", "state"];
        let probed = probed(&names);
        let groups = groups(&probed);
        let named: Vec<Vec<&str>> = groups
            .iter()
            .map(|group| group.iter().map(|it| it.name.as_str()).collect())
            .collect();
        // Packets; milliseconds; two states, which are no quantities.
        assert_eq!(
            named,
            [
                vec!["cwnd", "ssthresh"],
                vec!["srtt_us", "rto"],
                vec!["ca_state"],
                vec!["state"]
            ]
        );
    }

    #[test]
    fn a_mark_is_where_its_packet_was_sent() {
        let packet = |number, at, again, lost| SentBytes {
            at: Moment(at),
            number,
            bytes: 0..1,
            again,
            lost,
        };
        let sent = Sent {
            packets: vec![
                packet(0, 0, false, false),
                packet(1, 2_000_000, false, true),
                packet(2, 8_000_000, true, false),
            ],
            timeouts: vec![Moment(8_000_000)],
            probes: Vec::new(),
        };
        let chart = Chart::new((0.0, 10.0), (0.0, 1.0), 20.0, 100.0);
        let mut svg = String::new();
        let frames = Frames::default();
        let end = DrawnEnd {
            number: 0,
            end: 0,
            probes: Vec::new(),
            sent: Some(&sent),
            frames: &frames,
        };
        end.marks(&sent, &|at| at.0 as f64 / 1e6, &chart, &mut svg);
        // 854 pixels from 70 on are 10 ms: 2 ms are at 240.8, 8 ms at 753.2.
        assert_eq!(
            svg,
            "<path class=\"lost\" d=\"M240.8 20V120\"><title>packet 1 lost, at 2.000 ms</title></path>\
             <path class=\"again\" d=\"M753.2 20V120\"><title>packet 2 sent again, at 8.000 ms</title></path>\
             <path class=\"timeout\" d=\"M753.2 20V120\"><title>retransmission timeout, at 8.000 ms</title></path>"
        );
    }
}
