// SPDX-License-Identifier: Apache-2.0
//! An end's own packets, and how its peer's events name them.

use super::event::Name;
use super::named::Named;
use crate::recording::Packet;
use std::collections::HashMap;

/// More ACKs are not sent in time wait: a minute, and one each half second (`tcp_invalid_ratelimit`).
const MOST_AFTER: usize = 1024;

/// Bytes of an entry of a hash table, its control byte included, of packets' numbers.
const NUMBER: usize = 13;

/// An ACK of time wait.
#[derive(Clone, Copy)]
struct After {
    number: u32,
    begins: u32,
    acknowledges: u32,
}

/// An end's own packets.
#[derive(Clone, Default)]
pub(super) struct Sent {
    count: u32,
    /// All that were not handed out, as long as the other end is not known to be here.
    log: Option<Vec<Packet>>,
    /// Their numbers and the sequence numbers they begin with, by IP identification.
    numbers: HashMap<u16, (u32, u32)>,
    /// Over IPv6.
    named: Named,
    /// Those that it sent when it had no socket any more.
    after: Vec<After>,
}

impl Sent {
    /// Over IPv6 each call takes another of those that look the same.
    pub(super) fn number(&self, name: Name) -> Option<u32> {
        match name.like {
            0 => Some(self.numbers.get(&name.id)?.0),
            like => self.named.came(like, name.at),
        }
    }

    /// What no socket sends has 0 for an identification, which one of these may have as well.
    pub(super) fn packet(&self, name: Name, sequence: u32, acknowledges: u32) -> Option<u32> {
        let Name { id, like, at } = name;
        let ours = if like != 0 {
            self.named.came(like, at)
        } else {
            let known = self.numbers.get(&id).copied();
            let known = known.filter(|(_, begins)| *begins == sequence);
            known.map(|(number, _)| number)
        };
        let unknown = like != 0 || id == 0;
        let after = self.after.iter().rfind(|after| {
            unknown && after.begins == sequence && after.acknowledges == acknowledges
        });
        ours.or(after.map(|after| after.number))
    }

    /// `answers`: SYN-ACKs, which no socket sends.
    pub(super) fn new(answers: u32) -> Sent {
        Sent {
            count: answers,
            log: Some(Vec::new()),
            ..Sent::default()
        }
    }

    fn note(&mut self, packet: Packet) {
        if let Some(log) = &mut self.log {
            log.push(packet);
        }
    }

    /// Nobody will ask for more than numbers.
    pub(super) fn forget(&mut self) {
        self.log = None;
    }

    /// The sequence number of the first one that is there.
    pub(super) fn first(&self) -> Option<u32> {
        Some(self.log.as_ref()?.first()?.begins)
    }

    /// Those that were not handed out; without `all` but the last one, of which over IPv6 the next event says what it looks like.
    pub(super) fn take(&mut self, all: bool) -> Vec<Packet> {
        let Some(log) = &mut self.log else {
            return Vec::new();
        };
        let last = log.len().saturating_sub(1);
        let keep = log.split_off(if all { log.len() } else { last });
        std::mem::replace(log, keep)
    }

    /// A SYN-ACK, which was counted before.
    pub(super) fn answered(&mut self, packet: Packet) {
        self.note(packet);
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let log = self.log.as_ref().map_or(0, Vec::capacity) * size_of::<Packet>();
        self.numbers.capacity() * NUMBER + self.named.bytes() + log
    }

    /// What was sent last looks like this.
    pub(super) fn looks(&mut self, like: u32, at: u64) {
        if let Some(number) = self.count.checked_sub(1) {
            self.named.sent(like, number, at);
        }
        if let Some(last) = self.log.as_mut().and_then(|log| log.last_mut()) {
            last.mark = like;
        }
    }

    /// One more.
    pub(super) fn sent(&mut self, packet: Packet) {
        let begins = packet.begins;
        self.numbers.insert(packet.id, (self.count, begins));
        self.count += 1;
        self.note(packet);
    }

    /// One more that no socket sent, in that run.
    pub(super) fn after(&mut self, begins: u32, acknowledges: u32, run: usize) {
        if self.after.len() < MOST_AFTER {
            self.note(Packet {
                run: run as u64,
                begins,
                mark: acknowledges,
                ..Packet::default()
            });
            self.after.push(After {
                number: self.count,
                begins,
                acknowledges,
            });
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, Packet, Sent};

    fn id(id: u16) -> Name {
        Name { id, like: 0, at: 9 }
    }

    fn packet(id: u16, begins: u32) -> Packet {
        Packet {
            id,
            begins,
            ..Packet::default()
        }
    }

    /// RFC 9293, 3.10.7.4: in time wait each segment of the peer is answered by what has been received until then.
    #[test]
    fn answers_of_time_wait_are_told_apart_by_what_they_acknowledge() {
        let mut sent = Sent::new(1);
        sent.sent(packet(7, 1000));
        sent.after(2000, 50, 0);
        sent.after(2000, 51, 0);
        assert_eq!(sent.packet(id(7), 1000, 50), Some(1));
        assert_eq!(sent.packet(id(0), 2000, 50), Some(2));
        assert_eq!(sent.packet(id(0), 2000, 51), Some(3));
        assert_eq!(sent.packet(id(0), 2000, 52), None);
        assert_eq!(sent.packet(id(0), 1000, 50), None);
    }

    #[test]
    fn a_socket_gives_the_identification_0_as_well() {
        let mut sent = Sent::default();
        sent.sent(packet(0, 1000));
        sent.after(2000, 50, 0);
        assert_eq!(sent.packet(id(0), 1000, 9), Some(0));
        assert_eq!(sent.packet(id(0), 2000, 50), Some(1));
    }

    /// Neither time wait nor a reset has a socket that would tell what it looks like.
    #[test]
    fn over_ipv6_what_no_socket_sends_is_known_by_its_numbers() {
        let mut sent = Sent::new(1);
        sent.sent(packet(0, 1000));
        sent.looks(77, 5);
        sent.after(2000, 50, 0);
        let like = |like| Name { id: 0, like, at: 9 };
        assert_eq!(sent.packet(like(77), 1000, 9), Some(1));
        assert_eq!(sent.packet(like(78), 2000, 50), Some(2));
        assert_eq!(sent.packet(like(78), 1000, 50), None);
    }
}
