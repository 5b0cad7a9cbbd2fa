// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab up`, `exec`, `status`, `down`: what users see, and that nothing stays.

use serde_json::Value;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TWO_HOSTS: &str = r#"
[topology]
kind = "dumbbell"
left = 1
right = 1
links = { rate = "100 Mbit/s", delay = "1 ms" }
[switch]
buffer = "100 packets"
"#;

fn slowpath(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scenario(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new()
        .suffix(".toml")
        .tempfile()
        .expect("a file");
    file.write_all(text.as_bytes()).expect("writes");
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("plain")
}

/// A name that no other run has.
fn name(test: &str) -> String {
    format!("test-{test}-{}", std::process::id())
}

/// Brings a network up in the background; `None`, with the reason, where that is impossible.
fn up(test: &str, name: &str, file: &tempfile::NamedTempFile, more: &[&str]) -> Option<Value> {
    let mut arguments = vec![
        "lab",
        "up",
        path(file),
        "--name",
        name,
        "--detach",
        "--json",
    ];
    arguments.extend_from_slice(more);
    let output = slowpath(&arguments);
    let said = text(&output.stderr);
    if said.contains("not permitted") || said.contains("/dev/net/tun") {
        println!("SKIPPED {test}: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["type"], "lab_up");
    Some(answer["network"].clone())
}

fn exec(name: &str, host: &str, command: &[&str]) -> Output {
    let mut arguments = vec!["lab", "exec", "--name", name, host, "--"];
    arguments.extend_from_slice(command);
    slowpath(&arguments)
}

/// The network namespaces that processes of this machine are in.
fn namespaces_in_use() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("is there").flatten();
    let links = processes.filter_map(|entry| std::fs::read_link(entry.path().join("ns/net")).ok());
    links
        .map(|link| link.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_network_is_up_until_it_is_taken_down() {
    let (file, name) = (scenario(TWO_HOSTS), name("down"));
    let Some(network) = up("up and down", &name, &file, &[]) else {
        return;
    };
    assert_eq!(network["hosts"][0]["name"], "left-0");
    let again = slowpath(&["lab", "up", path(&file), "--name", &name]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("is up already"), "{again:?}");
    // A command's status is passed on, and names stand for addresses.
    let echo = exec(
        &name,
        "left-0",
        &[
            "sh",
            "-c",
            "echo $0 $1; exit 7",
            "http://@right-0:80/",
            "@6:left",
        ],
    );
    assert_eq!(text(&echo.stdout), "http://10.0.0.2:80/ fd00:510:0:ff::1\n");
    assert_eq!(echo.status.code(), Some(7));
    let unknown = exec(&name, "left-0", &["echo", "@right-7"]);
    assert_eq!(unknown.status.code(), Some(1));
    let said = text(&unknown.stderr);
    assert!(
        said.contains("'right-7'") && said.contains("right-0"),
        "{said}"
    );
    let refused = exec(&name, "middle", &["true"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("left-0, right-0"),
        "{refused:?}"
    );
    let status = slowpath(&["lab", "status", "--json"]);
    assert!(text(&status.stdout).contains(&name), "{status:?}");
    let down = slowpath(&["lab", "down", &name, "--json"]);
    let answer: Value = serde_json::from_slice(&down.stdout).expect("JSON");
    assert_eq!(
        (&answer["type"], &answer["network"]["complaint"]),
        (&"lab_down".into(), &Value::Null)
    );
    assert_eq!(down.status.code(), Some(0));
    let gone = slowpath(&["lab", "down", &name]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("lab status"), "{gone:?}");
}

#[test]
fn a_killed_emulator_leaves_nothing_behind() {
    let (file, name) = (scenario(TWO_HOSTS), name("killed"));
    let Some(network) = up("a killed emulator", &name, &file, &[]) else {
        return;
    };
    let inside = exec(&name, "left-0", &["readlink", "/proc/self/ns/net"]);
    let namespace = text(&inside.stdout).trim().to_owned();
    assert!(namespace.starts_with("net:["), "{inside:?}");
    // A daemon in the host, which no one waits for.
    let daemon = [
        "sh",
        "-c",
        "setsid sleep 1000 >/dev/null 2>&1 & echo started",
    ];
    assert_eq!(text(&exec(&name, "left-0", &daemon).stdout), "started\n");
    assert!(namespaces_in_use().contains(&namespace));

    let pid = i32::try_from(network["pid"].as_u64().expect("a number")).expect("small");
    // SAFETY: pidfd_open takes integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the descriptor was just opened.
    let emulator = unsafe { OwnedFd::from_raw_fd(fd.try_into().expect("a descriptor")) };
    // SAFETY: kill takes integers; the emulator is ours and alive.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    let mut poll = libc::pollfd {
        fd: emulator.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, which outlives the call.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 10_000) }, 1);
    // The kernel ends what ran there; that is not at once, but by itself.
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while namespaces_in_use().contains(&namespace) {
        assert!(
            std::time::Instant::now() < patience,
            "a process of it is left"
        );
        std::thread::yield_now();
    }
    // No process holds the namespaces and none has a name: nothing keeps them. The device went with the descriptor.
    let named = Command::new("ip")
        .args(["netns", "list"])
        .output()
        .expect("iproute2");
    assert!(!text(&named.stdout).contains(&name));
    assert!(!Path::new(&format!("/run/netns/{name}")).exists());
    let status = slowpath(&["lab", "status"]);
    assert!(!text(&status.stdout).contains(&name), "{status:?}");
    // The same name can be had again.
    up("again", &name, &file, &[]).expect("as before");
    assert!(slowpath(&["lab", "down", &name]).status.success());
}

#[test]
fn a_run_that_was_late_fails() {
    let (file, name) = (scenario(TWO_HOSTS), name("late"));
    if up("lateness", &name, &file, &["--bound", "1us"]).is_none() {
        return;
    }
    // One datagram after the other, by a shell without a network tool.
    let send = "for n in 1 2 3 4 5 6 7 8 9 10; do echo hello >/dev/udp/10.0.0.2/9; done";
    assert!(
        exec(&name, "left-0", &["bash", "-c", send])
            .status
            .success()
    );
    // Other tests have networks too.
    let arrived = || {
        let status = text(&slowpath(&["lab", "status", "--json"]).stdout);
        let all = status
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let own = all
            .map(|status| status["network"].clone())
            .find(|network| network["name"] == name);
        own.and_then(|network| network["report"]["lateness"]["packets"].as_u64())
    };
    // The datagrams, and perhaps the ICMP errors about them: no socket listens there.
    while arrived() < Some(10) {
        std::thread::yield_now();
    }
    let down = slowpath(&["lab", "down", &name]);
    assert_eq!(down.status.code(), Some(1));
    assert!(
        text(&down.stderr).contains("the emulation was late"),
        "{down:?}"
    );
}

/// A command that will run as an unprivileged user.
fn as_unprivileged_user(program: &str) -> Option<Command> {
    // SAFETY: geteuid takes no argument and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let mut command = Command::new(program);
    // SAFETY: setgid and setuid are async-signal-safe.
    unsafe {
        command.pre_exec(|| match (libc::setgid(65_534), libc::setuid(65_534)) {
            (0, 0) => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    Some(command)
}

/// A scenario that everybody can read.
fn public_scenario() -> tempfile::NamedTempFile {
    let file = scenario(TWO_HOSTS);
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), readable).expect("sets");
    file
}

#[test]
fn a_refusal_for_want_of_privileges_names_the_way_out() {
    let Some(mut command) = as_unprivileged_user(env!("CARGO_BIN_EXE_slowpath")) else {
        println!("SKIPPED without privileges: needs root to become an unprivileged user");
        return;
    };
    let file = public_scenario();
    command.args(["lab", "up", path(&file), "--name", &name("unprivileged")]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!(
                "SKIPPED without privileges: an unprivileged user cannot run the command: {error}"
            );
            return;
        }
    };
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("not permitted") && said.contains("run as root"),
        "{said}"
    );
}

#[test]
fn a_user_namespace_is_enough() {
    let test = "in a user namespace";
    let Some(mut command) = as_unprivileged_user("unshare") else {
        println!("SKIPPED {test}: needs root to become an unprivileged user");
        return;
    };
    let file = public_scenario();
    command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_slowpath")]);
    command.args([
        "lab",
        "up",
        path(&file),
        "--name",
        &name("user"),
        "--for",
        "100ms",
    ]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            return;
        }
    };
    let said = text(&output.stderr);
    if said.contains("unshare:") || said.contains("/dev/net/tun") {
        println!("SKIPPED {test}: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(text(&output.stdout).contains("host   left-0"), "{output:?}");
}

#[test]
fn a_file_for_the_simulator_has_a_network_too() {
    let traffic = "[[workload]]\nkind = \"bulk\"\nfrom = [\"left-0\"]\nto = [\"right-0\"]\n";
    let file = scenario(&format!("duration = \"1 s\"\n{TWO_HOSTS}{traffic}"));
    let name = name("network");
    let refused = slowpath(&["lab", "up", path(&file), "--name", &name]);
    assert!(
        text(&refused.stderr).contains("workload: the emulator cannot do this"),
        "{refused:?}"
    );
    if up("--network-only", &name, &file, &["--network-only"]).is_some() {
        assert!(slowpath(&["lab", "down", &name]).status.success());
    }
}

#[test]
fn what_the_emulator_cannot_do_is_named_with_its_place() {
    let with = |more: &str| scenario(&format!("{TWO_HOSTS}{more}"));
    let refused = |file: &tempfile::NamedTempFile, place: &str| {
        let output = slowpath(&["lab", "up", path(file)]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(place), "{said}");
    };
    refused(
        &with("[tcp]\nalgorithm = \"cubic\"\n"),
        "line 9: tcp: the emulator cannot do this",
    );
    refused(
        &with("[[line]]\non = \"x -> y\"\n"),
        "line 10: line[0].on: no link is called 'x -> y'",
    );
    refused(&with("["), "line 9");
    refused(&scenario(""), "line 1: topology: missing");
    let missing = slowpath(&["lab", "up", "/nowhere.toml"]);
    assert!(
        text(&missing.stderr).contains("/nowhere.toml"),
        "{missing:?}"
    );
    // And the simulator what it cannot.
    let simulated = with("duration = \"1 s\"\n");
    let output = slowpath(&["sim", path(&simulated)]);
    assert_eq!(output.status.code(), Some(1));
    let queued = format!(
        "duration = \"1 s\"\n{TWO_HOSTS}[host]\nqueue = \"3 packets\"\n\
         [[workload]]\nkind = \"bulk\"\nfrom = [\"left-0\"]\nto = [\"right-0\"]\n"
    );
    let output = slowpath(&["sim", path(&scenario(&queued))]);
    let said = text(&output.stderr);
    assert!(
        said.contains("host.queue: the simulator cannot do this"),
        "{said}"
    );
}

/// Reads all of one connection.
const READER: &str = "import socket
listener = socket.create_server(('10.0.0.2', 9009))
print('ready', flush=True)
connection, _ = listener.accept()
while connection.recv(1 << 16): pass";

/// 64 MB at 100 Mbit/s: five seconds, in which owners are looked for without BPF too.
const WRITER: &str = "import socket
connection = socket.create_connection(('10.0.0.2', 9009))
connection.sendall(bytes(64_000_000))
connection.close()";

/// Hosts have a process namespace of their own and the machine's `/proc`: what `watch` starts
/// there has another number than its owner is found by.
#[test]
fn watch_in_a_host_names_the_processes_of_its_connections() {
    let test = "watch in a host";
    let (file, name) = (scenario(TWO_HOSTS), name("watch"));
    if up(test, &name, &file, &[]).is_none() {
        return;
    }
    for tier in ["bpf", "inet-diag"] {
        let mut reader = Command::new(env!("CARGO_BIN_EXE_slowpath"))
            .args(["lab", "exec", "--name", &name, "right-0", "--"])
            .args(["python3", "-c", READER])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let out = reader.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("reads");
        assert_eq!(line, "ready\n");
        let own = env!("CARGO_BIN_EXE_slowpath");
        let watch = [
            own, "watch", "--json", "--tier", tier, "--", "python3", "-c", WRITER,
        ];
        let output = exec(&name, "left-0", &watch);
        let said = text(&output.stderr);
        if !output.status.success() && tier == "bpf" {
            println!("SKIPPED {test}, {tier}: {said}");
            reader.kill().expect("ends");
            reader.wait().expect("has ended");
            continue;
        }
        assert!(output.status.success(), "{tier}: {said}");
        assert!(reader.wait().expect("has ended").success());
        let printed = text(&output.stdout);
        let last = printed.lines().next_back().expect("a summary");
        let summary: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(summary["command_exit_code"], 0, "{tier}: {summary}");
        // One connection, whose process is the command's: the other end's is not shown.
        assert_eq!(summary["connections"], 1, "{tier}: {summary}");
        let owners = &summary["owners"];
        let applications = owners["applications"].as_object().expect("an object");
        let python = applications.keys().all(|it| it.starts_with("python"));
        assert!(python && applications.len() == 1, "{tier}: {owners}");
        assert_eq!(owners["unknown"], serde_json::json!({}), "{tier}: {owners}");
    }
    assert!(slowpath(&["lab", "down", &name]).status.code().is_some());
}
