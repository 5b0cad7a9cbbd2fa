// SPDX-License-Identifier: Apache-2.0
//! Programs run as children: how long, and how much memory.

use std::error::Error;
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a run of a program cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Wall clock.
    pub seconds: f64,
    /// The most memory it had at once.
    pub rss_mib: f64,
}

/// Runs a program to its end; its output goes nowhere.
///
/// # Errors
/// It is missing or fails.
pub fn run(program: &OsStr, arguments: &[&OsStr]) -> Result<Cost, Box<dyn Error>> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = Instant::now();
    let child = command
        .spawn()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    // std's wait does not show the memory used.
    let mut status = 0;
    // SAFETY: a structure of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and no one else waits for it.
    let waited = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    let seconds = began.elapsed().as_secs_f64();
    if waited < 0 || status != 0 {
        return Err(format!("{} failed", program.display()).into());
    }
    Ok(Cost {
        seconds,
        rss_mib: usage.ru_maxrss as f64 / 1024.0,
    })
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
