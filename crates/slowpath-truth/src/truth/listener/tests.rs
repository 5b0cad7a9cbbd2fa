// SPDX-License-Identifier: Apache-2.0
//! Handshakes written down packet by packet.

use super::*;
use crate::truth::Label;

const LOCAL: &str = "10.0.0.2:80";

fn client(number: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.1".parse().unwrap(), 1000 + number)
}

fn packet(ms: u64, from: SocketAddr, to: SocketAddr, flags: u8) -> Packet {
    Packet {
        at: ms * 1_000_000,
        from,
        to,
        seq: 0,
        ack: 0,
        window: 0,
        flags,
        payload: 0,
        ce: false,
        tsval: None,
        scale: None,
        sack: [(0, 0); 4],
        sacks: 0,
    }
}

#[derive(Default)]
struct Script {
    packets: Vec<Packet>,
    accepted: Vec<Accepted>,
}

impl Script {
    fn syn(&mut self, ms: u64, number: u16) -> &mut Self {
        let local = LOCAL.parse().unwrap();
        self.packets.push(packet(ms, client(number), local, SYN));
        self
    }

    fn answer(&mut self, ms: u64, number: u16) -> &mut Self {
        let local = LOCAL.parse().unwrap();
        let answer = packet(ms, local, client(number), SYN | ACK);
        self.packets.push(answer);
        self
    }

    fn ack(&mut self, ms: u64, number: u16) -> &mut Self {
        let local = LOCAL.parse().unwrap();
        self.packets.push(packet(ms, client(number), local, ACK));
        self
    }

    fn accept(&mut self, ms: u64, number: u16) -> &mut Self {
        self.accepted.push(Accepted {
            at: ms * 1_000_000,
            peer: client(number),
        });
        self
    }

    /// A handshake of 10 ms.
    fn opened(&mut self, ms: u64, number: u16) -> &mut Self {
        self.syn(ms, number).answer(ms, number).ack(ms + 10, number)
    }

    /// Labels and events of the accept queue and the SYN queue of backlog 1.
    fn judged(&mut self, cookies: bool) -> [(Label, u64); 2] {
        self.packets.sort_by_key(|p| p.at);
        let listening = Listening {
            local: LOCAL.parse().unwrap(),
            packets: &self.packets,
            accepted: &self.accepted,
            backlog: 1,
            half_open: 1,
            cookies,
        };
        overflows(&listening).map(|(_, truth)| (truth.label, truth.events))
    }
}

const NOTHING: (Label, u64) = (Label::False, 0);

#[test]
fn what_is_accepted_in_time_overflows_nothing() {
    let mut script = Script::default();
    for number in 0..5 {
        let at = u64::from(number) * 20;
        script.opened(at, number).accept(at + 11, number);
    }
    assert_eq!(script.judged(false), [NOTHING, NOTHING]);
}

#[test]
fn a_third_connection_does_not_fit_beside_two_that_wait() {
    let mut script = Script::default();
    script.opened(0, 0).opened(20, 1);
    // Turned away until the application has taken one.
    script.syn(40, 2).accept(500, 0);
    script.opened(1040, 2).accept(1100, 1).accept(1100, 2);
    assert_eq!(script.judged(false), [(Label::True, 1), NOTHING]);
}

#[test]
fn an_ack_that_is_ignored_is_the_accept_queues() {
    let mut script = Script::default();
    // Three are answered while the queue is empty; the third one's ACK finds it full.
    script.opened(0, 0).opened(1, 1);
    script.syn(11, 2).answer(11, 2).ack(21, 2);
    script.accept(500, 0).answer(1011, 2).ack(1021, 2);
    script.accept(1100, 1).accept(1100, 2);
    assert_eq!(script.judged(true), [(Label::True, 1), NOTHING]);
}

#[test]
fn what_is_half_open_fills_the_syn_queue() {
    let mut script = Script::default();
    // Answers that never arrive.
    script.syn(0, 0).answer(0, 0).syn(1, 1).answer(1, 1);
    script.syn(2, 2);
    assert_eq!(script.judged(false), [NOTHING, (Label::True, 1)]);
    // Answered all the same: a cookie.
    script.answer(2, 2);
    assert_eq!(script.judged(true), [NOTHING, (Label::True, 1)]);
}

#[test]
fn what_cannot_be_explained_is_undecided() {
    let mut script = Script::default();
    script.syn(0, 0);
    let undecided = (Label::Undecided, 0);
    assert_eq!(script.judged(false), [undecided, undecided]);
}
