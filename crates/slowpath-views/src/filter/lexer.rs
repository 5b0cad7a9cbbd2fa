// SPDX-License-Identifier: Apache-2.0
//! First step of reading a filter: positioned tokens.

use super::{FilterError, FilterErrorKind};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything that is not one of the others.
    Word,
    /// A word in quotation marks, never a keyword.
    Quoted,
    Open,
    Close,
    And,
    Or,
    Not,
    Compare(super::Comparison),
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    /// The text, unquoted.
    pub text: String,
    pub at: Range<usize>,
}

/// Characters that end a word besides white space. `ss` wants white space around them; here
/// it may lack.
const SPECIAL: &[char] = &['(', ')', '=', '!', '<', '>', '&', '|', '"'];

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let token = if c == '"' {
            quoted_word(text, at)?
        } else if SPECIAL.contains(&c) {
            operator(text, at)?
        } else {
            let length = text[at..]
                .find(|c: char| c.is_whitespace() || SPECIAL.contains(&c))
                .unwrap_or(text.len() - at);
            word(&text[at..at + length], at)
        };
        at = token.at.end;
        tokens.push(token);
    }
    Ok(tokens)
}

fn word(text: &str, at: usize) -> Token {
    use super::Comparison::*;
    let kind = match text {
        "not" => Kind::Not,
        "and" => Kind::And,
        "or" => Kind::Or,
        "eq" => Kind::Compare(Equal),
        "ne" | "neq" => Kind::Compare(NotEqual),
        "lt" => Kind::Compare(Less),
        "le" | "leq" => Kind::Compare(LessOrEqual),
        "gt" => Kind::Compare(Greater),
        "ge" | "geq" => Kind::Compare(GreaterOrEqual),
        _ => Kind::Word,
    };
    Token {
        kind,
        text: text.to_owned(),
        at: at..at + text.len(),
    }
}

fn operator(text: &str, at: usize) -> Result<Token, FilterError> {
    use super::Comparison::*;
    const OPERATORS: [(&str, Kind); 14] = [
        ("==", Kind::Compare(Equal)),
        ("!=", Kind::Compare(NotEqual)),
        ("<=", Kind::Compare(LessOrEqual)),
        (">=", Kind::Compare(GreaterOrEqual)),
        ("&&", Kind::And),
        ("||", Kind::Or),
        ("=", Kind::Compare(Equal)),
        ("<", Kind::Compare(Less)),
        (">", Kind::Compare(Greater)),
        ("!", Kind::Not),
        ("&", Kind::And),
        ("|", Kind::Or),
        ("(", Kind::Open),
        (")", Kind::Close),
    ];
    let (symbol, kind) = OPERATORS
        .into_iter()
        .find(|(symbol, _)| text[at..].starts_with(symbol))
        .ok_or_else(|| FilterError {
            text: text.to_owned(),
            at: at..at + 1,
            kind: FilterErrorKind::Unexpected {
                wanted: "an operator",
                found: text[at..at + 1].to_owned(),
            },
        })?;
    Ok(Token {
        kind,
        text: symbol.to_owned(),
        at: at..at + symbol.len(),
    })
}

fn quoted_word(text: &str, at: usize) -> Result<Token, FilterError> {
    let mut word = String::new();
    let mut chars = text[at + 1..].char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => {
                return Ok(Token {
                    kind: Kind::Quoted,
                    text: word,
                    at: at..at + 1 + i + 1,
                });
            }
            '\\' => match chars.next() {
                Some((_, escaped)) => word.push(escaped),
                None => break,
            },
            c => word.push(c),
        }
    }
    Err(FilterError {
        text: text.to_owned(),
        at: at..at + 1,
        kind: FilterErrorKind::Quote,
    })
}

/// The word as it must be written to be read back: in quotation marks unless it is plain.
pub(super) fn quoted(text: &str) -> String {
    let plain = !text.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || SPECIAL.contains(&c))
        && word(text, 0).kind == Kind::Word;
    if plain {
        return text.to_owned();
    }
    let mut out = String::from('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}
