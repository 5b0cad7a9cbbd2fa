// SPDX-License-Identifier: Apache-2.0
//! The sessions of an experiment, and what came of them as packets of segments.

use super::plan::{Plan, PlanError, SessionPlan};
use super::tables::{Numbered, Observed, segments};
use crate::control::SendStamp;
use crate::packet::{Protection, header_length, reply_length, stamp};
use crate::record::{Record, SkipRange};
use crate::report::Way;
use crate::schedule::{Schedule, Slot, Slots};
use crate::session::{
    Measured, OneWayOutcome, PathError, TestOptions, TwoWayKind, TwoWayOutcome, measure,
    measure_two_way,
};
use crate::socket::monotonic;
use crate::time::{Span, Timestamp};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Octets of IPv4's and UDP's headers.
const HEADERS_V4: u32 = 28;

/// Octets of IPv6's and UDP's headers.
const HEADERS_V6: u32 = 48;

/// Octets of an authenticated or encrypted test packet's headers.
const PROTECTED: u32 = 112;

/// By which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossProtocol {
    /// OWAMP: each direction by itself.
    OneWay,
    /// A reflector: both directions as one, and which of them lost a packet is open.
    Reflected(TwoWayKind),
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct LossOptions {
    /// The peer and how packets are sent; schedule, packets and padding are the experiment's own.
    pub test: TestOptions,
    /// The protocol.
    pub protocol: LossProtocol,
    /// How long it takes in all.
    pub whole: Duration,
    /// Octets of a full packet from the IP header on.
    pub full: u32,
    /// The largest rate, bit/s.
    pub max_rate: u64,
    /// Draws the gaps of single packets.
    pub seed: u64,
}

/// Why an experiment did not come about.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// It cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A session failed.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct LossOutcome {
    /// Each direction.
    pub directions: Vec<(Way, Observed)>,
    /// Octets that both ends sent, IP headers included.
    pub sent_bytes: u64,
    /// How long it took, s.
    pub seconds: f64,
    /// A signal ended it before its time.
    pub interrupted: bool,
}

impl LossOptions {
    /// A minute of both directions in open mode, at up to 50 Mbit/s, by a schedule of which `seed` draws the gaps.
    #[must_use]
    pub fn new(peer: SocketAddr, protocol: LossProtocol, seed: u64) -> Self {
        let second = Span(1 << 32);
        LossOptions {
            test: TestOptions {
                packets: 1,
                slots: Slots::new(vec![Slot::Fixed(second)]).expect("one slot"),
                timeout: second,
                ..TestOptions::to(peer)
            },
            protocol,
            whole: Duration::from_secs(60),
            full: 1_500,
            max_rate: 50_000_000,
            seed,
        }
    }

    /// Octets of the smallest packet from the IP header on.
    fn least(&self) -> u32 {
        let headers = match self.test.peer.is_ipv4() {
            true => HEADERS_V4,
            false => HEADERS_V6,
        };
        let keyed = self.test.credentials.is_some();
        let payload = match self.protocol {
            LossProtocol::OneWay if keyed => PROTECTED,
            LossProtocol::OneWay => header_length(&Protection::Open) as u32,
            LossProtocol::Reflected(TwoWayKind::Stamp) if keyed => stamp::AUTHENTICATED as u32,
            LossProtocol::Reflected(TwoWayKind::Stamp) => (stamp::OPEN + stamp::FOLLOW_UP) as u32,
            LossProtocol::Reflected(_) if keyed => PROTECTED,
            LossProtocol::Reflected(_) => reply_length(&Protection::Open) as u32,
        };
        headers + payload
    }

    /// The experiment's plan.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn plan(&self) -> Result<Plan, PlanError> {
        Plan::new(
            self.whole,
            (self.least(), self.full),
            self.max_rate,
            self.seed,
        )
    }

    fn session(&self, session: &SessionPlan) -> TestOptions {
        let padding = session.bytes.saturating_sub(self.least());
        TestOptions {
            packets: session.packets,
            slots: session.slots.clone(),
            padding: u16::try_from(padding).unwrap_or(u16::MAX),
            ..self.test.clone()
        }
    }
}

/// Runs the experiment. A set `interrupted` ends it early; what came until then is judged.
///
/// # Errors
/// It cannot be planned, or the peer is not there or refuses.
pub fn measure_loss(
    options: &LossOptions,
    interrupted: &AtomicBool,
) -> Result<LossOutcome, LossError> {
    let plan = options.plan()?;
    let begin = monotonic();
    let directions = match options.protocol {
        LossProtocol::OneWay => {
            let run = |session: &SessionPlan| measure(&options.session(session), interrupted);
            let [small, full] = both(&plan, run)?;
            one_way(&plan, &small, &full)
        }
        LossProtocol::Reflected(kind) => {
            let run = |session: &SessionPlan| {
                measure_two_way(&options.session(session), kind, interrupted)
            };
            let outcomes = both(&plan, run)?;
            let mut observed = Observed::default();
            for (session, outcome) in plan.sessions().into_iter().zip(&outcomes) {
                add_round_trip(&mut observed, session, outcome);
            }
            vec![(Way::RoundTrip, observed)]
        }
    };
    // A reflector sends back what it gets.
    let copies = match options.protocol {
        LossProtocol::OneWay => 1,
        LossProtocol::Reflected(_) => 2,
    };
    let octets = |observed: &Observed| -> u64 {
        let of = observed.segments.iter();
        of.map(|s| u64::from(s.cell.bytes) * s.packets.len() as u64)
            .sum()
    };
    Ok(LossOutcome {
        sent_bytes: copies
            * directions
                .iter()
                .map(|(_, observed)| octets(observed))
                .sum::<u64>(),
        directions,
        seconds: (monotonic() - begin) as f64 / 1e9,
        interrupted: interrupted.load(Ordering::Relaxed),
    })
}

/// Runs both sessions at the same time.
fn both<T: Send>(
    plan: &Plan,
    run: impl Fn(&SessionPlan) -> Result<T, PathError> + Sync,
) -> Result<[T; 2], PathError> {
    let run = &run;
    let (small, full) = thread::scope(|scope| {
        let small = scope.spawn(move || run(&plan.small));
        let full = run(&plan.full);
        (small.join().expect("a session does not panic"), full)
    });
    Ok([small?, full?])
}

fn one_way(plan: &Plan, small: &OneWayOutcome, full: &OneWayOutcome) -> Vec<(Way, Observed)> {
    let direction = |way: Way, of: &dyn Fn(&OneWayOutcome) -> Option<&Measured>| {
        let mut observed = Observed::default();
        for (session, outcome) in [(&plan.small, small), (&plan.full, full)] {
            add_one_way(&mut observed, session, of(outcome)?);
        }
        Some((way, observed))
    };
    let there = direction(Way::There, &|outcome| outcome.there.as_ref());
    let back = direction(Way::Back, &|outcome| outcome.back.as_ref());
    [there, back].into_iter().flatten().collect()
}

/// When packets really left, where that is known.
fn left(stamps: &[SendStamp]) -> HashMap<u32, Timestamp> {
    stamps
        .iter()
        .map(|stamp| (stamp.sequence, stamp.sent))
        .collect()
}

fn is_skipped(skips: &[SkipRange], sequence: u32) -> bool {
    skips
        .iter()
        .any(|skip| (skip.first..=skip.last).contains(&sequence))
}

fn add_one_way(observed: &mut Observed, session: &SessionPlan, measured: &Measured) {
    let left = left(&measured.stamps);
    let start = measured.request.start;
    let numbered = |record: &Record| {
        let sent = left.get(&record.sequence).copied().unwrap_or(record.sent);
        Numbered {
            sequence: record.sequence,
            sent_ns: sent.nanos_since(start),
            delay_ns: (!record.lost()).then(|| record.received.nanos_since(sent)),
        }
    };
    let sent = |record: &&Record| {
        record.sequence < measured.next_sequence
            && (!record.lost() || !is_skipped(&measured.skips, record.sequence))
    };
    let packets: Vec<Numbered> = measured.records.iter().filter(sent).map(numbered).collect();
    observed.segments.extend(segments(session, &packets));
    observed.lost_here += u64::from(measured.dropped.unwrap_or(0));
    observed.skipped += measured
        .skips
        .iter()
        .map(|skip| skip.packets())
        .sum::<u64>();
}

fn add_round_trip(observed: &mut Observed, session: &SessionPlan, outcome: &TwoWayOutcome) {
    let left = left(&outcome.sender.stamps);
    let mut came: HashMap<u32, (Timestamp, i64)> = HashMap::new();
    for reflected in &outcome.replies {
        let reply = &reflected.reply;
        let sequence = reply.request.sequence;
        let sent = left.get(&sequence).copied().unwrap_or(reply.request.sent);
        let inside = reply.sent.nanos_since(reply.received);
        let round = reflected.received.nanos_since(sent) - inside;
        came.entry(sequence).or_insert((sent, round));
    }
    // The schedule has fixed slots only: the session's identifier does not matter.
    let planned = Schedule::new(session.slots.clone(), [0; 16]);
    let sent = (0..outcome.next_sequence).zip(planned);
    let packets: Vec<Numbered> = sent
        .filter(|(sequence, _)| {
            came.contains_key(sequence) || !is_skipped(&outcome.skips, *sequence)
        })
        .map(|(sequence, offset)| {
            let at = came.get(&sequence);
            let sent = at.map(|at| at.0).or_else(|| left.get(&sequence).copied());
            Numbered {
                sequence,
                sent_ns: sent
                    .unwrap_or(outcome.start.after(offset))
                    .nanos_since(outcome.start),
                delay_ns: at.map(|at| at.1),
            }
        })
        .collect();
    observed.segments.extend(segments(session, &packets));
    observed.lost_here += u64::from(outcome.dropped);
    observed.skipped += outcome.skips.iter().map(|skip| skip.packets()).sum::<u64>();
}
