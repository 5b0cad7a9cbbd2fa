// SPDX-License-Identifier: Apache-2.0
//! `slowpath server` as a process: made, started, ended, measured.

use super::monotonic;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server's command and its directory.
#[derive(Clone, Debug)]
pub struct Installation {
    program: PathBuf,
    /// Its state directory.
    pub directory: PathBuf,
    /// Where agents connect to.
    pub address: SocketAddr,
}

/// A server that runs; it ends with this value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// When it was started, microseconds of the monotonic clock.
    pub started: u64,
    said: PathBuf,
}

/// A port of the loopback network that is free now, below those that the kernel gives to connections.
///
/// # Errors
/// None is.
pub fn free_port() -> io::Result<u16> {
    // Other benches on this machine look for one as well.
    let first = std::process::id() as u16 % 10_000;
    let mut ports = (0..10_000).map(|step| 20_000 + (first + step) % 10_000);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).ok_or(io::ErrorKind::AddrInUse.into())
}

impl Installation {
    /// Makes a server in a directory, for an address by which agents reach it.
    ///
    /// # Errors
    /// `slowpath server init` fails.
    pub fn make(
        program: &Path,
        directory: &Path,
        address: SocketAddr,
    ) -> Result<Self, Box<dyn Error>> {
        let installation = Installation {
            program: program.to_owned(),
            directory: directory.to_owned(),
            address,
        };
        let name = address.ip().to_string();
        installation.command(&["init", "--name", &name])?;
        Ok(installation)
    }

    /// What a command to this server prints.
    ///
    /// # Errors
    /// It fails.
    pub fn command(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let output = Command::new(&self.program)
            .arg("server")
            .args(arguments)
            .arg("--dir")
            .arg(&self.directory)
            .output()
            .map_err(|error| format!("running {}: {error}", self.program.display()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("slowpath server {}: {}", arguments[0], text.trim()).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self) -> io::Result<Server> {
        let said = self.directory.with_extension("err");
        let child = Command::new(&self.program)
            .args(["server", "run", "--metrics", "127.0.0.1:0", "--listen"])
            .arg(self.address.to_string())
            .arg("--dir")
            .arg(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&said)?)
            .spawn()?;
        Ok(Server {
            child,
            started: monotonic(),
            said,
        })
    }

    /// Bytes of its tables, and of the intake that is not in them.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn bytes(&self) -> io::Result<[u64; 2]> {
        let is_intake = |path: &Path| path.extension().is_some_and(|it| it == "intake");
        Ok([
            bytes_below(&self.directory.join("tables"), &|_| true)?,
            bytes_below(&self.directory.join("intake"), &is_intake)?,
        ])
    }
}

fn bytes_below(directory: &Path, counts: &dyn Fn(&Path) -> bool) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // A file that was there a moment ago may have been published.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path(), counts)?,
            false if counts(&entry.path()) => metadata.len(),
            false => 0,
        };
    }
    Ok(bytes)
}

impl Server {
    /// Processor time of this process so far, microseconds.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu(&self) -> Result<u64, Box<dyn Error>> {
        cpu_of(self.child.id()).ok_or_else(|| self.ended())
    }

    /// The most that was resident, MiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn peak(&self) -> Result<f64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        let kib = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
        Ok(kib.ok_or_else(|| self.ended())? / 1_024.0)
    }

    fn ended(&self) -> Box<dyn Error> {
        format!("the server has ended: {}", self.said()).into()
    }

    /// What it, and those that ran in its directory before, wrote for the operator.
    pub fn said(&self) -> String {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        said.trim().to_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes plain numbers; the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Ends it by a signal and waits.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn end(&mut self, signal: libc::c_int) -> io::Result<()> {
        self.signal(signal);
        self.child.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of a process so far, user and system, microseconds (proc_pid_stat(5)).
pub(super) fn cpu_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold blanks: the state is field 3, utime 14, stime 15.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) * 1_000_000 / rustix::param::clock_ticks_per_second())
}
