// SPDX-License-Identifier: Apache-2.0
//! Test packets in every mode, session files, key files and schedules, as anyone may send or name them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_path::command::read_keys;
use slowpath_path::file::SessionFile;
use slowpath_path::keys::SessionKeys;
use slowpath_path::packet::stamp::{self, StampKey};
use slowpath_path::packet::{Protection, Reply, TestPacket, read_reply, read_test};
use slowpath_path::results::{Plan, Tally};
use slowpath_path::schedule::Slots;
use slowpath_path::time::{ErrorEstimate, Timestamp};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        packets(data);
        if let Ok(file) = SessionFile::read(data) {
            let mut written = Vec::new();
            file.write(&mut written).expect("memory");
            let again = SessionFile::read(&written).expect("ours");
            assert_eq!((&again.records, &again.skips), (&file.records, &file.skips));
            let plan = Plan { timeout: 1 << 33, percents: vec![50.0] };
            let packets = file.next_sequence.min(10_000);
            let summary = Tally::of(plan, packets, &file.records, &file.skips).close(packets, 0).expect("a row");
            assert!(summary.sent + summary.skipped <= u64::from(packets));
            assert!(summary.lost <= summary.sent);
        }
        if let Ok(text) = std::str::from_utf8(data) {
            let _ = read_keys(text);
            if let Ok(slots) = text.parse::<Slots>() {
                assert!(!slots.as_slice().is_empty());
                let _ = slots.mean_of(u32::MAX);
            }
        }
    }
);

fn packets(data: &[u8]) {
    let keys = SessionKeys {
        aes: [7; 16],
        hmac: [8; 32],
    };
    for protection in [
        Protection::Open,
        Protection::authenticated(&keys),
        Protection::encrypted(&keys),
    ] {
        let _ = read_test(&mut data.to_vec(), &protection);
        let _ = read_reply(&mut data.to_vec(), &protection);
    }
    for key in [None, Some(StampKey::new(b"secret"))] {
        let _ = stamp::read_reply(data, key.as_ref());
        if stamp::read_test(data, key.as_ref()).is_ok() {
            let mut reply = data.to_vec();
            stamp::reflect(&mut reply, &sample(), None, key.as_ref());
            assert_eq!(reply.len(), data.len());
            let _ = stamp::read_reply(&reply, key.as_ref());
        }
    }
}

fn sample() -> Reply {
    Reply {
        request: TestPacket {
            sequence: 1,
            sent: Timestamp(2),
            error: ErrorEstimate::UNKNOWN,
        },
        ttl: 250,
        received: Timestamp(3),
        sequence: 4,
        sent: Timestamp(5),
        error: ErrorEstimate::UNKNOWN,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut test = vec![0; 80];
    stamp::write_test(&mut test, &sample().request, 9, true, None);
    let mut reply = test.clone();
    stamp::reflect(&mut reply, &sample(), None, None);
    vec![
        test,
        reply,
        b"alice 736563726574\n".to_vec(),
        b"1.0e,0f,0f".to_vec(),
    ]
}
