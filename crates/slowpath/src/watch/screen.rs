// SPDX-License-Identifier: Apache-2.0
//! The full screen: its state, its keys, and how it is drawn, without a terminal.

use super::detail;
use crate::render::{Paint, bit_rate, bytes, percent, plural, time};
use crate::session::Flow;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};
use slowpath_machine::clock;
use slowpath_machine::system_names::SystemNames;
use slowpath_model::{ConnectionId, ListenerInterval, Micros, Problem};
use slowpath_views::advice::HostFigures;
use slowpath_views::filter::Filter;
use slowpath_views::listeners;
use slowpath_views::selection::Selection;
use slowpath_views::source::{LiveConnection, OwnedConnection, PollReport, Source};
use slowpath_views::watch::{Column, NewVerdicts, Row, WatchSummary, sort, unmeasured_lines};
use std::collections::VecDeque;

/// Polls for which a closed connection stays on the screen.
const CLOSED_STAYS: u8 = 10;
/// Closed connections that stay at most.
const MOST_CLOSED: usize = 200;
/// Lines of the command's output that are kept, to be printed when the screen is left.
const MOST_OUTPUT: usize = 1_000;
/// Listeners that turn connections away shown at most.
const LISTENERS_SHOWN: usize = 3;
/// Lines of it on the screen.
const OUTPUT_SHOWN: u16 = 4;

const HELP: &str = "\
Each line is a connection with the verdict on its latest interval.

  up down  j k     move                 /        filter, as in ss(8); empty shows all
  PgUp PgDn g G    move far             Enter    the selected connection in detail
  left right       sort by a column     Esc      back
  r                turn the order       space    hold the screen; space again goes on
  ?                this help            q        quit

VERDICT  what limited the latest interval, and its share of it
LIFE     share of the time observed in which any problem limited it
RATE     payload bytes acknowledged and received, as bits a second
SEND-Q   bytes in the send buffer, sent or not;  RECV-Q  bytes not read yet

SenderAppLimited        the application wrote no more data: the network is not the cause
SendBufferLimited       the send buffer was full while the network could carry more
FastRetransmit Timeout  the network lost segments
DelayedAck              the receiver waited before it acknowledged
ReceiverWindowLimited   the receiver did not read fast enough, or its buffer is small";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Table,
    Detail(ConnectionId),
    Help,
}

/// The state of the full screen.
pub struct Screen {
    selection: Selection,
    colour: bool,
    greeting: Vec<String>,
    page: Page,
    column: Column,
    largest_first: bool,
    input: Option<String>,
    message: Option<String>,
    held: bool,
    rows: Vec<Row>,
    closed: VecDeque<(OwnedConnection, u8)>,
    selected: Option<ConnectionId>,
    table: TableState,
    scroll: u16,
    report: PollReport,
    elapsed: Micros,
    fresh: NewVerdicts,
    /// Listeners that turn connections away now.
    listeners: Vec<ListenerInterval>,
    /// What the closing summary is made of.
    pub closing: WatchSummary,
    /// The last lines that the command wrote.
    pub output: VecDeque<String>,
}

impl Screen {
    /// A screen of the connections that `selection` shows.
    pub fn new(selection: Selection, colour: bool, greeting: Vec<String>) -> Self {
        let message = selection.filter.notes().map(str::to_owned);
        Screen {
            selection,
            colour,
            greeting,
            page: Page::Table,
            column: Column::Verdict,
            largest_first: true,
            input: None,
            message,
            held: false,
            rows: Vec::new(),
            closed: VecDeque::new(),
            selected: None,
            table: TableState::default(),
            scroll: 0,
            report: PollReport::default(),
            elapsed: Micros::ZERO,
            fresh: NewVerdicts::default(),
            listeners: Vec::new(),
            closing: WatchSummary::default(),
            output: VecDeque::new(),
        }
    }

    /// Takes in a poll.
    pub fn polled(&mut self, source: &dyn Source, report: &PollReport, elapsed: Micros) {
        self.report = *report;
        self.elapsed = elapsed;
        self.closing.poll(report, elapsed);
        for live in source.recently_closed().chain(source.connections()) {
            let Some(verdict) = live.latest else {
                continue;
            };
            if self.selection.selects(live) {
                if self.fresh.show(live, verdict).is_some() {
                    self.closing.add(live, verdict);
                }
            } else if self.selection.undecided(live) {
                self.closing.undecided(live);
            }
        }
        self.closing.join(source, report);
        self.listeners.clear();
        let now = clock::now();
        for live in source.listeners() {
            self.closing.listener(live, &self.selection, now);
            let shown = live
                .interval(now)
                .filter(|i| !i.findings.is_empty() && self.selection.selects_listener(i));
            self.listeners.extend(shown);
        }
        self.fresh.sweep(source);
        for (_, age) in &mut self.closed {
            *age += 1;
        }
        self.closed.retain(|(_, age)| *age < CLOSED_STAYS);
        for live in source.recently_closed() {
            self.closed.push_back((live.into(), 0));
        }
        while self.closed.len() > MOST_CLOSED {
            self.closed.pop_front();
        }
        if !self.held {
            self.collect(source);
        }
    }

    fn collect(&mut self, source: &dyn Source) {
        let living = source.connections().map(|live| (live, None));
        let closed = self
            .closed
            .iter()
            .map(|(kept, age)| (kept.live(), Some(*age)));
        self.rows = living
            .chain(closed)
            .filter(|(live, _)| self.selection.selects(*live))
            .map(|(live, closed_for)| Row {
                closed_for,
                ..Row::of(live)
            })
            .collect();
        self.order();
    }

    fn order(&mut self) {
        sort(&mut self.rows, self.column, self.largest_first);
    }

    fn position(&self) -> Option<usize> {
        let selected = self.selected?;
        self.rows.iter().position(|r| r.id == selected)
    }

    fn move_to(&mut self, row: usize) {
        self.selected = self
            .rows
            .get(row.min(self.rows.len().saturating_sub(1)))
            .map(|r| r.id);
    }

    fn move_by(&mut self, by: isize) {
        let row = match self.position() {
            Some(at) => at.saturating_add_signed(by),
            None => 0,
        };
        self.move_to(row);
    }

    /// Keeps a line that the command wrote.
    pub fn command_output(&mut self, line: String) {
        if self.output.len() == MOST_OUTPUT {
            self.output.pop_front();
        }
        self.output.push_back(line);
    }

    /// Acts on a key.
    pub fn key(&mut self, key: KeyEvent, source: &dyn Source) -> Flow {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Flow::Stop;
        }
        if self.input.is_some() {
            self.edit(key.code, source);
            return Flow::Continue;
        }
        self.message = None;
        match (key.code, self.page) {
            (KeyCode::Char('q'), _) => return Flow::Stop,
            (KeyCode::Char('?'), Page::Help) | (KeyCode::Esc | KeyCode::Backspace, _) => {
                self.page = Page::Table;
                self.scroll = 0;
            }
            (KeyCode::Char('?'), _) => self.page = Page::Help,
            (KeyCode::Char('/'), Page::Table) => {
                self.input = Some(self.selection.filter.to_string());
            }
            (KeyCode::Char(' '), _) => {
                self.held = !self.held;
                if !self.held {
                    self.collect(source);
                }
            }
            (KeyCode::Enter, Page::Table) => {
                if self.position().is_none() {
                    self.move_to(0);
                }
                if let Some(id) = self.selected {
                    self.page = Page::Detail(id);
                    self.scroll = 0;
                }
            }
            (code, Page::Detail(_)) => match code {
                KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
                _ => {}
            },
            (code, Page::Table) => self.table_key(code),
            _ => {}
        }
        Flow::Continue
    }

    fn table_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-20),
            KeyCode::PageDown => self.move_by(20),
            KeyCode::Home | KeyCode::Char('g') => self.move_to(0),
            KeyCode::End | KeyCode::Char('G') => self.move_to(usize::MAX),
            KeyCode::Left | KeyCode::Char('h' | '<') => self.sort_by(self.column.shifted(-1)),
            KeyCode::Right | KeyCode::Char('l' | '>') => self.sort_by(self.column.shifted(1)),
            KeyCode::Char('r') => {
                self.largest_first = !self.largest_first;
                self.order();
            }
            _ => {}
        }
    }

    fn sort_by(&mut self, column: Column) {
        self.column = column;
        self.largest_first = column.largest_first();
        self.order();
    }

    fn edit(&mut self, code: KeyCode, source: &dyn Source) {
        let Some(input) = &mut self.input else {
            return;
        };
        match code {
            KeyCode::Char(c) => input.push(c),
            KeyCode::Backspace => {
                input.pop();
            }
            KeyCode::Esc => {
                self.input = None;
                self.message = None;
            }
            KeyCode::Enter => match Filter::parse(input, &SystemNames::default()) {
                Ok(filter) => {
                    self.message = filter.notes().map(str::to_owned);
                    self.selection.filter = filter;
                    self.input = None;
                    self.collect(source);
                }
                Err(error) => self.message = Some(error.kind.to_string()),
            },
            _ => {}
        }
    }

    fn style(&self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    /// The style of a problem.
    pub(super) fn problem_style(&self, problem: Problem) -> Style {
        match problem {
            Problem::SenderAppLimited => Style::new(),
            Problem::FastRetransmit | Problem::Timeout => self.style(Color::Red),
            _ => self.style(Color::Yellow),
        }
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>, source: &dyn Source) {
        let output = match (self.output.is_empty(), self.page) {
            (false, Page::Table) => OUTPUT_SHOWN,
            _ => 0,
        };
        let unmeasured = unmeasured_lines(source.capabilities(), &source.losses());
        let overflowing = self.overflowing();
        let [title, alarms, notes, body, lines, footer] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(overflowing.len() as u16),
            Constraint::Length(unmeasured.len() as u16),
            Constraint::Min(3),
            Constraint::Length(output),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.title(), title);
        frame.render_widget(
            Paragraph::new(overflowing).style(self.style(Color::Red)),
            alarms,
        );
        let notes_text: Vec<Line<'_>> = unmeasured.into_iter().map(Line::from).collect();
        frame.render_widget(
            Paragraph::new(notes_text).style(Style::new().add_modifier(Modifier::DIM)),
            notes,
        );
        match self.page {
            Page::Table => self.draw_table(frame, body),
            Page::Help => frame.render_widget(Paragraph::new(HELP), body),
            Page::Detail(id) => match self.find(id, source) {
                Some(live) => detail::draw(
                    frame,
                    body,
                    self,
                    live,
                    HostFigures::read(source),
                    self.scroll,
                ),
                None => frame.render_widget(
                    Paragraph::new("This connection has closed. Esc goes back.")
                        .wrap(Wrap { trim: true }),
                    body,
                ),
            },
        }
        let skip = self.output.len().saturating_sub(output.into());
        let shown: Vec<Line<'_>> = self
            .output
            .iter()
            .skip(skip)
            .map(|l| Line::from(crate::render::plain(l)))
            .collect();
        frame.render_widget(Paragraph::new(shown), lines);
        frame.render_widget(self.footer(), footer);
    }

    /// The listeners that turn connections away, a line each; of many the first few.
    fn overflowing(&self) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = self
            .listeners
            .iter()
            .take(LISTENERS_SHOWN)
            .map(|i| Line::from(format!(" {}", listeners::line(i, Paint::OFF))))
            .collect();
        let more = self.listeners.len().saturating_sub(LISTENERS_SHOWN);
        if more > 0 {
            let more = plural(more as u64, "listener");
            lines.push(Line::from(format!(" and {more} more")));
        }
        lines
    }

    fn find<'s>(&'s self, id: ConnectionId, source: &'s dyn Source) -> Option<LiveConnection<'s>> {
        source
            .connections()
            .find(|c| c.snapshot.id == id)
            .or_else(|| {
                let mut closed = self.closed.iter().map(|(kept, _)| kept.live());
                closed.find(|c| c.snapshot.id == id)
            })
    }

    fn title(&self) -> Line<'static> {
        let troubled = self
            .rows
            .iter()
            .filter(|r| r.verdict.is_some_and(|v| v != Problem::SenderAppLimited))
            .count();
        let mut text = format!(
            " slowpath  {}, {troubled} limited by other than their application  {}  poll {}",
            plural(self.rows.len() as u64, "connection"),
            self.elapsed,
            self.report.cpu,
        );
        for line in &self.greeting {
            text.push_str("  ");
            text.push_str(line);
        }
        if !self.selection.filter.is_empty() {
            text.push_str(&format!("  filter: {}", self.selection.filter));
        }
        if self.held {
            text.push_str("  HELD");
        }
        Line::from(Span::styled(
            text,
            Style::new().add_modifier(Modifier::BOLD),
        ))
    }

    fn footer(&self) -> Line<'static> {
        let mut spans = Vec::new();
        if let Some(input) = &self.input {
            spans.push(Span::raw(format!(" filter: {input}_  ")));
        }
        match &self.message {
            Some(message) => spans.push(Span::styled(message.clone(), self.style(Color::Red))),
            None if self.input.is_some() => spans.push(Span::raw("Enter applies, Esc leaves")),
            None => spans.push(Span::styled(
                match self.page {
                    Page::Table => {
                        " q quit  / filter  Enter detail  left/right sort  r reverse  space hold  ? help"
                    }
                    _ => " Esc back  q quit",
                },
                Style::new().add_modifier(Modifier::DIM),
            )),
        }
        Line::from(spans)
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let header = Column::ALL.map(|c| {
            let mark = match (c == self.column, self.largest_first) {
                (true, true) => "▼",
                (true, false) => "▲",
                (false, _) => "",
            };
            Cell::from(format!("{}{mark}", c.name()))
        });
        // A window of rows around the selection: building thousands of rows for a screen
        // of fifty would cost more than the poll.
        let position = self.position();
        let height = usize::from(area.height.saturating_sub(1)).max(1);
        let top = match position {
            Some(at) => {
                let offset = self.table.offset();
                offset.clamp((at + 1).saturating_sub(height), at)
            }
            None => 0,
        };
        let rows: Vec<TableRow<'_>> = self
            .rows
            .iter()
            .skip(top)
            .take(height)
            .map(|r| self.row(r))
            .collect();
        let widths = [
            Constraint::Length(26),
            Constraint::Length(5),
            Constraint::Length(22),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Length(11),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(10),
            Constraint::Length(10),
        ];
        let table = Table::new(rows, widths)
            .header(TableRow::new(header).style(Style::new().add_modifier(Modifier::UNDERLINED)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut window = TableState::default().with_selected(position.map(|p| p - top));
        frame.render_stateful_widget(table, area, &mut window);
        *self.table.offset_mut() = top;
    }

    fn row(&self, r: &Row) -> TableRow<'static> {
        let verdict = match r.verdict {
            None => Cell::from("-"),
            Some(v) => {
                let text = format!("{:<21} {:>4}", v.name(), percent(r.share));
                Cell::from(Span::styled(text, self.problem_style(v)))
            }
        };
        let style = match r.closed_for {
            Some(_) => Style::new().add_modifier(Modifier::DIM),
            None => Style::new(),
        };
        TableRow::new([
            verdict,
            Cell::from(percent(r.life)),
            Cell::from(r.process.clone()),
            Cell::from(r.tuple.local.to_string()),
            Cell::from(r.tuple.remote.to_string()),
            Cell::from(bit_rate(r.rate)),
            Cell::from(time(r.srtt)),
            Cell::from(r.cwnd.to_string()),
            Cell::from(bytes(r.send_queue.into())),
            Cell::from(bytes(r.receive_queue.into())),
        ])
        .style(style)
    }
}

#[cfg(test)]
mod tests;
