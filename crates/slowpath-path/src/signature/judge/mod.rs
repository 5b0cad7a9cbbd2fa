// SPDX-License-Identifier: Apache-2.0
//! Which kind of loss a direction has.
//!
//! The judge asks in a fixed order, and the first question that is answered with yes decides:
//!
//! 1. Is there too little to judge, or is it of our own making?
//! 2. Do packets beside a loss wait longer than others? `congestion`
//! 3. Is nothing lost below a rate, and above it all that exceeds it, without a queue? `policer`
//! 4. Are packets lost late in a train, from the same place on, and do the delays of those that come show that the lost
//!    ones never entered the queue? `shallow_buffer`; if they had been in it, or there is none: `policer`
//! 5. Do losses fall on the same phase of a period, in packets or in time? `periodic`
//! 6. Does the loss grow with the size, as independent bits would have it? `bit_errors`
//! 7. Does no test find any structure? `random`
//!
//! What remains is `cannot_tell`, with the reason. A test counts as significant if it is so at [`LEVEL`] jointly with all
//! others (Holm), so that a path with random loss is given a structure once in a hundred times.

mod evidence;
mod paced;
mod single;
mod trains;

use self::evidence::{Evidence, count, evidence, is, undisturbed};
use self::trains::Entered;
use super::plan::{Size, Traffic};
use super::statistics::{Count, bits};
use super::tables::{Observed, Segment};
use serde::Serialize;

/// The probability that any test finds a structure where there is none.
pub const LEVEL: f64 = 0.01;

/// Fewer losses than this have no structure that could be tested.
const FEWEST: u64 = 6;

/// With so few losses, a share below this with 95 % confidence is no loss to speak of.
const LITTLE: f64 = 1e-3;

/// The probability that a packet beside a loss waited longer than another, from which on delay explains loss.
const CLEAR_WAIT: f64 = 0.7;

/// Single packets that are lost less often than this part of those in trains do not say why trains lose packets.
const RARE: f64 = 0.01;

/// Losses of a strict period fall on one phase.
const CLEAR_PERIOD: f64 = 0.75;

/// The fit of independent bits is refused below this.
const POOR_FIT: f64 = 1e-3;

/// What kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signature {
    /// Too little to speak of; the bound says how little.
    NoLoss,
    /// It grows with the size as if bits were lost independently: a bad cable, optic or radio link.
    BitErrors,
    /// A queue holds less than a train: losses late in trains.
    ShallowBuffer,
    /// What exceeds a rate is dropped, without a queue.
    Policer,
    /// Losses come with waiting in a queue that others fill.
    Congestion,
    /// Independent of everything that was tried.
    Random,
    /// At a constant distance, in packets or in time.
    Periodic,
    /// Too little evidence, or more than one explanation: `cannot_tell`.
    #[serde(rename = "cannot_tell")]
    Unclear,
}

impl Signature {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Signature::NoLoss => "no_loss",
            Signature::BitErrors => "bit_errors",
            Signature::ShallowBuffer => "shallow_buffer",
            Signature::Policer => "policer",
            Signature::Congestion => "congestion",
            Signature::Random => "random",
            Signature::Periodic => "periodic",
            Signature::Unclear => "cannot_tell",
        }
    }
}

/// Which test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TestName {
    /// Mann–Whitney: packets beside a loss waited longer.
    Delay,
    /// Cochran–Armitage: loss grows with the rate of full packets.
    Rate,
    /// Cochran–Armitage: loss grows with the place in the train.
    Position,
    /// Rayleigh, over all periods: in the order of packets.
    PeriodInPackets,
    /// The same in time.
    PeriodInTime,
    /// Fisher, exact: full packets are lost more often than small ones.
    Size,
    /// Poisson: losses follow each other directly.
    Neighbours,
    /// χ²: the share differs from cycle to cycle.
    Dispersion,
}

/// A test and what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Test {
    /// Which.
    pub test: TestName,
    /// How likely such a result is without the structure; `None`: too few losses for it.
    pub p_value: Option<f64>,
    /// Whether it is significant jointly with the others.
    pub significant: bool,
    /// How large the effect is: the probability that a packet beside a loss waited longer; the concentration of the period;
    /// `None` of other tests.
    pub effect: Option<f64>,
}

/// Numbers of what was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Estimate {
    /// Of bit errors.
    Bits {
        /// The probability that a bit is lost.
        per_bit: f64,
    },
    /// Of a shallow buffer.
    Buffer {
        /// Octets that it holds.
        bytes: f64,
        /// The same in full packets.
        packets: f64,
    },
    /// Of a policer.
    Policer {
        /// Its rate, bit/s of IP.
        rate_bps: f64,
        /// Octets that pass beyond the rate.
        burst_bytes: f64,
    },
    /// Of a period in the order of our packets.
    Packets {
        /// From loss to loss.
        packets: f64,
    },
    /// Of a period in time.
    Seconds {
        /// From loss to loss, s.
        seconds: f64,
    },
}

/// What else has to be said, above all why it is unclear.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Nothing came.
    NothingCame,
    /// Full packets never came, small ones did: a path MTU below their size, and its ICMP is lost.
    FullSizeNever {
        /// Octets of a full packet.
        bytes: u32,
    },
    /// An end's own buffer lost too many for the path's losses to be known.
    OwnLoss {
        /// How many.
        packets: u64,
    },
    /// The sender left packets out; they are counted nowhere.
    Skipped {
        /// How many.
        packets: u64,
    },
    /// A sender did not keep this rate: its packets are left out.
    SlowSender {
        /// The rate, bit/s.
        rate_bps: u64,
        /// What it kept.
        sent_bps: u64,
    },
    /// The path does not carry this rate, and its queue was full: its packets are left out.
    Overload {
        /// The rate, bit/s.
        rate_bps: u64,
        /// What the path carried.
        carried_bps: u64,
    },
    /// Too few losses for any test.
    TooFew {
        /// How many.
        lost: u64,
    },
    /// Losses grow with the rate, and neither a policer nor a queue of ours explains it.
    RateUnclear,
    /// Losses late in trains begin at different places, or the rate after them fits neither a buffer nor a policer.
    PositionUnclear,
    /// Losses grow with the size, and not as independent bits would have it.
    SizeUnclear,
    /// Losses come in bursts without waiting: a radio link, a route that changes, a line that fails for moments.
    Bursts,
}

/// What the judge says of a direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The kind of loss.
    pub signature: Signature,
    /// The test that decided; of random loss the one that came closest to finding a structure.
    pub decided_by: Option<Test>,
    /// Packets and losses that were judged.
    pub count: Count,
    /// Numbers of it.
    pub estimate: Option<Estimate>,
    /// All tests.
    pub tests: Vec<Test>,
    /// What else has to be said.
    pub reasons: Vec<Reason>,
}

/// Judges a direction.
#[must_use]
pub fn judge(observed: &Observed) -> Judgement {
    let mut numbered = observed.clone();
    numbered.number();
    let (segments, mut reasons) = paced::set_aside(&undisturbed(&numbered.segments));
    if observed.skipped > 0 {
        reasons.push(Reason::Skipped {
            packets: observed.skipped,
        });
    }
    let all = count(&segments, |_| true);
    let mut judgement = Judgement {
        signature: Signature::Unclear,
        decided_by: None,
        count: all,
        estimate: None,
        tests: Vec::new(),
        reasons,
    };
    if let Some(reason) = unfit(&segments, all, observed) {
        judgement.reasons.push(reason);
        return judgement;
    }
    if all.lost < FEWEST {
        match all.bound() < LITTLE {
            true => judgement.signature = Signature::NoLoss,
            false => judgement.reasons.push(Reason::TooFew { lost: all.lost }),
        }
        return judgement;
    }
    let evidence = evidence(segments);
    judgement.tests.clone_from(&evidence.tests);
    let answers = [congestion, policer, position, periodic, size];
    match answers.iter().find_map(|answer| answer(&evidence)) {
        Some(Ok(answer)) => {
            judgement.signature = answer.signature;
            judgement.decided_by = answer.test;
            judgement.estimate = answer.estimate;
        }
        Some(Err(reason)) => judgement.reasons.push(reason),
        None => rest(&evidence, &mut judgement),
    }
    judgement
}

/// Why there is nothing to judge.
fn unfit(segments: &[Segment], all: Count, observed: &Observed) -> Option<Reason> {
    if all.lost == all.sent {
        return Some(Reason::NothingCame);
    }
    let (small, full) = (
        count(segments, |segment| segment.cell.size == Size::Small),
        count(segments, |segment| segment.cell.size == Size::Full),
    );
    if full.sent >= 20 && full.lost == full.sent && small.share() < 0.5 {
        let bytes = segments
            .iter()
            .map(|segment| segment.cell.bytes)
            .max()
            .unwrap_or(0);
        return Some(Reason::FullSizeNever { bytes });
    }
    (observed.lost_here * 10 > all.lost).then_some(Reason::OwnLoss {
        packets: observed.lost_here,
    })
}

/// A question that was answered with yes.
struct Answer {
    signature: Signature,
    test: Option<Test>,
    estimate: Option<Estimate>,
}

fn congestion(evidence: &Evidence) -> Option<Result<Answer, Reason>> {
    let test = evidence.significant(TestName::Delay)?;
    let clear = test.effect.is_some_and(|effect| effect >= CLEAR_WAIT);
    // Others that fill a queue for moments only are not why trains lose packets.
    let single = evidence
        .share(|segment| segment.cell.traffic == Traffic::Single)
        .share();
    let trains = evidence.share(is(Traffic::Train, Size::Full)).share();
    (clear && single >= RARE * trains).then_some(Ok(Answer {
        signature: Signature::Congestion,
        test: Some(test),
        estimate: None,
    }))
}

fn policer(evidence: &Evidence) -> Option<Result<Answer, Reason>> {
    let test = evidence.significant(TestName::Rate)?;
    let policer = paced::policer(&evidence.segments)?;
    Some(Ok(Answer {
        signature: Signature::Policer,
        test: Some(test),
        estimate: Some(Estimate::Policer {
            rate_bps: policer.rate,
            burst_bytes: policer.burst,
        }),
    }))
}

fn position(evidence: &Evidence) -> Option<Result<Answer, Reason>> {
    let test = evidence.significant(TestName::Position)?;
    let shape = trains::shape(&evidence.segments)?;
    let bytes = evidence
        .segments
        .iter()
        .map(|segment| segment.cell.bytes)
        .max()?;
    let full_single =
        |segment: &Segment| segment.cell.size == Size::Full && segment.cell.train == 1;
    let others = evidence.share(full_single).share();
    // One place from which losses begin, in most trains, and few losses elsewhere.
    let constant = shape.constant >= 0.6 && shape.lossy * 2 >= shape.trains;
    let explained = others < 0.25 * (1.0 - shape.passed);
    if !constant || !explained {
        return None;
    }
    let (signature, estimate) = match shape.entered {
        Entered::No => {
            // Of the packets before the first loss one was on the line, and a part had left.
            let packets = (shape.onset * (1.0 - shape.passed) - 1.0).max(1.0);
            let estimate = Estimate::Buffer {
                bytes: packets * f64::from(bytes),
                packets,
            };
            (Signature::ShallowBuffer, Some(estimate))
        }
        Entered::Yes => {
            let estimate = shape.after_bps.map(|rate_bps| Estimate::Policer {
                rate_bps,
                burst_bytes: shape.onset * f64::from(bytes),
            });
            (Signature::Policer, estimate)
        }
        Entered::Unclear => return None,
    };
    Some(Ok(Answer {
        signature,
        test: Some(test),
        estimate,
    }))
}

fn periodic(evidence: &Evidence) -> Option<Result<Answer, Reason>> {
    let names = [TestName::PeriodInPackets, TestName::PeriodInTime];
    let clear = names
        .into_iter()
        .zip(evidence.periods)
        .filter_map(|(name, period)| {
            let test = evidence.significant(name)?;
            let period = period.filter(|period| period.concentration >= CLEAR_PERIOD)?;
            Some((test, period))
        });
    let (test, period) = clear.max_by(|a, b| a.1.concentration.total_cmp(&b.1.concentration))?;
    let estimate = match test.test {
        TestName::PeriodInTime => Estimate::Seconds {
            seconds: period.period,
        },
        _ => Estimate::Packets {
            packets: period.period,
        },
    };
    Some(Ok(Answer {
        signature: Signature::Periodic,
        test: Some(test),
        estimate: Some(estimate),
    }))
}

fn size(evidence: &Evidence) -> Option<Result<Answer, Reason>> {
    let test = evidence.significant(TestName::Size)?;
    if evidence.significant(TestName::Neighbours).is_some() {
        return Some(Err(Reason::Bursts));
    }
    let (per_bit, fit) = bits(&evidence.sizes);
    Some(match evidence.alike && fit >= POOR_FIT {
        true => Ok(Answer {
            signature: Signature::BitErrors,
            test: Some(test),
            estimate: Some(Estimate::Bits { per_bit }),
        }),
        false => Err(Reason::SizeUnclear),
    })
}

/// No structure that has a name: random, or a test that is significant all the same.
fn rest(evidence: &Evidence, judgement: &mut Judgement) {
    let significant = |name: TestName| evidence.significant(name).is_some();
    let bursts = [TestName::Neighbours, TestName::Dispersion, TestName::Delay];
    let periods = [TestName::PeriodInPackets, TestName::PeriodInTime];
    if bursts.into_iter().chain(periods).any(significant) {
        judgement.reasons.push(Reason::Bursts);
    } else if significant(TestName::Rate) {
        judgement.reasons.push(Reason::RateUnclear);
    } else if significant(TestName::Position) || !evidence.alike {
        judgement.reasons.push(Reason::PositionUnclear);
    } else {
        judgement.signature = Signature::Random;
        let value = |test: &Test| test.p_value.unwrap_or(1.0);
        judgement.decided_by = evidence
            .tests
            .iter()
            .copied()
            .min_by(|a, b| value(a).total_cmp(&value(b)));
    }
}

#[cfg(test)]
mod tests;
