// SPDX-License-Identifier: Apache-2.0
//! The parser without a kernel: bytes are built here by hand from the uapi headers.

use super::wire::*;
use crate::inet_diag::wire::{attributes, messages};
use proptest::prelude::*;
use slowpath_model::FourTuple;

fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One direction; nested attributes with `NLA_F_NESTED`, as the kernel sets it.
fn direction(number: u16, protocol: u8, ends: [([u8; 4], u16); 2]) -> Vec<u8> {
    let [(source, from), (destination, to)] = ends;
    let addresses = [attribute(1, &source), attribute(2, &destination)].concat();
    let ports = [
        attribute(1, &[protocol]),
        attribute(2, &from.to_be_bytes()),
        attribute(3, &to.to_be_bytes()),
    ]
    .concat();
    let parts = [attribute(0x8001, &addresses), attribute(0x8002, &ports)].concat();
    attribute(0x8000 | number, &parts)
}

const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 5], 40_000);
const SERVICE: ([u8; 4], u16) = ([10, 96, 0, 1], 80);
const SERVER: ([u8; 4], u16) = ([10, 1, 0, 7], 8080);
const HOST: ([u8; 4], u16) = ([10, 1, 0, 1], 50_000);

/// A connection from CLIENT to SERVICE that reaches SERVER as one from HOST.
fn entry() -> Vec<u8> {
    let mut payload = vec![2, 0, 0, 0];
    payload.extend(direction(1, 6, [CLIENT, SERVICE]));
    payload.extend(direction(2, 6, [SERVER, HOST]));
    // CTA_STATUS and CTA_TIMEOUT, not looked at.
    payload.extend(attribute(3, &0x1a8u32.to_be_bytes()));
    payload.extend(attribute(7, &300u32.to_be_bytes()));
    payload
}

fn socket(local: ([u8; 4], u16), remote: ([u8; 4], u16)) -> FourTuple {
    FourTuple::new(local.into(), remote.into())
}

#[test]
fn the_other_direction_says_who_the_peer_is() {
    let entry = Entry::read(&entry()).unwrap();
    // The client's end reaches the server, and is taken for the host by it.
    let client = entry.beyond(&socket(CLIENT, SERVICE));
    assert_eq!(client, Some(socket(HOST, SERVER)));
    let server = entry.beyond(&socket(SERVER, HOST));
    assert_eq!(server, Some(socket(SERVICE, CLIENT)));
    // Ends of no such socket: what each would be without translation.
    for other in [
        socket(CLIENT, SERVER),
        socket(SERVICE, CLIENT),
        socket(HOST, SERVER),
        socket(SERVER, CLIENT),
    ] {
        assert_eq!(entry.beyond(&other), None);
    }
}

#[test]
fn what_is_no_tcp_entry_is_refused() {
    assert_eq!(
        Entry::read(&[2, 0]),
        Err(EntryError::HeaderCut { available: 2 })
    );
    let missing = Err(EntryError::Missing("the original direction"));
    assert_eq!(Entry::read(&[2, 0, 0, 0]), missing);
    let mut one = vec![2, 0, 0, 0];
    one.extend(direction(1, 6, [CLIENT, SERVICE]));
    let missing = Err(EntryError::Missing("the reply direction"));
    assert_eq!(Entry::read(&one), missing);
    let mut udp = vec![2, 0, 0, 0];
    udp.extend(direction(1, 17, [CLIENT, SERVICE]));
    assert_eq!(Entry::read(&udp), Err(EntryError::Protocol(17)));
    let mut long = vec![2, 0, 0, 0];
    let address = attribute(0x8001, &attribute(1, &[10, 0, 0, 5, 6]));
    long.extend(attribute(0x8001, &address));
    let refused = EntryError::ValueLength {
        number: 1,
        length: 5,
    };
    assert_eq!(Entry::read(&long), Err(refused));
}

/// `NLM_F_REQUEST`, `CTA_TUPLE_ORIG` with its parts; what an entry's direction looks like.
#[test]
fn a_request_names_the_tuple() {
    let tuple = Tuple::sent_by(&socket(CLIENT, SERVICE));
    let bytes = request(&tuple, 7);
    let mut cut = messages(&bytes);
    let message = cut.next().unwrap().unwrap();
    assert!(cut.next().is_none());
    assert_eq!((message.kind(), message.sequence), (0x0101, 7));
    assert_eq!(bytes[6..8], 1u16.to_ne_bytes());
    let mut wanted = vec![2, 0, 0, 0];
    wanted.extend(direction(1, 6, [CLIENT, SERVICE]));
    assert_eq!(message.payload, wanted);
}

#[test]
fn addresses_of_ipv6_are_read_as_they_are_asked_for() {
    let local = "[fd00::1]:4000".parse().unwrap();
    let remote = "[fd00::2]:80".parse().unwrap();
    let socket = FourTuple::new(local, remote);
    let there = request(&Tuple::sent_by(&socket), 1);
    let back = request(&Tuple::sent_by(&socket.reversed()), 2);
    assert_eq!(there[16], 10);
    // The attribute is behind the two headers; as a reply it has the number 2.
    let mut payload = there[16..].to_vec();
    let mut reply = back[20..].to_vec();
    reply[2..4].copy_from_slice(&0x8002u16.to_ne_bytes());
    payload.extend(reply);
    let entry = Entry::read(&payload).unwrap();
    assert_eq!(entry.original.source, local);
    assert_eq!(entry.original.destination, remote);
    assert_eq!(entry.beyond(&socket), Some(socket));
    assert_eq!(entry.beyond(&socket.reversed()), Some(socket.reversed()));
}

proptest! {
    /// Whatever bytes are changed, nothing panics; what is read has been in the bytes.
    #[test]
    fn damaged_entries_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = entry();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Ok(entry) = Entry::read(&bytes) {
            let port = entry.original.source.port().to_be_bytes();
            prop_assert!(bytes.windows(2).any(|w| w == port));
        }
        prop_assert!(attributes(&bytes).count() <= bytes.len());
    }
}
