// SPDX-License-Identifier: Apache-2.0
//! Both ends of a control connection of OWAMP and TWAMP, fed with what a peer may send, in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_path::control::{
    Accept, AcceptSession, Client, ClientEvent, Direction, Fetch, Limits, Modes, Server,
    ServerEvent, SessionRequest, Stop, StoppedSession,
};
use slowpath_path::record::SkipRange;
use slowpath_path::schedule::Slot;
use slowpath_path::time::{Span, Timestamp};

const LIMITS: Limits = Limits {
    slots: 16,
    packets: 1_000,
    padding: 100,
    sessions: 3,
};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let Some((&first, rest)) = data.split_first() else { return };
        let two_way = first & 1 != 0;
        let piece = usize::from(first >> 2) + 1;
        match first & 2 {
            0 => server(rest.chunks(piece), two_way),
            _ => client(rest.chunks(piece), two_way),
        }
    }
);

fn server<'a>(pieces: impl Iterator<Item = &'a [u8]>, two_way: bool) {
    let modes = Modes::OPEN;
    let mut server = Server::new(modes, Vec::new(), [3; 48], Timestamp(1), LIMITS, two_way);
    for piece in pieces {
        server.feed(piece);
        loop {
            match server.next_event() {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(ServerEvent::Ready { .. } | ServerEvent::Stop(_))) => {}
                Ok(Some(ServerEvent::Request(request))) => {
                    assert!(request.slots().len() <= 16);
                    server.answer_request(&AcceptSession {
                        accept: Accept::Accepted,
                        port: 9,
                        session: [4; 16],
                        reflected: 0,
                        server: 0,
                    });
                }
                Ok(Some(ServerEvent::Start)) => server.answer_start(Accept::Accepted),
                Ok(Some(ServerEvent::Fetch(_))) => server.refuse_fetch(Accept::Refused),
                Ok(Some(ServerEvent::SendStamps(_))) => {
                    server.begin_stamps(Accept::Refused, 0, None);
                    server.end_stamps();
                }
            }
        }
        // Answers are bounded by what asks for them.
        assert!(server.output().len() <= 4_096 + 8 * piece.len());
    }
}

fn client<'a>(pieces: impl Iterator<Item = &'a [u8]>, two_way: bool) {
    let mut client = Client::new(Modes::OPEN, None, [5; 64], two_way);
    let mut asked = 0;
    for piece in pieces {
        client.feed(piece);
        loop {
            match client.next_event() {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(
                    ClientEvent::Ready { .. } | ClientEvent::Stopped(_) | ClientEvent::Fetched,
                )) => {
                    asked += 1;
                    match asked % 4 {
                        0 => client.request(&request()),
                        1 => client.start(),
                        2 => client.fetch(
                            &Fetch {
                                begin: 0,
                                end: u32::MAX,
                                session: [4; 16],
                            },
                            1_000,
                        ),
                        _ => client.send_stamps(&[4; 16], 1_000),
                    }
                }
                Ok(Some(ClientEvent::Records(records))) => assert!(records.len() <= 16),
                Ok(Some(_)) => {}
            }
        }
        client.output();
    }
}

fn request() -> SessionRequest {
    SessionRequest {
        direction: Direction::OneWay {
            server_sends: false,
            server_receives: true,
            packets: 10,
            slots: vec![Slot::Exponential(Span(1 << 30)), Slot::Fixed(Span(0))],
        },
        sender: "192.0.2.1:1000".parse().expect("an address"),
        receiver: "192.0.2.2:1001".parse().expect("an address"),
        session: [6; 16],
        padding: 10,
        start: Timestamp(1 << 60),
        timeout: Span(1 << 32),
        type_p: 0,
    }
}

/// What a client says from the greeting to the stop, and what a server answers.
fn seeds() -> Vec<Vec<u8>> {
    let mut client = Client::new(Modes::OPEN, None, [5; 64], false);
    let mut server = Server::new(
        Modes::OPEN,
        Vec::new(),
        [3; 48],
        Timestamp(1),
        LIMITS,
        false,
    );
    let (mut from_client, mut from_server) = (vec![0xfc], vec![0xfe]);
    let stop = Stop {
        accept: Accept::Accepted,
        sessions: vec![StoppedSession {
            session: [4; 16],
            next_sequence: 10,
            skips: vec![SkipRange { first: 1, last: 2 }],
        }],
    };
    for step in 0..6 {
        let output = server.output();
        client.feed(&output);
        from_server.extend(output);
        while let Ok(Some(_)) = client.next_event() {}
        match step {
            1 => client.request(&request()),
            2 => client.start(),
            3 => client.stop(&stop, 1),
            4 => client.fetch(
                &Fetch {
                    begin: 0,
                    end: u32::MAX,
                    session: [4; 16],
                },
                1_000,
            ),
            _ => {}
        }
        let output = client.output();
        server.feed(&output);
        from_client.extend(output);
        while let Ok(Some(event)) = server.next_event() {
            match event {
                ServerEvent::Request(_) => server.answer_request(&AcceptSession {
                    accept: Accept::Accepted,
                    port: 9,
                    session: [4; 16],
                    reflected: 0,
                    server: 0,
                }),
                ServerEvent::Start => server.answer_start(Accept::Accepted),
                ServerEvent::Fetch(_) => server.refuse_fetch(Accept::Refused),
                _ => {}
            }
        }
    }
    vec![from_client, from_server]
}
