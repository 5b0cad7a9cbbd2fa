// SPDX-License-Identifier: Apache-2.0
//! Requests and answers in the answer of `why`.

use super::*;
use crate::json::value;
use crate::scripted::{INTERVAL, ScriptedSource, live};
use crate::source::{FeatureState, OwnedConnection};
use slowpath_model::{AnswerSums, LATEST_TURNS, MonoNanos, Origin, Turn, TurnEnd, TurnSums, Turns};
use slowpath_text::Paint;

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:5432";
/// When the first poll is: ScriptedSource begins at 1 s.
const FIRST: u64 = 1_500_000_000;

fn sums(count: u64, each: Micros) -> AnswerSums {
    AnswerSums {
        count,
        time: Micros(count * each.0),
        longest: each,
        latest: [each.0 as u32; LATEST_TURNS],
    }
}

/// The client's connection after so many answers of 200 ms each.
fn client(answers: u64) -> OwnedConnection {
    let mut connection = live(1, "psql", CLIENT, SERVER);
    connection.snapshot.stats.min_rtt = Some(Micros(20_000));
    connection.snapshot.turns = Turns::watched(None).with(TurnSums {
        peer: sums(answers, Micros::from_millis(200)),
        ..TurnSums::default()
    });
    connection
}

fn server() -> OwnedConnection {
    let mut connection = live(2, "postgres", SERVER, CLIENT);
    connection.snapshot.origin = Origin::Accepted;
    connection
}

/// The answer after three intervals of half a second.
fn ask(steps: Vec<Vec<OwnedConnection>>) -> Answer {
    let target = Target::Pid(1);
    let mut source = ScriptedSource::new(steps);
    let mut collector = Collector::at(&target);
    for _ in 0..=3 {
        let report = source.poll().unwrap();
        collector.polled(&source, &report, WallMicros(0));
    }
    collector.answer(Micros(INTERVAL.0 * 3)).unwrap()
}

fn text(answer: &Answer) -> String {
    let lines = answer.lines(&ScriptedSource::new(vec![]), Paint::OFF);
    let words: Vec<&str> = lines.iter().flat_map(|l| l.split_whitespace()).collect();
    words.join(" ")
}

fn turns(answer: &Answer) -> serde_json::Value {
    let output = value(&answer.output(&ScriptedSource::new(vec![]), WallMicros(0)));
    crate::schema::conforms("why", &output);
    output["connections"][0]["turns"].clone()
}

/// Two answers of 200 ms in each half second: 1.2 s of 1.5 s. What there was before the first look
/// does not count.
#[test]
fn the_peer_is_named_with_its_answer_times_and_their_share() {
    let step = |polls: u64| vec![client(100 + 2 * polls), server()];
    let answer = ask(vec![step(0), step(1), step(2), step(3)]);
    let wanted = "turns postgres[2] took 200ms to answer, 80% of the time \
                  (6 answers, 95% within 200ms); 20.0ms of it is the round trip";
    let text = text(&answer);
    assert!(text.contains(wanted), "{text}");
    let turns = turns(&answer);
    let peer = &turns["peer"];
    assert_eq!(peer["answers"], 6);
    assert_eq!(peer["mean_us"], 200_000);
    assert_eq!(peer["max_us"], 200_000);
    assert_eq!(peer["time_us"], 1_200_000);
    assert!(peer["pending_us"].is_null());
    assert_eq!(turns["peer_without_rtt"]["mean_us"], 180_000);
    assert_eq!(turns["peer_without_rtt"]["least_rtt_us"], 20_000);
    assert_eq!(turns["here"]["answers"], 0);
    assert_eq!(
        (&turns["overlapping"], &turns["duplex"]),
        (&0.into(), &false.into())
    );
}

#[test]
fn a_peer_on_another_machine_is_named_by_its_address() {
    let step = |polls: u64| vec![client(2 * polls)];
    let answer = ask(vec![step(0), step(1), step(2), step(3)]);
    let text = text(&answer);
    assert!(text.contains("turns 10.0.0.2:5432 took 200ms"), "{text}");
}

/// The request was written at the first look; 1.5 s later the answer has not come.
#[test]
fn an_answer_that_is_awaited_counts_and_is_mentioned() {
    let mut waiting = client(0);
    waiting.snapshot.turns = Turns::watched(Some(Turn {
        end: TurnEnd::Peer,
        since: MonoNanos(FIRST),
    }));
    let step = || vec![waiting.clone(), server()];
    let answer = ask(vec![step(), step(), step(), step()]);
    let text = text(&answer);
    assert!(
        text.contains("no answer from postgres[2] for 1.50s"),
        "{text}"
    );
    let turns = turns(&answer);
    assert_eq!(turns["peer"]["pending_us"], 1_500_000);
    assert_eq!(turns["peer"]["time_us"], 1_500_000);
    assert!(turns["peer"]["mean_us"].is_null());
}

#[test]
fn traffic_without_turns_says_so() {
    let step = |polls: u64| {
        let mut connection = client(0);
        connection.snapshot.turns = Turns::watched(None).with(TurnSums {
            overlapping: polls * 10,
            peer: sums(polls, Micros(300)),
            ..TurnSums::default()
        });
        vec![connection]
    };
    let answer = ask(vec![step(0), step(1), step(2), step(3)]);
    let wanted = "data passes both ways at once, in 30 of 33 exchanges with 10.0.0.2:5432";
    let text = text(&answer);
    assert!(text.contains(wanted), "{text}");
    assert_eq!(turns(&answer)["duplex"], true);
}

#[test]
fn turns_that_cannot_be_measured_are_null_and_noted() {
    let mut connection = client(0);
    connection.snapshot.turns = Turns::UNOBSERVED;
    let step = || vec![connection.clone()];
    let answer = ask(vec![step(), step(), step(), step()]);
    assert!(turns(&answer).is_null());
    let text = text(&answer);
    let source = ScriptedSource::new(vec![]);
    let missing = |f: &crate::source::Feature| f.state != FeatureState::Active;
    assert!(source.capabilities().features.iter().any(missing));
    assert!(
        text.contains("could not measure: whose turn it is (no BPF)"),
        "{text}"
    );
}
