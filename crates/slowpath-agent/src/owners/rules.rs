// SPDX-License-Identifier: Apache-2.0
//! Rules that map owners to applications, from a TOML file (`docs/reference/owners.md`). Pure.
//!
//! Conditions of a rule must all hold; the first rule that matches wins. Words are globs in
//! which `*` stands for any characters and `?` for one.

use regex_lite::Regex;
use serde::Deserialize;
use slowpath_model::{Cgroup, FourTuple, Process, split_arguments};
use std::ops::RangeInclusive;
use std::sync::Arc;
use thiserror::Error;
use toml::Spanned;

/// Why a file of rules cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RulesError {
    /// It is no TOML, or has keys or values that mean nothing.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong in it.
        what: String,
    },
    /// A value of a rule cannot be used.
    #[error("line {line}: {key}: {what}")]
    Value {
        /// The line, counted from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong with its value, and what to write instead.
        what: String,
    },
}

/// Rules in their order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    name: Arc<str>,
    /// Which part of an owner has to be what.
    conditions: Vec<(Subject, Condition)>,
    /// Any of these, for either end or one of them.
    ports: Vec<(End, Vec<RangeInclusive<u16>>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Command,
    Executable,
    CommandLine,
    Cgroup,
    Unit,
    Container,
    Pod,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Either,
    Local,
    Remote,
}

#[derive(Clone, Debug)]
enum Condition {
    Glob(Arc<str>),
    Regex(Regex),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    application: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleEntry {
    name: Spanned<String>,
    command: Option<Spanned<String>>,
    exe: Option<Spanned<String>>,
    cmdline: Option<Spanned<String>>,
    cmdline_regex: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    unit: Option<Spanned<String>>,
    container: Option<Spanned<String>>,
    pod: Option<Spanned<String>>,
    port: Option<Spanned<Ports>>,
    local_port: Option<Spanned<Ports>>,
    remote_port: Option<Spanned<Ports>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ports {
    One(u16),
    Range(String),
    Several(Vec<u16>),
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    /// What is wrong and in which line.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let file: RulesFile = toml::from_str(text).map_err(|error| RulesError::Syntax {
            line: line_at(text, error.span().map_or(0, |span| span.start)),
            what: error.message().to_owned(),
        })?;
        let rules = file.application.into_iter().map(|entry| rule(text, entry));
        Ok(Rules {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Rules whose conditions other than ports hold, in their order, up to the first that
    /// has no ports.
    pub(crate) fn of(&self, process: Option<&Process>, cgroup: Option<&Cgroup>) -> Vec<u16> {
        let mut found = Vec::new();
        for (i, rule) in self.rules.iter().enumerate().take(usize::from(u16::MAX)) {
            if rule
                .conditions
                .iter()
                .all(|(s, c)| c.holds(*s, process, cgroup))
            {
                found.push(i as u16);
                if rule.ports.is_empty() {
                    break;
                }
            }
        }
        found
    }

    /// The first of these rules whose ports are the connection's.
    pub(crate) fn first(&self, of: &[u16], tuple: FourTuple) -> Option<u16> {
        let ports = (tuple.local.port(), tuple.remote.port());
        of.iter().copied().find(|i| {
            let rule = self.rules.get(usize::from(*i));
            rule.is_some_and(|r| r.ports.iter().all(|p| p.0.is_in(&p.1, ports)))
        })
    }

    /// The application that a rule names.
    pub(crate) fn name(&self, rule: u16) -> Option<&Arc<str>> {
        self.rules.get(usize::from(rule)).map(|r| &r.name)
    }
}

/// The line of a place in a text, counted from 1.
fn line_at(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn rule(text: &str, entry: RuleEntry) -> Result<Rule, RulesError> {
    let line = |at: std::ops::Range<usize>| line_at(text, at.start);
    let name_line = line(entry.name.span());
    let name = entry.name.into_inner();
    if name.trim().is_empty() {
        return Err(RulesError::Value {
            line: name_line,
            key: "name",
            what: "is empty; name the application".to_owned(),
        });
    }
    let mut conditions = Vec::new();
    for (subject, key, value) in [
        (Subject::Command, "command", entry.command),
        (Subject::Executable, "exe", entry.exe),
        (Subject::CommandLine, "cmdline", entry.cmdline),
        (Subject::Cgroup, "cgroup", entry.cgroup),
        (Subject::Unit, "unit", entry.unit),
        (Subject::Container, "container", entry.container),
        (Subject::Pod, "pod", entry.pod),
    ] {
        let Some(value) = value else { continue };
        if value.get_ref().is_empty() {
            return Err(RulesError::Value {
                line: line(value.span()),
                key,
                what: "is empty and would match nothing; write a name, in which * stands for any characters".to_owned(),
            });
        }
        conditions.push((subject, Condition::Glob(value.into_inner().into())));
    }
    if let Some(value) = entry.cmdline_regex {
        let regex = Regex::new(value.get_ref()).map_err(|e| RulesError::Value {
            line: line(value.span()),
            key: "cmdline-regex",
            what: format!("is no regular expression: {e}"),
        })?;
        conditions.push((Subject::CommandLine, Condition::Regex(regex)));
    }
    let mut ports = Vec::new();
    for (end, key, value) in [
        (End::Either, "port", entry.port),
        (End::Local, "local-port", entry.local_port),
        (End::Remote, "remote-port", entry.remote_port),
    ] {
        let Some(value) = value else { continue };
        let line = line(value.span());
        let ranges = value.into_inner().ranges();
        let ranges = ranges.map_err(|what| RulesError::Value { line, key, what })?;
        ports.push((end, ranges));
    }
    if conditions.is_empty() && ports.is_empty() {
        return Err(RulesError::Value {
            line: name_line,
            key: "name",
            what: "the rule has no condition and would match everything; add command, exe, cmdline, cmdline-regex, cgroup, unit, container, pod, port, local-port or remote-port".to_owned(),
        });
    }
    Ok(Rule {
        name: name.into(),
        conditions,
        ports,
    })
}

impl Ports {
    fn ranges(self) -> Result<Vec<RangeInclusive<u16>>, String> {
        Ok(match self {
            Ports::One(port) => vec![port..=port],
            Ports::Several(ports) if ports.is_empty() => {
                return Err("is empty; write 443, [80, 443] or \"8000-8100\"".to_owned());
            }
            Ports::Several(ports) => ports.into_iter().map(|p| p..=p).collect(),
            Ports::Range(text) => {
                let range = text.split_once('-').and_then(|(low, high)| {
                    let range = low.trim().parse().ok()?..=high.trim().parse().ok()?;
                    (!range.is_empty()).then_some(range)
                });
                vec![range.ok_or_else(|| {
                    format!("{text:?} is no range of ports; write 443, [80, 443] or \"8000-8100\"")
                })?]
            }
        })
    }
}

impl End {
    fn is_in(self, ranges: &[RangeInclusive<u16>], (local, remote): (u16, u16)) -> bool {
        let inside = |port| ranges.iter().any(|r| r.contains(&port));
        match self {
            End::Either => inside(local) || inside(remote),
            End::Local => inside(local),
            End::Remote => inside(remote),
        }
    }
}

impl Condition {
    fn holds(&self, subject: Subject, process: Option<&Process>, cgroup: Option<&Cgroup>) -> bool {
        let text = match subject {
            Subject::Command => process.map(|p| &p.command),
            Subject::Executable => process.and_then(|p| p.executable.as_ref()),
            Subject::CommandLine => process.and_then(|p| p.command_line.as_ref()),
            Subject::Cgroup => cgroup.map(|c| &c.path),
            Subject::Unit => cgroup.and_then(|c| c.unit.as_ref()),
            Subject::Container => cgroup.and_then(|c| c.container.as_ref()).map(|c| &c.id),
            Subject::Pod => cgroup.and_then(|c| c.pod.as_ref()),
        };
        let fits = |text: &str| match self {
            Condition::Glob(pattern) => glob(pattern.as_bytes(), text.as_bytes()),
            Condition::Regex(regex) => regex.is_match(text),
        };
        // Rules name arguments with spaces between them, whatever is in them.
        let quoted = |text: &str| subject == Subject::CommandLine && text.contains(['\'', '\\']);
        text.is_some_and(|text| {
            fits(text) || quoted(text) && fits(&split_arguments(text).join(" "))
        })
    }
}

/// Whether `text` is `pattern`. Steps back to the last star only, so the time is at most
/// the product of both lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
