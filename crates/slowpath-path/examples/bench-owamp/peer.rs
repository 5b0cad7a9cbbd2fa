// SPDX-License-Identifier: Apache-2.0
//! owping's send error, where its programs are: its packets as captured against the schedule in its own files.

use crate::captures::{Capture, Packet};
use crate::hosts::Hosts;
use slowpath_path::file::SessionFile;
use slowpath_path::schedule::{Schedule, Slots};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// How long after its time each packet left, µs; `None` without `OWAMP_BIN`, or where its programs fail.
pub fn send_errors(hosts: &Hosts, sessions: usize, rate: u32, seconds: u32) -> Option<Vec<f64>> {
    let folder = std::env::var_os("OWAMP_BIN")?;
    let folder = Path::new(&folder);
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut daemon = start_daemon(hosts, folder, scratch.path())?;
    let capture = Capture::start(hosts, 0);
    let schedule = format!("{}f", 1.0 / f64::from(rate));
    let count = (rate * seconds).to_string();
    let clients: Vec<Child> = (0..sessions)
        .filter_map(|number| {
            let mut command = hosts.command(0, folder.join("owping").to_str()?);
            command
                .args(["-c", &count, "-i", &schedule, "-L", "2", "-Q", "-T"])
                .arg(scratch.path().join(format!("{number}.owp")))
                .arg(Hosts::B);
            command
                .stdout(Stdio::null())
                .stderr(Stdio::inherit())
                .spawn()
                .ok()
        })
        .collect();
    for mut client in clients {
        let _ = client.wait();
    }
    let captured = capture.finish();
    let _ = daemon.kill();
    let _ = daemon.wait();
    let mut errors = Vec::new();
    for number in 0..sessions {
        let bytes = std::fs::read(scratch.path().join(format!("{number}.owp"))).ok()?;
        let file = SessionFile::read(&bytes).ok()?;
        let slots = Slots::new(file.request.slots().to_vec())?;
        let schedule = Schedule::new(slots, file.request.session);
        for (sequence, offset) in (0..rate * seconds).zip(schedule) {
            let ports = (file.request.sender.port(), file.request.receiver.port());
            if let Some(time) = captured.get(&Packet { ports, sequence }) {
                let due = file.request.start.after(offset).unix_nanos();
                errors.push((time - due) as f64 / 1e3);
            }
        }
    }
    Some(errors)
}

fn start_daemon(hosts: &Hosts, folder: &Path, scratch: &Path) -> Option<Child> {
    for (file, text) in [
        ("owamp-server.conf", format!("testports 0\ndatadir {0}\nvardir {0}\n", scratch.display())),
        ("owamp-server.limits", "limit root with delete_on_fetch=on, disk=0, bandwidth=0, allow_open_mode=on\nassign default root\n".to_owned()),
    ] {
        std::fs::write(scratch.join(file), text).ok()?;
    }
    let mut command = hosts.command(1, folder.join("owampd").to_str()?);
    command
        .args(["-Z", "-f", "-c"])
        .arg(scratch)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let daemon = command.spawn().ok()?;
    thread::sleep(Duration::from_secs(1));
    Some(daemon)
}
