// SPDX-License-Identifier: Apache-2.0
//! What the benchmarks share: sockets by the thousand in processes of their own, CPU
//! clocks, medians.

pub mod bare;
pub mod budget;
pub mod events;
pub mod farm;
pub mod ingest;
pub mod loss;
pub mod memory;
pub mod namespaces;
pub mod polls;
pub mod transactions;
pub mod volume;

use slowpath_model::Micros;
use std::time::{SystemTime, UNIX_EPOCH};

/// The middle value; the lower of the two middle ones of an even number; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0.0)
}

/// Where the median of what `values` are drawn from lies, with 95 % certainty: between the
/// order statistics n/2 -+ 0.98 sqrt(n) (the binomial distribution's normal approximation).
pub fn median_within(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let reach = 0.98 * n.sqrt();
    let at = |rank: f64| {
        let last = values.len().saturating_sub(1);
        values.get((rank.max(0.0) as usize).min(last)).copied()
    };
    (
        at((n / 2.0 - reach).floor()).unwrap_or(0.0),
        at((n / 2.0 + reach).ceil() - 1.0).unwrap_or(0.0),
    )
}

/// `SEED` of the environment, by which a run is repeated, else one of the present time.
///
/// # Errors
/// It is no number.
pub fn seed() -> Result<u64, String> {
    match std::env::var("SEED") {
        Ok(seed) => (seed.parse()).map_err(|error| format!("SEED={seed}: {error}")),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            Ok(now.map_or(0, |now| now.as_micros() as u64))
        }
    }
}

/// CPU time of this process, user and system.
pub fn own_cpu() -> Micros {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// CPU time of the children of this process that have ended, user and system.
pub fn children_cpu() -> Micros {
    // SAFETY: rusage is plain data, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    Micros(micros(usage.ru_utime) + micros(usage.ru_stime))
}
