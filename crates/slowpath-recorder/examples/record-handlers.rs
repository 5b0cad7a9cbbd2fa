// SPDX-License-Identifier: Apache-2.0
//! The handlers' recorder by itself: raw events of connections to a port into a file while a command runs, for the example replay-stock of slowpath-lab.
//! `slowpath record` makes recordings of them.
//!
//! ```text
//! record-handlers PORT FILE COMMAND...
//! ```

use slowpath_recorder::handlers::Recorder;
use std::error::Error;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

fn record(port: u16, file: &str, command: &[String]) -> Result<i32, Box<dyn Error>> {
    let mut recorder = Recorder::open(&[port])?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(program).args(arguments).spawn()?;
    let status = loop {
        out.write_all(&recorder.take()?)?;
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // What the kernel still has to say of closed connections.
    std::thread::sleep(Duration::from_millis(500));
    out.write_all(&recorder.take()?)?;
    out.flush()?;
    let losses = recorder.losses();
    eprintln!(
        "events lost: {}, programs left out: {}, made good: {}",
        losses.ring,
        losses.missed,
        recorder.healed()
    );
    Ok(status.code().unwrap_or(1))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, file, command @ ..] = arguments.as_slice() else {
        return Err("see the file's first lines".into());
    };
    std::process::exit(record(port.parse()?, file, command)?);
}
