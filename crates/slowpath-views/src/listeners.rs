// SPDX-License-Identifier: Apache-2.0
//! Listening sockets that turned connections away: summed, as text, as JSON.

use crate::advice;
use crate::conclusion::Refusing;
use crate::criterion::Criterion;
use crate::filter::{Filter, Subject};
use crate::json::{self, FindingEntry, LimitReached, NamedAdvice, ProblemNames, Process};
use crate::source::LiveListener;
use crate::tally;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::advise_listener;
use slowpath_model::{
    Finding, ListenerDeltas, ListenerId, ListenerInterval, Micros, MonoNanos, Problem, ProblemSet,
    TcpState, Tier, WallMicros,
};
use slowpath_text::{Columns, Paint, plural, process};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Listeners with sums of their own; those beyond are counted.
const MOST: usize = 10_000;

/// Sums of one problem of one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    /// Intervals that found it, and their time.
    intervals: u64,
    time: Micros,
    /// Segments turned away, as far as counted.
    events: u64,
    /// Intervals in which they could not be counted.
    uncounted: u64,
}

/// One listener with its sums.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The latest interval in which it had a problem.
    last: ListenerInterval,
    /// Processes that hold it; 0 if they were not looked for.
    holders: usize,
    sums: BTreeMap<Problem, Sum>,
}

/// Sums of listeners that turned connections away.
#[derive(Clone, Debug, Default)]
pub struct ListenerTally {
    listeners: BTreeMap<ListenerId, Listener>,
    /// End of the last interval added of each, on the monotonic clock.
    until: BTreeMap<ListenerId, MonoNanos>,
    overflowed: u64,
}

impl ListenerTally {
    /// Adds an interval.
    pub fn add(&mut self, interval: &ListenerInterval, holders: usize) {
        if self.listeners.len() >= MOST && !self.listeners.contains_key(&interval.listener) {
            self.overflowed += 1;
            return;
        }
        let listener = self
            .listeners
            .entry(interval.listener)
            .or_insert_with(|| Listener {
                last: interval.clone(),
                holders,
                sums: BTreeMap::new(),
            });
        if interval.end >= listener.last.end {
            listener.last.clone_from(interval);
            listener.holders = holders;
        }
        for finding in &interval.findings {
            let sum = listener.sums.entry(finding.problem).or_default();
            sum.intervals += 1;
            sum.time += finding.share.time_of(interval.duration);
            match finding.events {
                Some(events) => sum.events += events,
                None => sum.uncounted += 1,
            }
        }
    }

    /// Adds the verdict on the latest round of a living listener, if there is one that was
    /// not added yet, and returns it.
    pub fn take(&mut self, live: LiveListener<'_>, now: WallMicros) -> Option<ListenerInterval> {
        let interval = live.interval(now)?;
        let to = live.latest?.to;
        if interval.findings.is_empty() || self.until.get(&interval.listener) == Some(&to) {
            return None;
        }
        if self.until.len() < MOST || self.until.contains_key(&interval.listener) {
            self.until.insert(interval.listener, to);
        }
        self.add(&interval, live.holders.len());
        Some(interval)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// The bound on their number, if it was reached.
    pub fn limit_reached(&self) -> Option<LimitReached> {
        LimitReached::of("listeners", MOST, self.overflowed)
    }

    /// Whether one of them had a problem that counts, of so much time.
    pub fn meet(&self, criterion: &Criterion, of: Micros) -> bool {
        let mut sums = self.listeners.values().flat_map(|l| &l.sums);
        sums.any(|(p, sum)| {
            criterion.names(*p) && tally::share(sum.time, of) >= criterion.min_share
        })
    }

    /// Most turned away first.
    fn worst(&self) -> Vec<&Listener> {
        let mut worst: Vec<&Listener> = self.listeners.values().collect();
        let events = |l: &Listener| l.sums.values().map(|s| s.events).sum::<u64>();
        worst.sort_by_key(|l| (std::cmp::Reverse(events(l)), l.last.listener));
        worst
    }

    /// What each problem of each listener turned away.
    pub(crate) fn refusing(&self) -> Vec<Refusing<'_>> {
        let mut refusing = Vec::new();
        for listener in self.listeners.values() {
            for (problem, sum) in &listener.sums {
                refusing.push(Refusing {
                    owner: &listener.last.owner,
                    local: listener.last.local,
                    problem: *problem,
                    time: sum.time,
                    events: sum.events,
                });
            }
        }
        refusing
    }

    /// A table of the worst `most`; nothing if there is none.
    pub fn table(&self, most: usize, paint: Paint) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut lines = vec!["listeners that turned connections away".to_owned()];
        let mut columns = Columns::new(&["problem", ">turned away", ">time", "process", "address"]);
        for listener in self.worst().into_iter().take(most) {
            for (problem, sum) in &listener.sums {
                columns.row([
                    problem.name().to_owned(),
                    counted(sum),
                    format!("{} or less", sum.time),
                    process(&listener.last.owner),
                    listener.last.local.to_string(),
                ]);
            }
        }
        lines.extend(columns.lines(2, paint));
        if self.overflowed > 0 {
            lines.push(format!(
                "  not listed separately: {} beyond {MOST} listeners",
                plural(self.overflowed, "round")
            ));
        }
        lines
    }

    /// Each with evidence and advice.
    pub fn answers(&self, most: usize, width: usize, paint: Paint) -> Vec<String> {
        let mut lines = Vec::new();
        for listener in self.worst().into_iter().take(most) {
            let last = &listener.last;
            let holders = match listener.holders {
                0 | 1 => String::new(),
                n => format!(", held by {n} processes"),
            };
            lines.push(paint.bold(&format!(
                "{}  listens on {}{holders}",
                process(&last.owner),
                last.local
            )));
            for (problem, sum) in &listener.sums {
                let verdict = format!(
                    "{problem}: {} turned away in {}",
                    counted(sum),
                    plural(sum.intervals, "round")
                );
                lines.push(paint.problem(*problem, &paint.bold(&verdict)));
                let mut points = vec![("evidence", evidence(&last.deltas).join(", "))];
                if let Some(advice) = advise_listener(*problem, &last.deltas) {
                    let who = advice::who(advice.who, Some(&last.owner), None);
                    points.push(("act", who));
                    points.push(("advice", advice.what));
                    points.push(("after", advice.source.to_owned()));
                }
                lines.extend(crate::points::lines(points, width));
            }
        }
        lines
    }

    /// Each listener with its sums and the evidence of its latest interval.
    pub fn output(&self) -> Vec<ListenerEntry> {
        let sum = |(problem, sum): (&Problem, &Sum)| {
            let sum = ListenerSum {
                intervals: sum.intervals,
                time_us: sum.time.0,
                events: sum.events,
                uncounted_intervals: sum.uncounted,
            };
            (problem.name(), sum)
        };
        let entry = |listener: &Listener| ListenerEntry {
            listener: ListenerKeys::of(&listener.last, listener.holders),
            problems: listener.sums.iter().map(sum).collect(),
            advice: advices(&listener.last),
        };
        self.worst().into_iter().map(entry).collect()
    }
}

/// A number of segments; at least that many where some could not be counted.
fn counted(sum: &Sum) -> String {
    match (sum.events, sum.uncounted) {
        (events, 0) => events.to_string(),
        (0, _) => "not counted".to_owned(),
        (events, _) => format!("{events} or more"),
    }
}

/// The numbers behind a verdict on a listener, as text.
pub fn evidence(d: &ListenerDeltas) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(drops) = d.drops {
        words.push(format!("{drops} dropped"));
    }
    words.push(format!(
        "{} wait for accept ({} before), backlog {}",
        d.accept_queue, d.accept_queue_before, d.backlog
    ));
    if let Some(queue) = d.syn_queue {
        words.push(format!("{queue} half-open"));
    }
    let named = [
        (d.namespace.overflows, "ListenOverflows"),
        (d.namespace.queue_full_drops, "TCPReqQFullDrop"),
        (d.namespace.queue_full_cookies, "TCPReqQFullDoCookies"),
    ];
    for (count, name) in named {
        if let Some(count @ 1..) = count {
            words.push(format!("{name} +{count}"));
        }
    }
    if d.dropping > 1 {
        words.push(format!("{} listeners dropped something", d.dropping));
    }
    words
}

/// `AcceptQueueOverflow 15  nginx[12]  0.0.0.0:80  15 dropped, 129 wait for accept`
pub fn line(interval: &ListenerInterval, paint: Paint) -> String {
    let label: Vec<String> = interval
        .findings
        .iter()
        .map(|f| {
            let events = f.events.map_or("?".to_owned(), |e| e.to_string());
            paint.problem(f.problem, &format!("{:<21} {events:>4}", f.problem.name()))
        })
        .collect();
    format!(
        "{}  {}  listens on {}  {}",
        label.join("  "),
        process(&interval.owner),
        interval.local,
        evidence(&interval.deltas).join(", "),
    )
}

/// Counters of a namespace's listeners over an interval (`/proc/net/netstat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct NamespaceCounters {
    /// `ListenOverflows`.
    pub listen_overflows: Option<u64>,
    /// `ListenDrops`.
    pub listen_drops: Option<u64>,
    /// `TCPReqQFullDrop`.
    pub queue_full_drops: Option<u64>,
    /// `TCPReqQFullDoCookies`.
    pub queue_full_cookies: Option<u64>,
    /// `SyncookiesSent`.
    pub cookies_sent: Option<u64>,
}

/// Settings of a namespace; null is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct NamespaceSettings {
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u32>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub max_syn_backlog: Option<u32>,
    /// `net.ipv4.tcp_syncookies`.
    pub syncookies: Option<u32>,
    /// `net.ipv4.tcp_abort_on_overflow`.
    pub abort_on_overflow: Option<bool>,
}

/// The numbers behind a verdict on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ListenerEvidence {
    /// Segments dropped at this listener in the interval.
    pub drops: Option<u64>,
    /// Connections that waited for `accept` at the beginning.
    pub accept_queue_before: u32,
    /// Connections that waited for `accept` at the end.
    pub accept_queue: u32,
    /// The most that may wait.
    pub backlog: u32,
    /// Half-open connections.
    pub syn_queue: Option<u32>,
    /// Half-open connections whose SYN-ACK was not sent again yet.
    pub syn_queue_young: Option<u32>,
    /// Listeners of the namespace that dropped something in the interval.
    pub dropping_listeners: u32,
    /// What the namespace's counters grew by.
    pub namespace: NamespaceCounters,
    /// The namespace's settings.
    pub settings: NamespaceSettings,
}

impl From<&ListenerDeltas> for ListenerEvidence {
    fn from(d: &ListenerDeltas) -> Self {
        ListenerEvidence {
            drops: d.drops,
            accept_queue_before: d.accept_queue_before,
            accept_queue: d.accept_queue,
            backlog: d.backlog,
            syn_queue: d.syn_queue,
            syn_queue_young: d.young,
            dropping_listeners: d.dropping,
            namespace: NamespaceCounters {
                listen_overflows: d.namespace.overflows,
                listen_drops: d.namespace.drops,
                queue_full_drops: d.namespace.queue_full_drops,
                queue_full_cookies: d.namespace.queue_full_cookies,
                cookies_sent: d.namespace.cookies_sent,
            },
            settings: NamespaceSettings {
                somaxconn: d.settings.somaxconn,
                max_syn_backlog: d.settings.max_syn_backlog,
                syncookies: d.settings.syncookies,
                abort_on_overflow: d.settings.abort_on_overflow,
            },
        }
    }
}

/// Which listener an object is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ListenerKeys {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// The socket cookie.
    pub cookie: u64,
    /// The address it listens on.
    pub local: String,
    /// A process that holds it.
    pub process: Option<Process>,
    /// Processes that hold it; null if they were not looked for.
    pub holders: Option<usize>,
    /// The tier that measured.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::tier"))]
    pub tier: Tier,
    /// The numbers of the latest interval.
    pub evidence: ListenerEvidence,
}

impl ListenerKeys {
    fn of(interval: &ListenerInterval, holders: usize) -> Self {
        ListenerKeys {
            netns: interval.listener.netns,
            cookie: interval.listener.cookie,
            local: interval.local.to_string(),
            process: json::process(&interval.owner),
            holders: (holders > 0).then_some(holders),
            tier: interval.tier,
            evidence: (&interval.deltas).into(),
        }
    }
}

/// What to do about one problem of a listener.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ListenerAdvice {
    /// The problem.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::problem"))]
    pub problem: &'static str,
    /// The advice.
    #[serde(flatten)]
    pub advice: NamedAdvice,
}

fn advices(interval: &ListenerInterval) -> Vec<ListenerAdvice> {
    let advice = |finding: &Finding| {
        let advice = advise_listener(finding.problem, &interval.deltas)?;
        Some(ListenerAdvice {
            problem: finding.problem.name(),
            advice: NamedAdvice {
                act: advice::who(advice.who, Some(&interval.owner), None),
                advice: (&advice).into(),
            },
        })
    };
    interval.findings.iter().filter_map(advice).collect()
}

/// Sums of one problem of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ListenerSum {
    /// Intervals that found it.
    pub intervals: u64,
    /// Their time in microseconds: an upper bound.
    pub time_us: u64,
    /// Segments turned away, as far as counted.
    pub events: u64,
    /// Intervals in which they could not be counted.
    pub uncounted_intervals: u64,
}

/// A listener that turned connections away, with its sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ListenerEntry {
    /// Which listener, and the evidence of its latest interval.
    #[serde(flatten)]
    pub listener: ListenerKeys,
    /// Its sums by problem.
    pub problems: BTreeMap<&'static str, ListenerSum>,
    /// What to do about the problems of the latest interval.
    pub advice: Vec<ListenerAdvice>,
}

/// The verdict on one interval of a listener: `{"type": "listener"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ListenerOutput {
    /// `listener`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The interval's end, RFC 3339 in UTC.
    pub time: String,
    /// Which listener, and the evidence.
    #[serde(flatten)]
    pub listener: ListenerKeys,
    /// The interval's length in microseconds.
    pub interval_us: u64,
    /// What was found.
    pub findings: Vec<FindingEntry>,
    /// Problems that could not be measured.
    pub unmeasured: ProblemNames,
    /// What to do.
    pub advice: Vec<ListenerAdvice>,
}

impl ListenerOutput {
    /// The verdict on one interval of a listener that so many processes hold; 0 if they were
    /// not looked for.
    pub fn of(interval: &ListenerInterval, holders: usize) -> Self {
        let findings = interval.findings.iter();
        ListenerOutput {
            kind: "listener",
            time: json::wall(interval.end),
            listener: ListenerKeys::of(interval, holders),
            interval_us: interval.duration.0,
            findings: findings
                .map(|f| FindingEntry::of(f, interval.duration))
                .collect(),
            unmeasured: json::problems(interval.unmeasured),
            advice: advices(interval),
        }
    }
}

/// Whether a filter selects a listener: its peer is any address, any port.
pub fn selected(filter: &Filter, interval: &ListenerInterval) -> bool {
    let any: IpAddr = match interval.local {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let problems: ProblemSet = interval.findings.iter().map(|f| f.problem).collect();
    filter.selects(&Subject {
        local: interval.local,
        remote: SocketAddr::new(any, 0),
        state: TcpState::Listen,
        owner: &interval.owner,
        problems,
    })
}
