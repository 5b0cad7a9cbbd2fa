// SPDX-License-Identifier: Apache-2.0
//! Connections and their summaries as rows of the spool and of version 1: which field is
//! which cell.
//!
//! Cells may be appended, at the end of a row; every other change needs a new
//! [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).

use crate::cells::{CellValue, Columns, Flat, ORIGIN_NAMES, Row, TIER_NAMES};
use crate::column::{Column, bytes, flag, number, problems, text, time, us, word};
use crate::{life_rows, owner_rows};
use slowpath_model::{
    ConnectionId, ConnectionSummary, FourTuple, LifeFacts, Micros, Owner, Problem, TcpStats,
};
use std::net::{IpAddr, SocketAddr};

/// Columns of [`ConnectionId`].
pub(crate) const IDENTITY: [Column; 4] = [
    text("boot_id", "the kernel's boot id, 32 hex digits").of("ConnectionId::boot_id"),
    number(
        "netns",
        "inode number of the network namespace; 0 where the tier has none",
    )
    .of("ConnectionId::netns"),
    number("cookie", "the socket's cookie, unique since boot").of("ConnectionId::cookie"),
    number(
        "start_ns",
        "monotonic clock when it opened; 0 if it is older than the agent, and from inet_diag",
    )
    .unit("ns")
    .of("ConnectionId::start"),
];

impl Flat for ConnectionId {
    fn put(&self, row: &mut Vec<CellValue>) {
        row.push(CellValue::Text(format!("{:032x}", self.boot_id)));
        self.netns.put(row);
        self.cookie.put(row);
        self.start.put(row);
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        Some(ConnectionId {
            boot_id: u128::from_str_radix(&String::take(row)?, 16).ok()?,
            netns: Flat::take(row)?,
            cookie: Flat::take(row)?,
            start: Flat::take(row)?,
        })
    }
}

impl Flat for FourTuple {
    fn put(&self, row: &mut Vec<CellValue>) {
        for end in [self.local, self.remote] {
            end.ip().to_string().put(row);
            u32::from(end.port()).put(row);
        }
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let mut end = || {
            let ip: IpAddr = String::take(row)?.parse().ok()?;
            Some(SocketAddr::new(ip, Flat::take(row)?))
        };
        Some(FourTuple {
            local: end()?,
            remote: end()?,
        })
    }
}

const TIME: &str = "time that the problem took; NULL: not measured";
const EVENTS: &str = "how often it occurred; NULL: not measured";

/// The first columns of a summary.
const HEAD: [Column; 13] = [
    text("local_address", "this host's address").of("FourTuple::local"),
    number("local_port", "its port").of("FourTuple::local"),
    text("remote_address", "the peer's address").of("FourTuple::remote"),
    number("remote_port", "its port").of("FourTuple::remote"),
    word(
        "origin",
        ORIGIN_NAMES,
        "`opened` by this end, `accepted`, or `unknown`",
    )
    .of("ConnectionSummary::origin"),
    number("pid", "process that owns the socket").of("Process::pid"),
    text("command", "its command name").of("Process::command"),
    word("tier", TIER_NAMES, "`bpf`, `inet_diag` or `imported`").of("ConnectionSummary::tier"),
    time("first_observed", "when it was first observed")
        .was("first_seen")
        .of("ConnectionSummary::first_observed"),
    time("last_observed", "when it was last observed")
        .was("last_seen")
        .of("ConnectionSummary::last_observed"),
    flag("closed", "whether it has closed").of("ConnectionSummary::closed"),
    us(
        "observed_us",
        "time observed: the sum of its polling intervals",
    )
    .of("ConnectionSummary::observed"),
    number("polls", "polls that contributed").of("ConnectionSummary::polls"),
];

/// The columns of its calls.
const CALLS: [Column; 4] = [
    bytes(
        "bytes_written",
        "payload written by the application; NULL: calls not observed, as the next three",
    )
    .of("ConnectionSummary::bytes_written"),
    number("writes", "send calls").of("ConnectionSummary::writes"),
    bytes("bytes_read", "payload read by the application").of("ConnectionSummary::bytes_read"),
    number("reads", "receive calls").of("ConnectionSummary::reads"),
];

/// The columns of the peer behind address translation.
const REAL_PEER: [Column; 2] = [
    text(
        "real_peer_address",
        "the peer behind address translation on this host (conntrack), where it is another than the remote address",
    )
    .of("ConnectionSummary::real_peer"),
    number("real_peer_port", "its port").of("ConnectionSummary::real_peer"),
];

/// A [`ConnectionSummary`] without its identity, as columns.
pub(crate) struct SummaryBody;

impl SummaryBody {
    /// The columns; must follow `put` and `take`.
    pub(crate) fn columns() -> Vec<Column> {
        let mut columns = HEAD.to_vec();
        let times = |range: &[&'static str]| -> Vec<Column> {
            let one = |name: &&'static str| us(name, TIME).of("ConnectionSummary::problem_time");
            range.iter().map(one).collect()
        };
        let events = |range: &[&'static str]| -> Vec<Column> {
            let one =
                |name: &&'static str| number(name, EVENTS).of("ConnectionSummary::problem_events");
            range.iter().map(one).collect()
        };
        columns.extend(times(&PROBLEM_TIME[..FIRST]));
        columns.extend(events(&PROBLEM_EVENTS[..FIRST]));
        columns.push(
            problems(
                "unmeasured",
                "problems that could not be measured in some interval: their times and events are lower bounds",
            )
            .of("ConnectionSummary::unmeasured"),
        );
        TcpStats::columns(&mut columns);
        columns.extend(CALLS);
        columns.extend(times(&PROBLEM_TIME[FIRST..]));
        columns.extend(events(&PROBLEM_EVENTS[FIRST..]));
        owner_rows::columns(&mut columns);
        columns.extend(REAL_PEER);
        columns.extend(life_rows::COLUMNS);
        columns
    }

    pub(crate) fn put(summary: &ConnectionSummary, row: &mut Vec<CellValue>) {
        let ConnectionSummary {
            connection: _,
            tuple,
            origin,
            owner,
            real_peer,
            tier,
            first_observed,
            last_observed,
            closed,
            observed,
            polls,
            problem_time,
            problem_events,
            unmeasured,
            stats,
            bytes_written,
            writes,
            bytes_read,
            reads,
            life,
        } = summary;
        tuple.put(row);
        origin.put(row);
        owner_rows::put_head(owner, row);
        tier.put(row);
        first_observed.put(row);
        last_observed.put(row);
        closed.put(row);
        observed.put(row);
        polls.put(row);
        let put = |times: &[Micros], events: &[u64], row: &mut Vec<CellValue>| {
            times.iter().for_each(|t| t.put(row));
            events.iter().for_each(|n| n.put(row));
        };
        put(&problem_time[..FIRST], &problem_events[..FIRST], row);
        unmeasured.put(row);
        stats.put(row);
        bytes_written.put(row);
        writes.put(row);
        bytes_read.put(row);
        reads.put(row);
        put(&problem_time[FIRST..], &problem_events[FIRST..], row);
        owner_rows::put_rest(owner, row);
        real_peer.put(row);
        life.put(row);
    }

    pub(crate) fn take(connection: ConnectionId, row: &mut Row<'_>) -> Option<ConnectionSummary> {
        let (mut summary, head) = Self::take_first(connection, row)?;
        // A log from before these problems does not say whether there were any.
        for problem in Problem::ALL.into_iter().skip(FIRST) {
            match <Option<Micros> as Flat>::take(row)? {
                Some(time) => summary.problem_time[problem as usize] = time,
                None if problem.is_of_listener() => {}
                None => summary.unmeasured.insert(problem),
            }
        }
        for events in &mut summary.problem_events[FIRST..] {
            *events = <Option<u64> as Flat>::take(row)?.unwrap_or(0);
        }
        summary.owner = owner_rows::take_rest(head, row)?;
        summary.real_peer = Flat::take(row)?;
        summary.life = Flat::take(row)?;
        Some(summary)
    }

    /// What the first schema had.
    fn take_first(
        connection: ConnectionId,
        row: &mut Row<'_>,
    ) -> Option<(ConnectionSummary, owner_rows::Head)> {
        let (tuple, origin) = (Flat::take(row)?, Flat::take(row)?);
        let head = owner_rows::take_head(row)?;
        let summary = ConnectionSummary {
            connection,
            tuple,
            origin,
            owner: Owner::default(),
            real_peer: None,
            tier: Flat::take(row)?,
            first_observed: Flat::take(row)?,
            last_observed: Flat::take(row)?,
            closed: Flat::take(row)?,
            observed: Flat::take(row)?,
            polls: Flat::take(row)?,
            problem_time: take_first(row)?,
            problem_events: take_first(row)?,
            unmeasured: Flat::take(row)?,
            stats: Flat::take(row)?,
            bytes_written: Flat::take(row)?,
            writes: Flat::take(row)?,
            bytes_read: Flat::take(row)?,
            reads: Flat::take(row)?,
            life: LifeFacts::default(),
        };
        Some((summary, head))
    }
}

/// The values of the first problems, the others' to be filled in.
fn take_first<T: Flat + Default + Copy>(row: &mut Row<'_>) -> Option<[T; Problem::ALL.len()]> {
    let mut values = [T::default(); Problem::ALL.len()];
    for value in &mut values[..FIRST] {
        *value = T::take(row)?;
    }
    Some(values)
}

/// Time columns of the problems, by their number.
pub(crate) const PROBLEM_TIME: [&str; Problem::ALL.len()] = [
    "sender_app_limited_time_us",
    "send_buffer_limited_time_us",
    "fast_retransmit_time_us",
    "timeout_problem_time_us",
    "delayed_ack_time_us",
    "receiver_window_limited_time_us",
    "congestion_window_limited_time_us",
    "small_writes_time_us",
    "idle_burst_time_us",
    "zero_window_time_us",
    "reordering_time_us",
    "ecn_marked_time_us",
    "receiver_app_slow_time_us",
    "syn_retransmit_time_us",
    "accept_queue_overflow_time_us",
    "syn_queue_overflow_time_us",
];
/// Event columns of the problems, by their number.
pub(crate) const PROBLEM_EVENTS: [&str; Problem::ALL.len()] = [
    "sender_app_limited_events",
    "send_buffer_limited_events",
    "fast_retransmit_events",
    "timeout_events",
    "delayed_ack_events",
    "receiver_window_limited_events",
    "congestion_window_limited_events",
    "small_writes_events",
    "idle_burst_events",
    "zero_window_events",
    "reordering_events",
    "ecn_marked_events",
    "receiver_app_slow_events",
    "syn_retransmit_events",
    "accept_queue_overflow_events",
    "syn_queue_overflow_events",
];
/// So many problems' columns are where they were first; those of the later ones are
/// appended to the record.
pub(crate) const FIRST: usize = 6;
