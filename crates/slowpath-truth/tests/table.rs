// SPDX-License-Identifier: Apache-2.0
//! The table in docs/reference/accuracy.md is what `make check-truth` writes.

use slowpath_truth::agreement::Agreements;
use slowpath_truth::judgement::Class;
use slowpath_truth::tally::Tally;
use slowpath_truth::trace::of_packets;

#[test]
fn the_committed_table_has_the_form_and_names_every_problem() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/accuracy.md"
    );
    let text = std::fs::read_to_string(path).expect("is there");
    let (_, rest) = text
        .split_once("<!-- check-truth: begin -->\n")
        .expect("begins");
    let (table, _) = rest.split_once("<!-- check-truth: end -->").expect("ends");
    assert!(table.starts_with("`make check-truth`, seed "), "{table}");
    let beside = Agreements::default().table();
    let beside = beside.lines().next().expect("has a header");
    // A table from before `slowpath trace` judged the runs lacks the second.
    let (table, second) = table.split_once(beside).unwrap_or((table, ""));
    agreements(beside, second);
    let empty = Tally::default().table();
    let header = empty.lines().next().expect("has a header");
    assert!(table.contains(header), "another header than {header}");
    assert!(table.contains("Two problems at once: both found in "));
    let (_, lost) = table.split_once("Without a result: ").expect("is stated");
    let lost: u32 = lost
        .split('.')
        .next()
        .expect("a sentence")
        .parse()
        .expect("a number");
    let columns = header.split('|').count();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && *line != header)
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), Class::all().count());
    for (row, class) in rows.iter().zip(Class::all()) {
        assert_eq!((row.len(), row[1]), (columns, class.name()));
        let runs: u32 = row[2].parse().expect("a number of runs");
        assert!(runs + lost >= 30, "{class}: {runs} runs");
        for ratio in &row[columns - 3..columns - 1] {
            let ratio: f64 = ratio.parse().expect("a ratio");
            assert!((0.0..=1.0).contains(&ratio), "{class}: {ratio}");
        }
    }
}

/// The rows of the second table: problems that packets show, in order, with counts that add up.
fn agreements(header: &str, table: &str) {
    let columns = header.split('|').count();
    let mut problems = of_packets();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let row: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(row.len(), columns, "{row:?}");
        assert!(problems.any(|p| p.name() == row[1]), "{row:?}");
        let count = |column: usize| -> u64 { row[column].parse().expect("a count") };
        let (decided, present, agree) = (count(2), count(3), count(4));
        assert!(present <= decided && agree <= decided, "{row:?}");
        // Each end at which they do not agree is one where two pairs differ.
        assert_eq!(
            2 * (decided - agree),
            count(5) + count(6) + count(7),
            "{row:?}"
        );
    }
    assert!(table.is_empty() || table.contains("\nLeast agreement: "));
}

/// Every problem that there is, and every interaction, is measured.
#[test]
fn every_problem_and_interaction_is_a_class() {
    use slowpath_diagnose::InteractionKind;
    use slowpath_model::Problem;
    let problems = Problem::ALL.into_iter().map(Class::Problem);
    let interactions = InteractionKind::ALL.into_iter().map(Class::Interaction);
    assert!(problems.chain(interactions).eq(Class::all()));
}
