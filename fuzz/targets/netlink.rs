// SPDX-License-Identifier: Apache-2.0
//! A buffer received from sock_diag or ctnetlink.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_fuzz::{attribute, check_stats, diag_header, message, tcp_info};
use slowpath_model::FourTuple;
use slowpath_observe::conntrack::wire::{Entry, Tuple, request};
use slowpath_observe::inet_diag::wire::{
    Content, DiagHeader, SocketRecord, attributes, lookup_request, messages,
};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let mut taken = 0;
        let mut failed = false;
        for message in messages(data) {
            assert!(!failed, "nothing follows an error");
            let Ok(message) = message else {
                failed = true;
                continue;
            };
            taken += 16 + message.payload.len();
            assert!(taken <= data.len(), "messages do not overlap");
            check_entry(message.payload);
            match message.content() {
                Ok(Content::Socket(payload)) => check_socket(payload),
                Ok(Content::Error(errno) | Content::Done(Some(errno))) => assert!(errno > 0),
                _ => {}
            }
        }
        check_attributes(data);
    }
);

fn check_socket(payload: &[u8]) {
    let Ok(record) = SocketRecord::read(payload) else {
        return;
    };
    let again = DiagHeader::read(&record.header.encode());
    assert_eq!(again, Ok(record.header));
    assert_eq!(
        lookup_request(&record.header.id, 7)[24..],
        record.header.encode()[4..52]
    );
    assert!(record.congestion.as_str().len() < 16);
    let tuple = record.header.id.tuple();
    for address in [tuple.local.ip(), tuple.remote.ip()] {
        assert_eq!(address, address.to_canonical());
    }
    if let Some(Ok(stats)) = record.stats() {
        check_stats(&stats);
        assert_eq!(stats.send_queue, record.header.send_queue);
        assert_eq!(stats.receive_queue, record.header.receive_queue);
        assert_eq!(stats.send_buffer.is_some(), record.memory.is_some());
    }
}

/// What is read of an entry is found again by the question for it.
fn check_entry(payload: &[u8]) {
    let Ok(entry) = Entry::read(payload) else {
        return;
    };
    for tuple in [entry.original, entry.reply] {
        let bytes = request(&tuple, 7);
        let question = messages(&bytes).next().and_then(Result::ok);
        assert!(question.is_some_and(|q| q.sequence == 7 && q.kind() == 0x101));
        let socket = FourTuple::new(tuple.source, tuple.destination);
        if Tuple::sent_by(&socket) == tuple {
            assert!(entry.beyond(&socket).is_some());
        }
    }
}

fn check_attributes(data: &[u8]) {
    let mut taken = 0;
    for attribute in attributes(data).flatten() {
        taken += 4 + attribute.value.len();
        assert!(taken <= data.len(), "attributes do not overlap");
        assert!(attribute.number < 0x4000);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let memory: Vec<u8> = (4096u32..4105).flat_map(u32::to_ne_bytes).collect();
    let socket = |family, cookie, length| {
        let mut payload = diag_header(family, cookie);
        payload.extend(attribute(8, &[0]));
        payload.extend(attribute(2, &tcp_info(length)));
        payload.extend(attribute(4, b"cubic\0"));
        payload.extend(attribute(7, &memory));
        message(20, 2, &payload)
    };
    // One direction of a tracked connection, between 10.0.0.5:40000 and 10.0.0.1:80.
    let direction = |number: u16| {
        let ip = [attribute(1, &[10, 0, 0, 5]), attribute(2, &[10, 0, 0, 1])].concat();
        let ports = [
            attribute(1, &[6]),
            attribute(2, &[0x9c, 0x40]),
            attribute(3, &[0, 80]),
        ]
        .concat();
        let parts = [attribute(0x8001, &ip), attribute(0x8002, &ports)].concat();
        attribute(0x8000 | number, &parts)
    };
    let entry = [vec![2, 0, 0, 0], direction(1), direction(2)].concat();
    let done = message(3, 2, &[0; 4]);
    let dump = [socket(2, 1, 280), socket(10, 1 << 40, 280), done.clone()].concat();
    vec![
        dump,
        [socket(2, 9, 192), message(3, 0x12, &[0; 4])].concat(),
        [message(20, 2, &diag_header(2, 3)), done].concat(),
        message(2, 0, &(-116i32).to_ne_bytes()),
        message(4, 0, &[]),
        message(0x100, 0, &entry),
    ]
}
