// SPDX-License-Identifier: Apache-2.0
//! What a fabric is made from.

use crate::config::{ConfigError, PortConfig, SwitchConfig};
use crate::packet::{Destination, PortId};
use crate::time::{Rate, Span, Time};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The most hosts, and the most switches.
const MAX_NODES: usize = 1 << 16;
/// The most ports of all switches, counted in all.
const MAX_PORTS: usize = 1 << 20;

/// A host's interface or a switch, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Index of [`Plan::hosts`].
    Host(u32),
    /// Index of [`Plan::switches`].
    Switch(u32),
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Whose.
    pub node: Node,
    /// Which of its ports; a host has port 0.
    pub port: PortId,
}

/// A share in parts of 10^9; above that it counts as all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

impl Share {
    /// Nothing.
    pub const NONE: Share = Share(0);
    /// Everything.
    pub const ALL: Share = Share(1_000_000_000);

    /// Whether a uniform 64-bit number falls into it.
    #[inline]
    pub(super) fn has(self, number: u64) -> bool {
        u128::from(number) * 1_000_000_000 < u128::from(self.0) << 64
    }
}

/// How likely a bit is to be damaged, in parts of 10^15. A packet with a damaged bit is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitErrors(pub u64);

impl BitErrors {
    /// No bit is.
    pub const NONE: BitErrors = BitErrors(0);

    /// Whether a packet of `bytes` bytes has a damaged bit, by a uniform 64-bit number: the number is not below
    /// (1 - p)^bits in parts of 2^64, where 1 - p is rounded down and so is each product of the powers of two that make up
    /// the exponent, from the smallest on.
    pub(super) fn damage(self, bytes: u32, number: u64) -> bool {
        const ONE: u128 = 1 << 64;
        const PARTS: u128 = 1_000_000_000_000_000;
        let error = (u128::from(self.0).min(PARTS) * ONE).div_ceil(PARTS);
        let (mut power, mut kept) = (ONE - error, ONE);
        let mut bits = u64::from(bytes) * 8;
        while bits > 0 {
            if bits & 1 == 1 {
                kept = product(kept, power);
            }
            power = product(power, power);
            bits >>= 1;
        }
        u128::from(number) >= kept
    }
}

/// Of two numbers of at most 2^64 in parts of 2^64, rounded down.
fn product(a: u128, b: u128) -> u128 {
    const ONE: u128 = 1 << 64;
    match (a == ONE, b == ONE) {
        (true, _) => b,
        (_, true) => a,
        _ => (a * b) >> 64,
    }
}

/// Bursts: a good and a bad state, each with its own share of picked packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// How often a packet in the good state makes it bad.
    pub begin: Share,
    /// How often a packet in the bad state makes it good.
    pub end: Share,
    /// Picked in the good state.
    pub good: Share,
    /// Picked in the bad state.
    pub bad: Share,
}

/// Which packets of a line; picked is what any of the rules picks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// At random.
    pub share: Share,
    /// In bursts.
    pub burst: Option<Burst>,
    /// Chosen ones: first and last number, both included, sorted and disjoint.
    pub numbers: Vec<(u64, u64)>,
    /// The packet with the first number, and after it each at a distance of the second.
    pub every: Option<(u64, u64)>,
    /// Shorter packets do not count.
    pub at_least: u32,
}

impl Pick {
    /// Whether it never picks anything.
    pub fn is_none(&self) -> bool {
        self.share == Share::NONE
            && self.burst.is_none()
            && self.numbers.is_empty()
            && self.every.is_none()
    }

    fn is_sorted(&self) -> bool {
        let starts = self.numbers.first().is_none_or(|first| first.0 > 0);
        let ordered = self.numbers.iter().all(|(first, last)| first <= last);
        let disjoint = self.numbers.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let every = self.every.is_none_or(|(first, step)| first > 0 && step > 0);
        starts && ordered && disjoint && every
    }
}

/// A delay that differs from packet to packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// The most that is added; every delay from 0 on is as likely as another.
    pub most: Span,
    /// Whether packets may overtake each other for it. Otherwise none arrives before one
    /// that left before it.
    pub overtaking: bool,
}

/// Packets that come late: others overtake them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Which.
    pub pick: Pick,
    /// By how much.
    pub by: Span,
}

/// What a line does to packets beyond rate and propagation. See the
/// [module's documentation](super).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Added for every packet.
    pub delay: Span,
    /// Added at random.
    pub jitter: Jitter,
    /// Packets that are lost.
    pub loss: Pick,
    /// Packets that are lost because a bit of them is damaged, in addition.
    pub bit_errors: BitErrors,
    /// Packets that arrive damaged.
    pub corruption: Pick,
    /// Packets that arrive twice.
    pub copies: Pick,
    /// Packets that arrive late.
    pub late: Late,
}

/// The longest packet that a line takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Its length.
    pub bytes: u32,
    /// Whether the sender of a longer one gets an answer: from whoever carries the bytes.
    pub reported: bool,
}

/// A policer: a token bucket of bytes that drops what finds too few. RFC 2697 with an excess
/// burst size of 0 and drops for red; a packet's bytes are what it has on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Police {
    /// RFC 2697's committed information rate.
    pub rate: Rate,
    /// Its committed burst size, in bytes.
    pub burst: u64,
}

/// Another DSCP (RFC 2474).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Six bits.
    pub dscp: u8,
    /// The class that it means to switches behind the line.
    pub class: u8,
}

/// What a line does to packets by their length, their rate and their marks. Each stays as it is
/// until it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its MTU; none at the beginning. Asked by the switch at its beginning; no matter where a host is.
    Mtu(Option<Mtu>),
    /// Its policer; a new one is full. None at the beginning.
    Police(Option<Police>),
    /// Whether packets leave it without ECN.
    ClearEcn(bool),
    /// The DSCP that packets leave it with, if not their own.
    Dscp(Option<Remark>),
}

/// The ports of a switch that lead to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of [`Plan::switches`].
    pub switch: u32,
    /// A host, or behind the hosts a switch.
    pub destination: Destination,
    /// All equally good; none takes the route away.
    pub ports: Vec<PortId>,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A line's rate, from the next packet on.
    Rate(u32, Rate),
    /// A line's propagation, from the next packet on.
    Propagation(u32, Span),
    /// What a line does to packets. Counts and random numbers go on.
    Impair(u32, Box<Impairment>),
    /// What a line does to packets by length, rate and marks.
    Condition(u32, Condition),
    /// A link goes down: what is on it is lost, and what is sent into it, until it is up again.
    /// Switches do not notice.
    Up(u32, bool),
    /// A route.
    Route(Route),
}

/// A change and its moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What.
    pub action: Action,
}

/// Hosts, switches, links, routes, and what happens to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of what lines do at random; switches have their own.
    pub seed: u64,
    /// The most packets that may be inside; further ones are dropped where they enter.
    pub most_packets: u32,
    /// The interface of each host; its queue is the host's own.
    pub hosts: Vec<PortConfig>,
    /// The switches.
    pub switches: Vec<SwitchConfig>,
    /// Both ends of each link. The ports there say what it is like in the direction away
    /// from them.
    pub links: Vec<[End; 2]>,
    /// The routes at the beginning.
    pub routes: Vec<Route>,
    /// By line: 2 l and 2 l + 1 of link l.
    pub impairments: Vec<(u32, Impairment)>,
    /// What changes, in any order; at one moment in the order of the list.
    pub changes: Vec<Change>,
}

/// What is impossible about a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Too many hosts, switches or ports.
    TooLarge,
    /// A host's interface: its buffer holds nothing.
    Host(u32),
    /// A switch.
    Switch(u32, ConfigError),
    /// The link names a node or a port that is not there, or has a port that another has.
    Link(u32),
    /// The link connects a node with itself, or two hosts.
    Ends(u32),
    /// A host or a switch has a port without a link.
    NoLink(Node),
    /// A route, by its place in the list, names what is not there, or leads to a host that is
    /// not the destination.
    Route(usize),
    /// An impairment or a change names a line or link that is not there.
    NoSuchLine(u32),
    /// A pick's numbers are not sorted and disjoint, or begin with 0.
    Pick(u32),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::TooLarge => {
                write!(
                    f,
                    "at most {MAX_NODES} hosts, as many switches, {MAX_PORTS} ports"
                )
            }
            PlanError::Host(host) => write!(f, "the buffer of host {host} is zero"),
            PlanError::Switch(switch, error) => write!(f, "switch {switch}: {error}"),
            PlanError::Link(link) => {
                write!(f, "link {link} has an end that is not there, or another's")
            }
            PlanError::Ends(link) => write!(f, "link {link} needs a switch and another node"),
            PlanError::NoLink(Node::Host(host)) => write!(f, "host {host} has no link"),
            PlanError::NoLink(Node::Switch(switch)) => {
                write!(f, "switch {switch} has a port without a link")
            }
            PlanError::Route(route) => write!(f, "route {route} leads nowhere, or astray"),
            PlanError::NoSuchLine(line) => write!(f, "there is no line {line}"),
            PlanError::Pick(line) => write!(f, "line {line}: numbers of packets are not in order"),
        }
    }
}

impl core::error::Error for PlanError {}

impl Plan {
    /// An empty one: no hosts, no switches, room for 2^20 packets.
    pub fn new(seed: u64) -> Self {
        Plan {
            seed,
            most_packets: 1 << 20,
            hosts: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
            impairments: Vec::new(),
            changes: Vec::new(),
        }
    }

    pub(super) fn check_size(&self) -> Result<(), PlanError> {
        let ports: usize = self.switches.iter().map(|switch| switch.ports.len()).sum();
        let nodes = self.hosts.len().max(self.switches.len());
        if nodes > MAX_NODES || ports > MAX_PORTS {
            return Err(PlanError::TooLarge);
        }
        Ok(())
    }
}

impl Impairment {
    /// Whether all its picks are in order.
    pub(super) fn is_sorted(&self) -> bool {
        let picks = [&self.loss, &self.corruption, &self.copies, &self.late.pick];
        picks.into_iter().all(Pick::is_sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_damaged_as_often_as_one_of_its_bits() {
        for (parts, bytes) in [
            (1_000_000_000_u64, 1_500_u32),
            (100_000_000, 42),
            (5_000_000_000, 65_535),
            (0, 9_000),
        ] {
            let kept = (f64::from(bytes) * 8.0 * (-(parts as f64) / 1e15).ln_1p()).exp();
            // The numbers next to where it changes: 2^64 times what is kept, as exactly as f64 has it.
            let edge = (kept * 18_446_744_073_709_551_616.0) as u64;
            let errors = BitErrors(parts);
            assert!(!errors.damage(bytes, edge - (1 << 24)));
            assert_eq!(
                errors.damage(bytes, edge.saturating_add(1 << 24)),
                parts > 0
            );
        }
    }
}
