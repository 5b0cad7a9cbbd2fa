// SPDX-License-Identifier: Apache-2.0
//! SNAP's Table 4.

mod timeline;
use slowpath_diagnose::problem_table;
use slowpath_model::{Problem::*, *};
use timeline::*;

/// A connection of `command` observed for 1000 ms, of which `window` receiver-window limited.
fn connection(command: Option<&str>, window: u64) -> ConnectionSummary {
    let s = healthy(Micros::ZERO);
    let mut problem_time = [Micros::ZERO; Problem::ALL.len()];
    problem_time[ReceiverWindowLimited as usize] = ms(window);
    problem_time[SenderAppLimited as usize] = ms(1000 - window);
    ConnectionSummary {
        connection: s.id,
        tuple: s.tuple,
        origin: s.origin,
        owner: command.map_or_else(Owner::default, |c| Owner::named(1, c)),
        real_peer: None,
        tier: s.tier,
        first_observed: WallMicros(0),
        last_observed: WallMicros(1_000_000),
        closed: true,
        observed: ms(1000),
        polls: 2,
        problem_time,
        problem_events: [0; Problem::ALL.len()],
        unmeasured: ProblemSet::EMPTY,
        stats: s.stats,
        bytes_written: None,
        writes: None,
        bytes_read: None,
        reads: None,
        life: Default::default(),
    }
}

#[test]
fn each_column_counts_connections_above_its_percentage() {
    let all: Vec<_> = [0, 0, 0, 1, 250, 251, 600, 751, 999, 1000]
        .map(|w| connection(Some("a"), w))
        .into();
    let table = problem_table(all.iter());
    assert_eq!(table.connections, 10);
    let row = &table.rows[ReceiverWindowLimited as usize];
    assert_eq!(row.problem, ReceiverWindowLimited);
    // > 0: 7; > 25 %: 251 and up, 5; > 50 %: 4; > 75 %: 3; > 99.9 %: one.
    assert_eq!(
        row.connections_percent,
        Some([70.0, 50.0, 40.0, 30.0, 10.0])
    );
    let none = &table.rows[Timeout as usize];
    assert_eq!(none.connections_percent, Some([0.0; 5]));
}

#[test]
fn applications_count_by_their_connections_summed_time() {
    let all = [
        connection(Some("a"), 100), // a: 100 of 2000, exactly 5 %
        connection(Some("a"), 0),
        connection(Some("b"), 120), // b: 6 %
        connection(Some("b"), 0),
        connection(Some("c"), 501), // c: 50.1 %
        connection(None, 1000),
    ];
    let table = problem_table(all.iter());
    assert_eq!(table.applications, 3);
    assert_eq!(table.owner_unknown, 1);
    let row = &table.rows[ReceiverWindowLimited as usize];
    assert_eq!(row.applications_over_5_percent, 2);
    assert_eq!(row.applications_over_50_percent, 1);
}

#[test]
fn what_could_not_be_measured_is_in_no_percentage() {
    let mut unobserved = connection(Some("a"), 0);
    unobserved.unmeasured.insert(ReceiverWindowLimited);
    unobserved.unmeasured.insert(DelayedAck);
    let mut observed = connection(Some("a"), 500);
    observed.unmeasured.insert(ReceiverWindowLimited);
    observed.unmeasured.insert(DelayedAck);
    let table = problem_table([&unobserved, &observed].into_iter());
    let row = &table.rows[ReceiverWindowLimited as usize];
    assert_eq!(row.unmeasured, 1);
    assert_eq!(row.connections_percent.unwrap()[0], 100.0);
    let row = &table.rows[DelayedAck as usize];
    assert_eq!(row.unmeasured, 2);
    assert_eq!(row.connections_percent, None);
}

#[test]
fn connections_without_observed_time_are_counted_separately() {
    let mut brief = connection(Some("a"), 0);
    brief.observed = Micros::ZERO;
    let table = problem_table([&brief].into_iter());
    assert_eq!((table.connections, table.unobserved), (0, 1));
    assert_eq!(table.applications, 0);
    assert_eq!(table.rows[0].connections_percent, None);
}

#[test]
fn the_table_survives_json() {
    let all = [connection(Some("a"), 250), connection(None, 3)];
    let table = problem_table(all.iter());
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(
        serde_json::from_str::<slowpath_diagnose::ProblemTable>(&text).unwrap(),
        table
    );
}
