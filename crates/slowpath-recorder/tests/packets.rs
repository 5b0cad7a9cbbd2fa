// SPDX-License-Identifier: Apache-2.0
//! The light recorder with more sockets than its table has places: those without one are recorded with the socket, and none is lost.

#[allow(dead_code)] // each test binary uses its part
#[path = "../../slowpath-observe/tests/sockets/mod.rs"]
mod sockets;

use slowpath_recorder::packets::LightRecorder;
use sockets::{in_fresh_namespace, pair};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Twice as many sockets; the table has 2,048 places (`PLACES_BITS`).
const PAIRS: usize = 1500;
/// Of them, before the recorder stops.
const CLOSED: usize = 500;
const BYTES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// `enum piece` of `block.bpf.h`.
const OPENED: u8 = 1;
const PACKETS: u8 = 2;
const CALLS: u8 = 3;
const GONE: u8 = 5;

/// What was recorded of a socket.
#[derive(Debug, Default, PartialEq, Eq)]
struct SocketRecord {
    opened: usize,
    gone: usize,
    /// Results, and whether it sent.
    calls: Vec<(i32, bool)>,
}

fn word(piece: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*piece[at..].first_chunk().unwrap())
}

/// Adds what these pieces record; each stands behind its length.
fn read(mut pieces: &[u8], recorded: &mut HashMap<u64, SocketRecord>, rest: &mut HashSet<u64>) {
    while let Some((length, after)) = pieces.split_first_chunk() {
        let (piece, after) = after.split_at(u32::from_ne_bytes(*length) as usize);
        pieces = after;
        let socket = u64::from_ne_bytes(*piece[16..].first_chunk().unwrap());
        match piece[0] {
            OPENED => recorded.entry(socket).or_default().opened += 1,
            GONE => recorded.entry(socket).or_default().gone += 1,
            PACKETS => _ = rest.insert(socket),
            CALLS => {
                // `struct call_event`, 12 bytes each, behind the head.
                let calls = piece[80..].chunks_exact(12);
                let calls = calls.map(|it| (word(it, 0) as i32, word(it, 4) >> 24 == 1));
                recorded.entry(socket).or_default().calls.extend(calls);
            }
            _ => {}
        }
    }
}

#[test]
fn more_sockets_than_places() {
    let test = "more_sockets_than_places";
    in_fresh_namespace(test, || {
        let mut recorder = match LightRecorder::open(&[]) {
            Ok(recorder) => recorder,
            Err(error) => return println!("SKIPPED {test}: {error}"),
        };
        // Others on this machine are recorded as well: ours are known by the bytes of their calls.
        let mut pairs: Vec<_> = (0..PAIRS)
            .map(|_| pair("127.0.0.1:0", "127.0.0.1"))
            .collect();
        for (client, server) in &mut pairs {
            let mut bytes = [7; BYTES];
            client.write_all(&bytes).unwrap();
            server.read_exact(&mut bytes).unwrap();
        }
        for (client, server) in pairs.drain(..CLOSED) {
            client.shutdown(Shutdown::Write).unwrap();
            let mut server = server;
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
        }
        let (mut recorded, mut rest) = (HashMap::new(), HashSet::new());
        let gone = |recorded: &HashMap<u64, SocketRecord>| {
            recorded.values().filter(|it| it.gone > 0).count()
        };
        let begun = Instant::now();
        while gone(&recorded) < 2 * CLOSED && begun.elapsed() < PATIENCE {
            read(&recorder.take().unwrap(), &mut recorded, &mut rest);
        }
        read(&recorder.stop().unwrap(), &mut recorded, &mut rest);
        assert_eq!(recorder.losses().ring, 0);

        let ours = |call: (i32, bool), end: Option<(i32, bool)>, gone: usize| {
            let calls: Vec<_> = [Some(call), end].into_iter().flatten().collect();
            let wanted = SocketRecord {
                opened: 1,
                gone,
                calls,
            };
            let found = recorded.iter().filter(|(_, it)| **it == wanted);
            let waits = |socket| gone == 1 || rest.contains(socket);
            found.filter(|(socket, _)| waits(*socket)).count()
        };
        let (sent, received, end) = ((BYTES as i32, true), (BYTES as i32, false), (0, false));
        assert!(ours(sent, None, 1) >= CLOSED);
        assert!(ours(received, Some(end), 1) >= CLOSED);
        assert!(ours(sent, None, 0) >= PAIRS - CLOSED);
        assert!(ours(received, None, 0) >= PAIRS - CLOSED);
    });
}
