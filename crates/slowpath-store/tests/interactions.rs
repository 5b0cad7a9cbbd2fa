// SPDX-License-Identifier: Apache-2.0
//! Interactions come back as they were written, from the spool and from Parquet.

use slowpath_model::{
    ConnectionId, FourTuple, InteractionEvidence, InteractionInterval, InteractionKind, Micros,
    MonoNanos, Owner, Problem, ProxyFlow, UnknownOwner, WallMicros,
};
use slowpath_store::{HostIdentity, LogReader, LogWriter, Options, TimeRange};

const BOOT: u128 = 0x5f3c_9a01;

fn tuple(text: [&str; 2]) -> FourTuple {
    FourTuple::new(text[0].parse().unwrap(), text[1].parse().unwrap())
}

fn id(cookie: u64) -> ConnectionId {
    ConnectionId {
        boot_id: BOOT,
        netns: 4_026_531_840,
        cookie,
        start: MonoNanos(1_000 * cookie),
    }
}

fn interval(number: u64, evidence: InteractionEvidence) -> InteractionInterval {
    let kind = InteractionKind::ALL[number as usize];
    let proxy = kind == InteractionKind::PipelinedProxy;
    let mine = tuple(["10.0.0.1:80", "10.0.0.9:5000"]);
    let cause = tuple(["[fd00::1]:4000", "[fd00::2]:81"]);
    InteractionInterval {
        kind,
        connection: id(number),
        tuple: mine,
        owner: match number {
            0 => Owner::unknown(UnknownOwner::NotRecorded),
            pid => Owner::named(pid as u32, "nginx"),
        },
        cause: if proxy { id(99) } else { id(number) },
        cause_tuple: if proxy { cause } else { mine },
        connections: 1 + number as u32,
        end: WallMicros(1_700_000_000_000_000 + 1_000_000 * number as i64),
        duration: Micros(2_500_123),
        rounds: 3,
        evidence,
    }
}

fn written() -> Vec<InteractionInterval> {
    let evidence = [
        InteractionEvidence::TimeoutThenDelayedAck {
            timeouts: 2,
            delayed_acks: 1,
            retransmitted_segments: 3,
        },
        InteractionEvidence::TooFewForFastRetransmit {
            timeouts: 4,
            average_write_bytes: 2_000,
            send_mss_bytes: 1_448,
            spread_over_connections: 7,
        },
        InteractionEvidence::SendBufferBelowBdp {
            capacity_bytes: 8_192,
            send_buffer_bytes: 16_384,
            bandwidth_low: 2_000_000,
            bandwidth_high: u64::MAX >> 1,
            min_rtt_us: 10_000,
            product_low_bytes: 20_000,
            product_high_bytes: 30_000,
            average_write_bytes: None,
        },
        InteractionEvidence::PipelinedProxy {
            pid: 3,
            flow: ProxyFlow::Starved,
            problem: Problem::ReceiverWindowLimited,
            share: 0.75,
            cause: tuple(["[fd00::1]:4000", "[fd00::2]:81"]),
            bytes_in: 1_000_000,
            bytes_out: 1_000_001,
            processes: 2,
        },
    ];
    (0..).zip(evidence).map(|(n, e)| interval(n, e)).collect()
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostIdentity {
        host: "test".into(),
        boot_id: BOOT,
    };
    let mut log = LogWriter::open(dir.path(), host, Options::default()).unwrap();
    for found in &written() {
        log.interaction(found);
    }
    assert_eq!(log.close().last_error, None);
    let read = LogReader::open(dir.path())
        .unwrap()
        .interactions(TimeRange::ALL)
        .unwrap();
    assert!(read.report.unreadable.is_empty() && read.report.corrupt == 0);
    assert_eq!(read.rows, written());
    // A part of the time.
    let from = WallMicros(1_700_000_000_000_000 + 1_500_000);
    let range = TimeRange {
        from,
        to: WallMicros(from.0 + 1),
    };
    let read = LogReader::open(dir.path()).unwrap().interactions(range);
    // They last 2.5 s: the third and the fourth are under way.
    assert_eq!(read.unwrap().rows, written()[2..]);
}
