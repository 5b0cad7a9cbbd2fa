// SPDX-License-Identifier: Apache-2.0
//! Many runs at once, within what the machine can carry.

use crate::RunError;
use crate::plan::{Group, Plan, draw};
use crate::run::{Outcome, run};
use crate::watch::Watcher;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How often a run that the machine disturbed is tried.
const ATTEMPTS: u32 = 8;

/// What may run at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs.
    pub runs: usize,
    /// Packets with data a second, added up over them.
    pub packets: u64,
}

/// A run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its group.
    pub group: Group,
    /// Its number in the group.
    pub number: u32,
}

/// A run that was done.
#[derive(Debug)]
pub struct Done {
    /// Which.
    pub job: Job,
    /// What was drawn.
    pub plan: Plan,
    /// What it gave.
    pub result: Result<Outcome, RunError>,
    /// How often it was disturbed before.
    pub disturbed: u32,
}

struct Shared {
    /// Each with how often it was disturbed.
    jobs: Mutex<VecDeque<(Job, u32)>>,
    /// Packets a second under way.
    load: Mutex<u64>,
    less: Condvar,
}

/// Runs under way.
#[derive(Debug)]
pub struct Runs {
    results: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
}

impl Runs {
    /// Starts them.
    ///
    /// # Errors
    /// A thread does not start.
    pub fn start(
        jobs: Vec<Job>,
        seed: u64,
        watcher: &Watcher,
        limits: Limits,
    ) -> Result<Self, RunError> {
        let workers = limits.runs.min(jobs.len());
        let shared = Arc::new(Shared {
            jobs: Mutex::new(jobs.into_iter().map(|job| (job, 0)).collect()),
            load: Mutex::new(0),
            less: Condvar::new(),
        });
        let (done, results) = channel();
        let worker = |_| {
            let (shared, watcher, done) = (Arc::clone(&shared), watcher.clone(), done.clone());
            std::thread::Builder::new()
                .name("run".to_owned())
                .spawn(move || {
                    loop {
                        let next = lock(&shared.jobs).pop_front();
                        let Some((job, disturbed)) = next else { return };
                        let (plan, result) = shared.carry_out(job, seed, &watcher, limits.packets);
                        let again = matches!(result, Err(RunError::Disturbed(_)));
                        if again && disturbed + 1 < ATTEMPTS {
                            // Later, when the machine may be quieter.
                            lock(&shared.jobs).push_back((job, disturbed + 1));
                            continue;
                        }
                        let result = Done {
                            job,
                            plan,
                            result,
                            disturbed,
                        };
                        if done.send(result).is_err() {
                            return;
                        }
                    }
                })
                .map_err(RunError::io("start a thread"))
        };
        let threads = (0..workers).map(worker).collect::<Result<_, _>>()?;
        Ok(Runs { results, threads })
    }
}

impl Iterator for Runs {
    type Item = Done;

    /// Waits for the next that is done.
    fn next(&mut self) -> Option<Done> {
        self.results.recv().ok()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn carry_out(
        &self,
        job: Job,
        seed: u64,
        watcher: &Watcher,
        most: u64,
    ) -> (Plan, Result<Outcome, RunError>) {
        let plan = draw(seed, job.group, job.number);
        let weight = plan.packets_a_second().min(most);
        let mut load = lock(&self.load);
        while *load + weight > most {
            load = self.less.wait(load).unwrap_or_else(PoisonError::into_inner);
        }
        *load += weight;
        drop(load);
        // What is lost at random differs from attempt to attempt; the plan does not.
        let result = run(&plan, seed ^ u64::from(job.number), watcher);
        *lock(&self.load) -= weight;
        self.less.notify_all();
        (plan, result)
    }
}
