// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab guest`: a command under a guest kernel.

use crate::failure::{Failure, Outcome};
use crate::message;
use crate::options::duration;
use crate::results;
use clap::Args;
use serde_json::json;
use slowpath_lab::guest::{self, Finished, GuestError, Kernel, MEMORY, Status, Stream};
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `slowpath lab guest`.
#[derive(Debug, Args)]
#[command(after_help = "\
The guest has slowpath itself, COMMAND's program, and what the options name; one processor,
no network and no disk. What COMMAND writes to /out comes out with --out. Its exit status is
this command's.

Examples:
  slowpath lab guest --tool ip,tc -- sh -c 'ip netns add a; tc qdisc add dev lo root netem delay 20ms'
  slowpath lab guest --with workload --out results -- slowpath watch --json -- ./workload
  slowpath lab guest --module tcp_htcp,sch_cake --timeout 1m -- ./my-test
  slowpath lab guest --shell
docs/reference/lab-guest.md says what works there, and what it costs.")]
pub struct Guest {
    /// A file or folder to take along; to /usr/local/bin if it is a program, else to /root
    #[arg(long, value_name = "FILE[:PATH]")]
    pub with: Vec<String>,
    /// Programs of this machine to take along with their libraries
    #[arg(
        long,
        visible_alias = "with-tool",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    pub tool: Vec<String>,
    /// Kernel modules to load first; others load when they are used
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub module: Vec<String>,
    /// A variable of COMMAND's environment
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Write what COMMAND leaves in /out into this directory, in place of an earlier run's
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = MEMORY)]
    pub memory: u32,
    /// Stop COMMAND after this time; what it wrote to /out until then still comes out
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Run COMMAND on a terminal; without COMMAND, a shell
    #[arg(long, conflicts_with = "json")]
    pub shell: bool,
    /// Use this kernel image instead
    #[arg(long, value_name = "IMAGE")]
    pub kernel: Option<PathBuf>,
    /// The directory of that kernel's modules, with modules.dep
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Append to the kernel's command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// Print how it went as JSON; COMMAND's output then goes to standard error
    #[arg(long)]
    pub json: bool,
    /// What to run there
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "shell")]
    pub command: Vec<String>,
}

/// Where slowpath stands in the guest.
const OURSELVES: &str = "/usr/local/bin/slowpath";

pub(super) fn run(args: &Guest) -> Result<Outcome, Failure> {
    let json = args.json;
    let mut pass_on = |stream, bytes: &[u8]| -> io::Result<()> {
        if json || stream == Stream::Stderr {
            stderr().write_all(bytes)
        } else {
            let mut out = stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
    };
    let folder = results::open(args.out.as_ref(), results::GUEST)?;
    let mut guest = machine(args)?;
    if let Some(folder) = &folder {
        guest = guest.out(folder.draft());
    }
    let finished = guest.run_with(&mut pass_on).map_err(failure)?;
    results::commit(folder)?;
    if json {
        writeln!(stdout(), "{}", summary(&finished))?;
    }
    let left_out = finished.results.left_out;
    if left_out > 0 {
        message::say(format_args!(
            "{left_out} things in /out are no files and were left there"
        ));
    }
    Ok(Outcome::Command(finished.status.code()))
}

fn machine(args: &Guest) -> Result<guest::Guest, Failure> {
    let command = match args.command.is_empty() {
        true => vec!["sh".to_owned()],
        false => args.command.clone(),
    };
    let ourselves = std::env::current_exe()?;
    let mut guest = guest::Guest::new(command)
        .program(ourselves, OURSELVES)
        .tools(&args.tool)
        .modules(&args.module)
        .memory(args.memory);
    for with in &args.with {
        let (from, to) = taken(with)?;
        guest = guest.file(from, to);
    }
    for variable in &args.env {
        let (name, value) = variable.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("--env {variable}: write a variable as NAME=VALUE"))
        })?;
        guest = guest.env(name, value);
    }
    if let Some(image) = &args.kernel {
        guest = guest.kernel(Kernel {
            image: image.clone(),
            modules: args.modules.clone(),
        });
    }
    if let Some(limit) = args.timeout {
        guest = guest.timeout(limit);
    }
    if let Some(words) = &args.append {
        guest = guest.append(words);
    }
    if args.shell {
        guest = guest.terminal();
    }
    Ok(guest)
}

/// `FILE[:PATH]`: the file, and where it goes.
fn taken(argument: &str) -> Result<(PathBuf, String), Failure> {
    if let Some((from, to)) = argument.split_once(':') {
        return Ok((from.into(), to.to_owned()));
    }
    let from = Path::new(argument);
    let name = from.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Failure::Usage(format!(
            "--with {argument}: say where it goes, as FILE:PATH"
        ))
    })?;
    let folder = match is_program(from) {
        true => "/usr/local/bin",
        false => "/root",
    };
    Ok((from.to_owned(), format!("{folder}/{name}")))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let about = std::fs::metadata(path);
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

fn failure(error: GuestError) -> Failure {
    match error {
        GuestError::Output(error) => Failure::Output(error),
        error if error.is_usage() => Failure::Usage(error.to_string()),
        error => Failure::Lab(error.to_string()),
    }
}

fn summary(finished: &Finished) -> serde_json::Value {
    let milliseconds = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
    let (exited, signal) = match finished.status {
        Status::Exited(code) => (Some(code), None),
        Status::Signalled(signal) => (None, Some(signal)),
    };
    json!({
        "type": "guest",
        "kernel": finished.release,
        "exit_code": exited,
        "signal": signal,
        "prepared_ms": milliseconds(finished.prepared),
        "boot_ms": milliseconds(finished.boot),
        "ran_ms": milliseconds(finished.ran),
        "image_bytes": finished.image_bytes,
        "results": {
            "files": finished.results.files,
            "bytes": finished.results.bytes,
            "left_out": finished.results.left_out,
        },
    })
}
