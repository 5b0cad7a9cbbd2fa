// SPDX-License-Identifier: Apache-2.0
//! Parser and table, without a kernel: bytes are built here by hand from the uapi headers.

use super::socket::DiagSocket;
use super::table::{Scope, Table};
use super::wire::*;
use proptest::prelude::*;
use slowpath_model::{MonoNanos, Snapshot};

const SCOPE: Scope = Scope {
    boot_id: 0xb007,
    netns: 7,
};

/// `struct inet_diag_msg`, little by little.
fn diag_msg(family: u8, state: u8, local: [u8; 16], remote: [u8; 16], cookie: u64) -> Vec<u8> {
    let mut bytes = vec![family, state, 1, 2];
    bytes.extend([0x1f, 0x90, 0xc3, 0x50]); // ports 8080 and 50000, big-endian
    bytes.extend(local);
    bytes.extend(remote);
    bytes.extend(3u32.to_ne_bytes());
    bytes.extend((cookie as u32).to_ne_bytes());
    bytes.extend(((cookie >> 32) as u32).to_ne_bytes());
    for word in [200u32, 11, 12, 1000, 4242] {
        bytes.extend(word.to_ne_bytes());
    }
    assert_eq!(bytes.len(), 72);
    bytes
}

fn v4(address: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&address);
    bytes
}

fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((16 + payload.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(9u32.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A whole `tcp_info` in state ESTABLISHED with that many bytes acknowledged.
fn tcp_info(state: u8, acked: u64) -> Vec<u8> {
    let mut info = vec![0; 280];
    info[0] = state;
    info[120..128].copy_from_slice(&acked.to_ne_bytes());
    info
}

/// The payload of one socket of a dump.
fn socket(cookie: u64, state: u8, acked: u64) -> Vec<u8> {
    let mut payload = diag_msg(2, state, v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), cookie);
    payload.extend(attribute(2, &tcp_info(state, acked)));
    payload.extend(attribute(4, b"cubic\0"));
    let memory: Vec<u8> = (100u32..109).flat_map(u32::to_ne_bytes).collect();
    payload.extend(attribute(7, &memory));
    payload
}

#[test]
fn a_socket_of_each_family_is_read_from_its_bytes() {
    let mapped = |last: u8| {
        let mut bytes = [0; 16];
        bytes[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, last]);
        bytes
    };
    let mut six = [0; 16];
    six[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    six[15] = 1;
    for (family, local, remote, local_text, remote_text) in [
        (
            2,
            v4([10, 0, 0, 1]),
            v4([10, 0, 0, 2]),
            "10.0.0.1:8080",
            "10.0.0.2:50000",
        ),
        (
            10,
            mapped(1),
            mapped(2),
            "192.0.2.1:8080",
            "192.0.2.2:50000",
        ),
        (10, six, six, "[2001:db8::1]:8080", "[2001:db8::1]:50000"),
    ] {
        let bytes = diag_msg(family, 1, local, remote, 0x0123_4567_89ab_cdef);
        let header = DiagHeader::read(&bytes).unwrap();
        assert_eq!(header.id.tuple().local, local_text.parse().unwrap());
        assert_eq!(header.id.tuple().remote, remote_text.parse().unwrap());
        assert_eq!(header.id.cookie(), 0x0123_4567_89ab_cdef);
        assert_eq!(header.id.family().number(), family);
        assert_eq!((header.state, header.timer, header.retransmits), (1, 1, 2));
        assert_eq!(header.expires_ms, 200);
        assert_eq!((header.receive_queue, header.send_queue), (11, 12));
        assert_eq!((header.uid, header.inode), (1000, 4242));
        assert_eq!(header.encode(), *bytes);
    }
}

#[test]
fn a_record_carries_statistics_memory_and_congestion_control() {
    let payload = socket(5, 1, 777);
    let record = SocketRecord::read(&payload).unwrap();
    let stats = record.stats().unwrap().unwrap();
    assert_eq!(stats.bytes_acked, 777);
    assert_eq!((stats.receive_queue, stats.send_queue), (11, 12));
    assert_eq!(stats.receive_buffer, Some(101));
    assert_eq!(stats.send_buffer, Some(103));
    assert_eq!(stats.send_memory, Some(105));
    assert_eq!(record.congestion.as_str(), "cubic");
}

#[test]
fn attribute_flag_bits_are_no_part_of_the_number() {
    let mut payload = diag_msg(2, 1, v4([1; 4]), v4([2; 4]), 1);
    payload.extend(attribute(0x8000 | 4, b"reno\0"));
    let record = SocketRecord::read(&payload).unwrap();
    assert_eq!(record.congestion.as_str(), "reno");
    assert!(record.stats().is_none());
}

#[test]
fn a_congestion_name_ends_at_its_nul_or_at_fifteen_bytes() {
    assert_eq!(CongestionName::read(b"").as_str(), "");
    assert_eq!(CongestionName::read(b"bbr").as_str(), "bbr");
    assert_eq!(CongestionName::read(b"bbr\0junk").as_str(), "bbr");
    assert_eq!(
        CongestionName::read(b"abcdefghijklmnopq").as_str(),
        "abcdefghijklmno"
    );
    assert_eq!(CongestionName::read(b"\xff\xfe").as_str(), "");
}

#[test]
fn messages_say_what_they_are() {
    let stale = (-116i32).to_ne_bytes();
    for (kind, payload, content) in [
        (1, &[][..], Content::Other),
        (2, &stale[..], Content::Error(116)),
        (2, &[0; 4][..], Content::Acknowledged),
        (2, &7i32.to_ne_bytes()[..], Content::Acknowledged),
        (2, &i32::MIN.to_ne_bytes()[..], Content::Error(i32::MAX)),
        (3, &[][..], Content::Done(None)),
        (3, &[0; 4][..], Content::Done(None)),
        (3, &stale[..], Content::Done(Some(116))),
        (4, &[][..], Content::Overrun),
        (20, &[1, 2][..], Content::Socket(&[1, 2])),
        (99, &[][..], Content::Other),
    ] {
        let bytes = message(kind, 0, payload);
        let cut: Vec<_> = messages(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(cut.len(), 1);
        assert_eq!(cut[0].sequence, 9);
        assert!(!cut[0].interrupted());
        assert_eq!(
            cut[0].content(),
            Ok(content),
            "kind {kind}, payload {payload:?}"
        );
    }
    let bytes = message(2, 0, &[1, 2]);
    let error = messages(&bytes).next().unwrap().unwrap();
    assert_eq!(error.content(), Err(WireError::ErrorCut { available: 2 }));
    let bytes = message(3, 0x12, &[]);
    assert!(messages(&bytes).next().unwrap().unwrap().interrupted());
}

#[test]
fn a_buffer_cut_anywhere_gives_whole_messages_then_an_error() {
    let one = message(20, 2, &socket(5, 1, 777));
    let mut buffer = one.clone();
    buffer.extend(message(20, 2, &socket(6, 1, 778)));
    buffer.extend(message(3, 2, &[0; 4]));
    let starts = [0, one.len(), 2 * one.len(), buffer.len()];
    for length in 0..=buffer.len() {
        let cut: Vec<_> = messages(&buffer[..length]).collect();
        let whole = starts[1..].iter().filter(|end| **end <= length).count();
        let boundary = starts.contains(&length);
        assert_eq!(cut.len(), whole + usize::from(!boundary), "{length}");
        for (i, message) in cut.iter().enumerate() {
            assert_eq!(message.is_ok(), i < whole, "{length}: message {i}");
            if let Ok(message) = message {
                message.content().unwrap();
            }
        }
    }
}

#[test]
fn a_record_cut_anywhere_is_shorter_or_an_error() {
    let payload = socket(5, 1, 777);
    let whole = SocketRecord::read(&payload).unwrap();
    for length in 0..payload.len() {
        match SocketRecord::read(&payload[..length]) {
            Err(WireError::DiagHeaderCut { available }) => {
                assert!(length < 72);
                assert_eq!(available, length);
            }
            Err(WireError::AttributeLength { .. }) => assert!(length > 72),
            Err(error) => panic!("{length}: {error}"),
            Ok(record) => {
                assert!(length >= 72);
                assert_eq!(record.header, whole.header);
                assert!(record.info.is_none() || record.info == whole.info);
            }
        }
    }
}

#[test]
fn lengths_that_lie_are_errors() {
    for length in [0u32, 15, 17, u32::MAX] {
        let mut bytes = message(3, 0, &[]);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        let error = WireError::MessageLength {
            length,
            available: 16,
        };
        assert_eq!(messages(&bytes).collect::<Vec<_>>(), [Err(error)]);
    }
    for length in [0u16, 3, 9, u16::MAX] {
        let mut bytes = attribute(2, &[1, 2, 3, 4]);
        bytes[..2].copy_from_slice(&length.to_ne_bytes());
        let error = WireError::AttributeLength {
            length,
            available: 8,
        };
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [Err(error)]);
    }
    let other = diag_msg(1, 1, [0; 16], [0; 16], 1);
    assert_eq!(DiagHeader::read(&other), Err(WireError::Family(1)));
}

#[test]
fn requests_are_as_the_headers_say() {
    let dump = dump_request(Family::V6, 0x0102_0304);
    let mut expected = 72u32.to_ne_bytes().to_vec(); // 16 + sizeof(inet_diag_req_v2) = 56
    expected.extend(20u16.to_ne_bytes());
    expected.extend(0x301u16.to_ne_bytes()); // NLM_F_REQUEST | NLM_F_DUMP
    expected.extend(0x0102_0304u32.to_ne_bytes());
    expected.extend([0; 4]);
    expected.extend([10, 6, 0b0100_1010, 0]); // AF_INET6, TCP, INFO | CONG | SKMEMINFO
    // ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 CLOSE CLOSE_WAIT LAST_ACK CLOSING
    let states: u32 = [1, 2, 3, 4, 5, 7, 8, 9, 11].iter().map(|s| 1u32 << s).sum();
    expected.extend(states.to_ne_bytes());
    expected.extend([0; 48]);
    assert_eq!(dump.to_vec(), expected);

    let bytes = diag_msg(2, 1, v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), 1 << 40);
    let id = DiagHeader::read(&bytes).unwrap().id;
    let lookup = lookup_request(&id, 1);
    assert_eq!(lookup[6..8], 0x01u16.to_ne_bytes());
    assert_eq!(lookup[16..18], [2, 6]);
    assert_eq!(lookup[24..], bytes[4..52]);
}

struct Poll {
    table: Table,
    out: Vec<Snapshot>,
}

impl Poll {
    fn new(changed_only: bool, max_sockets: usize) -> Self {
        Poll {
            table: Table::new(SCOPE, changed_only, max_sockets),
            out: Vec::new(),
        }
    }

    /// One poll that sees these (cookie, state, bytes acknowledged); what it emitted, as
    /// (cookie, bytes acknowledged, closed), ordered.
    fn of(&mut self, at: u64, sockets: &[(u64, u8, u64)]) -> Vec<(u64, u64, bool)> {
        self.out.clear();
        self.table.begin();
        for (cookie, state, acked) in sockets {
            let payload = socket(*cookie, *state, *acked);
            let record = SocketRecord::read(&payload).unwrap();
            self.table.see(&record, MonoNanos(at), &mut self.out);
        }
        self.table.finish(&mut self.out);
        assert_eq!(self.table.keys.len(), self.out.len());
        assert_eq!(self.table.counts.emitted, self.out.len() as u64);
        let mut emitted: Vec<_> = self
            .out
            .iter()
            .map(|s| (s.id.cookie, s.stats.bytes_acked, s.closed))
            .collect();
        emitted.sort();
        emitted
    }
}

#[test]
fn a_connection_that_is_gone_is_closed_once_with_its_last_statistics() {
    let mut poll = Poll::new(false, 10);
    assert_eq!(
        poll.of(100, &[(1, 1, 5), (2, 1, 6)]),
        [(1, 5, false), (2, 6, false)]
    );
    assert_eq!(poll.of(200, &[(2, 1, 6)]), [(1, 5, true), (2, 6, false)]);
    let last = poll.out.iter().find(|s| s.closed).unwrap();
    assert_eq!(
        last.at,
        MonoNanos(100),
        "statistics keep the time they were read"
    );
    assert_eq!(last.id.boot_id, 0xb007);
    assert_eq!(last.id.netns, 7);
    assert_eq!(poll.table.counts.closed, 1);
    assert_eq!(poll.of(300, &[(2, 1, 6)]), [(2, 6, false)]);
    assert_eq!(poll.of(400, &[]), [(2, 6, true)]);
    assert_eq!(poll.of(500, &[]), []);
}

#[test]
fn only_what_changed_is_emitted_if_so_asked() {
    let mut poll = Poll::new(true, 10);
    assert_eq!(
        poll.of(1, &[(1, 1, 5), (2, 1, 6)]),
        [(1, 5, false), (2, 6, false)]
    );
    assert_eq!(poll.of(2, &[(1, 1, 5), (2, 1, 6)]), []);
    assert_eq!(poll.table.counts.open, 2);
    assert_eq!(poll.of(3, &[(1, 1, 5), (2, 1, 7)]), [(2, 7, false)]);
    assert_eq!(
        poll.of(4, &[(1, 8, 5), (2, 1, 7)]),
        [(1, 5, false)],
        "a new state is a change"
    );
    assert_eq!(poll.of(5, &[(2, 1, 7)]), [(1, 5, true)]);
    assert_eq!(
        poll.out[0].at,
        MonoNanos(4),
        "the time of the last look, changed or not"
    );
}

#[test]
fn repeats_and_what_is_no_connection_are_passed_over() {
    let mut poll = Poll::new(false, 10);
    assert_eq!(
        poll.of(1, &[(1, 1, 5), (1, 1, 6), (2, 10, 0)]),
        [(1, 5, false)]
    );
    assert_eq!(poll.table.counts.repeated, 1);
    assert_eq!(poll.table.counts.open, 1);

    // TIME_WAIT's second half is reported as FIN_WAIT2 without tcp_info.
    let bare = diag_msg(2, 5, v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), 9);
    poll.table.see(
        &SocketRecord::read(&bare).unwrap(),
        MonoNanos(1),
        &mut poll.out,
    );
    assert_eq!(poll.table.counts.undecodable, 0);
    let mut odd = diag_msg(2, 1, v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), 9);
    odd.extend(attribute(2, &tcp_info(1, 0)[..100]));
    poll.table.see(
        &SocketRecord::read(&odd).unwrap(),
        MonoNanos(1),
        &mut poll.out,
    );
    assert_eq!(poll.table.counts.undecodable, 1);
    assert_eq!(poll.out.len(), 1);
}

#[test]
fn what_does_not_fit_is_emitted_and_counted() {
    let mut poll = Poll::new(true, 2);
    let three = [(1, 1, 5), (2, 1, 6), (3, 1, 7)];
    assert_eq!(
        poll.of(1, &three),
        [(1, 5, false), (2, 6, false), (3, 7, false)]
    );
    assert_eq!(poll.table.counts.dropped, 1);
    assert_eq!(
        poll.of(2, &three),
        [(3, 7, false)],
        "what is not remembered always seems new"
    );
    assert_eq!(poll.of(3, &[]), [(1, 5, true), (2, 6, true)]);
}

/// The kernel answers look-ups: alive with its cookie, gone without.
#[test]
fn a_lookup_finds_a_live_connection_and_no_other() {
    let test = "a_lookup_finds_a_live_connection_and_no_other";
    let mut diag = match DiagSocket::open() {
        Ok(diag) => diag,
        Err(error) => return println!("SKIPPED {test}: {error}"),
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let local = client.local_addr().unwrap();
    let mut found = None;
    diag.dump(Family::V4, |record, _| {
        if record.header.id.tuple().local == local && record.info.is_some() {
            found = Some(record.header);
        }
    })
    .unwrap();
    let header = found.expect("the dump has the client's socket");

    let mut hits = Vec::new();
    diag.lookup(&header.id, |record, _| hits.push(record.header.id))
        .unwrap();
    assert_eq!(hits, [header.id]);

    let mut bytes = header.encode();
    bytes[44] ^= 1; // the cookie's lowest bit
    let other = DiagHeader::read(&bytes).unwrap().id;
    diag.lookup(&other, |_, _| panic!("another cookie was found"))
        .unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_cut_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for message in messages(&bytes).flatten() {
            if let Ok(Content::Socket(payload)) = message.content()
                && let Ok(record) = SocketRecord::read(payload)
            {
                let _ = record.stats();
            }
        }
        if let Ok(header) = DiagHeader::read(&bytes) {
            prop_assert_eq!(DiagHeader::read(&header.encode()), Ok(header));
        }
    }
}
