// SPDX-License-Identifier: Apache-2.0
//! What a host is called.

use std::fmt;
use std::str::FromStr;

/// The name of a host, as a path's part and a certificate's name can have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

/// Characters of a host's name, as many as a DNS name has at most (RFC 1035 section 2.3.4).
const MOST_HOST_NAME: usize = 255;

impl HostName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let begins = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric());
        if begins && text.len() <= MOST_HOST_NAME && text.bytes().all(of_name) {
            Ok(HostName(text.to_owned()))
        } else {
            Err(format!(
                "a host's name has at most {MOST_HOST_NAME} letters, digits, '.', '-' and '_', and \
                 begins with a letter or digit"
            ))
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_that_a_path_can_have() {
        let longest = "a".repeat(255);
        for name in ["web-17", "10.0.0.1", "a_b.example.org", &longest] {
            assert_eq!(name.parse::<HostName>().unwrap().as_str(), name);
        }
        let longer = "a".repeat(256);
        for wrong in [
            "", ".", "..", "-a", "a/b", "a b", "a=b", "a\n", "ä", &longer,
        ] {
            assert!(wrong.parse::<HostName>().is_err(), "{wrong:?}");
        }
    }
}
