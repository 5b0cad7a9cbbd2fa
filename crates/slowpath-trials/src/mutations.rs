// SPDX-License-Identifier: Apache-2.0
//! Mutations of valid inputs, run through what reads them in the product.

use crate::Tally;
use crate::formats::{FORMATS, Format};
use slowpath_switch::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

/// Inputs of one format in a row.
const BATCH: u64 = 500;
/// An input that takes longer hangs. The slowest takes a tenth of a second on an idle machine.
const HANG: Duration = Duration::from_secs(60);
/// Inputs grow to this at most, as in `fuzz/run.sh`, or to twice what they started as.
const LENGTH: usize = 8_192;
/// Mutations of one input at most.
const MUTATIONS: u64 = 6;
/// Numbers at which lengths and counts overflow.
const EDGES: [u64; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX,
];

/// Inputs of one format; its number is what they are drawn from.
#[derive(Clone, Copy, Debug)]
struct Batch {
    format: usize,
    number: u64,
    inputs: u64,
}

/// What the threads share.
struct Work {
    batches: Vec<Batch>,
    starts: Vec<Vec<Vec<u8>>>,
    seed: u64,
    next: AtomicUsize,
    inputs: AtomicU64,
    findings: Mutex<Vec<String>>,
    /// What each thread reads now, and since when.
    present: Vec<Mutex<Option<(Instant, Batch, u64)>>>,
}

pub(crate) fn run(inputs: u64, seed: u64, tally: &mut Tally) {
    let threads = available_parallelism().map_or(1, usize::from);
    let work = Arc::new(Work {
        batches: batches(inputs),
        starts: FORMATS.iter().map(|format| (format.starts)()).collect(),
        seed,
        next: AtomicUsize::new(0),
        inputs: AtomicU64::new(0),
        findings: Mutex::default(),
        present: (0..threads).map(|_| Mutex::default()).collect(),
    });
    let hook = std::panic::take_hook();
    // What panics is a finding of its own, and what a reader catches is none.
    std::panic::set_hook(Box::new(|_| ()));
    let handles: Vec<_> = (0..threads)
        .map(|thread| {
            let work = work.clone();
            std::thread::spawn(move || work.read_all(thread))
        })
        .collect();
    while !handles.iter().all(|handle| handle.is_finished()) {
        sleep(Duration::from_millis(50));
        if let Some(hang) = work.hang() {
            // Its thread cannot be ended; what the others found counts.
            tally.hangs += 1;
            tally.find(hang);
            break;
        }
    }
    std::panic::set_hook(hook);
    tally.inputs += work.inputs.load(Ordering::Relaxed);
    for finding in locked(&work.findings).drain(..) {
        tally.panics += 1;
        tally.find(finding);
    }
}

/// Batches of all formats, in turns.
fn batches(inputs: u64) -> Vec<Batch> {
    let mut batches = Vec::new();
    for (format, of) in FORMATS.iter().enumerate() {
        let all = (inputs * of.share).div_ceil(1_000);
        for number in 0..all.div_ceil(BATCH) {
            batches.push(Batch {
                format,
                number,
                inputs: BATCH.min(all - number * BATCH),
            });
        }
    }
    batches.sort_by_key(|batch| batch.number);
    batches
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    fn read_all(&self, thread: usize) {
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = self.batches.get(next) else {
                *locked(&self.present[thread]) = None;
                return;
            };
            let format = &FORMATS[batch.format];
            let stream = (batch.format as u64) << 32 | batch.number;
            let mut random = Random::stream(self.seed, stream);
            for input in 0..batch.inputs {
                let bytes = mutated(&self.starts[batch.format], format, &mut random);
                *locked(&self.present[thread]) = Some((Instant::now(), *batch, input));
                self.read(format, *batch, input, &bytes);
            }
            self.inputs.fetch_add(batch.inputs, Ordering::Relaxed);
        }
    }

    fn read(&self, format: &Format, batch: Batch, input: u64, bytes: &[u8]) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (format.check)(bytes))) else {
            return;
        };
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let shown = &bytes[..bytes.len().min(200)];
        locked(&self.findings).push(format!(
            "input {input} of batch {}, {}: {}: {}",
            batch.number,
            format.name,
            text.unwrap_or("a panic"),
            shown.escape_ascii()
        ));
    }

    fn hang(&self) -> Option<String> {
        let present = self.present.iter().filter_map(|it| *locked(it));
        let mut hanging = present.filter(|(since, ..)| since.elapsed() > HANG);
        hanging.next().map(|(_, batch, input)| {
            let name = FORMATS[batch.format].name;
            format!("input {input} of batch {}, {name}: no end", batch.number)
        })
    }
}

fn below(random: &mut Random, most: usize) -> usize {
    (random.next_u64() % most.max(1) as u64) as usize
}

/// One of the starts with some mutations, and in every second one its checksums made right.
fn mutated(starts: &[Vec<u8>], format: &Format, random: &mut Random) -> Vec<u8> {
    let mut bytes = starts[below(random, starts.len())].clone();
    let most = LENGTH.max(2 * bytes.len());
    for _ in 0..1 + random.next_u64() % MUTATIONS {
        mutate(&mut bytes, starts, random);
        bytes.truncate(most);
    }
    if let Some(repair) = format.repair
        && random.next_u64() & 1 == 0
    {
        repair(&mut bytes);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, starts: &[Vec<u8>], random: &mut Random) {
    let at = below(random, bytes.len());
    let end = at + below(random, bytes.len() - at.min(bytes.len()));
    match random.next_u64() % 9 {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << (random.next_u64() % 8),
        1 if !bytes.is_empty() => bytes[at] = random.next_u64() as u8,
        2 => {
            // A number at an edge, in as many bytes as numbers have.
            let number = EDGES[below(random, EDGES.len())];
            let length = 1 << below(random, 4);
            let ordered = match random.next_u64() & 1 {
                0 => number.to_le_bytes()[..length].to_vec(),
                _ => number.to_be_bytes()[8 - length..].to_vec(),
            };
            for (byte, new) in bytes.iter_mut().skip(at).zip(ordered) {
                *byte = new;
            }
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copied = bytes[at..end].to_vec();
            let to = below(random, bytes.len());
            bytes.splice(to..to, copied);
        }
        5 => bytes.truncate(at),
        6 => {
            let new: Vec<u8> = (0..1 + below(random, 16))
                .map(|_| random.next_u64() as u8)
                .collect();
            bytes.splice(at..at, new);
        }
        7 => {
            // A part of another one.
            let other = &starts[below(random, starts.len())];
            let from = below(random, other.len());
            let until = from + below(random, other.len() - from);
            bytes.splice(at..end, other[from..until].iter().copied());
        }
        _ => {
            let number = random.next_u64() >> (random.next_u64() % 64);
            bytes.splice(at..at, number.to_string().into_bytes());
        }
    }
}
