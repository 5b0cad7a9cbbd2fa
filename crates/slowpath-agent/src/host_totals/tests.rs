// SPDX-License-Identifier: Apache-2.0
use super::*;
use slowpath_model::{
    Cgroup, CgroupSource, ConnectionId, Deltas, Finding, MonoNanos, Ownership, ProblemSet, Share,
};
use std::collections::BTreeMap;
use std::sync::Arc;

fn verdict(problem: Problem, ms: u64) -> IntervalVerdict {
    IntervalVerdict {
        connection: ConnectionId {
            boot_id: 1,
            netns: 1,
            cookie: 1,
            start: MonoNanos(1),
        },
        from: MonoNanos(0),
        to: MonoNanos(1_000_000_000),
        dominating: problem,
        findings: vec![Finding {
            problem,
            share: Share::Measured(Micros::from_millis(ms)),
            events: Some(2),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas::default(),
    }
}

fn whose(owner: &Owner) -> Labelled<'_> {
    Labelled { owner, port: 80 }
}

/// By name only.
fn host_totals(applications: usize) -> HostTotals {
    HostTotals::new(applications, OwnerLabels::default())
}

fn owner(name: &str) -> Owner {
    Owner::named(1, name)
}

/// A connection's life in the totals.
#[derive(Default)]
struct Life {
    totals: Totals,
    charge: Charge,
}

impl Life {
    fn judge(&mut self, host_totals: &mut HostTotals, ms: u64, owner: &Owner) {
        let verdict = verdict(Problem::Timeout, ms);
        self.totals.add(&verdict);
        host_totals.judge(&verdict, &self.totals, whose(owner), &mut self.charge);
    }
}

fn time_of(host_totals: &HostTotals, name: &str) -> Option<u64> {
    let applications = &host_totals.applications;
    let (_, totals) = applications
        .named()
        .find(|(set, _)| &*set.application == name)?;
    Some(totals.problems.time[Problem::Timeout as usize].0 / 1_000)
}

fn sum(host_totals: &HostTotals) -> u64 {
    let applications = &host_totals.applications;
    let named: u64 = applications
        .named()
        .map(|(_, c)| c.problems.time[Problem::Timeout as usize].0)
        .sum();
    let other = applications.other().problems.time[Problem::Timeout as usize].0;
    let retired = applications.retired().time[Problem::Timeout as usize].0;
    (named + other + retired) / 1_000
}

#[test]
fn what_came_before_the_owner_was_known_is_charged_once() {
    let mut host_totals = host_totals(10);
    let mut life = Life::default();
    life.judge(&mut host_totals, 100, &Owner::default());
    life.judge(&mut host_totals, 200, &Owner::default());
    assert_eq!(sum(&host_totals), 0);
    assert_eq!(
        host_totals.totals.problem_time[Problem::Timeout as usize],
        Micros::from_millis(300)
    );
    let curl = owner("curl");
    life.judge(&mut host_totals, 300, &curl);
    assert_eq!(time_of(&host_totals, "curl"), Some(600));
    life.judge(&mut host_totals, 50, &curl);
    let Life { totals, mut charge } = life;
    host_totals.settle(&totals, whose(&curl), &mut charge);
    assert_eq!(time_of(&host_totals, "curl"), Some(650));
    let (_, totals) = host_totals.applications.named().next().unwrap();
    assert_eq!(totals.problems.events[Problem::Timeout as usize], 8);
}

#[test]
fn a_process_that_is_called_other_or_unknown_has_a_name_of_its_own() {
    let mut host_totals = host_totals(10);
    for name in ["other", "unknown"] {
        let named = owner(name);
        let mut life = Life::default();
        life.judge(&mut host_totals, 100, &named);
        host_totals.settle(&life.totals, whose(&named), &mut life.charge);
        assert_eq!(time_of(&host_totals, name), None);
        assert_eq!(time_of(&host_totals, &format!("process:{name}")), Some(100));
    }
    let other = host_totals.applications.other();
    assert_eq!(other.problems, ProblemTotals::default());
}

#[test]
fn problems_without_an_owner_are_charged_to_unknown() {
    let mut host_totals = host_totals(10);
    let mut life = Life::default();
    life.judge(&mut host_totals, 100, &Owner::default());
    let unknown = Owner::default();
    host_totals.settle(&life.totals, whose(&unknown), &mut life.charge);
    assert_eq!(time_of(&host_totals, "unknown"), Some(100));
    life.judge(&mut host_totals, 100, &Owner::default());
    assert_eq!(time_of(&host_totals, "unknown"), Some(200));
    // No problem, no name.
    let quiet = Totals::default();
    let charge = &mut Charge::default();
    host_totals.settle(&quiet, whose(&owner("quiet")), charge);
    let mut other = Life::default();
    other.judge(&mut host_totals, 70, &owner(OTHER));
    assert_eq!(time_of(&host_totals, OTHER), None);
    assert_eq!(sum(&host_totals), 270);
    assert_eq!(time_of(&host_totals, "quiet"), None);
}

#[test]
fn names_are_bounded_and_nothing_is_lost() {
    let mut host_totals = host_totals(4);
    let mut charged = 0;
    for i in 0..5_000 {
        let mut life = Life::default();
        life.judge(&mut host_totals, 10, &owner(&format!("app{i}")));
        charged += 10;
        assert_eq!(sum(&host_totals), charged);
    }
    // Half of the names went to the first, the others wait for someone with a minute.
    assert_eq!(host_totals.applications.named().len(), 2);
    assert_eq!(host_totals.applications.folded(), 4_998);
    let heavy = owner("heavy");
    let mut life = Life::default();
    for _ in 0..61 {
        life.judge(&mut host_totals, 1_000, &heavy);
    }
    // Its first 59 seconds stay with the others, so that nothing goes down.
    assert_eq!(time_of(&host_totals, "heavy"), Some(2_000));
    assert_eq!(sum(&host_totals), charged + 61_000);
    for i in 0..10 {
        let mut life = Life::default();
        for _ in 0..100 {
            life.judge(&mut host_totals, 1_000, &owner(&format!("late{i}")));
        }
    }
    assert_eq!(host_totals.applications.named().len(), 4);
}

/// A problem that lasts `seconds`.
fn suffer(host_totals: &mut HostTotals, name: &str, seconds: u64) {
    let owner = owner(name);
    let mut life = Life::default();
    for _ in 0..seconds {
        life.judge(host_totals, 1_000, &owner);
    }
}

/// What a scrape shows: the problem time of each application.
fn scrape(host_totals: &HostTotals) -> BTreeMap<String, u64> {
    let named = host_totals.applications.named();
    named
        .map(|(set, _)| {
            let name = set.application.to_string();
            let time = time_of(host_totals, &name).unwrap();
            (name, time)
        })
        .collect()
}

/// Thirty applications in ten places, for ten hours: in each hour another five of them have
/// problems for most of the time, the others for a second a minute.
#[test]
fn places_go_to_those_that_have_most_problem_time_now() {
    const ROUNDS: u64 = 600;
    let mut host_totals = host_totals(10);
    let mut total = 0;
    let mut before = BTreeMap::new();
    let mut other_before = 0;
    let mut last_met: BTreeMap<String, u64> = BTreeMap::new();
    let mut returned = 0;
    for round in 0..ROUNDS {
        for app in 0..30 {
            let busy = app % 6 == round / 60 % 6;
            let seconds = if busy { 50 } else { 1 };
            suffer(&mut host_totals, &format!("app{app}"), seconds);
            total += seconds * 1_000;
        }
        host_totals.end_round();
        // Nothing is lost and nothing is counted twice.
        assert_eq!(sum(&host_totals), total);
        let now = scrape(&host_totals);
        assert!(now.len() <= 10);
        let changed = now.keys().filter(|name| !before.contains_key(*name));
        assert!(round < 5 || changed.count() <= 1);
        for (name, time) in &now {
            // A series that goes on never goes down.
            let was = before.get(name).copied().unwrap_or(0);
            assert!(*time >= was, "{name}: {was} to {time}");
            // One that ended begins anew after five scrapes without it at least.
            if !before.contains_key(name)
                && let Some(last) = last_met.insert(name.clone(), round)
            {
                assert!(round - last > 5, "{name}: {last} to {round}");
                returned += 1;
            }
            last_met.insert(name.clone(), round);
        }
        let other = host_totals.applications.other().problems.time[Problem::Timeout as usize].0;
        assert!(other >= other_before);
        (before, other_before) = (now, other);
        // At the end of each hour the five that have problems have a place each.
        if round % 60 == 59 {
            let busy = (0..30).filter(|app| app % 6 == round / 60 % 6);
            for app in busy {
                assert!(before.contains_key(&format!("app{app}")), "{round}: {app}");
            }
        }
    }
    assert!(returned > 0 && host_totals.applications.retirements() > 10);
}

/// A minute each in turn: none is heavier than the others, so none displaces another.
#[test]
fn those_that_are_alike_keep_their_places() {
    let mut host_totals = host_totals(4);
    for round in 0..500 {
        for app in 0..8 {
            suffer(&mut host_totals, &format!("app{app}"), 60);
        }
        host_totals.end_round();
        assert_eq!(host_totals.applications.named().len(), 4, "{round}");
    }
    assert_eq!(host_totals.applications.retirements(), 0);
}

#[test]
fn one_application_has_a_set_for_each_of_its_labels_values() {
    let labels: OwnerLabels = "unit,port".parse().unwrap();
    let mut host_totals = HostTotals::new(10, labels);
    let in_unit = |unit: &str| {
        let cgroup = Cgroup {
            path: "/".into(),
            source: CgroupSource::Process,
            unit: Some(unit.into()),
            container: None,
            pod: Some("not-asked-for".into()),
        };
        Owner::new(Ownership {
            cgroup: Some(Arc::new(cgroup)),
            ..Ownership::clone(&owner("web"))
        })
    };
    for (unit, port) in [("a.service", 80), ("a.service", 443), ("b.service", 80)] {
        let owner = in_unit(unit);
        let whose = Labelled {
            owner: &owner,
            port,
        };
        let mut life = Life::default();
        let verdict = verdict(Problem::Timeout, 100);
        life.totals.add(&verdict);
        host_totals.judge(&verdict, &life.totals, whose, &mut life.charge);
    }
    let mut sets: Vec<_> = host_totals
        .applications
        .named()
        .map(|(set, _)| OwnerLabel::ALL.map(|label| set.value(label)))
        .collect();
    sets.sort();
    let set = |unit: &str, port: &str| [Some(unit.to_owned()), None, None, Some(port.to_owned())];
    let wanted = [
        set("a.service", "443"),
        set("a.service", "80"),
        set("b.service", "80"),
    ];
    assert_eq!(sets, wanted);
}

#[test]
fn a_bound_belongs_to_its_bucket() {
    let mut histogram = Histogram::new(&RTT_BOUNDS);
    for us in [0, 50, 51, 5_000_000, 5_000_001] {
        histogram.observe(Micros(us));
    }
    assert_eq!(histogram.counts()[..3], [2, 1, 0]);
    assert_eq!(histogram.counts()[15..], [1, 1]);
    assert_eq!(
        (histogram.count(), histogram.sum()),
        (5, Micros(10_000_102))
    );
}
