// SPDX-License-Identifier: Apache-2.0
//! Segments, round trips and answers by application, and the labels that were asked for.

mod states;

use slowpath_agent::ScriptedAgent;
use slowpath_export::catalogue;
use slowpath_export::http::HttpCounters;
use slowpath_export::prometheus::{Format, encode};
use slowpath_export::push::PushCounters;
use slowpath_model::{AnswerSums, Micros, MonoNanos, Origin, Snapshot, TurnSums, Turns};
use states::{opened, owner, state, time_out, wall};

fn second(s: u64) -> MonoNanos {
    MonoNanos(s * 1_000_000_000)
}

fn answers(ms: &[u32]) -> AnswerSums {
    let mut sums = AnswerSums {
        count: ms.len() as u64,
        time: Micros(ms.iter().map(|ms| u64::from(*ms) * 1_000).sum()),
        ..AnswerSums::default()
    };
    for (latest, ms) in sums.latest.iter_mut().zip(ms) {
        *latest = ms * 1_000;
    }
    sums
}

/// Both have a problem, and with it series of their own; a second later each has sent seven
/// segments, two of them again, at an RTT of 30 ms, and exchanged three requests.
#[test]
fn what_each_application_does_is_in_series_of_its_own() {
    let labels = "unit,port".parse().unwrap();
    let mut agent = ScriptedAgent::with_labels(100, labels, MonoNanos(0));
    let mut client = opened(1, second(1));
    let mut server = opened(2, second(1));
    server.tuple = server.tuple.reversed();
    server.origin = Origin::Accepted;
    let poll = |agent: &mut ScriptedAgent, s, client: &Snapshot, server: &Snapshot| {
        agent.poll(second(s), wall(second(s)), [client, server]);
    };
    poll(&mut agent, 1, &client, &server);
    agent.owners([(1, owner("crawler")), (2, owner("web"))]);
    for snapshot in [&mut client, &mut server] {
        time_out(snapshot, second(2));
    }
    poll(&mut agent, 2, &client, &server);
    for snapshot in [&mut client, &mut server] {
        snapshot.at = second(3);
        snapshot.stats.data_segments_out += 7;
        snapshot.stats.retransmitted += 2;
        snapshot.stats.srtt = Some(Micros(30_000));
        snapshot.turns = Turns::watched(None).with(TurnSums {
            overlapping: 0,
            peer: answers(&[4, 40, 400]),
            here: answers(&[1, 1, 6_000]),
        });
    }
    poll(&mut agent, 3, &client, &server);
    let state = state(&agent, second(3));
    let families = catalogue::families(&state, &HttpCounters::default(), &PushCounters::default());
    let text = encode(&families, Format::Text);
    let crawler = "application=\"crawler\",port=\"443\"";
    let web = "application=\"web\",port=\"443\"";
    for line in [
        format!("segments_sent_total{{{crawler}}} 7"),
        format!("segments_retransmitted_total{{{web}}} 2"),
        format!("rtt_seconds_bucket{{{crawler},le=\"0.01\"}} 0"),
        format!("rtt_seconds_bucket{{{crawler},le=\"0.05\"}} 1"),
        format!("rtt_seconds_sum{{{crawler}}} 0.03"),
        format!("problem_time_seconds_total{{{web},problem=\"Timeout\"}} 1"),
        // The client waits for its peers, the server answers.
        format!("answer_seconds_bucket{{{crawler},role=\"client\",le=\"0.005\"}} 1"),
        format!("answer_seconds_bucket{{{crawler},role=\"client\",le=\"0.1\"}} 2"),
        format!("answer_seconds_sum{{{crawler},role=\"client\"}} 0.444"),
        format!("answer_seconds_bucket{{{web},role=\"server\",le=\"0.001\"}} 2"),
        format!("answer_seconds_count{{{web},role=\"server\"}} 3"),
        format!("answer_seconds_sum{{{web},role=\"server\"}} 6.002"),
    ] {
        let line = format!("slowpath_application_{line}");
        assert!(text.lines().any(|l| l == line), "{line} lacks in\n{text}");
    }
    // What came before they had series of their own is the others'.
    let other = "slowpath_application_segments_sent_total{application=\"other\"} 6";
    assert!(text.lines().any(|l| l == other), "{text}");
    // Neither serves and asks at once, and the unit is not known.
    assert!(!text.contains(&format!("{web},role=\"client\"")) && !text.contains("unit="));
}
