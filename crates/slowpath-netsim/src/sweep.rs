// SPDX-License-Identifier: Apache-2.0
//! Sweeps: one scenario run with every combination of some values, and several seeds each.
//!
//! What enters: `KEY=VALUES` for each key that varies, and a number of seeds. What leaves: the runs, numbered, each as the `KEY=VALUE`
//! arguments that make it. Runs of one combination follow each other; the last key varies fastest. Every combination has the same seeds, so
//! that two differ by their values only.

use std::fmt;

/// The most runs of a sweep.
pub const MAX_RUNS: u64 = 1_000_000;
/// The most values of a key.
const MAX_VALUES: u64 = 10_000;

/// Why there is no such sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Not `KEY=VALUES`.
    #[error(
        "--vary {0}: write it as KEY=VALUE,VALUE,... or KEY=FIRST..LAST/COUNT, for example tcp.algorithm=dctcp,cubic or workload.load=0.1..0.8/8"
    )]
    Form(String),
    /// A range that is none.
    #[error("--vary {argument}: {reason}")]
    Range {
        /// The argument.
        argument: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A key twice.
    #[error("--vary {0}: the key varies twice; give all its values in one --vary")]
    Twice(String),
    /// Seeds are counted, not listed.
    #[error("--vary seed: --seeds N runs every combination with N seeds")]
    Seed,
    /// More than anybody would wait for.
    #[error("{runs} runs are too many: at most {MAX_RUNS}")]
    Many {
        /// How many.
        runs: u128,
    },
}

/// A key and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// The key, as for `--set`.
    pub key: String,
    /// The values, as for `--set`.
    pub values: Vec<String>,
}

impl Vary {
    /// Reads `KEY=A,B,C` or `KEY=FIRST..LAST/COUNT`: so many values from the first to the last, equally far from each other.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(argument: &str) -> Result<Self, SweepError> {
        let form = || SweepError::Form(argument.to_owned());
        let (key, values) = argument.split_once('=').ok_or_else(form)?;
        let (key, values) = (key.trim(), values.trim());
        if key.is_empty() || values.is_empty() {
            return Err(form());
        }
        if key == "seed" {
            return Err(SweepError::Seed);
        }
        let values = match range(values) {
            Some(range) => range.map_err(|reason| SweepError::Range {
                argument: argument.to_owned(),
                reason,
            })?,
            None => list(values).ok_or_else(form)?,
        };
        Ok(Vary {
            key: key.to_owned(),
            values,
        })
    }
}

impl fmt::Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.values.join(","))
    }
}

/// Values between commas that are not within quotes or brackets; `None`: one is empty, or a quote or bracket is open.
fn list(text: &str) -> Option<Vec<String>> {
    let mut values = vec![String::new()];
    let (mut depth, mut quoted) = (0_u32, false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth = depth.checked_sub(1)?,
            ',' if !quoted && depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        values.last_mut()?.push(letter);
    }
    let values: Vec<String> = values.iter().map(|it| it.trim().to_owned()).collect();
    let whole = !quoted && depth == 0 && values.iter().all(|it| !it.is_empty());
    whole.then_some(values)
}

/// `FIRST..LAST/COUNT`, with a unit behind the last number or both; `None`: no range.
fn range(text: &str) -> Option<Result<Vec<String>, &'static str>> {
    let (first, rest) = text.split_once("..")?;
    Some(steps(first.trim(), rest.trim()))
}

fn steps(first: &str, rest: &str) -> Result<Vec<String>, &'static str> {
    let (last, count) = rest
        .rsplit_once('/')
        .ok_or("a range needs the number of its values: FIRST..LAST/COUNT")?;
    let ((from, own), (to, unit)) = (number(first)?, number(last.trim())?);
    if !own.is_empty() && own != unit {
        return Err("both ends of a range need the same unit");
    }
    let count: u64 = count
        .trim()
        .parse()
        .ok()
        .filter(|count| (2..=MAX_VALUES).contains(count))
        .ok_or("a range has 2 to 10000 values")?;
    let space = if unit.is_empty() { "" } else { " " };
    let value = |step: u64| {
        let at = from + (to - from) * step as f64 / (count - 1) as f64;
        // Twelve digits, so that 0.1 + 0.2 is 0.3.
        let rounded: f64 = format!("{at:.11e}").parse().unwrap_or(at);
        format!("{rounded}{space}{unit}")
    };
    Ok((0..count).map(value).collect())
}

/// A number and the unit behind it.
fn number(text: &str) -> Result<(f64, &str), &'static str> {
    let end = text.find(|it: char| !(it.is_ascii_digit() || "+-.".contains(it)));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let value: f64 = digits
        .parse()
        .map_err(|_| "a range goes from one number to another")?;
    Ok((value, unit.trim()))
}

/// All runs of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Keys and their values.
    pub vary: Vec<Vary>,
    /// The seeds of every combination.
    pub seeds: Vec<u64>,
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRun {
    /// Its number, from 0.
    pub number: u64,
    /// Which combination, from 0.
    pub point: u64,
    /// Its seed.
    pub seed: u64,
    /// What makes it, as for `--set`.
    pub set: Vec<String>,
}

impl Sweep {
    /// These keys and values, with `seeds` seeds from `first` on.
    ///
    /// # Errors
    /// A key varies twice, or there are too many runs.
    pub fn new(vary: Vec<Vary>, first: u64, seeds: u64) -> Result<Self, SweepError> {
        for (place, one) in vary.iter().enumerate() {
            if vary[..place].iter().any(|earlier| earlier.key == one.key) {
                return Err(SweepError::Twice(one.key.clone()));
            }
        }
        let points = vary.iter().map(|it| it.values.len() as u128);
        let runs = points.fold(u128::from(seeds), u128::saturating_mul);
        if runs > u128::from(MAX_RUNS) {
            return Err(SweepError::Many { runs });
        }
        let seeds = (0..seeds).map(|number| first.wrapping_add(number) & (i64::MAX as u64));
        Ok(Sweep {
            vary,
            seeds: seeds.collect(),
        })
    }

    /// How many combinations there are.
    pub fn points(&self) -> u64 {
        self.vary.iter().map(|it| it.values.len() as u64).product()
    }

    /// How many runs there are.
    pub fn runs(&self) -> u64 {
        self.points() * self.seeds.len() as u64
    }

    /// The value of each key in a combination.
    pub fn values(&self, point: u64) -> Vec<&str> {
        let mut left = point;
        let mut values: Vec<&str> = Vec::new();
        for one in self.vary.iter().rev() {
            let count = one.values.len() as u64;
            values.push(&one.values[(left % count) as usize]);
            left /= count;
        }
        values.reverse();
        values
    }

    /// The run of that number.
    pub fn run(&self, number: u64) -> SweepRun {
        let seeds = self.seeds.len() as u64;
        let (point, seed) = (number / seeds, self.seeds[(number % seeds) as usize]);
        let values = self.vary.iter().zip(self.values(point));
        let mut set: Vec<String> = values
            .map(|(one, value)| format!("{}={value}", one.key))
            .collect();
        set.push(format!("seed={seed}"));
        SweepRun {
            number,
            point,
            seed,
            set,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(argument: &str) -> Vec<String> {
        Vary::parse(argument).unwrap().values
    }

    #[test]
    fn values_are_listed_or_a_range() {
        assert_eq!(values("tcp.algorithm=dctcp, cubic"), ["dctcp", "cubic"]);
        let tenths = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8"];
        assert_eq!(values("workload.load=0.1..0.8/8"), tenths);
        assert_eq!(
            values("switch.buffer=20..100 packets/3"),
            ["20 packets", "60 packets", "100 packets"]
        );
        assert_eq!(
            values("topology.links.rate=1 Gbit/s..4 Gbit/s/2"),
            ["1 Gbit/s", "4 Gbit/s"]
        );
        assert_eq!(values("a.b=3..1/3"), ["3", "2", "1"]);
        assert_eq!(
            values("workload.sizes={ file = \"a,b\" },\"20 kB\""),
            ["{ file = \"a,b\" }", "\"20 kB\""]
        );
    }

    #[test]
    fn what_is_neither_is_refused_with_the_way_out() {
        for (argument, says) in [
            ("load", "KEY=FIRST..LAST/COUNT"),
            ("=1", "KEY=VALUE"),
            ("a=", "KEY=VALUE"),
            ("a=1,,2", "KEY=VALUE"),
            ("a=[1,2", "KEY=VALUE"),
            ("a=1..2", "the number of its values"),
            ("a=1..2/1", "2 to 10000"),
            ("a=1..b/3", "from one number to another"),
            ("a=1 us..2 ms/3", "the same unit"),
            ("seed=1,2", "--seeds"),
        ] {
            let error = Vary::parse(argument).unwrap_err().to_string();
            assert!(error.contains(says), "{argument}: {error}");
        }
        let twice = ["a=1,2", "a=3"].map(|it| Vary::parse(it).unwrap());
        let error = Sweep::new(twice.to_vec(), 1, 1).unwrap_err();
        assert_eq!(error, SweepError::Twice("a".to_owned()));
        let large = ["a=1..9999/9999", "b=1..9999/9999"].map(|it| Vary::parse(it).unwrap());
        let error = Sweep::new(large.to_vec(), 1, 1).unwrap_err();
        assert!(matches!(error, SweepError::Many { runs: 99_980_001 }));
    }

    #[test]
    fn every_combination_has_every_seed_once() {
        let vary = ["a=x,y", "b=1..3/3"].map(|it| Vary::parse(it).unwrap());
        let sweep = Sweep::new(vary.to_vec(), 7, 2).unwrap();
        assert_eq!((sweep.points(), sweep.runs()), (6, 12));
        let runs: Vec<SweepRun> = (0..12).map(|number| sweep.run(number)).collect();
        assert_eq!(runs[0].set, ["a=x", "b=1", "seed=7"]);
        assert_eq!(runs[1].set, ["a=x", "b=1", "seed=8"]);
        assert_eq!(runs[2].set, ["a=x", "b=2", "seed=7"]);
        assert_eq!(runs[11].set, ["a=y", "b=3", "seed=8"]);
        assert_eq!(runs[11].point, 5);
        let mut all: Vec<&Vec<String>> = runs.iter().map(|run| &run.set).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12);
    }

    #[test]
    fn one_scenario_with_no_key_is_as_many_runs_as_seeds() {
        let sweep = Sweep::new(Vec::new(), 1, 3).unwrap();
        assert_eq!((sweep.points(), sweep.runs()), (1, 3));
        assert_eq!(sweep.run(2).set, ["seed=3"]);
    }
}
