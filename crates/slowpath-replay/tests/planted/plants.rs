// SPDX-License-Identifier: Apache-2.0
//! Scenarios of one message whose cause is planted: what is done to its packets, its windows or its applications decides why it is slow.

use slowpath_explain::{Category, Explanation, Link, Wait, Waited};
use slowpath_netsim::scenario::{Scenario, ScenarioError, Substrate};
use slowpath_switch::Random;

/// Bytes of data in a full segment.
pub const SEGMENT: u64 = 1448;
/// What counts as data on a line, for losses by number.
const DATA: &str = "at-least = \"100 B\"";
/// Linux 4.4 as DETER has it: the retransmission timer and duplicate ACKs repair.
const CLASSIC: &str = "loss-detection = \"duplicate-acks\"\ntail-loss-probe = false\n";

/// What makes the message slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The congestion window, which begins small and grows by a segment each round trip.
    CongestionWindow,
    /// A receive buffer below the bandwidth-delay product, read at once.
    ReceiveWindow,
    /// The last packets are lost, or too few behind a lost one arrive: the retransmission timer.
    Timer,
    /// The last packets are lost: a tail loss probe.
    Probe,
    /// A packet is lost and enough behind it arrive.
    FastRetransmission,
    /// An acknowledgment that the receiver delays.
    DelayedAck,
    /// The sending application writes piece by piece.
    Writer,
    /// The receiving application reads slowly.
    Reader,
}

/// All, in the order in which they are drawn.
pub const CAUSES: [Cause; 8] = [
    Cause::CongestionWindow,
    Cause::ReceiveWindow,
    Cause::Timer,
    Cause::Probe,
    Cause::FastRetransmission,
    Cause::DelayedAck,
    Cause::Writer,
    Cause::Reader,
];

impl Cause {
    /// Whether a message's explanation names it.
    pub fn is_named_by(self, it: &Explanation) -> bool {
        let unread = it.chain().any(|link| matches!(link, Link::Unread { .. }));
        match self {
            Cause::CongestionWindow => {
                it.category == Category::Congestion && longest(it) == Some(Waited::CongestionWindow)
            }
            Cause::ReceiveWindow => it.category == Category::ReceiveWindow && !unread,
            Cause::Reader => it.category == Category::ReceiveWindow && unread,
            Cause::Timer => matches!(it.category, Category::Timeout | Category::TailDrops),
            Cause::Probe => it.category == Category::LossProbe,
            Cause::FastRetransmission => it.category == Category::FastRetransmission,
            Cause::DelayedAck => it.category == Category::DelayedAcks,
            Cause::Writer => it.category == Category::Application,
        }
    }

    /// Whether a wait is of that kind.
    pub fn is_of(self, wait: &Wait) -> bool {
        let kind = wait.waited;
        match self {
            Cause::CongestionWindow => kind == Waited::CongestionWindow,
            Cause::ReceiveWindow | Cause::Reader => kind == Waited::ReceiveWindow,
            Cause::Timer => kind == Waited::Timeout,
            Cause::Probe => kind == Waited::LossProbe,
            Cause::FastRetransmission => kind == Waited::FastRetransmission,
            Cause::DelayedAck => kind == Waited::DelayedAck,
            Cause::Writer => kind == Waited::Application,
        }
    }
}

/// The kind of wait that took most of the message's time.
fn longest(it: &Explanation) -> Option<Waited> {
    let mut sums = std::collections::BTreeMap::new();
    for wait in &it.waits {
        *sums.entry(wait.waited).or_insert(0) += wait.duration().as_nanos();
    }
    let longest = sums.into_iter().max_by_key(|(_, sum)| *sum);
    longest.map(|(waited, _)| waited)
}

/// Pieces that the application writes.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    pub bytes: u64,
    pub every_ns: u64,
}

/// A scenario and what is planted in it.
#[derive(Debug)]
pub struct Plant {
    pub cause: Cause,
    pub text: String,
    /// Of the message.
    pub bytes: u64,
    /// If it is not written at once.
    pub writes: Option<Writes>,
}

/// Draws, uniform within their ranges.
struct Draw(Random);

impl Draw {
    fn from(&mut self, range: std::ops::RangeInclusive<u32>) -> u32 {
        range.start() + self.0.below(range.end() - range.start() + 1)
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u32) as usize]
    }
}

/// The parts of a scenario that differ.
#[derive(Default)]
struct Parts {
    megabits: u32,
    round_trip_us: u32,
    tcp: String,
    lines: String,
    write: Option<Writes>,
    bytes: u64,
}

impl Plant {
    /// Number `number` of a run with that seed.
    pub fn draw(cause: Cause, seed: u64, number: u64) -> Plant {
        let mut draw = Draw(Random::stream(seed, number));
        let parts = match cause {
            Cause::CongestionWindow => congestion_window(&mut draw),
            Cause::ReceiveWindow => receive_window(&mut draw),
            Cause::Timer => timer(&mut draw),
            Cause::Probe => probe(&mut draw),
            Cause::FastRetransmission => fast_retransmission(&mut draw),
            Cause::DelayedAck => delayed_ack(&mut draw),
            Cause::Writer => writer(&mut draw),
            Cause::Reader => reader(&mut draw),
        };
        let seed = draw.from(1..=1_000_000);
        Plant {
            cause,
            text: text(&parts, seed),
            bytes: parts.bytes,
            writes: parts.write,
        }
    }

    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let none = |name: &str| Err(std::io::Error::other(format!("no file {name}")));
        Scenario::parse_for(&self.text, &none, Substrate::VirtualTime)
    }
}

/// Two hosts at one switch, whose links have a quarter of the round trip each.
fn text(it: &Parts, seed: u32) -> String {
    let delay = it.round_trip_us * 1000 / 4;
    let write = it.write.map_or(String::new(), |write| {
        format!(
            "write = {{ bytes = \"{} B\", every = \"{} ns\" }}\n",
            write.bytes, write.every_ns
        )
    });
    format!(
        "seed = {seed}\nduration = \"500 ms\"\ndrain = \"60 s\"\n[topology]\nkind = \"custom\"\n\
         hosts = [\"sender\", \"receiver\"]\nswitches = [\"switch\"]\n\
         link = [{{ ends = [\"sender\", \"switch\"] }}, {{ ends = [\"receiver\", \"switch\"] }}]\n\
         [topology.links]\nrate = \"{} Mbit/s\"\ndelay = \"{delay} ns\"\n\
         [switch]\nbuffer = \"10000 packets\"\n{}\
         [tcp]\npreset = \"linux\"\nmss = \"{SEGMENT} B\"\nheader = \"52 B\"\n{}\
         [[workload]]\nkind = \"bulk\"\nfrom = [\"sender\"]\nto = [\"receiver\"]\nbytes = \"{} B\"\n{write}",
        it.megabits, it.lines, it.tcp, it.bytes
    )
}

fn loss(packets: &[u32]) -> String {
    format!("[[line]]\non = \"sender -> switch\"\nloss = {{ packets = {packets:?}, {DATA} }}\n")
}

/// Congestion avoidance from the first round trip on.
fn congestion_window(draw: &mut Draw) -> Parts {
    let window = draw.from(2..=8);
    let algorithm = draw.one(&["newreno", "cubic"]);
    Parts {
        megabits: draw.one(&[1_000, 10_000]),
        round_trip_us: draw.from(4_000..=40_000),
        tcp: format!(
            "algorithm = \"{algorithm}\"\ninitial-window = {window}\ninitial-ssthresh = {window}\n"
        ),
        bytes: u64::from(draw.from(150..=600)) * SEGMENT,
        ..Parts::default()
    }
}

/// A fourth of the bandwidth-delay product or less.
fn receive_window(draw: &mut Draw) -> Parts {
    let window = draw.from(12..=60) * 1000;
    Parts {
        megabits: draw.one(&[1_000, 10_000]),
        round_trip_us: draw.from(4_000..=40_000),
        tcp: format!("receive-window = {{ initial = \"{window} B\", max = \"{window} B\" }}\n"),
        bytes: u64::from(window) * u64::from(draw.from(12..=40)),
        ..Parts::default()
    }
}

/// Of some packets, and the last, or so few behind the lost one that their duplicates do not suffice.
fn timer(draw: &mut Draw) -> Parts {
    let packets = draw.from(3..=40);
    let lost: Vec<u32> = match draw.one(&[true, false]) {
        true => (packets - draw.from(0..=1)..=packets).collect(),
        false => vec![packets - draw.from(1..=2)],
    };
    let least = draw.one(&[16, 50, 200]);
    Parts {
        megabits: draw.one(&[100, 1_000, 10_000]),
        round_trip_us: draw.from(100..=10_000),
        tcp: format!("{CLASSIC}rto-min = \"{least} ms\"\nrto-initial = \"{least} ms\"\n"),
        lines: loss(&lost),
        bytes: u64::from(packets) * SEGMENT,
        ..Parts::default()
    }
}

fn probe(draw: &mut Draw) -> Parts {
    let packets = draw.from(3..=10);
    let lost: Vec<u32> = (packets - draw.from(0..=2).min(packets - 2)..=packets).collect();
    Parts {
        megabits: draw.one(&[100, 1_000, 10_000]),
        round_trip_us: draw.from(1_000..=40_000),
        tcp: "rto-initial = \"200 ms\"\n".to_owned(),
        lines: loss(&lost),
        bytes: u64::from(packets) * SEGMENT,
        ..Parts::default()
    }
}

/// One of a window, with three or more behind it.
fn fast_retransmission(draw: &mut Draw) -> Parts {
    let packets = draw.from(6..=10);
    let lost = draw.from(1..=packets - 4);
    Parts {
        megabits: draw.one(&[1_000, 10_000]),
        round_trip_us: draw.from(4_000..=80_000),
        tcp: draw.one(&["", CLASSIC]).to_owned(),
        lines: loss(&[lost]),
        bytes: u64::from(packets) * SEGMENT,
        ..Parts::default()
    }
}

/// DETER's section 5.2 (Spark): the receiver does not read for a while, and acknowledging would shrink the window.
fn delayed_ack(draw: &mut Draw) -> Parts {
    let every = draw.from(120..=200);
    Parts {
        megabits: draw.one(&[1_000, 10_000]),
        round_trip_us: draw.from(40..=1_000),
        tcp: format!(
            "{CLASSIC}receive-window = {{ initial = \"1 MB\", max = \"1 MB\" }}\n\
             reading = {{ bytes = \"1 MB\", every = \"{every} ms\" }}\n"
        ),
        bytes: u64::from(draw.from(400..=900)) * 1000,
        ..Parts::default()
    }
}

/// The next piece comes before the last one is acknowledged.
fn writer(draw: &mut Draw) -> Parts {
    let round_trip_us = draw.from(8_000..=80_000);
    let every_ns = u64::from(round_trip_us) * u64::from(draw.from(300..=900));
    let bytes = u64::from(draw.from(1..=3)) * SEGMENT;
    Parts {
        megabits: draw.one(&[100, 1_000, 10_000]),
        round_trip_us,
        write: Some(Writes { bytes, every_ns }),
        bytes: bytes * u64::from(draw.from(12..=40)),
        ..Parts::default()
    }
}

/// At a twentieth to a third of the line's rate.
fn reader(draw: &mut Draw) -> Parts {
    let window = draw.from(30..=120) * 1000;
    let megabits = draw.one(&[200, 1_000]);
    let bytes = window / draw.from(2..=8);
    let on_line_ns = u64::from(bytes) * 8_000 / u64::from(megabits);
    let every = on_line_ns * u64::from(draw.from(3..=20));
    Parts {
        megabits,
        round_trip_us: draw.from(40..=400),
        tcp: format!(
            "receive-window = {{ initial = \"{window} B\", max = \"{window} B\" }}\n\
             reading = {{ bytes = \"{bytes} B\", every = \"{every} ns\" }}\n"
        ),
        bytes: u64::from(window) * u64::from(draw.from(10..=40)),
        ..Parts::default()
    }
}
