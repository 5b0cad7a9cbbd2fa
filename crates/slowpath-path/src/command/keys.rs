// SPDX-License-Identifier: Apache-2.0
//! Key files as owamp's `pfstore` writes them: a line a key, its name and its passphrase in hexadecimal.

use super::CommandError;
use crate::control::Credentials;
use std::io;
use std::path::Path;

/// Octets of a key file.
const MOST: u64 = 1 << 20;

/// Octets of a key's name (RFC 4656 section 3.1).
const NAME: usize = 80;

/// Why a file has no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line is none. Its content is not repeated: it may be a passphrase.
    #[error("line {0} is not a name of at most 80 octets and a passphrase in hexadecimal")]
    Line(usize),
    /// There is no such key.
    #[error("it has no key named {0}")]
    NoSuchKey(String),
}

/// Reads the keys of a text. Empty lines and those that begin with `#` are left out.
///
/// # Errors
/// A line that is no key.
pub fn read_keys(text: &str) -> Result<Vec<Credentials>, KeyFileError> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = key(line).ok_or(KeyFileError::Line(index + 1))?;
        keys.push(key);
    }
    Ok(keys)
}

fn key(line: &str) -> Option<Credentials> {
    let (name, hex) = line.split_once(char::is_whitespace)?;
    let hex = hex.trim();
    let whole = !hex.is_empty() && hex.len().is_multiple_of(2) && hex.is_ascii();
    if name.len() > NAME || !whole {
        return None;
    }
    let octet = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let passphrase: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(octet).collect();
    Some(Credentials {
        name: name.to_owned(),
        passphrase: passphrase?,
    })
}

/// The key of that name in a file; none, if none is named.
pub(super) fn named(
    name: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<Credentials>, CommandError> {
    let Some((name, file)) = name.zip(file) else {
        return Ok(None);
    };
    let failed = |source| CommandError::Keys {
        file: file.to_owned(),
        source,
    };
    let found = of_file(file).map_err(failed)?;
    let key = found.into_iter().find(|key| key.name == name);
    let missing = || failed(KeyFileError::NoSuchKey(name.to_owned()));
    key.ok_or_else(missing).map(Some)
}

/// Reads a key file.
pub(super) fn of_file(file: &Path) -> Result<Vec<Credentials>, KeyFileError> {
    read_keys(&slowpath_files::read_text(file, MOST)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_read_and_other_lines_named_without_their_content() {
        let keys = read_keys("# ours\nalice 736563726574\n\nbob\t00ff\n").expect("keys");
        assert_eq!(
            (keys[0].name.as_str(), &keys[0].passphrase[..]),
            ("alice", &b"secret"[..])
        );
        assert_eq!(keys[1].passphrase, [0, 255]);
        for wrong in ["alice", "alice 7", "alice zz", "alice é1"] {
            let error = read_keys(wrong).expect_err("no key").to_string();
            assert!(error.contains("line 1"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,100}") {
            let _ = read_keys(&text);
        }
    }
}
