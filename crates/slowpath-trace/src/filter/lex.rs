// SPDX-License-Identifier: Apache-2.0
//! Words of an expression.

/// A word and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

const SIGNS: [&str; 18] = [
    "&&", "||", "!=", "==", ">=", "<=", "(", ")", "!", "=", ">", "<", "[", "]", "&", "+", "*", "|",
];

/// Signs stand for themselves; everything else goes up to a space or a sign. Within brackets
/// a colon is a sign too.
pub(super) fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut bracket = false;
    while let Some(rest) = expression.get(at..).filter(|rest| !rest.is_empty()) {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
        let length = if let Some(sign) = sign {
            bracket = match *sign {
                "[" => true,
                "]" => false,
                _ => bracket,
            };
            sign.len()
        } else if bracket && rest.starts_with(':') {
            1
        } else {
            rest.char_indices()
                .find(|(n, c)| {
                    let sign = SIGNS.iter().any(|sign| rest[*n..].starts_with(sign));
                    c.is_whitespace() || sign || bracket && *c == ':'
                })
                .map_or(rest.len(), |(n, _)| n)
        };
        if length == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        tokens.push(Token {
            text: &rest[..length],
            at,
        });
        at += length;
    }
    tokens
}
