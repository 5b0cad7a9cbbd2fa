// SPDX-License-Identifier: Apache-2.0
//! Files that are not what was written.

use crate::sample::bulk;
use slowpath_replay::recording::{DecodeError, VERSION, Wanted, decode, decode_with, encode};

#[test]
fn a_foreign_file_is_refused() {
    assert_eq!(decode(b"PAR1 and more"), Err(DecodeError::NotARecording));
    assert_eq!(decode(b""), Err(DecodeError::Torn));
    assert_eq!(decode(b"slow"), Err(DecodeError::Torn));
    let mut file = encode(&bulk(10)).expect("short");
    file[8] = 9;
    assert_eq!(decode(&file), Err(DecodeError::Version { version: 9 }));
    assert_ne!(VERSION, 9);
}

/// Cut anywhere: an error, or what is whole, marked as not whole.
#[test]
fn a_file_cut_anywhere_is_never_taken_for_a_whole_one() {
    let recording = bulk(60);
    let file = encode(&recording).expect("short");
    let whole = recording.kept();
    for length in 0..file.len() {
        let Ok(decoded) = decode_with(&file[..length], Wanted::default()) else {
            continue;
        };
        assert!(decoded.damage.cut, "cut at {length}");
        for (connection, was) in decoded.recording.connections.iter().zip(&whole.connections) {
            assert_eq!(connection.addresses, was.addresses);
            for (end, was) in connection.ends.iter().zip(&was.ends) {
                assert_eq!(end.gap, Some(end.runs.len() as u64), "cut at {length}");
                assert!(was.runs.starts_with(&end.runs));
            }
        }
    }
}
