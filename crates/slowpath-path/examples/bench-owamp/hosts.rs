// SPDX-License-Identifier: Apache-2.0
//! Two network namespaces and a veth pair between them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// The namespaces; gone when this is dropped.
pub struct Hosts {
    names: [String; 2],
}

impl Hosts {
    pub const A: &'static str = "10.98.0.1";
    pub const B: &'static str = "10.98.0.2";

    pub fn new() -> Result<Self, String> {
        let stem = format!("sp-{}-0", std::process::id());
        let hosts = Hosts {
            names: [format!("{stem}-a"), format!("{stem}-b")],
        };
        let [a, b] = &hosts.names;
        for name in &hosts.names {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        ip(&[
            "-n", a, "link", "add", "sp0", "type", "veth", "peer", "name", "sp0", "netns", b,
        ])?;
        for (name, address) in [(a, Self::A), (b, Self::B)] {
            ip(&[
                "-n",
                name,
                "addr",
                "add",
                &format!("{address}/24"),
                "dev",
                "sp0",
            ])?;
            ip(&["-n", name, "link", "set", "sp0", "up"])?;
        }
        Ok(hosts)
    }

    pub fn sides(&self) -> [usize; 2] {
        [0, 1]
    }

    fn file(&self, side: usize) -> File {
        File::open(format!("/run/netns/{}", self.names[side])).expect("the namespace is there")
    }

    /// Runs work on a thread inside; threads that it starts stay there.
    pub fn inside<T: Send>(&self, side: usize, work: impl FnOnce() -> T + Send) -> T {
        let file = self.file(side);
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter(&file).expect("the namespace can be entered");
                work()
            });
            thread.join().expect("no panic")
        })
    }

    /// A command that runs inside.
    pub fn command(&self, side: usize, program: &str) -> Command {
        let file = self.file(side);
        let mut command = Command::new(program);
        // SAFETY: setns is async-signal-safe, and the closure owns the descriptor.
        unsafe { command.pre_exec(move || enter(&file)) };
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn enter(file: &File) -> std::io::Result<()> {
    // SAFETY: setns takes two integers.
    match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output =
        output.map_err(|error| format!("cannot run ip (Debian package iproute2): {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {arguments:?} (needs root): {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
