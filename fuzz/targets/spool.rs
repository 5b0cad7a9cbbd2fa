// SPDX-License-Identifier: Apache-2.0
//! A spool as a killed writer or a broken disk leaves it. Built with `cfg(fuzzing)`, the
//! parser takes checksums for right, so that what lies behind them is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_model::{Coverage, Micros, WallMicros};
use slowpath_store::spool::{Record, parse, parse_each};
use slowpath_store::{HostIdentity, LogWriter, Options};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let Ok(parsed) = parse(data) else { return };
        assert!(parsed.torn_tail + parsed.corrupt_bytes <= data.len());
        assert!(parsed.corrupt <= parsed.corrupt_bytes);
        // A record takes some bytes: nothing is made out of nothing.
        assert!(parsed.records.len() + parsed.unknown + parsed.invalid <= data.len());
        let mut streamed = 0;
        let again = parse_each(data, |_: Record| streamed += 1).expect("as before");
        assert_eq!(streamed, parsed.records.len());
        assert_eq!(
            (again.torn_tail, again.corrupt, again.corrupt_bytes, again.unknown, again.invalid),
            (
                parsed.torn_tail,
                parsed.corrupt,
                parsed.corrupt_bytes,
                parsed.unknown,
                parsed.invalid
            )
        );
    }
);

/// What a writer leaves, whole and cut.
fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let host = HostIdentity {
        host: "fuzz".to_owned(),
        boot_id: 7,
    };
    let mut log = LogWriter::open(folder.path(), host, Options::default()).expect("opens");
    log.tick(WallMicros(1_000_000));
    for i in 0..20 {
        log.coverage(&Coverage {
            end: WallMicros(1_000_000 * i),
            duration: Micros(1_000_000),
            polls: 2,
            sockets: i as u64 * 77,
            ..Coverage::default()
        });
    }
    assert!(log.sync());
    let spool = std::fs::read_dir(folder.path().join("spool"))
        .expect("a spool folder")
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "spool"))
        .expect("a spool");
    let whole = std::fs::read(spool).expect("readable");
    let cut = whole[..whole.len() - 5].to_vec();
    let start = whole[..60.min(whole.len())].to_vec();
    vec![whole, cut, start]
}
