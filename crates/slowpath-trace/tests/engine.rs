// SPDX-License-Identifier: Apache-2.0
//! Which segments are one connection, and that it does not depend on threads.

mod frames;

use frames::{ACK, FIN, RST, SYN, USUAL, ethernet, ipv4, tcp, timed};
use slowpath_trace::engine::{Ended, Finished, Follow, Options, Summary, run};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

/// The frames of a connection.
#[derive(Default)]
struct Frames(Vec<u64>);

impl Follow for Frames {
    type Report = Vec<u64>;

    fn segment(&mut self, segment: &Segment<'_>) {
        self.0.push(segment.frame);
    }

    fn finish(self) -> Vec<u64> {
        self.0
    }
}

fn analyse(input: Input, options: &Options) -> (Vec<Finished<Vec<u64>>>, Summary) {
    let inputs = Inputs::new(vec![input]).expect("there is one");
    let mut finished = Vec::new();
    let summary = run(
        inputs,
        options,
        |_, _| Frames::default(),
        |connection| finished.push(connection),
        |_| ControlFlow::Continue(()),
    )
    .expect("it reads");
    finished.sort_by_key(|connection| connection.first_frame);
    assert_eq!(finished.len() as u64, summary.connections);
    (finished, summary)
}

fn bytes(capture: Vec<u8>) -> Input {
    Input::Stream("made".to_owned(), Box::new(Cursor::new(capture)))
}

/// From A's port, or to it.
fn frame(out: bool, port: u16, sequence: u32, flags: u8, length: usize) -> Vec<u8> {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let payload = vec![7; length];
    ethernet(
        0x0800,
        &if out {
            ipv4(6, [a, b], &tcp(port, 80, sequence, flags, &payload))
        } else {
            ipv4(6, [b, a], &tcp(80, port, sequence, flags, &payload))
        },
    )
}

/// "N TCP connections traced" of the outputs beside the captures.
#[test]
fn as_many_connections_as_tcptrace_saw() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    for (name, connections) in [
        ("6syns", 2),
        ("bad_ack_code", 2),
        ("badsyns", 2),
        ("discard.solaris", 5),
        ("fast_reuse", 18),
        ("first_seg_ooo", 1),
        ("hardware_dups", 1),
        ("http", 61),
        ("ipfrags", 0),
        ("linux_cooked_socket", 2),
        ("psc.fddi", 1),
    ] {
        let path = folder.join(format!("tcptrace/{name}.dmp.gz"));
        if !path.exists() {
            println!("SKIPPED {name}: shared/captures is not here");
            continue;
        }
        let (_, summary) = analyse(Input::File(path), &Options::default());
        assert_eq!(summary.connections, connections, "{name}");
    }
}

#[test]
fn a_syn_after_the_end_begins_another_connection() {
    let capture = USUAL.pcap(
        1,
        &timed(vec![
            frame(true, 5000, 100, SYN, 0),
            frame(false, 5000, 900, SYN | ACK, 0),
            frame(true, 5000, 101, ACK, 10),
            // Again, before the end: the same connection.
            frame(true, 5000, 100, SYN, 0),
            frame(true, 5000, 111, FIN | ACK, 0),
            frame(false, 5000, 901, FIN | ACK, 0),
            // A late copy belongs to it.
            frame(true, 5000, 101, ACK, 10),
            frame(true, 5000, 70_000, SYN, 0),
            frame(false, 5000, 80_000, SYN | ACK, 0),
            frame(true, 5000, 70_001, RST, 0),
            frame(true, 5000, 7, SYN, 0),
        ]),
    );
    let (found, summary) = analyse(bytes(capture), &Options::default());
    let expected = [
        (vec![1, 2, 3, 4, 5, 6, 7], Ended::Reused),
        (vec![8, 9, 10], Ended::Reused),
        (vec![11], Ended::Capture),
    ];
    let found: Vec<_> = found.into_iter().map(|f| (f.report, f.ended)).collect();
    assert_eq!(found, expected);
    assert_eq!(summary.totals.tcp().frames, 11);
}

/// RFC 9293 section 3.5.1: in SYN-SENT an ACK of something else is answered with RST, and the
/// connection is still to come. (All ACKs of these frames are 77.)
#[test]
fn a_syn_ack_belongs_to_the_syn_that_it_acknowledges() {
    let capture = USUAL.pcap(
        1,
        &timed(vec![
            frame(true, 5000, 76, SYN, 0),
            frame(false, 5000, 1_185_719_655, ACK, 0),
            frame(true, 5000, 77, RST, 0),
            frame(true, 5000, 76, SYN, 0),
            frame(false, 5000, 1_704_897_562, SYN | ACK, 0),
            frame(true, 5000, 77, ACK, 10),
            frame(true, 5000, 87, RST, 0),
            // An answer to another SYN.
            frame(false, 5000, 80_000, SYN | ACK, 0),
        ]),
    );
    let (found, _) = analyse(bytes(capture), &Options::default());
    let found: Vec<_> = found.into_iter().map(|f| (f.report, f.ended)).collect();
    let expected = [
        (vec![1, 2, 3, 4, 5, 6, 7], Ended::Reused),
        (vec![8], Ended::Capture),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_closed_connection_is_let_go_after_its_linger() {
    let mut frames = timed(vec![
        frame(true, 5000, 100, RST, 0),
        frame(true, 5000, 100, ACK, 1),
        frame(true, 5000, 101, ACK, 1),
    ]);
    // Within the linger of what came last; then not.
    frames[1].0 = frames[0].0 + 9_000_000_000;
    frames[2].0 = frames[1].0 + 11_000_000_000;
    let options = Options {
        linger: Duration::from_secs(10),
        ..Options::default()
    };
    let (found, _) = analyse(bytes(USUAL.pcap(1, &frames)), &options);
    let found: Vec<_> = found.into_iter().map(|f| (f.report, f.ended)).collect();
    assert_eq!(
        found,
        [(vec![1, 2], Ended::Closed), (vec![3], Ended::Capture)]
    );
}

/// Many connections in turns, some closed, ports used again, more than the bound allows.
fn crowd() -> Vec<u8> {
    let mut frames = Vec::new();
    for round in 0..6u32 {
        for port in 0..3000u16 {
            let n = u32::from(port) * 31 + round * 17;
            let flags = match n % 11 {
                0 => SYN,
                1 => FIN | ACK,
                2 => RST,
                _ => ACK,
            };
            if n % 3 != 0 {
                frames.push(frame(
                    n.is_multiple_of(2),
                    1000 + port,
                    round * 1000,
                    flags,
                    3,
                ));
            }
            if n.is_multiple_of(97) {
                frames.push(ethernet(0x0806, &[0; 28]));
            }
        }
    }
    USUAL.pcap(1, &timed(frames))
}

#[test]
fn results_do_not_depend_on_threads() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("crowd.pcap");
    std::fs::write(&path, crowd()).expect("it writes");
    for (connections, followed) in [(1, 1), (500, 500), (1 << 20, 500), (1 << 20, 1 << 18)] {
        let options = |threads| Options {
            threads,
            connections,
            followed,
            linger: Duration::from_secs(1),
            ..Options::default()
        };
        let one = analyse(Input::File(path.clone()), &options(1));
        assert_eq!(one.1.evicted > 0, connections.min(followed) < 3000);
        let segments: usize = one.0.iter().map(|f| f.report.len()).sum();
        assert_eq!(one.1.totals.tcp().frames, segments as u64);
        for threads in [2, 3, 7, 64] {
            let input = Input::File(path.clone());
            assert!(
                analyse(input, &options(threads)) == one,
                "{threads} threads, a file"
            );
            assert!(
                analyse(bytes(crowd()), &options(threads)) == one,
                "{threads}, a stream"
            );
        }
    }
}

#[test]
fn progress_comes_to_the_end_and_can_stop() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("crowd.pcap");
    std::fs::write(&path, crowd()).expect("it writes");
    let size = crowd().len() as u64;
    let inputs = || Inputs::new(vec![Input::File(path.clone())]).expect("there is one");
    let mut last = None;
    let summary = run(
        inputs(),
        &Options::default(),
        |_, _| Frames::default(),
        |_| {},
        |progress| {
            last = Some(progress);
            ControlFlow::Continue(())
        },
    );
    assert!(summary.expect("it reads").complete);
    let last = last.expect("progress was reported");
    assert_eq!((last.bytes, last.total), (size, Some(size)));
    // A stream without an end: it ends because it is stopped.
    let endless = Endless {
        frame: crowd()[..24].to_vec(),
        at: 0,
    };
    let inputs = Inputs::new(vec![Input::Stream("endless".to_owned(), Box::new(endless))]);
    let summary = run(
        inputs.expect("there is one"),
        &Options::default(),
        |_, _| Frames::default(),
        |_| {},
        |_| ControlFlow::Break(()),
    );
    assert!(!summary.expect("it reads").complete);
}

/// Cannot follow anything.
struct Broken;

impl Follow for Broken {
    type Report = ();

    fn segment(&mut self, _segment: &Segment<'_>) {
        panic!("a follower that is broken");
    }

    fn finish(self) {}
}

#[test]
fn a_worker_that_panics_keeps_no_other_waiting() {
    for threads in [1, 2, 7] {
        let endless = Endless {
            frame: crowd()[..24].to_vec(),
            at: 0,
        };
        let inputs = Inputs::new(vec![Input::Stream("endless".to_owned(), Box::new(endless))]);
        let inputs = inputs.expect("there is one");
        let options = Options {
            threads,
            ..Options::default()
        };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let go_on = |_| ControlFlow::Continue(());
            run(inputs, &options, |_, _| Broken, |_| {}, go_on)
        }));
        assert!(ran.is_err(), "{threads} threads");
    }
}

/// A file header, then the same frame for ever.
struct Endless {
    frame: Vec<u8>,
    at: usize,
}

impl std::io::Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.frame.len() {
            self.frame = USUAL.pcap(1, &timed(vec![frame(true, 9, 9, ACK, 9)]))[24..].to_vec();
            self.at = 0;
        }
        let count = buffer.len().min(self.frame.len() - self.at);
        buffer[..count].copy_from_slice(&self.frame[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
