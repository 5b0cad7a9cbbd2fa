// SPDX-License-Identifier: Apache-2.0
//! Posting results to an archive.

use super::Run;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// For one attempt, as the archiver `http` of pScheduler has it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why an archive does not have a result.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is no address of HTTP.
    #[error("`{0}` is no archive: write http://HOST/PATH or https://HOST/PATH")]
    Address(String),
    /// No certificate to verify it by.
    #[error("no certificates of authorities on this machine: install the package ca-certificates")]
    NoAuthorities,
    /// It is not there.
    #[error("cannot post the result to {url}: {source}")]
    Post {
        /// Where.
        url: String,
        /// Why.
        source: Box<ureq::Error>,
    },
    /// It does not take it.
    #[error("{url} refused the result with status {status}")]
    Refused {
        /// Where.
        url: String,
        /// What it answered.
        status: u16,
    },
}

/// An archive: an address that takes results.
#[derive(Clone, Debug)]
pub struct Archive {
    url: String,
    client: ureq::Agent,
}

impl Archive {
    /// One at this address.
    ///
    /// # Errors
    /// It is no address, or there is nothing to verify it by.
    pub fn new(url: &str) -> Result<Self, ArchiveError> {
        let uri: Option<ureq::http::Uri> = url.parse().ok();
        let scheme = uri
            .filter(|uri| uri.host().is_some())
            .and_then(|uri| uri.scheme_str().map(str::to_owned));
        let mut client = ureq::Agent::config_builder();
        match scheme.as_deref() {
            Some("http") => {}
            Some("https") => client = client.tls_config(authorities()?),
            _ => return Err(ArchiveError::Address(url.to_owned())),
        }
        let client = client
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("slowpath/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Archive {
            url: url.to_owned(),
            client: client.into(),
        })
    }

    /// Posts a run.
    ///
    /// # Errors
    /// It is not there, or refuses.
    pub fn post(&self, run: &Run) -> Result<(), ArchiveError> {
        let request = self.client.post(&self.url).content_type("application/json");
        let answer =
            request
                .send(run.to_json().to_string())
                .map_err(|source| ArchiveError::Post {
                    url: self.url.clone(),
                    source: Box::new(source),
                })?;
        match answer.status().as_u16() {
            200..=299 => Ok(()),
            status => Err(ArchiveError::Refused {
                url: self.url.clone(),
                status,
            }),
        }
    }
}

/// Whom the machine trusts.
fn authorities() -> Result<TlsConfig, ArchiveError> {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return Err(ArchiveError::NoAuthorities);
    }
    let roots: Vec<_> = found
        .iter()
        .map(|c| Certificate::from_der(c).to_owned())
        .collect();
    let provider = rustls::crypto::ring::default_provider();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers one request with a status; what it got.
    fn archive(status: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!(
            "http://{}/results",
            listener.local_addr().expect("an address")
        );
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
            loop {
                let length = stream.read(&mut buffer).expect("a request");
                bytes.extend_from_slice(&buffer[..length]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else {
                    continue;
                };
                let head = head.to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).expect("a length");
                let length: usize = length
                    .lines()
                    .next()
                    .expect("a line")
                    .parse()
                    .expect("digits");
                if body.len() >= length {
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).expect("it waits");
                    return text;
                }
            }
        });
        (url, thread)
    }

    fn run() -> Run {
        Run::new(
            "rtt",
            (
                "2026-01-02T03:04:05.000Z".to_owned(),
                Duration::from_secs(1),
            ),
            vec!["a".to_owned()],
            (json!({}), json!({ "succeeded": true })),
        )
        .expect("random octets")
    }

    #[test]
    fn a_result_is_posted_as_json() {
        let (url, thread) = archive("201 Created");
        Archive::new(&url)
            .expect("an archive")
            .post(&run())
            .expect("taken");
        let request = thread.join().expect("one request");
        let (head, body) = request.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("POST /results HTTP/1.1\r\n"), "{head}");
        assert!(
            head.to_ascii_lowercase()
                .contains("content-type: application/json"),
            "{head}"
        );
        let value: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(value["result"]["succeeded"], true);
    }

    #[test]
    fn a_refusal_and_what_is_no_archive_are_named() {
        let (url, thread) = archive("503 Busy");
        let error = Archive::new(&url)
            .expect("an archive")
            .post(&run())
            .expect_err("refused");
        assert!(error.to_string().contains("status 503"), "{error}");
        let _ = thread.join();
        for wrong in ["", "gopher://a/", "archive", "http://"] {
            assert!(Archive::new(wrong).is_err(), "{wrong}");
        }
    }
}
