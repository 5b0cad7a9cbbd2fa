// SPDX-License-Identifier: Apache-2.0
//! Whatever the bytes: no panic, an end, and every frame counted once.

mod frames;

use frames::{USUAL, menagerie, timed};
use proptest::prelude::*;
use slowpath_trace::decode::DecodeOptions;
use slowpath_trace::engine::{Options, run};
use slowpath_trace::read::{Input, Inputs, ReadError};
use slowpath_trace::segment::Segment;
use std::io::Cursor;
use std::ops::ControlFlow;

struct NullFollower;

impl slowpath_trace::engine::Follow for NullFollower {
    type Report = ();

    fn segment(&mut self, segment: &Segment<'_>) {
        assert!(segment.captured <= segment.length);
        assert!(segment.options.len() <= 40);
    }

    fn finish(self) {}
}

fn survives(bytes: Vec<u8>, threads: usize) -> Result<(), TestCaseError> {
    let input = Input::Stream("any".to_owned(), Box::new(Cursor::new(bytes.clone())));
    let options = Options {
        threads,
        connections: 128,
        followed: 64,
        decode: DecodeOptions {
            tunnels: true,
            checksums: true,
        },
        filter: Some("not port 9999 or vlan".parse().expect("it is one")),
        ..Options::default()
    };
    let mut finished = 0;
    let mut frames = 0;
    let result = run(
        Inputs::new(vec![input]).expect("there is one"),
        &options,
        |_, _| NullFollower,
        |_| finished += 1,
        |progress| {
            frames = progress.frames;
            ControlFlow::Continue(())
        },
    );
    match result {
        Ok(summary) => {
            prop_assert_eq!(summary.connections, finished);
            prop_assert_eq!(summary.totals.all().frames, frames);
            // A record takes some bytes: nothing is made out of nothing.
            prop_assert!(frames * 12 <= bytes.len() as u64);
        }
        Err(ReadError::NotACapture { .. } | ReadError::OtherFormat { .. }) => {}
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    }
    Ok(())
}

/// Captures of both formats with everything in them.
fn valid(link: u32, pcapng: bool) -> Vec<u8> {
    let frames = timed(menagerie());
    if !pcapng {
        return USUAL.pcap(link, &frames);
    }
    let mut file = USUAL.section(&USUAL.option(1, b"comment"));
    file.extend(USUAL.interface(link as u16, 0, &USUAL.option(9, &[9])));
    for (time, frame, wire) in &frames {
        file.extend(USUAL.packet(0, *time, frame, *wire, &USUAL.option(1, b"!")));
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        survives(bytes, 2)?;
    }

    #[test]
    fn any_frames(
        link in prop::sample::select(vec![0u32, 1, 9, 10, 50, 101, 104, 113, 276, 147]),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..20),
    ) {
        survives(USUAL.pcap(link, &timed(frames)), 1)?;
    }

    #[test]
    fn damaged_captures(
        link in prop::sample::select(vec![0u32, 1, 10, 101, 113, 276]),
        pcapng: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
        threads in 1usize..4,
    ) {
        let mut bytes = valid(link, pcapng);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1).max(bytes.len() / 2));
        survives(bytes, threads)?;
    }
}
