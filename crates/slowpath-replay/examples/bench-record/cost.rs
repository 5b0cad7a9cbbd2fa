// SPDX-License-Identifier: Apache-2.0
//! Connections over loopback at full speed in a network namespace of their own, without a recorder and with one, in turns: segments of 64 KiB, packets of 1,500 bytes;
//! one connection and many; answers of web-search sizes at 80 % of what goes.
//!
//! What a recorder takes is measured twice. By the kernel's own measure of its BPF programs, which is a part of the cost itself (an empty program has 50 ns), and what it takes to
//! read their events; against the network's: the system time of both processes, in which on loopback all of TCP runs, without those programs. And, with that measure off, by how
//! much more system time a byte takes than without a recorder, in medians of rounds.

use crate::load::{SEND, SERVE, own_time};
use crate::namespace::Namespace;
use crate::recorders::{AnyRecorder, RecorderKind};
use slowpath_observe::ProgramCost;
use slowpath_observe::bpf::enable_statistics;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

const ROUNDS: usize = 5;
const SECONDS: f64 = 1.0;
/// A ring of 64 MiB takes what comes meanwhile.
const READ_EVERY: Duration = Duration::from_millis(100);
const MANY: usize = 16;
/// Of what goes without a recorder.
const LOAD: f64 = 0.8;
pub const PACKETS: [&str; 2] = [
    "ip link set lo mtu 1500",
    "ethtool -K lo tso off gso off gro off",
];

/// What recording costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// By BPF's statistics.
    pub cpu_percent: f64,
    /// By system time a byte.
    pub difference_percent: f64,
    pub loss_percent: f64,
    pub lost: u64,
}

/// Of one recorder.
#[derive(Debug)]
pub struct Costs {
    pub large: Cost,
    pub small: Cost,
    pub many: Cost,
    pub answers: Cost,
}

/// `None`: it cannot be measured here, which is said.
pub fn measure(which: RecorderKind) -> Option<Costs> {
    let all = || -> Result<Costs, Box<dyn Error>> {
        let large = of(which, crate::LARGE, &[], 1, 0.0)?;
        let many = of(which, "16 connections, 64 KiB", &[], MANY, 0.0)?;
        let small = of(which, crate::SMALL, &PACKETS, 1, 0.0)?;
        let answers = of(which, "web-search answers at 80 %", &PACKETS, MANY, LOAD)?;
        Ok(Costs {
            large,
            small,
            many,
            answers,
        })
    };
    match all() {
        Ok(all) => Some(all),
        Err(error) => {
            println!("could not measure what the {which:?} recorder costs: {error}");
            None
        }
    }
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
    events: usize,
    lost: u64,
    /// Each program, of a measured one.
    each: Vec<ProgramCost>,
}

impl Transfer {
    fn per_byte(&self) -> f64 {
        (self.system + self.reading) / self.bytes_per_second
    }
}

fn of(
    which: RecorderKind,
    what: &str,
    settings: &[&str],
    connections: usize,
    load: f64,
) -> Result<Cost, Box<dyn Error>> {
    let namespace = Namespace::new(settings)?;
    let run = |rate, record, measured| transfer(&namespace, connections, rate, record, measured);
    // Warm, and how much goes.
    let flat = if load > 0.0 { f64::INFINITY } else { 0.0 };
    let rate = load * run(flat, None, false)?.bytes_per_second;
    let mut last = Transfer::default();
    let (mut shares, mut more, mut losses, mut lost) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let without = run(rate, None, false)?;
        let with = run(rate, Some(which), false)?;
        let measured = run(rate, Some(which), true)?;
        let network = measured.system - measured.programs;
        let share = 100.0 * (measured.programs + measured.reading) / network;
        println!(
            "{which:?}, {what}: {:.2} GB/s without, {:.2} with, {:.2} measured; network {network:.3} s, BPF {:.3} s, reading {:.3} s of {} bytes, {share:.2} %; lost {}",
            without.bytes_per_second / 1e9,
            with.bytes_per_second / 1e9,
            measured.bytes_per_second / 1e9,
            measured.programs,
            measured.reading,
            measured.events,
            with.lost + measured.lost
        );
        shares.push(share);
        more.push(100.0 * (with.per_byte() / without.per_byte() - 1.0));
        losses.push(100.0 * (1.0 - with.bytes_per_second / without.bytes_per_second));
        lost += with.lost + measured.lost;
        last = measured;
    }
    print_each(&last.each, last.system - last.programs);
    let cost = Cost {
        cpu_percent: median(&mut shares),
        difference_percent: median(&mut more),
        loss_percent: median(&mut losses),
        lost,
    };
    println!("{which:?}, {what}: {cost:.2?}");
    Ok(cost)
}

/// What the kernel charged to each program, most first.
pub fn print_each(each: &[ProgramCost], network: f64) {
    let mut each: Vec<_> = each.iter().filter(|it| it.runs > 0).collect();
    each.sort_by_key(|it| std::cmp::Reverse(it.nanos));
    for it in each {
        println!(
            "  {}: {} runs, {:.0} ns each, {:.3} %",
            it.program,
            it.runs,
            it.nanos as f64 / it.runs as f64,
            it.nanos as f64 / 1e7 / network
        );
    }
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn transfer(
    namespace: &Namespace,
    connections: usize,
    rate: f64,
    record: Option<RecorderKind>,
    measured: bool,
) -> Result<Transfer, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let program = program.to_string_lossy().into_owned();
    let connections = connections.to_string();
    let mut server = namespace
        .command(&program)
        .args([SERVE, &connections])
        .stdout(Stdio::piped())
        .spawn()?;
    let out = server.stdout.take().ok_or("no output")?;
    let mut reported = BufReader::new(out).lines();
    let mut next = move || -> Result<String, Box<dyn Error>> {
        Ok(reported.next().ok_or("the server said nothing")??)
    };
    let port: u16 = next()?.parse()?;
    let _statistics = measured.then(enable_statistics).transpose()?;
    let mut recorder = match record.map(|which| AnyRecorder::open(which, port)) {
        Some(Err(error)) => {
            server.kill()?;
            server.wait()?;
            return Err(error.into());
        }
        Some(Ok(recorder)) => Some(recorder),
        None => None,
    };
    let words = [SECONDS, rate].map(|number| number.to_string());
    let mut client = namespace
        .command(&program)
        .args([SEND, &port.to_string(), &words[0], &connections, &words[1]])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut transfer = Transfer::default();
    let begun = own_time(true);
    while client.try_wait()?.is_none() {
        if let Some(recorder) = &mut recorder {
            transfer.events += recorder.take()?;
        }
        std::thread::sleep(READ_EVERY);
    }
    if let Some(recorder) = &mut recorder {
        transfer.events += recorder.take()?;
        transfer.reading = own_time(true) - begun;
        let (programs, losses) = recorder.reported();
        transfer.programs = programs.as_secs_f64();
        transfer.lost = losses.total();
        transfer.each = recorder.programs();
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
