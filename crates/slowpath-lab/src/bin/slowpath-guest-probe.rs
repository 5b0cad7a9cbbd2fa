// SPDX-License-Identifier: Apache-2.0
//! What tests of the guest run in it, and beside it: connections timed, functions probed.

use slowpath_lab::guest::{Guest, INIT_NAME};
use std::error::Error;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: slowpath-guest-probe accept ADDRESS | connect ADDRESS TIMES | \
                     congestion NAME | kprobe FUNCTION | fentry PINNED | boot WORDS";

type Done = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["accept", address] => accept(address),
        ["connect", address, times] => connect(address, times),
        ["congestion", name] => congestion(name),
        ["kprobe", function] => kprobe(function),
        ["fentry", pinned] => fentry(pinned),
        ["boot", words] => boot(words),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slowpath-guest-probe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn accept(address: &str) -> Done {
    for connection in TcpListener::bind(address)?.incoming() {
        drop(connection);
    }
    Ok(())
}

/// Prints the shortest time that a connection took, in microseconds: one round trip.
fn connect(address: &str, times: &str) -> Done {
    let mut left: u32 = times.parse()?;
    let mut shortest = None;
    while left > 0 {
        let begun = Instant::now();
        // Refused until the other side listens.
        if TcpStream::connect(address).is_ok() {
            let took = begun.elapsed().as_micros();
            shortest = Some(shortest.map_or(took, |least: u128| least.min(took)));
            left -= 1;
        }
    }
    println!("shortest_us {}", shortest.unwrap_or_default());
    Ok(())
}

fn congestion(name: &str) -> Done {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // SAFETY: the pointer and length are those of a string that lives on.
    let answer = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if answer != 0 {
        return Err(format!("{name}: {}", io::Error::last_os_error()).into());
    }
    println!("congestion {name}");
    Ok(())
}

/// Prints how often a kprobe through tracefs hit while this made three connections.
fn kprobe(function: &str) -> Done {
    let tracing = Path::new("/sys/kernel/tracing");
    fs::write(
        tracing.join("kprobe_events"),
        format!("p:calls {function}\n"),
    )?;
    fs::write(tracing.join("events/kprobes/calls/enable"), "1")?;
    for _ in 0..3 {
        // No socket listens there.
        let _ = TcpStream::connect("127.0.0.1:1");
    }
    let profile = fs::read_to_string(tracing.join("kprobe_profile"))?;
    let hits = profile.split_whitespace().nth(1).unwrap_or("none");
    println!("kprobe_hits {hits}");
    Ok(())
}

/// Attaches a pinned program. For fentry that is opening it as a raw tracepoint (bpf(2);
/// libbpf's `bpf_program__attach_trace`).
fn fentry(pinned: &str) -> Done {
    const BPF_OBJ_GET: u64 = 7;
    const BPF_RAW_TRACEPOINT_OPEN: u64 = 17;
    let bpf = |command: u64, attributes: &[u64; 2]| {
        // SAFETY: the attributes are 16 bytes that live on, and the length says so.
        let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), 16) };
        u64::try_from(answer).map_err(|_| io::Error::last_os_error())
    };
    let path = std::ffi::CString::new(pinned)?;
    let program = bpf(BPF_OBJ_GET, &[path.as_ptr() as u64, 0])?;
    bpf(BPF_RAW_TRACEPOINT_OPEN, &[0, program])?;
    println!("fentry attached");
    Ok(())
}

/// Boots a guest that waits for ever, to be killed with it.
fn boot(words: &str) -> Done {
    let me = std::env::current_exe()?;
    let guest = Guest::new(["sleep", "infinity"]).init(me.with_file_name(INIT_NAME));
    guest.append(words).run()?;
    Ok(())
}
