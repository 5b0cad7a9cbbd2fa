// SPDX-License-Identifier: Apache-2.0
//! Second step of reading a filter: typed conditions out of tokens, after the grammar of
//! iproute2's `misc/ssfilter.y` and the host syntax of `misc/ss.c` (`parse_hostcond`).

use super::lexer::{Kind, Token, tokens};
use super::{
    Comparison, Expression, Family, Filter, FilterError, FilterErrorKind, Names, Prefix, Side,
    StateSet,
};
use slowpath_model::Problem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Conditions, negations and parentheses in one filter: bounds the recursion.
const MOST: usize = 500;

pub(super) fn parse(text: &str, names: &dyn Names) -> Result<Filter, FilterError> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        next: 0,
        names,
        terms: 0,
        mixed: false,
    };
    let states = parser.states()?;
    let expression = match parser.peek() {
        Some(_) => Some(parser.list()?),
        None => None,
    };
    if let Some(token) = parser.peek() {
        let kind = FilterErrorKind::Unexpected {
            wanted: "`and`, `or` or the end",
            found: token.text.clone(),
        };
        return Err(parser.error(token, kind));
    }
    let mixed = expression
        .as_ref()
        .filter(|_| parser.mixed)
        .map(|e| format!("`and` and `or` are read from the left, as ss reads them: {e}"));
    Ok(Filter {
        states,
        expression,
        ephemeral: names.ephemeral_ports(),
        mixed,
    })
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    next: usize,
    names: &'a dyn Names,
    terms: usize,
    mixed: bool,
}

type Parsed<T> = Result<T, FilterError>;

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn peek_kind(&self) -> Option<Kind> {
        self.peek().map(|t| t.kind)
    }

    /// The text of the next token, if that is a bare word.
    fn peek_word(&self) -> Option<&str> {
        self.peek()
            .filter(|t| t.kind == Kind::Word)
            .map(|t| t.text.as_str())
    }

    fn error(&self, token: &Token, kind: FilterErrorKind) -> FilterError {
        FilterError {
            text: self.text.to_owned(),
            at: token.at.clone(),
            kind,
        }
    }

    fn take(&mut self, wanted: &'static str) -> Parsed<Token> {
        let Some(token) = self.tokens.get(self.next).cloned() else {
            return Err(FilterError {
                text: self.text.to_owned(),
                at: self.text.len()..self.text.len(),
                kind: FilterErrorKind::Ends { wanted },
            });
        };
        self.next += 1;
        Ok(token)
    }

    /// A value: a word, quoted or not.
    fn value(&mut self, wanted: &'static str) -> Parsed<Token> {
        let token = self.take(wanted)?;
        if matches!(token.kind, Kind::Word | Kind::Quoted) {
            return Ok(token);
        }
        let found = token.text.clone();
        Err(self.error(&token, FilterErrorKind::Unexpected { wanted, found }))
    }

    fn count(&mut self, token: &Token) -> Parsed<()> {
        self.terms += 1;
        if self.terms > MOST {
            return Err(self.error(token, FilterErrorKind::TooLong(MOST)));
        }
        Ok(())
    }

    /// `state NAME`, `exclude NAME`, any number of them, before the expression.
    fn states(&mut self) -> Parsed<Option<StateSet>> {
        let mut states = None;
        while let Some(word) = self.peek_word() {
            let adds = match word {
                "state" => true,
                "exclude" | "excl" => false,
                _ => break,
            };
            self.next += 1;
            let name = self.value("the name of a TCP state")?;
            let Some(named) = StateSet::named(&name.text) else {
                let kind = FilterErrorKind::State(name.text.clone());
                return Err(self.error(&name, kind));
            };
            states = Some(if adds {
                states.unwrap_or(StateSet::NONE).union(named)
            } else {
                let all = StateSet::named("all").unwrap_or(StateSet::NONE);
                states.unwrap_or(all).without(named)
            });
        }
        Ok(states)
    }

    /// `exprlist`: conditions joined by `and`, `or` or nothing (`and`), from the left.
    fn list(&mut self) -> Parsed<Expression> {
        let mut left = self.condition()?;
        let (mut ands, mut ors) = (false, false);
        loop {
            let or = match self.peek_kind() {
                None | Some(Kind::Close) => break,
                Some(Kind::Or) => {
                    self.next += 1;
                    true
                }
                Some(Kind::And) => {
                    self.next += 1;
                    false
                }
                Some(_) => false,
            };
            let right = Box::new(self.condition()?);
            left = if or {
                Expression::Or(Box::new(left), right)
            } else {
                Expression::And(Box::new(left), right)
            };
            ands |= !or;
            ors |= or;
        }
        self.mixed |= ands && ors;
        Ok(left)
    }

    /// `expr`: one condition, negated or in parentheses.
    fn condition(&mut self) -> Parsed<Expression> {
        let token = self.take("a condition")?;
        self.count(&token)?;
        match token.kind {
            Kind::Not => Ok(Expression::Not(Box::new(self.condition()?))),
            Kind::Open => {
                let inner = self.list()?;
                let close = self.take("`)`")?;
                if close.kind != Kind::Close {
                    let found = close.text.clone();
                    let wanted = "`)`";
                    return Err(self.error(&close, FilterErrorKind::Unexpected { wanted, found }));
                }
                Ok(inner)
            }
            Kind::Word => self.predicate(&token),
            _ => Err(self.no_condition(&token)),
        }
    }

    fn no_condition(&self, token: &Token) -> FilterError {
        let kind = FilterErrorKind::Unexpected {
            wanted: "a condition (dst, src, dport, sport, autobound, pid, process, problem)",
            found: token.text.clone(),
        };
        self.error(token, kind)
    }

    fn predicate(&mut self, word: &Token) -> Parsed<Expression> {
        match word.text.as_str() {
            "dst" => self.host(word, Side::Remote),
            "src" => self.host(word, Side::Local),
            "dport" => self.port(Side::Remote),
            "sport" => self.port(Side::Local),
            "autobound" => Ok(Expression::Autobound),
            "pid" => self.pid(),
            "process" => {
                let negated = self.equality(word)?;
                let pattern = self.value("the name of a process")?.text;
                Ok(Expression::Process { negated, pattern })
            }
            "problem" => {
                let negated = self.equality(word)?;
                let name = self.value("the name of a problem")?;
                let Some(problem) = Problem::from_name(&name.text) else {
                    return Err(self.error(&name, FilterErrorKind::Problem(name.text.clone())));
                };
                Ok(Expression::Problem { negated, problem })
            }
            "state" | "exclude" | "excl" => {
                Err(self.error(word, FilterErrorKind::StateLate(word.text.clone())))
            }
            "dev" => Err(self.unsupported(
                word,
                "the interface of a connection is not recorded; filter by `src` address",
            )),
            "fwmark" => Err(self.unsupported(word, "the mark of a socket is not recorded")),
            "cgroup" => Err(self.unsupported(
                word,
                "the cgroup of a socket is not recorded; filter by `process` or `pid`",
            )),
            _ => Err(self.no_condition(word)),
        }
    }

    fn unsupported(&self, token: &Token, reason: &'static str) -> FilterError {
        let word = token.text.clone();
        self.error(token, FilterErrorKind::Unsupported { word, reason })
    }

    fn comparison(&mut self) -> Comparison {
        match self.peek_kind() {
            Some(Kind::Compare(comparison)) => {
                self.next += 1;
                comparison
            }
            _ => Comparison::Equal,
        }
    }

    /// `=`, `!=` or nothing; whether it negates.
    fn equality(&mut self, word: &Token) -> Parsed<bool> {
        let operator = self.peek().cloned();
        match (self.comparison(), operator) {
            (Comparison::Equal, _) => Ok(false),
            (Comparison::NotEqual, _) => Ok(true),
            (_, operator) => {
                let token = operator.as_ref().unwrap_or(word);
                let word = word.text.clone();
                Err(self.error(token, FilterErrorKind::Order { word }))
            }
        }
    }

    fn pid(&mut self) -> Parsed<Expression> {
        let comparison = self.comparison();
        let value = self.value("a process id")?;
        match value.text.parse() {
            Ok(pid) => Ok(Expression::Pid { comparison, pid }),
            Err(_) => Err(self.error(&value, FilterErrorKind::Pid(value.text.clone()))),
        }
    }

    /// The family a value begins with, and the rest.
    fn family<'t>(&self, value: &'t Token) -> Parsed<(Option<Family>, &'t str)> {
        let text = value.text.as_str();
        if let Some(rest) = text.strip_prefix("inet:") {
            return Ok((Some(Family::Inet), rest));
        }
        if let Some(rest) = text.strip_prefix("inet6:") {
            return Ok((Some(Family::Inet6), rest));
        }
        for other in ["unix:", "link:", "netlink:", "vsock:"] {
            if text.starts_with(other) {
                return Err(self.unsupported(value, "only TCP connections are looked at"));
            }
        }
        Ok((None, text))
    }

    /// `*`, a number or a service, `None` for `*` and for nothing.
    fn port_number(&self, value: &Token, text: &str) -> Parsed<Option<u16>> {
        if text.is_empty() || text == "*" {
            return Ok(None);
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        number
            .filter(|_| !text.starts_with('+'))
            .or_else(|| self.names.port(text))
            .map(Some)
            .ok_or_else(|| self.error(value, FilterErrorKind::Port(text.to_owned())))
    }

    fn port(&mut self, side: Side) -> Parsed<Expression> {
        let comparison = self.comparison();
        let value = self.value("a port, as in `:443`")?;
        let (family, text) = self.family(&value)?;
        let port = self.port_number(&value, text.strip_prefix(':').unwrap_or(text))?;
        let condition = Expression::Port {
            side,
            comparison,
            port,
        };
        Ok(match family {
            None => condition,
            Some(_) => Expression::And(
                Box::new(Expression::Host {
                    side,
                    family,
                    prefix: None,
                    port: None,
                }),
                Box::new(condition),
            ),
        })
    }

    fn host(&mut self, word: &Token, side: Side) -> Parsed<Expression> {
        let negated = self.equality(word)?;
        let value = self.value("an address, as in `10.0.0.0/8:443`")?;
        let (family, text) = self.family(&value)?;
        let (address, port) = self.split_host(&value, text)?;
        let port = self.port_number(&value, port)?;
        let prefixes = self.prefixes(&value, &address, family)?;
        let one = |prefix| Expression::Host {
            side,
            family,
            prefix,
            port,
        };
        let expression = prefixes
            .into_iter()
            .map(|p| one(Some(p)))
            .reduce(|a, b| Expression::Or(Box::new(a), Box::new(b)))
            .unwrap_or_else(|| one(None));
        Ok(if negated {
            Expression::Not(Box::new(expression))
        } else {
            expression
        })
    }

    /// Address (with its prefix length) and port of `ADDRESS[/LENGTH][:PORT]`,
    /// `[ADDRESS/LENGTH]:PORT`, `[ADDRESS]/LENGTH:PORT` or `*[:PORT]`.
    fn split_host<'t>(&self, value: &Token, text: &'t str) -> Parsed<(String, &'t str)> {
        let wrong = || self.error(value, FilterErrorKind::Host(text.to_owned()));
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or_else(wrong)?;
            let (length, port) = match rest.split_once(':') {
                Some((length, port)) => (length, port),
                None => (rest, ""),
            };
            if !length.is_empty() && !length.starts_with('/') {
                return Err(wrong());
            }
            return Ok((format!("{address}{length}"), port));
        }
        if let Some(rest) = text.strip_prefix('*') {
            return match (rest, rest.strip_prefix(':')) {
                ("", _) => Ok((String::new(), "")),
                (_, Some(port)) => Ok((String::new(), port)),
                _ => Err(wrong()),
            };
        }
        let after = text.find('/').unwrap_or(0);
        match text[after..].rfind(':') {
            None => Ok((text.to_owned(), "")),
            Some(colon) => {
                let (address, port) = text.split_at(after + colon);
                if after == 0 && address.contains(':') {
                    return Err(self.error(value, FilterErrorKind::Brackets(text.to_owned())));
                }
                Ok((address.to_owned(), &port[1..]))
            }
        }
    }

    /// The prefixes that `text` means; none for any address.
    fn prefixes(&self, value: &Token, text: &str, family: Option<Family>) -> Parsed<Vec<Prefix>> {
        if matches!(text, "" | "*" | "any" | "all" | "default") {
            return Ok(Vec::new());
        }
        let (name, length) = match text.split_once('/') {
            Some((name, length)) => (name, Some(length)),
            None => (text, None),
        };
        let Some(address) = address(name) else {
            let wanted = |a: &IpAddr| family.is_none_or(|f| (f == Family::Inet) == a.is_ipv4());
            let found: Vec<Prefix> = match length {
                Some(_) => Vec::new(),
                None => self.names.addresses(name),
            }
            .into_iter()
            .map(|a| a.to_canonical())
            .filter(wanted)
            .map(Prefix::host)
            .collect();
            if found.is_empty() {
                return Err(self.error(value, FilterErrorKind::Host(text.to_owned())));
            }
            return Ok(found);
        };
        let Some(length) = length else {
            return Ok(vec![Prefix::host(address)]);
        };
        let wrong = || self.error(value, FilterErrorKind::PrefixLength(length.to_owned()));
        match length.parse::<u8>() {
            Ok(bits) => Ok(vec![Prefix::new(address, bits).ok_or_else(wrong)?]),
            Err(_) => Err(wrong()),
        }
    }
}

/// An address; IPv4 may lack its last groups, which are then 0 (`get_addr_ipv4`).
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(v6) = text.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(v6));
    }
    let mut octets = [0; 4];
    let mut groups = text.split('.');
    for octet in &mut octets {
        match groups.next() {
            Some(group) if group.bytes().all(|b| b.is_ascii_digit()) => {
                *octet = group.parse().ok()?;
            }
            Some(_) => return None,
            None => break,
        }
    }
    groups
        .next()
        .is_none()
        .then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}
