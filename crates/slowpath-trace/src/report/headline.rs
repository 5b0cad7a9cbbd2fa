// SPDX-License-Identifier: Apache-2.0
//! What is said first of a capture: the worst of both directions over all connections, or that
//! there is nothing to report; then connections that failed alike.

use super::overview::{FailureGroup, Overview, ProblemSummary, Worst};
use super::selector::end;
use super::{CaptureReport, advice};
use crate::segment::Endpoint;
use crate::tcp::Side;
use crate::verdict::TraceProblem;
use slowpath_diagnose::Advice;
use slowpath_model::Micros;
use slowpath_text::{bit_rate, bytes, percent, plural};
use std::net::IpAddr;
use std::time::Duration;

/// Failures are grouped from two connections.
const ALIKE: u64 = 2;

/// Idle time is worth saying from half of the time.
const MOSTLY: f64 = 0.5;

/// What is said first.
pub struct Headline {
    /// The worst problem; `None`: nothing to report.
    pub problem: Option<TraceProblem>,
    /// It in a sentence or two.
    pub text: String,
    /// Its worst case.
    pub worst: Option<Worst>,
    /// Connections that have it.
    pub connections: u64,
    /// Who has to act, and how.
    pub advice: Option<(String, Advice)>,
}

/// What to say first of a capture.
#[must_use]
pub fn headline(report: &CaptureReport) -> Headline {
    let overview = &report.overview;
    let Some((problem, summary)) = overview.worst() else {
        return Headline {
            problem: None,
            text: healthy(report),
            worst: None,
            connections: 0,
            advice: None,
        };
    };
    let worst = summary.worst;
    let kept = |number| {
        report
            .connections
            .iter()
            .find(|ranked| ranked.number == number)
    };
    Headline {
        problem: Some(problem),
        text: format!("{problem}: {}", sentence(overview, problem, &summary)),
        worst: Some(worst),
        connections: summary.connections,
        advice: kept(worst.number).and_then(|ranked| advice::advise(ranked, &worst.finding)),
    }
}

/// A problem and its worst case.
fn sentence(overview: &Overview, problem: TraceProblem, summary: &ProblemSummary) -> String {
    let worst = &summary.worst;
    if problem.is_failure() {
        let groups = overview.failures();
        let mut alike = groups.iter().filter(|g| g.kind.problem == problem);
        let all = summary.connections;
        return match alike.next().filter(|_| all >= ALIKE) {
            Some(group) if 2 * group.connections > all => {
                let mut text = group_text(group);
                if group.connections < all {
                    text += &format!(", and {} to other servers", all - group.connections);
                }
                text + &waited(worst)
            }
            Some(group) => format!(
                "{} of {} {}, {} of them to {}{}",
                grouped(all),
                plural(overview.connections, "connection"),
                became(problem, worst.finding.from, true),
                group.connections,
                server(group.kind.server, group.port),
                waited(worst)
            ),
            None => {
                let one = format!(
                    "connection #{} from {} to {} {}",
                    worst.number,
                    end(worst.client),
                    end(worst.server),
                    became(problem, worst.finding.from, false)
                );
                one + &attempts(worst) + &others(summary, overview)
            }
        };
    }
    let way = match worst.finding.from {
        Some(Side::Server) => [worst.server, worst.client],
        _ => [worst.client, worst.server],
    };
    let time = Micros::from(worst.finding.time.unwrap_or_default());
    let share = percent(worst.finding.share);
    format!(
        "{} in #{}, {} -> {}, {share} of its time{}",
        lost(problem, time, way[0]),
        worst.number,
        end(way[0]),
        end(way[1]),
        others(summary, overview)
    )
}

/// What a problem did with a time.
fn lost(problem: TraceProblem, time: Micros, sender: Endpoint) -> String {
    match problem {
        TraceProblem::SynRetransmit => {
            format!("{time} until a SYN that was sent again was answered")
        }
        TraceProblem::SlowHandshake => format!("{time} for the handshake"),
        TraceProblem::ZeroWindow => format!("{time} with the receiver's window closed"),
        TraceProblem::ReceiverWindowLimited => format!("{time} with the receiver's window full"),
        TraceProblem::Timeout => format!("{time} lost to retransmission timeouts"),
        TraceProblem::TailLossProbe => format!("{time} lost until probes repaired the tail"),
        TraceProblem::FastRetransmit => format!("{time} of repairing losses"),
        TraceProblem::DelayedAck => format!("data waited {time} for delayed ACKs"),
        TraceProblem::SendBufferLimited => format!("{time} with the send buffer full"),
        TraceProblem::SenderAppLimited => {
            format!(
                "the application at {} kept the other side waiting for {time}",
                end(sender)
            )
        }
        TraceProblem::SmallWrites => format!("small segments waited {time} for ACKs"),
        TraceProblem::Unanswered
        | TraceProblem::Refused
        | TraceProblem::Reset
        | TraceProblem::Reordering => time.to_string(),
    }
}

/// What became of connections that failed.
fn became(problem: TraceProblem, from: Option<Side>, many: bool) -> &'static str {
    let choose = |one, several| if many { several } else { one };
    match (problem, from) {
        (TraceProblem::Unanswered, _) => choose("was never answered", "were never answered"),
        (TraceProblem::Refused, _) => choose("was refused", "were refused"),
        (_, Some(Side::Client)) => choose("was reset by the client", "were reset by the client"),
        _ => choose("was reset by the server", "were reset by the server"),
    }
}

/// The packets of the longest attempt, and how long it lasted.
fn attempts(worst: &Worst) -> String {
    let frames = worst.finding.frames;
    let frames = frames.map_or(String::new(), |(from, to)| {
        if from.frame == to.frame {
            format!(" (packet {})", from.frame)
        } else {
            format!(" (packets {} to {})", from.frame, to.frame)
        }
    });
    match (worst.finding.time, worst.finding.events) {
        (Some(time), Some(tries)) if worst.finding.problem != TraceProblem::Reset => {
            let tries = plural(tries, "attempt");
            format!(", {tries} in {}{frames}", Micros::from(time))
        }
        _ => frames,
    }
}

/// The same of one of several.
fn waited(worst: &Worst) -> String {
    format!("; #{}{}", worst.number, attempts(worst))
}

/// How many other connections have it, and how many do not.
fn others(summary: &ProblemSummary, overview: &Overview) -> String {
    match summary.connections {
        1 if overview.connections == 1 => String::new(),
        1 => format!(
            "; the only one of {}",
            plural(overview.connections, "connection")
        ),
        n => format!(
            "; {n} of {} have it",
            plural(overview.connections, "connection")
        ),
    }
}

/// A number with commas between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn server(address: IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => end(Endpoint { address, port }),
        None => address.to_string(),
    }
}

/// Connections that failed alike: "2,486 connections to 64.13.134.52 were never answered".
fn group_text(group: &FailureGroup) -> String {
    format!(
        "{} connections to {} {}",
        grouped(group.connections),
        server(group.kind.server, group.port),
        became(group.kind.problem, group.kind.from, true)
    )
}

/// The groups, one a line, `most` lines at most; the headline has said the first.
#[must_use]
pub fn failures(report: &CaptureReport, most: usize) -> Vec<String> {
    let overview = &report.overview;
    let groups = overview.failures();
    let said = overview.worst().map(|(problem, _)| problem);
    let said = groups
        .iter()
        .position(|g| Some(g.kind.problem) == said && g.connections >= ALIKE);
    let rest = groups.iter().enumerate().filter(|(i, _)| Some(*i) != said);
    let several: Vec<&FailureGroup> = rest
        .map(|(_, g)| g)
        .filter(|g| g.connections >= ALIKE)
        .collect();
    let mut lines: Vec<String> = (several.iter().take(most))
        .map(|group| format!("{}, #{} first", group_text(group), group.number))
        .collect();
    let more = several.iter().skip(most).map(|g| g.connections);
    let single = groups.iter().filter(|g| g.connections < ALIKE).count() as u64;
    let rest = more.sum::<u64>() + overview.ungrouped;
    if rest + single >= ALIKE && !groups.is_empty() && (rest > 0 || single > most as u64) {
        lines.push(format!(
            "and {} more failed",
            plural(rest + single, "connection")
        ));
    }
    lines
}

/// What is worth saying where nothing is wrong.
fn healthy(report: &CaptureReport) -> String {
    let overview = &report.overview;
    let mut text = match overview.connections {
        0 => return "nothing to report: no TCP connection".to_owned(),
        n => format!(
            "nothing to report: {}, none with a problem",
            plural(n, "connection")
        ),
    };
    let idle = overview.idle();
    if idle >= MOSTLY {
        text += &format!(
            "; {} of the time no application had anything to send",
            percent(idle)
        );
    }
    text
}

/// What else an expert would note: rate and queue, segments that overtook each other.
#[must_use]
pub fn remarks(report: &CaptureReport) -> Vec<String> {
    let overview = &report.overview;
    let mut lines = Vec::new();
    if let Some(transfer) = overview.transfer
        && let Some((least, high)) = transfer.queue
    {
        lines.push(format!(
            "a queue on the path of #{}: RTT {} to {} (95th percentile) while {} went at {}",
            transfer.number,
            Micros::from(least),
            Micros::from(high),
            bytes(transfer.bytes),
            bit_rate(transfer.rate)
        ));
    }
    if overview.reordered > 0 {
        lines.push(format!(
            "segments overtook each other in {}",
            plural(overview.reordered, "connection")
        ));
    }
    lines
}

impl Headline {
    /// What it cost; `None`: nothing, or not known.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.worst.and_then(|worst| worst.finding.time)
    }

    /// Whose data, SYN or RST it is about.
    #[must_use]
    pub fn from(&self) -> Option<Endpoint> {
        let worst = self.worst?;
        Some(match worst.finding.from? {
            Side::Client => worst.client,
            Side::Server => worst.server,
        })
    }
}
