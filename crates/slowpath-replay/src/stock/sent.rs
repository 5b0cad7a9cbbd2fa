// SPDX-License-Identifier: Apache-2.0
//! An end's own packets, and how its peer's events name them.

use super::event::Name;
use super::named::Named;
use crate::recording::Packet;
use std::collections::HashMap;

/// More ACKs are not sent in time wait: a minute, and one each half second (`tcp_invalid_ratelimit`).
const MOST_AFTER: usize = 1024;

/// Bytes of an entry of a hash table, its control byte included, of packets' numbers.
const NUMBER: usize = 17;

/// Packets that one is cut into at most (`GSO_LEGACY_MAX_SIZE`, in segments of 536 bytes): each has the identification behind the one before.
const MOST_PIECES: u16 = 122;

/// A packet that came: which of those that were sent, and if it is only a piece of it, so many bytes of it are before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Came {
    pub number: u32,
    pub piece: Option<u32>,
}

impl Came {
    pub(super) fn whole(number: u32) -> Came {
        Came {
            number,
            piece: None,
        }
    }
}

/// One that was sent.
#[derive(Clone, Copy)]
struct Numbered {
    number: u32,
    begins: u32,
    length: u32,
}

impl Numbered {
    /// Of those sequence numbers.
    fn came(self, [from, to]: [u32; 2]) -> Came {
        let shorter = from != to && to.wrapping_sub(from) < self.length;
        Came {
            number: self.number,
            piece: shorter.then(|| from.wrapping_sub(self.begins)),
        }
    }
}

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
    /// Their numbers and sequence numbers, by IP identification.
    numbers: HashMap<u16, Numbered>,
    /// Over IPv6.
    named: Named,
    /// Those that it sent when it had no socket any more.
    after: Vec<After>,
}

impl Sent {
    /// Over IPv6 each call takes another of those that look the same.
    pub(super) fn number(&self, name: Name) -> Option<Came> {
        match name.like {
            0 => self
                .numbers
                .get(&name.id)
                .map(|it| it.came(name.stretch))
                .or_else(|| self.piece(name)),
            like => self.named.came(like, name.at).map(Came::whole),
        }
    }

    /// Something on the way cut what was sent as one (`skb_gso_segment`): its head has that one's identification, the others have those behind it.
    fn piece(&self, name: Name) -> Option<Came> {
        let [from, to] = name.stretch;
        (1..MOST_PIECES).find_map(|further| {
            let whole = self.numbers.get(&name.id.wrapping_sub(further))?;
            let before = from.wrapping_sub(whole.begins);
            let inside = from != to
                && before > 0
                && u64::from(before) + u64::from(to.wrapping_sub(from)) <= u64::from(whole.length);
            inside.then_some(Came {
                number: whole.number,
                piece: Some(before),
            })
        })
    }

    /// What no socket sends has 0 for an identification, which one of these may have as well.
    pub(super) fn packet(&self, name: Name, acknowledges: u32) -> Option<Came> {
        let Name {
            id,
            like,
            at,
            stretch,
        } = name;
        let [sequence, _] = stretch;
        let ours = if like != 0 {
            self.named.came(like, at).map(Came::whole)
        } else {
            let known = self.numbers.get(&id);
            let known = known.filter(|it| it.begins == sequence);
            let known = known.map(|it| it.came(stretch));
            known.or_else(|| self.piece(name))
        };
        let unknown = like != 0 || id == 0;
        let after = self.after.iter().rfind(|after| {
            unknown && after.begins == sequence && after.acknowledges == acknowledges
        });
        ours.or(after.map(|after| Came::whole(after.number)))
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
        let numbered = Numbered {
            number: self.count,
            begins: packet.begins,
            length: packet.length,
        };
        self.numbers.insert(packet.id, numbered);
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
    use super::{Came, Name, Packet, Sent};

    fn id(id: u16, begins: u32) -> Name {
        Name {
            id,
            like: 0,
            at: 9,
            stretch: [begins; 2],
        }
    }

    fn whole(number: u32) -> Option<Came> {
        Some(Came::whole(number))
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
        assert_eq!(sent.packet(id(7, 1000), 50), whole(1));
        assert_eq!(sent.packet(id(0, 2000), 50), whole(2));
        assert_eq!(sent.packet(id(0, 2000), 51), whole(3));
        assert_eq!(sent.packet(id(0, 2000), 52), None);
        assert_eq!(sent.packet(id(0, 1000), 50), None);
    }

    #[test]
    fn a_socket_gives_the_identification_0_as_well() {
        let mut sent = Sent::default();
        sent.sent(packet(0, 1000));
        sent.after(2000, 50, 0);
        assert_eq!(sent.packet(id(0, 1000), 9), whole(0));
        assert_eq!(sent.packet(id(0, 2000), 50), whole(1));
    }

    /// Neither time wait nor a reset has a socket that would tell what it looks like.
    #[test]
    fn over_ipv6_what_no_socket_sends_is_known_by_its_numbers() {
        let mut sent = Sent::new(1);
        sent.sent(packet(0, 1000));
        sent.looks(77, 5);
        sent.after(2000, 50, 0);
        let like = |like, begins| Name {
            like,
            ..id(0, begins)
        };
        assert_eq!(sent.packet(like(77, 1000), 9), whole(1));
        assert_eq!(sent.packet(like(78, 2000), 50), whole(2));
        assert_eq!(sent.packet(like(78, 1000), 50), None);
    }

    /// RFC 791: a packet has the next identification. 4,000 bytes from sequence number 1,000 on were sent as one and cut into pieces of 1,500, 1,500 and 1,000.
    #[test]
    fn pieces_are_known_by_the_packet_that_was_cut() {
        let mut sent = Sent::default();
        let first = packet(7, 1000);
        sent.sent(Packet {
            length: 4000,
            ..first
        });
        sent.sent(packet(10, 5000));
        let came = |id, from: u32, length| Name {
            id,
            like: 0,
            at: 9,
            stretch: [from, from + length],
        };
        let piece = |before| {
            Some(Came {
                number: 0,
                piece: Some(before),
            })
        };
        assert_eq!(sent.packet(came(7, 1000, 4000), 0), whole(0));
        assert_eq!(sent.packet(came(7, 1000, 1500), 0), piece(0));
        assert_eq!(sent.packet(came(8, 2500, 1500), 0), piece(1500));
        assert_eq!(sent.number(came(9, 4000, 1000)), piece(3000));
        // Neither beyond its end nor an identification before it.
        assert_eq!(sent.packet(came(9, 4000, 1001), 0), None);
        assert_eq!(sent.packet(came(6, 1000, 1500), 0), None);
        assert_eq!(sent.packet(came(10, 5000, 0), 0), whole(1));
    }
}
