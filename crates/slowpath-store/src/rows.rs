// SPDX-License-Identifier: Apache-2.0
//! The three records as rows: which field is which column.
//!
//! Columns may be appended, at the end of a record; every other change is a new
//! [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).

use crate::cells::{
    CA_STATE_NAMES, Cell, Column, Columns, Flat, Kind, ORIGIN_NAMES, Row, TCP_STATE_NAMES,
    TIER_NAMES, flat_group, flat_struct,
};
use crate::owner_rows;
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, Deltas, FourTuple, LossCounters, Micros, Owner,
    Problem, RecoveryStats, RtoStats, RttSums, TcpStats, UnknownOwners,
};
use std::net::{IpAddr, SocketAddr};

use Kind::{Exact, Flag, Name, Rounded, Text, Time};

/// Totals of a connection: at most 0.4 % off.
const TOTAL: Kind = Rounded(8);
/// The other numbers of a connection's summary: at most 3.2 % off.
const SUMMARY: Kind = Rounded(5);
/// Significant bits of an interval's evidence: at most 6.3 % off.
pub(crate) const EVIDENCE_BITS: u8 = 4;
const EVIDENCE: Kind = Rounded(EVIDENCE_BITS);
/// Significant bits of the times of an interval's problems: at most 3.2 % off.
pub(crate) const TIME_BITS: u8 = 5;

/// Columns of [`ConnectionId`].
pub(crate) const IDENTITY: [Column; 4] = [
    Column {
        name: "boot_id",
        kind: Text,
    },
    Column {
        name: "netns",
        kind: Exact,
    },
    Column {
        name: "cookie",
        kind: Exact,
    },
    Column {
        name: "start_ns",
        kind: Exact,
    },
];

impl Flat for ConnectionId {
    fn put(&self, row: &mut Vec<Cell>) {
        row.push(Cell::Text(format!("{:032x}", self.boot_id)));
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
    fn put(&self, row: &mut Vec<Cell>) {
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

flat_struct! { RttSums;
    sum => one("sum_rtt_us", SUMMARY);
    count => one("count_rtt", SUMMARY);
    lifetime_min => one("lifetime_min_rtt_us", SUMMARY);
    lone_sum => one("lone_rtt_sum_us", SUMMARY);
    lone_count => one("lone_rtt_count", SUMMARY);
    late_sum => one("late_rtt_sum_us", SUMMARY);
    late_count => one("late_rtt_count", SUMMARY);
    held_sum => one("held_rtt_sum_us", SUMMARY);
    held_count => one("held_rtt_count", SUMMARY);
}
flat_group!(RttSums);

flat_struct! { RecoveryStats;
    fast_recoveries => one("fast_recoveries", Exact);
    recovery_time => one("recovery_time_us", SUMMARY);
    loss_entries => one("loss_entries", Exact);
    loss_time => one("loss_time_us", SUMMARY);
    rto_wait => one("rto_wait_us", SUMMARY);
}
flat_group!(RecoveryStats);

flat_struct! { RtoStats;
    timeouts => one("timeouts", Exact);
    recoveries => one("timeout_episodes", Exact);
    time => one("timeout_time_us", SUMMARY);
}
flat_group!(RtoStats);

flat_struct! { TcpStats;
    state => one("state", Name(TCP_STATE_NAMES));
    ca_state => one("ca_state", Name(CA_STATE_NAMES));
    bytes_sent => one("bytes_sent", TOTAL);
    bytes_acked => one("bytes_acked", TOTAL);
    bytes_received => one("bytes_received", TOTAL);
    bytes_retransmitted => one("bytes_retransmitted", SUMMARY);
    segments_out => one("segments_out", SUMMARY);
    segments_in => one("segments_in", SUMMARY);
    data_segments_out => one("data_segments_out", SUMMARY);
    data_segments_in => one("data_segments_in", SUMMARY);
    retransmitted => one("retransmitted", Exact);
    delivered => one("delivered", SUMMARY);
    delivered_ce => one("delivered_ce", SUMMARY);
    dsack_duplicates => one("dsack_duplicates", Exact);
    reordering_events => one("reordering_seen", Exact);
    out_of_order_in => one("out_of_order_in", Exact);
    in_flight => one("in_flight", SUMMARY);
    lost => one("lost", SUMMARY);
    retransmitted_in_flight => one("retransmitted_in_flight", SUMMARY);
    sacked => one("sacked", SUMMARY);
    unanswered_timeouts => one("unanswered_timeouts", Exact);
    probes => one("probes", Exact);
    backoff => one("backoff", Exact);
    cwnd => one("cwnd", SUMMARY);
    ssthresh => one("ssthresh", SUMMARY);
    send_window => one("send_window", SUMMARY);
    receive_window => one("receive_window", SUMMARY);
    send_mss => one("send_mss", Exact);
    path_mtu => one("path_mtu", Exact);
    reordering => one("reordering", Exact);
    srtt => one("srtt_us", SUMMARY);
    rttvar => one("rttvar_us", SUMMARY);
    min_rtt => one("min_rtt_us", SUMMARY);
    rto => one("rto_us", SUMMARY);
    pacing_rate => one("pacing_rate", SUMMARY);
    delivery_rate => one("delivery_rate", SUMMARY);
    app_limited => one("app_limited", Flag);
    busy => one("busy_us", SUMMARY);
    rwnd_limited => one("rwnd_limited_us", SUMMARY);
    sndbuf_limited => one("sndbuf_limited_us", SUMMARY);
    unsent => one("unsent", SUMMARY);
    send_queue => one("send_queue", SUMMARY);
    receive_queue => one("receive_queue", SUMMARY);
    send_memory => one("send_memory", SUMMARY);
    send_buffer => one("send_buffer", Exact);
    receive_buffer => one("receive_buffer", Exact);
    rtt_sums => group(RttSums);
    recovery => group(RecoveryStats);
    rto_stats => group(RtoStats);
}

/// A [`ConnectionSummary`] without its identity, as columns.
pub(crate) struct SummaryBody;

impl SummaryBody {
    /// The columns; must follow `put` and `take`.
    pub(crate) fn columns() -> Vec<Column> {
        let mut columns = Vec::new();
        let mut one = |name, kind| columns.push(Column { name, kind });
        one("local_address", Text);
        one("local_port", Exact);
        one("remote_address", Text);
        one("remote_port", Exact);
        one("origin", Name(ORIGIN_NAMES));
        one("pid", Exact);
        one("command", Text);
        one("tier", Name(TIER_NAMES));
        one("first_seen", Time);
        one("last_seen", Time);
        one("closed", Flag);
        one("observed_us", Exact);
        one("polls", Exact);
        for name in PROBLEM_TIME[..FIRST].iter().chain(&PROBLEM_EVENTS[..FIRST]) {
            one(name, Exact);
        }
        one("unmeasured", Exact);
        TcpStats::columns(&mut columns);
        let mut one = |name, kind| columns.push(Column { name, kind });
        one("bytes_written", TOTAL);
        one("writes", SUMMARY);
        one("bytes_read", TOTAL);
        one("reads", SUMMARY);
        for name in PROBLEM_TIME[FIRST..].iter().chain(&PROBLEM_EVENTS[FIRST..]) {
            one(name, Exact);
        }
        owner_rows::columns(&mut columns);
        owner_rows::address_columns(["real_peer_address", "real_peer_port"], &mut columns);
        columns
    }

    pub(crate) fn put(summary: &ConnectionSummary, row: &mut Vec<Cell>) {
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
        let put = |times: &[Micros], events: &[u64], row: &mut Vec<Cell>| {
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

flat_struct! { Deltas, without thin_timeouts, acks_after_timeout;
    bytes_sent => one("bytes_sent", EVIDENCE);
    bytes_acked => one("bytes_acked", EVIDENCE);
    bytes_received => one("bytes_received", EVIDENCE);
    retransmitted => one("retransmitted", Exact);
    fast_recoveries => one("fast_recoveries", Exact);
    timeouts => one("timeouts", Exact);
    rtt_sum => one("rtt_sum_us", EVIDENCE);
    rtt_count => one("rtt_count", Rounded(5));
    delayed_acks => one("delayed_acks", Exact);
    busy => one("busy_us", EVIDENCE);
    rwnd_limited => one("rwnd_limited_us", EVIDENCE);
    sndbuf_limited => one("sndbuf_limited_us", EVIDENCE);
    bytes_written => one("bytes_written", EVIDENCE);
    writes => one("writes", EVIDENCE);
    bytes_read => one("bytes_read", EVIDENCE);
    reads => one("reads", EVIDENCE);
    cwnd => one("cwnd", EVIDENCE);
    send_window => one("send_window", EVIDENCE);
    send_queue => one("send_queue", EVIDENCE);
    receive_queue => one("receive_queue", EVIDENCE);
    srtt => one("srtt_us", EVIDENCE);
    baseline_rtt => one("baseline_rtt_us", EVIDENCE);
    send_mss => one("send_mss", Exact);
    send_buffer => one("send_buffer", Exact);
}

flat_struct! { LossCounters;
    storage_failed => one("storage_failed", Exact);
    snapshots_dropped => one("snapshots_dropped", Exact);
    closes_dropped => one("closes_dropped", Exact);
    calls_dropped => one("calls_dropped", Exact);
    records_dropped => one("records_dropped", Exact);
}

flat_struct! { Coverage;
    end => one("end", Time);
    duration => one("duration_us", Exact);
    polls => one("polls", Exact);
    sockets => one("sockets", Exact);
    missed => one("missed", Exact);
    repeats => one("repeats", Exact);
    emitted => one("emitted", Exact);
    opened => one("opened", Exact);
    closed => one("closed", Exact);
    owners_unknown => one("owners_unknown", Exact);
    losses => group(LossCounters);
    cpu => one("cpu_us", Exact);
    unmeasured => one("unmeasured", Exact);
    unknown_owners => group(UnknownOwners);
}
