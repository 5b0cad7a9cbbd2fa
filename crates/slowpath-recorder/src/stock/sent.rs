// SPDX-License-Identifier: Apache-2.0
//! An end's own packets, and how its peer's events name them.

use super::event::Name;
use super::likeness::Likenesses;
use slowpath_recording::{Outcome, Packet, Stretch};
use std::collections::HashMap;

/// More ACKs are not sent in time wait: a minute, and one each half second (`tcp_invalid_ratelimit`).
const MOST_AFTER: usize = 1024;

/// Bytes of an entry of a hash table, its control byte included, of packets' numbers.
const NUMBER: usize = 17;

/// Packets that one is cut into at most (`GSO_LEGACY_MAX_SIZE`, in segments of 536 bytes): each has the identification behind the one before.
const MOST_PIECES: u16 = 122;

/// Which of the sent packets one that arrived is; if it is only a piece of it, how many bytes of it are before; and what it holds, if that reaches further than one packet or piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketMatch {
    pub number: u32,
    pub piece: Option<u32>,
    pub joined: Option<Stretch>,
}

impl PacketMatch {
    pub(super) fn whole(number: u32) -> PacketMatch {
        PacketMatch {
            number,
            piece: None,
            joined: None,
        }
    }

    /// What is recorded of it besides its number, with its place among those that were merged in the backlog.
    pub(super) fn outcomes(self, place: u32) -> impl Iterator<Item = Outcome> {
        let piece = self.piece.map(|offset| Outcome::Piece {
            packet: place,
            offset,
        });
        let joined = self.joined.map(|stretch| Outcome::Joined {
            packet: place,
            stretch,
        });
        piece.into_iter().chain(joined)
    }

    pub(super) fn is_whole(self) -> bool {
        self == PacketMatch::whole(self.number)
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
    fn ends(self) -> u32 {
        self.begins.wrapping_add(self.length)
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
    named: Likenesses,
    /// Those that it sent when it had no socket any more.
    after: Vec<After>,
}

impl Sent {
    /// Over IPv6 each call takes another of those that look the same.
    pub(super) fn number(&self, name: Name) -> Option<PacketMatch> {
        match name.like {
            0 => self
                .numbers
                .get(&name.id)
                .and_then(|it| self.stretch(*it, name, 0))
                .or_else(|| self.piece(name)),
            _ => self.alike(name),
        }
    }

    /// Over IPv6; what was copied, or cut and joined again, looks as before.
    fn alike(&self, name: Name) -> Option<PacketMatch> {
        let number = self.named.came(name.like, name.at)?;
        let [from, to] = name.stretch;
        let stretch = Stretch::new(to.wrapping_sub(from), 0);
        let own = name.own && from != to;
        Some(PacketMatch {
            joined: stretch.filter(|_| own),
            ..PacketMatch::whole(number)
        })
    }

    /// Something on the way cut what was sent as one (`skb_gso_segment`): its head has that one's identification, the others have those behind it.
    fn piece(&self, name: Name) -> Option<PacketMatch> {
        let [from, to] = name.stretch;
        (1..MOST_PIECES).find_map(|further| {
            let whole = *self.numbers.get(&name.id.wrapping_sub(further))?;
            let before = from.wrapping_sub(whole.begins);
            let inside = from != to && before > 0 && before < whole.length;
            inside.then(|| self.stretch(whole, name, further))?
        })
    }

    /// What begins in that one, with `pieces` of it before. `None`: it reaches further than what was sent behind it.
    fn stretch(&self, head: Numbered, name: Name, pieces: u16) -> Option<PacketMatch> {
        let [from, to] = name.stretch;
        let before = from.wrapping_sub(head.begins);
        let length = to.wrapping_sub(from);
        let whole = before == 0 && length == head.length;
        // It is not known how much of it arrived, or it is what was sent.
        if from == to || whole && !name.own {
            return Some(PacketMatch::whole(head.number));
        }
        let further = self.further(head, name.id.wrapping_sub(pieces), to)?;
        let joined = Stretch::new(length, further)?;
        let piece = !whole && (further == 0 || before > 0);
        Some(PacketMatch {
            number: head.number,
            piece: piece.then_some(before),
            joined: (whole || name.several || further > 0).then_some(joined),
        })
    }

    /// How many behind that one are in what ends there: each follows the one before, which has the identifications up to its own.
    fn further(&self, head: Numbered, mut id: u16, to: u32) -> Option<u32> {
        let mut last = head;
        while (to.wrapping_sub(last.ends()) as i32) > 0 {
            let mut behind = (1..=MOST_PIECES).map(|further| id.wrapping_add(further));
            let next = |it: &Numbered| {
                it.number == last.number + 1 && it.begins == last.ends() && it.length > 0
            };
            id = behind.find(|id| self.numbers.get(id).is_some_and(next))?;
            last = *self.numbers.get(&id)?;
        }
        Some(last.number - head.number)
    }

    /// What no socket sends has 0 for an identification, which one of these may have as well.
    pub(super) fn packet(&self, name: Name, acknowledges: u32) -> Option<PacketMatch> {
        let Name { id, like, .. } = name;
        let [sequence, _] = name.stretch;
        let ours = if like != 0 {
            self.alike(name)
        } else {
            let known = self.numbers.get(&id);
            let known = known.filter(|it| it.begins == sequence);
            let known = known.and_then(|it| self.stretch(*it, name, 0));
            known.or_else(|| self.piece(name))
        };
        let unknown = like != 0 || id == 0;
        let after = self.after.iter().rfind(|after| {
            unknown && after.begins == sequence && after.acknowledges == acknowledges
        });
        ours.or(after.map(|after| PacketMatch::whole(after.number)))
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

    /// From now on only numbers are needed.
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
    use super::{Name, Packet, PacketMatch, Sent, Stretch};

    fn named(id: u16, from: u32, to: u32) -> Name {
        Name {
            id,
            like: 0,
            at: 9,
            stretch: [from, to],
            several: false,
            own: false,
        }
    }

    fn id(id: u16, begins: u32) -> Name {
        named(id, begins, begins)
    }

    fn several(id: u16, from: u32, to: u32) -> Name {
        Name {
            several: true,
            own: true,
            ..named(id, from, to)
        }
    }

    fn joined(number: u32, piece: Option<u32>, length: u32, further: u32) -> Option<PacketMatch> {
        let joined = Stretch::new(length, further);
        Some(PacketMatch {
            number,
            piece,
            joined,
        })
    }

    fn whole(number: u32) -> Option<PacketMatch> {
        Some(PacketMatch::whole(number))
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
    fn answers_of_time_wait_are_distinguished_by_what_they_acknowledge() {
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

    /// Neither time wait nor a reset has a socket that would give its likeness.
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
        let came = |id, from: u32, length| named(id, from, from + length);
        let piece = |before| {
            Some(PacketMatch {
                piece: Some(before),
                ..PacketMatch::whole(0)
            })
        };
        assert_eq!(sent.packet(came(7, 1000, 4000), 0), whole(0));
        assert_eq!(sent.packet(came(7, 1000, 1500), 0), piece(0));
        assert_eq!(sent.packet(came(8, 2500, 1500), 0), piece(1500));
        assert_eq!(sent.number(came(9, 4000, 1000)), piece(3000));
        // Joined again: two, the last two, or all; these were not cut if their sender has the same bytes.
        let two = sent.packet(several(7, 1000, 4000), 0);
        assert_eq!(two, joined(0, Some(0), 3000, 0));
        let last = sent.packet(several(8, 2500, 5000), 0);
        assert_eq!(last, joined(0, Some(1500), 2500, 0));
        let all = several(7, 1000, 5000);
        assert_eq!(sent.packet(all, 0), joined(0, None, 4000, 0));
        let never_cut = Name { own: false, ..all };
        assert_eq!(sent.packet(never_cut, 0), whole(0));
        // Neither beyond its end nor an identification before it.
        assert_eq!(sent.packet(came(9, 4000, 1001), 0), None);
        assert_eq!(sent.packet(came(6, 1000, 1500), 0), None);
        assert_eq!(sent.packet(came(10, 5000, 0), 0), whole(1));
    }

    /// Packets that follow each other, with identifications that do, are made one: two of 1,500 bytes, and one of 4,000 that was cut; then one whose
    /// sequence numbers go back, and an acknowledgment.
    #[test]
    fn what_is_joined_reaches_into_the_packets_behind() {
        let mut sent = Sent::new(1);
        for (id, begins, length) in [
            (7, 1000, 1500),
            (8, 2500, 1500),
            (9, 4000, 4000),
            (12, 1000, 1500),
            (13, 8000, 0),
            (14, 8000, 10),
        ] {
            sent.sent(Packet {
                length,
                ..packet(id, begins)
            });
        }
        let came = several;
        let two = sent.packet(came(7, 1000, 4000), 0);
        assert_eq!(two, joined(1, None, 3000, 1));
        let two_and_a_piece = sent.packet(came(7, 1000, 5500), 0);
        assert_eq!(two_and_a_piece, joined(1, None, 4500, 2));
        let two = sent.number(came(8, 2500, 8000));
        assert_eq!(two, joined(2, None, 5500, 1));
        // From the second piece of the third on there is nothing behind: neither what goes back nor what has another packet between.
        assert_eq!(sent.packet(came(10, 5500, 8001), 0), None);
        assert_eq!(sent.packet(came(7, 1000, 9000), 0), None);
        // 2^20 is more than any kernel joins.
        sent.sent(Packet {
            length: 1 << 20,
            ..packet(15, 8010)
        });
        assert_eq!(sent.packet(came(14, 8000, 8010 + (1 << 20)), 0), None);
        let most = (1 << 20) - 1;
        let last = came(14, 8000, 8000 + most);
        assert_eq!(sent.packet(last, 0), joined(6, None, most, 1));
    }
}
