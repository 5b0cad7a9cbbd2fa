// SPDX-License-Identifier: Apache-2.0
//! An end's own packets, and how its peer's events name them.

use std::collections::HashMap;

/// More ACKs are not sent in time wait: a minute, and one each half second (`tcp_invalid_ratelimit`).
const MOST_AFTER: usize = 1024;

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
    /// Their numbers and the sequence numbers they begin with, by IP identification.
    pub(super) numbers: HashMap<u16, (u32, u32)>,
    /// Those that it sent when it had no socket any more.
    after: Vec<After>,
}

impl Sent {
    pub(super) fn number(&self, id: u16) -> Option<u32> {
        Some(self.numbers.get(&id)?.0)
    }

    /// What no socket sends has 0 for an identification, which one of these may have as well.
    pub(super) fn packet(&self, id: u16, sequence: u32, acknowledges: u32) -> Option<u32> {
        let known = self.numbers.get(&id).copied();
        let ours = known.filter(|(_, begins)| *begins == sequence);
        let after = self.after.iter().rfind(|after| {
            id == 0 && after.begins == sequence && after.acknowledges == acknowledges
        });
        let ours = ours.map(|(number, _)| number);
        ours.or(after.map(|after| after.number))
    }

    /// `answers`: SYN-ACKs, which no socket sends.
    pub(super) fn new(answers: u32) -> Sent {
        Sent {
            count: answers,
            ..Sent::default()
        }
    }

    /// One more.
    pub(super) fn sent(&mut self, id: u16, begins: u32) {
        self.numbers.insert(id, (self.count, begins));
        self.count += 1;
    }

    /// One more that no socket sent.
    pub(super) fn after(&mut self, begins: u32, acknowledges: u32) {
        if self.after.len() < MOST_AFTER {
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
    use super::Sent;

    /// RFC 9293, 3.10.7.4: in time wait each segment of the peer is answered by what has been received until then.
    #[test]
    fn answers_of_time_wait_are_told_apart_by_what_they_acknowledge() {
        let mut sent = Sent::new(1);
        sent.sent(7, 1000);
        sent.after(2000, 50);
        sent.after(2000, 51);
        assert_eq!(sent.packet(7, 1000, 50), Some(1));
        assert_eq!(sent.packet(0, 2000, 50), Some(2));
        assert_eq!(sent.packet(0, 2000, 51), Some(3));
        assert_eq!(sent.packet(0, 2000, 52), None);
        assert_eq!(sent.packet(0, 1000, 50), None);
    }

    #[test]
    fn a_socket_gives_the_identification_0_as_well() {
        let mut sent = Sent::default();
        sent.sent(0, 1000);
        sent.after(2000, 50);
        assert_eq!(sent.packet(0, 1000, 9), Some(0));
        assert_eq!(sent.packet(0, 2000, 50), Some(1));
    }
}
