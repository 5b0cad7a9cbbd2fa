// SPDX-License-Identifier: Apache-2.0
//! `--set KEY=VALUE`: changes values in a scenario's text.
//!
//! The text itself changes, so that results carry the complete scenario that was run, ready
//! to run again. Every line of the changed text keeps its origin, so that errors name lines
//! of the file.

use super::ScenarioError;
use slowpath_model::clean;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why a value cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The argument is not `KEY=VALUE`.
    #[error("--set {0}: write it as KEY=VALUE, for example switch.buffer=\"50 packets\"")]
    Form(String),
    /// The key is not a TOML key.
    #[error("--set {given}: '{part}' is no key; write workload[1].rate for the second workload's")]
    Key {
        /// The argument.
        given: String,
        /// The invalid part of the key.
        part: String,
    },
    /// An index is beyond the end of an array.
    #[error("--set {given}: there is no {path}")]
    NoSuch {
        /// The argument.
        given: String,
        /// The missing element.
        path: String,
    },
    /// A key without an index goes into one of several.
    #[error("--set {given}: there are {count} of {path}: write {path}[0] to {path}[{}]", count.saturating_sub(1))]
    Several {
        /// The argument.
        given: String,
        /// The array.
        path: String,
        /// How many there are.
        count: usize,
    },
    /// The key names a section, which takes no value.
    #[error("--set {0}: that is a section; set its keys")]
    Section(String),
    /// The file is not TOML; the scenario reader's error names the place.
    #[error("the scenario is not TOML")]
    NotToml,
}

/// Where a line of the text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// That line of the file, counted from 1.
    File(usize),
    /// That `--set` argument, counted from 0.
    Set(usize),
}

/// A scenario's text and the origin of each line.
#[derive(Clone, Debug)]
pub struct ScenarioText {
    /// The text.
    pub text: String,
    lines: Vec<LineOrigin>,
}

/// One step of a key: a name, then perhaps indices.
struct Step<'a> {
    name: &'a str,
    indices: Vec<usize>,
}

impl ScenarioText {
    /// A file's text, unchanged.
    pub fn new(text: String) -> Self {
        let lines = text.lines().count().max(1);
        ScenarioText {
            text,
            lines: (1..=lines).map(LineOrigin::File).collect(),
        }
    }

    /// The origin of a line of the changed text, counted from 1.
    pub fn origin(&self, line: usize) -> LineOrigin {
        let last = self.lines.last().copied().unwrap_or(LineOrigin::File(1));
        let at = line.saturating_sub(1);
        self.lines.get(at).copied().unwrap_or(last)
    }

    /// Changes a value, or adds it if the key is missing. `number`: the index of this `--set`.
    ///
    /// # Errors
    /// The argument does not fit this file.
    pub fn set(&mut self, number: usize, argument: &str) -> Result<(), OverrideError> {
        let form = || OverrideError::Form(argument.to_owned());
        let (key, value) = argument.split_once('=').ok_or_else(form)?;
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() || argument.contains(['\n', '\r']) {
            return Err(form());
        }
        let steps = steps(key, argument)?;
        let value = toml_value(value);
        let edit = {
            let table = DeTable::parse(&self.text).map_err(|_| OverrideError::NotToml)?;
            place(&self.text, table.get_ref(), &steps, argument, &value)?
        };
        self.apply(edit, number);
        Ok(())
    }

    /// The error, with the line of the file or the argument of `set` that it is in.
    pub fn explain(&self, error: &ScenarioError, set: &[String]) -> String {
        let what = error.what();
        let assigns = |argument: &&String| {
            let key = argument.split_once('=').map(|(key, _)| key.trim());
            key.is_some_and(|key| key == error.key)
        };
        let origin = self.origin(error.line);
        let argument = match origin {
            LineOrigin::Set(number) => set.get(number),
            LineOrigin::File(_) => set.iter().rfind(assigns),
        };
        match (argument, origin) {
            (Some(argument), _) => format!("--set {}: {what}", clean(argument)),
            (None, LineOrigin::File(line)) => format!("line {line}: {what}"),
            (None, LineOrigin::Set(_)) => what,
        }
    }

    fn apply(&mut self, (range, text): (Range<usize>, String), number: usize) {
        let line = self.text[..range.start].matches('\n').count();
        let gone = self.text[range.clone()].matches('\n').count();
        let come = text.matches('\n').count();
        self.lines.resize(
            (line + gone + 1).max(self.lines.len()),
            LineOrigin::Set(number),
        );
        // A value replaced within a line: the line keeps its number, because its key is the file's.
        let first = line + usize::from(come == 0);
        let (from, to) = (first, first + gone);
        self.lines
            .splice(from..to, std::iter::repeat_n(LineOrigin::Set(number), come));
        self.text.replace_range(range, &text);
    }
}

/// `workload[1].rate` as steps.
fn steps<'a>(key: &'a str, given: &str) -> Result<Vec<Step<'a>>, OverrideError> {
    let step = |part: &'a str| {
        let bad = || OverrideError::Key {
            given: given.to_owned(),
            part: part.to_owned(),
        };
        let (name, rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(bad());
        }
        let mut indices = Vec::new();
        let mut rest = rest;
        while let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']').ok_or_else(bad)?;
            indices.push(index.parse().map_err(|_| bad())?);
            rest = after;
        }
        if rest.is_empty() {
            Ok(Step { name, indices })
        } else {
            Err(bad())
        }
    };
    key.split('.').map(|part| step(part.trim())).collect()
}

/// The value as TOML: as it stands if it is TOML, else as a string.
fn toml_value(text: &str) -> String {
    if DeTable::parse(&format!("x = {text}")).is_ok() {
        text.to_owned()
    } else {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    }
}

type Table<'a> = &'a DeTable<'a>;

/// The bytes to replace, and the replacement.
fn place(
    text: &str,
    root: Table<'_>,
    steps: &[Step<'_>],
    given: &str,
    value: &str,
) -> Result<(Range<usize>, String), OverrideError> {
    let mut table = root;
    // The span of the enclosing section; none at the top level.
    let mut around: Option<Range<usize>> = None;
    for (depth, step) in steps.iter().enumerate() {
        let is_last = depth + 1 == steps.len();
        let Some(mut found) = table.get(step.name) else {
            if let Some(index) = step.indices.first() {
                let path = format!("{}[{index}]", path(steps, depth));
                return Err(OverrideError::NoSuch {
                    given: given.to_owned(),
                    path,
                });
            }
            return Ok(insertion(text, around, steps, depth, value));
        };
        for index in &step.indices {
            let inner = match found.get_ref() {
                DeValue::Array(list) => list.get(*index),
                _ => None,
            };
            found = inner.ok_or_else(|| OverrideError::NoSuch {
                given: given.to_owned(),
                path: format!("{}[{index}]", path(steps, depth)),
            })?;
        }
        // `workload.load` of a scenario with one workload.
        if !is_last && let DeValue::Array(list) = found.get_ref() {
            found =
                list.first()
                    .filter(|_| list.len() == 1)
                    .ok_or_else(|| OverrideError::Several {
                        given: given.to_owned(),
                        path: path(steps, depth),
                        count: list.len(),
                    })?;
        }
        if is_last {
            return if is_section(text, found) {
                Err(OverrideError::Section(given.to_owned()))
            } else {
                Ok((found.span(), value.to_owned()))
            };
        }
        let DeValue::Table(inner) = found.get_ref() else {
            // A value in place of a section: replace it by a table that holds the key.
            return Ok((found.span(), inline(&steps[depth + 1..], value)));
        };
        around = Some(found.span());
        table = inner;
    }
    Err(OverrideError::Form(given.to_owned()))
}

/// The key up to this step, for a message.
fn path(steps: &[Step<'_>], depth: usize) -> String {
    let names: Vec<&str> = steps[..=depth].iter().map(|step| step.name).collect();
    names.join(".")
}

/// Whether a value has its own header: `[section]`, `[[section]]`.
fn is_section(text: &str, value: &Spanned<DeValue<'_>>) -> bool {
    match value.get_ref() {
        DeValue::Table(_) => !text[value.span()].starts_with('{'),
        DeValue::Array(list) => list.iter().next().is_some_and(|first| {
            matches!(first.get_ref(), DeValue::Table(_)) && !text[first.span()].starts_with('{')
        }),
        _ => false,
    }
}

/// `{ a = { b = value } }`.
fn inline(steps: &[Step<'_>], value: &str) -> String {
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    format!("{{ {} = {value} }}", names.join("."))
}

/// Inserts a new key after the header or brace of its section, or in a new section at the
/// end.
fn insertion(
    text: &str,
    around: Option<Range<usize>>,
    steps: &[Step<'_>],
    depth: usize,
    value: &str,
) -> (Range<usize>, String) {
    let names: Vec<&str> = steps[depth..].iter().map(|step| step.name).collect();
    let line = format!("{} = {value}", names.join("."));
    let Some(section) = around else {
        return match steps {
            [_] => (0..0, format!("{line}\n")),
            [sections @ .., key] => {
                let names: Vec<&str> = sections.iter().map(|step| step.name).collect();
                let end = if text.ends_with('\n') { "" } else { "\n" };
                let header = format!("{end}[{}]\n{} = {value}\n", names.join("."), key.name);
                (text.len()..text.len(), header)
            }
            [] => (0..0, String::new()),
        };
    };
    if text[section.clone()].starts_with('{') {
        let is_empty = text[section.start + 1..section.end].trim().starts_with('}');
        let comma = if is_empty { "" } else { "," };
        return (
            section.start + 1..section.start + 1,
            format!(" {line}{comma}"),
        );
    }
    match text[section.end..].find('\n') {
        Some(end) => {
            let at = section.end + end + 1;
            (at..at, format!("{line}\n"))
        }
        None => (text.len()..text.len(), format!("\n{line}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "seed = 1\n[topology]\nkind = \"dumbbell\"\n[topology.links]\n\
        rate = \"1 Gbit/s\" # fast\n[[workload]]\nkind = \"bulk\"\nfrom = [\n  \"a\",\n]\n\
        tcp = { algorithm = \"cubic\" }\n[[workload]]\nkind = \"incast\"\n";

    fn after(arguments: &[&str]) -> ScenarioText {
        let mut edited = ScenarioText::new(FILE.to_owned());
        for (number, argument) in arguments.iter().enumerate() {
            edited.set(number, argument).unwrap();
        }
        edited
    }

    fn table(edited: &ScenarioText) -> toml::Table {
        edited.text.parse().unwrap()
    }

    #[test]
    fn a_value_is_replaced_in_place() {
        let edited = after(&["topology.links.rate=10 Gbit/s", "seed = 7"]);
        assert_eq!(
            edited.text,
            FILE.replace("\"1 Gbit/s\"", "\"10 Gbit/s\"")
                .replace("seed = 1", "seed = 7")
        );
        assert_eq!(edited.origin(5), LineOrigin::File(5));
    }

    #[test]
    fn keys_and_sections_that_are_missing_are_added() {
        let edited = after(&[
            "workload[1].rate=300 /s",
            "workload[0].tcp.sack=false",
            "topology.k=4",
            "host.ttl=64",
            "drain=10 ms",
        ]);
        let table = table(&edited);
        assert_eq!(table["workload"][1]["rate"].as_str(), Some("300 /s"));
        assert_eq!(table["workload"][0]["tcp"]["sack"].as_bool(), Some(false));
        assert_eq!(table["topology"]["k"].as_integer(), Some(4));
        assert_eq!(table["host"]["ttl"].as_integer(), Some(64));
        assert_eq!(table["drain"].as_str(), Some("10 ms"));
    }

    #[test]
    fn the_only_one_needs_no_index() {
        let one = FILE.rsplit_once("[[workload]]").unwrap().0;
        let mut edited = ScenarioText::new(one.to_owned());
        edited.set(0, "workload.bytes=20 kB").unwrap();
        assert_eq!(
            table(&edited)["workload"][0]["bytes"].as_str(),
            Some("20 kB")
        );
        let several = ScenarioText::new(FILE.to_owned()).set(0, "workload.bytes=1");
        let error = several.unwrap_err().to_string();
        assert!(
            error.contains("write workload[0] to workload[1]"),
            "{error}"
        );
    }

    #[test]
    fn lines_of_the_file_keep_their_numbers() {
        let edited = after(&["drain=1 ms", "topology.k=4", "workload[0].from=[\"b\"]"]);
        for (number, line) in edited.text.lines().enumerate() {
            match edited.origin(number + 1) {
                LineOrigin::File(original) if !line.contains("from") => {
                    assert_eq!(FILE.lines().nth(original - 1), Some(line));
                }
                LineOrigin::File(original) => assert_eq!(original, 8),
                LineOrigin::Set(0) => assert_eq!(line, "drain = \"1 ms\""),
                LineOrigin::Set(1) => assert_eq!(line, "k = 4"),
                LineOrigin::Set(other) => panic!("{other}: {line}"),
            }
        }
    }

    #[test]
    fn arguments_that_fit_no_key_are_errors() {
        let mut edited = ScenarioText::new(FILE.to_owned());
        for argument in [
            "seed",
            "seed=",
            "=1",
            "workload[x].rate=1",
            "workload[2].rate=1",
            "workload[0=1",
            "topology=1",
            "workload=1",
            "workload[0]=1",
            "a\n=1",
            "a b=1",
        ] {
            assert!(edited.set(0, argument).is_err(), "{argument}");
        }
        assert_eq!(edited.text, FILE);
    }
}
