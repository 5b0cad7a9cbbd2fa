// SPDX-License-Identifier: Apache-2.0
//! Captures made by others: what capinfos and the authors of tcptrace count in them.

use slowpath_trace::read::open;
use std::path::PathBuf;

/// `None`: the captures are not on this machine.
fn shared(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let path = folder.join(name);
    if !path.exists() {
        println!("SKIPPED {name}: shared/captures is not here");
        return None;
    }
    Some(path)
}

/// Frames and TCP segments that can be read.
fn count(name: &str) -> Option<(u64, u64)> {
    let mut capture = open(shared(name)?).expect("it opens");
    let (mut frames, mut segments) = (0, 0);
    while let Some(packet) = capture.next().expect("it reads") {
        frames += 1;
        assert_eq!(packet.number(), frames);
        segments += u64::from(packet.segment().is_ok());
    }
    let totals = capture.totals();
    assert_eq!(totals.all().frames, frames);
    assert_eq!(totals.tcp().frames, segments);
    Some((frames, segments))
}

/// "N packets observed, M TCP packets traced" of the outputs beside the captures.
#[test]
fn as_many_packets_as_tcptrace_saw() {
    for (name, observed, traced) in [
        ("6syns", 68, 68),
        ("bad_ack_code", 40, 40),
        ("badsyns", 17, 17),
        ("discard.solaris", 2550, 2550),
        ("fast_reuse", 513, 513),
        ("first_seg_ooo", 243, 243),
        ("hardware_dups", 1458, 1458),
        ("http", 1270, 1270),
        ("ipfrags", 5, 0),
        ("linux_cooked_socket", 17, 17),
        ("psc.fddi", 529, 529),
    ] {
        if let Some(counted) = count(&format!("tcptrace/{name}.dmp.gz")) {
            assert_eq!(counted, (observed, traced), "{name}");
        }
    }
}

/// By `capinfos -c`, and `tshark -Y tcp`.
#[test]
fn as_many_packets_as_tshark_sees() {
    for (name, frames, segments) in [
        ("http_espn", 956, 928),
        ("latency1", 6, 6),
        ("latency2", 6, 6),
        ("tcp_dupack", 9, 9),
        ("tcp_handshake", 3, 3),
        ("tcp_ports", 505, 505),
        ("tcp_retransmissions", 6, 6),
    ] {
        if let Some(counted) = count(&format!("packets/{name}.pcapng")) {
            assert_eq!(counted, (frames, segments), "{name}");
        }
    }
}
