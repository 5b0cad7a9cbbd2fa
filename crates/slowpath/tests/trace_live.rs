// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace --interface` as a process, in network namespaces of its own.

mod path;

use path::skipped;
use serde_json::Value;
use slowpath_testbed::Namespace;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn namespace() -> Namespace {
    static NEXT: AtomicU32 = AtomicU32::new(8_000);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("sp-{}-{number}-l", std::process::id());
    Namespace::new(&name).expect("makes a namespace")
}

/// A capture that has begun.
struct Capture {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
}

impl Capture {
    fn start(namespace: &Namespace, arguments: &[&str]) -> Capture {
        let mut child = namespace
            .command(env!("CARGO_BIN_EXE_slowpath"))
            .expect("enters")
            .args(["trace", "--json", "--interface"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut errors = BufReader::new(child.stderr.take().expect("is a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("is read");
        assert!(line.contains("capturing on"), "{line}");
        Capture { child, errors }
    }

    fn signal(&self, number: i32) {
        // SAFETY: kill takes plain numbers; the child has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, number) };
    }

    /// What it says in the end.
    fn objects(mut self) -> Vec<Value> {
        let (mut said, mut errors) = (String::new(), String::new());
        let mut out = self.child.stdout.take().expect("is a pipe");
        out.read_to_string(&mut said).expect("is read");
        self.errors.read_to_string(&mut errors).expect("is read");
        let status = self.child.wait().expect("ends");
        assert_eq!(status.code(), Some(0), "{errors}");
        (said.lines())
            .map(|l| serde_json::from_str(l).expect("is JSON"))
            .collect()
    }
}

/// Sends `bytes` through the loopback interface; the server's port.
fn transfer(bytes: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    transfer_to(&listener, bytes)
}

fn transfer_to(listener: &TcpListener, bytes: usize) -> u16 {
    let address = listener.local_addr().expect("is bound");
    let mut client = TcpStream::connect(address).expect("connects");
    let (mut server, _) = listener.accept().expect("accepts");
    let sending = std::thread::spawn(move || {
        client.write_all(&vec![7; bytes]).expect("sends");
        client.shutdown(std::net::Shutdown::Write).expect("closes");
        assert_eq!(client.read(&mut [0]).expect("reads"), 0);
    });
    let mut all = Vec::new();
    server.read_to_end(&mut all).expect("receives");
    drop(server);
    sending.join().expect("sent");
    assert_eq!(all.len(), bytes);
    address.port()
}

/// Packets that the loopback interface has carried, by the kernel.
fn carried() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("is read");
    let line = text.lines().find_map(|l| l.trim().strip_prefix("lo:"));
    let packets = line.and_then(|l| l.split_whitespace().nth(1));
    packets.expect("is there").parse().expect("is a number")
}

#[test]
fn what_passes_is_counted_and_sigint_ends_it() {
    const TEST: &str = "what_passes_is_counted_and_sigint_ends_it";
    const BYTES: usize = 3_000_000;
    if skipped(TEST, &[]) {
        return;
    }
    let namespace = namespace();
    let before = namespace.run(carried).expect("enters");
    let capture = Capture::start(&namespace, &["lo"]);
    let port = namespace.run(|| transfer(BYTES)).expect("enters");
    capture.signal(libc::SIGINT);
    let objects = capture.objects();
    let passed = namespace.run(carried).expect("enters") - before;
    assert_eq!(objects[0]["packets"], passed);
    assert_eq!(objects[0]["tcp"]["packets"], passed);
    assert_eq!(objects[0]["capture_drops"], 0);
    let [_, connection] = &objects[..] else {
        panic!("{objects:?}");
    };
    assert_eq!(connection["packets"], passed);
    assert_eq!(connection["server"], format!("127.0.0.1:{port}"));
    assert_eq!(connection["from_client"]["unique_bytes"], BYTES);
    assert_eq!(connection["ending"], "closed");
}

#[test]
fn the_kernel_filters() {
    const TEST: &str = "the_kernel_filters";
    if skipped(TEST, &["ss"]) {
        return;
    }
    let namespace = namespace();
    let wanted = namespace.run(|| TcpListener::bind("127.0.0.1:0"));
    let wanted = wanted.expect("enters").expect("listens");
    let port = wanted.local_addr().expect("is bound").port();
    let filter = format!("tcp port {port}");
    let capture = Capture::start(&namespace, &["lo", "--filter", &filter]);
    let ss = namespace
        .command("ss")
        .expect("enters")
        .args(["--packet", "--bpf", "--no-header"])
        .output()
        .expect("runs");
    let sockets = String::from_utf8(ss.stdout).expect("is text");
    assert!(sockets.contains("bpf filter"), "{sockets}");
    let before = namespace.run(carried).expect("enters");
    namespace
        .run(|| transfer_to(&wanted, 100_000))
        .expect("enters");
    let passed = namespace.run(carried).expect("enters") - before;
    namespace.run(|| transfer(200_000)).expect("enters");
    capture.signal(libc::SIGTERM);
    let objects = capture.objects();
    assert_eq!(objects.len(), 2, "{objects:?}");
    assert_eq!(objects[0]["packets"], passed);
    assert_eq!(objects[1]["server"], format!("127.0.0.1:{port}"));
}

/// The process stands still while more passes than its ring holds; what it saw and what it
/// lost are all.
#[test]
fn what_the_kernel_drops_is_counted() {
    const TEST: &str = "what_the_kernel_drops_is_counted";
    // Frames of 256 bytes and their headers: 32 MiB hold less than 110,000.
    const DATAGRAMS: u64 = 150_000;
    if skipped(TEST, &[]) {
        return;
    }
    let namespace = namespace();
    let capture = Capture::start(&namespace, &["lo", "--filter", "udp"]);
    capture.signal(libc::SIGSTOP);
    let send = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let to = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let to = to.local_addr().expect("is bound");
        for _ in 0..DATAGRAMS {
            // The port is closed again: the receiver's refusals come back as errors.
            while socket.send_to(&[1; 300], to).is_err() {}
        }
    };
    namespace.run(send).expect("enters");
    capture.signal(libc::SIGCONT);
    capture.signal(libc::SIGINT);
    let objects = capture.objects();
    let captured = objects[0]["udp"]["packets"].as_u64().expect("a number");
    let lost = objects[0]["capture_drops"].as_u64().expect("a number");
    assert!(lost > 0, "{}", objects[0]);
    assert_eq!(captured + lost, DATAGRAMS, "{}", objects[0]);
}

#[test]
fn a_duration_ends_it() {
    const TEST: &str = "a_duration_ends_it";
    if skipped(TEST, &[]) {
        return;
    }
    let namespace = namespace();
    let objects = Capture::start(&namespace, &["any", "--duration", "200ms"]).objects();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0]["packets"], 0);
}

#[test]
fn what_is_not_allowed_says_what_it_needs() {
    const TEST: &str = "what_is_not_allowed_says_what_it_needs";
    if skipped(TEST, &[]) {
        return;
    }
    const UNPRIVILEGED: u32 = 65_534;
    let program = env!("CARGO_BIN_EXE_slowpath");
    let mut command = Command::new(program);
    command
        .args(["trace", "--interface", "lo"])
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED {TEST}: an unprivileged user may not run {program}: {error}");
            return;
        }
    };
    let said = String::from_utf8(output.stderr).expect("is text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    for wanted in ["cannot open a packet socket on lo", "CAP_NET_RAW"] {
        assert!(said.contains(wanted), "{said}");
    }
}
