// SPDX-License-Identifier: Apache-2.0
//! Found against true, added up; and the table of docs/reference/accuracy.md.

use crate::expected::{self, Expected};
use crate::judgement::{Class, Judgement};
use crate::plan::{Group, Plan};
use crate::run::{Judged, Outcome};
use crate::truth::Label;
use serde::Serialize;
use serde_json::{Map, Value, json};
use slowpath_diagnose::InteractionKind;
use slowpath_model::Problem;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One class's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Runs with it injected.
    pub runs: u64,
    /// Those of them in which the oracle confirms it at the end where it was injected.
    pub confirmed: u64,
    /// Ends of connections where it was true, and found.
    pub right: u64,
    /// Where it was true, and not found.
    pub missed: u64,
    /// Where it was not true, and found.
    pub wrong: u64,
    /// Where it was not true, and not found.
    pub rejected: u64,
    /// Where the oracle cannot say.
    pub undecided: u64,
    /// Confirmed runs with an answer that is right.
    pub answers: u64,
    /// Confirmed runs for which it is known what is right.
    pub asked: u64,
}

impl Account {
    /// The part of what was found that was true.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.right, self.right + self.wrong)
    }

    /// The part of what was true that was found.
    pub fn recall(&self) -> Option<f64> {
        ratio(self.right, self.right + self.missed)
    }
}

impl Account {
    /// The part of the runs in which `why` answered right.
    pub fn answer(&self) -> Option<f64> {
        ratio(self.answers, self.asked)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A disagreement, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Found, and it was not there.
    Wrong,
    /// Not found, and it was there.
    Missed,
}

/// Everything added up.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    accounts: BTreeMap<Class, Account>,
    pairs: (u64, u64),
    pairs_unconfirmed: u64,
    /// Runs without an injection.
    pub controls: u64,
    /// Runs that were tried again, as the machine disturbed them.
    pub disturbed: u64,
    /// Runs without a result.
    pub failed: u64,
}

impl Tally {
    /// Adds a run; gives where found and true differ.
    pub fn add(&mut self, group: Group, outcome: &Outcome) -> Vec<(Judgement, Verdict)> {
        let judgements = outcome.judgements();
        match group {
            Group::Problem(_) | Group::Interaction(_) => {}
            Group::Pair(one, other) => self.add_pair([one, other], &outcome.ends),
            _ => self.controls += 1,
        }
        for class in made_for(group) {
            let account = self.accounts.entry(class).or_default();
            account.runs += 1;
            account.confirmed += u64::from(confirmed(class, &judgements));
        }
        let mut disagreements = Vec::new();
        for judgement in judgements {
            let account = self.accounts.entry(judgement.class).or_default();
            match (judgement.truth.label, judgement.found) {
                (Label::Undecided, _) => account.undecided += 1,
                (Label::True, true) => account.right += 1,
                (Label::False, false) => account.rejected += 1,
                (Label::True, false) => {
                    account.missed += 1;
                    disagreements.push((judgement, Verdict::Missed));
                }
                (Label::False, true) => {
                    account.wrong += 1;
                    disagreements.push((judgement, Verdict::Wrong));
                }
            }
        }
        disagreements
    }

    /// Adds the answer of a run; gives what would have been right where it is not.
    pub fn add_answer(&mut self, group: Group, plan: &Plan, outcome: &Outcome) -> Vec<Expected> {
        let expected = expected::expected(group, plan, outcome);
        let answer = outcome.answer.as_ref();
        let right = answer.is_some_and(|answer| expected.iter().any(|e| e.is(answer)));
        let judgements = outcome.judgements();
        let mut counted = false;
        for class in made_for(group).into_iter().filter(|_| !expected.is_empty()) {
            if confirmed(class, &judgements) {
                counted = true;
                let account = self.accounts.entry(class).or_default();
                account.asked += 1;
                account.answers += u64::from(right);
            }
        }
        if counted && !right {
            expected
        } else {
            Vec::new()
        }
    }

    fn add_pair(&mut self, pair: [Problem; 2], ends: &[Judged]) {
        let at = |what: &dyn Fn(&Judged, Problem) -> bool| {
            pair.iter().all(|p| ends.iter().any(|end| what(end, *p)))
        };
        if at(&|end, p| label(end, p) == Some(Label::True)) {
            self.pairs.0 += 1;
            self.pairs.1 += u64::from(at(&|end, p| {
                label(end, p) == Some(Label::True) && end.found(p)
            }));
        } else {
            self.pairs_unconfirmed += 1;
        }
    }

    /// The account of each class.
    pub fn accounts(&self) -> impl Iterator<Item = (Class, Account)> {
        self.accounts.iter().map(|(c, a)| (*c, *a))
    }

    /// Runs of pairs that the oracle confirms, and in how many of them both were found.
    pub fn pairs(&self) -> (u64, u64) {
        self.pairs
    }

    /// `{class: {runs, precision, recall, ...}, "pairs": {runs, found, ...}}`.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        for (class, a) in self.accounts().filter(|(_, a)| a.runs > 0) {
            let value = json!({
                "runs": a.runs, "precision": rounded(a.precision()), "recall": rounded(a.recall()),
                "confirmed": a.confirmed, "right": a.right, "missed": a.missed, "wrong": a.wrong,
                "rejected": a.rejected, "undecided": a.undecided,
                "answer": rounded(a.answer()), "asked": a.asked, "answers": a.answers,
            });
            object.insert(class.name().to_owned(), value);
        }
        let (runs, found) = self.pairs;
        if runs + self.pairs_unconfirmed > 0 {
            let pairs = json!({
                "runs": runs, "found": found, "unconfirmed": self.pairs_unconfirmed,
            });
            object.insert("pairs".to_owned(), pairs);
        }
        Value::Object(object)
    }

    /// The table, in Markdown.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| class | runs | confirmed | right | missed | wrong | rejected | undecided | answers | answer | precision | recall |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (class, a) in self.accounts().filter(|(_, a)| a.runs > 0) {
            let shown = |r: Option<f64>| r.map_or("none".to_owned(), |r| format!("{r:.3}"));
            let _ = writeln!(
                text,
                "| {class} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                a.runs,
                a.confirmed,
                a.right,
                a.missed,
                a.wrong,
                a.rejected,
                a.undecided,
                a.asked,
                shown(a.answer()),
                shown(a.precision()),
                shown(a.recall()),
            );
        }
        let (runs, found) = self.pairs;
        let _ = writeln!(
            text,
            "\nTwo problems at once: both found in {found} of {runs} runs ({} more in which the oracle does not confirm both).",
            self.pairs_unconfirmed
        );
        let _ = writeln!(
            text,
            "Controls: {} runs. Run again because the machine disturbed them: {}. Without a result: {}.",
            self.controls, self.disturbed, self.failed
        );
        text
    }
}

/// The classes that a run of this group is for.
fn made_for(group: Group) -> Vec<Class> {
    match group {
        Group::Problem(Problem::SendBufferLimited) => vec![
            Class::Problem(Problem::SendBufferLimited),
            // A buffer below half of the product is what they have.
            Class::Interaction(InteractionKind::SendBufferBelowBdp),
        ],
        Group::Problem(problem) => vec![Class::Problem(problem)],
        Group::Interaction(kind) => vec![Class::Interaction(kind)],
        _ => Vec::new(),
    }
}

fn confirmed(class: Class, judgements: &[Judgement]) -> bool {
    let is_true = |j: &Judgement| j.class == class && j.truth.label == Label::True;
    judgements.iter().any(is_true)
}

fn label(end: &Judged, problem: Problem) -> Option<Label> {
    let found = end.truths.iter().find(|(p, _)| *p == problem)?;
    Some(found.1.label)
}

/// To three places, down: 0.9499 is not 0.95.
fn rounded(ratio: Option<f64>) -> Option<f64> {
    ratio.map(|r| (r * 1000.0).floor() / 1000.0)
}
