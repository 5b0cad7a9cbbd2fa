// SPDX-License-Identifier: Apache-2.0
//! Filters: `ss(8)` expressions over TCP connections, and a few words of our own.
//!
//! What enters: the text of a filter and [`Names`] to look up services and hosts with.
//! What leaves: a [`Filter`], a pure predicate over a [`Subject`]. Parsing has two steps:
//! `lexer` splits the text into positioned words, `parser` makes typed conditions.
//!
//! What is promised: an expression that `ss` accepts for TCP selects the sockets that `ss`
//! would select (checked against iproute2's `misc/ssfilter.y` and `misc/ss.c`), printing a
//! filter and parsing the print gives the same filter, and no text panics.
//!
//! One reading is surprising and kept, since expressions move between the two tools: `and`
//! and `or` have the *same* precedence in `ss`'s grammar and group from the left, whatever
//! its manual page says (`exprlist: exprlist '|' expr | exprlist '&' expr`).
//! [`Filter::notes`] warns the user when a filter mixes them without parentheses.

mod error;
mod lexer;
mod parser;
mod state;

pub use error::{FilterError, FilterErrorKind};
pub use state::StateSet;

use slowpath_model::{Owner, Problem, ProblemSet, TcpState};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Where names come from; the only thing a filter needs from the outside.
pub trait Names {
    /// The TCP port of a service.
    fn port(&self, service: &str) -> Option<u16>;
    /// The addresses of a host; empty if it cannot be found.
    fn addresses(&self, host: &str) -> Vec<IpAddr>;
    /// The range the kernel chooses local ports from.
    fn ephemeral_ports(&self) -> RangeInclusive<u16>;
}

/// What a filter is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// The connection's state when last observed.
    pub state: TcpState,
    /// The owner, if known.
    pub owner: &'a Owner,
    /// The problems it has.
    pub problems: ProblemSet,
}

/// Which end of a connection a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `src`, `sport`: this host's end.
    Local,
    /// `dst`, `dport`: the peer's end.
    Remote,
}

/// How a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    const fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }

    fn holds<T: Ord>(self, left: T, right: T) -> bool {
        match self {
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
        }
    }
}

/// An address family that a condition asks for (`inet:`, `inet6:`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

/// Addresses of one family that share their first bits. IPv4-mapped prefixes are IPv4
/// here, as all addresses of connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// A prefix of `length` bits; `None` if the address has fewer bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (address, length) = match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(v4)) if length >= 96 => (IpAddr::V4(v4), length - 96),
            _ => (address, length),
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (length <= bits).then_some(Prefix { address, length })
    }

    /// The prefix of one address.
    pub fn host(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Prefix {
            address,
            length: if address.is_ipv4() { 32 } else { 128 },
        }
    }

    /// Whether `address` is in.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(p), IpAddr::V4(a)) => {
                let rest = 32 - u32::from(self.length);
                (p.to_bits() ^ a.to_bits()).checked_shr(rest).unwrap_or(0) == 0
            }
            (IpAddr::V6(p), IpAddr::V6(a)) => {
                let rest = 128 - u32::from(self.length);
                (p.to_bits() ^ a.to_bits()).checked_shr(rest).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(a) if self.length == 32 => write!(f, "{a}"),
            IpAddr::V4(a) => write!(f, "{a}/{}", self.length),
            IpAddr::V6(a) if self.length == 128 => write!(f, "[{a}]"),
            IpAddr::V6(a) => write!(f, "[{a}/{}]", self.length),
        }
    }
}

/// A condition, or several joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Both hold.
    And(Box<Expression>, Box<Expression>),
    /// At least one holds.
    Or(Box<Expression>, Box<Expression>),
    /// It does not hold.
    Not(Box<Expression>),
    /// `dst` or `src`.
    Host {
        /// Which end.
        side: Side,
        /// The family asked for; `None` is either.
        family: Option<Family>,
        /// `None` is any address.
        prefix: Option<Prefix>,
        /// `None` is any port.
        port: Option<u16>,
    },
    /// `dport` or `sport`.
    Port {
        /// Which end.
        side: Side,
        /// How to compare.
        comparison: Comparison,
        /// `None` is `*`, which `ss` takes for a number below every port.
        port: Option<u16>,
    },
    /// The local port was chosen by the kernel, that is: lies in the range it chooses from
    /// (`net.ipv4.ip_local_port_range`), which is all that `ss` tests too.
    Autobound,
    /// The owner's process id.
    Pid {
        /// How to compare; a connection without a known owner fits `!=` only.
        comparison: Comparison,
        /// The process id.
        pid: u32,
    },
    /// The owner's command name.
    Process {
        /// Whether it must not match.
        negated: bool,
        /// The name; `*` in it stands for any characters.
        pattern: String,
    },
    /// The connection has the problem.
    Problem {
        /// Whether it must not have it.
        negated: bool,
        /// Which one.
        problem: Problem,
    },
}

impl Expression {
    fn holds(&self, subject: &Subject<'_>, ephemeral: &RangeInclusive<u16>) -> bool {
        let end = |side| match side {
            Side::Local => subject.local,
            Side::Remote => subject.remote,
        };
        match self {
            Expression::And(a, b) => a.holds(subject, ephemeral) && b.holds(subject, ephemeral),
            Expression::Or(a, b) => a.holds(subject, ephemeral) || b.holds(subject, ephemeral),
            Expression::Not(a) => !a.holds(subject, ephemeral),
            Expression::Host {
                side,
                family,
                prefix,
                port,
            } => {
                let end = end(*side);
                let address = end.ip().to_canonical();
                port.is_none_or(|p| p == end.port())
                    && prefix.is_none_or(|p| p.contains(address))
                    && family.is_none_or(|f| (f == Family::Inet) == address.is_ipv4())
            }
            Expression::Port {
                side,
                comparison,
                port,
            } => match port {
                Some(port) => comparison.holds(end(*side).port(), *port),
                None => matches!(
                    comparison,
                    Comparison::Equal | Comparison::Greater | Comparison::GreaterOrEqual
                ),
            },
            Expression::Autobound => ephemeral.contains(&subject.local.port()),
            Expression::Pid { comparison, pid } => match subject.owner.pid() {
                Some(owner) => comparison.holds(owner, *pid),
                None => *comparison == Comparison::NotEqual,
            },
            Expression::Process { negated, pattern } => {
                *negated
                    != subject
                        .owner
                        .command()
                        .is_some_and(|command| matches_pattern(pattern, command))
            }
            Expression::Problem { negated, problem } => {
                *negated != subject.problems.contains(*problem)
            }
        }
    }
}

/// Whether `name` is `pattern`, in which each `*` stands for any characters.
pub(crate) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Which connections to show: a state filter and an expression, either of which may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    states: Option<StateSet>,
    expression: Option<Expression>,
    ephemeral: RangeInclusive<u16>,
    mixed: Option<String>,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            states: None,
            expression: None,
            ephemeral: 32768..=60999,
            mixed: None,
        }
    }
}

impl Filter {
    /// Reads a filter. An empty text selects every connection.
    ///
    /// # Errors
    /// [`FilterError`] with the place in the text, for a text that is no filter, a name that
    /// cannot be looked up, and the words of `ss` that this tool cannot answer.
    pub fn parse(text: &str, names: &dyn Names) -> Result<Self, FilterError> {
        parser::parse(text, names)
    }

    /// Whether the connection is selected.
    pub fn selects(&self, subject: &Subject<'_>) -> bool {
        self.states.is_none_or(|s| s.contains(subject.state))
            && self
                .expression
                .as_ref()
                .is_none_or(|e| e.holds(subject, &self.ephemeral))
    }

    /// Whether every connection is selected.
    pub fn is_empty(&self) -> bool {
        self.states.is_none() && self.expression.is_none()
    }

    /// What a reader of this filter may not expect, in one line; `None` mostly.
    pub fn notes(&self) -> Option<&str> {
        self.mixed.as_deref()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        if let Some(states) = self.states {
            write!(f, "{states}")?;
            gap = " ";
        }
        if let Some(expression) = &self.expression {
            write!(f, "{gap}{expression}")?;
        }
        Ok(())
    }
}

struct Operand<'a>(&'a Expression, bool);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 {
            write!(f, "( {} )", self.0)
        } else {
            self.0.fmt(f)
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Expression::*;
        let compound = |e: &Expression| matches!(e, And(..) | Or(..));
        match self {
            And(a, b) => write!(
                f,
                "{} and {}",
                Operand(a, matches!(**a, Or(..))),
                Operand(b, compound(b))
            ),
            Or(a, b) => write!(
                f,
                "{} or {}",
                Operand(a, matches!(**a, And(..))),
                Operand(b, compound(b))
            ),
            Not(a) => write!(f, "not {}", Operand(a, compound(a))),
            Host {
                side,
                family,
                prefix,
                port,
            } => {
                f.write_str(match side {
                    Side::Local => "src ",
                    Side::Remote => "dst ",
                })?;
                match family {
                    Some(Family::Inet) => f.write_str("inet:")?,
                    Some(Family::Inet6) => f.write_str("inet6:")?,
                    None => {}
                }
                match (prefix, port) {
                    (Some(prefix), Some(port)) => write!(f, "{prefix}:{port}"),
                    (Some(prefix), None) => write!(f, "{prefix}"),
                    (None, Some(port)) => write!(f, "*:{port}"),
                    (None, None) => f.write_str("*"),
                }
            }
            Port {
                side,
                comparison,
                port,
            } => {
                let word = match side {
                    Side::Local => "sport",
                    Side::Remote => "dport",
                };
                match port {
                    Some(port) => write!(f, "{word} {} :{port}", comparison.symbol()),
                    None => write!(f, "{word} {} :*", comparison.symbol()),
                }
            }
            Autobound => f.write_str("autobound"),
            Pid { comparison, pid } => write!(f, "pid {} {pid}", comparison.symbol()),
            Process { negated, pattern } => {
                let operator = if *negated { "!=" } else { "=" };
                write!(f, "process {operator} {}", lexer::quoted(pattern))
            }
            Problem { negated, problem } => {
                let operator = if *negated { "!=" } else { "=" };
                write!(f, "problem {operator} {problem}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
