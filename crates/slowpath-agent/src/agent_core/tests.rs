// SPDX-License-Identifier: Apache-2.0
//! The core in virtual time: polls, rounds, restarts, failures, owners, listeners, a full log.

use super::*;
use crate::budget::Budget;
use crate::host::ProcessFacts;
use crate::listeners::ListenerScan;
use crate::script::{Logged, Session, SessionOptions, at, at_ms, connection, wall};
use slowpath_model::{
    Claim, Coverage, Ending, FeatureState, Holder, ListenCounters, ListenSettings, ListenerId,
    ListenerSnapshot, Owner, Problem, RtoStats, Snapshot, TcpState, Tier, Turn, TurnEnd, TurnSums,
    Turns, UnknownOwner,
};
use slowpath_observe::UnheldReason;
use slowpath_observe::conntrack::Answer;
use slowpath_observe::listeners::ListenerSighting;

/// The connection at `now`, after `timeouts` of 200 ms each.
fn timeouts(cookie: u64, now: MonoNanos, timeouts: u64) -> Snapshot {
    let mut snapshot = connection(cookie);
    snapshot.at = now;
    snapshot.stats.rto_stats = Some(RtoStats {
        timeouts,
        recoveries: timeouts,
        time: Micros(200_000 * timeouts),
    });
    snapshot
}

fn holder(pid: u32, command: &str) -> Holder {
    let mut name = [0; 16];
    name[..command.len()].copy_from_slice(command.as_bytes());
    Holder {
        pid,
        start_ns: 5_000_000_000,
        program: 1,
        cgroup: 0,
        command: name,
    }
}

fn owner_of(session: &Session, cookie: u64) -> &Owner {
    let mut connections = session.core.tracker.connections();
    let connection = connections.find(|c| c.snapshot.id.cookie == cookie);
    &connection.unwrap().owner
}

/// A poll each second from `from` to `to` at which nothing changes.
fn idle(session: &mut Session, from: u64, to: u64) {
    for second in from..=to {
        session.poll(at(second), []);
    }
}

#[test]
fn a_problem_is_logged_after_its_connection_and_the_close_ends_it() {
    let mut session = Session::logging();
    session.poll(at(1), [timeouts(5, at(1), 0)]);
    assert!(session.machine.log.as_ref().unwrap().is_empty());
    let report = session.poll(at(2), [timeouts(5, at(2), 1)]).unwrap();
    assert_eq!((report.sockets, report.emitted, report.problems), (1, 1, 1));
    let log = session.machine.log.as_ref().unwrap();
    assert!(matches!(log[0], Logged::Summary(_)) && matches!(log[1], Logged::Problem(_)));
    let problem = session.machine.problems()[0];
    assert_eq!(problem.findings[0].problem, Problem::Timeout);
    assert_eq!(
        (problem.end, problem.duration),
        (wall(at(2)), Micros(1_000_000))
    );
    // A second problem needs no second summary, but in another segment of the log.
    session.poll(at_ms(2_500), [timeouts(5, at_ms(2_500), 2)]);
    assert_eq!(session.machine.summaries().len(), 1);
    session.machine.segment = 1;
    session.poll(at(3), [timeouts(5, at(3), 3)]);
    assert_eq!(session.machine.summaries().len(), 2);
    let closed = Snapshot {
        closed: true,
        ..timeouts(5, at_ms(3_500), 3)
    };
    let report = session.poll(at(4), [closed]).unwrap();
    assert_eq!((report.sockets, report.closed), (0, 1));
    let last = *session.machine.summaries().last().unwrap();
    assert!(last.closed);
    assert_eq!(last.first_observed, wall(at(0)));
    assert_eq!(last.last_observed, wall(at_ms(3_500)));
    assert_eq!(last.observed, Micros(3_500_000));
    let timeout = Problem::Timeout as usize;
    assert_eq!(last.problem_events[timeout], 3);
    // No view would show it.
    assert_eq!(session.core.tracker.recently_closed().count(), 0);
}

/// Open before the agent starts: the first snapshot begins the first interval.
#[test]
fn a_summary_has_the_idle_time_the_turns_and_how_it_ended() {
    let mut session = Session::logging();
    session.poll(at(1), [timeouts(5, at(1), 0)]);
    session.poll(at(2), [timeouts(5, at(2), 1)]);
    // Nothing changes until the poll before the last change.
    idle(&mut session, 3, 19);
    let mut last = timeouts(5, at(20), 2);
    last.facts.ending = Some(Ending {
        state: Some(TcpState::Established),
        error: Some(104),
    });
    let pending = Turn {
        end: TurnEnd::Peer,
        since: at(18),
    };
    let mut sums = TurnSums::default();
    sums.peer.count = 3;
    sums.peer.time = Micros(600_000);
    last.turns = Turns::watched(Some(pending)).with(sums);
    last.closed = true;
    session.poll(at(20), [last.clone()]);
    let summaries = session.machine.summaries();
    let life = &summaries.last().unwrap().life;
    assert_eq!(life.idle, Some(Micros(17_000_000)));
    assert_eq!(life.socket, last.facts);
    let turns = life.turns.unwrap();
    assert_eq!((turns.peer.count, turns.peer.time), (3, Micros(600_000)));
    assert_eq!(turns.peer.pending, Some(Micros(2_000_000)));
    assert_eq!(turns.here.pending, None);
}

#[test]
fn after_a_restart_connections_are_judged_from_their_second_snapshot() {
    let old = |now, n| {
        let mut snapshot = timeouts(5, now, n);
        // The kernel's storage is new: it has no start.
        snapshot.id.start = MonoNanos(0);
        snapshot
    };
    let mut before = Session::logging();
    before.poll(at(1), [timeouts(5, at(1), 3)]);
    before.core.tracker.save_summaries(&mut before.machine);
    let mut after = Session::logging();
    after.poll(at(10), [old(at(10), 4)]);
    assert_eq!(after.machine.problems().len(), 0);
    after.poll(at(11), [old(at(11), 5)]);
    assert_eq!(after.machine.problems()[0].duration, Micros(1_000_000));
    after.core.tracker.save_summaries(&mut after.machine);
    let last = *after.machine.summaries().last().unwrap();
    assert_eq!(last.first_observed, wall(at(10)));
    assert_eq!(last.problem_events[Problem::Timeout as usize], 1);
    assert_eq!(before.machine.summaries()[0].tuple, last.tuple);
}

#[test]
fn a_socket_that_is_connected_again_is_another_connection() {
    let mut session = Session::logging();
    session.poll(at(1), [timeouts(5, at(1), 1)]);
    let mut again = timeouts(5, at(3), 0);
    again.id.start = at(2);
    session.poll(at(3), [again]);
    assert_eq!(session.core.tracker.living(), 1);
    let summaries = session.machine.summaries();
    assert!(summaries.last().unwrap().closed);
    assert_eq!(summaries.last().unwrap().connection.start, at(0));
}

#[test]
fn each_minute_connections_are_saved_and_coverage_is_recorded_after_a_search() {
    let mut session = Session::logging();
    session.searches = vec![None, Some(3)];
    session.poll(at(1), [timeouts(5, at(1), 0)]);
    idle(&mut session, 2, 59);
    // Until then the log has only how long was looked, every five seconds.
    let stretches = session.machine.coverage();
    assert_eq!(session.machine.log.as_ref().unwrap().len(), 11);
    for (stretch, end) in stretches.into_iter().zip((5..).step_by(5)) {
        let expected = Coverage {
            end: wall(at(end)),
            duration: Micros(5_000_000),
            polls: 5,
            sockets: 1,
            ..Coverage::default()
        };
        assert_eq!(*stretch, expected);
    }
    idle(&mut session, 60, 60);
    let search = Step::Search { sockets: None };
    let scans = [Step::Owners, Step::Listeners { all: true }];
    assert_eq!(session.steps[0], Step::Observe { all: false });
    assert_eq!(session.steps[1..3], scans);
    assert_eq!(session.steps[3..], [search]);
    idle(&mut session, 61, 61);
    assert_eq!(session.steps[3..], [search, Step::Round]);
    assert_eq!(session.machine.summaries().len(), 1);
    let coverage = *session.machine.coverage().last().unwrap();
    assert_eq!(
        (coverage.polls, coverage.sockets, coverage.missed),
        (6, 1, 3)
    );
    assert_eq!(coverage.duration, Micros(6_000_000), "the rest");
    assert_eq!(coverage.end, wall(at(61)));
    assert_eq!(coverage.owners_unknown, 1);
    let latest = session.core.coverage.latest().unwrap();
    assert_eq!((latest.polls, latest.duration), (61, Micros(61_000_000)));
    // Nothing has changed: there is nothing to save.
    idle(&mut session, 62, 121);
    assert_eq!(session.machine.summaries().len(), 1);
    let coverage = session.machine.coverage();
    assert_eq!(coverage.len(), 2 * 12);
    assert_eq!(coverage.iter().map(|c| c.polls).sum::<u64>(), 121);
    let times = coverage.iter().map(|c| c.duration.0);
    assert_eq!(times.sum::<u64>(), 121_000_000);
}

#[test]
fn a_poll_that_fails_still_asks_for_peers_and_leaves_the_rest() {
    let mut session = Session::logging();
    session.core.tracker.real_peers.enable();
    session.poll(at(1), []);
    session.fails = true;
    assert_eq!(session.poll(at(2), [timeouts(5, at(2), 0)]), None);
    let peers = Step::RealPeers { most: 1_024 };
    assert_eq!(session.steps, [Step::Observe { all: false }, peers]);
    assert_eq!((session.core.polls, session.machine.asked), (1, 1));
    // What was read until then is kept, and the next poll does what this one left.
    assert_eq!(session.core.tracker.living(), 1);
    session.poll(at(3), []).unwrap();
    assert!(session.steps.contains(&Step::Owners));
    assert_eq!(session.core.polls, 2);
}

#[test]
fn after_lost_closes_one_poll_meets_all_and_closes_the_others() {
    let mut session = Session::logging();
    session.poll(at(1), (0..5).map(|cookie| timeouts(cookie, at(1), 0)));
    session.living.retain(|cookie, _| *cookie < 2);
    session.closes_dropped = 2;
    session.poll(at(2), []);
    assert_eq!(session.steps[0], Step::Observe { all: true });
    assert_eq!(session.core.tracker.living(), 2);
    let closed = session.machine.summaries();
    assert_eq!(closed.iter().filter(|s| s.closed).count(), 3);
    // Three are gone and the kernel knew of two.
    assert_eq!(
        session.core.losses(LossCounters::default()).closes_dropped,
        1
    );
    session.poll(at(3), []);
    assert_eq!(session.steps[0], Step::Observe { all: false });
}

#[test]
fn the_log_may_be_full_and_polls_go_on() {
    let mut session = Session::logging();
    session.machine.log_limit = Some(2);
    for second in 1..=61 {
        session
            .poll(at(second), [timeouts(5, at(second), second)])
            .unwrap();
    }
    assert_eq!(session.core.polls, 61);
    // The first second's summary and problem fit; the round of the 60th second reads what was
    // lost before its own records.
    assert_eq!(session.machine.log.as_ref().unwrap().len(), 2);
    let coverage = session.core.coverage.latest().unwrap();
    // The other problems, and how long was looked, every five seconds.
    assert_eq!(coverage.losses.records_dropped, 59 + 11);
    // And its summary, its coverage, and the last problem.
    assert_eq!(session.machine.records_dropped, 59 + 11 + 3);
    let connection = session.core.tracker.connections().next().unwrap();
    assert_eq!(
        connection.totals.problem_events[Problem::Timeout as usize],
        61
    );
}

#[test]
fn an_opener_is_read_once_and_a_scan_names_who_holds_the_socket() {
    let mut session = Session::logging();
    let curl = holder(70, "curl");
    session.machine.processes.insert(
        70,
        ProcessFacts {
            command: "curl".to_owned(),
            start: curl.start(),
            executable: Some("/usr/bin/curl".to_owned()),
            command_line: Some("curl http://a/".to_owned()),
            cgroup: Some("/system.slice/fetch.service".to_owned()),
        },
    );
    let opened = |cookie| Snapshot {
        owner: Some(Claim::Opener(curl)),
        ..timeouts(cookie, at(1), 0)
    };
    session.holders = Ok(vec![(5, holder(71, "wget")), (6, curl)]);
    session.poll(at(1), [opened(5), opened(6)]);
    // curl once as the opener of both; the scan reads wget, which has ended, and curl.
    assert_eq!(session.machine.reads[0], 70);
    assert_eq!(
        session
            .machine
            .reads
            .iter()
            .filter(|pid| **pid == 70)
            .count(),
        1
    );
    assert_eq!(owner_of(&session, 6).name().map(|n| &**n), Some("curl"));
    let cgroup = owner_of(&session, 6).cgroup.clone().unwrap();
    assert_eq!(cgroup.unit.as_deref(), Some("fetch.service"));
    assert_eq!(owner_of(&session, 5).pid(), Some(71));
    assert_eq!(session.core.owner_scans.scans.count, 1);
    // One that another process than the last scan's closes was handed on.
    let closed = Snapshot {
        closed: true,
        ..Snapshot {
            at: at(2),
            ..opened(6)
        }
    };
    session.poll(at(2), [closed]);
    assert_eq!(session.machine.summaries()[0].owner.pid(), Some(70));
}

#[test]
fn owners_that_are_unknown_have_their_reason() {
    let mut session = Session::logging();
    session.holders = Err("no /proc".to_owned());
    session.reasons.unheld.insert(6, UnheldReason::NoSocket);
    let half_closed = {
        let mut snapshot = timeouts(7, at(1), 0);
        snapshot.stats.state = TcpState::FinWait1;
        snapshot
    };
    let new = [timeouts(5, at(1), 0), timeouts(6, at(1), 0), half_closed];
    session.poll(at_ms(1_500), new);
    assert_eq!(session.core.owner_scans.scans.count, 1);
    for cookie in [5, 6, 7] {
        let reason = owner_of(&session, cookie).why_unknown();
        assert_eq!(reason, Some(UnknownOwner::LookFailed));
    }
    let missing = &session.core.capabilities.features[0];
    assert!(matches!(&missing.state, FeatureState::Missing { reason } if reason == "no /proc"));

    session.holders = Ok(Vec::new());
    session.poll(at_ms(2_500), []);
    let reason = |cookie| owner_of(&session, cookie).why_unknown();
    assert_eq!(reason(5), Some(UnknownOwner::OutsidePidNamespace));
    assert_eq!(reason(6), Some(UnknownOwner::NotAccepted));
    let active = &session.core.capabilities.features[0];
    assert_eq!(active.state, FeatureState::Active);

    session.reasons.all_processes = true;
    session.poll(at_ms(3_500), []);
    assert_eq!(
        owner_of(&session, 5).why_unknown(),
        Some(UnknownOwner::NoHolder)
    );
    // A connection that opens and closes within a poll: no scan can have met it.
    let short = Snapshot {
        closed: true,
        ..timeouts(8, at(4), 0)
    };
    session.poll(at_ms(4_100), [short]);
    let last = *session.machine.summaries().last().unwrap();
    assert_eq!(
        last.owner.why_unknown(),
        Some(UnknownOwner::ClosedBeforeLooked)
    );
    session.poll(at(60), []);
    session.poll(at(61), []);
    let counts = session.machine.coverage()[0].unknown_owners;
    assert_eq!(counts.of(UnknownOwner::ClosedBeforeLooked), 1);
    assert_eq!(counts.of(UnknownOwner::NotAccepted), 1);
    assert_eq!(session.machine.coverage()[0].owners_unknown, 3);
}

#[test]
fn real_peers_are_asked_for_once_and_later_where_conntrack_is_not_ready() {
    let mut session = Session::logging();
    let tuple = connection(5).tuple;
    session.machine.peers = vec![(tuple, Answer::Later)];
    session.poll(at(1), [timeouts(5, at(1), 0)]);
    assert_eq!(session.machine.asked, 0);
    // The module comes: connections that are open already are asked for, too.
    session.core.tracker.real_peers.enable();
    session.poll(at(2), []);
    session.poll(at(3), []);
    assert_eq!(session.machine.asked, 1);
    let peer = "192.0.2.1:80".parse().unwrap();
    session.machine.peers = vec![(tuple, Answer::Peer(peer))];
    session.poll(at(4), []);
    session.poll(at(5), []);
    assert_eq!(session.machine.asked, 2);
    let connection = session.core.tracker.connections().next().unwrap();
    assert_eq!(connection.real_peer, Some(peer));
}

/// A listener with a backlog of 2, whose accept queue holds `accept_queue`, and that has dropped
/// `drops` segments.
fn listener(now: MonoNanos, accept_queue: u32, drops: u64) -> ListenerScan {
    let sighting = ListenerSighting {
        snapshot: ListenerSnapshot {
            id: ListenerId {
                boot_id: 7,
                netns: 1,
                cookie: 9,
            },
            local: "10.0.0.1:80".parse().unwrap(),
            at: now,
            closed: false,
            tier: Tier::Bpf,
            opener: Some(Owner::named(70, "nginx")),
            reuse_port: Some(false),
            accept_queue,
            backlog: 2,
            drops: Some(drops),
            syn_queue: Some(0),
            young: Some(0),
            cookie_age: None,
        },
        settings: ListenSettings::default(),
        first_drops: Some(0),
        netns_cookie: 1,
        inode: None,
    };
    let counters = ListenCounters {
        overflows: Some(drops),
        drops: Some(drops),
        queue_full_drops: Some(0),
        queue_full_cookies: Some(0),
        cookies_sent: Some(0),
    };
    let key = (1, 9);
    let mut scan = ListenerScan {
        complete: true,
        ..ListenerScan::default()
    };
    let namespace = ([(key, sighting)].into_iter().collect(), Some(counters));
    scan.namespaces.insert((1, 1), namespace);
    scan
}

#[test]
fn a_listener_that_turns_connections_away_is_logged_while_it_does() {
    let mut session = Session::logging();
    session.listeners = vec![
        listener(at(1), 0, 0),
        listener(at(2), 3, 4),
        listener(at(3), 3, 4),
    ];
    // More often than once a second is not scanned.
    for ms in (1_000..=3_000).step_by(500) {
        session.poll(at_ms(ms), []);
    }
    let logged: Vec<_> = session.machine.log.iter().flatten().collect();
    let [Logged::Listener(interval)] = logged[..] else {
        panic!("{logged:?}");
    };
    assert_eq!(interval.findings[0].problem, Problem::AcceptQueueOverflow);
    assert_eq!(interval.findings[0].events, Some(4));
    assert_eq!(
        (interval.end, interval.duration),
        (wall(at(2)), Micros(1_000_000))
    );
    let live = session.core.listeners.iter().next().unwrap();
    assert_eq!(live.accept_overflows.events, 4);
    // A complete scan without it: it is gone.
    session.listeners = vec![ListenerScan {
        complete: true,
        ..ListenerScan::default()
    }];
    session.poll(at(4), []);
    assert_eq!(session.core.listeners.iter().count(), 0);
}

/// CPU that the steps of a busy host take: 5 us a connection sampled, 20 ms a scan.
fn busy_cost(step: &Step, met: usize) -> Micros {
    match step {
        Step::Observe { all: false } => Micros(50 + 5 * met as u64),
        Step::Owners => Micros(20_000),
        Step::Summaries | Step::Round => Micros(3_000),
        _ => Micros(100),
    }
}

/// Of 4,000 connections that change all the time, those that a poll with such a sampling
/// probability meets.
fn sampled(probability: f64, now: MonoNanos, random: &mut fastrand::Rng) -> Vec<Snapshot> {
    let cookies = (0..4_000).filter(|_| random.f64() < probability);
    let snapshot = |cookie| timeouts(cookie, now, 0);
    cookies
        .collect::<Vec<_>>()
        .into_iter()
        .map(snapshot)
        .collect()
}

/// A host on which each poll of all connections costs 20 ms: at two polls a second that is 4 %
/// of a core. Under a budget of 1 to 2 % no five seconds take more than that, whatever else
/// is due; and everything that is due is done now and then.
#[test]
fn a_budget_holds_in_any_five_seconds_and_all_work_is_done() {
    let mut session = Session::new(SessionOptions {
        budget: Budget::percent(1.0, 2.0).ok(),
        logs: true,
        ..SessionOptions::default()
    });
    session.cost = busy_cost;
    let mut random = fastrand::Rng::with_seed(3);
    let mut probability = session.core.pace.as_ref().unwrap().probabilities()[0];
    let mut spent = Vec::new();
    let mut kinds = std::collections::BTreeMap::new();
    let end = at(180);
    while session.now < end {
        let wait = session.core.schedule.until_next(session.now);
        let now = session.now + Micros::from(wait);
        let before = session.cpu;
        let changed = sampled(probability, now, &mut random);
        session.poll(now, changed).unwrap();
        spent.push((now, session.cpu.0 - before.0));
        for step in &session.steps {
            *kinds.entry(format!("{step:?}")).or_insert(0) += 1;
        }
        for command in &session.commands {
            if let ObserverCommand::Rates(rates) = command {
                probability = rates[0];
            }
        }
    }
    // After the first seconds, in which the costs were not known.
    for (i, (until, _)) in spent.iter().enumerate() {
        let window = spent[..=i].iter().rev();
        let window = window.take_while(|(then, _)| until.since(*then) < Micros(5_000_000));
        let sum: u64 = window.map(|(_, cpu)| cpu).sum();
        let first = until.since(at(0)) < Micros(10_000_000);
        // One piece of work may come when its patience ends: 20 ms.
        assert!(first || sum <= 120_000, "{sum} us until {until:?}");
    }
    let total: u64 = spent.iter().map(|(_, cpu)| cpu).sum();
    assert!(
        (1_800_000..=3_600_000).contains(&total),
        "{total} us in 180 s"
    );
    for kind in ["Owners", "Summaries", "Round", "Search"] {
        let done: u32 = kinds
            .iter()
            .filter(|(k, _)| k.starts_with(kind))
            .map(|(_, n)| n)
            .sum();
        assert!(done >= 2, "{kind}: {kinds:?}");
    }
    // Everyone that changed has a summary, in rotation.
    let saved: std::collections::HashSet<u64> = session
        .machine
        .summaries()
        .iter()
        .map(|s| s.connection.cookie)
        .collect();
    assert!(saved.len() > 3_900, "{}", saved.len());
    let state = session.core.pace.as_ref().unwrap().state(session.now);
    assert!(state.used <= 0.024 && !state.exceeded, "{state:?}");
}

#[test]
fn under_a_budget_a_connection_with_problems_gets_a_priority_and_loses_it_with_its_close() {
    let mut session = Session::new(SessionOptions {
        budget: Budget::percent(1.0, 2.0).ok(),
        ..SessionOptions::default()
    });
    let rates = |session: &Session| {
        let first = session.commands.first();
        matches!(first, Some(ObserverCommand::Rates(_)))
    };
    session.poll(at(1), [timeouts(5, at(1), 0)]);
    assert!(rates(&session), "{:?}", session.commands);
    session.poll(at(2), [timeouts(5, at(2), 1)]);
    let order = |priority, suspect| {
        ObserverCommand::Priority(Change {
            cookie: 5,
            priority,
            suspect,
        })
    };
    assert!(
        session.commands.contains(&order(1, true)),
        "{:?}",
        session.commands
    );
    assert!(session.core.tracker.suspects().is_empty());
    let closed = Snapshot {
        closed: true,
        ..timeouts(5, at(3), 1)
    };
    session.poll(at(3), [closed]);
    assert!(
        session.commands.contains(&order(0, false)),
        "{:?}",
        session.commands
    );
    // At the end there is no budget: what is due is done.
    session.core.drop_budget();
    session.poll(at(61), [timeouts(6, at(61), 0)]);
    let search = Step::Search { sockets: None };
    assert!(
        session.steps.ends_with(&[search, Step::Round]),
        "{:?}",
        session.steps
    );
}

#[test]
fn without_a_budget_the_calls_of_connections_with_problems_are_of_interest() {
    let mut session = Session::new(SessionOptions {
        keep_verdicts: true,
        ..SessionOptions::default()
    });
    session.poll(at(1), [timeouts(5, at(1), 0), timeouts(6, at(1), 0)]);
    assert!(session.core.tracker.suspects().is_empty());
    session.poll(at(2), [timeouts(5, at(2), 1), timeouts(6, at(2), 0)]);
    assert_eq!(session.core.tracker.suspects(), [5]);
    let connections: Vec<_> = session.core.tracker.connections().collect();
    assert!(connections.iter().all(|c| c.latest.is_some()));
    // Views have what closed, until the next poll.
    let closed = Snapshot {
        closed: true,
        ..timeouts(5, at(3), 1)
    };
    session.poll(at(3), [closed]);
    assert_eq!(session.core.tracker.recently_closed().count(), 1);
    session.poll(at(4), []);
    assert_eq!(session.core.tracker.recently_closed().count(), 0);
    // Nothing is logged without a log.
    assert_eq!(session.machine.log, None);
}

/// The mean of an exponential distribution cut at ten times its mean, within five standard
/// errors, and the same times from the same seed.
#[test]
fn polls_come_at_poisson_times() {
    let waits = |seed| {
        let interval = Duration::from_millis(500);
        let mut schedule = PollSchedule::new(interval, Some(seed), at(0));
        let wait = |_| {
            schedule.plan_next(at(0), None);
            schedule.until_next(at(0)).as_secs_f64()
        };
        (0..10_000).map(wait).collect::<Vec<f64>>()
    };
    let first = waits(1);
    let mean = first.iter().sum::<f64>() / 10_000.0;
    assert!((mean - 0.5).abs() < 5.0 * 0.5 / 100.0, "{mean}");
    assert!(first.iter().all(|wait| (0.005..=5.0).contains(wait)));
    let longer = first.iter().filter(|wait| **wait > 0.5).count() as f64;
    assert!(
        (longer / 10_000.0 - (-1f64).exp()).abs() < 0.025,
        "{longer}"
    );
    assert!(first == waits(1) && first != waits(2));
}
