// SPDX-License-Identifier: Apache-2.0
//! docs/guide/install.md's table of capabilities, tried out: the command runs with exactly the
//! capabilities that the unit gives it, and with one fewer at a time.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A user that holds connections, and one that looks at them.
const HOLDER: u32 = 47_311;
const LOOKER: &str = "47312";
const HOLD: &str = "SLOWPATH_TEST_HOLD";

fn packaging(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    fs::read_to_string(root.join(name)).unwrap()
}

/// The capabilities after `key=` in the unit.
fn of_the_unit(key: &str) -> Vec<String> {
    let unit = packaging("systemd/slowpath-agent.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let names = line.unwrap().split_whitespace();
    names
        .map(|name| name.strip_prefix("CAP_").unwrap().to_owned())
        .collect()
}

#[test]
fn the_unit_the_manifest_and_the_table_agree() {
    let unit = of_the_unit("CapabilityBoundingSet");
    assert_eq!(of_the_unit("AmbientCapabilities"), unit);
    let manifest = packaging("kubernetes/daemonset.yaml");
    let added = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("add: ["))
        .unwrap();
    let added: Vec<&str> = added.trim_end_matches(']').split(", ").collect();
    assert_eq!(added, unit);
    let table = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/install.md"),
    )
    .unwrap();
    for name in unit {
        assert!(table.contains(&format!("| CAP_{name} |")), "{name}");
    }
}

/// A process of another user in a network namespace without a name, with a connection that is
/// older than whoever looks.
struct Holder {
    child: Child,
    port: u16,
    netns: u64,
}

impl Holder {
    fn start() -> Option<Holder> {
        let mut child = Command::new("unshare")
            .args(["--net", "--", "sh", "-c"])
            .args(["ip link set lo up && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "hold", "--nocapture"])
            .env(HOLD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let port = line.split_once("holding ")?.1.parse();
            Some(port.unwrap())
        });
        let netns = fs::metadata(format!("/proc/{}/ns/net", child.id())).ok();
        match (port, netns) {
            (Some(port), Some(netns)) => Some(Holder {
                child,
                port,
                netns: netns.ino(),
            }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                None
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What [`Holder`] runs; nothing otherwise.
#[test]
fn hold() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    // SAFETY: it takes a number; glibc changes all threads of this process.
    assert_eq!(unsafe { libc::setuid(HOLDER) }, 0);
    println!("holding {}", address.port());
    let mut byte = [0];
    // Until whoever started this ends it.
    loop {
        client.write_all(&byte).unwrap();
        server.read_exact(&mut byte).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the command sees of it.
#[derive(Debug, PartialEq, Eq)]
struct Observation {
    tier: String,
    features: BTreeSet<String>,
    /// The old connection in the other namespace.
    connection: bool,
    process: bool,
    /// What is known about its owner.
    owner: BTreeSet<String>,
}

/// The command where every user may run it.
struct Program {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn new() -> Program {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("slowpath");
        // By a process of its own: a child that another test forks meanwhile would hold the
        // file open for writing, and it could not be run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_slowpath"))
            .arg(&path)
            .status();
        assert!(copied.unwrap().success());
        Program {
            _directory: directory,
            path,
        }
    }

    /// Runs it as a user with these capabilities and no others, or as root with all.
    fn observe(
        &self,
        capabilities: Option<&[String]>,
        holder: &Holder,
    ) -> Result<Observation, String> {
        let mut command = Command::new("setpriv");
        if let Some(capabilities) = capabilities {
            let mut set = "-all".to_owned();
            for name in capabilities {
                set += &format!(",+{}", name.to_lowercase());
            }
            command.args(["--reuid", LOOKER, "--regid", LOOKER, "--clear-groups"]);
            for kind in ["inh-caps", "ambient-caps", "bounding-set"] {
                command.arg(format!("--{kind}={set}"));
            }
            command.arg("--no-new-privs");
        }
        command.arg(&self.path);
        command.args(["watch", "--json", "--for", "1s", "--interval", "100ms"]);
        let output = command.output().map_err(|e| format!("setpriv: {e}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let capabilities = &lines.last().unwrap()["capabilities"];
        let end = format!("127.0.0.1:{}", holder.port);
        let found: Vec<&Value> = lines
            .iter()
            .filter(|l| l["local"] == end.as_str() && l["netns"] == holder.netns)
            .collect();
        let pid = holder.child.id();
        Ok(Observation {
            tier: capabilities["tier"].as_str().unwrap().to_owned(),
            features: capabilities["features"]
                .as_array()
                .unwrap()
                .iter()
                // Conntrack asks CAP_NET_ADMIN, which the unit does not give.
                .filter(|f| f["active"] == true && f["name"] != "conntrack")
                .map(|f| f["name"].as_str().unwrap().to_owned())
                .collect(),
            connection: !found.is_empty(),
            process: found.iter().any(|l| l["process"]["pid"] == pid),
            owner: found
                .iter()
                .filter_map(|l| l["owner"].as_object())
                .flatten()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, _)| name.clone())
                .collect(),
        })
    }
}

/// A holder, a program and what root sees; or why not.
fn prepare(test: &str) -> Option<(Holder, Program, Observation)> {
    let Some(holder) = Holder::start() else {
        println!("SKIPPED {test}: cannot start a process in a fresh network namespace");
        return None;
    };
    let program = Program::new();
    match program.observe(None, &holder) {
        Ok(observed) if observed.tier == "bpf" => Some((holder, program, observed)),
        Ok(observed) => {
            println!("SKIPPED {test}: root gets the {} tier only", observed.tier);
            None
        }
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            None
        }
    }
}

#[test]
fn the_units_capabilities_show_all_that_root_sees() {
    let Some((holder, program, root)) = prepare("the_units_capabilities_show_all_that_root_sees")
    else {
        return;
    };
    assert!(root.connection && root.process, "{root:?}");
    let unit = of_the_unit("CapabilityBoundingSet");
    assert_eq!(program.observe(Some(&unit), &holder), Ok(root));
}

#[test]
fn without_one_of_them_something_is_missing() {
    let Some((holder, program, root)) = prepare("without_one_of_them_something_is_missing") else {
        return;
    };
    println!("root: {root:?}");
    let unit = of_the_unit("CapabilityBoundingSet");
    for left_out in &unit {
        let rest: Vec<String> = unit.iter().filter(|c| *c != left_out).cloned().collect();
        let observed = program.observe(Some(&rest), &holder).unwrap();
        println!("without {left_out}: {observed:?}");
        match left_out.as_str() {
            "BPF" | "PERFMON" => assert_eq!(observed.tier, "inet_diag"),
            "SYS_PTRACE" => {
                assert!(
                    root.owner.contains("executable") && !observed.owner.contains("executable")
                );
            }
            other => panic!("no test says what CAP_{other} is for"),
        }
        if left_out == "SYS_PTRACE" {
            assert!(observed.connection && observed.process && observed.features == root.features);
        }
    }
}

#[test]
fn without_any_the_own_namespace_is_observed() {
    let Some((holder, program, _)) = prepare("without_any_the_own_namespace_is_observed") else {
        return;
    };
    let observed = program.observe(Some(&[]), &holder).unwrap();
    assert_eq!(observed.tier, "inet_diag");
    assert!(observed.features.contains("snapshot") && !observed.connection);
}
