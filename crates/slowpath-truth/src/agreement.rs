// SPDX-License-Identifier: Apache-2.0
//! Live classifier, `slowpath trace` and oracle side by side.
//!
//! **An end** is one direction of one connection: what one side sends. Only ends that sent data
//! count, and for `SynRetransmit` all, as a side that never sends data also sends its SYN.
//!
//! **Decided** is an end for a class if all three have a verdict on it: the oracle's is not
//! [`Label::Undecided`] (its margins are the ones of precision and recall); the live
//! classifier found the problem, or measured it in every interval; and it is measured in the
//! capture ([`TraceVerdict::found`]). An end that the oracle decides and one of the other two did
//! not measure is counted as *unmeasured*.
//!
//! **They agree** if all three say that the problem was there, or all three that it was not.

use crate::judgement::Class;
use crate::plan::Group;
use crate::run::Judged;
use crate::schedule::Job;
use crate::trace::TraceVerdict;
use crate::truth::{Label, Truth};
use serde_json::{Map, Value, json};
use slowpath_model::Problem;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

/// Disagreements that a table lists; all are printed.
const LISTED: usize = 60;

/// What the live classifier said of one problem of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveVerdict {
    /// Whether it was found; `None`: in some interval it was not measured.
    pub found: Option<bool>,
    /// How long, microseconds.
    pub time_us: u64,
    /// How often, where it is counted.
    pub events: u64,
}

/// The three verdicts on one class and one end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The class.
    pub problem: Problem,
    /// The end's number in its run.
    pub end: usize,
    /// How long the end was observed, microseconds.
    pub observed_us: u64,
    /// The live classifier's.
    pub live: LiveVerdict,
    /// `slowpath trace`'s.
    pub trace: TraceVerdict,
    /// The oracle's.
    pub truth: Truth,
}

impl Comparison {
    /// Those of one end.
    pub fn of_end(number: usize, judged: &Judged) -> impl Iterator<Item = Comparison> {
        let totals = &judged.observed.totals;
        let traced = judged.traced.iter();
        traced.filter_map(move |&(problem, trace)| {
            if !judged.sends && problem != Problem::SynRetransmit {
                return None;
            }
            let (_, truth) = judged.truths.iter().find(|(p, _)| *p == problem)?;
            let found = judged.found(problem);
            let measured = found || !totals.unmeasured.contains(problem);
            Some(Comparison {
                problem,
                end: number,
                observed_us: totals.observed.0,
                live: LiveVerdict {
                    found: measured.then_some(found),
                    time_us: totals.problem_time[problem as usize].0,
                    events: totals.problem_events[problem as usize],
                },
                trace,
                truth: *truth,
            })
        })
    }
}

/// One class's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Ends for which all three have a verdict.
    pub decided: u64,
    /// Those of them at which the oracle says that it was there.
    pub present: u64,
    /// At which all three say the same.
    pub agree: u64,
    /// At which the live classifier and the oracle differ.
    pub live_oracle: u64,
    /// At which trace and oracle differ.
    pub trace_oracle: u64,
    /// At which the live classifier and the trace differ.
    pub live_trace: u64,
    /// Ends that the oracle decides, and one of the other two did not measure.
    pub unmeasured: u64,
}

impl Agreement {
    /// The part of the decided ends at which all three agree.
    pub fn share(&self) -> Option<f64> {
        (self.decided > 0).then(|| self.agree as f64 / self.decided as f64)
    }
}

/// Everything added up.
#[derive(Clone, Debug, Default)]
pub struct Agreements {
    classes: BTreeMap<Problem, Agreement>,
    /// The first disagreements, in words.
    listed: Vec<String>,
    disagreements: u64,
}

impl Agreements {
    /// Adds one; gives it back in words if the three do not agree. `seed` and `job` are those of its run.
    pub fn add(&mut self, seed: u64, job: Job, comparison: &Comparison) -> Option<String> {
        let truth = match comparison.truth.label {
            Label::True => true,
            Label::False => false,
            Label::Undecided => return None,
        };
        let class = self.classes.entry(comparison.problem).or_default();
        let (Some(live), Some(trace)) = (comparison.live.found, comparison.trace.found) else {
            class.unmeasured += 1;
            return None;
        };
        class.decided += 1;
        class.present += u64::from(truth);
        class.live_oracle += u64::from(live != truth);
        class.trace_oracle += u64::from(trace != truth);
        class.live_trace += u64::from(live != trace);
        if live == truth && trace == truth {
            class.agree += 1;
            return None;
        }
        let text = Disagreement {
            seed,
            job,
            comparison,
        };
        let text = text.to_string();
        self.disagreements += 1;
        if self.listed.len() < LISTED {
            self.listed.push(text.clone());
        }
        Some(text)
    }

    /// The account of a class; `None`: nothing was compared.
    pub fn of(&self, problem: Problem) -> Option<Agreement> {
        self.classes.get(&problem).copied()
    }

    /// The least share of any class.
    pub fn least(&self) -> Option<f64> {
        let shares = self.classes.values().filter_map(Agreement::share);
        shares.min_by(f64::total_cmp)
    }

    /// Adds `trace_agreement`, the least share of any class, and `trace`, `{class: {decided, agree, ...}}`,
    /// to an object.
    pub fn add_to(&self, object: &mut Map<String, Value>) {
        let classes = self.classes.iter().map(|(problem, a)| {
            let value = json!({
                "decided": a.decided, "present": a.present, "agree": a.agree,
                "agreement": a.share().map(rounded), "live_oracle": a.live_oracle,
                "trace_oracle": a.trace_oracle, "live_trace": a.live_trace,
                "unmeasured": a.unmeasured,
            });
            (problem.name().to_owned(), value)
        });
        object.insert("trace".to_owned(), Value::Object(classes.collect()));
        let least = json!(self.least().map(rounded));
        object.insert("trace_agreement".to_owned(), least);
    }

    /// The table, in Markdown, with the disagreements below it.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| class | decided ends | problem there | three agree | live ≠ oracle | trace ≠ oracle | live ≠ trace | unmeasured | agreement |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for (problem, a) in &self.classes {
            let share = a
                .share()
                .map_or("none".to_owned(), |s| format!("{:.3}", rounded(s)));
            let _ = writeln!(
                text,
                "| {problem} | {} | {} | {} | {} | {} | {} | {} | {share} |",
                a.decided,
                a.present,
                a.agree,
                a.live_oracle,
                a.trace_oracle,
                a.live_trace,
                a.unmeasured,
            );
        }
        let least = self
            .least()
            .map_or("none".to_owned(), |s| format!("{:.3}", rounded(s)));
        let _ = writeln!(
            text,
            "\nLeast agreement: {least}. Disagreements: {}.",
            self.disagreements
        );
        if !self.listed.is_empty() {
            text.push('\n');
        }
        for line in &self.listed {
            let _ = writeln!(text, "- {line}");
        }
        let more = self.disagreements - self.listed.len() as u64;
        if more > 0 {
            let _ = writeln!(text, "- and {more} more, which the run printed");
        }
        text
    }
}

/// To three places, down: 0.9699 is not 0.97.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).floor() / 1000.0
}

/// A comparison in words, with what runs it again.
struct Disagreement<'a> {
    seed: u64,
    job: Job,
    comparison: &'a Comparison,
}

impl fmt::Display for Disagreement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison {
            problem,
            end,
            observed_us,
            live,
            trace,
            truth,
        } = self.comparison;
        let Job { group, number } = self.job;
        let word = |found: Option<bool>| match found {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unmeasured",
        };
        let truth_word = word(Some(truth.label == Label::True));
        let percent = |time_us: u64| 100.0 * time_us as f64 / (*observed_us).max(1) as f64;
        write!(
            f,
            "{problem} at end {end} of '{group}' {number}: live {} ({:.1} %, {} events), trace {} ({:.1} %, {} events",
            word(live.found),
            percent(live.time_us),
            live.events,
            word(trace.found),
            100.0 * trace.share,
            trace.events,
        )?;
        if let Some((first, last)) = trace.frames {
            write!(f, ", frames {first} to {last}")?;
        }
        write!(
            f,
            "), oracle {truth_word} ({:.1} %, {} events",
            percent(truth.time_us),
            truth.events,
        )?;
        if truth.longest_us.1 > 0 {
            let (from, length) = truth.longest_us;
            write!(f, ", {} ms at {} ms", length / 1_000, from / 1_000)?;
        }
        write!(
            f,
            "); again: `--seed {} --class {} --only {number}`",
            self.seed,
            class_of(group),
        )
    }
}

/// The `--class` that has the runs of a group.
fn class_of(group: Group) -> &'static str {
    match group {
        Group::Problem(problem) => Class::Problem(problem).name(),
        Group::Interaction(kind) => Class::Interaction(kind).name(),
        Group::Pair(..) => "pairs",
        Group::Control(_) | Group::Idle | Group::Streaming | Group::Short | Group::Without(_) => {
            "controls"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job {
        group: Group::Problem(Problem::Timeout),
        number: 3,
    };

    fn comparison(live: Option<bool>, trace: Option<bool>, label: Label) -> Comparison {
        Comparison {
            problem: Problem::Timeout,
            end: 1,
            observed_us: 2_000_000,
            live: LiveVerdict {
                found: live,
                time_us: 500_000,
                events: 2,
            },
            trace: TraceVerdict {
                found: trace,
                share: 0.125,
                events: 1,
                frames: Some((7, 9)),
                ..TraceVerdict::default()
            },
            truth: Truth::labelled(label),
        }
    }

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    /// Each way in which three can differ once, four agreements, and what is not decided.
    fn sums() -> Agreements {
        let mut sums = Agreements::default();
        for (live, trace, label, agree) in [
            (YES, YES, Label::True, true),
            (YES, YES, Label::True, true),
            (YES, YES, Label::True, true),
            (NO, NO, Label::False, true),
            // One differs from the other two.
            (NO, YES, Label::True, false),
            (YES, NO, Label::True, false),
            (YES, YES, Label::False, false),
            // None of these is decided.
            (YES, NO, Label::Undecided, true),
            (None, NO, Label::False, true),
            (YES, None, Label::True, true),
        ] {
            let text = sums.add(11, JOB, &comparison(live, trace, label));
            assert_eq!(text.is_none(), agree, "{live:?} {trace:?} {label:?}");
        }
        sums
    }

    #[test]
    fn agreement_is_counted_over_decided_ends_only() {
        let expected = Agreement {
            decided: 7,
            present: 5,
            agree: 4,
            live_oracle: 2,
            trace_oracle: 2,
            live_trace: 2,
            unmeasured: 2,
        };
        assert_eq!(sums().of(Problem::Timeout), Some(expected));
        assert_eq!(sums().of(Problem::DelayedAck), None);
    }

    #[test]
    fn the_least_class_decides() {
        let mut sums = sums();
        let other = Comparison {
            problem: Problem::EcnMarked,
            ..comparison(YES, YES, Label::True)
        };
        assert_eq!(sums.add(11, JOB, &other), None);
        assert_eq!(sums.least(), Some(4.0 / 7.0));
        let mut object = Map::new();
        sums.add_to(&mut object);
        // Four sevenths, to three places, down.
        assert_eq!(object["trace_agreement"], json!(0.571));
        assert_eq!(object["trace"]["Timeout"]["decided"], json!(7));
        assert_eq!(object["trace"]["EcnMarked"]["agreement"], json!(1.0));
    }

    #[test]
    fn nothing_decided_is_no_agreement() {
        let mut sums = Agreements::default();
        sums.add(11, JOB, &comparison(None, YES, Label::True));
        let mut object = Map::new();
        sums.add_to(&mut object);
        assert_eq!(object["trace_agreement"], Value::Null);
        assert!(
            sums.table()
                .contains("| Timeout | 0 | 0 | 0 | 0 | 0 | 0 | 1 | none |")
        );
    }

    #[test]
    fn the_table_lists_disagreements_with_what_runs_them_again() {
        let table = sums().table();
        assert!(
            table.contains("| Timeout | 7 | 5 | 4 | 2 | 2 | 2 | 2 | 0.571 |"),
            "{table}"
        );
        assert!(
            table.contains("Least agreement: 0.571. Disagreements: 3."),
            "{table}"
        );
        let line = "- Timeout at end 1 of 'Timeout' 3: live yes (25.0 %, 2 events), \
                    trace no (12.5 %, 1 events, frames 7 to 9), oracle yes (0.0 %, 0 events); \
                    again: `--seed 11 --class Timeout --only 3`";
        assert!(table.lines().any(|l| l == line), "{table}");
    }

    #[test]
    fn a_table_lists_so_many_and_says_how_many_more() {
        let mut sums = Agreements::default();
        for _ in 0..=LISTED {
            sums.add(11, JOB, &comparison(NO, YES, Label::True));
        }
        let table = sums.table();
        assert_eq!(
            table.lines().filter(|l| l.contains("again: ")).count(),
            LISTED
        );
        assert!(
            table.ends_with("- and 1 more, which the run printed\n"),
            "{table}"
        );
    }
}
