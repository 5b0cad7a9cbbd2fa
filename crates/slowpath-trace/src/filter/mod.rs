// SPDX-License-Identifier: Apache-2.0
//! Which frames are wanted: expressions as tcpdump takes them (pcap-filter), compiled to
//! classic BPF.
//!
//! What enters: an expression. What leaves: a program for a link type, which the kernel runs on
//! an interface and [`Filter::matches`] on the frames of files; so both select the same.
//!
//! What is understood: `host`, `net` (with length, mask or short), `port`, `portrange`,
//! `proto`, each after `src`, `dst`, `src or dst`, `src and dst`, and after `ip`, `ip6`, `arp`, `rarp`,
//! `tcp`, `udp`, `sctp` where that makes sense; these protocols and `icmp`, `icmp6`, `igmp`, `ah`, `esp`,
//! `pim` by themselves; `ether host`, `ether proto`; `vlan`; `less`, `greater`;
//! `ip[…]`, `tcp[…]`, `udp[…]`, `icmp[…]`, `ether[…]` with an offset, a size, `&` a mask, compared with a number;
//! `and`, `or`, `not`, parentheses. As in pcap-filter, `and` and `or` bind equally
//! tight, and a value by itself takes the words before the last one. Not understood, and refused:
//! names of hosts, networks and services, arithmetic, the rest.

mod bpf;
mod compile;
mod lex;
mod parse;

pub use bpf::{Instruction, Program};

use crate::frame::Link;
use std::sync::Arc;

/// Why an expression is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter: {problem} at '{at}'")]
pub struct FilterError {
    /// What is wrong.
    pub problem: &'static str,
    /// The rest of the expression, from there on; "the end" if nothing is left.
    pub at: String,
}

/// A filter.
#[derive(Clone, Debug)]
pub struct Filter {
    expression: Arc<str>,
    tree: Arc<parse::Tree>,
    /// For the common link types, compiled once.
    programs: Arc<[(Link, Program)]>,
}

impl std::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(expression: &str) -> Result<Self, FilterError> {
        let tree = parse::parse(expression)?;
        let links = [
            Link::Ethernet,
            Link::Raw,
            Link::Sll,
            Link::Sll2,
            Link::Null,
            Link::Fddi,
            Link::Ppp,
            Link::Hdlc,
        ];
        let programs = links.map(|link| (link, compile::compile(&tree, link)));
        Ok(Filter {
            expression: expression.into(),
            tree: Arc::new(tree),
            programs: Arc::new(programs),
        })
    }
}

impl Filter {
    /// The expression as it was given.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The program for frames of that link type; frames of one that is not decoded, and
    /// those of netfilter's log, match nothing.
    #[must_use]
    pub fn program(&self, link: Link) -> Program {
        compile::compile(&self.tree, link)
    }

    /// Whether it speaks of VLAN tags, which Linux takes out of frames before a filter sees
    /// them.
    #[must_use]
    pub fn speaks_of_vlan(&self) -> bool {
        self.tree.speaks_of_vlan()
    }

    /// Whether a frame is wanted.
    #[must_use]
    pub fn matches(&self, link: Link, data: &[u8], wire_length: u32) -> bool {
        let program = self.programs.iter().find(|(of, _)| *of == link);
        program.is_some_and(|(_, program)| program.run(data, wire_length) != 0)
    }
}
