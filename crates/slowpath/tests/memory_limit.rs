// SPDX-License-Identifier: Apache-2.0
//! The agent's documented bound of memory, as a limit that a cgroup enforces.

use slowpath_store::{LogReader, TimeRange};
use socket2::SockRef;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// docs/guide/install.md, "Memory": the bound, in these words.
const DOCUMENTED: &str = include_str!("../../../docs/guide/install.md");
const BASE_MIB: u64 = 160;
const KIB_A_CONNECTION: f64 = 3.5;

/// Connections that stay; both ends are observed.
const HELD: usize = 3_000;

/// Connections that come and go: what is logged of both ends is more than a spool takes (16 MiB).
const CHURNED: u32 = 30_000;

/// The most of those in a hundredth of a second: the kernel's ring holds 23,000 closes
/// between two polls.
const BURST: u32 = 50;

/// Waited for only before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cgroup with a limit of memory, which goes with this value.
struct Group {
    path: PathBuf,
    /// The file that counts kills for want of memory.
    events: &'static str,
    peak: &'static str,
}

impl Group {
    /// In the hierarchy of either version that has the controller; else why not.
    fn limited(bytes: u64) -> io::Result<Group> {
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
        let unified = controllers.is_ok_and(|c| c.split_whitespace().any(|c| c == "memory"));
        let [root, limit, events, peak] = match unified {
            true => ["", "memory.max", "memory.events", "memory.peak"],
            false => [
                "memory",
                "memory.limit_in_bytes",
                "memory.oom_control",
                "memory.max_usage_in_bytes",
            ],
        };
        let root = Path::new("/sys/fs/cgroup").join(root);
        if !unified {
            // Where no hierarchy is, a folder would be made all the same.
            fs::metadata(root.join(limit))?;
        }
        let path = root.join(format!("sp-memory-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path, events, peak };
        let mut limit = File::options().write(true).open(group.path.join(limit))?;
        limit.write_all(bytes.to_string().as_bytes())?;
        Ok(group)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap_or_default()
    }

    /// How many processes were killed because the limit was reached.
    fn killed(&self) -> u64 {
        let events = self.read(self.events);
        let count = |line: &str| line.strip_prefix("oom_kill ")?.parse().ok();
        events.lines().find_map(count).unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// An agent in a cgroup.
struct Agent {
    child: Child,
    manager: UnixDatagram,
    directory: PathBuf,
}

impl Agent {
    fn start(directory: &Path, group: &Group) -> Agent {
        let manager = UnixDatagram::bind(directory.join("notify")).unwrap();
        let child = Command::new("sh")
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(group.path.join("cgroup.procs"))
            .arg(env!("CARGO_BIN_EXE_slowpath"))
            .args(["agent", "--interval", "100ms", "--log"])
            .arg(directory.join("log"))
            .env("NOTIFY_SOCKET", directory.join("notify"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Agent {
            child,
            manager,
            directory: directory.to_owned(),
        }
    }

    /// Whether it has polled once; `false`: it ended.
    fn is_ready(&mut self) -> bool {
        let wait = Some(Duration::from_millis(200));
        self.manager.set_read_timeout(wait).unwrap();
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 4096];
        while Instant::now() < end {
            let ended = self.child.try_wait().unwrap().is_some();
            while let Ok(length) = self.manager.recv(&mut buffer) {
                if buffer[..length].starts_with(b"READY=1") {
                    return true;
                }
            }
            if ended {
                return false;
            }
        }
        panic!("not ready in {PATIENCE:?}: {}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(self.directory.join("stderr")).unwrap()
    }

    /// It polls once more, converts its log and ends.
    fn stop(&mut self) -> ExitStatus {
        // SAFETY: kill takes plain numbers; the child has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.child.wait().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Raises the soft limit on descriptors as far as it goes; whether that is enough.
fn may_have_descriptors(count: usize) -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes and reads one `rlimit`.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_max >= count as u64
}

/// A connection over which a message went.
fn connection(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(&[1; 100])?;
    server.read_exact(&mut [0; 100])?;
    Ok((client, server))
}

/// Opens and closes connections, unless the agent has ended.
fn churn(listener: &TcpListener, agent: &mut Agent) -> io::Result<()> {
    for number in 1..=CHURNED {
        let (client, server) = connection(listener)?;
        // A RST leaves no port in TIME_WAIT.
        SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
        drop((client, server));
        if number % BURST == 0 {
            std::thread::sleep(Duration::from_millis(10));
            if agent.child.try_wait()?.is_some() {
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn the_agent_stays_within_its_documented_memory() {
    const TEST: &str = "the_agent_stays_within_its_documented_memory";
    let bound = format!("at most {BASE_MIB} MiB, and {KIB_A_CONNECTION} KiB a connection");
    assert!(DOCUMENTED.contains(&bound), "{bound}");
    let bytes = (BASE_MIB << 20) + (2 * HELD) as u64 * (KIB_A_CONNECTION * 1024.0) as u64;
    let group = match Group::limited(bytes) {
        Ok(group) => group,
        Err(error) => {
            println!("SKIPPED {TEST}: no cgroup with a limit of memory: {error}");
            return;
        }
    };
    if !may_have_descriptors(2 * HELD + 100) {
        println!("SKIPPED {TEST}: too few descriptors (RLIMIT_NOFILE)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(directory.path(), &group);
    if !agent.is_ready() {
        let text = agent.said();
        assert!(
            text.contains("cannot start observing connections"),
            "{text}"
        );
        println!("SKIPPED {TEST}: {text}");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let held: Vec<_> = (0..HELD).map(|_| connection(&listener).unwrap()).collect();
    churn(&listener, &mut agent).unwrap();
    let status = agent.stop();
    drop(held);
    let (text, peak) = (agent.said(), group.read(group.peak));
    println!("limit {bytes} bytes, peak with page cache {}", peak.trim());
    assert_eq!(group.killed(), 0, "limit {bytes}: {text}");
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(text.contains("the log is closed"), "{text}");

    // It did observe them.
    let log = LogReader::open(&directory.path().join("log")).unwrap();
    let logged = log.connections(TimeRange::ALL).unwrap().rows;
    let port = listener.local_addr().unwrap().port();
    let here = |port_of: u16| port_of == port;
    let mine = logged
        .iter()
        .filter(|c| here(c.tuple.local.port()) || here(c.tuple.remote.port()));
    let mine = mine.count();
    assert!(mine > HELD + CHURNED as usize, "{mine} of two ends each");
}
