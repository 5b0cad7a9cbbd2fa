// SPDX-License-Identifier: Apache-2.0
//! Listeners' intervals come back as they were written, from the spool and from Parquet.

use slowpath_model::{
    Finding, ListenCounters, ListenSettings, ListenerDeltas, ListenerId, ListenerInterval, Micros,
    Owner, Problem, ProblemSet, Share, Tier, UnknownOwner, WallMicros,
};
use slowpath_store::{HostIdentity, LogReader, LogWriter, Options, TimeRange};

const BOOT: u128 = 0x5f3c_9a01;

fn interval(number: u64, boot_id: u128, findings: &[(Problem, Option<u64>)]) -> ListenerInterval {
    ListenerInterval {
        listener: ListenerId {
            boot_id,
            netns: 4_026_531_840,
            cookie: number,
        },
        local: "[fd00::1]:443".parse().unwrap(),
        owner: match number {
            0 => Owner::unknown(UnknownOwner::NotRecorded),
            pid => Owner::named(pid as u32, "nginx"),
        },
        tier: Tier::Bpf,
        end: WallMicros(1_700_000_000_000_000 + 1_000_000 * number as i64),
        duration: Micros(1_000_123),
        findings: findings
            .iter()
            .map(|(problem, events)| Finding {
                problem: *problem,
                share: Share::Coarse,
                events: *events,
            })
            .collect(),
        unmeasured: ProblemSet::EMPTY,
        deltas: ListenerDeltas {
            drops: Some(7),
            accept_queue_before: 1,
            accept_queue: 129,
            backlog: 128,
            syn_queue: (number > 0).then_some(3),
            young: None,
            namespace: ListenCounters {
                overflows: Some(7),
                ..ListenCounters::ZERO
            },
            dropping: 1,
            settings: ListenSettings {
                somaxconn: Some(4_096),
                abort_on_overflow: Some(false),
                ..ListenSettings::default()
            },
        },
    }
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostIdentity {
        host: "test".into(),
        boot_id: BOOT,
    };
    let written = [
        interval(0, BOOT, &[(Problem::AcceptQueueOverflow, Some(7))]),
        interval(1, BOOT, &[(Problem::SynQueueOverflow, None)]),
        // Of another boot, as a log that was carried on has them.
        interval(
            2,
            BOOT + 1,
            &[
                (Problem::AcceptQueueOverflow, None),
                (Problem::SynQueueOverflow, Some(u64::MAX >> 1)),
            ],
        ),
    ];
    let mut log = LogWriter::open(dir.path(), host, Options::default()).unwrap();
    for interval in &written {
        log.listener(interval);
    }
    assert!(log.sync());
    let reader = LogReader::open(dir.path()).unwrap();
    let spooled = reader.listeners(TimeRange::ALL).unwrap();
    assert_eq!(spooled.rows, written);
    let status = log.close();
    assert_eq!(status.last_error, None);
    let converted = reader.listeners(TimeRange::ALL).unwrap();
    assert_eq!(converted.rows, written);
    assert_eq!(
        (
            converted.report.not_understood,
            converted.report.unreadable.len()
        ),
        (0, 0)
    );
    let range = TimeRange {
        from: WallMicros(1_700_000_000_500_000),
        to: WallMicros(1_700_000_001_500_000),
    };
    assert_eq!(reader.listeners(range).unwrap().rows, written[1..]);
}
