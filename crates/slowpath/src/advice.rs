// SPDX-License-Identifier: Apache-2.0
//! What the classifier's advice needs to know of this host.

use crate::source::Source;
use slowpath_diagnose::{Advice, AdviceContext};
use slowpath_model::{Finding, IntervalVerdict, TcpStats};
pub use slowpath_text::who;
use std::fs;

/// This host's figures; what cannot be read is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    total_send_buffer_memory: Option<u64>,
    sum_cwnd: Option<u64>,
    send_buffer_max: Option<u32>,
}

impl Host {
    /// Reads the limits of this host, and sums the congestion windows.
    pub fn read(source: &dyn Source) -> Self {
        let sum = source
            .connections()
            .map(|c| u64::from(c.snapshot.stats.cwnd) * u64::from(c.snapshot.stats.send_mss))
            .sum();
        // The high mark of tcp_mem, in pages, is what all of TCP may take (tcp(7)).
        let pages = last_number(fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok());
        let wmem = last_number(fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok());
        Host {
            total_send_buffer_memory: pages.and_then(|p| p.checked_mul(page_size()?)),
            sum_cwnd: Some(sum),
            send_buffer_max: wmem.and_then(|w| u32::try_from(w).ok()),
        }
    }

    /// With what one connection's statistics tell.
    pub fn with(self, stats: Option<&TcpStats>) -> AdviceContext {
        AdviceContext {
            total_send_buffer_memory: self.total_send_buffer_memory,
            sum_cwnd: self.sum_cwnd,
            send_buffer_max: self.send_buffer_max,
            ..stats.map(AdviceContext::of).unwrap_or_default()
        }
    }
}

fn last_number(text: Option<String>) -> Option<u64> {
    text?.split_whitespace().last()?.parse().ok()
}

fn page_size() -> Option<u64> {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).ok()
}

/// What to do about one finding of a verdict.
pub fn on(finding: &Finding, verdict: &IntervalVerdict, context: &AdviceContext) -> Advice {
    slowpath_diagnose::advise(finding, verdict, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_last_of_three_numbers() {
        assert_eq!(last_number(Some("1\t2\t3\n".to_owned())), Some(3));
        assert_eq!(last_number(Some("x".to_owned())), None);
        assert_eq!(last_number(None), None);
    }
}
