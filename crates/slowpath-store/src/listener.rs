// SPDX-License-Identifier: Apache-2.0
//! Listener intervals as rows. A row names its listener whole: there are few of them.

use crate::cells::{Cell, Column, Flat, Kind, Row, TIER_NAMES};
use slowpath_model::{
    Finding, ListenCounters, ListenSettings, ListenerDeltas, ListenerId, ListenerInterval, Owner,
    Problem, ProblemSet, Share, UnknownOwner,
};
use std::net::{IpAddr, SocketAddr};

use Kind::{Exact, Flag, Name, Text, Time};

/// A column for each cell of [`ListenerInterval`]'s row, in the order of `put` and `take`.
pub(crate) const COLUMNS: [Column; 30] = {
    const fn one(name: &'static str, kind: Kind) -> Column {
        Column { name, kind }
    }
    [
        one("boot_id", Text),
        one("netns", Exact),
        one("cookie", Exact),
        one("local_address", Text),
        one("local_port", Exact),
        one("pid", Exact),
        one("command", Text),
        one("tier", Name(TIER_NAMES)),
        one("end", Time),
        one("duration_us", Exact),
        one("found", Exact),
        one("accept_queue_overflow_events", Exact),
        one("syn_queue_overflow_events", Exact),
        one("unmeasured", Exact),
        one("drops", Exact),
        one("accept_queue_before", Exact),
        one("accept_queue", Exact),
        one("backlog", Exact),
        one("syn_queue", Exact),
        one("young", Exact),
        one("namespace_listen_overflows", Exact),
        one("namespace_listen_drops", Exact),
        one("namespace_queue_full_drops", Exact),
        one("namespace_queue_full_cookies", Exact),
        one("namespace_cookies_sent", Exact),
        one("dropping_listeners", Exact),
        one("somaxconn", Exact),
        one("max_syn_backlog", Exact),
        one("syncookies", Exact),
        one("abort_on_overflow", Flag),
    ]
};

/// What a listener can have, in the order of their columns.
const PROBLEMS: [Problem; 2] = [Problem::AcceptQueueOverflow, Problem::SynQueueOverflow];

impl Flat for ListenerInterval {
    fn put(&self, row: &mut Vec<Cell>) {
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
        row.push(Cell::Text(format!("{:032x}", listener.boot_id)));
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
