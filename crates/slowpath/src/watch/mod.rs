// SPDX-License-Identifier: Apache-2.0
//! `slowpath watch` and the live half of `slowpath up`: the full screen on a terminal, lines
//! or JSON elsewhere.

mod detail;
mod lines;
mod screen;

pub use lines::{Form, Lines};
pub use screen::Screen;

use crate::command::{self, Output, Running};
use crate::events::{self, Event};
use crate::failure::{Failure, Outcome};
use crate::message;
use crate::options::ExitOn;
use crate::render::Paint;
use crate::session::{self, Flow, Viewer};
use slowpath_agent::sees_all_processes;
use slowpath_machine::clock;
use slowpath_model::Micros;
use slowpath_views::json;
use slowpath_views::selection::Selection;
use slowpath_views::source::{Feature, FeatureState, PollReport, Source};
use slowpath_views::watch::{CommandOutcome, WatchSummary, unmeasured_lines};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Points kept of each connection for the sparklines.
pub const HISTORY: usize = 240;

/// How a live view is shown and when it ends.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which connections.
    pub selection: Selection,
    /// Stop after this time.
    pub length: Option<Duration>,
    /// JSON.
    pub json: bool,
    /// Lines even on a terminal.
    pub lines: bool,
    /// When the exit status is 3.
    pub exit: ExitOn,
    /// The command to run and look at; none if empty.
    pub command: Vec<String>,
    /// Where the log is kept, if it is.
    pub log: Option<PathBuf>,
}

impl Options {
    /// Whether the full screen is used.
    pub fn full_screen(&self) -> bool {
        !self.json
            && !self.lines
            && std::io::stdout().is_terminal()
            && std::io::stdin().is_terminal()
            // It can move no cursor (terminfo(5)).
            && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
    }
}

/// Shows live verdicts until the time is up, a signal or `q` stops it, or the command ends.
///
/// # Errors
/// When a poll, the command or the output fails.
pub fn run(source: &mut dyn Source, mut options: Options) -> Result<Outcome, Failure> {
    let full_screen = options.full_screen();
    let greeting = greeting(source, options.log.as_deref());
    let (sender, events) = events::with_signals()?;
    let mut running = match options.command.is_empty() {
        true => None,
        false => {
            let output = if full_screen {
                Output::Events
            } else {
                Output::StandardError
            };
            Some(command::start(&options.command, output, &sender)?)
        }
    };
    options.selection.family = running.as_ref().map(|r| r.family.members.clone());
    let paint = Paint::for_stdout();
    let mut stdout = std::io::stdout().lock();
    let selection = options.selection;
    let (closing, tail) = if full_screen {
        drop(stdout);
        events::read_keys(sender)?;
        let screen = Screen::new(selection, paint != Paint::OFF, greeting);
        let mut viewer = FullScreen {
            terminal: ratatui::try_init()?,
            screen,
            command: running.as_mut(),
        };
        let ended = session::run(source, &events, options.length, &mut viewer);
        ratatui::restore();
        ended?;
        stdout = std::io::stdout().lock();
        (viewer.screen.closing, viewer.screen.output)
    } else {
        let form = if options.json {
            Form::Json
        } else {
            Form::Text(paint)
        };
        if let Form::Text(_) = form {
            writeln!(stdout, "{}", greeting.join(", "))?;
            for line in missing(source) {
                writeln!(stdout, "{line}")?;
            }
            if let Some(note) = selection.filter.notes() {
                writeln!(stdout, "note: {note}")?;
            }
            stdout.flush()?;
        }
        let mut viewer = Lines::new(&mut stdout, form, selection, running.as_mut());
        session::run(source, &events, options.length, &mut viewer)?;
        (viewer.closing, Default::default())
    };
    if let Some(running) = &mut running {
        running.end(&events);
    }
    for line in tail {
        message::line(format_args!("{line}"));
    }
    if options.json {
        finish_json(&mut stdout, source, &closing, running.as_ref())?;
    } else {
        // Lines have stated the reasons at the beginning; the screen is gone.
        let summary = closing.lines(source.capabilities(), &source.losses(), !full_screen, paint);
        finish(&mut stdout, &summary, running.as_ref())?;
    }
    Ok((options.exit).outcome(|criterion| closing.problems_found(criterion)))
}

/// How the command ended, if there was one.
fn status(running: Option<&Running>) -> Option<String> {
    running.map(|r| match r.ended() {
        Some(status) => status.to_string(),
        None => "still running".to_owned(),
    })
}

fn finish_json(
    out: &mut dyn Write,
    source: &dyn Source,
    closing: &WatchSummary,
    running: Option<&Running>,
) -> Result<(), Failure> {
    let mut output = closing.output(source.capabilities(), &source.losses(), clock::now());
    output.command = running.map(|running| CommandOutcome {
        command_status: status(Some(running)),
        command_exit_code: running.ended().and_then(|s| s.code()),
        command_processes: running.family.members.len(),
    });
    writeln!(out, "{}", json::value(&output))?;
    Ok(())
}

fn finish(
    out: &mut dyn Write,
    summary: &[String],
    running: Option<&Running>,
) -> Result<(), Failure> {
    for line in summary {
        writeln!(out, "{line}")?;
    }
    if let Some(status) = status(running) {
        writeln!(out, "command: {status}")?;
    }
    out.flush()?;
    Ok(())
}

/// The screen on a real terminal.
struct FullScreen<'a> {
    terminal: ratatui::DefaultTerminal,
    screen: Screen,
    command: Option<&'a mut Running>,
}

impl FullScreen<'_> {
    fn draw(&mut self, source: &dyn Source) -> Result<(), Failure> {
        self.terminal
            .draw(|frame| self.screen.draw(frame, source))?;
        Ok(())
    }
}

impl Viewer for FullScreen<'_> {
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure> {
        self.screen.polled(source, report, elapsed);
        self.draw(source)?;
        let ended = self.command.as_ref().is_some_and(|c| c.ended().is_some());
        Ok(if ended { Flow::Stop } else { Flow::Continue })
    }

    fn event(&mut self, source: &dyn Source, event: Event) -> Result<Flow, Failure> {
        let flow = match event {
            Event::Key(key) => self.screen.key(key, source),
            Event::CommandOutput(line) => {
                self.screen.command_output(line);
                Flow::Continue
            }
            Event::CommandEnded(status) => {
                if let Some(command) = self.command.as_mut() {
                    command.note_end(status);
                }
                Flow::Continue
            }
            Event::Stop => Flow::Stop,
            Event::Resized => Flow::Continue,
        };
        self.draw(source)?;
        Ok(flow)
    }
}

/// What is looked at and how, in a few short texts.
fn greeting(source: &dyn Source, log: Option<&Path>) -> Vec<String> {
    let capabilities = source.capabilities();
    let active = |f: &&Feature| f.state == FeatureState::Active;
    let mut lines = vec![format!(
        "{} tier, {} of {} features in use",
        json::tier(capabilities.tier),
        capabilities.features.iter().filter(active).count(),
        capabilities.features.len(),
    )];
    if !sees_all_processes(capabilities.tier) {
        lines.push("owners: only processes of this pid namespace can be named".to_owned());
    }
    lines.extend(log.map(|l| format!("log: {}", l.display())));
    lines
}

/// The features that are not in use, a line each: what is not observed without them.
fn missing(source: &dyn Source) -> Vec<String> {
    let capabilities = source.capabilities();
    let mut lines: Vec<String> = capabilities
        .features
        .iter()
        .filter(|f| f.state != FeatureState::Active)
        .map(|f| format!("without {}: {}", f.name, f.measures))
        .collect();
    lines.extend(unmeasured_lines(capabilities, &source.losses()));
    lines
}

#[cfg(test)]
mod interaction_tests;
#[cfg(test)]
mod listener_tests;
