// SPDX-License-Identifier: Apache-2.0
//! URLs without what they may hold of secrets, for messages.

use std::borrow::Cow;

/// What stands for what was left out.
const HIDDEN: &str = "***";

/// The text with `***` for user and password, query and fragment of every URL in it (RFC 3986 section 3).
pub fn without_url_secrets(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>');
        let (url, next) = after.split_at(after.find(ends).unwrap_or(after.len()));
        out.push_str(before);
        push(&mut out, url);
        rest = next;
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Pushes what follows a scheme.
fn push(out: &mut String, url: &str) {
    let url = match user_end(url) {
        Some(end) => {
            out.push_str(HIDDEN);
            &url[end..]
        }
        None => url,
    };
    match url.find(['?', '#']) {
        Some(at) => {
            out.push_str(&url[..=at]);
            out.push_str(HIDDEN);
        }
        None => out.push_str(url),
    }
}

/// Where the `@` is that ends user and password. A password that is not encoded as it should be may
/// contain what ends an authority; then what seems a port is no number.
fn user_end(url: &str) -> Option<usize> {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    if let Some(at) = authority.rfind('@') {
        return Some(at);
    }
    let (_, port) = authority.rsplit_once(':')?;
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) || authority.ends_with(']');
    if is_port { None } else { url.rfind('@') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_passwords_and_queries_are_left_out() {
        for (text, expected) in [
            ("http://h:80/p", "http://h:80/p"),
            ("https://[::1]:4318/v1", "https://[::1]:4318/v1"),
            ("http://ann:hunter2@h/p", "http://***@h/p"),
            ("http://token@h", "http://***@h"),
            ("http://a:b@c:1/p?key=s#f", "http://***@c:1/p?***"),
            ("http://h/p#access_token=s", "http://h/p#***"),
            ("http://a:b@c@h/", "http://***@h/"),
            ("http://a:b/c@h/p", "http://***@h/p"),
            ("http://a:b?c@h/p", "http://***@h/p"),
            (
                "pushing to 'https://u:p@h/v1?t=s': refused, see http://h/x",
                "pushing to 'https://***@h/v1?***': refused, see http://h/x",
            ),
            ("no URL: a@b?c", "no URL: a@b?c"),
            ("://", "://"),
        ] {
            assert_eq!(without_url_secrets(text), expected);
        }
    }
}
