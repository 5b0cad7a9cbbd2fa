// SPDX-License-Identifier: Apache-2.0
//! Orders on standard input, JSON lines on standard output.

use serde::Serialize;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How far the orders have come; they only advance.
const WAIT: u8 = 0;
const GO: u8 = 1;
const STOP: u8 = 2;
const END: u8 = 3;

/// What was ordered so far, kept by a thread that reads standard input.
#[derive(Clone)]
pub struct Control(Arc<Shared>);

struct Shared {
    order: AtomicU8,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Control {
    pub fn start() -> Self {
        let control = Control(Arc::new(Shared {
            order: AtomicU8::new(WAIT),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }));
        let reader = control.clone();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                match line.trim() {
                    "go" => reader.advance(GO),
                    "stop" => reader.advance(STOP),
                    other => eprintln!("slowpath-workload: unknown order {other:?}"),
                }
            }
            reader.advance(END);
        });
        control
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, to: u8) {
        let _guard = self.lock();
        self.0.order.fetch_max(to, Ordering::Relaxed);
        self.0.changed.notify_all();
    }

    fn wait_for(&self, order: u8) {
        let mut guard = self.lock();
        while self.0.order.load(Ordering::Relaxed) < order {
            let waited = self.0.changed.wait(guard);
            guard = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn wait_for_go(&self) {
        self.wait_for(GO);
    }

    pub fn wait_for_stop(&self) {
        self.wait_for(STOP);
    }

    pub fn wait_for_end(&self) {
        self.wait_for(END);
    }

    pub fn stopped(&self) -> bool {
        self.0.order.load(Ordering::Relaxed) >= STOP
    }

    pub fn ended(&self) -> bool {
        self.0.order.load(Ordering::Relaxed) >= END
    }

    /// Waits until `due`; false if stopped before.
    pub fn sleep_until(&self, due: Instant) -> bool {
        let mut guard = self.lock();
        while !self.stopped() {
            let left = due.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return true;
            }
            let waited = self.0.changed.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

/// Prints one JSON line.
pub fn say(what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
