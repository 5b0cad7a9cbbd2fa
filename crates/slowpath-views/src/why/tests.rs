// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::conclusion::{Limiter, Role};
use crate::criterion::Criterion;
use crate::scripted::{INTERVAL, ScriptedSource, finding, live, verdict};
use crate::source::OwnedConnection;
use slowpath_model::{
    IntervalVerdict, OpeningWaits, Owner, Problem, RecoveryStats, Share, WaitSums, Waits,
};
use slowpath_text::Paint;

const NOW: WallMicros = WallMicros(0);

fn limited(cookie: u64, local: &str, share: u64) -> OwnedConnection {
    let mut connection = live(cookie, "backup", local, "10.0.0.2:873");
    connection.owner = Owner::named(77, "backup");
    let time = Micros(INTERVAL.0 * share / 100);
    let mut v = verdict(
        cookie,
        INTERVAL,
        vec![finding(
            Problem::ReceiverWindowLimited,
            Share::Measured(time),
        )],
    );
    v.deltas.rwnd_limited = Some(time);
    v.deltas.send_window = Some(65_536);
    if share == 0 {
        v.findings.clear();
        v.dominating = Problem::SenderAppLimited;
    }
    connection.latest = Some(v);
    connection
}

fn ask(
    steps: Vec<Vec<OwnedConnection>>,
    target: &Target,
    polls: u64,
) -> Result<Answer, NoConnection> {
    let mut source = ScriptedSource::new(steps);
    let mut collector = Collector::at(target);
    for _ in 0..=polls {
        let report = source.poll().unwrap();
        collector.polled(&source, &report, NOW);
    }
    collector.answer(Micros(INTERVAL.0 * polls))
}

fn text(answer: &Answer) -> String {
    answer
        .lines(&ScriptedSource::new(vec![]), Paint::OFF)
        .join("\n")
}

#[test]
fn the_answer_names_the_stage_the_share_the_actor_and_the_evidence() {
    let step = || {
        vec![
            limited(1, "10.0.0.1:4000", 80),
            live(9, "other", "10.0.0.1:1", "10.0.0.3:1"),
        ]
    };
    // The first poll's interval ended with the collector's beginning: three count.
    let answer = ask(vec![step(), step(), step(), step()], &Target::Pid(77), 3).unwrap();
    let total = &answer.total;
    assert_eq!(total.dominating(), Problem::ReceiverWindowLimited);
    assert_eq!(total.totals.observed, Micros(INTERVAL.0 * 3));
    let text = text(&answer);
    for wanted in [
        "backup[77]",
        "10.0.0.1:4000 -> 10.0.0.2:873",
        "Limited by the receiver, 80%: the receive window of 10.0.0.2 (64.0 KiB) is full",
        "the operator of the receiving host, 10.0.0.2:873",
        "receive window full for 1.20s of 1.50s",
        "peer announces 64.0 KiB",
        "could not measure: DelayedAck (no BPF)",
    ] {
        assert!(text.contains(wanted), "{wanted} lacks in\n{text}");
    }
    assert!(!text.contains("worst connections"));
}

/// The receive window is full for 80 % of the time.
#[test]
fn only_reasons_that_count_are_found() {
    let step = || vec![limited(1, "10.0.0.1:4000", 80)];
    let answer = ask(vec![step(), step()], &Target::Pid(77), 1).unwrap();
    let found = |problems: &[Problem], min_share: f64| {
        let problems = problems.iter().copied().collect();
        answer.problems_found(&Criterion {
            problems,
            min_share,
        })
    };
    assert!(found(&[], 0.0) && found(&[], 0.79) && !found(&[], 0.81));
    let window = Problem::ReceiverWindowLimited;
    assert!(found(&[Problem::Timeout, window], 0.79));
    assert!(!found(&[window], 0.81) && !found(&[Problem::Timeout], 0.0));
    // No alarm, whatever is asked for.
    let quiet = || vec![limited(1, "10.0.0.1:4000", 0)];
    let answer = ask(vec![quiet(), quiet()], &Target::Pid(77), 1).unwrap();
    assert!(!answer.problems_found(&Criterion::default()));
}

/// Five connections more than other ends are followed.
#[test]
fn what_a_bound_left_out_is_in_the_text_and_in_json() {
    let step = || {
        let connection = |n: u64| limited(n, &format!("10.0.{}.{}:4000", n / 250, n % 250), 0);
        (1..=20_005).map(connection).collect::<Vec<_>>()
    };
    let answer = ask(vec![step(), step()], &Target::Pid(77), 1).unwrap();
    let json = crate::json::value(&answer.output(&ScriptedSource::new(vec![]), NOW));
    crate::schema::conforms("why", &json);
    let wanted = serde_json::json!([{"of": "other_ends", "limit": 20_000, "left_out": 5}]);
    assert_eq!(json["limits_reached"], wanted);
    let text = text(&answer);
    let line = "not looked at: the other ends of 5 connections, beyond 20000";
    assert!(text.contains(line), "{text}");
    // Below it nothing is said.
    let few = || vec![limited(1, "10.0.0.1:4000", 0)];
    let answer = ask(vec![few(), few()], &Target::Pid(77), 1).unwrap();
    let json = crate::json::value(&answer.output(&ScriptedSource::new(vec![]), NOW));
    assert_eq!(json["limits_reached"], serde_json::json!([]));
}

#[test]
fn several_connections_are_weighed_by_time() {
    let step = || {
        vec![
            limited(1, "10.0.0.1:4000", 90),
            limited(2, "10.0.0.1:4001", 0),
        ]
    };
    let target = Target::Peer {
        text: "10.0.0.2:873".to_owned(),
        addresses: vec!["10.0.0.2".parse().unwrap()],
        port: Some(873),
    };
    let answer = ask(vec![step(), step()], &target, 1).unwrap();
    assert_eq!(answer.total.share(Problem::ReceiverWindowLimited), 0.45);
    // Notable, hence named, though the application limits for longer.
    assert_eq!(answer.total.dominating(), Problem::ReceiverWindowLimited);
    let text = text(&answer);
    assert!(text.contains("2 connections") && text.contains("worst connections"));
    assert!(
        text.contains("Limited by the receiver, 90%") && text.contains("1 other connection"),
        "{text}"
    );
    let json = crate::json::value(&answer.output(&ScriptedSource::new(vec![]), NOW));
    crate::schema::conforms("why", &json);
    assert_eq!(json["connections"].as_array().unwrap().len(), 2);
    assert_eq!(json["connections"][0]["local"], "10.0.0.1:4000");
    assert_eq!(json["stage"], "receiver");
    assert_eq!(json["advice"]["who"], "receiver_side");
}

#[test]
fn a_connection_without_changes_is_idle() {
    let still = || vec![live(1, "idle", "10.0.0.1:1", "10.0.0.2:2")];
    let answer = ask(vec![still()], &Target::Pid(1), 4).unwrap();
    assert_eq!(answer.idle, Micros(INTERVAL.0 * 4));
    assert_eq!(answer.total.dominating(), Problem::SenderAppLimited);
    assert!(text(&answer).contains("nothing was sent or acknowledged for 2.00s of 2.00s"));
}

#[test]
fn a_short_connection_is_found_by_its_final_record() {
    let short = vec![limited(1, "10.0.0.1:4000", 100)];
    let answer = ask(vec![vec![], short, vec![]], &Target::Pid(77), 3).unwrap();
    assert_eq!(answer.total.totals.observed, INTERVAL);
    assert_eq!(answer.members.len(), 1);
}

#[test]
fn nothing_found_says_what_was_looked_for_and_what_to_do() {
    let mut unknown = live(1, "x", "10.0.0.1:1", "10.0.0.2:2");
    unknown.owner = Owner::default();
    let error = ask(vec![vec![unknown]], &Target::Pid(4242), 1).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("process 4242") && text.contains("no known owner"),
        "{text}"
    );
    assert!(text.contains("--for 30s"), "{text}");
}

#[test]
fn a_peer_behind_translation_is_found_by_its_own_address_and_shown() {
    let mut service = limited(1, "10.0.0.1:4000", 100);
    service.real_peer = Some("10.1.0.7:8080".parse().unwrap());
    let other = limited(2, "10.0.0.1:4001", 100);
    let target = Target::Peer {
        text: "10.1.0.7:8080".to_owned(),
        addresses: vec!["10.1.0.7".parse().unwrap()],
        port: Some(8080),
    };
    let step = vec![service, other];
    let answer = ask(vec![step.clone(), step], &target, 2).unwrap();
    assert_eq!(answer.members.len(), 1);
    let shown = "10.0.0.1:4000 -> 10.0.0.2:873 (real peer 10.1.0.7:8080)";
    assert!(text(&answer).contains(shown), "{}", text(&answer));
    let json = crate::json::value(&answer.output(&ScriptedSource::new(vec![]), NOW));
    crate::schema::conforms("why", &json);
    assert_eq!(json["connections"][0]["real_peer"], "10.1.0.7:8080");
}

#[test]
fn only_the_far_end_is_meant_where_both_are_here() {
    let target = Target::Peer {
        text: "10.0.0.2:80".to_owned(),
        addresses: vec!["10.0.0.2".parse().unwrap()],
        port: Some(80),
    };
    let both = vec![
        live(1, "curl", "10.0.0.1:4000", "10.0.0.2:80"),
        live(2, "nginx", "10.0.0.2:80", "10.0.0.1:4000"),
    ];
    let answer = ask(vec![both], &target, 1).unwrap();
    assert_eq!(answer.members.len(), 1);
    assert!(text(&answer).contains("curl[1]"));
}

/// While a SYN waits nothing changes: the interval that shows its end is shorter than the wait.
#[test]
fn the_wait_for_a_timer_counts_as_far_as_it_was_observed() {
    let ask_about = |before: u64| {
        let waited = |intervals: u64, expired: bool| {
            let mut waits = live(1, "ssh", "10.0.0.1:4000", "10.0.0.2:22");
            waits.snapshot.id.start = MonoNanos(0);
            waits.snapshot.stats.recovery = Some(RecoveryStats {
                fast_recoveries: 0,
                recovery_time: Micros::ZERO,
                loss_entries: 0,
                loss_time: Micros::ZERO,
                rto_wait: Micros(intervals * INTERVAL.0),
            });
            let charged = finding(Problem::Timeout, Share::Measured(INTERVAL));
            let found = Vec::from_iter(expired.then_some(charged));
            waits.latest = Some(verdict(1, INTERVAL, found));
            vec![waits]
        };
        // The timer expires in the third interval: the wait is known then.
        let silent = || waited(before, false);
        let steps = vec![silent(), silent(), silent(), waited(before + 2, true)];
        ask(steps, &Target::Port(22), 3).unwrap()
    };
    for before in [0, 7] {
        let answer = ask_about(before);
        let time = |p: Problem| answer.total.totals.problem_time[p as usize];
        assert_eq!(time(Problem::Timeout), Micros(2 * INTERVAL.0));
        assert_eq!(time(Problem::SenderAppLimited), INTERVAL);
    }
}

#[test]
fn a_processs_wait_for_a_processor_counts_while_data_is_unread() {
    let full = || {
        let share = Share::Measured(Micros(INTERVAL.0 / 2));
        let mut sends = live(1, "backup", "10.0.0.1:4000", "10.0.0.2:873");
        let found = finding(Problem::SendBufferLimited, share);
        sends.latest = Some(verdict(1, INTERVAL, vec![found]));
        let mut reads = live(2, "rsync", "10.0.0.2:873", "10.0.0.1:4000");
        reads.snapshot.stats.receive_queue = 100_000;
        reads.latest = Some(verdict(2, INTERVAL, Vec::new()));
        vec![sends, reads]
    };
    let answer = |wait: Micros| {
        let mut source = ScriptedSource::new(vec![full(), full(), full()]);
        source.processor_wait = wait;
        let mut collector = Collector::at(&Target::Pid(1));
        for _ in 0..3 {
            let report = source.poll().unwrap();
            collector.polled(&source, &report, WallMicros(0));
        }
        collector
            .answer(Micros(INTERVAL.0 * 2))
            .unwrap()
            .conclusion()
    };
    let starved = answer(INTERVAL);
    assert_eq!(starved.limiter, Limiter::Receiver);
    assert_eq!(starved.act.who, Role::ReceivingHost);
    assert_eq!(answer(Micros::ZERO).limiter, Limiter::SendBuffer);
}

#[test]
fn a_syns_wait_counts_as_far_as_it_was_observed() {
    let ask_about = |began: MonoNanos, judged: bool| {
        let mut waiting = live(1, "curl", "10.0.0.1:4000", "10.0.0.2:873");
        waiting.snapshot.id.start = began;
        let mut opened = waiting.clone();
        let waits = WaitSums {
            opening: OpeningWaits {
                syn_retransmits: 2,
                syn_wait: Micros(3 * INTERVAL.0),
            },
            ..WaitSums::default()
        };
        opened.snapshot.waits = Waits::watched(true, true, true).with(waits);
        let charged = finding(Problem::SynRetransmit, Share::Measured(INTERVAL));
        opened.latest = Some(verdict(1, INTERVAL, vec![charged]));
        let mut met = waiting.clone();
        met.latest = judged.then(|| {
            let of = verdict(1, INTERVAL, vec![]);
            IntervalVerdict {
                from: of.from + INTERVAL,
                to: of.to + INTERVAL,
                ..of
            }
        });
        let steps = [vec![], vec![met], vec![waiting.clone()]];
        let steps = steps.into_iter().chain([vec![waiting], vec![opened]]);
        ask(steps.collect(), &Target::Port(873), 4).unwrap()
    };
    let time = |answer: &Answer| answer.total.totals.problem_time[Problem::SynRetransmit as usize];
    // The first poll is at 1.5 s.
    let answer = ask_about(MonoNanos(1_600_000_000), false);
    assert_eq!(time(&answer), Micros(3 * INTERVAL.0));
    assert_eq!(answer.idle, Micros::ZERO);
    // An interval of the wait that was judged, and found nothing, is no pace of the application's.
    let answer = ask_about(MonoNanos(1_600_000_000), true);
    assert_eq!(time(&answer), Micros(3 * INTERVAL.0));
    let pace = answer.total.totals.problem_time[Problem::SenderAppLimited as usize];
    assert_eq!(pace, Micros::ZERO);
    // A third of the wait of one that began an interval earlier lies before.
    let answer = ask_about(MonoNanos(1_000_000_000), false);
    assert_eq!(time(&answer), Micros(2 * INTERVAL.0));
}

/// A server closed the connection to a reader that does not read; the last data still waits.
#[test]
fn what_a_server_let_go_of_belongs_to_it() {
    let target = Target::parse("redis-server", &crate::scripted::NoNames).unwrap();
    let step = || {
        let at = "10.0.0.2:6379";
        let mut let_go = live(2, "", at, "10.0.0.9:40001");
        let_go.owner = slowpath_model::Owner::default();
        let mut elsewhere = live(3, "", "10.0.0.2:80", "10.0.0.9:40002");
        elsewhere.owner = slowpath_model::Owner::default();
        let mut served = live(1, "redis-server", at, "10.0.0.9:40000");
        served.snapshot.origin = slowpath_model::Origin::Accepted;
        vec![served, let_go, elsewhere]
    };
    let answer = ask(vec![step(), step()], &target, 1).unwrap();
    assert_eq!(answer.members.len(), 2);
}
