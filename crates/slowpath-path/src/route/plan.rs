// SPDX-License-Identifier: Apache-2.0
//! What is probed next: plans decide it from the answers so far, without sockets and clocks.

use super::result::Label;
use std::collections::VecDeque;
use std::net::IpAddr;

/// A probe. A flow has at most one under way, so that an answer that quotes no more than the ports (RFC 792: eight
/// octets behind the IP header) belongs to it for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The flow's number, from 0 on without gaps.
    pub flow: usize,
    /// Time to live.
    pub ttl: u8,
    /// Octets of the IP packet; `None`: small.
    pub size: Option<u16>,
}

impl Probe {
    /// A small one.
    #[must_use]
    pub fn small(flow: usize, ttl: u8) -> Self {
        Probe {
            flow,
            ttl,
            size: None,
        }
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// The time to live ran out.
    Expired,
    /// The packet was too large for the next link, with its MTU in octets; 0: the router did not say
    /// (RFC 1191 section 5).
    TooBig(u32),
    /// It reached the destination.
    Destination,
    /// A router refuses to pass it on.
    Refused,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Who sent it.
    pub from: IpAddr,
    /// What it says.
    pub kind: ReplyKind,
    /// From when the probe left until the answer arrived, ns; `None`: not known.
    pub rtt: Option<u64>,
    /// The octet that was called TOS, as the router received it; `None`: not readable.
    pub tos: Option<u8>,
    /// MPLS labels with which the probe arrived.
    pub mpls: Vec<Label>,
}

impl Reply {
    /// Whether the flow goes no further.
    #[must_use]
    pub fn ends(&self) -> bool {
        matches!(self.kind, ReplyKind::Destination | ReplyKind::Refused)
    }
}

/// What a plan wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This probe.
    Probe(Probe),
    /// Nothing before this time, or before an answer comes; `i64::MAX`: an answer only.
    Wait(i64),
    /// Nothing more, whatever still comes.
    Done,
}

/// Decides what is probed. Times are nanoseconds on any clock that does not go back.
pub trait Plan {
    /// What is wanted now. A probe that is returned is under way until one of the other two is called for it.
    fn next(&mut self, now: i64) -> Next;
    /// The answer to a probe.
    fn answered(&mut self, probe: Probe, reply: &Reply, now: i64);
    /// A probe got no answer in time.
    fn unanswered(&mut self, probe: Probe, now: i64);
}

/// A list of probes, each repeated until it is answered or has been sent so often.
#[derive(Debug)]
pub struct Listed {
    waiting: VecDeque<(Probe, u8, i64)>,
    under_way: Vec<Probe>,
    tries: u8,
    /// From an unanswered probe to its repetition, ns.
    pause: i64,
}

impl Listed {
    /// `tries`: how often a probe is sent at the most.
    #[must_use]
    pub fn new(probes: impl IntoIterator<Item = Probe>, tries: u8, pause: i64) -> Self {
        Listed {
            waiting: probes.into_iter().map(|probe| (probe, 1, 0)).collect(),
            under_way: Vec::new(),
            tries,
            pause,
        }
    }

    fn end(&mut self, probe: Probe) {
        if let Some(at) = self.under_way.iter().position(|other| *other == probe) {
            self.under_way.swap_remove(at);
        }
    }
}

impl Plan for Listed {
    fn next(&mut self, now: i64) -> Next {
        let busy = |flow: usize| self.under_way.iter().any(|probe| probe.flow == flow);
        let ready = self
            .waiting
            .iter()
            .position(|(probe, _, due)| *due <= now && !busy(probe.flow));
        if let Some((probe, count, due)) = ready.and_then(|at| self.waiting.remove(at)) {
            self.under_way.push(probe);
            if count < self.tries {
                // Stays in the list until it is answered.
                self.waiting.push_back((probe, count + 1, due.max(now)));
            }
            return Next::Probe(probe);
        }
        let due = self.waiting.iter().map(|(_, _, due)| *due);
        match (self.waiting.is_empty(), self.under_way.is_empty()) {
            (true, true) => Next::Done,
            (_, false) => Next::Wait(i64::MAX),
            (false, true) => Next::Wait(due.min().unwrap_or(i64::MAX)),
        }
    }

    fn answered(&mut self, probe: Probe, _: &Reply, _: i64) {
        self.end(probe);
        if self.tries > 1 {
            self.waiting.retain(|(other, _, _)| *other != probe);
        }
    }

    fn unanswered(&mut self, probe: Probe, now: i64) {
        self.end(probe);
        for (_, _, due) in self.waiting.iter_mut().filter(|(p, ..)| *p == probe) {
            *due = now + self.pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn expired(last: u8) -> Reply {
        Reply {
            from: IpAddr::from([192, 0, 2, last]),
            kind: ReplyKind::Expired,
            rtt: None,
            tos: None,
            mpls: Vec::new(),
        }
    }

    #[test]
    fn a_list_repeats_what_is_not_answered_and_nothing_else() {
        let (one, two) = (Probe::small(0, 1), Probe::small(0, 2));
        let mut list = Listed::new([one, two], 2, 100);
        assert_eq!(list.next(0), Next::Probe(one));
        assert_eq!(list.next(0), Next::Wait(i64::MAX), "the flow is under way");
        list.answered(one, &expired(1), 5);
        assert_eq!(list.next(5), Next::Probe(two));
        list.unanswered(two, 10);
        assert_eq!(list.next(10), Next::Wait(110));
        assert_eq!(list.next(110), Next::Probe(two));
        list.unanswered(two, 120);
        assert_eq!(list.next(120), Next::Done, "twice is enough");
    }

    #[test]
    fn a_list_without_repetition_sends_equal_probes_each() {
        let mut list = Listed::new([Probe::small(0, 3); 2], 1, 0);
        for _ in 0..2 {
            assert_eq!(list.next(0), Next::Probe(Probe::small(0, 3)));
            list.answered(Probe::small(0, 3), &expired(1), 0);
        }
        assert_eq!(list.next(0), Next::Done);
    }
}
