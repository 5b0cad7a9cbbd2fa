// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a filter, and where.

use slowpath_model::clean;
use std::fmt;
use std::ops::Range;

/// A text that is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FilterError {
    /// The text.
    pub text: String,
    /// Where in it, in bytes, on character boundaries.
    pub at: Range<usize>,
    /// What is wrong there.
    pub kind: FilterErrorKind,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterErrorKind {
    /// A word where no such word can stand.
    #[error("expected {wanted}, found `{found}`")]
    Unexpected {
        /// What can stand there.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// The text ends too early.
    #[error("expected {wanted}, but the filter ends here")]
    Ends {
        /// What can stand there.
        wanted: &'static str,
    },
    /// A word that `ss` knows and this tool cannot answer.
    #[error("`{word}` is not supported: {reason}")]
    Unsupported {
        /// The word.
        word: String,
        /// Why, and what to use instead.
        reason: &'static str,
    },
    /// Neither an address nor a host that can be found.
    #[error("`{0}` is neither an address nor the name of a host that can be found")]
    Host(String),
    /// An IPv6 address whose last group may be a port.
    #[error("put an IPv6 address in brackets: `[{0}]`")]
    Brackets(String),
    /// Too many or no bits.
    #[error("`/{0}` is no prefix length of this address")]
    PrefixLength(String),
    /// Neither a number nor a service.
    #[error("`{0}` is neither a port (0 to 65535) nor a TCP service in /etc/services")]
    Port(String),
    /// No such state.
    #[error(
        "`{0}` is no TCP state; states are established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, last-ack, listening, closing, and all, connected, synchronized, bucket, big"
    )]
    State(String),
    /// `state` after the expression has begun.
    #[error("`{0}` must come before the expression, as in `state established dport = :443`")]
    StateLate(String),
    /// No such problem.
    #[error(
        "`{0}` is no problem; problems are SenderAppLimited, SendBufferLimited, FastRetransmit, Timeout, DelayedAck, ReceiverWindowLimited"
    )]
    Problem(String),
    /// Not a number.
    #[error("`{0}` is no process id")]
    Pid(String),
    /// An ordering of things that have none.
    #[error("`{word}` can be compared with = and != only")]
    Order {
        /// The word before the operator.
        word: String,
    },
    /// A quotation mark without its partner.
    #[error("this quotation mark is never closed")]
    Quote,
    /// More nesting or conditions than any person writes.
    #[error("the filter is too long or nested too deeply (at most {0} conditions and parentheses)")]
    TooLong(usize),
}

impl fmt::Display for FilterError {
    /// The message, then the text with a caret under the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = clean(&self.text);
        let kind = self.kind.to_string();
        let before = self.text.get(..self.at.start).map_or(0, width);
        let under = self.text.get(self.at.clone()).map_or(1, width).max(1);
        write!(
            f,
            "{}\n  {line}\n  {:before$}{}",
            clean(&kind),
            "",
            "^".repeat(under)
        )
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}
