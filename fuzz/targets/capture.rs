// SPDX-License-Identifier: Apache-2.0
//! A capture file: its format, its frames, and what the engine makes of its connections.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_trace::decode::DecodeOptions;
use slowpath_trace::engine::{Follow, Options, run};
use slowpath_trace::filter::Filter;
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::time::Duration;

static FILTER: LazyLock<Filter> = LazyLock::new(|| {
    "tcp or vlan or portrange 1-9 or ip[9] & 3 != 1"
        .parse()
        .expect("it is one")
});

struct Checked;

impl Follow for Checked {
    type Report = ();

    fn segment(&mut self, segment: &Segment<'_>) {
        assert!(segment.captured <= segment.length);
        assert!(segment.options.len() <= 40);
    }

    fn finish(self) {}
}

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        // The first byte chooses what is done with the rest.
        let Some((choice, data)) = data.split_first() else { return };
        let input = Input::Stream("fuzz".to_owned(), Box::new(Cursor::new(data.to_vec())));
        let options = Options {
            threads: 1,
            // One or two a shard, of which one may have two segments.
            connections: if choice & 8 != 0 { 128 } else { 64 },
            followed: 64,
            linger: Duration::from_secs(1),
            decode: DecodeOptions { tunnels: choice & 1 != 0, checksums: choice & 2 != 0 },
            filter: (choice & 4 != 0).then(|| FILTER.clone()),
        };
        let inputs = Inputs::new(vec![input]).expect("there is one");
        let (mut finished, mut frames) = (0, 0);
        let result = run(
            inputs,
            &options,
            |_, _| Checked,
            |_| finished += 1,
            |progress| {
                frames = progress.frames;
                ControlFlow::Continue(())
            },
        );
        if let Ok(summary) = result {
            assert_eq!(summary.connections, finished);
            assert_eq!(summary.totals.all().frames, frames);
        }
    }
);

/// A pcap and a pcapng file with a connection, an IPv6 segment in VXLAN, and odd blocks.
fn seeds() -> Vec<Vec<u8>> {
    let mut tcp = vec![
        0, 80, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 32, 0, 0, 0, 0, 0,
    ];
    let ethernet = |kind: [u8; 2], carried: &[u8]| [&[2; 12][..], &kind, carried].concat();
    let ipv4 = |protocol: u8, carried: &[u8]| {
        let length = (20 + carried.len()) as u8;
        let head = [0x45, 0, 0, length, 0, 1, 0x40, 0, 64, protocol, 0, 0];
        [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], carried].concat()
    };
    let ipv6 = |carried: &[u8]| {
        let head = [0x60, 0, 0, 0, 0, carried.len() as u8, 6, 64];
        [&head[..], &[0x20; 16], &[0x21; 16], carried].concat()
    };
    let mut frames = vec![ethernet([8, 0], &ipv4(6, &tcp))];
    tcp[13] = 17;
    frames.push(ethernet([8, 0], &ipv4(6, &tcp)));
    let inner = ethernet([0x86, 0xdd], &ipv6(&tcp));
    let vxlan = [
        &[0, 9, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0][..],
        &inner,
    ]
    .concat();
    frames.push(ethernet(
        [0x81, 0],
        &[&[0, 5, 8, 0][..], &ipv4(17, &vxlan)].concat(),
    ));
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut pcap = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    let block = |kind: u32, body: &[u8]| {
        let length = body.len().next_multiple_of(4) as u32 + 12;
        let mut block = [words(&[kind, length]), body.to_vec()].concat();
        block.resize(length as usize - 4, 0);
        [block, words(&[length])].concat()
    };
    let mut pcapng = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    pcapng.extend(block(1, &words(&[1, 0, 0x0001_0009, 9, 0])));
    for frame in &frames {
        let length = frame.len() as u32;
        pcap.extend(words(&[1_700_000_000, 5, length, length]));
        pcap.extend(frame);
        let head = words(&[0, 0x17_0000, 7, length, length]);
        pcapng.extend(block(6, &[head, frame.clone()].concat()));
    }
    pcapng.extend(block(3, &[words(&[60]), frames[0].clone()].concat()));
    pcapng.extend(block(5, &words(&[0, 0, 0, 0x0008_0005, 3, 0, 0])));
    let chosen = |choice: u8, file: &[u8]| [&[choice], file].concat();
    vec![chosen(0, &pcap), chosen(7, &pcap), chosen(3, &pcapng)]
}
