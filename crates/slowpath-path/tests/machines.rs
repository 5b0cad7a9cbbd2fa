// SPDX-License-Identifier: Apache-2.0
//! Client against server without a socket: set-up, sessions, stop, fetch and send stamps in every mode.

use proptest::prelude::*;
use slowpath_path::control::{
    Accept, AcceptSession, Client, ClientEvent, ControlError, Credentials, Direction, Fetch,
    FetchAck, Limits, Modes, SendStamp, Server, ServerEvent, SessionRequest, Stop, StoppedSession,
};
use slowpath_path::record::{Record, SkipRange};
use slowpath_path::schedule::Slot;
use slowpath_path::time::{ErrorEstimate, Span, Timestamp};
use std::time::Duration;

const LIMITS: Limits = Limits {
    slots: 100,
    packets: 10_000,
    padding: 1_000,
    sessions: 4,
};

/// Both ends, and octets that go between them in pieces.
struct Talk {
    client: Client,
    server: Server,
    piece: usize,
}

impl Talk {
    fn new(mode: Modes, two_way: bool, piece: usize) -> Self {
        let secret = Credentials {
            name: "alice".to_owned(),
            passphrase: b"secret".to_vec(),
        };
        let credentials = Credentials {
            name: "alice".to_owned(),
            passphrase: b"secret".to_vec(),
        };
        Talk {
            client: Client::new(
                mode,
                Some(credentials),
                std::array::from_fn(|i| i as u8),
                two_way,
            ),
            server: Server::new(
                Modes(15),
                vec![secret],
                std::array::from_fn(|i| 3 * i as u8),
                Timestamp(77),
                LIMITS,
                two_way,
            ),
            piece,
        }
    }

    /// Carries octets until one of the ends has an event.
    fn events(&mut self) -> Result<(Vec<ClientEvent>, Vec<ServerEvent>), ControlError> {
        let (mut client, mut server) = (Vec::new(), Vec::new());
        loop {
            let (down, up) = (self.server.output(), self.client.output());
            if down.is_empty() && up.is_empty() {
                return Ok((client, server));
            }
            for piece in down.chunks(self.piece) {
                self.client.feed(piece);
                while let Some(event) = self.client.next_event()? {
                    client.push(event);
                }
            }
            for piece in up.chunks(self.piece) {
                self.server.feed(piece);
                while let Some(event) = self.server.next_event()? {
                    server.push(event);
                }
            }
        }
    }

    fn client(&mut self) -> Vec<ClientEvent> {
        self.events().expect("both keep to the protocol").0
    }

    fn server(&mut self) -> Vec<ServerEvent> {
        self.events().expect("both keep to the protocol").1
    }
}

fn request(two_way: bool) -> SessionRequest {
    SessionRequest {
        direction: match two_way {
            true => Direction::TwoWay {
                reflect: 2,
                reflect_padding: 5,
            },
            false => Direction::OneWay {
                server_sends: false,
                server_receives: true,
                packets: 100,
                slots: vec![
                    Slot::Exponential(Span(1 << 30)),
                    Slot::Fixed(Span(0)),
                    Slot::Fixed(Span(9)),
                ],
            },
        },
        sender: "[2001:db8::1]:8760".parse().expect("an address"),
        receiver: "[2001:db8::2]:0".parse().expect("an address"),
        session: [0; 16],
        padding: 30,
        start: Timestamp(1 << 60),
        timeout: Span(2 << 32),
        type_p: SessionRequest::type_p_of(46),
    }
}

fn accepted() -> AcceptSession {
    AcceptSession {
        accept: Accept::Accepted,
        port: 8_761,
        session: [9; 16],
        reflected: 0,
        server: 0,
    }
}

fn record(sequence: u32) -> Record {
    let error = ErrorEstimate::new(Duration::from_micros(7), true);
    Record {
        sequence,
        sent: Timestamp(1_000 + u64::from(sequence)),
        sent_error: error,
        received: Timestamp(2_000 + u64::from(sequence)),
        received_error: error,
        ttl: 250,
    }
}

fn whole_conversation(mode: Modes, records: u32, piece: usize) {
    let mut talk = Talk::new(mode, false, piece);
    let ready = talk.events().expect("the set-up");
    let expected = ClientEvent::Ready {
        mode,
        started: Timestamp(77),
    };
    assert_eq!(ready.0, [expected]);
    assert!(matches!(&ready.1[..], [ServerEvent::Ready { .. }]));
    assert_eq!(
        talk.client.test_keys(&[9; 16]),
        talk.server.test_keys(&[9; 16])
    );
    assert!(talk.client.gives_stamps() && talk.server.keeps_latest());
    sessions_run(&mut talk);
    records_are_fetched(&mut talk, records);
    stamps_are_given(&mut talk, records);
}

/// From the request to the stop.
fn sessions_run(talk: &mut Talk) {
    talk.client.request(&request(false));
    assert_eq!(talk.server(), [ServerEvent::Request(request(false))]);
    talk.server.answer_request(&accepted());
    assert_eq!(talk.client(), [ClientEvent::Session(accepted())]);
    talk.client.start();
    assert_eq!(talk.server(), [ServerEvent::Start]);
    talk.server.answer_start(Accept::Accepted);
    assert_eq!(talk.client(), [ClientEvent::Started(Accept::Accepted)]);
    let skips = [(4, 6), (50, 50)].map(|(first, last)| SkipRange { first, last });
    let stop = Stop {
        accept: Accept::Accepted,
        sessions: vec![StoppedSession {
            session: [9; 16],
            next_sequence: 100,
            skips: skips.to_vec(),
        }],
    };
    talk.client.stop(&stop, 1);
    talk.server.stop(&Stop {
        accept: Accept::Accepted,
        sessions: Vec::new(),
    });
    let (client, server) = talk.events().expect("both stop");
    assert_eq!(server, [ServerEvent::Stop(stop)]);
    assert!(matches!(&client[..], [ClientEvent::Stopped(_)]));
}

fn records_are_fetched(talk: &mut Talk, records: u32) {
    let fetch = Fetch {
        begin: 0,
        end: u32::MAX,
        session: [9; 16],
    };
    talk.client.fetch(&fetch, 1_000);
    assert_eq!(talk.server(), [ServerEvent::Fetch(fetch)]);
    let all: Vec<Record> = (0..records).map(record).collect();
    let skips = [SkipRange { first: 4, last: 6 }];
    let ack = FetchAck {
        accept: Accept::Accepted,
        finished: 1,
        next_sequence: 100,
        skips: 1,
        records,
    };
    talk.server.begin_fetch(&ack, &request(false), &skips);
    all.chunks(32)
        .for_each(|chunk| talk.server.fetch_records(chunk));
    talk.server.end_fetch();
    let (mut fetched, mut kinds) = (Vec::new(), Vec::new());
    for event in talk.client() {
        match event {
            ClientEvent::Records(records) => fetched.extend(records),
            other => kinds.push(other),
        }
    }
    assert_eq!(fetched, all);
    let expected = [
        ClientEvent::FetchAck(ack),
        ClientEvent::Fetching(request(false)),
        ClientEvent::Skips(skips.to_vec()),
        ClientEvent::Fetched,
    ];
    assert_eq!(kinds, expected);
}

fn stamps_are_given(talk: &mut Talk, count: u32) {
    talk.client.send_stamps(&[9; 16], 1_000);
    assert_eq!(talk.server(), [ServerEvent::SendStamps([9; 16])]);
    let stamp = |sequence| SendStamp {
        sequence,
        sent: Timestamp(5),
    };
    let stamps: Vec<SendStamp> = (0..count).map(stamp).collect();
    talk.server.begin_stamps(Accept::Accepted, count, Some(3));
    talk.server.stamps(&stamps);
    talk.server.end_stamps();
    let mut events = talk.client();
    let last = ClientEvent::AllStamps {
        accept: Accept::Accepted,
        dropped: Some(3),
    };
    assert_eq!(events.pop(), Some(last));
    let mut came = Vec::new();
    for event in events {
        match event {
            ClientEvent::Stamps(stamps) => came.extend(stamps),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(came, stamps);
}

#[test]
fn a_whole_conversation_goes_through_in_every_mode() {
    for mode in [Modes::OPEN, Modes::AUTHENTICATED, Modes::ENCRYPTED] {
        for records in [0, 1, 16, 17, 40] {
            whole_conversation(mode, records, 4_096);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_conversation_goes_through_however_its_octets_are_cut(
        mode in 0u32..3, records in 0u32..50, piece in 1usize..100,
    ) {
        whole_conversation(Modes(1 << mode), records, piece);
    }

    /// Whatever octet of the server's is changed, no event says something that was not sent.
    #[test]
    fn changed_octets_of_an_encrypted_connection_end_it(at in 0usize..48, bit in 0u8..8) {
        let mut talk = Talk::new(Modes::ENCRYPTED, false, 4_096);
        talk.events().expect("the set-up");
        talk.client.request(&request(false));
        talk.server();
        talk.server.answer_request(&accepted());
        let mut octets = talk.server.output();
        octets[at] ^= 1 << bit;
        talk.client.feed(&octets);
        prop_assert_eq!(talk.client.next_event(), Err(ControlError::BadDigest));
        prop_assert_eq!(talk.client.next_event(), Ok(None));
    }
}

#[test]
fn twamp_is_set_up_in_every_mode() {
    for mode in [
        Modes::OPEN,
        Modes::AUTHENTICATED,
        Modes::ENCRYPTED,
        Modes::MIXED,
    ] {
        let mut talk = Talk::new(mode, true, 7);
        assert_eq!(
            talk.client(),
            [ClientEvent::Ready {
                mode,
                started: Timestamp(77)
            }]
        );
        let protected = mode == Modes::AUTHENTICATED || mode == Modes::ENCRYPTED;
        assert_eq!(
            talk.client.test_keys(&[9; 16]).is_some(),
            protected,
            "RFC 5618: mixed packets are open"
        );
        talk.client.request(&request(true));
        assert_eq!(talk.server(), [ServerEvent::Request(request(true))]);
        talk.server.answer_request(&accepted());
        assert_eq!(talk.client(), [ClientEvent::Session(accepted())]);
        talk.client.start();
        assert_eq!(talk.server(), [ServerEvent::Start]);
        talk.server.answer_start(Accept::Accepted);
        assert_eq!(talk.client(), [ClientEvent::Started(Accept::Accepted)]);
        let stop = Stop {
            accept: Accept::Accepted,
            sessions: Vec::new(),
        };
        talk.client.stop(&stop, 1);
        assert_eq!(talk.server(), [ServerEvent::Stop(stop)]);
    }
}

#[test]
fn a_client_without_a_key_takes_no_mode_that_needs_one() {
    let mut client = Client::new(Modes(7), None, [1; 64], false);
    let mut server = Server::new(
        Modes::ENCRYPTED,
        vec![Credentials {
            name: "alice".to_owned(),
            passphrase: b"secret".to_vec(),
        }],
        [2; 48],
        Timestamp(1),
        LIMITS,
        false,
    );
    client.feed(&server.output());
    assert!(matches!(
        client.next_event(),
        Err(ControlError::NoCommonMode { .. })
    ));
    // And a server without keys offers none.
    let mut server = Server::new(
        Modes::ENCRYPTED,
        Vec::new(),
        [2; 48],
        Timestamp(1),
        LIMITS,
        false,
    );
    let mut client = Client::new(Modes(7), None, [1; 64], false);
    client.feed(&server.output());
    assert_eq!(client.next_event(), Err(ControlError::Refused));
}
