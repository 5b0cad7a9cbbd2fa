// SPDX-License-Identifier: Apache-2.0
//! The second measure, without BPF's statistics: one long connection that is recorded from its beginning, whose recorder's programs are detached and attached
//! in turns, on, off, off, on. What more processor time a byte takes while they are attached is all that they cost: trampolines, caches and reading as well.
//!
//! Processor time is that of both pinned processes and of `ksoftirqd`; bytes are those acknowledged (`tcp_info`). A drift that is linear over the four windows
//! falls out. Two cycles in which nothing else differs give the control: what is found between off and off.

use crate::load::{SEND, SERVE, own_time};
use crate::namespace::Namespace;
use crate::recorders::{AnyRecorder, RecorderKind};
use slowpath_observe::bpf::enable_statistics;
use slowpath_observe::empty::Empty;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Long beside a tick of 4 ms, by which the kernel may be late in charging time to a process that runs. The ring is emptied at the end of each.
const WINDOW: Duration = Duration::from_millis(100);
/// Looking at all takes less, unless another process has the processor meanwhile; then once more.
const MOMENT: Duration = Duration::from_micros(200);
const TRIES: usize = 100;
/// Cut off behind each change.
const EDGE: Duration = Duration::from_millis(30);
const CYCLES: usize = 150;
/// Buffers do not grow: when they are larger than the processor's cache a byte costs three times as much, and a connection goes there and back.
/// In the cache the network is cheapest, and what a recorder takes the largest share.
const BUFFERS: [&str; 2] = [
    "sysctl -qw net.ipv4.tcp_rmem=4096\t1048576\t1048576",
    "sysctl -qw net.ipv4.tcp_wmem=4096\t1048576\t1048576",
];
/// Windows in which the kernel measures.
const CHARGED: usize = 30;
const RESAMPLES: usize = 2000;

/// An interval wider than that to either side, in points, says too little.
const PRECISE: f64 = 0.3;
/// The same of throughput, whose bound is 2.
const PRECISE_LOSS: f64 = 1.0;

/// A median with its interval of 95 %, by bootstrap.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub percent: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    pub fn is_precise(&self) -> bool {
        self.is_within(PRECISE)
    }

    fn is_within(&self, points: f64) -> bool {
        self.high - self.percent < points && self.percent - self.low < points
    }
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub cost: Estimate,
    pub control: Estimate,
    /// Bytes a second that are missing while they are attached; and between off and off.
    pub loss: Estimate,
    pub loss_control: Estimate,
    /// By BPF's statistics, of the same connection.
    pub charged: Charged,
}

impl Turns {
    /// Of throughput at most, if it says enough.
    pub fn lost(&self) -> Option<f64> {
        let precise = self.loss.is_within(PRECISE_LOSS);
        precise.then_some(self.loss.high)
    }
}

/// What the kernel charges, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Charged {
    /// All of it, and reading.
    pub raw_percent: f64,
    /// Without what it charges to as many runs of a program that does nothing.
    pub net_percent: f64,
    pub empty_nanos: f64,
}

/// `None`: it cannot be measured here, which is said.
pub fn measure(which: RecorderKind, what: &str, settings: &[&str]) -> Option<Turns> {
    let found = of(which, what, settings);
    found
        .map_err(|error| println!("could not turn the {which:?} recorder on and off: {error}"))
        .ok()
}

fn of(which: RecorderKind, what: &str, settings: &[&str]) -> Result<Turns, Box<dyn Error>> {
    let namespace = Namespace::new(&[settings, &BUFFERS].concat())?;
    let mut server = spawn(&namespace, 0, &[SERVE, "1"])?;
    let port = first_line(&mut server.0)?;
    let mut recorder = AnyRecorder::open(which, port.parse()?)?;
    let client = spawn(&namespace, 1, &[SEND, &port, "1e6", "1", "0"])?;
    let socket = connection(&client.0)?;
    let mut watched = Watched::new(&socket, &[&client.0, &server.0])?;
    std::thread::sleep(Duration::from_secs(1));

    let (mut costs, mut controls) = (Vec::new(), Vec::new());
    let (mut losses, mut loss_controls) = (Vec::new(), Vec::new());
    let mut before: Option<[Observed; 2]> = None;
    for _ in 0..CYCLES {
        let on = watched.window(&mut recorder)?;
        recorder.turn(false)?;
        settle(&mut recorder)?;
        let off = [
            watched.window(&mut recorder)?,
            watched.window(&mut recorder)?,
        ];
        recorder.turn(true)?;
        settle(&mut recorder)?;
        let on = [on, watched.window(&mut recorder)?];
        costs.push(100.0 * (ratio(on, off, Observed::per_byte) - 1.0));
        losses.push(100.0 * (1.0 - ratio(on, off, Observed::rate)));
        if let Some([first, second]) = before.take() {
            let (outer, inner) = ([first, off[1]], [second, off[0]]);
            controls.push(100.0 * (ratio(outer, inner, Observed::per_byte) - 1.0));
            loss_controls.push(100.0 * (1.0 - ratio(outer, inner, Observed::rate)));
        } else {
            before = Some(off);
        }
    }
    let charged = charged(&mut watched, &mut recorder)?;
    let turns = Turns {
        charged,
        cost: estimate(&costs),
        control: estimate(&controls),
        loss: estimate(&losses),
        loss_control: estimate(&loss_controls),
    };
    println!(
        "{which:?}, {what}, attached and detached in turns: {turns:.2?}, {} lost",
        recorder.reported().1.total()
    );
    Ok(turns)
}

/// The kernel's own measure of all programs, and of one that does nothing beside them.
fn charged(
    watched: &mut Watched<'_>,
    recorder: &mut AnyRecorder,
) -> Result<Charged, Box<dyn Error>> {
    let empty = Empty::open()?;
    let _statistics = enable_statistics()?;
    let mut all = Observed::default();
    for _ in 0..CHARGED {
        let window = watched.window(recorder)?;
        all.network += window.network;
        all.reading += window.reading;
    }
    let empty_nanos = empty
        .nanos_per_run()
        .ok_or("the empty program did not run")?;
    let (mut nanos, mut runs) = (0, 0);
    let each = recorder.programs();
    for program in &each {
        nanos += program.nanos;
        runs += program.runs;
    }
    crate::cost::print_each(&each, all.network - nanos as f64 / 1e9);
    let share = |nanos: f64| {
        let programs = nanos / 1e9;
        let whole = all.network - programs;
        100.0 * (programs + all.reading) / whole
    };
    Ok(Charged {
        raw_percent: share(nanos as f64),
        net_percent: share(nanos as f64 - runs as f64 * empty_nanos),
        empty_nanos,
    })
}

fn settle(recorder: &mut AnyRecorder) -> Result<(), Box<dyn Error>> {
    std::thread::sleep(EDGE);
    recorder.take()?;
    Ok(())
}

fn ratio(these: [Observed; 2], those: [Observed; 2], of: fn(&Observed) -> f64) -> f64 {
    let sum = |two: [Observed; 2]| two.iter().map(of).sum::<f64>();
    sum(these) / sum(those)
}

/// It is ended with the value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may be over already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the two, on a processor of its own if there are two.
fn spawn(namespace: &Namespace, cpu: usize, arguments: &[&str]) -> Result<Ended, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mask = format!("{:x}", 1 << cpu.min(processors() - 1));
    let child = namespace
        .command("taskset")
        .arg(mask)
        .arg(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(Ended(child))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn first_line(child: &mut Child) -> Result<String, Box<dyn Error>> {
    let out = child.stdout.as_mut().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// A descriptor of our own for that process's connection, as soon as there is one.
fn connection(child: &Child) -> Result<OwnedFd, Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    // SAFETY: it takes numbers and gives a descriptor or an error.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let process = owned(process)?;
    while Instant::now() < deadline {
        for entry in fs::read_dir(format!("/proc/{}/fd", child.id()))? {
            let number: i32 = match entry?.file_name().to_string_lossy().parse() {
                Ok(number) => number,
                Err(_) => continue,
            };
            // SAFETY: as above.
            let copy =
                unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
            if let Ok(copy) = owned(copy)
                && acknowledged(&copy).is_ok_and(|bytes| bytes > 0)
            {
                return Ok(copy);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("the sending process has no connection".into())
}

fn owned(number: libc::c_long) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

/// `tcpi_bytes_acked` of `struct tcp_info` (include/uapi/linux/tcp.h).
const BYTES_ACKED: usize = 120;

fn acknowledged(socket: &OwnedFd) -> io::Result<u64> {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: it fills at most `length` bytes of `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < BYTES_ACKED + 8 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let bytes = info[BYTES_ACKED..].first_chunk().copied();
    Ok(u64::from_ne_bytes(bytes.unwrap_or_default()))
}

/// What is looked at.
struct Watched<'a> {
    socket: &'a OwnedFd,
    /// `schedstat` of all whose time is the network's: nanoseconds first.
    times: Vec<File>,
    begun: Instant,
}

/// Up to a moment, or between two.
#[derive(Clone, Copy, Default)]
struct Observed {
    bytes: f64,
    /// Seconds of processor time.
    network: f64,
    reading: f64,
    /// Seconds since the measure began, or between.
    time: f64,
}

impl Observed {
    fn rate(&self) -> f64 {
        self.bytes / self.time
    }

    fn per_byte(&self) -> f64 {
        (self.network + self.reading) / self.bytes
    }
}

impl<'a> Watched<'a> {
    fn new(socket: &'a OwnedFd, children: &[&Child]) -> io::Result<Self> {
        let mut processes: Vec<u32> = children.iter().map(|child| child.id()).collect();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Ok(process) = entry.file_name().to_string_lossy().parse() else {
                continue;
            };
            // It may have gone.
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if name.starts_with("ksoftirqd/") {
                processes.push(process);
            }
        }
        let mut times = Vec::new();
        for process in processes {
            for entry in fs::read_dir(format!("/proc/{process}/task"))? {
                times.push(File::open(entry?.path().join("schedstat"))?);
            }
        }
        Ok(Watched {
            socket,
            times,
            begun: Instant::now(),
        })
    }

    /// All at one moment.
    fn observed(&self) -> Result<Observed, Box<dyn Error>> {
        for _ in 0..TRIES {
            let begun = Instant::now();
            let bytes = acknowledged(self.socket)?;
            let mut nanos = 0;
            for file in &self.times {
                let mut reported = [0; 64];
                let length = file.read_at(&mut reported, 0)?;
                let reported = std::str::from_utf8(&reported[..length])?;
                let first = reported.split_ascii_whitespace().next();
                nanos += first.ok_or("an empty schedstat")?.parse::<u64>()?;
            }
            if begun.elapsed() < MOMENT {
                return Ok(Observed {
                    bytes: bytes as f64,
                    network: nanos as f64 / 1e9,
                    reading: 0.0,
                    time: begun.duration_since(self.begun).as_secs_f64(),
                });
            }
        }
        Err("the processor is too busy to look at all at one moment".into())
    }

    fn window(&mut self, recorder: &mut AnyRecorder) -> Result<Observed, Box<dyn Error>> {
        let before = self.observed()?;
        std::thread::sleep(WINDOW);
        let begun = own_time(true);
        recorder.take()?;
        let reading = own_time(true) - begun;
        let after = self.observed()?;
        Ok(Observed {
            bytes: after.bytes - before.bytes,
            network: after.network - before.network,
            reading,
            time: after.time - before.time,
        })
    }
}

fn estimate(values: &[f64]) -> Estimate {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut drawn: Vec<f64> = values
                .iter()
                .map(|_| {
                    // xorshift64 (Marsaglia, 2003).
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    values[(state >> 11) as usize % values.len()]
                })
                .collect();
            crate::cost::median(&mut drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Estimate {
        percent: crate::cost::median(&mut values.to_vec()),
        low: medians[RESAMPLES / 40],
        high: medians[RESAMPLES - 1 - RESAMPLES / 40],
    }
}
