// SPDX-License-Identifier: Apache-2.0
//! One connection over loopback at full speed in a network namespace of its own, with and without the recorder, in turns; with segments of 64 KiB, and with packets of 1,500 bytes.
//!
//! The recorder's processor time is what the kernel says of its BPF programs, and what it takes to read their events. The network's is the system time of both processes
//! without those programs: on loopback all of TCP runs in them.

use slowpath_observe::bpf::enable_statistics;
use slowpath_observe::handlers::Recorder;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The receiving process.
pub const SERVE: &str = "serve-child";
/// The sending process.
pub const SEND: &str = "send-child";
/// Each with and without.
const ROUNDS: usize = 5;
const SECONDS: f64 = 1.5;
const CHUNK: usize = 256 * 1024;

/// What recording one connection costs.
#[derive(Debug)]
pub struct Cost {
    pub cpu_percent: f64,
    pub loss_percent: f64,
    pub lost: u64,
}

/// `None`: it cannot be measured here, which is said.
pub fn measure() -> Option<[Cost; 2]> {
    let both = || -> Result<[Cost; 2], Box<dyn Error>> {
        Ok([
            of("segments of 64 KiB", &[])?,
            of(
                "packets of 1,500 bytes",
                &[
                    "ip link set lo mtu 1500",
                    "ethtool -K lo tso off gso off gro off",
                ],
            )?,
        ])
    };
    match both() {
        Ok(both) => Some(both),
        Err(error) => {
            println!("could not measure what the recorder costs: {error}");
            None
        }
    }
}

struct Namespace(String);

impl Namespace {
    fn new(settings: &[&str]) -> Result<Self, Box<dyn Error>> {
        let name = format!("slowpath-bench-record-{}", std::process::id());
        done(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace(name);
        for setting in ["ip link set lo up"].iter().chain(settings) {
            let mut words = setting.split(' ');
            let program = words.next().unwrap_or_default();
            done(namespace.command(program).args(words))?;
        }
        Ok(namespace)
    }

    fn command(&self, program: &str) -> Command {
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
    let told = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", told.trim()).into())
}

/// What one transfer took.
#[derive(Default)]
struct Transfer {
    bytes_per_second: f64,
    /// System time of both processes, seconds.
    system: f64,
    /// Of the BPF programs, seconds.
    programs: f64,
    /// Of reading events, seconds.
    reading: f64,
    events: u64,
    lost: u64,
}

fn of(what: &str, settings: &[&str]) -> Result<Cost, Box<dyn Error>> {
    let namespace = Namespace::new(settings)?;
    // Warm.
    transfer(&namespace, false)?;
    let (mut shares, mut losses, mut lost) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let without = transfer(&namespace, false)?;
        let with = transfer(&namespace, true)?;
        let network = with.system - with.programs;
        let recorder = with.programs + with.reading;
        println!(
            "{what}: {:.2} GB/s without, {:.2} with; network {network:.3} s, BPF {:.3} s, reading {:.3} s of {} bytes, lost {}",
            without.bytes_per_second / 1e9,
            with.bytes_per_second / 1e9,
            with.programs,
            with.reading,
            with.events,
            with.lost
        );
        shares.push(100.0 * recorder / network);
        losses.push(100.0 * (1.0 - with.bytes_per_second / without.bytes_per_second));
        lost += with.lost;
    }
    Ok(Cost {
        cpu_percent: median(&mut shares),
        loss_percent: median(&mut losses),
        lost,
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn transfer(namespace: &Namespace, record: bool) -> Result<Transfer, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let program = program.to_string_lossy().into_owned();
    let mut server = namespace
        .command(&program)
        .arg(SERVE)
        .stdout(Stdio::piped())
        .spawn()?;
    let out = server.stdout.take().ok_or("no output")?;
    let mut told = BufReader::new(out).lines();
    let mut next = move || -> Result<String, Box<dyn Error>> {
        Ok(told.next().ok_or("the server said nothing")??)
    };
    let port: u16 = next()?.parse()?;
    let _statistics = if record {
        Some(enable_statistics()?)
    } else {
        None
    };
    let mut recorder = if record {
        Some(Recorder::open(&[port])?)
    } else {
        None
    };
    let seconds = SECONDS.to_string();
    let mut client = namespace
        .command(&program)
        .args([SEND, &port.to_string(), &seconds])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut transfer = Transfer::default();
    let begun = own_time(libc::RUSAGE_SELF);
    while client.try_wait()?.is_none() {
        if let Some(recorder) = &mut recorder {
            transfer.events += recorder.take()?.len() as u64;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(recorder) = &mut recorder {
        transfer.events += recorder.take()?.len() as u64;
        transfer.reading = own_time(libc::RUSAGE_SELF) - begun;
        transfer.programs = recorder.run_time().as_secs_f64();
        transfer.lost = recorder.losses().total();
    }
    let sent: Vec<f64> = numbers(&output(&mut client)?)?;
    let received: Vec<f64> = numbers(&next()?)?;
    server.wait()?;
    let (&[rate, sender], &[receiver]) = (&sent[..], &received[..]) else {
        return Err("the processes said something else".into());
    };
    transfer.bytes_per_second = rate;
    transfer.system = sender + receiver;
    Ok(transfer)
}

fn output(child: &mut Child) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    child
        .stdout
        .take()
        .ok_or("no output")?
        .read_to_string(&mut text)?;
    Ok(text)
}

fn numbers(text: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let numbers = text.split_whitespace().map(str::parse);
    Ok(numbers.collect::<Result<_, _>>()?)
}

/// Processor time in seconds: the system's share; of a process that only reads events, all of it.
fn own_time(who: libc::c_int) -> f64 {
    usage(who, true)
}

fn usage(who: libc::c_int, all: bool) -> f64 {
    // SAFETY: `usage` is plain data, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let user = if all { seconds(usage.ru_utime) } else { 0.0 };
    seconds(usage.ru_stime) + user
}

/// Takes all that one connection sends.
pub fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0; CHUNK];
    while stream.read(&mut buffer)? > 0 {}
    println!("{}", usage(libc::RUSAGE_SELF, false));
    Ok(())
}

/// Sends for so many seconds: bytes a second and the system time.
pub fn send(port: u16, seconds: f64) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let chunk = vec![0; CHUNK];
    let begun = Instant::now();
    let mut bytes = 0.0;
    while begun.elapsed().as_secs_f64() < seconds {
        stream.write_all(&chunk)?;
        bytes += CHUNK as f64;
    }
    let rate = bytes / begun.elapsed().as_secs_f64();
    println!("{rate} {}", usage(libc::RUSAGE_SELF, false));
    Ok(())
}
