// SPDX-License-Identifier: Apache-2.0
//! Configuration files: TOML with one key per line, and a comparison of what two of them say.

use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// What the system reports.
        source: io::Error,
    },
    /// A key is unknown, or a value is wrong.
    #[error("the configuration is wrong at {}:{line}: {reason}; docs/reference/agent.md lists the keys", file.display())]
    Wrong {
        /// Which file.
        file: PathBuf,
        /// Where, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
}

/// The most that is read of a configuration: each key stands there once, on one line.
const MOST: u64 = 1 << 20;

/// Reads a file.
///
/// # Errors
/// See [`ConfigurationError`].
pub fn read<T: DeserializeOwned>(file: &Path) -> Result<T, ConfigurationError> {
    let text =
        slowpath_files::read_text(file, MOST).map_err(|source| ConfigurationError::Read {
            file: file.to_owned(),
            source,
        })?;
    parse(&text).map_err(|(line, reason)| ConfigurationError::Wrong {
        file: file.to_owned(),
        line,
        reason,
    })
}

/// The configuration in `text`.
///
/// # Errors
/// The line, from 1, and what is wrong in it.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |s| s.start).min(text.len());
        let line = text.as_bytes()[..place].iter().filter(|b| **b == b'\n');
        (line.count() + 1, error.message().to_owned())
    })
}

/// The keys that have a value, each with its value as in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries(pub Vec<(&'static str, String)>);

impl Entries {
    /// The value of a key; `None` if it has none.
    pub fn value(&self, key: &str) -> Option<&str> {
        let entry = self.0.iter().find(|(k, _)| *k == key);
        entry.map(|(_, value)| value.as_str())
    }

    /// The lines of a file that says this.
    pub fn lines(&self) -> Vec<String> {
        // A JSON string is a basic string of TOML.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let line = |(key, value): &(&'static str, String)| match value.parse::<u64>() {
            Ok(number) => format!("{key} = {number}"),
            Err(_) => format!("{key} = {}", quoted(value)),
        };
        self.0.iter().map(line).collect()
    }

    /// The keys whose value differs in `other`, in alphabetical order.
    pub fn differences(&self, other: &Entries) -> Vec<&'static str> {
        let mut keys: Vec<&'static str> = self.0.iter().chain(&other.0).map(|(k, _)| *k).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.value(key) != other.value(key));
        keys
    }
}
