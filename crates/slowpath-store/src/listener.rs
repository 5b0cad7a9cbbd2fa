// SPDX-License-Identifier: Apache-2.0
//! Listener intervals as rows. A row names its listener whole: there are few of them.

use crate::cells::{CellValue, Flat, Row, TIER_NAMES};
use crate::column::{Column, flag, number, problems, segments, text, time, us, word};
use slowpath_model::{
    Finding, ListenCounters, ListenSettings, ListenerDeltas, ListenerId, ListenerInterval, Owner,
    Problem, ProblemSet, Share, UnknownOwner,
};
use std::net::{IpAddr, SocketAddr};

/// A column for each cell of [`ListenerInterval`]'s row, in the order of `put` and `take`.
pub(crate) const COLUMNS: [Column; 30] = [
    text("boot_id", "the kernel's boot id, 32 hex digits").of("ListenerId::boot_id"),
    number("netns", "inode number of the network namespace").of("ListenerId::netns"),
    number("cookie", "the listening socket's cookie").of("ListenerId::cookie"),
    text("local_address", "the address it listens on").of("ListenerInterval::local"),
    number("local_port", "its port").of("ListenerInterval::local"),
    number("pid", "a process that holds it").of("Process::pid"),
    text("command", "its command name").of("Process::command"),
    word("tier", TIER_NAMES, "`bpf`, `inet_diag` or `imported`").of("ListenerInterval::tier"),
    time("end_time", "end of the round")
        .was("end")
        .of("ListenerInterval::end"),
    us("duration_us", "its length").of("ListenerInterval::duration"),
    problems(
        "problems",
        "problems found; how long each lasted within the round is not known",
    )
    .was("found")
    .of("ListenerInterval::findings"),
    segments(
        "accept_queue_overflow_events",
        "segments turned away because the accept queue was full; NULL: not known for this reason separately",
    )
    .of("Finding::events"),
    segments(
        "syn_queue_overflow_events",
        "segments turned away, or answered by a cookie, because the SYN queue was full; NULL likewise",
    )
    .of("Finding::events"),
    problems("unmeasured", "problems that could not be measured")
        .of("ListenerInterval::unmeasured"),
    segments("drops", "segments dropped at this socket in the round").of("ListenerDeltas::drops"),
    number(
        "accept_queue_before",
        "connections that waited for accept at the beginning",
    )
    .of("ListenerDeltas::accept_queue_before"),
    number(
        "accept_queue",
        "connections that waited for accept at the end; full above `backlog`",
    )
    .of("ListenerDeltas::accept_queue"),
    number("backlog", "the listener's backlog").of("ListenerDeltas::backlog"),
    number("syn_queue", "half-open connections at the end").of("ListenerDeltas::syn_queue"),
    number("young", "those of them whose SYN/ACK was sent once").of("ListenerDeltas::young"),
    segments(
        "namespace_listen_overflows",
        "growth of the namespace's `ListenOverflows` in the round",
    )
    .of("ListenCounters::overflows"),
    segments("namespace_listen_drops", "growth of `ListenDrops`").of("ListenCounters::drops"),
    segments(
        "namespace_queue_full_drops",
        "growth of `TCPReqQFullDrop`",
    )
    .of("ListenCounters::queue_full_drops"),
    segments(
        "namespace_queue_full_cookies",
        "growth of `TCPReqQFullDoCookies`",
    )
    .of("ListenCounters::queue_full_cookies"),
    segments("namespace_cookies_sent", "growth of `SyncookiesSent`")
        .of("ListenCounters::cookies_sent"),
    number(
        "dropping_listeners",
        "listeners of the namespace that dropped something in the round",
    )
    .of("ListenerDeltas::dropping"),
    number("somaxconn", "`net.core.somaxconn`").of("ListenSettings::somaxconn"),
    number("max_syn_backlog", "`net.ipv4.tcp_max_syn_backlog`")
        .of("ListenSettings::max_syn_backlog"),
    number("syncookies", "`net.ipv4.tcp_syncookies`").of("ListenSettings::syncookies"),
    flag("abort_on_overflow", "`net.ipv4.tcp_abort_on_overflow`")
        .of("ListenSettings::abort_on_overflow"),
];

/// What a listener can have, in the order of their columns.
const PROBLEMS: [Problem; 2] = [Problem::AcceptQueueOverflow, Problem::SynQueueOverflow];

impl Flat for ListenerInterval {
    fn put(&self, row: &mut Vec<CellValue>) {
        let ListenerInterval {
            listener,
            local,
            owner,
            tier,
            end,
            duration,
            findings,
            unmeasured,
            deltas,
        } = self;
        row.push(CellValue::Text(format!("{:032x}", listener.boot_id)));
        listener.netns.put(row);
        listener.cookie.put(row);
        local.ip().to_string().put(row);
        u32::from(local.port()).put(row);
        owner.pid().put(row);
        owner.command().map(|c| c.to_string()).put(row);
        tier.put(row);
        end.put(row);
        duration.put(row);
        let found: ProblemSet = findings.iter().map(|f| f.problem).collect();
        found.put(row);
        for problem in PROBLEMS {
            let finding = findings.iter().find(|f| f.problem == problem);
            finding.and_then(|f| f.events).put(row);
        }
        unmeasured.put(row);
        let ListenerDeltas {
            drops,
            accept_queue_before,
            accept_queue,
            backlog,
            syn_queue,
            young,
            namespace,
            dropping,
            settings,
        } = deltas;
        drops.put(row);
        accept_queue_before.put(row);
        accept_queue.put(row);
        backlog.put(row);
        syn_queue.put(row);
        young.put(row);
        let ListenCounters {
            overflows,
            drops,
            queue_full_drops,
            queue_full_cookies,
            cookies_sent,
        } = namespace;
        for count in [
            overflows,
            drops,
            queue_full_drops,
            queue_full_cookies,
            cookies_sent,
        ] {
            count.put(row);
        }
        dropping.put(row);
        settings.somaxconn.put(row);
        settings.max_syn_backlog.put(row);
        settings.syncookies.put(row);
        settings.abort_on_overflow.put(row);
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let boot_id = u128::from_str_radix(&String::take(row)?, 16).ok()?;
        let listener = ListenerId {
            boot_id,
            netns: Flat::take(row)?,
            cookie: Flat::take(row)?,
        };
        let ip: IpAddr = String::take(row)?.parse().ok()?;
        let local = SocketAddr::new(ip, Flat::take(row)?);
        let pid = <Option<u32> as Flat>::take(row)?;
        let command = <Option<String> as Flat>::take(row)?;
        let owner = match pid.zip(command) {
            Some((pid, command)) => Owner::named(pid, &command),
            None => Owner::unknown(UnknownOwner::NotRecorded),
        };
        let (tier, end, duration) = (Flat::take(row)?, Flat::take(row)?, Flat::take(row)?);
        let found = ProblemSet::take(row)?;
        let mut findings = Vec::new();
        for problem in PROBLEMS {
            let events = Flat::take(row)?;
            if found.contains(problem) {
                findings.push(Finding {
                    problem,
                    share: Share::Coarse,
                    events,
                });
            }
        }
        Some(ListenerInterval {
            listener,
            local,
            owner,
            tier,
            end,
            duration,
            findings,
            unmeasured: Flat::take(row)?,
            deltas: ListenerDeltas {
                drops: Flat::take(row)?,
                accept_queue_before: Flat::take(row)?,
                accept_queue: Flat::take(row)?,
                backlog: Flat::take(row)?,
                syn_queue: Flat::take(row)?,
                young: Flat::take(row)?,
                namespace: take_counters(row)?,
                dropping: Flat::take(row)?,
                settings: take_settings(row)?,
            },
        })
    }
}

fn take_counters(row: &mut Row<'_>) -> Option<ListenCounters> {
    Some(ListenCounters {
        overflows: Flat::take(row)?,
        drops: Flat::take(row)?,
        queue_full_drops: Flat::take(row)?,
        queue_full_cookies: Flat::take(row)?,
        cookies_sent: Flat::take(row)?,
    })
}

fn take_settings(row: &mut Row<'_>) -> Option<ListenSettings> {
    Some(ListenSettings {
        somaxconn: Flat::take(row)?,
        max_syn_backlog: Flat::take(row)?,
        syncookies: Flat::take(row)?,
        abort_on_overflow: Flat::take(row)?,
    })
}
