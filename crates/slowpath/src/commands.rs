// SPDX-License-Identifier: Apache-2.0
//! Carries out the command line, and turns the result into an exit status.

use crate::args::{Cli, Command, Overhead, Report, Sim, SimCommand, Up, Watch, Why};
use crate::events;
use crate::export::{self, Export};
use crate::failure::{Failure, Outcome};
use crate::machine::Machine;
use crate::manual;
use crate::message;
use crate::render::Paint;
use crate::{
    agent, explain, lab, outputs, overhead, queues, record, recording, replay, report, series,
    server, sim, trace, up, watch, why,
};
use clap::Parser;
use slowpath_machine::clock;
use slowpath_machine::system_names::SystemNames;
use slowpath_views::filter::Filter;
use slowpath_views::selection::Selection;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Reads the arguments of this process and does what they say.
pub fn main() -> ExitCode {
    outlive_file_limit();
    let done = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(answer) if answer.use_stderr() => {
            // Without colours: what it quotes could have some of its own.
            message::line(answer.render().to_string().trim_end());
            return ExitCode::from(2);
        }
        // Help, or the version.
        Err(answer) => print(&answer),
    };
    match done {
        Ok(outcome) => outcome.into(),
        Err(failure) => {
            let code = failure.code();
            if code != 0 {
                message::say(slowpath_observe::with_limit(&failure.text()));
            }
            ExitCode::from(code)
        }
    }
}

/// Makes a file that reaches the limit on sizes (RLIMIT_FSIZE, setrlimit(2)) an error of whoever
/// writes to it, as a full disk is: SIGXFSZ would end this process. Programs that it starts have the
/// signal's default again (execve(2)).
fn outlive_file_limit() {
    let met = Arc::new(AtomicBool::new(false));
    // Where that is refused, the signal ends the process as before.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, met);
}

fn print(answer: &clap::Error) -> Result<Outcome, Failure> {
    answer.print()?;
    stdout().flush()?;
    Ok(Outcome::Done)
}

fn run(command: Command) -> Result<Outcome, Failure> {
    outputs::refuse_wrong(&command)?;
    match command {
        Command::Up(args) => run_up(args),
        Command::Watch(args) => run_watch(args),
        Command::Agent(args) => agent::run(&args),
        Command::Server(args) => server::run(*args),
        Command::Why(args) => run_why(&args),
        Command::Report(args) => run_report(args),
        Command::Export(args) => run_export(&args),
        Command::Overhead(args) => run_overhead(&args),
        Command::Path(args) => {
            slowpath_path::command::run(&args, &mut stdout().lock())?;
            Ok(Outcome::Done)
        }
        Command::Trace(args) => trace::run(&args, Paint::for_stdout(), &mut stdout().lock()),
        Command::Sim(args) => run_sim(args),
        Command::Queues(args) => queues::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Recording(args) => {
            recording::run(&args, Paint::for_stdout(), &mut stdout().lock())
        }
        Command::Explain(args) => explain::run(&args),
        Command::Completions(args) => {
            manual::completions(args.shell, &mut stdout().lock())?;
            Ok(Outcome::Done)
        }
        Command::Man(args) => {
            match args.pages {
                None => manual::page(&mut stdout().lock())?,
                Some(directory) => manual::pages(&directory).map_err(|error| {
                    let directory = directory.display();
                    Failure::Write(format!("cannot write manual pages to {directory}: {error}"))
                })?,
            }
            Ok(Outcome::Done)
        }
    }
}

fn filter(words: &[String]) -> Result<Filter, Failure> {
    Ok(Filter::parse(&words.join(" "), &SystemNames::default())?)
}

fn no_directory() -> Failure {
    Failure::Usage("there is no home directory to keep a log in; name one with --log".to_owned())
}

fn run_up(args: Up) -> Result<Outcome, Failure> {
    let directory = args
        .log
        .or_else(up::default_directory)
        .ok_or_else(no_directory)?;
    let options = watch::Options {
        length: args.length,
        json: args.answering.json,
        lines: args.lines,
        exit: args.answering.exit,
        log: Some(directory.clone()),
        ..watch::Options::default()
    };
    let mut machine = Machine::start(&args.observing, Some(&directory), history(&options))?;
    let outcome = watch::run(&mut machine, options);
    let finished = machine.finish();
    let outcome = outcome?;
    match finished.log_error {
        Some(reason) => Err(Failure::LogWrite { directory, reason }),
        None => Ok(outcome),
    }
}

fn history(options: &watch::Options) -> usize {
    if options.full_screen() {
        watch::HISTORY
    } else {
        0
    }
}

fn run_watch(args: Watch) -> Result<Outcome, Failure> {
    let options = watch::Options {
        selection: Selection {
            filter: filter(&args.filter)?,
            family: None,
        },
        length: args.length,
        json: args.answering.json,
        lines: args.lines,
        exit: args.answering.exit,
        command: args.command,
        log: None,
    };
    let mut machine = Machine::start(&args.observing, None, history(&options))?;
    watch::run(&mut machine, options)
}

fn run_why(args: &Why) -> Result<Outcome, Failure> {
    let target = why::target(&args.target)?;
    let mut machine = Machine::start(&args.observing, None, 0)?;
    let (_sender, events) = events::with_signals()?;
    let options = why::Options {
        length: args.length,
        json: args.answering.json,
        exit: args.answering.exit,
    };
    let paint = Paint::for_stdout();
    let out = &mut stdout().lock();
    why::run(&mut machine, &events, &target, options, paint, out)
}

fn run_overhead(args: &Overhead) -> Result<Outcome, Failure> {
    let mut machine = Machine::start(&args.observing, None, 0)?;
    let (_sender, events) = events::with_signals()?;
    let paint = Paint::for_stdout();
    let out = &mut stdout().lock();
    overhead::run(&mut machine, &events, args.length, args.json, paint, out)?;
    Ok(Outcome::Done)
}

fn run_sim(args: Sim) -> Result<Outcome, Failure> {
    if let Some(SimCommand::Compare(args)) = &args.command {
        sim::compare(
            &args.runs,
            args.json,
            Paint::for_stdout(),
            &mut stdout().lock(),
        )?;
        return Ok(Outcome::Done);
    }
    let mut set = args.set;
    set.extend(args.seed.map(|seed| format!("seed={seed}")));
    let options = sim::Options {
        file: args.scenario.unwrap_or_default(),
        set,
        tables: args.out,
        csv: args.csv,
        pcap: args.pcap,
        html: args.html,
        json: args.json,
        quiet: args.quiet,
    };
    let (paint, out) = (Paint::for_stdout(), &mut stdout().lock());
    if args.sweeping.is_wanted()? {
        sim::sweep(&options, &args.sweeping, paint, out)?;
    } else {
        sim::run(&options, paint, out)?;
    }
    Ok(Outcome::Done)
}

fn run_export(args: &Export) -> Result<Outcome, Failure> {
    if let Some(directory) = &args.mlab {
        return export::mlab(directory, args.interval, args.length);
    }
    let directory = args
        .log
        .clone()
        .or_else(up::default_directory)
        .ok_or_else(no_directory)?;
    let filter = filter(&args.filter)?;
    let out = &mut stdout().lock();
    export::run(args, &directory, &filter, clock::now(), out)
}

fn run_report(args: Report) -> Result<Outcome, Failure> {
    let paint = Paint::for_stdout();
    let out = &mut stdout().lock();
    if let Some(file) = &args.tcp_info {
        return series::run(file, args.answering, paint, out);
    }
    let directory = args
        .log
        .or_else(up::default_directory)
        .ok_or_else(no_directory)?;
    let range = report::range(args.since, clock::now());
    let records = report::read(&directory, range)?;
    let options = report::Options {
        range,
        filter: filter(&args.filter)?,
        by: args.by.map(Into::into),
    };
    let outcome = report::write(records, &options, args.answering, paint, out)?;
    out.flush()?;
    Ok(outcome)
}
