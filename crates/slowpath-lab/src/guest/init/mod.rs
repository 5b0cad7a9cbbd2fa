// SPDX-License-Identifier: Apache-2.0
//! The guest's first process.
//!
//! What enters: its [`Order`], a file in the guest. What leaves: the messages of
//! [`super::wire`] over a virtio serial port. It mounts what programs expect, brings `lo`
//! up, loads modules, runs one command, collects its results. The kernel calls the same
//! program again as `/sbin/modprobe` when something wants a module that is not loaded yet.
//!
//! What is promised: whatever goes wrong is reported outside, over the port or, before there is
//! one, on the console; when the command ends, so does all that it left running.

mod command;
mod loading;
mod mounts;
mod outbox;

use super::wire::{Done, FromGuest, Hello, ORDER, Order, PORT, RESULTS, VERSION};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The name by which a program of several roles knows that this is the one.
pub const NAME: &str = "slowpath-guest-init";
/// Where the kernel looks for help with modules (`CONFIG_MODPROBE_PATH`).
pub const MODPROBE: &str = "/sbin/modprobe";

/// Why the first process cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {object}: {source}")]
pub struct InitError {
    operation: &'static str,
    object: String,
    source: io::Error,
}

impl InitError {
    fn of<E: Into<io::Error>>(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(E) -> InitError {
        let object = object.into();
        move |source| InitError {
            operation,
            object,
            source: source.into(),
        }
    }
}

/// Plays the role that the program was called by: `None` if it was none of these. A program
/// that can be taken into a guest as its first process asks this before anything else.
pub fn role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let called = arguments.next()?;
    let name = Path::new(&called).file_name()?;
    if name == NAME || (called == "/init" && std::process::id() == 1) {
        return Some(first_process());
    }
    if Path::new(&called) == Path::new(MODPROBE) && Path::new(ORDER).exists() {
        let wanted = arguments.next_back()?;
        return Some(match loading::load_wanted(&wanted.to_string_lossy()) {
            Ok(true) => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        });
    }
    None
}

fn first_process() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("{NAME}: the first process of `slowpath lab guest`; of no use elsewhere");
        return ExitCode::FAILURE;
    }
    let error = match run() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    // The kernel panics when this process ends, and the console goes into the message.
    println!("{NAME}: {error}");
    ExitCode::FAILURE
}

enum Never {}

fn run() -> Result<Never, InitError> {
    mounts::mount_all()?;
    let order = read_order()?;
    let mut port = open_port()?;
    match serve(&order, &mut port) {
        Ok(done) => say(&mut port, &FromGuest::Done(done))?,
        Err(error) => say(&mut port, &FromGuest::Trouble(error.to_string()))?,
    }
    // The machine is switched off from outside.
    loop {
        sleep(Duration::from_secs(3600));
    }
}

fn serve(order: &Order, port: &mut File) -> Result<Done, InitError> {
    mounts::bring_up_loopback()?;
    for name in &order.load {
        loading::load(order, name)?;
    }
    say(port, &FromGuest::Hello(hello()))?;
    let status = command::run(order, port)?;
    let left_out = match order.results {
        true => outbox::send(Path::new(RESULTS), port)?,
        false => 0,
    };
    Ok(Done { status, left_out })
}

fn hello() -> Hello {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split_whitespace().next();
    let seconds: f64 = seconds.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    Hello {
        version: VERSION,
        release: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        uptime_ms: (seconds * 1e3) as u64,
    }
}

fn read_order() -> Result<Order, InitError> {
    let bytes = fs::read(ORDER).map_err(InitError::of("read", ORDER))?;
    serde_json::from_slice(&bytes).map_err(InitError::of("understand", ORDER))
}

/// The port's device has a name of its own; `/sys` says which it is. It appears a little
/// after boot, when the other side has answered.
fn open_port() -> Result<File, InitError> {
    const PATIENCE: Duration = Duration::from_secs(20);
    const PORTS: &str = "/sys/class/virtio-ports";
    let limit = Instant::now() + PATIENCE;
    loop {
        let ports = fs::read_dir(PORTS).into_iter().flatten().flatten();
        for port in ports {
            let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
            if name.trim() != PORT {
                continue;
            }
            let device = Path::new("/dev").join(port.file_name());
            let opened = OpenOptions::new().read(true).write(true).open(&device);
            return opened.map_err(InitError::of("open", device.to_string_lossy()));
        }
        if Instant::now() > limit {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            return Err(InitError::of("find", format!("port {PORT} in {PORTS}"))(
                missing,
            ));
        }
        sleep(Duration::from_millis(2));
    }
}

fn say(port: &mut File, message: &FromGuest) -> Result<(), InitError> {
    port.write_all(&message.encode())
        .map_err(InitError::of("write to", "the port"))
}
