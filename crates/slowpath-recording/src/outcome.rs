// SPDX-License-Identifier: Apache-2.0
//! What a run of a handler decided from things outside the connection.
//!
//! A file, a script and the kernel know an outcome as three numbers: the decision's, and two more whose meaning depends on it. Here is the only place
//! that makes [`Outcome`]s of these ([`Outcome::from_numbers`]) and the reverse ([`Outcome::numbers`]); `docs/reference/recording-format.md` lists them.

use crate::fields::Field;
use std::cmp::Ordering;

/// What is decided from things outside the connection. Each has its number in the kernel (`enum slowpath_decision` and `enum lab_following_decision` in
/// `lab/kernel`) and in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// [`Outcome::SmallQueue`].
    SmallQueue,
    /// [`Outcome::Autocork`].
    Autocork,
    /// [`Outcome::HostQueue`].
    HostQueue,
    /// [`Outcome::DeviceIdle`].
    DeviceIdle,
    /// [`Outcome::Random`].
    Random,
    /// [`Outcome::MemoryPressure`].
    MemoryPressure,
    /// [`Outcome::Clock`].
    Clock,
    /// [`Outcome::Ticks`].
    Ticks,
    /// [`Outcome::DeviceMemory`].
    DeviceMemory,
    /// [`Outcome::Flush`].
    Flush,
    /// [`Outcome::Backlog`].
    Backlog,
    /// [`Outcome::Merged`].
    Merged,
    /// [`Outcome::Comparison`].
    Comparison,
    /// [`Outcome::Order`].
    Order,
    /// [`Outcome::Observed`].
    Observed,
    /// [`Outcome::Fragment`].
    Fragment,
    /// [`Outcome::Metrics`].
    Metrics,
    /// [`Outcome::Refused`].
    Refused,
    /// [`Outcome::Piece`].
    Piece,
    /// [`Outcome::Joined`].
    Joined,
}

impl Decision {
    /// Every one, by its number in the kernel and in files.
    pub const ALL: [Decision; 20] = [
        Decision::SmallQueue,
        Decision::Autocork,
        Decision::HostQueue,
        Decision::DeviceIdle,
        Decision::Random,
        Decision::MemoryPressure,
        Decision::Clock,
        Decision::Ticks,
        Decision::DeviceMemory,
        Decision::Flush,
        Decision::Backlog,
        Decision::Merged,
        Decision::Comparison,
        Decision::Order,
        Decision::Observed,
        Decision::Fragment,
        Decision::Metrics,
        Decision::Refused,
        Decision::Piece,
        Decision::Joined,
    ];

    /// Its place in [`Decision::ALL`].
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// A decision that did not go as it usually does. Without an outcome the answer is no, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `tcp_small_queue_check`: whether too much of this socket waits in the device.
    SmallQueue {
        /// Laboratory: how often the run had asked before. Stock kernels: how many packets the run had sent.
        nth: u32,
        /// The socket has to wait.
        throttled: bool,
    },
    /// `tcp_should_autocork`: whether earlier packets are still in the device.
    Autocork {
        /// How often the run had asked before.
        nth: u32,
        /// They are.
        corked: bool,
    },
    /// `skb_still_in_host_queue`: whether what is to be sent again has not left the host yet.
    HostQueue {
        /// Laboratory: how often the run had asked before. Stock kernels: how many packets the run had sent.
        nth: u32,
        /// It has not.
        queued: bool,
    },
    /// `tcp_rate_check_app_limited`: whether nothing waits in the device.
    DeviceIdle {
        /// How often the run had asked before.
        nth: u32,
        /// Nothing does.
        idle: bool,
    },
    /// A random number: BBR's phase.
    Random {
        /// How often the run had drawn one before.
        nth: u32,
        /// The number.
        drawn: u32,
    },
    /// `tcp_under_memory_pressure`: whether memory is short.
    MemoryPressure {
        /// How often the run had asked before.
        nth: u32,
        /// It is.
        short: bool,
    },
    /// What TCP's clock read, of stock kernels; its first reading in a run is the run's own time.
    Clock {
        /// Which reading of the run, from 1 (the second).
        reading: u32,
        /// Nanoseconds after the run's time.
        after: u32,
    },
    /// How far `jiffies` had advanced since the run began. Of stock kernels.
    Ticks {
        /// From when on, or for which reader.
        at: TicksAt,
        /// Ticks.
        ticks: u32,
    },
    /// `sk_wmem_alloc`; 1 where it is not recorded. Of stock kernels.
    DeviceMemory {
        /// The number of packets that the run had sent by then.
        sent: u32,
        /// Bytes.
        bytes: u32,
    },
    /// The call handled its backlog while it held the lock. Of stock kernels.
    Flush {
        /// What the moment is known by.
        queue: Queue,
        /// So much was in that queue.
        bytes: u32,
    },
    /// How much memory waited in the backlog; 0 where it is not recorded. Of stock kernels.
    Backlog {
        /// When the run had read clocks and sent packets so often in all.
        done: u32,
        /// Bytes.
        bytes: u32,
    },
    /// A packet that was merged in the backlog with those before it and does not follow them. Of stock kernels.
    Merged {
        /// Its place among such packets of the run, from 0.
        place: u32,
        /// Its number less the first one's.
        further: u32,
    },
    /// What a comparison of clocks gave, or the number that the run made of a time; where the recorded times give something else.
    Comparison {
        /// Which of the run's comparisons, from 0.
        number: u32,
        /// What it gave.
        gave: u32,
    },
    /// The number of runs of the end that accepted, of the very same moment, that came before this one of the end that connected. Without this outcome none did.
    Order {
        /// How many.
        earlier: u32,
    },
    /// Nothing was decided: a field of the socket was that before the run, when the light recorder looked.
    Observed {
        /// Which field.
        field: Field,
        /// What it was.
        value: u32,
    },
    /// Where the data of a send began. Of stock kernels.
    Fragment(Fragment),
    /// What came of what earlier connections to the same host left (`tcp_init_metrics`); without this outcome nothing did. Of stock kernels.
    Metrics {
        /// Which of the connection's variables.
        metric: Metric,
        /// What it became, in its unit.
        value: u32,
    },
    /// A queue did not simply take a packet. Of stock kernels.
    Refused(Refused),
    /// The packet that came is only a piece of the one that was sent, which something on the way had cut. Of stock kernels.
    Piece {
        /// Which packet: 0 the run's own, else one more than its place among [`Outcome::Merged`].
        packet: u32,
        /// The bytes of the packet that was sent before this piece.
        offset: u32,
    },
    /// The packet that came has bytes of its own: it was made of several, or of several pieces, that follow each other (GRO), or of one that its sender
    /// still has (veth copies it before). Without this outcome it is the packet that was sent, or one piece of it; what the sender's own device had cut
    /// is one packet again. Of stock kernels.
    Joined {
        /// Which packet, as in [`Outcome::Piece`].
        packet: u32,
        /// What it holds.
        stretch: Stretch,
    },
}

/// From when on `jiffies` had advanced so far, or who noted it. A tick in the midst of a run comes before one of its readers and after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicksAt {
    /// When the run had read clocks and sent packets so often in all; below 2^24.
    Done(u32),
    /// A single reader noted it.
    Reader {
        /// Which.
        reader: Reader,
        /// Packets that the run had sent; below 2^24.
        sent: u32,
    },
}

/// Counts beside a reader are below that.
const READER_SHIFT: u32 = 24;
const COUNTS: u32 = (1 << READER_SHIFT) - 1;

impl TicksAt {
    fn number(self) -> u32 {
        match self {
            TicksAt::Done(count) => count & COUNTS,
            TicksAt::Reader { reader, sent } => (reader as u32) << READER_SHIFT | sent & COUNTS,
        }
    }

    fn from_number(number: u32) -> Option<TicksAt> {
        let (reader, count) = (number >> READER_SHIFT, number & COUNTS);
        if reader == 0 {
            return Some(TicksAt::Done(count));
        }
        let reader = *Reader::ALL.get(reader as usize - 1)?;
        Some(TicksAt::Reader {
            reader,
            sent: count,
        })
    }
}

/// Which variable of the kernel notes what `jiffies` were (`enum slowpath_reader`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// When data came last (`lrcvtime`).
    Received = 1,
    /// When data was sent last (`lsndtime`); of the packet with that count.
    Sent,
    /// When the congestion window changed last (`snd_cwnd_stamp`).
    WindowChanged,
    /// CUBIC, when it changes the window (`cubictcp_cong_avoid`).
    Cubic,
    /// `tcp_send_delayed_ack`.
    DelayedAck,
    /// When what was out of the window was answered last (`last_oow_ack_time`).
    OutOfWindow,
}

impl Reader {
    const ALL: [Reader; 6] = [
        Reader::Received,
        Reader::Sent,
        Reader::WindowChanged,
        Reader::Cubic,
        Reader::DelayedAck,
        Reader::OutOfWindow,
    ];
}

/// A queue whose length says when a call handled its backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Bytes that were not acknowledged.
    Unacknowledged,
    /// Bytes that were not read.
    Unread,
}

impl Queue {
    const ALL: [Queue; 2] = [Queue::Unacknowledged, Queue::Unread];
}

/// Where the data of a send began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// In the page that the task fills with data for all its sockets. Without an outcome: in a page that is empty.
    TaskPage {
        /// Bytes of it that were filled.
        filled: u16,
        /// Its size: bytes.
        size: u16,
    },
    /// In the first page of a file. Without an outcome: at its beginning.
    File {
        /// Bytes.
        offset: u32,
    },
}

/// A variable that earlier connections to the same host set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The retransmission timeout, in ticks.
    Timeout,
    /// The reordering threshold, in packets.
    Reordering,
    /// The slow start threshold, in packets.
    SlowStartThreshold,
    /// The largest congestion window, in packets.
    LargestWindow,
}

impl Metric {
    const ALL: [Metric; 4] = [
        Metric::Timeout,
        Metric::Reordering,
        Metric::SlowStartThreshold,
        Metric::LargestWindow,
    ];
}

/// Which queue did not simply take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// That of the device.
    Device {
        /// The number of packets that the run had sent by then.
        sent: u32,
        /// `NET_XMIT_DROP` (1), `NET_XMIT_CN` (2; include/linux/netdevice.h), or an error number.
        result: i32,
    },
    /// That of the listener, in a run before there is a socket.
    Listener {
        /// Of a packet: [`QUEUE_FULL`] or [`QUEUE_COOKIE`]. Of the request's timer: how often a SYN-ACK is sent again, if less often than usual.
        result: u32,
    },
}

/// No further connection may wait to be accepted.
pub const QUEUE_FULL: u32 = 1;
/// The SYN is answered by a cookie.
pub const QUEUE_COOKIE: u32 = 2;

/// Stands for the queue of the listener where otherwise packets are counted (`LAB_LISTENER`).
const LISTENER: u32 = 0x00ff_ffff;

/// Sequence numbers that a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stretch {
    length: u32,
    further: u32,
}

impl Stretch {
    /// No kernel makes longer ones (`GRO_MAX_SIZE`).
    const LENGTH_BITS: u32 = 20;

    /// `length`: sequence numbers, bytes and one for a FIN, below 2^20. `further`: the number of packets behind the one with the packet's number that are in it, or a
    /// piece of the last; below 2^12. `None`: either is too large.
    pub fn new(length: u32, further: u32) -> Option<Stretch> {
        let fits =
            length >> Self::LENGTH_BITS == 0 && further >> (u32::BITS - Self::LENGTH_BITS) == 0;
        fits.then_some(Stretch { length, further })
    }

    /// Sequence numbers: bytes, and one for a FIN.
    pub fn length(self) -> u32 {
        self.length
    }

    /// The number of packets behind the one with the packet's number that are in it, or a piece of the last.
    pub fn further(self) -> u32 {
        self.further
    }

    fn number(self) -> u32 {
        self.further << Self::LENGTH_BITS | self.length
    }

    fn from_number(number: u32) -> Stretch {
        Stretch {
            length: number & ((1 << Self::LENGTH_BITS) - 1),
            further: number >> Self::LENGTH_BITS,
        }
    }
}

impl Outcome {
    /// Which decision it is of.
    pub fn decision(&self) -> Decision {
        match self {
            Outcome::SmallQueue { .. } => Decision::SmallQueue,
            Outcome::Autocork { .. } => Decision::Autocork,
            Outcome::HostQueue { .. } => Decision::HostQueue,
            Outcome::DeviceIdle { .. } => Decision::DeviceIdle,
            Outcome::Random { .. } => Decision::Random,
            Outcome::MemoryPressure { .. } => Decision::MemoryPressure,
            Outcome::Clock { .. } => Decision::Clock,
            Outcome::Ticks { .. } => Decision::Ticks,
            Outcome::DeviceMemory { .. } => Decision::DeviceMemory,
            Outcome::Flush { .. } => Decision::Flush,
            Outcome::Backlog { .. } => Decision::Backlog,
            Outcome::Merged { .. } => Decision::Merged,
            Outcome::Comparison { .. } => Decision::Comparison,
            Outcome::Order { .. } => Decision::Order,
            Outcome::Observed { .. } => Decision::Observed,
            Outcome::Fragment(_) => Decision::Fragment,
            Outcome::Metrics { .. } => Decision::Metrics,
            Outcome::Refused(_) => Decision::Refused,
            Outcome::Piece { .. } => Decision::Piece,
            Outcome::Joined { .. } => Decision::Joined,
        }
    }

    /// Its two numbers in files and scripts: which answer of that decision it is, and the answer.
    pub fn numbers(&self) -> [u32; 2] {
        match *self {
            Outcome::SmallQueue { nth, throttled } => [nth, throttled.into()],
            Outcome::Autocork { nth, corked } => [nth, corked.into()],
            Outcome::HostQueue { nth, queued } => [nth, queued.into()],
            Outcome::DeviceIdle { nth, idle } => [nth, idle.into()],
            Outcome::Random { nth, drawn } => [nth, drawn],
            Outcome::MemoryPressure { nth, short } => [nth, short.into()],
            Outcome::Clock { reading, after } => [reading, after],
            Outcome::Ticks { at, ticks } => [at.number(), ticks],
            Outcome::DeviceMemory { sent, bytes } => [sent, bytes],
            Outcome::Flush { queue, bytes } => [queue as u32, bytes],
            Outcome::Backlog { done, bytes } => [done, bytes],
            Outcome::Merged { place, further } => [place, further],
            Outcome::Comparison { number, gave } => [number, gave],
            Outcome::Order { earlier } => [0, earlier],
            Outcome::Observed { field, value } => [field as u32, value],
            Outcome::Fragment(Fragment::TaskPage { filled, size }) => {
                [0, u32::from(size) << 16 | u32::from(filled)]
            }
            Outcome::Fragment(Fragment::File { offset }) => [1, offset],
            Outcome::Metrics { metric, value } => [metric as u32, value],
            Outcome::Refused(Refused::Device { sent, result }) => [sent, result as u32],
            Outcome::Refused(Refused::Listener { result }) => [LISTENER, result],
            Outcome::Piece { packet, offset } => [packet, offset],
            Outcome::Joined { packet, stretch } => [packet, stretch.number()],
        }
    }

    /// What these numbers mean: the reverse of [`Outcome::numbers`]. `None`: nothing; no recorder writes them.
    pub fn from_numbers(decision: Decision, first: u32, second: u32) -> Option<Outcome> {
        Some(match decision {
            Decision::SmallQueue
            | Decision::Autocork
            | Decision::HostQueue
            | Decision::DeviceIdle
            | Decision::MemoryPressure => return Outcome::answer(decision, first, second),
            Decision::Random => Outcome::Random {
                nth: first,
                drawn: second,
            },
            Decision::Clock => Outcome::Clock {
                reading: first,
                after: second,
            },
            Decision::Ticks => Outcome::Ticks {
                at: TicksAt::from_number(first)?,
                ticks: second,
            },
            Decision::DeviceMemory => Outcome::DeviceMemory {
                sent: first,
                bytes: second,
            },
            Decision::Flush => Outcome::Flush {
                queue: *Queue::ALL.get(first as usize)?,
                bytes: second,
            },
            Decision::Backlog => Outcome::Backlog {
                done: first,
                bytes: second,
            },
            Decision::Merged => Outcome::Merged {
                place: first,
                further: second,
            },
            Decision::Comparison => Outcome::Comparison {
                number: first,
                gave: second,
            },
            Decision::Order if first == 0 => Outcome::Order { earlier: second },
            Decision::Order => return None,
            Decision::Observed => Outcome::Observed {
                field: *Field::ALL.get(first as usize)?,
                value: second,
            },
            Decision::Fragment => Outcome::Fragment(match first {
                0 => Fragment::TaskPage {
                    filled: second as u16,
                    size: (second >> 16) as u16,
                },
                1 => Fragment::File { offset: second },
                _ => return None,
            }),
            Decision::Metrics => Outcome::Metrics {
                metric: *Metric::ALL.get(first as usize)?,
                value: second,
            },
            Decision::Refused => Outcome::Refused(match first {
                LISTENER => Refused::Listener { result: second },
                sent => Refused::Device {
                    sent,
                    result: second as i32,
                },
            }),
            Decision::Piece => Outcome::Piece {
                packet: first,
                offset: second,
            },
            Decision::Joined => Outcome::Joined {
                packet: first,
                stretch: Stretch::from_number(second),
            },
        })
    }

    /// Of a decision that is yes (1) or no (0).
    fn answer(decision: Decision, nth: u32, answer: u32) -> Option<Outcome> {
        let yes = (answer < 2).then_some(answer == 1)?;
        Some(match decision {
            Decision::SmallQueue => Outcome::SmallQueue {
                nth,
                throttled: yes,
            },
            Decision::Autocork => Outcome::Autocork { nth, corked: yes },
            Decision::HostQueue => Outcome::HostQueue { nth, queued: yes },
            Decision::DeviceIdle => Outcome::DeviceIdle { nth, idle: yes },
            Decision::MemoryPressure => Outcome::MemoryPressure { nth, short: yes },
            _ => return None,
        })
    }

    /// Orders outcomes of one run: by decision, then by which answer of it.
    pub fn key(&self) -> (Decision, u32) {
        (self.decision(), self.numbers()[0])
    }
}

/// By their numbers: files list patterns in this order.
impl Ord for Outcome {
    fn cmp(&self, other: &Outcome) -> Ordering {
        let all = |it: &Outcome| (it.decision(), it.numbers());
        all(self).cmp(&all(other))
    }
}

impl PartialOrd for Outcome {
    fn partial_cmp(&self, other: &Outcome) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
