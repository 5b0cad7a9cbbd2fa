// SPDX-License-Identifier: Apache-2.0
//! The tail-latency categories of DETER's Tables 2 and 3.

use super::link::Link;
use super::wait_kind::Waited;
use super::waits::Wait;
use std::time::Duration;

/// Why a message was slow, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// It took less than twice its unimpeded time.
    NotSlow,
    /// Retransmission timeouts that are none of the two below (Tables 2 and 3: RTO).
    Timeout,
    /// Timeouts, as the last packets were lost (Table 3: tail drops).
    TailDrops,
    /// Timeouts, as acknowledgments were lost (Table 3: ACK drops).
    AckDrops,
    /// A fast retransmission (Table 2: FR).
    FastRetransmission,
    /// A fast retransmission for which far more duplicates were needed, or which had to wait for other data (Table 3: late FR).
    LateFastRetransmission,
    /// The receive window (Table 2: Rwnd = 0).
    ReceiveWindow,
    /// Delayed acknowledgments (Table 2: multiple delayed ACKs).
    DelayedAcks,
    /// A probe or a timer of today's loss detection: neither existed in DETER's kernel.
    LossProbe,
    /// Bytes of an earlier message were not there yet, whatever that one waited for: none of the tables', whose connections carry one message at a time.
    EarlierMessage,
    /// The application wrote it in pieces, later than they could be sent: none of the tables', whose messages are written at once.
    Application,
    /// None of them: low throughput (Table 3: congestion).
    Congestion,
    /// It never arrived as a whole.
    Unfinished,
}

impl Category {
    const fn texts(self) -> [&'static str; 2] {
        match self {
            Category::NotSlow => ["not_slow", "not slow"],
            Category::Timeout => ["timeout", "retransmission timeout"],
            Category::TailDrops => ["tail_drops", "tail drops"],
            Category::AckDrops => ["ack_drops", "ACK drops"],
            Category::FastRetransmission => ["fast_retransmission", "fast retransmission"],
            Category::LateFastRetransmission => {
                ["late_fast_retransmission", "late fast retransmission"]
            }
            Category::ReceiveWindow => ["receive_window", "receive window"],
            Category::DelayedAcks => ["delayed_acks", "delayed ACKs"],
            Category::LossProbe => ["loss_probe", "loss probe"],
            Category::EarlierMessage => ["earlier_message", "behind an earlier message"],
            Category::Application => ["application", "the application wrote slowly"],
            Category::Congestion => ["congestion", "congestion"],
            Category::Unfinished => ["unfinished", "unfinished"],
        }
    }

    fn is_fast(self) -> bool {
        matches!(
            self,
            Category::FastRetransmission | Category::LateFastRetransmission
        )
    }

    /// One name for each.
    pub fn name(self) -> &'static str {
        self.texts()[0]
    }

    /// In words.
    pub fn words(self) -> &'static str {
        self.texts()[1]
    }
}

/// `late`: what it took, and by how much that was longer than the unimpeded time.
pub(super) fn of(late: Option<(Duration, Duration)>, waits: &[Wait]) -> Category {
    let Some((took, late)) = late else {
        return Category::Unfinished;
    };
    if late * 2 < took {
        return Category::NotSlow;
    }
    let mut sums: Vec<(Category, Duration)> = Vec::new();
    let mut add = |category: Category, lasted: Duration| match sums
        .iter_mut()
        .find(|(known, _)| *known == category)
    {
        Some((_, sum)) => *sum += lasted,
        None => sums.push((category, lasted)),
    };
    let mut network = Duration::ZERO;
    for wait in waits {
        if let Some(category) = of_wait(wait) {
            add(category, wait.duration());
        } else {
            let repair = waits.iter().filter_map(|repair| during(wait, repair));
            let repair = repair.max_by_key(|(_, lasted)| *lasted);
            let (category, lasted) = repair.unwrap_or((Category::Congestion, Duration::ZERO));
            if !lasted.is_zero() {
                add(category, lasted);
            }
            network += wait.duration() - lasted;
        }
    }
    // Waiting for the congestion window is a part of the unimpeded time too: slow start.
    let network = network.saturating_sub(took - late);
    let all: Duration = sums.iter().map(|(_, sum)| *sum).sum();
    // Of two that are as long the one that came first.
    let longest = sums.iter().rev().max_by_key(|(_, sum)| *sum);
    match longest {
        Some((category, sum)) if *sum >= network && all * 2 >= late => *category,
        Some((category, sum)) if *sum >= network && category.is_fast() => *category,
        _ => Category::Congestion,
    }
}

/// How long it waited for the network while what a fast retransmission repaired was lost: nothing else could come.
fn during(wait: &Wait, repair: &Wait) -> Option<(Category, Duration)> {
    let from = repair.lost_at?.max(wait.from);
    let until = repair.until.min(wait.until);
    let lasted = Duration::from_nanos(until.0.checked_sub(from.0)?);
    (wait.waited == Waited::Network).then_some((of_wait(repair)?, lasted))
}

fn of_wait(wait: &Wait) -> Option<Category> {
    let has = |wanted: fn(&Link) -> bool| wait.links.iter().any(wanted);
    Some(match wait.waited {
        Waited::Timeout if has(|link| matches!(link, Link::AckDrops { .. })) => Category::AckDrops,
        Waited::Timeout if has(|link| matches!(link, Link::TailDrops { .. })) => {
            Category::TailDrops
        }
        Waited::Timeout => Category::Timeout,
        Waited::FastRetransmission if wait.late => Category::LateFastRetransmission,
        Waited::FastRetransmission => Category::FastRetransmission,
        Waited::ReceiveWindow => Category::ReceiveWindow,
        Waited::DelayedAck => Category::DelayedAcks,
        Waited::LossProbe | Waited::ReorderingTimer => Category::LossProbe,
        Waited::EarlierMessage => Category::EarlierMessage,
        Waited::Application => Category::Application,
        Waited::Network | Waited::CongestionWindow => return None,
    })
}
