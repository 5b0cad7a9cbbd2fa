// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::scripted::{NoNames, at, interval, seconds, summary};
use serde_json::json;
use slowpath_model::*;
use slowpath_text::Paint;
use std::sync::Arc;

fn options(from: i64, to: i64, filter: &str) -> Options {
    Options {
        range: ReportRange {
            from: at(from),
            to: at(to),
        },
        filter: Filter::parse(filter, &NoNames).unwrap(),
        by: None,
    }
}

fn percents(report: &Report<'_>, problem: Problem) -> Option<[f64; 5]> {
    report.table.rows[problem as usize].connections_percent
}

#[test]
fn the_table_is_of_the_connections_selected() {
    use Problem::*;
    let records = Records {
        summaries: vec![
            summary(1, "a", Timeout, 30),
            summary(2, "a", Timeout, 60),
            summary(3, "b", Timeout, 100),
            summary(4, "b", ReceiverWindowLimited, 25),
        ],
        ..Records::default()
    };
    let options = options(0, 100, "");
    let report = Report::of(records, &options);
    // Shares 30 %, 60 %, 100 %, 0.
    assert_eq!(
        percents(&report, Timeout),
        Some([75.0, 75.0, 50.0, 25.0, 25.0])
    );
    let json = crate::json::value(&report.output());
    crate::schema::conforms("report", &json);
    assert_eq!(json["owners"]["applications"], json!({"a": 2, "b": 2}));
    assert_eq!(json["table"][3]["problem"], "Timeout");
    assert_eq!(json["table"][3]["connections_percent"][0], 75.0);
    // a: 90 of 200 s; b: 100 of 200 s.
    assert_eq!(json["table"][3]["applications_over_5_percent"], 2);
    let text = report.lines(Paint::OFF).join("\n");
    let row = text.lines().find(|l| l.contains("Timeout")).unwrap();
    assert!(row.contains("75.00%") && row.contains("25.00%"), "{row}");
}

#[test]
fn what_could_not_be_measured_is_not_counted_as_absent() {
    let mut unmeasured = summary(1, "a", Problem::Timeout, 10);
    unmeasured.unmeasured.insert(Problem::DelayedAck);
    let records = Records {
        summaries: vec![unmeasured.clone()],
        ..Records::default()
    };
    let options = options(0, 100, "");
    let report = Report::of(records, &options);
    assert_eq!(percents(&report, Problem::DelayedAck), None);
    let text = report.lines(Paint::OFF).join("\n");
    let row = text.lines().find(|l| l.contains("DelayedAck")).unwrap();
    assert!(row.contains("could not measure"), "{row}");
    let both = Records {
        summaries: vec![unmeasured, summary(2, "a", Problem::DelayedAck, 10)],
        ..Records::default()
    };
    let report = Report::of(both, &options);
    assert_eq!(
        percents(&report, Problem::DelayedAck).map(|p| p[0]),
        Some(100.0)
    );
    assert!(
        report
            .lines(Paint::OFF)
            .join("\n")
            .contains("measured in 1 of 2")
    );
}

#[test]
fn a_life_longer_than_the_range_counts_within_it_only() {
    let records = Records {
        summaries: vec![summary(1, "a", Problem::Timeout, 50)],
        problems: vec![
            interval(1, 40, Problem::Timeout, 40),
            // Half of it within the range.
            interval(1, 85, Problem::Timeout, 10),
            interval(1, 95, Problem::Timeout, 5),
        ],
        ..Records::default()
    };
    let options = options(80, 100, "");
    let report = Report::of(records, &options);
    let life = &report.lives[0];
    assert_eq!(life.observed, seconds(20));
    assert_eq!(life.problem_time[Problem::Timeout as usize], seconds(10));
    assert_eq!(life.problem_time[0], seconds(10));
    assert_eq!(life.problem_events[Problem::Timeout as usize], 2);
}

#[test]
fn the_latest_summary_of_a_connection_counts() {
    let mut checkpoint = summary(1, "a", Problem::Timeout, 10);
    checkpoint.last_observed = at(50);
    let mut last = summary(1, "a", Problem::Timeout, 20);
    last.closed = true;
    let records = Records {
        summaries: vec![last, checkpoint],
        ..Records::default()
    };
    let options = options(0, 100, "");
    let again = records.clone();
    let report = Report::of(records, &options);
    assert_eq!(report.lives.len(), 1);
    assert_eq!(
        report.lives[0].problem_time[Problem::Timeout as usize],
        seconds(20)
    );
    // Nothing of the range: nothing of the connection.
    let before = self::options(-50, -10, "");
    assert!(Report::of(again, &before).lives.is_empty());
}

#[test]
fn filters_and_groups() {
    let records = Records {
        summaries: vec![
            summary(1, "a", Problem::Timeout, 10),
            summary(2, "b", Problem::Timeout, 20),
            summary(3, "", Problem::DelayedAck, 5),
        ],
        ..Records::default()
    };
    let mut with_peers = options(0, 100, "problem Timeout");
    with_peers.by = Some(GroupBy::Peer);
    let report = Report::of(records.clone(), &with_peers);
    assert_eq!(report.lives.len(), 2);
    let (_, groups) = report.groups.as_ref().unwrap();
    let names: Vec<&str> = groups.iter().map(|(_, g)| g.name.as_str()).collect();
    assert_eq!(names, ["10.0.0.2", "10.0.0.3"]);
    let mut by_application = options(0, 100, "");
    by_application.by = Some(GroupBy::Application);
    let report = Report::of(records, &by_application);
    let text = report.lines(Paint::OFF).join("\n");
    assert!(text.contains("(owner unknown)"), "{text}");
}

/// Two services behind one port in pods of their own, a client of another port outside of any pod,
/// and a connection of which nothing is known.
#[test]
fn groups_by_unit_pod_container_and_port() {
    let in_cgroup = |cookie, unit: &str, pod: Option<&str>, id: Option<&str>| {
        let owner = Owner::named(cookie as u32, "x");
        let ownership = Ownership {
            cgroup: Some(Arc::new(Cgroup {
                path: "/".into(),
                source: CgroupSource::Process,
                unit: Some(unit.into()),
                container: id.map(|id| Container {
                    id: id.into(),
                    runtime: None,
                }),
                pod: pod.map(Into::into),
            })),
            ..Ownership::clone(&owner)
        };
        ConnectionSummary {
            owner: Owner::new(ownership),
            ..summary(cookie, "", Problem::Timeout, cookie)
        }
    };
    let accepted = |mut s: ConnectionSummary| {
        s.tuple = s.tuple.reversed();
        s.origin = Origin::Accepted;
        s
    };
    let mut unknown = summary(9, "", Problem::Timeout, 9);
    unknown.origin = Origin::Unknown;
    let mut client = in_cgroup(3, "c.service", None, None);
    client.tuple.remote.set_port(5432);
    let summaries = vec![
        accepted(in_cgroup(1, "a.scope", Some("pod-1"), Some("c1"))),
        accepted(in_cgroup(2, "b.scope", Some("pod-2"), Some("c2"))),
        client,
        unknown,
    ];
    for (by, wanted) in [
        (
            GroupBy::Unit,
            vec!["(owner unknown)", "c.service", "b.scope", "a.scope"],
        ),
        (
            GroupBy::Pod,
            vec!["(owner unknown)", "(no pod)", "pod-2", "pod-1"],
        ),
        (
            GroupBy::Container,
            vec!["(owner unknown)", "(no container)", "c2", "c1"],
        ),
        // 1 s and 2 s of those accepted at port 80 and 9 s of one between 80 and 4009.
        (GroupBy::Port, vec!["80", "5432"]),
    ] {
        let records = Records {
            summaries: summaries.clone(),
            ..Records::default()
        };
        let mut options = options(0, 100, "");
        options.by = Some(by);
        let json = crate::json::value(&Report::of(records, &options).output());
        crate::schema::conforms("report", &json);
        assert_eq!(json["by"]["by"], by.name());
        let groups = json["by"]["groups"].as_array().unwrap();
        let names: Vec<_> = groups.iter().map(|g| g["name"].as_str().unwrap()).collect();
        assert_eq!(names, wanted);
    }
}

#[test]
fn coverage_states_what_was_not_observed() {
    let coverage = |end: i64, dropped: u64| Coverage {
        end: at(end),
        duration: seconds(30),
        polls: 60,
        sockets: 10,
        missed: 2,
        losses: LossCounters {
            closes_dropped: dropped,
            ..LossCounters::default()
        },
        unmeasured: ProblemSet::EMPTY.with(Problem::DelayedAck),
        ..Coverage::default()
    };
    let records = Records {
        // 5 were lost before the range, then 2, then the agent started again and lost 1.
        coverage: vec![coverage(60, 7), coverage(-10, 5), coverage(90, 1)],
        unread: vec!["segment x: cut".to_owned()],
        ..Records::default()
    };
    let options = options(0, 100, "");
    let report = Report::of(records, &options);
    assert_eq!(report.covered.losses.closes_dropped, 3);
    assert_eq!(report.covered.time, seconds(60));
    let text = report.lines(Paint::OFF).join("\n");
    for wanted in [
        "60%",
        "4 sockets",
        "3 final records",
        "DelayedAck",
        "segment x: cut",
    ] {
        assert!(text.contains(wanted), "{wanted} lacks in\n{text}");
    }
}

/// A send buffer below the product from `end` less `time` to `end`, seconds.
fn below_bdp(cookie: u64, end: i64, time: u64) -> InteractionInterval {
    let life = summary(cookie, "a", Problem::SendBufferLimited, 50);
    InteractionInterval {
        kind: InteractionKind::SendBufferBelowBdp,
        connection: life.connection,
        tuple: life.tuple,
        owner: life.owner,
        cause: life.connection,
        cause_tuple: life.tuple,
        connections: 1,
        end: at(end),
        duration: seconds(time),
        rounds: time,
        evidence: InteractionEvidence::SendBufferBelowBdp {
            capacity_bytes: 8_192,
            send_buffer_bytes: 16_384,
            bandwidth_low: 2_000_000,
            bandwidth_high: 3_000_000,
            min_rtt_us: 10_000,
            product_low_bytes: 20_000,
            product_high_bytes: 30_000,
            average_write_bytes: None,
        },
    }
}

#[test]
fn interactions_are_added_up_by_their_connections() {
    let records = Records {
        interactions: vec![
            below_bdp(1, 20, 2),
            below_bdp(1, 40, 3),
            below_bdp(2, 40, 1),
        ],
        ..Records::default()
    };
    let both = options(0, 100, "");
    let report = Report::of(records.clone(), &both);
    let json = crate::json::value(&report.output());
    crate::schema::conforms("report", &json);
    let list = json["interactions"].as_array().unwrap();
    let figures: Vec<_> = list.iter().map(|i| (&i["time_us"], &i["rounds"])).collect();
    assert_eq!(
        figures,
        [
            (&json!(5_000_000), &json!(5)),
            (&json!(1_000_000), &json!(1))
        ]
    );
    assert_eq!(list[0]["interaction"], "SendBufferBelowBdp");
    assert_eq!(list[0]["evidence"]["product_low_bytes"], 20_000);
    let text = report.lines(Paint::OFF).join("\n");
    assert!(text.contains("SendBufferBelowBdp"), "{text}");
    // Of the first connection's port only.
    let one = options(0, 100, "sport = :4001");
    let json = crate::json::value(&Report::of(records, &one).output());
    assert_eq!(json["interactions"].as_array().unwrap().len(), 1);
}

#[test]
fn an_interaction_lasts_no_longer_than_the_range_and_counts_once() {
    // 10 s to 40 s by one chain, 20 s to 30 s by another, 60 s to 90 s again.
    let interactions = vec![
        below_bdp(1, 40, 30),
        below_bdp(1, 30, 10),
        below_bdp(1, 90, 30),
    ];
    let time = |from, to| {
        let records = Records {
            interactions: interactions.clone(),
            ..Records::default()
        };
        let asked = options(from, to, "");
        let json = crate::json::value(&Report::of(records, &asked).output());
        json["interactions"][0]["time_us"].as_u64()
    };
    assert_eq!(time(0, 100), Some(60_000_000));
    assert_eq!(time(0, 35), Some(25_000_000));
    assert_eq!(time(35, 62), Some(7_000_000));
    assert_eq!(time(45, 50), None);
}
