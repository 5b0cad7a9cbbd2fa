// SPDX-License-Identifier: Apache-2.0
//! What a test's threads took of the processors.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a thread has used so far, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a processor.
    pub ran: u64,
    /// Ready to run, and waiting for a processor (schedstat); `None` where the kernel does not count it.
    pub waited: Option<u64>,
}

impl ThreadTime {
    /// Of the calling thread.
    #[must_use]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // Linux `Documentation/scheduler/sched-stats.rst`: time on the CPU, time on a run queue, time slices.
        let waited = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let waited = waited.and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        ThreadTime {
            ran: u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0),
            waited,
        }
    }

    /// Since an earlier time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        ThreadTime {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self
                .waited
                .zip(earlier.waited)
                .map(|(a, b)| a.saturating_sub(b)),
        }
    }
}

/// What an end took of the processors, in percent of one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// All threads of the test.
    pub percent: f64,
    /// The one that ran most: one thread serves one stream, and no stream is faster than it.
    pub busiest_percent: f64,
    /// How long that one was ready and waited for a processor.
    pub waited_percent: Option<f64>,
}

impl Cpu {
    /// Of threads over a time.
    #[must_use]
    pub fn of(threads: &[ThreadTime], length: Duration) -> Option<Self> {
        let length = length.as_nanos() as f64;
        let needed = |thread: &&ThreadTime| thread.ran + thread.waited.unwrap_or(0);
        let busiest = threads.iter().max_by_key(needed).filter(|_| length > 0.0)?;
        let percent = |nanos: u64| 100.0 * nanos as f64 / length;
        Some(Cpu {
            percent: threads.iter().map(|thread| percent(thread.ran)).sum(),
            busiest_percent: percent(busiest.ran),
            waited_percent: busiest.waited.map(percent),
        })
    }

    /// The part of the time, 0 to 1, in which the busiest thread ran or waited for a processor.
    #[must_use]
    pub fn needed(&self) -> f64 {
        ((self.busiest_percent + self.waited_percent.unwrap_or(0.0)) / 100.0).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_counts_with_its_wait() {
        let thread = |ran, waited| ThreadTime {
            ran,
            waited: Some(waited),
        };
        // Of 10 ns: one ran 4 and waited 5, one ran 5.
        let cpu =
            Cpu::of(&[thread(4, 5), thread(5, 0)], Duration::from_nanos(10)).expect("threads");
        assert_eq!(cpu.percent, 90.0);
        assert_eq!(
            (cpu.busiest_percent, cpu.waited_percent),
            (40.0, Some(50.0))
        );
        assert_eq!(cpu.needed(), 0.9);
        assert_eq!(Cpu::of(&[], Duration::from_nanos(10)), None);
    }
}
