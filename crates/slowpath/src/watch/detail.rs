// SPDX-License-Identifier: Apache-2.0
//! One connection in detail: shares, curves, evidence, who has to act, advice.

use super::screen::Screen;
use crate::render::{bit_rate, bytes, ends, percent, process, time, whereabouts, wrapped};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};
use slowpath_model::Problem;
use slowpath_text::evidence;
use slowpath_views::advice::{self, HostFigures};
use slowpath_views::interactions;
use slowpath_views::source::{HistoryPoint, LiveConnection};
use slowpath_views::tally;
use slowpath_views::watch::share_of;

/// Columns for the names of the curves and their values.
const LABEL: u16 = 34;

/// Draws the page.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &Screen,
    live: LiveConnection<'_>,
    host: HostFigures,
    scroll: u16,
) {
    let curves = curves(live);
    let [text, graphs] = Layout::vertical([
        Constraint::Min(6),
        Constraint::Length((curves.len() * 2) as u16),
    ])
    .areas(area);
    let lines = lines(screen, live, host, usize::from(area.width.max(20)));
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), text);
    let each = Layout::vertical(vec![Constraint::Length(2); curves.len()]).split(graphs);
    for (curve, area) in curves.iter().zip(each.iter()) {
        let [label, graph] =
            Layout::horizontal([Constraint::Length(LABEL), Constraint::Min(1)]).areas(*area);
        let name = vec![
            Line::from(format!(" {}", curve.name)),
            Line::from(Span::styled(
                format!(" {}", curve.value),
                Style::new().add_modifier(Modifier::DIM),
            )),
        ];
        frame.render_widget(Paragraph::new(name), label);
        let skip = curve.points.len().saturating_sub(usize::from(graph.width));
        let style = curve
            .problem
            .map_or(Style::new(), |p| screen.problem_style(p));
        frame.render_widget(
            Sparkline::default()
                .data(curve.points[skip..].iter().copied())
                .max(curve.top)
                .style(style),
            graph,
        );
    }
}

struct Curve {
    name: String,
    value: String,
    points: Vec<Option<u64>>,
    top: u64,
    problem: Option<Problem>,
}

fn curve(
    name: &str,
    history: &[&HistoryPoint],
    of: impl Fn(&HistoryPoint) -> Option<u64>,
    text: impl Fn(u64) -> String,
) -> Curve {
    let points: Vec<Option<u64>> = history.iter().map(|p| of(p)).collect();
    let known = || points.iter().flatten().copied();
    let value = match (
        points.last().copied().flatten(),
        known().min(),
        known().max(),
    ) {
        (Some(now), Some(min), Some(max)) => {
            format!("{} ({} to {})", text(now), text(min), text(max))
        }
        _ => "not measured".to_owned(),
    };
    Curve {
        name: name.to_owned(),
        value,
        top: known().max().unwrap_or(0).max(1),
        points,
        problem: None,
    }
}

fn curves(live: LiveConnection<'_>) -> Vec<Curve> {
    let history: Vec<&HistoryPoint> = live.history.iter().collect();
    if history.is_empty() {
        return Vec::new();
    }
    let h = history.as_slice();
    let mut curves = vec![
        curve(
            "congestion window, segments",
            h,
            |p| Some(p.cwnd.into()),
            |v| v.to_string(),
        ),
        curve(
            "RTT",
            h,
            |p| p.srtt.map(|t| t.0),
            |v| slowpath_model::Micros(v).to_string(),
        ),
        curve("send queue", h, |p| Some(p.send_queue.into()), bytes),
        curve("receive queue", h, |p| Some(p.receive_queue.into()), bytes),
        curve(
            "rate",
            h,
            |p| Some(p.bytes_per_second as u64),
            |v| bit_rate(v as f64),
        ),
    ];
    for problem in Problem::ALL.into_iter().skip(1) {
        let share = |p: &HistoryPoint| (f64::from(p.shares[problem as usize]) * 1000.0) as u64;
        if h.iter().any(|p| share(p) > 0) {
            let mut of_problem = curve(
                problem.name(),
                h,
                |p| Some(share(p)),
                |v| percent(v as f64 / 1000.0),
            );
            of_problem.top = 1000;
            of_problem.problem = Some(problem);
            curves.push(of_problem);
        }
    }
    curves
}

fn lines(
    screen: &Screen,
    live: LiveConnection<'_>,
    host: HostFigures,
    width: usize,
) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let stats = &live.snapshot.stats;
    let width = width.saturating_sub(13);
    let mut lines = overview(screen, live);
    let Some(verdict) = live.latest else {
        lines.push(Line::from(" No verdict yet: it takes two polls."));
        return lines;
    };
    lines.push(Line::default());
    let mut problems: Vec<Problem> = verdict.findings.iter().map(|f| f.problem).collect();
    if !problems.contains(&verdict.dominating) {
        problems.insert(0, verdict.dominating);
    }
    let interactions = || screen.closing.interactions_of(live.snapshot.id);
    let context = advice::with_interactions(host.with(Some(stats)), interactions());
    for problem in problems {
        lines.push(Line::from(Span::styled(
            format!(" {problem}: {}", evidence::stage(problem)),
            bold,
        )));
        let finding = tally::finding_of(verdict, problem);
        let evidence = evidence::of(&finding, &verdict.deltas, verdict.interval());
        let advice = advice::on(&finding, verdict, &context);
        let tuple = Some(live.snapshot.tuple);
        let points = [
            ("evidence", evidence.join(", ")),
            ("act", advice::who(advice.who, Some(live.owner), tuple)),
            ("advice", advice.what),
            ("after", advice.source.to_owned()),
        ];
        lines.extend(points_lines(points, width));
    }
    for found in interactions() {
        let kind = found.interaction.kind;
        lines.push(Line::from(Span::styled(
            format!(" {kind}: problems that explain each other"),
            bold,
        )));
        lines.extend(points_lines(interactions::points(found), width));
    }
    lines
}

/// Headings in a column of their own, texts broken at `width` characters beside them.
fn points_lines<I: IntoIterator<Item = (&'static str, String)>>(
    points: I,
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (heading, text) in points {
        for (i, line) in wrapped(&text, width).into_iter().enumerate() {
            let heading = if i == 0 { heading } else { "" };
            lines.push(Line::from(format!("   {heading:<9}{line}")));
        }
    }
    lines
}

/// Who the connection is, and the share of each problem.
fn overview(screen: &Screen, live: LiveConnection<'_>) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let stats = &live.snapshot.stats;
    let mut lines = vec![
        Line::from(Span::styled(
            format!(
                " {}  {}",
                process(live.owner),
                ends(&live.snapshot.tuple, live.real_peer)
            ),
            bold,
        )),
        Line::from(format!(" {}", whereabouts(live.owner))),
        Line::from(format!(
            " {:?}, {:?}, RTT {} (minimum {}), RTO {}, MSS {}, observed {}",
            stats.state,
            stats.ca_state,
            time(stats.srtt),
            time(stats.min_rtt),
            stats.rto,
            bytes(stats.send_mss.into()),
            live.observed,
        )),
        Line::default(),
    ];
    let latest = live.latest;
    for problem in Problem::ALL {
        let now = latest.map_or(0.0, |v| share_of(v, problem));
        let life = live.life_share(problem);
        let unmeasured = latest.is_some_and(|v| v.unmeasured.contains(problem));
        let text = if unmeasured {
            format!(" {:<22} could not measure", problem.name())
        } else {
            let cells = (now * 20.0).round() as usize;
            format!(
                " {:<22} {:<20} {:>5} now {:>5} of its life",
                problem.name(),
                "#".repeat(cells.min(20)),
                percent(now),
                percent(life),
            )
        };
        let style = if now > 0.0 {
            screen.problem_style(problem)
        } else {
            Style::new()
        };
        lines.push(Line::from(Span::styled(text, style)));
    }
    lines
}
