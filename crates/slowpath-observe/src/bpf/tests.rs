// SPDX-License-Identifier: Apache-2.0
//! What no kernel here refuses: probes that do not load, and the timer frequency.

use super::{BpfTier, OpenError, Options, timer_frequency};
use crate::FeatureState;
use crate::probes::{self, Probe};
use slowpath_model::{Problem, Snapshot};
use std::net::{TcpListener, TcpStream};

#[test]
fn timer_frequency_is_found_from_one_reading() {
    for hz in [100u64, 250, 300, 1000] {
        for seconds in [1u64, 60, 86_400, 30_000_000] {
            let jiffies = (1 << 32) - 300 * hz + seconds * hz;
            assert_eq!(
                timer_frequency(jiffies, seconds * 1_000_000_000 + 3_000_000),
                Some(hz as u32)
            );
        }
    }
}

/// All probes, one of them an object that no kernel loads.
fn with_broken(name: &str) -> Vec<&'static Probe> {
    probes::ALL
        .into_iter()
        .map(|probe| {
            if probe.name != name {
                return probe;
            }
            let broken: &'static Probe = Box::leak(Box::new(Probe {
                object: b"not an object file",
                ..*probe
            }));
            broken
        })
        .collect()
}

fn usable() -> bool {
    match BpfTier::open(&Options::default()) {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED bpf: {error}");
            false
        }
    }
}

#[test]
fn a_probe_that_does_not_load_is_a_missing_feature() {
    if !usable() {
        return;
    }
    for (name, problem) in [
        ("segment", Some(Problem::DelayedAck)),
        ("recovery", Some(Problem::FastRetransmit)),
        ("calls", Some(Problem::SmallWrites)),
        ("changes", None),
        ("seed", None),
        ("owner", None),
    ] {
        let mut tier = BpfTier::with_probes(&with_broken(name), &Options::default())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for feature in tier.features() {
            let missing = matches!(feature.state, FeatureState::Missing { .. });
            assert_eq!(missing, feature.name == name, "{feature:?}");
            if missing {
                assert_eq!(feature.serves.iter().next(), problem);
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = client.local_addr().unwrap();
        let mut snapshot = None;
        tier.poll(&mut |s: &Snapshot| {
            if s.tuple.local == local {
                snapshot = Some(s.clone());
            }
        })
        .unwrap();
        let snapshot = snapshot.expect("still observed");
        assert_eq!(snapshot.stats.rtt_sums.is_some(), name != "segment");
        assert_eq!(snapshot.stats.recovery.is_some(), name != "recovery");
        assert_eq!(snapshot.sends.is_some(), name != "calls");
    }
}

#[test]
fn a_required_probe_that_does_not_load_is_an_error_that_leaves_nothing() {
    if !usable() {
        return;
    }
    for name in ["lifecycle", "snapshot"] {
        match BpfTier::with_probes(&with_broken(name), &Options::default()) {
            Err(OpenError::Probe { probe, .. }) => assert_eq!(probe, name),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("opened without {name}"),
        }
        assert!(usable(), "and again");
    }
}
