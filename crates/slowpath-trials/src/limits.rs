// SPDX-License-Identifier: Apache-2.0
//! An agent at its limits: a full disk, files that may not grow, few descriptors, and clients of
//! `/metrics` that mean it no good.

use crate::Tally;
use crate::agent::Agent;
use crate::kills::unread;
use crate::traffic::Traffic;
use slowpath_switch::Random;
use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Connections with a problem in each interval.
const SLOW: usize = 60;
/// Hostile clients one after the other.
const CLIENTS: u64 = 300;

pub(crate) fn run(program: &Path, seed: u64, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    {
        let _traffic = Traffic::start(SLOW, 50)?;
        full_disk(program, tally)?;
        // 256 blocks of 512 bytes, which a spool passes within a second.
        let scratch = tempfile::tempdir()?;
        written_out(program, scratch.path(), "ulimit -f 256", tally)?;
    }
    for descriptors in [6, 10, 16, 24, 40] {
        few_descriptors(program, descriptors, tally)?;
    }
    hostile_clients(program, seed, tally)
}

/// A file system that is deleted with this value.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this user may mount nothing.
    pub(crate) fn mount(size: &str) -> io::Result<Option<SmallDisk>> {
        let folder = tempfile::tempdir()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output()?;
        Ok(mounted.status.success().then_some(SmallDisk(folder)))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Gives it another size.
    pub(crate) fn resize(&self, size: &str) -> io::Result<()> {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]);
        match mount.arg(self.0.path()).status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("a small disk cannot be resized")),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn full_disk(program: &Path, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    match SmallDisk::mount("384k")? {
        Some(disk) => written_out(program, disk.path(), "", tally),
        None => {
            tally.skip("a full disk: this user may mount nothing".to_owned());
            Ok(())
        }
    }
}

/// An agent whose log cannot grow: it goes on, counts what is lost, says so at its end, and a report
/// says that something is missing.
fn written_out(
    program: &Path,
    place: &Path,
    limit: &str,
    tally: &mut Tally,
) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let log = place.join("log");
    let text = log.to_str().ok_or("a path without a name")?;
    let what = if limit.is_empty() {
        "a full disk"
    } else {
        limit
    };
    let settings = ["--interval", "20ms", "--tier", "inet-diag", "--log", text];
    let mut agent = Agent::start(program, &settings, scratch.path(), limit)?;
    let is_refused = |agent: &Agent| {
        let said = agent.said();
        said.contains("File too large") || said.contains("No space left")
    };
    if !agent.wait_until(is_refused)? {
        tally.unsaid_gaps += 1;
        tally.find(format!("{what}: not said: {}", agent.said()));
    }
    sleep(Duration::from_secs(1));
    let ended = agent.end(tally)?;
    let code = ended.status.and_then(|status| status.code());
    if code != Some(1) || !ended.err.contains("lost") && !ended.err.contains("incomplete") {
        tally.unsaid_gaps += 1;
        tally.find(format!("{what}: ended with {code:?}: {}", ended.err));
    }
    if unread(program, &log, scratch.path(), tally)?.is_empty() {
        tally.unsaid_gaps += 1;
        tally.find(format!("{what}: a report says nothing; {}", ended.err));
    }
    Ok(())
}

/// It works, or ends with the reason.
fn few_descriptors(
    program: &Path,
    descriptors: u32,
    tally: &mut Tally,
) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let limit = format!("ulimit -n {descriptors}");
    let log = scratch.path().join("log");
    let text = log.to_str().ok_or("a path without a name")?;
    let settings = ["--tier", "inet-diag", "--interval", "50ms", "--log", text];
    let mut agent = Agent::start(program, &settings, scratch.path(), &limit)?;
    agent.wait_until(|agent| !agent.said().is_empty())?;
    sleep(Duration::from_millis(500));
    let ended = agent.end(tally)?;
    if !ended.succeeded() && ended.err.trim().is_empty() {
        tally.unsaid_gaps += 1;
        tally.find(format!("{limit}: it ends without a word"));
    }
    Ok(())
}

/// Whatever clients do, the next one gets its answer.
fn hostile_clients(program: &Path, seed: u64, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let settings = [
        "--tier",
        "inet-diag",
        "--log",
        "none",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut agent = Agent::start(program, &settings, scratch.path(), "")?;
    let address = |said: &str| -> Option<SocketAddr> {
        let (_, rest) = said.split_once("serves http://")?;
        rest.split_once("/metrics")?.0.parse().ok()
    };
    if !agent.wait_until(|agent| address(&agent.said()).is_some())? {
        tally.find(format!("/metrics is not served: {}", agent.said()));
        return Ok(());
    }
    let address = address(&agent.said()).ok_or("an address")?;
    let mut random = Random::stream(seed, 0xc11e);
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        // A client that is refused or dropped has got its answer.
        if let Ok(stream) = hostile(address, &mut random) {
            held.push(stream);
        }
        tally.inputs += 1;
        if held.len() > 100 {
            held.remove(0);
        }
    }
    // Among a hundred that never end.
    let mut tries = (0..10).map(|_| scrape(address));
    if !tries.any(|answer| answer.is_ok_and(|text| text.contains("slowpath_build_info"))) {
        tally.hangs += 1;
        tally.find(format!("/metrics does not answer: {}", agent.said()));
    }
    drop(held);
    let ended = agent.end(tally)?;
    if !ended.succeeded() {
        tally.find(format!(
            "an agent after hostile clients fails: {}",
            ended.err
        ));
    }
    Ok(())
}

fn hostile(address: SocketAddr, random: &mut Random) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let bytes: Vec<u8> = (0..64).map(|_| random.next_u64() as u8).collect();
    match random.next_u64() % 8 {
        // Nothing, for good.
        0 => {}
        1 => stream.write_all(&bytes)?,
        2 => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")?,
        3 => {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ")?;
            stream.write_all(&vec![b'a'; 1 << 20])?;
        }
        4 => {
            // Asks again and again and reads nothing.
            for _ in 0..200 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
            }
        }
        5 => {
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            stream.shutdown(Shutdown::Write)?;
        }
        6 => {
            stream.write_all(b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")?;
            stream.write_all(&bytes)?;
        }
        _ => {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
            stream.shutdown(Shutdown::Read)?;
        }
    }
    Ok(stream)
}

fn scrape(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A control group with this limit of memory, for one process; `None` where none can be made.
pub(crate) struct MemoryLimit(std::path::PathBuf);

impl MemoryLimit {
    pub(crate) fn new(bytes: u64) -> Option<MemoryLimit> {
        let name = format!("slowpath-trials-{}", std::process::id());
        let group = Path::new("/sys/fs/cgroup").join(name);
        fs::create_dir(&group).ok()?;
        let limit = MemoryLimit(group);
        fs::write(limit.0.join("memory.max"), bytes.to_string()).ok()?;
        // Past the limit means killed, and not swapped.
        let _ = fs::write(limit.0.join("memory.swap.max"), "0");
        Some(limit)
    }

    /// Moves a process into it.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
