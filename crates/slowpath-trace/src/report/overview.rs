// SPDX-License-Identifier: Apache-2.0
//! What a capture's connections amount to: what went wrong in how many, the worst case of each
//! problem, connections that failed alike, and what is worth saying of a healthy capture.
//!
//! What enters: a [`Digest`] of every connection, kept or not, in any order. Memory is bounded: a
//! few thousand groups of failures are kept, and what finds no place is counted.

use super::RankedConnection;
use crate::segment::Endpoint;
use crate::tcp::{ConnectionReport, Side};
use crate::verdict::{DirectionVerdict, Judged, Limit, TraceFinding, TraceProblem};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Groups of failures kept.
const GROUPS: usize = 4096;

/// What takes less time is a host's own response time, as in the vantage point's rules; a loss is
/// one however soon it was repaired.
const SHORTEST: Duration = Duration::from_millis(1);

/// A finding counts from this part of the time that data was to be sent: as the classifier of
/// live connections counts findings, but without idle time.
const LEAST_SHARE: f64 = 0.01;

/// What the headline needs of one connection.
pub struct Digest {
    first_frame: u64,
    client: Endpoint,
    server: Endpoint,
    /// Each problem's worst finding that counts.
    findings: Few,
    /// Time in which a side had something to send or waited for the other, and all of it.
    busy: Duration,
    total: Duration,
    reordered: bool,
    transfer: Option<Transfer>,
}

/// Findings; the first few in place: what one thread allocates and another frees costs more than
/// all else of a digest.
#[derive(Default)]
struct Few {
    first: [Option<TraceFinding>; 8],
    more: Vec<TraceFinding>,
}

impl Few {
    fn push(&mut self, finding: TraceFinding) {
        match self.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(finding),
            None => self.more.push(finding),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &TraceFinding> {
        self.first.iter().flatten().chain(&self.more)
    }
}

/// How fast a direction's data went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Its connection's first frame.
    pub first_frame: u64,
    /// And number.
    pub number: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes a second while there was something to send.
    pub rate: f64,
    /// The least RTT of the path and its 95th percentile, if they show a queue.
    pub queue: Option<(Duration, Duration)>,
}

/// Time in which a direction had something to send.
fn busy(verdict: &DirectionVerdict) -> Duration {
    let shares = verdict.line.shares();
    let idle = [Limit::Opening, Limit::SenderApp, Limit::Closed];
    let idle = idle.into_iter().map(|l| shares.of(l)).sum();
    shares.total().saturating_sub(idle)
}

/// Less often is an accident of one moment, as with losses (`loss.rs`).
const HABIT: u64 = 3;

/// Whether a finding is worth a headline: failures are, losses that cost any time, and of what else
/// costs time 1 % of the time that data was to be sent. Small writes are only as a habit that takes most of that time; what
/// costs nothing is not.
fn counts(judged: &Judged, finding: &TraceFinding) -> bool {
    if finding.problem.is_of_connection() || finding.problem == TraceProblem::SenderAppLimited {
        return true;
    }
    let (Some(time), Some(side)) = (finding.time, finding.from) else {
        return false;
    };
    let busy = busy(judged.verdicts.sent_by(side)).as_secs_f64();
    let share = time.as_secs_f64() / busy.max(f64::MIN_POSITIVE);
    match finding.problem {
        TraceProblem::Timeout | TraceProblem::TailLossProbe | TraceProblem::FastRetransmit => {
            time > Duration::ZERO
        }
        TraceProblem::SmallWrites => finding.events >= Some(HABIT) && share > 0.5,
        problem => !problem.is_harmless() && time >= SHORTEST && share >= LEAST_SHARE,
    }
}

fn transfer(report: &ConnectionReport, verdict: &DirectionVerdict, side: Side) -> Option<Transfer> {
    let data = &report.sent_by(side).data;
    let busy = busy(verdict).as_secs_f64();
    let (losses, path) = (&verdict.losses, &verdict.path);
    (data.unique_bytes > 0 && busy > 0.0).then(|| Transfer {
        first_frame: 0,
        number: 0,
        bytes: data.unique_bytes,
        rate: data.unique_bytes as f64 / busy,
        queue: (path.least_rtt.zip(path.high_rtt)).filter(|_| losses.is_queueing()),
    })
}

impl Digest {
    /// Of a connection that began with that frame.
    #[must_use]
    pub fn of(judged: &Judged, first_frame: u64) -> Self {
        let (report, verdicts) = (&judged.report, &judged.verdicts);
        let mut findings = Few::default();
        for finding in verdicts.findings.iter().filter(|f| counts(judged, f)) {
            // The list has the worst first, and a closed window before the full one it is part of.
            let part = |f: &TraceFinding| {
                f.problem == TraceProblem::ZeroWindow
                    && finding.problem == TraceProblem::ReceiverWindowLimited
                    && f.from == finding.from
            };
            if !(findings.iter()).any(|f| f.problem == finding.problem || part(f)) {
                findings.push(*finding);
            }
        }
        let sides = [Side::Client, Side::Server];
        let sent = sides.map(|side| (side, report.sent_by(side), verdicts.sent_by(side)));
        let transfers = sent.map(|(side, _, verdict)| transfer(report, verdict, side));
        Digest {
            first_frame,
            client: report.client,
            server: report.server,
            findings,
            busy: sent.iter().map(|(_, _, verdict)| busy(verdict)).sum(),
            total: report.duration(),
            reordered: sent.iter().any(|(_, sent, _)| sent.order.out_of_order > 0),
            transfer: (transfers.into_iter().flatten().max_by_key(|t| t.bytes)).map(|transfer| {
                Transfer {
                    first_frame,
                    ..transfer
                }
            }),
        }
    }

    /// What connections are ranked by: the time lost to the worst problem; a connection that
    /// failed lost the first RTO of a SYN at least.
    #[must_use]
    pub fn cost(&self) -> Option<Duration> {
        let serious = self.findings.iter().filter(|f| !f.problem.is_harmless());
        serious.map(cost).max()
    }
}

/// RTO of a SYN before any measurement (RFC 6298 section 2.1): what a client loses at least that
/// has to connect again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// The time that a finding cost.
fn cost(finding: &TraceFinding) -> Duration {
    let time = finding.time.unwrap_or_default();
    if finding.problem.is_failure() {
        time.max(CONNECT_AGAIN)
    } else {
        time
    }
}

/// A problem's worst case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// What was found.
    pub finding: TraceFinding,
    /// The connection's number, from 1.
    pub number: u64,
    /// Its first frame.
    pub first_frame: u64,
    /// Its client.
    pub client: Endpoint,
    /// Its server.
    pub server: Endpoint,
}

impl Worst {
    fn key(&self) -> (Duration, Reverse<u64>) {
        (cost(&self.finding), Reverse(self.first_frame))
    }
}

/// A problem in all connections of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProblemSummary {
    /// Connections that have it.
    pub connections: u64,
    /// The worst of them.
    pub worst: Worst,
}

/// Which connections failed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureKind {
    /// How.
    pub problem: TraceProblem,
    /// The server.
    pub server: IpAddr,
    /// Who sent the SYN or the RST.
    pub from: Option<Side>,
}

/// Connections that failed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureGroup {
    /// How, and whose.
    pub kind: FailureKind,
    /// How many.
    pub connections: u64,
    /// The server's port; `None`: several.
    pub port: Option<u16>,
    /// The first connection's first frame.
    pub first_frame: u64,
    /// Its number.
    pub number: u64,
}

/// What a capture's connections amount to.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Connections.
    pub connections: u64,
    /// By problem.
    pub problems: BTreeMap<TraceProblem, ProblemSummary>,
    groups: BTreeMap<FailureKind, FailureGroup>,
    /// Failed connections for which there was no place among the groups.
    pub ungrouped: u64,
    /// Time in which a side of a connection had something to send, and all connections' time.
    pub busy: Duration,
    /// All connections' time.
    pub total: Duration,
    /// Connections in which segments overtook each other.
    pub reordered: u64,
    /// The direction with most data.
    pub transfer: Option<Transfer>,
}

impl Overview {
    /// Of some connections only.
    #[must_use]
    pub fn of<'a>(connections: impl IntoIterator<Item = &'a RankedConnection>) -> Self {
        let mut overview = Overview::default();
        let mut numbers = BTreeMap::new();
        for ranked in connections {
            let first = ranked.finished.first_frame;
            numbers.insert(first, ranked.number);
            overview.add(&Digest::of(&ranked.finished.report, first));
        }
        overview.number(|first| numbers.get(&first).copied().unwrap_or(0));
        overview
    }

    /// Adds a connection.
    pub fn add(&mut self, digest: &Digest) {
        self.connections += 1;
        self.busy += digest.busy.min(digest.total);
        self.total += digest.total;
        self.reordered += u64::from(digest.reordered);
        if let Some(transfer) = digest.transfer {
            let size = |t: &Transfer| (t.bytes, Reverse(t.first_frame));
            let larger = |kept: &Transfer| size(kept) > size(&transfer);
            self.transfer = self.transfer.filter(larger).or(Some(transfer));
        }
        for finding in digest.findings.iter() {
            let worst = Worst {
                finding: *finding,
                number: 0,
                first_frame: digest.first_frame,
                client: digest.client,
                server: digest.server,
            };
            (self.problems.entry(finding.problem))
                .and_modify(|summary| {
                    summary.connections += 1;
                    if worst.key() > summary.worst.key() {
                        summary.worst = worst;
                    }
                })
                .or_insert(ProblemSummary {
                    connections: 1,
                    worst,
                });
            if finding.problem.is_failure() {
                self.failed(digest, finding);
            }
        }
    }

    fn failed(&mut self, digest: &Digest, finding: &TraceFinding) {
        let kind = FailureKind {
            problem: finding.problem,
            server: digest.server.address,
            from: finding.from,
        };
        if self.groups.len() >= GROUPS && !self.groups.contains_key(&kind) {
            self.ungrouped += 1;
            return;
        }
        let group = self.groups.entry(kind).or_insert(FailureGroup {
            kind,
            connections: 0,
            port: Some(digest.server.port),
            first_frame: digest.first_frame,
            number: 0,
        });
        group.connections += 1;
        group.port = group.port.filter(|port| *port == digest.server.port);
        group.first_frame = group.first_frame.min(digest.first_frame);
    }

    /// Numbers the connections that are named, from their first frames.
    pub fn number(&mut self, number: impl Fn(u64) -> u64) {
        for summary in self.problems.values_mut() {
            summary.worst.number = number(summary.worst.first_frame);
        }
        if let Some(transfer) = &mut self.transfer {
            transfer.number = number(transfer.first_frame);
        }
        for group in self.groups.values_mut() {
            group.number = number(group.first_frame);
        }
    }

    /// Connections that failed alike, most first.
    #[must_use]
    pub fn failures(&self) -> Vec<FailureGroup> {
        let mut groups: Vec<FailureGroup> = self.groups.values().copied().collect();
        groups.sort_by_key(|g| (Reverse(g.connections), g.first_frame));
        groups
    }

    /// Connections with that problem.
    #[must_use]
    pub fn with(&self, problem: TraceProblem) -> u64 {
        self.problems.get(&problem).map_or(0, |s| s.connections)
    }

    /// What to say first of the capture; `None`: nothing is wrong. The rules:
    ///
    /// 1. If more than half of the connections were never opened (`Unanswered`, `Refused`):
    ///    the more frequent of the two.
    /// 2. Else the problem that cost most time in one connection. A failure costs its wait, one
    ///    second at least, times the part of the connections that failed so: what opening a
    ///    connection in this capture costs on average. So one connection that failed among hundreds
    ///    does not hide a slow transfer.
    /// 3. Small writes only if there is nothing else.
    #[must_use]
    pub fn worst(&self) -> Option<(TraceProblem, ProblemSummary)> {
        let never = [TraceProblem::Unanswered, TraceProblem::Refused];
        let unopened: u64 = never.iter().map(|p| self.with(*p)).sum();
        let serious = self.problems.iter().filter(|(p, _)| !p.is_harmless());
        let serious: Vec<_> = serious.map(|(p, s)| (*p, *s)).collect();
        if 2 * unopened > self.connections {
            let unopened = serious.into_iter().filter(|(p, _)| never.contains(p));
            return unopened.max_by_key(|(p, s)| (s.connections, Reverse(*p)));
        }
        let weight = |(problem, summary): &(TraceProblem, ProblemSummary)| {
            let cost = cost(&summary.worst.finding).as_secs_f64();
            let part = summary.connections as f64 / self.connections.max(1) as f64;
            cost * if problem.is_failure() { part } else { 1.0 }
        };
        let worse = |a, b| if weight(&b) > weight(&a) { b } else { a };
        let small = self.problems.get(&TraceProblem::SmallWrites);
        let small = small.map(|summary| (TraceProblem::SmallWrites, *summary));
        serious.into_iter().reduce(worse).or(small)
    }

    /// The part of the connections' time in which no side had anything to send.
    #[must_use]
    pub fn idle(&self) -> f64 {
        let total = self.total.as_secs_f64();
        if total > 0.0 {
            1.0 - self.busy.as_secs_f64() / total
        } else {
            0.0
        }
    }
}
