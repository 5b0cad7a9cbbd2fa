// SPDX-License-Identifier: Apache-2.0
//! Listening sockets in the views: added up, in words, as JSON.

use crate::advice;
use crate::filter::{Filter, Subject};
use crate::json;
use crate::source::LiveListener;
use serde_json::{Map, Value, json};
use slowpath_diagnose::advise_listener;
use slowpath_model::{
    ListenerDeltas, ListenerId, ListenerInterval, Micros, MonoNanos, Problem, ProblemSet, TcpState,
    WallMicros,
};
use slowpath_text::{Columns, Paint, plural, process, wrapped};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Listeners kept apart; those beyond are counted.
const MOST: usize = 10_000;

/// One problem of one listener, added up.
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

/// One listener, added up.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The latest interval in which it had a problem.
    last: ListenerInterval,
    /// Processes that hold it; 0 if they were not looked for.
    holders: usize,
    sums: BTreeMap<Problem, Sum>,
}

/// Listeners that turned connections away, added up.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    seen: BTreeMap<ListenerId, Listener>,
    /// End of the last interval added of each, on the monotonic clock.
    until: BTreeMap<ListenerId, MonoNanos>,
    overflowed: u64,
}

impl Heard {
    /// Adds an interval.
    pub fn add(&mut self, interval: &ListenerInterval, holders: usize) {
        if self.seen.len() >= MOST && !self.seen.contains_key(&interval.listener) {
            self.overflowed += 1;
            return;
        }
        let listener = self
            .seen
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
    /// not added yet; gives it.
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
        self.seen.is_empty()
    }

    /// Most turned away first.
    fn worst(&self) -> Vec<&Listener> {
        let mut worst: Vec<&Listener> = self.seen.values().collect();
        let events = |l: &Listener| l.sums.values().map(|s| s.events).sum::<u64>();
        worst.sort_by_key(|l| (std::cmp::Reverse(events(l)), l.last.listener));
        worst
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
                "  not kept apart: {} beyond {MOST} listeners",
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
                for (head, text) in points {
                    for (i, line) in wrapped(&text, width).into_iter().enumerate() {
                        let head = if i == 0 { head } else { "" };
                        lines.push(format!("  {head:<10}{line}"));
                    }
                }
            }
        }
        lines
    }

    /// A list of objects, each a listener with its sums and the evidence of its latest
    /// interval.
    pub fn json(&self) -> Value {
        let objects = self.worst().into_iter().map(|listener| {
            let mut map = about(&listener.last, listener.holders);
            let problems: Map<String, Value> = listener
                .sums
                .iter()
                .map(|(problem, sum)| {
                    let sum = json!({
                        "intervals": sum.intervals,
                        "time_us": sum.time.0,
                        "events": sum.events,
                        "uncounted_intervals": sum.uncounted,
                    });
                    (problem.name().to_owned(), sum)
                })
                .collect();
            map.insert("problems".to_owned(), Value::Object(problems));
            map.insert("advice".to_owned(), advices(&listener.last));
            Value::Object(map)
        });
        Value::Array(objects.collect())
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

/// What a verdict on a listener rests on, in words.
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

fn about(interval: &ListenerInterval, holders: usize) -> Map<String, Value> {
    let d = &interval.deltas;
    let value = json!({
        "netns": interval.listener.netns,
        "cookie": interval.listener.cookie,
        "local": interval.local.to_string(),
        "process": json::process(&interval.owner),
        "holders": (holders > 0).then_some(holders),
        "tier": interval.tier,
        "evidence": {
            "drops": d.drops,
            "accept_queue_before": d.accept_queue_before,
            "accept_queue": d.accept_queue,
            "backlog": d.backlog,
            "syn_queue": d.syn_queue,
            "syn_queue_young": d.young,
            "dropping_listeners": d.dropping,
            "namespace": {
                "listen_overflows": d.namespace.overflows,
                "listen_drops": d.namespace.drops,
                "queue_full_drops": d.namespace.queue_full_drops,
                "queue_full_cookies": d.namespace.queue_full_cookies,
                "cookies_sent": d.namespace.cookies_sent,
            },
            "settings": d.settings,
        },
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn advices(interval: &ListenerInterval) -> Value {
    interval
        .findings
        .iter()
        .filter_map(|f| {
            let advice = advise_listener(f.problem, &interval.deltas)?;
            Some(json!({
                "problem": f.problem.name(),
                "who": advice.who,
                "act": advice::who(advice.who, Some(&interval.owner), None),
                "what": advice.what,
                "source": advice.source,
            }))
        })
        .collect()
}

/// One verdict on a listener as an object.
pub fn object(interval: &ListenerInterval, holders: usize) -> Value {
    let mut map = about(interval, holders);
    let findings: Vec<Value> = interval
        .findings
        .iter()
        .map(|f| json::finding(f, interval.duration))
        .collect();
    for (key, value) in [
        ("type", json!("listener")),
        ("time", json!(json::wall(interval.end))),
        ("interval_us", json!(interval.duration.0)),
        ("findings", Value::Array(findings)),
        ("unmeasured", json::problems(interval.unmeasured)),
        ("advice", advices(interval)),
    ] {
        map.insert(key.to_owned(), value);
    }
    Value::Object(map)
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
