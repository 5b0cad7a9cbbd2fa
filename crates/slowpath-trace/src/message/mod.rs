// SPDX-License-Identifier: Apache-2.0
//! Messages, and why some of them took long.
//!
//! What enters: what [`verdict`](crate::verdict) knows of a direction, segment by segment.
//! What leaves: [`Messages`]: how many there were, and the slowest of them with the causes.
//!
//! A message is all bytes between two idle points: "if a socket call starts after all the
//! previous packets are acknowledged, we treat the socket call as a new message" (DETER,
//! NSDI 2019, section 5.1). Packets show no socket calls: data that follows when everything was
//! acknowledged begins a message, unless it was that very ACK that let it go (Nagle's rule,
//! a window of one segment), in which case it had been written before. It begins one too
//! if the other side has sent data in between.
//!
//! A message lasts from its first segment to the ACK of its last byte, as captured.
//!
//! **Categories**, DETER's (section 5.2, Tables 2 and 3). Each has its rule; a message may
//! have several, for one thing leads to another.
//!
//! 1. *Late fast retransmission*: it came later after the first duplicate ACK than every
//!    loss detection allows: a smoothed RTT (the most that RACK waits, RFC 8985 section 6.2), or
//!    10 ms, a jiffy of a slow clock, if that is longer. Its time: from the duplicate ACK on.
//! 2. *ACK drops*: a timer's or probe's retransmission of data that had arrived. Either
//!    its ACK passed here before (it was lost after that), or the first ACK of the data
//!    reports it as a duplicate (DSACK) 200 ms after the data: longer than any ACK is kept
//!    back (Linux: TCP_DELACK_MAX). Its time: the wait.
//! 3. *Tail drops*: a timer or probe had to repair a loss after which nothing arrived (no
//!    duplicate ACK, no SACK block), and rule 2 does not hold. Its time: the wait and the repair.
//! 4. *Timeout* (RTO): a retransmission timer expired. Its time: the line's.
//! 5. *Zero window*: its time is the line's.
//! 6. *Receive-buffer shrinking with delayed ACKs*: two ACKs or more were kept back that let
//!    the sender go on, while the right edge of the window stood still: the application does not
//!    read, and Linux then delays ACKs of more than two segments as well. Their time above
//!    the RTT.
//! 7. *Multiple delayed ACKs*: the same with a window that moved.
//! 8. *Fast retransmission*: recovery, in time. Its time: the line's.
//! 9. *Congestion* (low throughput): the congestion window held the message back for longer
//!    than anything else, and there was congestion to see: a loss, a CE or ECE mark, or a
//!    mean RTT of 1.45 times the least and 1 ms more (the threshold of
//!    [`verdict::Losses`](crate::verdict::Losses)).

mod collect;

pub(crate) use collect::Collector;

use crate::tcp::Moment;
use crate::verdict::Shares;
use std::time::Duration;

/// Why a message took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Category {
    /// Rule 1.
    LateFastRetransmit = 0,
    /// Rule 2.
    AckDrop,
    /// Rule 3.
    TailDrop,
    /// Rule 4.
    Timeout,
    /// Rule 5.
    ZeroWindow,
    /// Rule 6.
    BufferShrink,
    /// Rule 7.
    DelayedAcks,
    /// Rule 8.
    FastRetransmit,
    /// Rule 9.
    Congestion,
}

impl Category {
    /// All, in the order of their rules.
    pub const ALL: [Category; 9] = [
        Category::LateFastRetransmit,
        Category::AckDrop,
        Category::TailDrop,
        Category::Timeout,
        Category::ZeroWindow,
        Category::BufferShrink,
        Category::DelayedAcks,
        Category::FastRetransmit,
        Category::Congestion,
    ];

    /// The word for it in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Category::LateFastRetransmit => "LateFastRetransmit",
            Category::AckDrop => "AckDrop",
            Category::TailDrop => "TailDrop",
            Category::Timeout => "Timeout",
            Category::ZeroWindow => "ZeroWindow",
            Category::BufferShrink => "BufferShrink",
            Category::DelayedAcks => "DelayedAcks",
            Category::FastRetransmit => "FastRetransmit",
            Category::Congestion => "Congestion",
        }
    }
}

/// One cause of a message's duration, with its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which.
    pub category: Category,
    /// How much of the message's time.
    pub time: Duration,
    /// How often.
    pub events: u64,
    /// The first segment that shows it.
    pub first: Moment,
    /// The last one.
    pub last: Moment,
}

/// All bytes between two idle points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its first segment.
    pub start: Moment,
    /// The ACK of its last byte; the capture's end where there is none.
    pub end: Moment,
    /// Whether that ACK was observed.
    pub complete: bool,
    /// Its first byte's sequence number, relative.
    pub sequence: i64,
    /// Its payload.
    pub bytes: u64,
    /// What the sender waited for in its time.
    pub limits: Shares,
    /// Why it took long: most time first, then in the order of the rules.
    pub causes: Vec<Cause>,
}

impl Message {
    /// From the first segment to the ACK of the last byte.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let nanos = self.end.time.0.saturating_sub(self.start.time.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Bytes a second; `None` without a duration.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        let seconds = self.duration().as_secs_f64();
        (seconds > 0.0).then(|| self.bytes as f64 / seconds)
    }
}

/// The messages of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// How many.
    pub count: u64,
    /// Payload of all.
    pub bytes: u64,
    /// Duration of all.
    pub time: Duration,
    /// How many had a cause of each category, in the order of [`Category::ALL`].
    pub categories: [u64; Category::ALL.len()],
    /// The slowest, in the order of their beginning.
    pub slowest: Vec<Message>,
}

impl Messages {
    /// How many messages had a cause of that category.
    #[must_use]
    pub fn with(&self, category: Category) -> u64 {
        self.categories[category as usize]
    }
}
