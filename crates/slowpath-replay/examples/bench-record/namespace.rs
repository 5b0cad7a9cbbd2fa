// SPDX-License-Identifier: Apache-2.0
//! Where the recorded connections are.

use std::error::Error;
use std::process::Command;

/// A network namespace of its own; it goes with the value.
pub struct Namespace(String);

impl Namespace {
    pub fn new(settings: &[&str]) -> Result<Self, Box<dyn Error>> {
        let name = format!("slowpath-bench-record-{}", std::process::id());
        done(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace(name);
        // What the machine has may pace, which costs more than a recorder.
        let fixed = [
            "ip link set lo up",
            "sysctl -qw net.ipv4.tcp_congestion_control=reno",
        ];
        for setting in fixed.iter().chain(settings) {
            let mut words = setting.split(' ');
            let program = words.next().unwrap_or_default();
            done(namespace.command(program).args(words))?;
        }
        Ok(namespace)
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = done(Command::new("ip").args(["netns", "del", &self.0]));
    }
}

fn done(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let reported = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", reported.trim()).into())
}
