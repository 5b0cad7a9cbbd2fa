// SPDX-License-Identifier: Apache-2.0
//! Who has to do what.

mod timeline;
use slowpath_diagnose::{Actor, Advice, AdviceContext, advise, size_send_buffer};
use slowpath_model::{CallStats, IntervalVerdict, Problem, Problem::*, RttSums, TcpStats};
use timeline::*;

fn advice(v: &IntervalVerdict, problem: Problem, context: &AdviceContext) -> Advice {
    advise(v.finding(problem).expect("the finding"), v, context)
}

#[track_caller]
fn says(advice: &Advice, words: &[&str]) {
    for word in words {
        assert!(advice.what.contains(word), "{word:?} in {:?}", advice.what);
    }
}

fn full_buffer(change: impl FnOnce(&mut TcpStats)) -> Timeline {
    Timeline::new()
        .then(|s| {
            s.sndbuf_limited = Some(ms(400));
            s.send_buffer = Some(4608);
        })
        .then(change)
}

#[test]
fn the_send_buffer_is_sized_by_window_rate_and_memory() {
    let v = full_buffer(|_| ()).verdict();
    // Window: 10 · 1000 bytes. Rate · RTT: 50 MB/s · 1 ms = 50,000 bytes.
    let mut context = AdviceContext {
        delivery_rate: Some(50_000_000),
        min_rtt: Some(ms(1)),
        ..AdviceContext::default()
    };
    let sizing = size_send_buffer(&v.deltas, &context).unwrap();
    assert_eq!(sizing.window, 10_000);
    assert_eq!(sizing.rate_delay, Some(50_000));
    assert_eq!(sizing.memory_share, None);
    assert_eq!(sizing.so_sndbuf, 100_000);

    // SNAP 5.3: 10,000 · 1,000,000 ÷ 80,000 = 125,000 bytes of memory, which
    // SO_SNDBUF 62,500 asks for.
    context.total_send_buffer_memory = Some(1_000_000);
    context.sum_cwnd = Some(80_000);
    let sizing = size_send_buffer(&v.deltas, &context).unwrap();
    assert_eq!(sizing.memory_share, Some(125_000));
    assert_eq!(sizing.so_sndbuf, 62_500);
    let a = advice(&v, SendBufferLimited, &context);
    assert_eq!(a.who, Actor::SenderDeveloper);
    says(
        &a,
        &[
            "Remove SO_SNDBUF",
            "to 62500",
            "125000",
            "doubles",
            "4.5 KiB",
        ],
    );
}

#[test]
fn a_buffer_grown_to_the_sysctls_limit_is_the_hosts() {
    let v = full_buffer(|_| ()).verdict();
    let context = AdviceContext {
        send_buffer_max: Some(4608),
        ..AdviceContext::default()
    };
    let a = advice(&v, SendBufferLimited, &context);
    assert_eq!(a.who, Actor::HostOperator);
    says(&a, &["net.ipv4.tcp_wmem", "40000"]);
}

#[test]
fn a_buffer_that_fits_is_not_blamed_for_its_size() {
    let v = full_buffer(|s| s.send_buffer = Some(4_000_000)).verdict();
    let a = advice(&v, SendBufferLimited, &AdviceContext::default());
    assert_eq!(a.who, Actor::HostOperator);
    says(&a, &["not its size", "tcp_mem"]);
}

/// Two late ACKs that held a write of an exchange back, or of a stream.
fn late(held: bool) -> Timeline {
    let received = |s: &mut TcpStats| s.bytes_received *= u64::from(held);
    Timeline::new().both(received).then(|s| {
        let r: &mut RttSums = s.rtt_sums.as_mut().unwrap();
        for (sum, n) in [
            (&mut r.lone_sum, &mut r.lone_count),
            (&mut r.late_sum, &mut r.late_count),
        ] {
            *sum += ms(82);
            *n += 2;
        }
        if held {
            r.held_sum += ms(82);
            r.held_count += 2;
            s.bytes_received += 100;
        }
    })
}

#[test]
fn a_late_ack_that_held_a_write_is_nagles() {
    let v = late(true).verdict();
    let a = advice(&v, DelayedAck, &AdviceContext::default());
    assert_eq!(a.who, Actor::SenderDeveloper);
    says(
        &a,
        &[
            "2 ACKs",
            "40.0ms each",
            "TCP_NODELAY",
            "writev",
            "TCP_QUICKACK",
            "quickack 1",
        ],
    );
}

#[test]
fn a_late_ack_in_a_stream_is_the_receivers() {
    let v = late(false).verdict();
    let a = advice(&v, DelayedAck, &AdviceContext::default());
    assert_eq!(a.who, Actor::ReceiverSide);
    says(&a, &["TCP_QUICKACK"]);
    let held = AdviceContext {
        held_acks: Some(2),
        ..AdviceContext::default()
    };
    assert_eq!(advice(&v, DelayedAck, &held).who, Actor::SenderDeveloper);
}

#[test]
fn timeouts_of_small_writes_are_the_developers() {
    let mut t = Timeline::new().then(|s| {
        let r = s.rto_stats.as_mut().unwrap();
        r.timeouts += 10;
        r.recoveries += 10;
    });
    t.before.sends = Some(CallStats::default());
    t.after.sends = Some(CallStats {
        count: 5,
        bytes: 10_000, // 2000 a write: two segments
        ..CallStats::default()
    });
    let a = advice(&t.verdict(), Timeout, &AdviceContext::default());
    assert_eq!(a.who, Actor::SenderDeveloper);
    says(&a, &["10 times", "2.0 KiB", "one connection"]);

    t.after.sends.as_mut().unwrap().bytes = 5_000_000;
    let a = advice(&t.verdict(), Timeout, &AdviceContext::default());
    assert_eq!(a.who, Actor::NetworkOperator);
}

#[test]
fn a_timeout_followed_by_a_delayed_ack_is_figure_six() {
    let v = late(false)
        .then(|s| s.rto_stats.as_mut().unwrap().timeouts += 1)
        .verdict();
    says(
        &advice(&v, Timeout, &AdviceContext::default()),
        &["expired once", "whose ACK the receiver delays"],
    );
}

#[test]
fn fast_retransmissions_are_the_networks() {
    let v = Timeline::new()
        .then(|s| {
            s.recovery.as_mut().unwrap().fast_recoveries += 2;
            s.retransmitted += 5;
            s.bytes_sent = s.bytes_sent.map(|b| b + 500_000);
        })
        .verdict();
    let a = advice(&v, FastRetransmit, &AdviceContext::default());
    assert_eq!(a.who, Actor::NetworkOperator);
    // 5 of 500 segments of 1000 bytes.
    says(&a, &["twice", "5 retransmitted", "1.00 %"]);
}

#[test]
fn a_full_window_is_the_receivers() {
    let limited = |window: u32| {
        Timeline::new()
            .then(|s| {
                s.rwnd_limited = Some(ms(400));
                s.cwnd = 100;
                s.send_window = Some(window);
            })
            .verdict()
    };
    let context = AdviceContext::default();
    let zero = advice(&limited(0), ReceiverWindowLimited, &context);
    assert_eq!(zero.who, Actor::ReceiverSide);
    says(&zero, &["0 B", "does not read"]);
    // 64 KiB an RTT of 1 ms.
    let unscaled = advice(&limited(65_535), ReceiverWindowLimited, &context);
    says(
        &unscaled,
        &[
            "64.0 KiB",
            "62.5 MiB/s",
            "97.7 KiB",
            "tcp_rmem",
            "window scaling",
        ],
    );
    let v = {
        let mut v = limited(1);
        v.deltas.send_window = None;
        v
    };
    says(&advice(&v, ReceiverWindowLimited, &context), &["ss -tm"]);
}
