// SPDX-License-Identifier: Apache-2.0
//! The life of the service: start, polls, reloads, end.

use super::exporters::Exporters;
use super::journal::Journal;
use super::notify::Notifier;
use super::recording;
use super::settings::{Effective, Settings};
use crate::failure::{Failure, Outcome};
use crate::options::{TierArg, owner_rules};
use crate::render::plural;
use crate::up;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use slowpath_agent::{
    Agent, Config, FeatureState, FinishReport, OwnerOptions, PollReport, Retention, Rules,
    TierChoice,
};
use slowpath_model::{LossCounters, Micros};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Polls that may fail one after the other: the next one may succeed.
const TOLERATED: u32 = 4;

/// How often the service says how it is, at most.
const STATUS_EVERY: Duration = Duration::from_secs(60);

/// Keys that a reload can change.
const RELOADABLE: [&str; 5] = [
    "interval",
    "metrics",
    "metrics-applications",
    "otlp",
    "otlp-interval",
];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Stop,
    Reload,
    Keep,
}

/// Runs the agent until a signal ends it.
///
/// # Errors
/// A wrong configuration; when the agent does not start; when five polls in a row fail;
/// when the log is incomplete in the end.
pub fn run(args: &super::Agent) -> Result<Outcome, Failure> {
    let settings = read(args)?;
    let config = config(&settings)?;
    if args.check {
        let mut out = std::io::stdout().lock();
        for line in settings.lines() {
            writeln!(out, "{line}")?;
        }
        return Ok(Outcome::Done);
    }
    let journal = Journal::of_this_process();
    let notifier = Notifier::of_this_process();
    let wishes = signals()?;
    let mut agent = Agent::start(config).map_err(|error| Failure::Start(error.to_string()))?;
    // Before the introduction: what is opened meanwhile is recorded.
    recording::start(&mut agent, &settings, journal);
    let mut exporters = Exporters::new();
    let said = exporters.follow(&mut agent, None, &settings)?;
    let mut service = Service {
        agent,
        settings,
        exporters,
        journal,
        notifier,
        losses: LossCounters::default(),
        log_error: None,
        push_error: None,
        recorder: recording::Told::default(),
        next_status: Instant::now(),
        cpu: Micros::ZERO,
        cpu_since: Instant::now(),
    };
    service.introduce();
    for line in said {
        service.journal.say(&line);
    }
    let ended = service.polls(args, &wishes);
    let directory = service.settings.log.clone();
    let finished = service.finish();
    ended?;
    match (finished.log_error, directory) {
        (Some(reason), Some(directory)) => Err(Failure::LogWrite { directory, reason }),
        _ => Ok(Outcome::Done),
    }
}

/// The file's settings under the options.
fn read(args: &super::Agent) -> Result<Effective, Failure> {
    let file = match &args.config {
        Some(file) => Settings::read(file).map_err(|e| Failure::Usage(e.to_string()))?,
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
fn default_log() -> Option<PathBuf> {
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
        // Nobody looks at them.
        verdicts: false,
        ..Config::default()
    })
}

/// SIGTERM and SIGINT as [`Wish::Stop`], SIGHUP as [`Wish::Reload`], SIGUSR1 as [`Wish::Keep`].
fn signals() -> Result<Receiver<Wish>, Failure> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let wish = match signal {
                    SIGHUP => Wish::Reload,
                    SIGUSR1 => Wish::Keep,
                    _ => Wish::Stop,
                };
                if sender.send(wish).is_err() {
                    break;
                }
            }
        })?;
    Ok(receiver)
}

struct Service {
    agent: Agent,
    settings: Effective,
    exporters: Exporters,
    journal: Journal,
    notifier: Notifier,
    /// What has been said to be lost.
    losses: LossCounters,
    log_error: Option<String>,
    push_error: Option<String>,
    recorder: recording::Told,
    next_status: Instant,
    /// CPU time of the agent at `cpu_since`.
    cpu: Micros,
    cpu_since: Instant,
}

impl Service {
    fn introduce(&self) {
        let capabilities = self.agent.capabilities();
        let features = &capabilities.features;
        let active = features.iter().filter(|f| f.state == FeatureState::Active);
        self.journal.say(&format!(
            "version {} starts as process {}: {} tier, {} of {} features in use, {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            slowpath_views::json::tier(capabilities.tier),
            active.count(),
            features.len(),
            match &self.settings.log {
                Some(directory) => format!("log in {}", directory.display()),
                None => "no log".to_owned(),
            },
        ));
        for feature in features {
            if let FeatureState::Missing { reason } = &feature.state {
                let text = format!("without {}: {} ({reason})", feature.name, feature.measures);
                if feature.serves.is_empty() {
                    // It costs no verdict: a choice, not something to mend.
                    self.journal.say(&text);
                } else {
                    self.journal.warn(&text);
                }
            }
        }
    }

    fn polls(&mut self, args: &super::Agent, wishes: &Receiver<Wish>) -> Result<(), Failure> {
        let mut ready = false;
        let mut failures = 0;
        loop {
            let mut wait = self.agent.until_next_poll();
            if let Some(every) = self.notifier.alive_every() {
                wait = wait.min(every);
            }
            match wishes.recv_timeout(wait) {
                Ok(Wish::Stop) => return Ok(()),
                Ok(Wish::Reload) => self.reload(args),
                Ok(Wish::Keep) => self.agent.keep_all("asked"),
                Err(RecvTimeoutError::Timeout) => {}
                // The thread of the signals lives as long as the process.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.notifier.alive(Instant::now());
            if !self.agent.until_next_poll().is_zero() {
                continue;
            }
            let began = Instant::now();
            match self.agent.poll() {
                Ok(report) => {
                    let took = began.elapsed();
                    self.exporters.polled(&self.agent, &report, took);
                    if failures > 0 {
                        self.journal.say("polls succeed again");
                    }
                    failures = 0;
                    if !std::mem::replace(&mut ready, true) {
                        self.notifier.ready();
                    }
                    if report.refresh {
                        self.polled(&report);
                    }
                }
                Err(error) => {
                    self.exporters.failed();
                    failures += 1;
                    let text = format!("poll failed, the {failures}. in a row: {error}");
                    self.journal.warn(&text);
                    if failures > TOLERATED {
                        return Err(slowpath_views::source::SourceError(error.to_string()).into());
                    }
                }
            }
        }
    }

    /// Says now and then how it goes, and at once that the log has trouble.
    fn polled(&mut self, report: &PollReport) {
        let log_error = self.agent.log_error();
        if log_error != self.log_error {
            match &log_error {
                Some(reason) => self.journal.warn(&format!("the log has trouble: {reason}")),
                None => self.journal.say("the log is well again"),
            }
            self.log_error = log_error;
        }
        let push_error = self.exporters.trouble();
        if push_error.is_some() != self.push_error.is_some() {
            match &push_error {
                Some(reason) => self.journal.warn(reason),
                None => self.journal.say("metrics are pushed again"),
            }
            self.push_error = push_error;
        }
        self.recorder.kept(&self.agent.kept(), self.journal);
        let now = Instant::now();
        if now < self.next_status {
            return;
        }
        self.next_status = now + STATUS_EVERY;
        let cpu = self.agent.cpu();
        let share = cpu.saturating_sub(self.cpu).as_secs_f64()
            / (now - self.cpu_since).as_secs_f64().max(1e-9);
        self.cpu = cpu;
        self.cpu_since = now;
        let recorder = self.recorder.status(&self.agent, self.journal);
        self.notifier.status(&format!(
            "{}, {:.2} % of one core{}",
            plural(report.sockets, "connection"),
            share * 100.0,
            recorder.unwrap_or_default()
        ));
        let losses = self.agent.losses();
        if losses != self.losses {
            self.losses = losses;
            self.journal.warn(&lost(&losses));
        }
    }

    /// Reads the configuration again; a wrong one changes nothing.
    fn reload(&mut self, args: &super::Agent) {
        self.notifier
            .reloading(Duration::from_nanos(slowpath_observe::monotonic().0));
        match read(args) {
            Ok(settings) => self.apply(settings),
            Err(error) => {
                let text = format!("not reloaded, what was read before still holds: {error}");
                self.journal.warn(&text);
            }
        }
        self.notifier.ready();
    }

    fn apply(&mut self, wanted: Effective) {
        let changed = self.settings.differences(&wanted);
        let (now, later): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|k| RELOADABLE.contains(k));
        for key in &now {
            let entries = wanted.entries();
            let value = entries.iter().find(|(k, _)| k == key);
            let value = value.map_or("not set", |(_, value)| value);
            self.journal.say(&format!("reloaded: {key} = {value}"));
        }
        self.agent.set_interval(wanted.interval);
        // What a restart would change holds until then.
        let holds = Effective {
            log: self.settings.log.clone(),
            tier: self.settings.tier,
            retention_size: self.settings.retention_size,
            retention_age: self.settings.retention_age,
            record: self.settings.record.clone(),
            record_ports: self.settings.record_ports.clone(),
            record_to: self.settings.record_to.clone(),
            record_ring: self.settings.record_ring,
            record_age: self.settings.record_age,
            record_size: self.settings.record_size,
            ..wanted
        };
        let before = std::mem::replace(&mut self.settings, holds);
        let followed = self
            .exporters
            .follow(&mut self.agent, Some(&before), &self.settings);
        match followed {
            Ok(said) => said.iter().for_each(|line| self.journal.say(line)),
            Err(error) => self.journal.warn(&error.to_string()),
        }
        if !later.is_empty() {
            let text = format!("changed only by a restart: {}", later.join(", "));
            self.journal.warn(&text);
        } else if now.is_empty() {
            self.journal.say("reloaded: nothing has changed");
        }
    }

    /// Closes the log.
    fn finish(mut self) -> FinishReport {
        self.notifier.stopping();
        self.exporters.finish(&self.agent);
        // The last words about the recorder.
        self.recorder.status(&self.agent, self.journal);
        let finished = self.agent.finish();
        self.recorder.kept(&finished.kept, self.journal);
        recording::ended(finished.recorder.as_ref(), self.journal);
        if finished.losses != self.losses {
            self.journal.warn(&lost(&finished.losses));
        }
        self.journal.say(&format!(
            "ends after {}, {} of CPU time{}",
            plural(finished.polls, "poll"),
            finished.cpu,
            match (&self.settings.log, &finished.log_error) {
                (None, _) => "",
                (Some(_), None) => "; the log is closed",
                (Some(_), Some(_)) => "; the log is incomplete",
            }
        ));
        finished
    }
}

fn lost(losses: &LossCounters) -> String {
    let LossCounters {
        storage_failed,
        snapshots_dropped,
        closes_dropped,
        calls_dropped,
        records_dropped,
    } = losses;
    format!(
        "lost since the start: {storage_failed} sockets without storage, {snapshots_dropped} snapshots, \
         {closes_dropped} closes, {calls_dropped} calls, {records_dropped} records of the log"
    )
}
