// SPDX-License-Identifier: Apache-2.0
//! From the configuration to the service: start, signals, reloads, exit status.

use super::settings::{Effective, Settings};
use super::{recording, shipping};
use crate::failure::{Failure, Outcome};
use crate::options::{TierArg, owner_rules};
use crate::up;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use slowpath_agent::service::{Journal, Request, Service, configuration};
use slowpath_agent::{Agent, Config, OwnerOptions, Retention, Rules, TierChoice};
use slowpath_export::exporters::{ExportSettings, Exporters};
use slowpath_ship::shipper::Shipper;
use slowpath_views::source::SourceError;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Keys that a reload can change.
const RELOADABLE: [&str; 5] = [
    "interval",
    "metrics",
    "metrics-applications",
    "otlp",
    "otlp-interval",
];

/// Runs the agent until a signal ends it.
///
/// # Errors
/// A wrong configuration; when the agent does not start; when five polls in a row fail;
/// when the log is incomplete in the end.
pub(super) fn run(args: &super::Agent) -> Result<Outcome, Failure> {
    let settings = read(args)?;
    let mut config = config(&settings)?;
    if args.check {
        let mut out = std::io::stdout().lock();
        for line in settings.entries().lines() {
            writeln!(out, "{line}")?;
        }
        return Ok(Outcome::Done);
    }
    let journal = Journal::of_this_process();
    let requests = signals()?;
    let ship = settings.ship.options(settings.log.as_deref());
    // The log goes on without.
    let ship = ship.unwrap_or_else(|error| {
        journal.warn(&format!("does not ship the log: {error}"));
        None
    });
    config.ship = ship.is_some();
    let mut agent = Agent::start(config).map_err(|error| Failure::Start(error.to_string()))?;
    // Before the introduction: what is opened meanwhile is recorded.
    recording::start(&mut agent, &settings.record, journal);
    // After the log is open, and longer than it is: what a log's end leaves is shipped too.
    let shipper = ship
        .map(|options| shipping::start(options, journal))
        .transpose()?;
    let mut exporters = Exporters::new(shipper.as_ref().map(Shipper::watch));
    let started = exporters
        .follow(&mut agent, None, &exports(&settings))
        .map_err(|e| Failure::Export(e.to_string()))?;
    let directory = settings.log.clone();
    let mut service = Service::new(agent, exporters, directory.clone(), journal);
    service.introduce();
    for line in started {
        journal.say(&line);
    }
    let mut configuration = Configuration { args, settings };
    let ended = service.run(&requests, |agent, exporters, journal| {
        configuration.reload(agent, exporters, journal);
    });
    let finished = service.finish();
    drop(shipper);
    ended.map_err(|error| Failure::Poll(SourceError(error.to_string())))?;
    match (finished.log_error, directory) {
        (Some(reason), Some(directory)) => Err(Failure::LogWrite { directory, reason }),
        _ => Ok(Outcome::Done),
    }
}

/// The file's settings under the options.
fn read(args: &super::Agent) -> Result<Effective, Failure> {
    let file = match &args.config {
        Some(file) => configuration::read(file).map_err(|e| Failure::Usage(e.to_string()))?,
        None => Settings::default(),
    };
    let settings = args.settings.clone().or(file);
    settings.effective(default_log()).ok_or_else(|| {
        Failure::Usage(
            "there is no home directory to keep a log in; name one with --log, or --log none"
                .to_owned(),
        )
    })
}

/// Where systemd puts a service's state (systemd.exec(5), `StateDirectory=`; the first of
/// several), else where `slowpath up` keeps its log.
pub(super) fn default_log() -> Option<PathBuf> {
    std::env::var("STATE_DIRECTORY")
        .ok()
        .and_then(|all| all.split(':').next().map(PathBuf::from))
        .filter(|directory| directory.is_absolute())
        .or_else(up::default_directory)
}

fn config(settings: &Effective) -> Result<Config, Failure> {
    let rules = match &settings.owners {
        Some(file) => owner_rules(&file.display().to_string()).map_err(Failure::Usage)?,
        None => Rules::default(),
    };
    Ok(Config {
        interval: settings.interval,
        log: settings.log.clone(),
        host: settings.host.as_ref().map(|name| name.as_str().to_owned()),
        namespaces: settings.namespaces,
        trace_paths: settings.trace_paths.map(u32::from),
        tier: match settings.tier {
            TierArg::Auto => TierChoice::Auto,
            TierArg::Bpf => TierChoice::Bpf,
            TierArg::InetDiag => TierChoice::InetDiag,
        },
        retention: Retention {
            max_bytes: settings.retention_size.0,
            max_age: settings.retention_age.map(|age| age.0),
        },
        budget: settings.cpu_budget,
        owners: OwnerOptions {
            rules,
            log_command_lines: settings.log_command_lines.into(),
        },
        // No view shows them.
        verdicts: false,
        ..Config::default()
    })
}

fn exports(settings: &Effective) -> ExportSettings {
    ExportSettings {
        metrics: settings.metrics,
        applications: settings.metrics_applications,
        labels: settings.metrics_labels,
        otlp: settings.otlp.clone(),
        otlp_interval: settings.otlp_interval.0,
        poll_interval: settings.interval,
        host: settings.host.clone(),
    }
}

/// SIGTERM and SIGINT as [`Request::Stop`], SIGHUP as [`Request::Reload`], SIGUSR1 as [`Request::Keep`].
fn signals() -> Result<Receiver<Request>, Failure> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let request = match signal {
                    SIGHUP => Request::Reload,
                    SIGUSR1 => Request::Keep,
                    _ => Request::Stop,
                };
                if sender.send(request).is_err() {
                    break;
                }
            }
        })?;
    Ok(receiver)
}

/// The settings that hold, and where they come from.
struct Configuration<'a> {
    args: &'a super::Agent,
    settings: Effective,
}

impl Configuration<'_> {
    /// Reads the configuration again; a wrong one changes nothing.
    fn reload(&mut self, agent: &mut Agent, exporters: &mut Exporters, journal: Journal) {
        match read(self.args) {
            Ok(settings) => self.apply(settings, agent, exporters, journal),
            Err(error) => {
                let text = format!("not reloaded, what was read before still holds: {error}");
                journal.warn(&text);
            }
        }
    }

    /// Applies what can be changed while the agent runs, and reports what cannot.
    fn apply(
        &mut self,
        wanted: Effective,
        agent: &mut Agent,
        exporters: &mut Exporters,
        journal: Journal,
    ) {
        let entries = wanted.entries();
        let changed = self.settings.entries().differences(&entries);
        let (now, later): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|k| RELOADABLE.contains(k));
        for key in &now {
            let value = entries.value(key).unwrap_or("not set");
            journal.say(&format!("reloaded: {key} = {value}"));
        }
        agent.set_interval(wanted.interval);
        // What a restart would change holds until then.
        let holds = Effective {
            log: self.settings.log.clone(),
            host: self.settings.host.clone(),
            namespaces: self.settings.namespaces,
            trace_paths: self.settings.trace_paths,
            tier: self.settings.tier,
            metrics_labels: self.settings.metrics_labels,
            retention_size: self.settings.retention_size,
            retention_age: self.settings.retention_age,
            ship: self.settings.ship.clone(),
            record: self.settings.record.clone(),
            ..wanted
        };
        let before = std::mem::replace(&mut self.settings, holds);
        match exporters.follow(agent, Some(&exports(&before)), &exports(&self.settings)) {
            Ok(done) => done.iter().for_each(|line| journal.say(line)),
            Err(error) => journal.warn(&error.to_string()),
        }
        if !later.is_empty() {
            let text = format!("changed only by a restart: {}", later.join(", "));
            journal.warn(&text);
        } else if now.is_empty() {
            journal.say("reloaded: nothing has changed");
        }
    }
}
