// SPDX-License-Identifier: Apache-2.0
//! The lists of pairs in OpenTelemetry's environment variables.

/// The pairs of a list as OpenTelemetry's environment variables have them
/// (`key=value,key=value`, values percent-encoded as in W3C Baggage); what is no pair is
/// passed over.
pub(crate) fn pairs(list: &str) -> impl Iterator<Item = (String, String)> {
    list.split(',').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_owned(), decoded(value.trim())))
    })
}

/// Without percent-encoding (RFC 3986 section 2.1); a percent sign that begins none stays.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        let code = match rest {
            [high, low, ..] if *first == b'%' => std::str::from_utf8(&[*high, *low])
                .ok()
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        match code {
            Some(byte) => {
                out.push(byte);
                bytes = &rest[2..];
            }
            None => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_percent_encoded_pairs() {
        let read: Vec<_> = pairs("a=1, b = x%20y%2C%3d ,c,=d,e=100%,f=%zz,g=").collect();
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            read,
            [
                pair("a", "1"),
                pair("b", "x y,="),
                pair("e", "100%"),
                pair("f", "%zz"),
                pair("g", ""),
            ]
        );
    }
}
