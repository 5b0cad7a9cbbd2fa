// SPDX-License-Identifier: Apache-2.0
//! What limited a test, with the words of `slowpath why`.
//!
//! 1. An end's busiest thread ran for [`CPU`] of the time: the processor.
//! 2. The sender was paced (SO_MAX_PACING_RATE, a target rate), and three quarters of that were reached: the application.
//! 3. Where the kernel's chronographs are known (RFC 4898 SndLimTime…, `tcp_chrono_start`), the stage that took most of the
//!    time: nothing was outstanding (application), the announced window was full (receiver), the send buffer was full (send
//!    buffer), or the rest (network). If an end's thread ran or waited for a processor for half of the time, and the stage is
//!    the one that this end leaves behind (a full window: the receiver; nothing to send: the sender; a network without any
//!    sign: either), it is the processor,
//!    unless a window each round trip, or a send buffer that was set, explains the rate. By itself such a wait limits
//!    nothing: what arrives meanwhile is read at once afterwards. A network without losses, marks
//!    or a queue gives way to a stage of [`SIGN`] of the time: while BBR paces, the clock of a full window stands still.
//! 4. Where they are not, a window that explains the rate by itself: one window each round trip is within [`NEAR`] of it.
//!    The smaller one limits: the announced one (receiver), or the congestion window (network).
//! 5. Otherwise it cannot be said.
//!
//! Of the network: segments were sent again or marked, or a queue of 5 ms (CoDel's target, RFC 8289 section 4.4) and of a
//! quarter of the shortest round trip stands on average: the path. Else the window was small without either: the sending host.

use super::cpu::Cpu;
use serde::Serialize;
use slowpath_diagnose::{AdviceContext, advise};
use slowpath_model::{Finding, IntervalVerdict, Micros, Problem, Share};
use slowpath_text::{bit_rate, bytes, percent};

/// The part of the time from which on the processor is the limit. Below it a thread that is idle for a tenth of the time
/// waited for something else.
pub const CPU: f64 = 0.9;

/// The part of the time from which on a thread that ran or waited for a processor explains its stage, as in `slowpath why`.
pub const NEEDED: f64 = 0.5;

/// The part of the time from which on a stage comes before one that no one should act on, as in `slowpath why`.
pub const SIGN: f64 = 0.1;

/// The part of the pace from which on it is the limit, as `slowpath why` has it.
pub const PACED: f64 = 0.75;

/// How near a rate comes to a window each round trip if this window is the limit: means over a second hold growth and
/// reductions.
pub const NEAR: f64 = 0.75;

/// CoDel's target, RFC 8289 section 4.4.
const QUEUE: Micros = Micros(5_000);

/// What limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The application that sends: its own pace, or one that it set.
    Application,
    /// The send buffer.
    SendBuffer,
    /// The path, or a congestion window that is small for other reasons.
    Network,
    /// The receiver's announced window.
    Receiver,
    /// A processor at either end: the test, not the path.
    Cpu,
    /// The data do not say.
    Unknown,
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Role {
    SendingApplication,
    SendingHost,
    Network,
    ReceivingHost,
    ReceivingApplication,
    #[serde(rename = "nobody")]
    None,
}

/// Parts of the counted time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stages {
    /// Nothing was outstanding.
    pub application: f64,
    /// The send buffer was full while the network could carry more.
    pub send_buffer: f64,
    /// The announced window was full.
    pub receiver: f64,
    /// The rest: congestion window, repairs, pacing.
    pub network: f64,
}

/// A problem, as verdicts have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Because {
    /// Its name.
    pub problem: &'static str,
    /// Its part of the counted time, 0 to 1.
    pub share: f64,
    /// Its time, of all streams.
    pub time_us: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advised {
    /// In a few sentences.
    pub what: String,
    /// Where that comes from.
    pub source: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What limited.
    pub limiter: Limiter,
    /// Its part of the counted time; `None` where no time is known.
    pub share: Option<f64>,
    /// Who has to act.
    pub who: Role,
    /// The problems, the longest first.
    pub because: Vec<Because>,
    /// Figures that decided.
    pub evidence: Vec<String>,
    /// What is to be done.
    pub advice: Option<Advised>,
    /// In a sentence.
    pub text: String,
}

/// What is known of a test; what is not is `None`, never zero.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the receiver got, bits a second.
    pub goodput: Option<f64>,
    /// Parts of the time, of all streams.
    pub stages: Option<Stages>,
    /// The problems of the time, longest first.
    pub problems: Vec<Because>,
    /// Octets that were sent, and how many of them again.
    pub sent: Option<u64>,
    /// Octets that were sent again.
    pub retransmitted: Option<u64>,
    /// Segments that were sent again.
    pub retransmitted_segments: Option<u64>,
    /// Segments that arrived with a mark (ECN CE).
    pub marked: Option<u64>,
    /// The mean congestion windows of all streams, octets.
    pub window: Option<u64>,
    /// The announced windows of all streams at the end, octets.
    pub announced: Option<u64>,
    /// The mean round trip.
    pub rtt: Option<Micros>,
    /// The shortest round trip.
    pub min_rtt: Option<Micros>,
    /// The pace of all streams that was set, bits a second.
    pub pace: Option<f64>,
    /// Whether the send buffer's size was set.
    pub send_buffer_set: bool,
    /// The sender's threads.
    pub sender_cpu: Option<Cpu>,
    /// The receiver's.
    pub receiver_cpu: Option<Cpu>,
    /// The verdict on the first stream's time at once, and what its advice may use.
    pub verdict: Option<(IntervalVerdict, AdviceContext)>,
}

impl Facts {
    /// What one window each round trip allows, bits a second.
    fn rate_of(&self, window: Option<u64>) -> Option<f64> {
        let rtt = self.rtt.or(self.min_rtt).filter(|rtt| rtt.0 > 0)?;
        Some(window? as f64 * 8.0 / rtt.as_secs_f64())
    }

    /// A queue stands on the path.
    fn queues(&self) -> bool {
        self.rtt.zip(self.min_rtt).is_some_and(|(mean, least)| {
            let queue = mean.saturating_sub(least);
            queue >= QUEUE && queue.0 >= least.0 / 4
        })
    }

    /// The path shows a sign: losses, marks, a queue.
    fn acts(&self) -> bool {
        self.lost() || self.queues() || self.marked.unwrap_or(0) > 0
    }

    fn lost(&self) -> bool {
        self.retransmitted
            .or(self.retransmitted_segments)
            .unwrap_or(0)
            > 0
    }
}

/// What limited the test.
#[must_use]
pub fn judge(facts: &Facts) -> Verdict {
    let (limiter, who, share, text) = cpu(facts)
        .or_else(|| paced(facts))
        .or_else(|| staged(facts))
        .or_else(|| windowed(facts))
        .unwrap_or((
            Limiter::Unknown,
            Role::None,
            None,
            "unknown: the data do not say what the sender waited for".to_owned(),
        ));
    Verdict {
        limiter,
        share,
        who,
        because: facts.problems.clone(),
        evidence: evidence(facts),
        advice: advice(facts, limiter),
        text,
    }
}

type Decision = (Limiter, Role, Option<f64>, String);

fn cpu(facts: &Facts) -> Option<Decision> {
    let ran = |cpu: Option<Cpu>| cpu.map_or(0.0, |cpu| cpu.busiest_percent / 100.0);
    let (sender, receiver) = (ran(facts.sender_cpu), ran(facts.receiver_cpu));
    if sender.max(receiver) < CPU {
        return None;
    }
    match sender >= receiver {
        true => Some(of_cpu(facts.sender_cpu?, Role::SendingHost, "sending")),
        false => Some(of_cpu(
            facts.receiver_cpu?,
            Role::ReceivingHost,
            "receiving",
        )),
    }
}

fn of_cpu(cpu: Cpu, who: Role, end: &str) -> Decision {
    let share = cpu.needed();
    let waited = match cpu.waited_percent {
        Some(waited) if waited >= 1.0 => format!(" and waited {} for one", percent(waited / 100.0)),
        _ => String::new(),
    };
    let text = format!(
        "the processor, {}: the {end} thread ran {} of the time{waited}; this is what the host manages, not what the path carries",
        percent(share),
        percent((cpu.busiest_percent / 100.0).min(1.0)),
    );
    (Limiter::Cpu, who, Some(share), text)
}

fn paced(facts: &Facts) -> Option<Decision> {
    let (goodput, pace) = (facts.goodput?, facts.pace.filter(|pace| *pace > 0.0)?);
    (goodput >= PACED * pace).then(|| {
        let text = format!(
            "the application: it paces to {} (SO_MAX_PACING_RATE or a target rate), of which {} arrive as payload",
            bit_rate(pace / 8.0),
            percent((goodput / pace).min(1.0)),
        );
        let who = Role::SendingApplication;
        (Limiter::Application, who, None, text)
    })
}

fn staged(facts: &Facts) -> Option<Decision> {
    let stages = facts.stages?;
    let all = [
        (Limiter::Network, stages.network),
        (Limiter::Receiver, stages.receiver),
        (Limiter::SendBuffer, stages.send_buffer),
        (Limiter::Application, stages.application),
    ];
    let largest = |stages: &[(Limiter, f64)]| {
        let larger =
            |best: (Limiter, f64), next: (Limiter, f64)| if next.1 > best.1 { next } else { best };
        stages.iter().copied().reduce(larger)
    };
    let (mut limiter, mut share) = largest(&all)?;
    if limiter == Limiter::Network
        && !facts.acts()
        && let Some(other) = largest(&all[1..]).filter(|(_, share)| *share >= SIGN)
    {
        (limiter, share) = other;
    }
    if let Some(decision) = starved_of_cpu(facts, limiter) {
        return Some(decision);
    }
    let (who, text) = match limiter {
        Limiter::Network => network(facts, Some(share)),
        Limiter::Receiver => receiver(facts, Some(share)),
        Limiter::SendBuffer => (
            match facts.send_buffer_set {
                true => Role::SendingApplication,
                false => Role::SendingHost,
            },
            format!(
                "the send buffer, {}: it is full while the network could carry more",
                percent(share)
            ),
        ),
        _ => (
            Role::SendingApplication,
            format!("the application, {}: nothing was under way", percent(share)),
        ),
    };
    Some((limiter, who, Some(share), text))
}

/// The stage that an end leaves behind whose thread had to wait for a processor, if it is not explained otherwise.
fn starved_of_cpu(facts: &Facts, limiter: Limiter) -> Option<Decision> {
    let needs = |cpu: Option<Cpu>| cpu.filter(|cpu| cpu.needed() >= NEEDED);
    match limiter {
        // A window each round trip is all that a window allows, however quick the reader.
        Limiter::Receiver => {
            let least = facts.min_rtt.filter(|rtt| rtt.0 > 0)?;
            let allowed = facts.announced? as f64 * 8.0 / least.as_secs_f64();
            let cpu = needs(facts.receiver_cpu).filter(|_| facts.goodput < Some(NEAR * allowed))?;
            Some(of_cpu(cpu, Role::ReceivingHost, "receiving"))
        }
        Limiter::SendBuffer if facts.send_buffer_set => None,
        Limiter::SendBuffer | Limiter::Application => Some(of_cpu(
            needs(facts.sender_cpu)?,
            Role::SendingHost,
            "sending",
        )),
        // Without a sign of the path: loopback, and what is as quick.
        Limiter::Network if !facts.acts() => {
            let needed = |cpu: Option<Cpu>| cpu.map_or(0.0, |cpu| cpu.needed());
            match needed(facts.sender_cpu) >= needed(facts.receiver_cpu) {
                true => Some(of_cpu(
                    needs(facts.sender_cpu)?,
                    Role::SendingHost,
                    "sending",
                )),
                false => Some(of_cpu(
                    needs(facts.receiver_cpu)?,
                    Role::ReceivingHost,
                    "receiving",
                )),
            }
        }
        Limiter::Network | Limiter::Cpu | Limiter::Unknown => None,
    }
}

/// Without chronographs: which window explains the rate.
fn windowed(facts: &Facts) -> Option<Decision> {
    let goodput = facts.goodput?;
    let near = |rate: f64| goodput >= NEAR * rate;
    let (window, announced) = (facts.rate_of(facts.window), facts.rate_of(facts.announced));
    match (window, announced) {
        (window, Some(announced)) if near(announced) && window.is_none_or(|w| announced < w) => {
            let (who, text) = receiver(facts, None);
            Some((Limiter::Receiver, who, None, text))
        }
        (Some(window), _) if near(window) || facts.lost() => {
            let (who, text) = network(facts, None);
            Some((Limiter::Network, who, None, text))
        }
        (Some(window), _) => {
            let text = format!(
                "unknown: a congestion window each round trip would be {}, so it is not that; the announced window, the send buffer or the application was",
                bit_rate(window / 8.0)
            );
            Some((Limiter::Unknown, Role::None, None, text))
        }
        _ => None,
    }
}

fn network(facts: &Facts, share: Option<f64>) -> (Role, String) {
    let share = share.map_or_else(String::new, |share| format!(", {}", percent(share)));
    let queue = facts
        .rtt
        .zip(facts.min_rtt)
        .map(|(mean, least)| mean.saturating_sub(least));
    let (who, why) = match (facts.lost(), facts.queues(), facts.marked.unwrap_or(0) > 0) {
        (lost, true, _) => {
            let queue = queue.unwrap_or(Micros::ZERO);
            let lost = if lost { " and drops what does not fit" } else { "" };
            (
                Role::Network,
                format!("the path is full: {queue} of queue stand before its bottleneck on average{lost}"),
            )
        }
        (true, false, _) => (
            Role::Network,
            "losses keep the congestion window small: there is no queue that would explain them"
                .to_owned(),
        ),
        (false, false, true) => (
            Role::Network,
            "the path marks packets (ECN), which reduces the congestion window".to_owned(),
        ),
        (false, false, false) => (
            Role::SendingHost,
            "the congestion window, without losses, marks or a queue: it is still growing, or something in this host holds segments back".to_owned(),
        ),
    };
    (who, format!("the network{share}: {why}"))
}

fn receiver(facts: &Facts, share: Option<f64>) -> (Role, String) {
    let share = share.map_or_else(String::new, |share| format!(", {}", percent(share)));
    let announced = facts
        .announced
        .map_or_else(String::new, |window| format!(" ({})", bytes(window)));
    let text = format!("the receiver{share}: the window that it announces{announced} is full");
    // Only an application that does not read closes a window.
    let who = match facts.announced {
        Some(0) => Role::ReceivingApplication,
        _ => Role::ReceivingHost,
    };
    (who, text)
}

fn evidence(facts: &Facts) -> Vec<String> {
    let mut evidence = Vec::new();
    if let Some(stages) = facts.stages {
        evidence.push(format!(
            "of the time: application {}, send buffer {}, receiver {}, network {}",
            percent(stages.application),
            percent(stages.send_buffer),
            percent(stages.receiver),
            percent(stages.network),
        ));
    }
    let windows = [
        ("congestion window", facts.window),
        ("announced window", facts.announced),
    ];
    for (name, window) in windows {
        if let Some((window, rate)) = window.zip(facts.rate_of(window)) {
            evidence.push(format!(
                "{name} {}: {} at the mean round trip",
                bytes(window),
                bit_rate(rate / 8.0)
            ));
        }
    }
    if let Some((mean, least)) = facts.rtt.zip(facts.min_rtt) {
        evidence.push(format!("round trip {mean} on average, shortest {least}"));
    }
    match (
        facts.retransmitted,
        facts.sent,
        facts.retransmitted_segments,
    ) {
        (Some(again), Some(sent), _) if sent > 0 => evidence.push(format!(
            "{} of {} sent were sent again ({:.3} %)",
            bytes(again),
            bytes(sent),
            100.0 * again as f64 / sent as f64
        )),
        (_, _, Some(segments)) => evidence.push(format!("{segments} segments were sent again")),
        _ => {}
    }
    if let Some(marked) = facts.marked.filter(|marked| *marked > 0) {
        evidence.push(format!("{marked} segments were marked (ECN)"));
    }
    for (end, cpu) in [
        ("sending", facts.sender_cpu),
        ("receiving", facts.receiver_cpu),
    ] {
        if let Some(cpu) = cpu {
            let waited = cpu.waited_percent.map_or_else(String::new, |waited| {
                format!(", which waited {waited:.0} % for one")
            });
            evidence.push(format!(
                "{end} end: {:.0} % of a processor, its busiest thread {:.0} %{waited}",
                cpu.percent, cpu.busiest_percent
            ));
        }
    }
    evidence
}

fn advice(facts: &Facts, limiter: Limiter) -> Option<Advised> {
    let own = |what: &str, source: &str| {
        Some(Advised {
            what: what.to_owned(),
            source: source.to_owned(),
        })
    };
    let problem = match limiter {
        Limiter::Cpu => {
            return own(
                "Test with as many --streams as there are idle processors, or from a host that is less loaded: the path may carry more.",
                "Linux Documentation/scheduler/sched-stats.rst",
            );
        }
        Limiter::Application if facts.pace.is_some() => {
            return own(
                "Test without --pace, or with a higher one, to learn what the path carries.",
                "socket(7) on SO_MAX_PACING_RATE",
            );
        }
        Limiter::Unknown => return None,
        Limiter::Application => Problem::SenderAppLimited,
        Limiter::SendBuffer => Problem::SendBufferLimited,
        Limiter::Receiver => Problem::ReceiverWindowLimited,
        Limiter::Network if facts.lost() => Problem::FastRetransmit,
        // Its advice is about a window, which not all data have.
        Limiter::Network if facts.window.is_none() => return None,
        Limiter::Network => Problem::CongestionWindowLimited,
    };
    let (verdict, context) = facts.verdict.as_ref()?;
    let found = verdict.finding(problem).copied();
    let finding = found.unwrap_or(Finding {
        problem,
        share: Share::Coarse,
        events: None,
    });
    let advice = advise(&finding, verdict, context);
    Some(Advised {
        what: advice.what,
        source: advice.source.to_owned(),
    })
}

#[cfg(test)]
mod tests;
