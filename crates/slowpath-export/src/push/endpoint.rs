// SPDX-License-Identifier: Apache-2.0
//! Where to push.

use std::fmt;
use std::str::FromStr;

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

/// Why a text is no address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not of the form.
    #[error("write http://HOST:PORT or https://HOST:PORT, as http://127.0.0.1:4318")]
    Form,
}

impl Endpoint {
    /// Whether it is reached over TLS.
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The URL that takes the messages.
    pub fn url(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// A URL without a path gets `/v1/metrics` (OTLP/HTTP, "Default URL path"); one with a
    /// path stays.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let schemes = ["http://", "https://"].into_iter();
        let (scheme, rest) = schemes
            .filter_map(|scheme| Some((scheme, text.strip_prefix(scheme)?)))
            .next()
            .ok_or(EndpointError::Form)?;
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let uri: Result<ureq::http::Uri, _> = text.parse();
        if authority.is_empty() || uri.is_err() {
            return Err(EndpointError::Form);
        }
        let path = match path {
            "" | "/" => "/v1/metrics",
            path => path,
        };
        Ok(Endpoint(format!("{scheme}{authority}{path}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_protocols_unless_one_is_given() {
        let url = |text: &str| text.parse::<Endpoint>().map(|e| e.to_string());
        for (text, expected) in [
            ("http://c:4318", "http://c:4318/v1/metrics"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics"),
            ("https://c", "https://c/v1/metrics"),
            (
                "http://c/api/v1/otlp/v1/metrics",
                "http://c/api/v1/otlp/v1/metrics",
            ),
        ] {
            assert_eq!(url(text), Ok(expected.to_owned()));
        }
        for wrong in [
            "",
            "c:4318",
            "ftp://c",
            "http://",
            "https://",
            "http:///x",
            "http://a b",
        ] {
            assert_eq!(url(wrong), Err(EndpointError::Form), "{wrong}");
        }
    }
}
