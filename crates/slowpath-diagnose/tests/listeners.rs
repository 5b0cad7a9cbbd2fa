// SPDX-License-Identifier: Apache-2.0
//! Which listener turned connections away, and why: each case of the rule, and the advice.

use slowpath_diagnose::{Actor, ListenRound, ListenerPair, advise_listener, judge_listeners};
use slowpath_model::{
    ListenCounters, ListenSettings, ListenerId, ListenerSnapshot, ListenerVerdict, Micros,
    MonoNanos, Problem, Tier,
};

const ACCEPT: Problem = Problem::AcceptQueueOverflow;
const SYN: Problem = Problem::SynQueueOverflow;
const BACKLOG: u32 = 10;

/// A listener that dropped segments between 1 s and 2 s, its queues empty.
struct Listener {
    before: ListenerSnapshot,
    after: ListenerSnapshot,
}

fn listener(cookie: u64, drops: u64) -> Listener {
    let before = ListenerSnapshot {
        id: ListenerId {
            boot_id: 1,
            netns: 2,
            cookie,
        },
        local: "0.0.0.0:80".parse().unwrap(),
        at: MonoNanos(1_000_000_000),
        closed: false,
        tier: Tier::Bpf,
        opener: None,
        reuse_port: Some(false),
        accept_queue: 0,
        backlog: BACKLOG,
        drops: Some(100),
        syn_queue: Some(0),
        young: Some(0),
        cookie_age: None,
    };
    let after = ListenerSnapshot {
        at: MonoNanos(2_000_000_000),
        drops: Some(100 + drops),
        ..before.clone()
    };
    Listener { before, after }
}

impl Listener {
    fn accept_full(mut self) -> Self {
        self.after.accept_queue = BACKLOG + 1;
        self
    }

    fn syn_full(mut self) -> Self {
        self.after.syn_queue = Some(BACKLOG);
        self
    }

    fn cookie(mut self, age: Micros) -> Self {
        self.after.cookie_age = Some(age);
        self
    }
}

fn counters(overflows: u64, drops: u64, full_drops: u64, full_cookies: u64) -> ListenCounters {
    ListenCounters {
        overflows: Some(overflows),
        drops: Some(drops),
        queue_full_drops: Some(full_drops),
        queue_full_cookies: Some(full_cookies),
        cookies_sent: Some(full_cookies),
    }
}

fn judge(
    listeners: &[Listener],
    counters: Option<ListenCounters>,
    syncookies: u32,
) -> Vec<ListenerVerdict> {
    let pairs: Vec<ListenerPair<'_>> = listeners
        .iter()
        .map(|l| ListenerPair {
            before: &l.before,
            after: &l.after,
        })
        .collect();
    judge_listeners(&ListenRound {
        listeners: &pairs,
        counters,
        settings: ListenSettings {
            somaxconn: Some(4_096),
            max_syn_backlog: Some(512),
            syncookies: Some(syncookies),
            abort_on_overflow: Some(false),
        },
    })
}

/// Cookie of the listener, problem, events of each finding.
fn found(verdicts: &[ListenerVerdict]) -> Vec<(u64, Problem, Option<u64>)> {
    verdicts
        .iter()
        .flat_map(|v| {
            let cookie = v.listener.cookie;
            v.findings
                .iter()
                .map(move |f| (cookie, f.problem, f.events))
        })
        .collect()
}

#[test]
fn nothing_dropped_is_nothing_found() {
    assert!(
        judge(
            &[listener(1, 0), listener(2, 0)],
            Some(counters(0, 0, 0, 0)),
            1
        )
        .is_empty()
    );
    // A full queue by itself turned no client away.
    assert!(
        judge(
            &[listener(1, 0).accept_full()],
            Some(counters(0, 0, 0, 0)),
            1
        )
        .is_empty()
    );
}

#[test]
fn one_reason_in_a_namespace_is_each_listeners_reason() {
    let both = [listener(1, 7), listener(2, 5)];
    assert_eq!(
        found(&judge(&both, Some(counters(12, 12, 0, 0)), 1)),
        [(1, ACCEPT, Some(7)), (2, ACCEPT, Some(5))]
    );
    assert_eq!(
        found(&judge(&both, Some(counters(0, 12, 12, 0)), 0)),
        [(1, SYN, Some(7)), (2, SYN, Some(5))]
    );
}

#[test]
fn without_cookies_every_other_drop_is_the_syn_queues() {
    // The last quarter of tcp_max_syn_backlog is not in TCPReqQFullDrop.
    let verdicts = judge(&[listener(1, 9)], Some(counters(0, 9, 0, 0)), 0);
    assert_eq!(found(&verdicts), [(1, SYN, Some(9))]);
    // With cookies on it is neither queue: want of memory, no route.
    assert!(judge(&[listener(1, 9)], Some(counters(0, 9, 0, 0)), 1).is_empty());
}

#[test]
fn a_sole_listener_has_both_parts() {
    // Three SYNs were repeated for half-open connections.
    let verdicts = judge(&[listener(1, 15)], Some(counters(8, 12, 4, 0)), 0);
    assert_eq!(found(&verdicts), [(1, ACCEPT, Some(8)), (1, SYN, Some(4))]);
}

#[test]
fn full_queues_distinguish_two_reasons() {
    let two = [listener(1, 10).accept_full(), listener(2, 31).syn_full()];
    assert_eq!(
        found(&judge(&two, Some(counters(10, 32, 22, 0)), 0)),
        [(1, ACCEPT, Some(10)), (2, SYN, Some(22))]
    );
    let three = [
        listener(1, 4).accept_full(),
        listener(2, 6).accept_full(),
        listener(3, 9).syn_full(),
    ];
    assert_eq!(
        found(&judge(&three, Some(counters(10, 19, 9, 0)), 0)),
        [
            (1, ACCEPT, Some(4)),
            (2, ACCEPT, Some(6)),
            (3, SYN, Some(9))
        ]
    );
}

#[test]
fn what_cannot_be_distinguished_is_unmeasured() {
    let two = [listener(1, 10), listener(2, 10)];
    let verdicts = judge(&two, Some(counters(10, 20, 10, 0)), 0);
    assert!(found(&verdicts).is_empty());
    assert_eq!(verdicts.len(), 2);
    assert!(
        verdicts
            .iter()
            .all(|v| v.unmeasured.contains(ACCEPT) && v.unmeasured.contains(SYN))
    );
    // Without counters a full queue shows the reason, not the number.
    let full = [listener(1, 10).accept_full()];
    assert_eq!(found(&judge(&full, None, 0)), [(1, ACCEPT, None)]);
    assert!(found(&judge(&[listener(1, 10)], None, 0)).is_empty());
}

#[test]
fn cookies_are_a_full_syn_queue() {
    let recent = Micros(1_500_000);
    let sent = Some(counters(0, 0, 0, 40));
    let two = [listener(1, 0).cookie(recent), listener(2, 0)];
    assert_eq!(found(&judge(&two, sent, 1)), [(1, SYN, Some(40))]);
    // Two that sent some: how many each is not known.
    let both = [listener(1, 0).cookie(recent), listener(2, 0).cookie(recent)];
    assert_eq!(
        found(&judge(&both, sent, 1)),
        [(1, SYN, None), (2, SYN, None)]
    );
    // A cookie of long ago.
    let old = [listener(1, 0).cookie(Micros(9_000_000)), listener(2, 0)];
    assert!(found(&judge(&old, sent, 1)).is_empty());
    // With 2 every SYN gets one.
    let always = [listener(1, 0).cookie(recent)];
    assert!(found(&judge(&always, sent, 2)).is_empty());
}

#[test]
fn of_a_group_the_full_member_sent_the_cookies() {
    let member = |l: Listener| {
        let mut l = l.cookie(Micros(200_000));
        l.after.reuse_port = Some(true);
        l
    };
    let group = [member(listener(1, 0)), member(listener(2, 0).syn_full())];
    assert_eq!(
        found(&judge(&group, Some(counters(0, 0, 0, 12)), 1)),
        [(2, SYN, Some(12))]
    );
}

#[test]
fn advice_goes_to_who_can_act() {
    let advice = |listener: Listener, problem, counters, syncookies| {
        let verdicts = judge(&[listener], Some(counters), syncookies);
        advise_listener(problem, &verdicts[0].deltas).unwrap()
    };
    let mut slow = listener(1, 5).accept_full();
    slow.before.accept_queue = BACKLOG + 1;
    let advice_given = advice(slow, ACCEPT, counters(5, 5, 0, 0), 1);
    assert_eq!(advice_given.who, Actor::AcceptingDeveloper);
    assert!(
        advice_given.what.contains("more slowly"),
        "{}",
        advice_given.what
    );

    let advice_given = advice(listener(1, 5), ACCEPT, counters(5, 5, 0, 0), 1);
    assert_eq!(advice_given.who, Actor::AcceptingDeveloper);
    assert!(
        advice_given.what.contains("larger number to listen(2)"),
        "{}",
        advice_given.what
    );

    let mut bounded = listener(1, 5);
    bounded.before.backlog = 4_096;
    bounded.after.backlog = 4_096;
    let advice_given = advice(bounded, ACCEPT, counters(5, 5, 0, 0), 1);
    assert_eq!(advice_given.who, Actor::HostOperator);
    assert!(
        advice_given
            .what
            .contains("net.core.somaxconn, which is 4096"),
        "{}",
        advice_given.what
    );

    let advice_given = advice(listener(1, 5).syn_full(), SYN, counters(0, 5, 5, 0), 0);
    assert!(
        advice_given.what.contains("net.ipv4.tcp_syncookies to 1"),
        "{}",
        advice_given.what
    );
    assert!(advise_listener(Problem::Timeout, &Default::default()).is_none());
}
