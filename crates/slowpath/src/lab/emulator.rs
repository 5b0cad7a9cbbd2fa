// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab up`, `exec`, `status`, `down`: networks in real time.

use crate::failure::{Failure, Outcome};
use clap::Args;
use serde_json::json;
use slowpath_lab::emulator::control::{self, PendingQuestion, Question, Status as NetworkStatus};
use slowpath_lab::emulator::{Lab, Options, Report};
use slowpath_netsim::scenario::{Scenario, Substrate};
use std::io::{BufRead, BufReader, ErrorKind, Write, stdout};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// `slowpath lab up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab up scenarios/lab/three-hops.toml             until Ctrl-C
  slowpath lab up scenarios/lab/three-hops.toml --detach    until slowpath lab down
  slowpath lab exec a -- ping -c 3 @b                       from another terminal
Needs root, or a user namespace. The exit status is 1 if the emulation was late.
docs/reference/lab.md describes the scenario file and what programs in the hosts see.")]
pub struct Up {
    /// The scenario, a TOML file
    pub topology: PathBuf,
    /// What to call the network; the file's name unless given
    #[arg(long)]
    pub name: Option<String>,
    /// Take it down after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::options::duration)]
    pub length: Option<Duration>,
    /// Return when the network is up, and leave it running
    #[arg(long)]
    pub detach: bool,
    /// Use only the network of the file; ignore its workloads, duration and TCP settings
    #[arg(long)]
    pub network_only: bool,
    /// The run fails if more than one packet of a hundred is delivered later than this
    #[arg(long, value_name = "DURATION", default_value = "2ms", value_parser = crate::options::duration)]
    pub bound: Duration,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// Send the process that started this one a line when the network is up
    #[arg(long, hide = true)]
    pub announce: bool,
}

/// Which network.
#[derive(Debug, Args)]
pub struct NetworkArg {
    /// The network; needed if several are up
    #[arg(long = "name", short = 'n')]
    pub name: Option<String>,
}

/// `slowpath lab exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab exec a -- ping -c 3 @b
  slowpath lab exec a -- curl http://@b:8080/ --data @@file
  slowpath lab exec a -- slowpath watch -- curl -s http://@b:8080/

In the command, @NAME stands for the IPv4 address of a host or router, @6:NAME for its IPv6 address, also within a word. @@ is an @.
The exit status is the command's.")]
pub struct Exec {
    /// Which network
    #[command(flatten)]
    pub which: NetworkArg,
    /// The host
    pub host: String,
    /// What to run there
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `slowpath lab status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// `slowpath lab down`.
#[derive(Debug, Args)]
pub struct Down {
    /// The network; needed if several are up
    pub name: Option<String>,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// What wakes `lab up`.
enum Wake {
    PendingQuestion(PendingQuestion),
    Stop,
}

impl From<PendingQuestion> for Wake {
    fn from(asked: PendingQuestion) -> Self {
        Wake::PendingQuestion(asked)
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Lab(error.to_string())
}

fn unreadable(file: &Path) -> impl Fn(slowpath_netsim::scenario::ScenarioError) -> Failure {
    move |error| Failure::Scenario {
        file: file.to_owned(),
        reason: error.to_string(),
    }
}

pub(super) fn up(args: &Up) -> Result<Outcome, Failure> {
    if args.detach {
        return detach(args);
    }
    let substrate = match args.network_only {
        true => Substrate::Network,
        false => Substrate::Emulator,
    };
    let file = &args.topology;
    let scenario = Scenario::load_for(file, substrate).map_err(unreadable(file))?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    let (wake, woken) = channel();
    stop_on_signals(wake.clone())?;
    control::listen(&name, wake).map_err(failed)?;
    let options = Options { bound: args.bound };
    let lab = Lab::up(&scenario, &options).map_err(failed)?;
    // Without a duration the file's is endless: then the sum is no moment.
    let own = (!args.network_only).then(|| Duration::from_nanos(scenario.duration.as_nanos()));
    let length = args.length.or(own);
    let end = length.and_then(|length| Instant::now().checked_add(length));

    let status = NetworkStatus::of(&name, &lab, &lab.report());
    say_up(args, &status)?;
    let asked = wait(&lab, &name, &woken, end);
    let hosts = NetworkStatus::of(&name, &lab, &Report::default());
    let report = lab.down();
    let status = NetworkStatus {
        complaint: report.complaint(),
        report: serde_json::to_value(&report).unwrap_or_default(),
        ..hosts
    };
    if let Some(asked) = asked {
        asked.answer(&status);
    } else if !args.announce {
        say_down(&status, args.json)?;
    }
    judge(&status)
}

fn stop_on_signals(wake: std::sync::mpsc::Sender<Wake>) -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            // Ends with the process.
            while signals.forever().next().is_some() && wake.send(Wake::Stop).is_ok() {}
        })?;
    Ok(())
}

/// Until the end, a signal, or someone who asks for it and waits for the answer.
fn wait(
    lab: &Lab,
    name: &str,
    woken: &std::sync::mpsc::Receiver<Wake>,
    end: Option<Instant>,
) -> Option<PendingQuestion> {
    loop {
        let event = match end {
            Some(end) => woken.recv_timeout(end.saturating_duration_since(Instant::now())),
            None => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Wake::PendingQuestion(asked)) if asked.question == Question::Down => {
                return Some(asked);
            }
            Ok(Wake::PendingQuestion(asked)) => {
                asked.answer(&NetworkStatus::of(name, lab, &lab.report()))
            }
            Ok(Wake::Stop) | Err(_) => return None,
        }
    }
}

/// Says that the network is up, to a person or to the process that waits for it.
fn say_up(args: &Up, status: &NetworkStatus) -> Result<(), Failure> {
    let mut out = stdout().lock();
    if args.announce {
        writeln!(out, "{}", serde_json::to_string(status).map_err(failed)?)?;
        out.flush()?;
        drop(out);
        // Whoever started this must not wait for its streams to be closed.
        let null = std::fs::File::options().write(true).open("/dev/null")?;
        for stream in 1..=2 {
            // SAFETY: dup2 takes two descriptors; both are open.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
        return Ok(());
    }
    if args.json {
        writeln!(out, "{}", json!({ "type": "lab_up", "network": status }))?;
    } else {
        status.write_hosts(&mut out)?;
        writeln!(
            out,
            "up until Ctrl-C or `slowpath lab down {}`",
            status.name
        )?;
    }
    Ok(out.flush()?)
}

fn say_down(status: &NetworkStatus, json: bool) -> Result<(), Failure> {
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{}", json!({ "type": "lab_down", "network": status }))?;
    } else {
        status.write_report(&mut out)?;
    }
    Ok(out.flush()?)
}

/// A run that cannot be trusted is a failure.
fn judge(status: &NetworkStatus) -> Result<Outcome, Failure> {
    match &status.complaint {
        None => Ok(Outcome::Done),
        Some(complaint) => Err(Failure::Lab(format!("{}: {complaint}", status.name))),
    }
}

/// Starts this command once more, in a session of its own, and waits until it says that the
/// network is up.
fn detach(args: &Up) -> Result<Outcome, Failure> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own);
    let given = std::env::args_os()
        .skip(1)
        .filter(|word| word != "--detach");
    command.args(given).arg("--announce");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: setsid is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.is_empty() {
        // It has said why.
        let code = child.wait()?.code().unwrap_or(1);
        return Ok(Outcome::Command(u8::try_from(code).unwrap_or(1)));
    }
    let status: NetworkStatus = serde_json::from_str(&line).map_err(failed)?;
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", json!({ "type": "lab_up", "network": status }))?;
    } else {
        status.write_hosts(&mut out)?;
        writeln!(out, "up until `slowpath lab down {}`", status.name)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// The network of that name, or the only one.
fn find(name: Option<&String>, question: Question) -> Result<NetworkStatus, Failure> {
    let name = match name {
        Some(name) => name.clone(),
        None => {
            let mut names = control::names()?;
            match (names.pop(), names.is_empty()) {
                (None, _) => {
                    let advice = "no network is up: `slowpath lab up SCENARIO.toml`";
                    return Err(Failure::NotFound(advice.to_owned()));
                }
                (Some(name), true) => name,
                (Some(name), false) => {
                    names.push(name);
                    let names = names.join(", ");
                    return Err(Failure::Usage(format!(
                        "several networks are up: name one of {names}"
                    )));
                }
            }
        }
    };
    control::ask(&name, question).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Failure::NotFound(format!(
            "no network called '{name}' is up: `slowpath lab status` lists those that are"
        )),
        ErrorKind::UnexpectedEof => Failure::Lab(format!(
            "the network '{name}' does not answer: it belongs to another user, or is just ending"
        )),
        _ => Failure::Lab(format!("the network '{name}' does not answer: {error}")),
    })
}

pub(super) fn exec(args: &Exec) -> Result<Outcome, Failure> {
    let status = find(args.which.name.as_ref(), Question::Status)?;
    let words = args.command.iter().map(|word| status.addressed(word));
    let words: Vec<String> = words
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::NotFound(error.to_string()))?;
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::Usage("no command after `--`".to_owned()));
    };
    if !status.hosts.iter().any(|host| host.name == args.host) {
        let names: Vec<&str> = status.hosts.iter().map(|host| host.name.as_str()).collect();
        return Err(Failure::NotFound(format!(
            "no host of '{}' is called '{}'; there are {}",
            status.name,
            args.host,
            names.join(", ")
        )));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: prctl is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            // If this process is killed, so is the command.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let spawned = status.enter(&args.host).and_then(|()| command.spawn());
    let mut child = spawned.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => Failure::Lab(format!(
            "entering a host of '{}' is not permitted: run as the user that brought it up",
            status.name
        )),
        _ => Failure::Spawn {
            program: program.clone(),
            error,
        },
    })?;
    // Ctrl-C is the command's, and its end is ours.
    // SAFETY: ignoring a signal takes no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    Ok(Outcome::Command(code(child.wait()?)))
}

/// As a shell says it.
fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

pub(super) fn status(args: &Status) -> Result<Outcome, Failure> {
    let mut out = stdout().lock();
    let names = control::names()?;
    for name in &names {
        // One that has just ended is not up.
        let Ok(status) = control::ask(name, Question::Status) else {
            continue;
        };
        if args.json {
            writeln!(
                out,
                "{}",
                json!({ "type": "lab_status", "network": status })
            )?;
        } else {
            status.write_hosts(&mut out)?;
            status.write_report(&mut out)?;
            if let Some(complaint) = &status.complaint {
                writeln!(out, "  {complaint}")?;
            }
        }
    }
    if names.is_empty() && !args.json {
        writeln!(out, "no network is up")?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

pub(super) fn down(args: &Down) -> Result<Outcome, Failure> {
    let status = find(args.name.as_ref(), Question::Down)?;
    say_down(&status, args.json)?;
    judge(&status)
}
