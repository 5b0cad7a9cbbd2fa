// SPDX-License-Identifier: Apache-2.0
//! A connection's statistics and an interval's evidence as columns.

use crate::cells::{CA_STATE_NAMES, TCP_STATE_NAMES, flat_group, flat_struct};
use slowpath_model::{
    ClockState, ClockStatus, Coverage, Deltas, LossCounters, RecoveryStats, RtoStats, RttSums,
    TcpStats, UnknownOwners,
};

/// Significant bits of an interval's evidence: at most 1.6 % off.
const EVIDENCE: u8 = 6;

flat_struct! { RttSums;
    sum => us("sum_rtt_us", "SumRTT: sum of the RTT samples; NULL without the BPF tier, as the next eight");
    count => number("count_rtt", "#SampleRTT: RTT samples");
    lifetime_min => us("lifetime_min_rtt_us", "smallest RTT sample of the connection's life as far as observed");
    lone_sum => us("lone_rtt_sum_us", "sum of the samples that may be delayed ACKs: ACKs without data for the only segment in flight");
    lone_count => number("lone_rtt_count", "samples in `lone_rtt_sum_us`");
    late_sum => us("late_rtt_sum_us", "sum of those of them that came later than a queue explains");
    late_count => number("late_rtt_count", "samples in `late_rtt_sum_us`");
    held_sum => us("held_rtt_sum_us", "sum of those of them during which the sender held data back (Nagle) or a writer waited for buffer space");
    held_count => number("held_rtt_count", "samples in `held_rtt_sum_us`");
}
flat_group!(RttSums);

flat_struct! { RecoveryStats;
    fast_recoveries => number("fast_recoveries", "#FastRetrans: entries to fast recovery; NULL without the BPF tier, as the next four");
    recovery_time => us("recovery_time_us", "time in fast recovery");
    loss_entries => number("loss_entries", "entries to recovery after a timeout (`TCP_CA_Loss`)");
    loss_time => us("loss_time_us", "time in it");
    rto_wait => us("rto_wait_us", "time waited for retransmission timers before they expired");
}
flat_group!(RecoveryStats);

flat_struct! { RtoStats;
    timeouts => number("timeouts", "#Timeout: expirations of the retransmission timer; NULL before Linux 6.7, as the next two");
    recoveries => number("timeout_episodes", "episodes of one or more expirations");
    time => us("timeout_time_us", "time from the first expiration of each episode to its end");
}
flat_group!(RtoStats);

flat_struct! { TcpStats;
    state => word("state", TCP_STATE_NAMES, "connection state");
    ca_state => word("ca_state", CA_STATE_NAMES, "congestion-avoidance state");
    bytes_sent => bytes("bytes_sent", "SentBytes: payload sent, retransmissions included");
    bytes_acked => bytes("bytes_acked", "payload acknowledged by the peer");
    bytes_received => bytes("bytes_received", "payload received in order");
    bytes_retransmitted => bytes("bytes_retransmitted", "payload retransmitted");
    segments_out => segments("segments_out", "segments sent");
    segments_in => segments("segments_in", "segments received");
    data_segments_out => segments("data_segments_out", "segments with payload sent");
    data_segments_in => segments("data_segments_in", "segments with payload received");
    retransmitted => segments("retransmitted", "segments retransmitted for whatever reason");
    delivered => segments("delivered", "segments delivered (RFC 6937)");
    delivered_ce => segments("delivered_ce", "segments delivered and reported CE-marked");
    dsack_duplicates => number("dsack_duplicates", "duplicate-SACK reports received");
    reordering_events => number("reorderings", "reordering events (`tcpi_reord_seen`)").was("reordering_seen");
    out_of_order_in => segments("out_of_order_in", "segments received out of order");
    in_flight => segments("in_flight", "segments in flight");
    lost => segments("lost", "segments presumed lost and not yet recovered");
    retransmitted_in_flight => segments("retransmitted_in_flight", "retransmitted segments in flight");
    sacked => segments("sacked", "segments reported by SACK");
    unanswered_timeouts => number("unanswered_timeouts", "expirations of the retransmission timer without an answer so far");
    probes => number("probes", "unanswered window or keep-alive probes");
    backoff => number("backoff", "exponent of the timer's back-off");
    cwnd => segments("cwnd", "Cwin: congestion window");
    ssthresh => segments("ssthresh", "slow-start threshold; NULL while infinite");
    send_window => bytes("send_window", "Rwin: window that the peer announced");
    receive_window => bytes("receive_window", "window that this end announces");
    send_mss => bytes("send_mss", "sending maximum segment size");
    path_mtu => bytes("path_mtu", "path MTU");
    reordering => segments("reordering", "reordering degree");
    srtt => us("srtt_us", "smoothed RTT");
    rttvar => us("rttvar_us", "RTT variation");
    min_rtt => us("min_rtt_us", "windowed minimum RTT");
    rto => us("rto_us", "retransmission timeout");
    pacing_rate => rate("pacing_rate", "pacing rate; NULL while unlimited");
    delivery_rate => rate("delivery_rate", "latest delivery-rate sample");
    app_limited => flag("app_limited", "whether the application limited that sample");
    busy => us("busy_us", "time with data outstanding or queued");
    rwnd_limited => us("rwnd_limited_us", "RwinLimitTime: time limited by the peer's receive window");
    sndbuf_limited => us("sndbuf_limited_us", "time limited by the send buffer");
    unsent => bytes("unsent", "payload written and not yet sent");
    send_queue => bytes("send_queue", "CurAppWQueue: payload in the send buffer, sent or not");
    receive_queue => bytes("receive_queue", "payload received and not yet read");
    send_memory => bytes("send_memory", "memory charged to the send queue");
    send_buffer => bytes("send_buffer", "send-buffer limit, of memory");
    receive_buffer => bytes("receive_buffer", "receive-buffer limit, of memory");
    rtt_sums => group(RttSums);
    recovery => group(RecoveryStats);
    rto_stats => group(RtoStats);
}

flat_struct! { Deltas, without thin_timeouts, acks_after_timeout;
    bytes_sent => bytes("bytes_sent", "SentBytes: payload sent").rounded(EVIDENCE);
    bytes_acked => bytes("bytes_acked", "payload acknowledged").rounded(EVIDENCE);
    bytes_received => bytes("bytes_received", "payload received").rounded(EVIDENCE);
    retransmitted => segments("retransmitted", "segments retransmitted for whatever reason");
    fast_recoveries => number("fast_recoveries", "#FastRetrans: entries to fast recovery");
    timeouts => number("timeouts", "#Timeout: expirations of the retransmission timer");
    rtt_sum => us("rtt_sum_us", "SumRTT: sum of the RTT samples").rounded(EVIDENCE);
    rtt_count => number("rtt_count", "#SampleRTT: RTT samples").rounded(EVIDENCE);
    delayed_acks => number("delayed_acks", "delayed ACKs");
    busy => us("busy_us", "time with data outstanding; CwinLimitTime is this less the next two");
    rwnd_limited => us("rwnd_limited_us", "RwinLimitTime: time limited by the receive window");
    sndbuf_limited => us("sndbuf_limited_us", "time limited by the send buffer");
    bytes_written => bytes("bytes_written", "WriteBytes: payload written by the application").rounded(EVIDENCE);
    writes => number("writes", "send calls").rounded(EVIDENCE);
    bytes_read => bytes("bytes_read", "ReadBytes: payload read by the application").rounded(EVIDENCE);
    reads => number("reads", "receive calls").rounded(EVIDENCE);
    cwnd => segments("cwnd", "Cwin: congestion window at the end").rounded(EVIDENCE);
    send_window => bytes("send_window", "Rwin: window that the peer announced, at the end").rounded(EVIDENCE);
    send_queue => bytes("send_queue", "CurAppWQueue: payload in the send buffer at the end").rounded(EVIDENCE);
    receive_queue => bytes("receive_queue", "payload received and not read at the end").rounded(EVIDENCE);
    srtt => us("srtt_us", "smoothed RTT at the end").rounded(EVIDENCE);
    baseline_rtt => us("baseline_rtt_us", "RTT that delayed ACKs were measured against").rounded(EVIDENCE);
    send_mss => bytes("send_mss", "sending maximum segment size");
    send_buffer => bytes("send_buffer", "send-buffer limit, of memory");
}

flat_struct! { LossCounters;
    storage_failed => number("storage_failed", "sockets for which no storage could be had, since the agent's start");
    snapshots_dropped => number("snapshots_dropped", "snapshots that found their area full, since the agent's start");
    closes_dropped => number("closes_dropped", "final records that found their ring full, since the agent's start");
    calls_dropped => number("calls_dropped", "call records that found their ring full, since the agent's start");
    records_dropped => number("records_dropped", "records that the spool could not take, since the agent's start");
}

flat_struct! { ClockStatus;
    state => word("clock_state", &ClockState::NAMES, "the wall clock's state at the end, as adjtimex(2) gives it: `ok`, `error` (not synchronised), or about a leap second `insert`, `delete`, `in_progress`, `waiting`; NULL: not known, as the next two");
    synchronised => flag("clock_synchronised", "whether something disciplines the clock");
    max_error => us("clock_max_error_us", "the kernel's bound of the clock's error; 16 s where nothing states it");
}
flat_group!(ClockStatus);

flat_struct! { Coverage;
    end => time("end_time", "end of the stretch").was("end");
    duration => us("duration_us", "its length");
    polls => number("polls", "polls made in it");
    sockets => number("sockets", "sockets that its last poll observed");
    missed => number("missed", "living sockets that its last poll did not observe");
    repeats => number("repeats", "sockets that polls met twice and counted once");
    emitted => number("emitted", "snapshots emitted because something had changed");
    opened => number("opened", "connections opened");
    closed => number("closed", "connections closed");
    owners_unknown => number("owners_unknown", "connections whose owner is unknown, at the end");
    losses => group(LossCounters);
    cpu => us("cpu_us", "CPU time of the agent in it, user and system");
    unmeasured => problems("unmeasured", "problems that this tier on this kernel cannot measure");
    unknown_owners => group(UnknownOwners);
    clock => group(ClockStatus);
}
