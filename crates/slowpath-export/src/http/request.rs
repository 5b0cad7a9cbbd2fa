// SPDX-License-Identifier: Apache-2.0
//! Parses requests and formats answers, without a socket.

use crate::counters::Status;
use crate::prometheus::Format;
use std::sync::Arc;

/// Headers that are looked at; a request with more is refused.
const MAX_HEADERS: usize = 64;

/// The page that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The metrics.
    Metrics(Format),
    /// Whether the agent does its work.
    Health,
    /// What there is here.
    Index,
}

/// A request, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) page: Result<Page, Status>,
    /// HEAD: the answer's header only.
    pub(super) head: bool,
}

impl Request {
    fn refused(status: Status) -> Self {
        Request {
            page: Err(status),
            head: false,
        }
    }

    /// The request in `bytes`; `None` if more has to come.
    pub(super) fn parse(bytes: &[u8]) -> Option<Request> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if bytes.len() < super::MAX_REQUEST => return None,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Some(Self::refused(Status::TooLarge));
            }
            Err(_) => return Some(Self::refused(Status::BadRequest)),
        }
        let head = request.method == Some("HEAD");
        let target = request.path.unwrap_or_default();
        // Absolute form (RFC 9112 section 3.2.2) or origin form, without the query.
        let target = match target.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => target,
        };
        let path = target.split('?').next().unwrap_or_default();
        let accepts: Vec<&str> = request
            .headers
            .iter()
            .filter(|h| h.name.eq_ignore_ascii_case("accept"))
            .filter_map(|h| std::str::from_utf8(h.value).ok())
            .collect();
        let page = match path {
            "/metrics" => Ok(Page::Metrics(Format::negotiate(&accepts.join(",")))),
            "/healthz" => Ok(Page::Health),
            "/" => Ok(Page::Index),
            _ => Err(Status::NotFound),
        };
        let page = match request.method {
            Some("GET" | "HEAD") => page,
            _ => page.and(Err(Status::MethodNotAllowed)),
        };
        Some(Request { page, head })
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it is answered.
    pub status: Status,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: Arc<str>,
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Answer {
    /// With a body that says something.
    pub fn plain(status: Status, body: impl Into<Arc<str>>) -> Self {
        Answer {
            status,
            content_type: PLAIN,
            body: body.into(),
        }
    }

    /// Of a request that is none.
    pub(super) fn refusal(status: Status) -> Self {
        let text = match status {
            Status::NotFound => "There is /metrics here, and /healthz.\n",
            Status::MethodNotAllowed => "Only GET and HEAD.\n",
            status => status.words(),
        };
        Answer::plain(status, text)
    }

    /// The header's bytes.
    pub(super) fn header(&self) -> String {
        let allow = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Vary: Accept\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status.code(),
            self.status.words(),
            self.content_type,
            self.body.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(request: &str) -> Option<Result<Page, Status>> {
        Request::parse(request.as_bytes()).map(|r| r.page)
    }

    #[test]
    fn requests_are_distinguished() {
        let metrics = |format| Some(Ok(Page::Metrics(format)));
        for (request, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                metrics(Format::Text),
            ),
            ("GET /metrics?x=/y HTTP/1.0\r\n\r\n", metrics(Format::Text)),
            (
                "GET http://h:1/metrics HTTP/1.1\r\n\r\n",
                metrics(Format::Text),
            ),
            (
                "GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.1\r\nAccept: application/openmetrics-text\r\n\r\n",
                metrics(Format::OpenMetrics),
            ),
            ("GET / HTTP/1.1\r\n\r\n", Some(Ok(Page::Index))),
            ("GET /healthz HTTP/1.1\r\n\r\n", Some(Ok(Page::Health))),
            (
                "GET /metrics/ HTTP/1.1\r\n\r\n",
                Some(Err(Status::NotFound)),
            ),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                Some(Err(Status::MethodNotAllowed)),
            ),
            ("POST /x HTTP/1.1\r\n\r\n", Some(Err(Status::NotFound))),
            ("GET /metrics\r\n\r\n", Some(Err(Status::BadRequest))),
            ("\x16\x03\x01\x02", Some(Err(Status::BadRequest))),
            ("GET /metrics HTTP/1.1\r\nHost:", None),
            ("", None),
        ] {
            assert_eq!(page(request), expected, "{request:?}");
        }
        assert!(
            Request::parse(b"HEAD /metrics HTTP/1.1\r\n\r\n")
                .unwrap()
                .head
        );
    }

    #[test]
    fn a_request_has_a_size() {
        let long = format!("GET /{} ", "a".repeat(super::super::MAX_REQUEST));
        assert_eq!(page(&long), Some(Err(Status::TooLarge)));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(MAX_HEADERS + 1)
        );
        assert_eq!(page(&many), Some(Err(Status::TooLarge)));
    }

    #[test]
    fn every_prefix_of_a_request_waits_or_answers() {
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(Request::parse(&request[..length]), None, "{length}");
        }
        assert!(Request::parse(request).is_some());
    }
}
