// SPDX-License-Identifier: Apache-2.0
//! What the classifier's advice needs to know of this host.

use crate::interactions::FoundInteraction;
use crate::source::Source;
use slowpath_diagnose::{Advice, AdviceContext};
use slowpath_model::{Finding, IntervalVerdict, TcpStats};
pub use slowpath_text::who;

/// This host's figures; what cannot be read is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFigures {
    total_send_buffer_memory: Option<u64>,
    sum_cwnd: Option<u64>,
    send_buffer_max: Option<u32>,
}

impl HostFigures {
    /// The limits of the source's host, and the sum of its congestion windows.
    pub fn read(source: &dyn Source) -> Self {
        let sum = source
            .connections()
            .map(|c| u64::from(c.snapshot.stats.cwnd) * u64::from(c.snapshot.stats.send_mss))
            .sum();
        let limits = source.host_limits();
        HostFigures {
            total_send_buffer_memory: limits.tcp_memory,
            sum_cwnd: Some(sum),
            send_buffer_max: limits.send_buffer_max,
        }
    }

    /// With the statistics of one connection.
    pub fn with(self, stats: Option<&TcpStats>) -> AdviceContext {
        AdviceContext {
            total_send_buffer_memory: self.total_send_buffer_memory,
            sum_cwnd: self.sum_cwnd,
            send_buffer_max: self.send_buffer_max,
            ..stats.map(AdviceContext::of).unwrap_or_default()
        }
    }
}

/// With what interactions of the same connection ask for: there is one size for a connection's send buffer.
pub fn with_interactions<'a>(
    context: AdviceContext,
    found: impl IntoIterator<Item = &'a FoundInteraction>,
) -> AdviceContext {
    let wanted = found
        .into_iter()
        .filter_map(|found| found.interaction.evidence.send_buffer_wanted());
    AdviceContext {
        wanted_send_buffer: wanted.max(),
        ..context
    }
}

/// What to do about one finding of a verdict.
pub fn on(finding: &Finding, verdict: &IntervalVerdict, context: &AdviceContext) -> Advice {
    slowpath_diagnose::advise(finding, verdict, context)
}
