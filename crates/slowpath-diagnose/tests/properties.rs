// SPDX-License-Identifier: Apache-2.0
//! What holds for every connection.

mod timeline;
use proptest::prelude::*;
use slowpath_diagnose::{
    AdviceContext, Measure, Thresholds, Totals, advise, classify, measure, opened,
};
use slowpath_model::*;
use timeline::*;

fn micros() -> BoxedStrategy<Micros> {
    prop_oneof![Just(0), 0..1_000_000u64, Just(u64::MAX), any::<u64>()]
        .prop_map(Micros)
        .boxed()
}

fn count() -> BoxedStrategy<u64> {
    prop_oneof![Just(0), 0..100u64, Just(u64::MAX), any::<u64>()].boxed()
}

fn gauge() -> BoxedStrategy<u32> {
    prop_oneof![Just(0), 0..100_000u32, Just(u32::MAX), any::<u32>()].boxed()
}

fn maybe<T: std::fmt::Debug + 'static>(
    s: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    proptest::option::of(s).boxed()
}

prop_compose! {
    fn rtt_sums()(
        times in [micros(), micros(), micros(), micros()],
        counts in [count(), count(), count(), count()],
        lifetime_min in maybe(micros()),
    ) -> RttSums {
        RttSums {
            sum: times[0],
            count: counts[0],
            lifetime_min,
            lone_sum: times[1],
            lone_count: counts[1],
            late_sum: times[2],
            late_count: counts[2],
            held_sum: times[3],
            held_count: counts[3],
        }
    }
}

prop_compose! {
    fn recovery()(t in [micros(), micros(), micros()], n in [count(), count()]) -> RecoveryStats {
        RecoveryStats {
            fast_recoveries: n[0],
            recovery_time: t[0],
            loss_entries: n[1],
            loss_time: t[1],
            rto_wait: t[2],
        }
    }
}

prop_compose! {
    fn rto()(time in micros(), n in [count(), count()]) -> RtoStats {
        RtoStats { timeouts: n[0], recoveries: n[1], time }
    }
}

prop_compose! {
    fn calls()(count in count(), bytes in count()) -> CallStats {
        CallStats { count, bytes, ..CallStats::default() }
    }
}

prop_compose! {
    /// Any snapshot, sound or not.
    fn any_snapshot()(
        at in prop_oneof![0..2_000_000_000u64, any::<u64>()],
        start in prop_oneof![Just(0), any::<u64>()],
        numbers in (
            proptest::array::uniform3(count()),
            proptest::array::uniform8(gauge()),
            1u8..=12,
            0u8..=4,
        ),
        times in proptest::array::uniform5(maybe(micros())),
        optional in (
            maybe(count()), maybe(gauge()), maybe(gauge()), maybe(gauge()), maybe(count()),
        ),
        parts in (
            maybe(rtt_sums()), maybe(recovery()), maybe(rto()), maybe(calls()), maybe(calls()),
            waits(), maybe(count()), maybe(count()),
        ),
    ) -> Snapshot {
        let mut s = healthy(Micros::ZERO);
        s.at = MonoNanos(at);
        s.id.start = MonoNanos(start);
        let (counters, gauges, state, ca_state) = numbers;
        let t = &mut s.stats;
        t.state = TcpState::from_kernel(state).unwrap();
        t.ca_state = CaState::from_kernel(ca_state).unwrap();
        [t.bytes_acked, t.bytes_received, t.retransmitted] = counters;
        [
            t.in_flight, t.cwnd, t.unsent, t.send_queue, t.receive_queue, t.send_mss, t.lost,
            t.unanswered_timeouts,
        ] = gauges;
        [t.busy, t.rwnd_limited, t.sndbuf_limited, t.min_rtt, t.srtt] = times;
        (t.bytes_sent, t.send_window, t.send_memory, t.send_buffer, t.delivery_rate) = optional;
        (
            t.rtt_sums, t.recovery, t.rto_stats, s.sends, s.receives, s.waits, t.reordering_events,
            t.delivered_ce,
        ) = parts;
        s
    }
}

/// What one stretch of a connection that the kernel could have counted adds to its counters.
#[derive(Clone, Debug)]
struct Step {
    length: u64,
    sndbuf: u64,
    rwnd: u64,
    recovery: u64,
    recoveries: u64,
    rto: u64,
    timeouts: u64,
    late: u64,
    received: u64,
    /// For each of the times and counts of [`WaitSums`].
    waits: [u64; 14],
}

/// Adds to each sum.
fn wait(sums: &mut WaitSums, more: &[u64; 14]) {
    let (q, e, o) = (&mut sums.queues, &mut sums.episodes, &mut sums.opening);
    let times = [
        &mut q.congestion_window,
        &mut q.nagle,
        &mut q.zero_window,
        &mut q.unread,
        &mut e.reordering,
        &mut e.marked,
        &mut e.burst,
        &mut o.syn_wait,
        &mut q.send_buffer,
    ];
    let counts = [
        &mut q.zero_windows,
        &mut e.spurious_recoveries,
        &mut e.burst_losses,
        &mut e.thin_timeouts,
        &mut e.acks_after_timeout,
    ];
    for (time, more) in times.into_iter().zip(more) {
        *time += Micros(*more);
    }
    for (count, more) in counts.into_iter().zip(&more[9..]) {
        *count = count.saturating_add(*more);
    }
}

fn sums(waits: &Waits) -> WaitSums {
    WaitSums {
        queues: waits.queues().unwrap_or_default(),
        episodes: waits.episodes().unwrap_or_default(),
        opening: waits.opening().unwrap_or_default(),
    }
}

prop_compose! {
    fn waits()(
        watched in any::<[bool; 3]>(),
        more in proptest::array::uniform14(prop_oneof![Just(0), any::<u64>()]),
        syns in 0..3u64,
    ) -> Waits {
        let mut sums = WaitSums::default();
        wait(&mut sums, &more);
        sums.opening.syn_retransmits = syns;
        Waits::watched(watched[0], watched[1], watched[2]).with(sums)
    }
}

prop_compose! {
    /// Times take a thousandth to a third each of a stretch of up to two seconds.
    fn step()(
        length in 50_000..2_000_000u64,
        parts in proptest::array::uniform4(0..333u64),
        recoveries in 0..3u64,
        timeouts in 0..3u64,
        late in 0..3u64,
        shares in proptest::array::uniform9(0..333u64),
        counts in proptest::array::uniform5(0..3u64),
    ) -> Step {
        let mut waits = [0; 14];
        for (wait, share) in waits.iter_mut().zip(shares) {
            *wait = length * share / 1000;
        }
        waits[9..].copy_from_slice(&counts);
        // A window that closed was so for some time.
        waits[2] += counts[0];
        Step {
            length,
            sndbuf: length * parts[0] / 1000,
            rwnd: length * parts[1] / 1000,
            recovery: length * parts[2] / 1000,
            recoveries,
            rto: length * parts[3] / 1000,
            timeouts,
            late,
            received: 0,
            waits,
        }
    }
}

fn follow(s: &Snapshot, step: &Step) -> Snapshot {
    let mut s = s.clone();
    s.at = s.at + Micros(step.length);
    let mut waited = sums(&s.waits);
    wait(&mut waited, &step.waits);
    s.waits = s.waits.with(waited);
    let t = &mut s.stats;
    // All that is not limited by window or buffer, as far as the rule for it asks.
    t.busy = t.busy.map(|x| x + Micros(2 * step.length));
    t.sndbuf_limited = t.sndbuf_limited.map(|x| x + Micros(step.sndbuf));
    t.rwnd_limited = t.rwnd_limited.map(|x| x + Micros(step.rwnd));
    t.bytes_received += step.received;
    let r = t.recovery.as_mut().unwrap();
    r.recovery_time += Micros(step.recovery);
    r.fast_recoveries += step.recoveries;
    let r = t.rto_stats.as_mut().unwrap();
    r.time += Micros(step.rto);
    r.timeouts += step.timeouts;
    r.recoveries += step.timeouts.min(1);
    let r = t.rtt_sums.as_mut().unwrap();
    let late = Micros(41_000 * step.late);
    for (sum, n) in [
        (&mut r.sum, &mut r.count),
        (&mut r.lone_sum, &mut r.lone_count),
        (&mut r.late_sum, &mut r.late_count),
    ] {
        *sum += late;
        *n += step.late;
    }
    s
}

proptest! {
    #[test]
    fn any_two_snapshots_give_a_sound_verdict(
        before in any_snapshot().boxed(),
        after in any_snapshot().boxed(),
        peer in maybe(micros()),
    ) {
        let thresholds = Thresholds::default();
        let v = classify(&before, &after, peer, &thresholds);
        let interval = v.interval();
        let mut previous: Option<&Finding> = None;
        for finding in &v.findings {
            prop_assert!(finding.problem != Problem::SenderAppLimited);
            prop_assert!(!v.unmeasured.contains(finding.problem));
            if let Share::Measured(time) = finding.share {
                prop_assert!(time <= interval);
            }
            if let Some(p) = previous {
                let (p, f) = (
                    (p.share.time_of(interval), std::cmp::Reverse(p.problem)),
                    (finding.share.time_of(interval), std::cmp::Reverse(finding.problem)),
                );
                prop_assert!(p > f);
            }
            previous = Some(finding);
            let advice = advise(finding, &v, &AdviceContext::of(&after.stats));
            prop_assert!(!advice.what.is_empty());
        }
        prop_assert_eq!(
            v.dominating,
            Problem::dominating(
                v.findings.iter().map(|f| (f.problem, f.share.time_of(interval)))
            )
        );
        prop_assert!(!v.unmeasured.contains(Problem::SenderAppLimited));
        if interval == Micros::ZERO {
            prop_assert!(v.findings.is_empty());
        }

        let mut totals = Totals::default();
        totals.add(&v);
        totals.merge(&totals.clone());
        // What goes first may be too short to dominate a life.
        prop_assert!(totals.dominating(&thresholds) == v.dominating
            || totals.dominating(&thresholds).precedence() != Precedence::Own
            || v.findings.iter().all(|f| !f.share.fraction_of(interval).ge(&0.01)));

        let birth = opened(&after);
        let v = classify(&birth, &after, peer, &thresholds);
        prop_assert!(v.deltas.bytes_acked == Some(after.stats.bytes_acked));
    }

    #[test]
    fn exclusive_shares_never_exceed_the_interval(
        length in 1..10_000_000u64,
        buffer in micros(),
        window in micros(),
    ) {
        let mut before = healthy(Micros::ZERO);
        before.stats.sndbuf_limited = Some(Micros::ZERO);
        before.stats.rwnd_limited = Some(Micros::ZERO);
        let mut after = before.clone();
        after.at = before.at + Micros(length);
        after.stats.sndbuf_limited = Some(buffer);
        after.stats.rwnd_limited = Some(window);
        let v = classify(&before, &after, None, &Thresholds::default());
        let sum: u64 = v.findings.iter().map(|f| f.share.time_of(v.interval()).0).sum();
        prop_assert!(sum <= length);
        let (b, w) = (buffer.0 as f64, window.0 as f64);
        if b + w > length as f64 {
            // Nothing is lost by scaling but fractions of a microsecond and statistics.
            prop_assert!(sum as f64 >= 0.99 * length as f64 - 2.0);
        }
    }

    #[test]
    fn two_halves_hold_what_the_whole_holds(first in step(), second in step()) {
        let thresholds = Thresholds::default();
        let start = healthy(Micros::ZERO);
        let middle = follow(&start, &first);
        let end = follow(&middle, &second);
        let whole = measure(&start, &end, None, &thresholds);
        let halves = [
            measure(&start, &middle, None, &thresholds),
            measure(&middle, &end, None, &thresholds),
        ];
        prop_assert_eq!(
            whole.interval(),
            halves[0].interval() + halves[1].interval()
        );
        for problem in Problem::ALL {
            let time = |m: Measure| m.time().unwrap();
            prop_assert_eq!(
                time(whole.of(problem)),
                time(halves[0].of(problem)) + time(halves[1].of(problem)),
                "{} time", problem
            );
            let events = |m: Measure| m.events().unwrap_or(0);
            prop_assert_eq!(
                events(whole.of(problem)),
                events(halves[0].of(problem)) + events(halves[1].of(problem)),
                "{} events", problem
            );
        }
    }

    #[test]
    fn totals_of_the_halves_are_those_of_the_whole(first in step(), second in step()) {
        // Every difference is a finding, and fits its interval: late ACKs left out.
        let thresholds = Thresholds { min_share: 0.0, ..Thresholds::default() };
        let (mut first, mut second) = (first, second);
        (first.late, second.late) = (0, 0);
        let start = healthy(Micros::ZERO);
        let middle = follow(&start, &first);
        let end = follow(&middle, &second);
        let (mut whole, mut halves) = (Totals::default(), Totals::default());
        whole.add(&classify(&start, &end, None, &thresholds));
        halves.add(&classify(&start, &middle, None, &thresholds));
        halves.add(&classify(&middle, &end, None, &thresholds));
        prop_assert_eq!(whole.observed, halves.observed);
        for problem in &Problem::ALL[1..] {
            let i = *problem as usize;
            prop_assert_eq!(whole.problem_time[i], halves.problem_time[i], "{}", problem);
            prop_assert_eq!(whole.problem_events[i], halves.problem_events[i], "{}", problem);
        }
    }

    #[test]
    fn a_counter_that_goes_backwards_is_unmeasured_and_harms_no_other(
        which in 0..8usize,
        step in step(),
    ) {
        let mut start = healthy(Micros::ZERO);
        (start.stats.reordering_events, start.stats.delivered_ce) = (Some(7), Some(7));
        let mut end = follow(&start, &step);
        let sound = measure(&start, &end, None, &Thresholds::default());
        let t = &mut end.stats;
        let hit = match which {
            0 => { t.sndbuf_limited = Some(Micros::ZERO); Problem::SendBufferLimited }
            1 => { t.rwnd_limited = Some(Micros::ZERO); Problem::ReceiverWindowLimited }
            2 => { t.recovery.as_mut().unwrap().fast_recoveries = 0; Problem::FastRetransmit }
            3 => { t.rto_stats.as_mut().unwrap().timeouts = 0; Problem::Timeout }
            4 => { t.rtt_sums.as_mut().unwrap().lone_count = 0; Problem::DelayedAck }
            5 => { t.rtt_sums.as_mut().unwrap().late_sum = Micros::ZERO; Problem::DelayedAck }
            6 => { t.reordering_events = Some(0); Problem::Reordering }
            _ => { t.delivered_ce = Some(0); Problem::EcnMarked }
        };
        let broken = measure(&start, &end, None, &Thresholds::default());
        for problem in Problem::ALL {
            if problem == hit {
                prop_assert_eq!(broken.of(problem), Measure::Unmeasured);
            } else {
                prop_assert_eq!(broken.of(problem), sound.of(problem));
            }
        }
    }

    #[test]
    fn a_missing_statistic_is_unmeasured_at_whichever_end(
        at_start in any::<bool>(),
        step in step(),
    ) {
        let start = healthy(Micros::ZERO);
        let mut end = follow(&start, &step);
        end.stats.retransmitted += 9;
        let mut ends = [start, end];
        let s = &mut ends[usize::from(!at_start)].stats;
        s.rtt_sums = None;
        s.recovery = None;
        s.rto_stats = None;
        s.sndbuf_limited = None;
        s.rwnd_limited = None;
        // What could be sampled instead is missing too.
        s.send_buffer = None;
        s.send_window = None;
        (s.in_flight, s.cwnd, s.unsent) = (1, 10, u32::from(at_start));
        let m = measure(&ends[0], &ends[1], None, &Thresholds::default());
        prop_assert_eq!(m.delayed_ack, Measure::Unmeasured);
        prop_assert_eq!(m.fast_retransmit, Measure::Unmeasured);
        prop_assert_eq!(m.timeout, Measure::Unmeasured);
        prop_assert_eq!(m.send_buffer, Measure::Unmeasured);
        if at_start {
            prop_assert_eq!(m.receiver_window, Measure::Unmeasured);
        }
    }
}
