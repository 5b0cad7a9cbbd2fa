// SPDX-License-Identifier: Apache-2.0
//! Every key of a scenario with every kind of value: a scenario, or an error with its place.

use super::Scenario;
use super::tests::{EVERYTHING, files};

/// Every line of a scenario that says everything, taken away or with another value: an
/// answer, and if that is an error, one that says where.
#[test]
fn whatever_a_value_is_there_is_an_answer() {
    let values = [
        "",
        "0",
        "-1",
        "1",
        "9223372036854775807",
        "0.0",
        "-0.5",
        "1e300",
        "nan",
        "true",
        "\"\"",
        "\"*\"",
        "\"0 s\"",
        "\"1 ps\"",
        "\"86400 s\"",
        "\"0 B\"",
        "\"1 B\"",
        "\"1 TB\"",
        "\"0 packets\"",
        "\"1 packet\"",
        "\"0 /s\"",
        "\"1000 k/s\"",
        "\"100 %\"",
        "\"1/0\"",
        "[]",
        "[[]]",
        "[\"*\"]",
        "[\"host-0-0-0\"]",
        "{}",
        "{ a = 1 }",
        "1979-05-27",
    ];
    let lines: Vec<&str> = EVERYTHING.lines().collect();
    let (mut read, mut refused) = (0, 0);
    for (number, line) in lines.iter().enumerate() {
        let Some((key, _)) = line.split_once(" = ") else {
            continue;
        };
        for value in values {
            let mut changed = lines.clone();
            let line = format!("{key} = {value}");
            changed[number] = if value.is_empty() { "" } else { &line };
            match Scenario::parse(&changed.join("\n"), &files) {
                Ok(scenario) => {
                    assert!(
                        scenario
                            .flows()
                            .take(20)
                            .all(|flow| flow.source != flow.destination)
                    );
                    read += 1;
                }
                Err(error) => {
                    assert!((1..=lines.len()).contains(&error.line), "{line}: {error}");
                    assert!(
                        !error.key.is_empty() || error.to_string().contains("TOML"),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
    }
    assert!(
        read > 100 && refused > 1_000,
        "{read} read, {refused} refused"
    );
}
