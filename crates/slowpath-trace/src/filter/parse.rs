// SPDX-License-Identifier: Apache-2.0
//! From an expression to a tree of tests.

use super::FilterError;
use super::lex::{Token, tokens};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Deeper nesting is refused.
const DEEPEST: usize = 64;
/// Longer expressions are refused: the kernel takes 4,096 instructions.
const MOST: usize = 100;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// A test, and the number of VLAN tags before it.
    Test(Test, u32),
    Not(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
    /// Nothing was asked.
    All,
}

impl Tree {
    pub(super) fn speaks_of_vlan(&self) -> bool {
        match self {
            Tree::Test(test, _) => matches!(test, Test::Vlan(_)),
            Tree::Not(tree) => tree.speaks_of_vlan(),
            Tree::And(a, b) | Tree::Or(a, b) => a.speaks_of_vlan() || b.speaks_of_vlan(),
            Tree::All => false,
        }
    }
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Source,
    Destination,
    Either,
    Both,
}

/// What a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

/// A protocol by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Ether,
    Ip,
    Ip6,
    Arp,
    Rarp,
    /// Over either version of IP, by number.
    Over(u8),
}

/// One test of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Protocol(Protocol),
    /// IPv4 in these bits; with no protocol named, ARP's and RARP's too.
    Net4(Option<Protocol>, Direction, u32, u32),
    Net6(Direction, [u32; 4], [u32; 4]),
    /// From, to; over the protocol named, or TCP, UDP and SCTP.
    Ports(Option<u8>, Direction, u16, u16),
    /// IP's protocol number, of the version named or either.
    IpProtocol(Option<Protocol>, u8),
    EtherHost(Direction, [u8; 6]),
    EtherType(u16),
    Vlan(Option<u16>),
    Less(u32),
    Greater(u32),
    Field(Field),
}

/// `proto[offset:size] & mask <comparison> value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) of: Protocol,
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) mask: Option<u32>,
    pub(super) comparison: Comparison,
    pub(super) value: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// IP protocols by name (IANA).
const PROTOCOLS: [(&str, u8); 9] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("pim", 103),
    ("sctp", 132),
];

/// Names of fields and of the values in them.
const NAMED: [(&str, u32); 13] = [
    ("tcpflags", 13),
    ("tcp-fin", 1),
    ("tcp-syn", 2),
    ("tcp-rst", 4),
    ("tcp-push", 8),
    ("tcp-ack", 16),
    ("tcp-urg", 32),
    ("tcp-ece", 64),
    ("tcp-cwr", 128),
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echo", 8),
    ("icmp-echoreply", 0),
];

pub(super) fn parse(expression: &str) -> Result<Tree, FilterError> {
    let mut parser = Parser {
        expression,
        tokens: tokens(expression),
        next: 0,
        qualifiers: Qualifiers::default(),
        tags: 0,
        depth: 0,
    };
    if parser.tokens.is_empty() {
        return Ok(Tree::All);
    }
    let tree = parser.either()?;
    match parser.peek() {
        None if parser.tokens.len() <= MOST * 8 => Ok(tree),
        None => Err(parser.error("too long")),
        Some(_) => Err(parser.error("'and', 'or' or the end expected")),
    }
}

/// The words before a value.
#[derive(Clone, Copy, Debug, Default)]
struct Qualifiers {
    protocol: Option<Protocol>,
    direction: Option<Direction>,
    kind: Option<Kind>,
}

struct Parser<'a> {
    expression: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    /// Of the test before.
    qualifiers: Qualifiers,
    tags: u32,
    depth: usize,
}

fn protocol(word: &str) -> Option<Protocol> {
    Some(match word {
        "ether" => Protocol::Ether,
        "ip" => Protocol::Ip,
        "ip6" => Protocol::Ip6,
        "arp" => Protocol::Arp,
        "rarp" => Protocol::Rarp,
        other => {
            let (_, number) = PROTOCOLS.iter().find(|(name, _)| *name == other)?;
            Protocol::Over(*number)
        }
    })
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|token| token.text)
    }

    fn take(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    fn skip(&mut self, words: &[&str]) -> bool {
        let is = self.peek().is_some_and(|word| words.contains(&word));
        self.next += usize::from(is);
        is
    }

    fn error(&self, problem: &'static str) -> FilterError {
        let rest = self.tokens.get(self.next).map(|t| &self.expression[t.at..]);
        FilterError {
            problem,
            at: rest.map_or_else(
                || "the end".to_owned(),
                |rest| rest.chars().take(60).collect(),
            ),
        }
    }

    fn error_before(&mut self, problem: &'static str) -> FilterError {
        self.next = self.next.saturating_sub(1);
        self.error(problem)
    }

    /// `and` and `or`, from left to right.
    fn either(&mut self) -> Result<Tree, FilterError> {
        let mut tree = self.one()?;
        loop {
            if self.skip(&["and", "&&"]) {
                tree = Tree::And(Box::new(tree), Box::new(self.one()?));
            } else if self.skip(&["or", "||"]) {
                tree = Tree::Or(Box::new(tree), Box::new(self.one()?));
            } else {
                return Ok(tree);
            }
        }
    }

    fn one(&mut self) -> Result<Tree, FilterError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("nested too deep"));
        }
        let tree = if self.skip(&["not", "!"]) {
            Tree::Not(Box::new(self.one()?))
        } else if self.skip(&["("]) {
            let tree = self.either()?;
            if !self.skip(&[")"]) {
                return Err(self.error("')' expected"));
            }
            tree
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(tree)
    }

    fn test(&mut self) -> Result<Tree, FilterError> {
        let tags = self.tags;
        if self.skip(&["vlan"]) {
            let id = self.peek().and_then(number);
            self.next += usize::from(id.is_some());
            let id = match id.map(u16::try_from) {
                Some(Ok(id)) if id < 4096 => Some(id),
                Some(_) => return Err(self.error_before("VLAN from 0 to 4095 expected")),
                None => None,
            };
            self.tags += 1;
            return Ok(Tree::Test(Test::Vlan(id), tags));
        }
        for (word, test) in [
            ("less", Test::Less as fn(u32) -> Test),
            ("greater", Test::Greater),
        ] {
            if self.skip(&[word]) {
                let length = self.peek().and_then(number);
                let length = length.ok_or_else(|| self.error("length expected"))?;
                self.next += 1;
                return Ok(Tree::Test(test(length), tags));
            }
        }
        let mut given = Qualifiers {
            protocol: self.peek().and_then(protocol),
            ..Qualifiers::default()
        };
        self.next += usize::from(given.protocol.is_some());
        if let Some(of) = given.protocol
            && self.skip(&["["])
        {
            return Ok(Tree::Test(self.field(of)?, tags));
        }
        given.direction = self.direction()?;
        given.kind = match self.peek() {
            Some("host") => Some(Kind::Host),
            Some("net") => Some(Kind::Net),
            Some("port") => Some(Kind::Port),
            Some("portrange") => Some(Kind::PortRange),
            Some("proto") => Some(Kind::Proto),
            _ => None,
        };
        self.next += usize::from(given.kind.is_some());
        let bare = given.direction.is_none() && given.kind.is_none();
        if let Some(protocol) = given.protocol
            && bare
            && self.at_an_end()
        {
            if protocol == Protocol::Ether {
                return Err(self.error("'host' or 'proto' expected"));
            }
            self.qualifiers = given;
            return Ok(Tree::Test(Test::Protocol(protocol), tags));
        }
        // A value by itself is one more of the kind before.
        let qualifiers = if bare && given.protocol.is_none() {
            self.qualifiers
        } else {
            given
        };
        self.qualifiers = qualifiers;
        self.value(qualifiers).map(|test| Tree::Test(test, tags))
    }

    fn at_an_end(&self) -> bool {
        matches!(self.peek(), None | Some("and" | "&&" | "or" | "||" | ")"))
    }

    fn direction(&mut self) -> Result<Option<Direction>, FilterError> {
        let first = match self.peek() {
            Some("src") => Direction::Source,
            Some("dst") => Direction::Destination,
            _ => return Ok(None),
        };
        self.next += 1;
        let other = match first {
            Direction::Source => "dst",
            _ => "src",
        };
        if self
            .tokens
            .get(self.next + 1)
            .is_none_or(|t| t.text != other)
        {
            return Ok(Some(first));
        }
        let both = match self.peek() {
            Some("or" | "||") => Direction::Either,
            Some("and" | "&&") => Direction::Both,
            _ => return Ok(Some(first)),
        };
        self.next += 2;
        Ok(Some(both))
    }

    fn value(&mut self, q: Qualifiers) -> Result<Test, FilterError> {
        let direction = q.direction.unwrap_or(Direction::Either);
        let Some(word) = self.take() else {
            return Err(self.error("a value expected"));
        };
        let word = word.strip_prefix('\\').unwrap_or(word);
        match (q.kind.unwrap_or(Kind::Host), q.protocol) {
            (Kind::Host, Some(Protocol::Ether)) => match mac(word) {
                Some(address) => Ok(Test::EtherHost(direction, address)),
                None => Err(self.error_before("an Ethernet address expected")),
            },
            (Kind::Proto, Some(Protocol::Ether)) => {
                let named = match word {
                    "ip" => Some(0x0800),
                    "ip6" => Some(0x86dd),
                    "arp" => Some(0x0806),
                    "rarp" => Some(0x8035),
                    word => number(word),
                };
                match named.map(u16::try_from) {
                    Some(Ok(number)) => Ok(Test::EtherType(number)),
                    _ => Err(self.error_before("an EtherType expected")),
                }
            }
            (Kind::Proto, version @ (None | Some(Protocol::Ip | Protocol::Ip6))) => {
                let named = match protocol(word) {
                    Some(Protocol::Over(number)) => Some(number),
                    _ => number(word).and_then(|n| u8::try_from(n).ok()),
                };
                match named {
                    Some(number) => Ok(Test::IpProtocol(version, number)),
                    None => Err(self.error_before("a protocol of IP expected")),
                }
            }
            (Kind::Port | Kind::PortRange, over @ (None | Some(Protocol::Over(6 | 17 | 132)))) => {
                let over = match over {
                    Some(Protocol::Over(number)) => Some(number),
                    _ => None,
                };
                let (from, to) = match word.split_once('-') {
                    Some((from, to)) if q.kind == Some(Kind::PortRange) => (from, to),
                    _ => (word, word),
                };
                match (from.parse(), to.parse()) {
                    (Ok(from), Ok(to)) if from <= to => Ok(Test::Ports(over, direction, from, to)),
                    (Ok(from), Ok(to)) => Ok(Test::Ports(over, direction, to, from)),
                    _ => Err(self.error_before("a port's number expected")),
                }
            }
            (
                Kind::Host,
                p @ (None | Some(Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp)),
            ) => match word.parse() {
                Ok(IpAddr::V4(address)) if p != Some(Protocol::Ip6) => {
                    Ok(Test::Net4(p, direction, address.to_bits(), u32::MAX))
                }
                Ok(IpAddr::V6(address)) if matches!(p, None | Some(Protocol::Ip6)) => Ok(
                    Test::Net6(direction, words(address.to_bits()), [u32::MAX; 4]),
                ),
                Ok(_) => Err(self.error_before("an address of the protocol named expected")),
                Err(_) => Err(self.error_before("an address expected (names are not looked up)")),
            },
            (
                Kind::Net,
                p @ (None | Some(Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp)),
            ) => self.net(word, p, direction),
            _ => Err(self.error_before("the words before do not go with this")),
        }
    }

    fn net(
        &mut self,
        word: &str,
        p: Option<Protocol>,
        direction: Direction,
    ) -> Result<Test, FilterError> {
        let (address, length) = match word.split_once('/') {
            Some((address, length)) => match length.parse::<u32>() {
                Ok(length) => (address, Some(length)),
                Err(_) => return Err(self.error_before("a prefix's length expected")),
            },
            None => (word, None),
        };
        if let Ok(address) = address.parse::<Ipv6Addr>()
            && matches!(p, None | Some(Protocol::Ip6))
        {
            let length = length.unwrap_or(128);
            let mask = u128::MAX
                .checked_shl(128u32.wrapping_sub(length))
                .unwrap_or(0);
            if length > 128 || address.to_bits() & !mask != 0 {
                return Err(self.error_before("bits are set beyond the prefix"));
            }
            return Ok(Test::Net6(direction, words(address.to_bits()), words(mask)));
        }
        // 10.1 means 10.1.0.0/16.
        let parts: Result<Vec<u8>, _> = address.split('.').map(str::parse).collect();
        let parts = match parts {
            Ok(parts) if parts.len() <= 4 && p != Some(Protocol::Ip6) => parts,
            _ => return Err(self.error_before("a network's address expected")),
        };
        let mut bytes = [0; 4];
        bytes[..parts.len()].copy_from_slice(&parts);
        let address = Ipv4Addr::from(bytes).to_bits();
        let mask = if self.skip(&["mask"]) {
            let mask = self.take().and_then(|word| word.parse::<Ipv4Addr>().ok());
            mask.ok_or_else(|| self.error_before("a mask expected"))?
                .to_bits()
        } else {
            let length = length.unwrap_or(parts.len() as u32 * 8);
            if length > 32 {
                return Err(self.error_before("a prefix of at most 32 bits expected"));
            }
            u32::MAX.checked_shl(32 - length).unwrap_or(0)
        };
        if address & !mask != 0 {
            return Err(self.error_before("bits are set beyond the prefix"));
        }
        Ok(Test::Net4(p, direction, address, mask))
    }

    fn number_or_name(&mut self) -> Result<u32, FilterError> {
        let word = self.take().unwrap_or_default();
        let named = NAMED.iter().find(|(name, _)| *name == word);
        match named.map(|(_, value)| *value).or_else(|| number(word)) {
            Some(value) => Ok(value),
            None => Err(self.error_before("a number expected")),
        }
    }

    /// After `proto [`.
    fn field(&mut self, of: Protocol) -> Result<Test, FilterError> {
        if matches!(of, Protocol::Over(50 | 51 | 103)) {
            return Err(self.error_before("fields of this protocol are not understood"));
        }
        let offset = self.number_or_name()?;
        let size = if self.skip(&[":"]) {
            self.number_or_name()?
        } else {
            1
        };
        if !matches!(size, 1 | 2 | 4) || offset > 0xffff {
            return Err(self.error_before("a size of 1, 2 or 4 at an offset below 65536 expected"));
        }
        if !self.skip(&["]"]) {
            return Err(self.error("']' expected"));
        }
        let mask = match self.skip(&["&"]) {
            true => Some(self.mask()?),
            false => None,
        };
        let comparison = match self.peek() {
            Some("=" | "==") => Comparison::Equal,
            Some("!=") => Comparison::NotEqual,
            Some(">") => Comparison::Greater,
            Some(">=") => Comparison::GreaterOrEqual,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::LessOrEqual,
            _ => return Err(self.error("a comparison expected")),
        };
        self.next += 1;
        Ok(Test::Field(Field {
            of,
            offset,
            size,
            mask,
            comparison,
            value: self.mask()?,
        }))
    }

    /// A number, or some of them joined by `|`, perhaps in parentheses.
    fn mask(&mut self) -> Result<u32, FilterError> {
        let parenthesis = self.skip(&["("]);
        let mut mask = self.number_or_name()?;
        while self.skip(&["|"]) {
            mask |= self.number_or_name()?;
        }
        if parenthesis && !self.skip(&[")"]) {
            return Err(self.error("')' expected"));
        }
        Ok(mask)
    }
}

fn words(bits: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

fn mac(word: &str) -> Option<[u8; 6]> {
    let parts = word.split([':', '-']);
    let bytes: Result<Vec<u8>, _> = parts.map(|p| u8::from_str_radix(p, 16)).collect();
    bytes.ok()?.try_into().ok()
}
