// SPDX-License-Identifier: Apache-2.0
//! FastRetransmit and Timeout, and what is neither.

mod timeline;
use slowpath_model::{
    CaState, OpeningWaits, Problem::*, RecoveryStats, RtoStats, Share, TcpStats, WaitSums,
};
use timeline::*;

fn recovery(s: &mut TcpStats) -> &mut RecoveryStats {
    s.recovery.as_mut().unwrap()
}

fn rto(s: &mut TcpStats) -> &mut RtoStats {
    s.rto_stats.as_mut().unwrap()
}

#[test]
fn entries_to_recovery_are_fast_retransmissions_however_short() {
    let v = Timeline::new()
        .then(|s| {
            s.retransmitted += 7;
            recovery(s).fast_recoveries += 2;
            recovery(s).recovery_time = ms(11); // 1 ms of 500: below 1 %
        })
        .verdict();
    assert_eq!(
        said(&v),
        [(FastRetransmit, Share::Measured(ms(1)), Some(2))]
    );
    assert_eq!(v.dominating, FastRetransmit);
    assert_eq!(v.deltas.fast_recoveries, Some(2));
    assert_eq!(v.deltas.retransmitted, Some(7));
}

#[test]
fn a_recovery_that_goes_on_is_found_by_its_time() {
    let v = Timeline::new()
        .then(|s| recovery(s).recovery_time = ms(60))
        .verdict();
    assert_eq!(
        said(&v),
        [(FastRetransmit, Share::Measured(ms(50)), Some(0))]
    );
}

#[test]
fn a_tail_loss_probe_is_neither() {
    let v = Timeline::new().then(|s| s.retransmitted += 1).verdict();
    assert_eq!(said(&v), []);
    assert!(v.unmeasured.is_empty());
    assert_eq!(v.dominating, SenderAppLimited);
}

#[test]
fn a_timeout_takes_its_wait_and_its_repair() {
    let v = Timeline::new()
        .then(|s| {
            s.retransmitted += 2;
            recovery(s).loss_entries += 1;
            recovery(s).loss_time = ms(45);
            recovery(s).rto_wait = ms(804);
            rto(s).timeouts += 2;
            rto(s).recoveries += 1;
            rto(s).time = ms(225);
        })
        .verdict();
    // 204 ms waited and 25 ms from the first expiry on.
    assert_eq!(said(&v), [(Timeout, Share::Measured(ms(229)), Some(2))]);
    assert!(v.unmeasured.is_empty());
}

#[test]
fn a_wait_longer_than_the_interval_fills_it() {
    let t = Timeline::new().then(|s| {
        recovery(s).rto_wait = ms(3600);
        rto(s).timeouts += 1;
        rto(s).recoveries += 1;
    });
    assert_eq!(
        said(&t.verdict()),
        [(Timeout, Share::Measured(INTERVAL), Some(1))]
    );
    assert_eq!(t.measure().timeout.time(), Some(ms(3000)));
}

#[test]
fn before_linux_6_7_entries_to_loss_count() {
    let v = Timeline::new()
        .both(|s| s.rto_stats = None)
        .then(|s| {
            s.retransmitted += 1;
            recovery(s).loss_entries += 1;
            recovery(s).loss_time = ms(30);
            recovery(s).rto_wait = ms(800);
        })
        .verdict();
    assert_eq!(said(&v), [(Timeout, Share::Measured(ms(210)), Some(1))]);
    assert_eq!(v.deltas.timeouts, Some(1));
}

#[test]
fn without_the_wait_a_new_episode_is_coarse_and_an_old_one_measured() {
    let new = Timeline::new()
        .inet_diag()
        .then(|s| {
            s.retransmitted += 1;
            rto(s).timeouts += 1;
            rto(s).recoveries += 1;
            rto(s).time = ms(201);
        })
        .verdict();
    assert_eq!(said(&new), [(Timeout, Share::Coarse, Some(1))]);
    // Its one retransmission is the timer's.
    assert_eq!(unmeasured(&new), [DelayedAck]);

    let old = Timeline::new()
        .inet_diag()
        .then(|s| {
            s.retransmitted += 1;
            rto(s).timeouts += 1;
            rto(s).time = ms(600);
        })
        .verdict();
    assert_eq!(said(&old), [(Timeout, Share::Measured(ms(400)), Some(1))]);
}

#[test]
fn without_recovery_episodes_a_retransmission_may_be_fast_or_a_probe() {
    let sampled = Timeline::new()
        .inet_diag()
        .then(|s| s.ca_state = CaState::Recovery)
        .verdict();
    assert_eq!(said(&sampled), [(FastRetransmit, Share::Coarse, None)]);

    let none = Timeline::new().inet_diag().verdict();
    assert_eq!(unmeasured(&none), [DelayedAck]);

    let some = Timeline::new()
        .inet_diag()
        .then(|s| s.retransmitted += 1)
        .verdict();
    assert_eq!(said(&some), []);
    assert_eq!(unmeasured(&some), [FastRetransmit, DelayedAck]);

    let more_than_the_timers = Timeline::new()
        .inet_diag()
        .then(|s| {
            s.retransmitted += 2;
            rto(s).timeouts += 1;
        })
        .verdict();
    assert!(more_than_the_timers.unmeasured.contains(FastRetransmit));
}

#[test]
fn without_any_timeout_statistic_loss_is_sampled() {
    let t = || Timeline::new().inet_diag().both(|s| s.rto_stats = None);
    assert!(!t().verdict().unmeasured.contains(Timeout));
    let unknown = t().then(|s| s.retransmitted += 3).verdict();
    assert_eq!(unmeasured(&unknown), [FastRetransmit, Timeout, DelayedAck]);
    let loss = t()
        .then(|s| {
            s.retransmitted += 3;
            s.ca_state = CaState::Loss;
        })
        .verdict();
    assert_eq!(said(&loss), [(Timeout, Share::Coarse, None)]);
}

#[test]
fn counters_that_went_backwards_measure_nothing() {
    let v = Timeline::new()
        .then(|s| {
            recovery(s).fast_recoveries = 0;
            rto(s).timeouts = 0;
        })
        .verdict();
    assert_eq!(said(&v), []);
    assert_eq!(unmeasured(&v), [FastRetransmit, Timeout]);
    assert_eq!(v.deltas.fast_recoveries, None);
    assert_eq!(v.deltas.timeouts, None);
}

#[test]
fn events_whose_time_went_backwards_are_coarse() {
    let v = Timeline::new()
        .then(|s| {
            recovery(s).fast_recoveries += 1;
            recovery(s).recovery_time = ms(0);
        })
        .verdict();
    assert_eq!(said(&v), [(FastRetransmit, Share::Coarse, Some(1))]);
}

/// A connection whose SYN was sent three times, and whose timer expired `ever` times.
fn opened_late(ever: u64) -> Timeline {
    let mut t = Timeline::new()
        .both(|s| rto(s).timeouts = ever)
        .then(|s| rto(s).time += ms(30));
    for snapshot in [&mut t.before, &mut t.after] {
        let opening = OpeningWaits {
            syn_retransmits: 2,
            ..OpeningWaits::default()
        };
        snapshot.waits = snapshot.waits.with(WaitSums {
            opening,
            ..WaitSums::default()
        });
    }
    t
}

#[test]
fn time_that_goes_on_after_a_syns_timeouts_is_not_a_timeout() {
    assert_eq!(said(&opened_late(2).verdict()), []);
    // Another one, whenever it was, may go on.
    assert_eq!(
        said(&opened_late(3).verdict()),
        [(Timeout, Share::Measured(ms(30)), Some(0))]
    );
}

#[test]
fn a_timeout_in_the_interval_of_the_syns_is_one() {
    let mut t = opened_late(3);
    t.before.waits = t.before.waits.at_birth();
    rto(&mut t.before.stats).timeouts = 0;
    let v = t.verdict();
    let found = v.finding(Timeout).expect("there is one more");
    assert_eq!(found.events, Some(1));
}
