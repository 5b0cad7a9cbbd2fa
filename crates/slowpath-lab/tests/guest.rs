// SPDX-License-Identifier: Apache-2.0
//! A command under Debian's stock kernel. A boot takes seconds, so few boots show much each.

#![cfg(target_arch = "x86_64")]

use slowpath_lab::guest::{Guest, GuestError, Kernel, Output, Status};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const INIT: &str = env!("CARGO_BIN_EXE_slowpath-guest-init");
const PROBE: &str = env!("CARGO_BIN_EXE_slowpath-guest-probe");

fn guest<const N: usize>(command: [&str; N]) -> Guest {
    Guest::new(command).init(INIT)
}

fn script(text: &str) -> Guest {
    guest(["sh", "-euc", text]).program(PROBE, "/usr/local/bin/probe")
}

fn skipped(test: &str, tools: &[&str]) -> bool {
    let reason = Guest::missing().or_else(|| {
        let there = |name: &&&str| {
            let found = |folder| Path::new(folder).join(name).is_file();
            !["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
                .into_iter()
                .any(found)
        };
        let name = tools.iter().find(there)?;
        Some(format!("{name} is not installed"))
    });
    if let Some(reason) = &reason {
        println!("SKIPPED {test}: {reason}");
    }
    reason.is_some()
}

fn said(output: &Output) -> String {
    format!("{}{}", output.text(), output.errors())
}

/// Bytes that no other order of them looks like: a linear congruential generator's.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let step = |_| {
        // Knuth, MMIX.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(step).collect()
}

/// A BPF program on a function's entry that does nothing.
fn compile_fentry(folder: &Path) -> PathBuf {
    let (source, object) = (folder.join("fentry.c"), folder.join("fentry.o"));
    let text = r#"
        __attribute__((section("license"), used)) char gpl[] = "GPL";
        __attribute__((section("fentry/tcp_v4_connect"), used))
        int entered(void *context) { return 0; }
    "#;
    fs::write(&source, text).expect("writes");
    let compiled = Command::new("clang")
        .args(["-target", "bpf", "-O2", "-g", "-c", "-o"])
        .args([&object, &source])
        .status();
    assert!(compiled.expect("runs").success());
    object
}

/// Output and exit status, files of all kinds, a network with a delay, and what a BPF program needs.
const SHOWS_EVERYTHING: &str = "
    echo $GREETING; echo to stderr >&2
    cat /proc/sys/net/ipv4/tcp_available_congestion_control
    cp /srv/noise /out/copy
    mkdir /out/below; echo text >/out/below/script; chmod 750 /out/below/script
    ln -s below/script /out/link; mkfifo /out/fifo
    ip netns add a; ip netns add b
    ip link add va netns a type veth peer name vb netns b
    ip -n a addr add 10.9.0.1/24 dev va; ip -n a link set va up
    ip -n b addr add 10.9.0.2/24 dev vb; ip -n b link set vb up
    ip netns exec b probe accept 10.9.0.2:5201 &
    tc -n a qdisc add dev va root netem delay 20ms
    ip netns exec a probe connect 10.9.0.2:5201 10
    probe congestion dctcp
    probe kprobe tcp_v4_connect
    bpftool prog load /srv/fentry.o /sys/fs/bpf/fentry
    probe fentry /sys/fs/bpf/fentry
    exit 42";

/// What the host's kernel may lack, output, exit status and files, in one boot.
#[test]
fn a_command_finds_what_it_needs_and_its_results_come_out() {
    let test = "a_command_finds_what_it_needs_and_its_results_come_out";
    const TOOLS: [&str; 9] = [
        "ip", "tc", "bpftool", "cat", "cp", "ln", "mkfifo", "mkdir", "chmod",
    ];
    if skipped(test, &TOOLS) || skipped(test, &["clang"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let fentry = compile_fentry(folder.path());
    let bytes = noise(10_000_000);
    fs::write(folder.path().join("noise"), &bytes).expect("writes");
    let out = folder.path().join("out");
    let output = script(SHOWS_EVERYTHING)
        .env("GREETING", "to stdout")
        .tools(TOOLS)
        .file(fentry, "/srv/fentry.o")
        .file(folder.path().join("noise"), "/srv/noise")
        .out(&out)
        .timeout(Duration::from_secs(120))
        .run()
        .unwrap_or_else(|error| panic!("{error}"));

    let finished = &output.finished;
    assert_eq!(finished.status, Status::Exited(42), "{}", said(&output));
    assert!(finished.release.starts_with("6.12."), "{finished:?}");
    assert!(
        output.text().starts_with("to stdout\n"),
        "{}",
        said(&output)
    );
    assert!(output.errors().contains("to stderr\n"), "{}", said(&output));
    assert!(
        !output.text().contains("to stderr"),
        "the two stay separate"
    );
    let reported = |word: &str| {
        let text = output.text();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(word));
        let found = lines.next().map(|rest| rest.trim().to_owned());
        found.unwrap_or_else(|| panic!("no {word}: {}", said(&output)))
    };
    // A connection is there after one round trip, and netem holds each segment of one
    // direction back by 20 ms, never less; above that, a timer's tick (4 ms) and what an
    // emulated processor needs for a handshake.
    let shortest: u64 = reported("shortest_us").parse().expect("a number");
    assert!((20_000..40_000).contains(&shortest), "{shortest}");
    assert_eq!(reported("congestion"), "dctcp");
    assert_eq!(reported("kprobe_hits"), "3");
    assert_eq!(reported("fentry"), "attached");
    let controls = output.text().lines().nth(1).unwrap_or_default().to_owned();
    assert!(
        controls.split(' ').any(|name| name == "dctcp"),
        "{controls}"
    );

    assert!(fs::read(out.join("copy")).expect("came out") == bytes);
    let about = fs::metadata(out.join("below/script")).expect("came out");
    assert_eq!(about.permissions().mode() & 0o777, 0o750);
    let target = fs::read_link(out.join("link")).expect("came out");
    assert_eq!(target, Path::new("below/script"));
    assert_eq!(finished.results.files, 2);
    assert_eq!(finished.results.bytes, 10_000_000 + 5);
    assert_eq!(finished.results.left_out, 1, "the fifo");
}

#[test]
fn a_panic_is_reported_with_the_kernels_message() {
    if skipped("a_panic_is_reported_with_the_kernels_message", &[]) {
        return;
    }
    let error = script("echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger")
        .timeout(Duration::from_secs(60))
        .run()
        .expect_err("a panic is an error");
    let GuestError::Panicked { reason, console } = &error else {
        panic!("{error}");
    };
    // sysrq(8), kernel/panic.c
    assert_eq!(reason, "sysrq triggered crash");
    assert!(
        console.0.iter().any(|line| line.contains("Kernel panic")),
        "{error}"
    );
}

#[test]
fn a_command_that_takes_too_long_is_stopped_and_its_results_are_kept() {
    let test = "a_command_that_takes_too_long_is_stopped_and_its_results_are_kept";
    if skipped(test, &["sleep"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // The shell ignores the request to stop and has to be killed; what it started, too.
    let error = script("trap '' TERM; echo early >/out/early; while :; do sleep 1000; done")
        .tools(["sleep"])
        .out(folder.path())
        .timeout(Duration::from_secs(1))
        .run()
        .expect_err("time runs out");
    assert!(
        matches!(
            error,
            GuestError::TimedOut {
                results_kept: true,
                ..
            }
        ),
        "{error}"
    );
    let early = fs::read_to_string(folder.path().join("early")).expect("came out");
    assert_eq!(early, "early\n");
}

#[test]
fn what_is_missing_is_said_before_anything_starts() {
    let kernel = Kernel {
        image: "/nowhere/vmlinuz".into(),
        modules: None,
    };
    let bare = || guest(["sh"]).kernel(kernel.clone());
    let said = |guest: Guest| guest.run().map(drop).expect_err("cannot run").to_string();
    let no_kernel = said(bare());
    assert!(
        no_kernel.starts_with("cannot read /nowhere/vmlinuz: "),
        "{no_kernel}"
    );
    let no_module = said(bare().modules(["sch_netem"]));
    assert!(
        no_module.contains("module sch_netem is wanted"),
        "{no_module}"
    );
    let no_file = said(bare().file("/nowhere/file", "/srv/file"));
    assert!(
        no_file.starts_with("cannot read /nowhere/file: "),
        "{no_file}"
    );
    let no_tool = said(bare().tools(["no-such-program"]));
    assert!(no_tool.contains("cannot find no-such-program"), "{no_tool}");
    let upwards = said(bare().file("/etc/hostname", "/srv/../x"));
    assert!(upwards.contains("it holds . or .."), "{upwards}");
    let no_command = said(Guest::new([""; 0]).init(INIT).kernel(kernel.clone()));
    assert_eq!(no_command, "no command to run in the guest");
    let me = std::env::current_exe().expect("this program has a path");
    let small = said(bare().memory(64));
    assert!(small.starts_with("64 MiB of memory are too few"), "{small}");
    // Any readable file passes for a kernel until the emulator looks at it.
    let readable = Kernel {
        image: me,
        modules: None,
    };
    let no_qemu = said(guest(["sh"]).kernel(readable).qemu("no-such-emulator"));
    assert!(
        no_qemu.contains("cannot find no-such-emulator"),
        "{no_qemu}"
    );
    assert!(no_qemu.contains("make lab-guest"), "{no_qemu}");
}

#[test]
fn an_emulator_that_refuses_is_quoted() {
    if skipped("an_emulator_that_refuses_is_quoted", &[]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("vmlinuz");
    fs::write(&image, "no kernel at all").expect("writes");
    let error = guest(["sh"])
        .kernel(Kernel {
            image,
            modules: None,
        })
        .run()
        .expect_err("QEMU refuses");
    assert!(matches!(error, GuestError::Qemu { .. }), "{error}");
}

#[test]
fn nothing_is_left_when_the_caller_is_killed() {
    if skipped("nothing_is_left_when_the_caller_is_killed", &[]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("mark={}", folder.path().display());
    let running = || -> Vec<u32> {
        let pids = fs::read_dir("/proc").expect("lists").flatten();
        pids.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            String::from_utf8_lossy(&line)
                .contains(&mark)
                .then_some(pid)
        })
        .collect()
    };
    let mut caller = Command::new(PROBE)
        .args(["boot", &mark])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    let wait_until = |wanted: usize| {
        let limit = Instant::now() + Duration::from_secs(60);
        while running().len() != wanted {
            assert!(Instant::now() < limit, "{:?}", running());
            std::thread::yield_now();
        }
    };
    wait_until(2);
    caller.kill().expect("kills");
    caller.wait().expect("waits");
    wait_until(0);
}
