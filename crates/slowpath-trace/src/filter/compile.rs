// SPDX-License-Identifier: Apache-2.0
//! From a tree of tests to a program.
//!
//! The program is made from its end to its beginning: then what a jump leads to is already
//! there and its distance known.

use super::bpf::{
    AND_K, Instruction, JA, JEQ_K, JGE_K, JGT_K, JSET_K, LD_B_ABS, LD_B_IND, LD_H_ABS, LD_H_IND,
    LD_LEN, LD_W_ABS, LD_W_IND, LDX_MSH, Program, RET_K,
};
use super::parse::{Comparison, Direction, Field, Protocol, Test, Tree};
use crate::frame::Link;

/// Bytes of a frame that are wanted: all.
const WHOLE: u32 = 0x4_0000;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const TRANSPORTS: [u8; 3] = [132, 6, 17];
const ICMP6: u8 = 58;

pub(super) fn compile(tree: &Tree, link: Link) -> Program {
    let mut maker = Maker {
        reversed: Vec::new(),
        link,
    };
    let no = maker.put(RET_K, 0);
    let yes = maker.put(RET_K, WHOLE);
    let begin = maker.tree(tree, yes, no);
    // What nothing leads to lies before the beginning: only the returns can.
    maker.reversed.truncate(begin.0.max(yes.0) + 1);
    if begin.0 != maker.reversed.len() - 1 {
        maker.jump_always(begin);
    }
    maker.reversed.reverse();
    Program(maker.reversed)
}

/// An instruction, by its distance from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

struct Maker {
    reversed: Vec<Instruction>,
    link: Link,
}

/// Where a header is.
#[derive(Clone, Copy)]
enum HeaderOffset {
    /// From the frame's beginning.
    Fixed(u32),
    /// Behind the IPv4 header whose length is in X.
    Behind(u32),
}

impl Maker {
    fn put(&mut self, code: u16, k: u32) -> Label {
        self.reversed.push(Instruction {
            code,
            jt: 0,
            jf: 0,
            k,
        });
        Label(self.reversed.len() - 1)
    }

    /// How many instructions lie between the next one that is put and that place.
    fn distance(&self, to: Label) -> usize {
        self.reversed.len() - 1 - to.0
    }

    fn jump_always(&mut self, to: Label) -> Label {
        let distance = self.distance(to) as u32;
        self.put(JA, distance)
    }

    /// A place near enough for a conditional jump.
    fn near(&mut self, to: Label) -> Label {
        // One more instruction may come between.
        if self.distance(to) < usize::from(u8::MAX) {
            return to;
        }
        self.jump_always(to)
    }

    /// Jumps by A.
    fn test(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        let yes = self.near(yes);
        let no = self.near(no);
        let (jt, jf) = (self.distance(yes) as u8, self.distance(no) as u8);
        self.reversed.push(Instruction { code, jt, jf, k });
        Label(self.reversed.len() - 1)
    }

    fn load_and_test(
        &mut self,
        load: u16,
        at: u32,
        test: u16,
        k: u32,
        yes: Label,
        no: Label,
    ) -> Label {
        self.test(test, k, yes, no);
        self.put(load, at)
    }

    fn tree(&mut self, tree: &Tree, yes: Label, no: Label) -> Label {
        match tree {
            Tree::All => yes,
            Tree::Test(test, tags) => self.one(test, 4 * tags, yes, no),
            Tree::Not(tree) => self.tree(tree, no, yes),
            Tree::And(first, second) => {
                let second = self.tree(second, yes, no);
                self.tree(first, second, no)
            }
            Tree::Or(first, second) => {
                let second = self.tree(second, yes, no);
                self.tree(first, yes, second)
            }
        }
    }

    /// Where the EtherType is, if frames have one.
    fn type_at(&self) -> Option<u32> {
        match self.link {
            Link::Ethernet => Some(12),
            Link::Sll => Some(14),
            Link::Sll2 => Some(0),
            Link::Fddi => Some(19),
            _ => None,
        }
    }

    /// Where what the EtherType names begins.
    fn network(&self) -> u32 {
        match self.link {
            Link::Ethernet => 14,
            Link::Sll => 16,
            Link::Sll2 => 20,
            Link::Fddi => 21,
            Link::Null | Link::Ppp | Link::Hdlc => 4,
            Link::Raw | Link::Nflog | Link::Unsupported(_) => 0,
        }
    }

    fn ether_type(&mut self, number: u16, shift: u32, yes: Label, no: Label) -> Label {
        if let Some(at) = self.type_at() {
            return self.load_and_test(LD_H_ABS, at + shift, JEQ_K, number.into(), yes, no);
        }
        let version = match (number, self.link) {
            // Netfilter's log has the packet at no fixed place.
            (_, Link::Nflog | Link::Unsupported(_)) => return no,
            (IPV4, _) => 0x40,
            (IPV6, _) => 0x60,
            _ => return no,
        };
        self.test(JEQ_K, version, yes, no);
        self.put(AND_K, 0xf0);
        let network = self.network();
        self.put(LD_B_ABS, network)
    }

    fn one(&mut self, test: &Test, shift: u32, yes: Label, no: Label) -> Label {
        match *test {
            Test::Protocol(protocol) => self.protocol(protocol, shift, yes, no),
            Test::IpProtocol(version, number) => self.ip_protocol(version, number, shift, yes, no),
            Test::Net4(protocol, direction, address, mask) => {
                self.net4(protocol, direction, (address, mask), shift, yes, no)
            }
            Test::Net6(direction, address, mask) => {
                let network = self.network() + shift;
                let [from, to] = [8, 24].map(|offset| network + offset);
                let begin = self.directed(direction, yes, no, |maker, source, yes, no| {
                    let at = if source { from } else { to };
                    maker.address6(at, address, mask, yes, no)
                });
                self.ether_type(IPV6, shift, begin, no)
            }
            Test::Ports(over, direction, from, to) => {
                self.ports(over, direction, (from, to), shift, yes, no)
            }
            Test::EtherHost(direction, address) => self.ether_host(direction, address, yes, no),
            Test::EtherType(number) => self.ether_type(number, shift, yes, no),
            Test::Vlan(id) => self.vlan(id, shift, yes, no),
            Test::Less(length) => self.load_and_test(LD_LEN, 0, JGT_K, length, no, yes),
            Test::Greater(length) => self.load_and_test(LD_LEN, 0, JGE_K, length, yes, no),
            Test::Field(field) => self.field(&field, shift, yes, no),
        }
    }

    fn protocol(&mut self, protocol: Protocol, shift: u32, yes: Label, no: Label) -> Label {
        match protocol {
            Protocol::Ether => yes,
            Protocol::Ip => self.ether_type(IPV4, shift, yes, no),
            Protocol::Ip6 => self.ether_type(IPV6, shift, yes, no),
            Protocol::Arp => self.ether_type(ARP, shift, yes, no),
            Protocol::Rarp => self.ether_type(RARP, shift, yes, no),
            // Only IPv4 has ICMP, as only IPv6 has ICMPv6.
            Protocol::Over(number @ (1 | 2)) => {
                self.ip_protocol(Some(Protocol::Ip), number, shift, yes, no)
            }
            Protocol::Over(ICMP6) => self.ip_protocol(Some(Protocol::Ip6), ICMP6, shift, yes, no),
            Protocol::Over(number) => self.ip_protocol(None, number, shift, yes, no),
        }
    }

    /// IPv6 extension headers are passed as libpcap does it: a fragment header only.
    fn ip_protocol(
        &mut self,
        version: Option<Protocol>,
        number: u8,
        shift: u32,
        yes: Label,
        no: Label,
    ) -> Label {
        const FRAGMENT: u32 = 44;
        let network = self.network() + shift;
        let number = u32::from(number);
        let mut other = no;
        if version != Some(Protocol::Ip) {
            let inner = self.load_and_test(LD_B_ABS, network + 40, JEQ_K, number, yes, no);
            let fragment = self.test(JEQ_K, FRAGMENT, inner, no);
            self.test(JEQ_K, number, yes, fragment);
            let six = self.put(LD_B_ABS, network + 6);
            other = self.ether_type(IPV6, shift, six, no);
        }
        if version != Some(Protocol::Ip6) {
            let four = self.load_and_test(LD_B_ABS, network + 9, JEQ_K, number, yes, no);
            other = self.ether_type(IPV4, shift, four, other);
        }
        other
    }

    /// A test of one end, for the ends that the direction names.
    fn directed(
        &mut self,
        direction: Direction,
        yes: Label,
        no: Label,
        mut test: impl FnMut(&mut Self, bool, Label, Label) -> Label,
    ) -> Label {
        match direction {
            Direction::Source => test(self, true, yes, no),
            Direction::Destination => test(self, false, yes, no),
            Direction::Either => {
                let destination = test(self, false, yes, no);
                test(self, true, yes, destination)
            }
            Direction::Both => {
                let destination = test(self, false, yes, no);
                test(self, true, destination, no)
            }
        }
    }

    fn address4(&mut self, at: u32, (address, mask): (u32, u32), yes: Label, no: Label) -> Label {
        self.test(JEQ_K, address, yes, no);
        if mask != u32::MAX {
            self.put(AND_K, mask);
        }
        self.put(LD_W_ABS, at)
    }

    fn address6(
        &mut self,
        at: u32,
        address: [u32; 4],
        mask: [u32; 4],
        yes: Label,
        no: Label,
    ) -> Label {
        let mut next = yes;
        for part in (0..4).rev().filter(|part| mask[*part] != 0) {
            let word = (address[part], mask[part]);
            next = self.address4(at + 4 * part as u32, word, next, no);
        }
        next
    }

    fn net4(
        &mut self,
        protocol: Option<Protocol>,
        direction: Direction,
        net: (u32, u32),
        shift: u32,
        yes: Label,
        no: Label,
    ) -> Label {
        let network = self.network() + shift;
        let all = [
            (Protocol::Rarp, RARP, [14, 24]),
            (Protocol::Arp, ARP, [14, 24]),
            (Protocol::Ip, IPV4, [12, 16]),
        ];
        let mut next = no;
        for (of, number, [from, to]) in all {
            if protocol.is_some_and(|protocol| protocol != of) {
                continue;
            }
            let begin = self.directed(direction, yes, no, |maker, source, yes, no| {
                let at = network + if source { from } else { to };
                maker.address4(at, net, yes, no)
            });
            next = self.ether_type(number, shift, begin, next);
        }
        next
    }

    fn ports(
        &mut self,
        over: Option<u8>,
        direction: Direction,
        range: (u16, u16),
        shift: u32,
        yes: Label,
        no: Label,
    ) -> Label {
        let network = self.network() + shift;
        let begin = self.ports_at(HeaderOffset::Fixed(network + 40), direction, range, yes, no);
        self.transport(over, begin, no);
        let six = self.put(LD_B_ABS, network + 6);
        let six = self.ether_type(IPV6, shift, six, no);
        let begin = self.ports_at(HeaderOffset::Behind(network), direction, range, yes, no);
        let begin = self.behind_ipv4(network, begin, no);
        self.transport(over, begin, no);
        let four = self.put(LD_B_ABS, network + 9);
        self.ether_type(IPV4, shift, four, six)
    }

    /// X becomes the header's length, if this is the first fragment.
    fn behind_ipv4(&mut self, network: u32, then: Label, no: Label) -> Label {
        debug_assert_eq!(self.distance(then), 0, "it must come next");
        let length = self.put(LDX_MSH, network);
        self.load_and_test(LD_H_ABS, network + 6, JSET_K, 0x1fff, no, length)
    }

    /// A is the protocol over IP.
    fn transport(&mut self, over: Option<u8>, yes: Label, no: Label) -> Label {
        match over {
            Some(number) => self.test(JEQ_K, number.into(), yes, no),
            None => TRANSPORTS.iter().fold(no, |no, number| {
                self.test(JEQ_K, u32::from(*number), yes, no)
            }),
        }
    }

    fn ports_at(
        &mut self,
        at: HeaderOffset,
        direction: Direction,
        (from, to): (u16, u16),
        yes: Label,
        no: Label,
    ) -> Label {
        self.directed(direction, yes, no, |maker, source, yes, no| {
            if from == to {
                maker.test(JEQ_K, from.into(), yes, no);
            } else {
                let below = maker.test(JGT_K, to.into(), no, yes);
                maker.test(JGE_K, from.into(), below, no);
            }
            let offset = if source { 0 } else { 2 };
            match at {
                HeaderOffset::Fixed(at) => maker.put(LD_H_ABS, at + offset),
                HeaderOffset::Behind(at) => maker.put(LD_H_IND, at + offset),
            }
        })
    }

    fn ether_host(
        &mut self,
        direction: Direction,
        address: [u8; 6],
        yes: Label,
        no: Label,
    ) -> Label {
        if self.link != Link::Ethernet {
            return no;
        }
        let [a, b, c, d, e, f] = address;
        self.directed(direction, yes, no, |maker, source, yes, no| {
            let at = if source { 6 } else { 0 };
            let low = u32::from_be_bytes([c, d, e, f]);
            let high = u32::from(u16::from_be_bytes([a, b]));
            let high = maker.load_and_test(LD_H_ABS, at, JEQ_K, high, yes, no);
            maker.load_and_test(LD_W_ABS, at + 2, JEQ_K, low, high, no)
        })
    }

    fn vlan(&mut self, id: Option<u16>, shift: u32, yes: Label, no: Label) -> Label {
        let Some(at) = self.type_at() else {
            return no;
        };
        let mut tagged = yes;
        if let Some(id) = id {
            self.test(JEQ_K, id.into(), yes, no);
            self.put(AND_K, 0x0fff);
            tagged = self.put(LD_H_ABS, at + shift + 2);
        }
        let mut next = no;
        for tag in TAGS {
            next = self.test(JEQ_K, tag.into(), tagged, next);
        }
        self.put(LD_H_ABS, at + shift)
    }

    fn field(&mut self, field: &Field, shift: u32, yes: Label, no: Label) -> Label {
        let network = self.network() + shift;
        match field.of {
            Protocol::Ether => self.compare(field, HeaderOffset::Fixed(0), yes, no),
            Protocol::Over(ICMP6) => {
                let begin = self.compare(field, HeaderOffset::Fixed(network + 40), yes, no);
                self.ip_protocol(Some(Protocol::Ip6), ICMP6, shift, begin, no)
            }
            Protocol::Over(number) => {
                let begin = self.compare(field, HeaderOffset::Behind(network), yes, no);
                let begin = self.behind_ipv4(network, begin, no);
                self.ip_protocol(Some(Protocol::Ip), number, shift, begin, no)
            }
            protocol => {
                let begin = self.compare(field, HeaderOffset::Fixed(network), yes, no);
                self.protocol(protocol, shift, begin, no)
            }
        }
    }

    fn compare(&mut self, field: &Field, at: HeaderOffset, yes: Label, no: Label) -> Label {
        let (code, yes, no) = match field.comparison {
            Comparison::Equal => (JEQ_K, yes, no),
            Comparison::NotEqual => (JEQ_K, no, yes),
            Comparison::Greater => (JGT_K, yes, no),
            Comparison::LessOrEqual => (JGT_K, no, yes),
            Comparison::GreaterOrEqual => (JGE_K, yes, no),
            Comparison::Less => (JGE_K, no, yes),
        };
        self.test(code, field.value, yes, no);
        if let Some(mask) = field.mask {
            self.put(AND_K, mask);
        }
        let fixed = matches!(at, HeaderOffset::Fixed(_));
        let load = match (field.size, fixed) {
            (1, true) => LD_B_ABS,
            (1, false) => LD_B_IND,
            (2, true) => LD_H_ABS,
            (2, false) => LD_H_IND,
            (_, true) => LD_W_ABS,
            (_, false) => LD_W_IND,
        };
        let (HeaderOffset::Fixed(at) | HeaderOffset::Behind(at)) = at;
        self.put(load, at + field.offset)
    }
}
