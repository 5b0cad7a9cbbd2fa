// SPDX-License-Identifier: Apache-2.0
use super::*;
use slowpath_model::{ConnectionId, Deltas, Finding, MonoNanos, ProblemSet, Share};

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

fn owner(name: &str) -> Owner {
    Owner::named(1, name)
}

/// A connection's life in the totals.
#[derive(Default)]
struct Life {
    totals: Totals,
    charged: bool,
}

impl Life {
    fn judge(&mut self, host_totals: &mut HostTotals, ms: u64, owner: &Owner) {
        let verdict = verdict(Problem::Timeout, ms);
        self.totals.add(&verdict);
        host_totals.judge(&verdict, &self.totals, owner, &mut self.charged);
    }
}

fn time_of(host_totals: &HostTotals, name: &str) -> Option<u64> {
    let applications = &host_totals.applications;
    let (_, charges) = applications.named().find(|(n, _)| *n == name)?;
    Some(charges.time[Problem::Timeout as usize].0 / 1_000)
}

fn sum(host_totals: &HostTotals) -> u64 {
    let applications = &host_totals.applications;
    let named: u64 = applications
        .named()
        .map(|(_, c)| c.time[Problem::Timeout as usize].0)
        .sum();
    (named + applications.other().time[Problem::Timeout as usize].0) / 1_000
}

#[test]
fn what_came_before_the_owner_was_known_is_charged_once() {
    let mut host_totals = HostTotals::new(10);
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
    let Life {
        totals,
        mut charged,
    } = life;
    host_totals.settle(&totals, &curl, &mut charged);
    assert_eq!(time_of(&host_totals, "curl"), Some(650));
    let (_, charges) = host_totals.applications.named().next().unwrap();
    assert_eq!(charges.events[Problem::Timeout as usize], 8);
}

#[test]
fn problems_without_an_owner_are_charged_to_unknown() {
    let mut host_totals = HostTotals::new(10);
    let mut life = Life::default();
    life.judge(&mut host_totals, 100, &Owner::default());
    host_totals.settle(&life.totals, &Owner::default(), &mut life.charged);
    assert_eq!(time_of(&host_totals, "unknown"), Some(100));
    life.judge(&mut host_totals, 100, &Owner::default());
    assert_eq!(time_of(&host_totals, "unknown"), Some(200));
    // No problem, no name.
    let quiet = Totals::default();
    host_totals.settle(&quiet, &owner("quiet"), &mut false);
    let mut other = Life::default();
    other.judge(&mut host_totals, 70, &owner(OTHER));
    assert_eq!(time_of(&host_totals, OTHER), None);
    assert_eq!(sum(&host_totals), 270);
    assert_eq!(time_of(&host_totals, "quiet"), None);
}

#[test]
fn names_are_bounded_and_nothing_is_lost() {
    let mut host_totals = HostTotals::new(4);
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
    assert!(host_totals.applications.candidates.len() <= MAX_CANDIDATES);
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
