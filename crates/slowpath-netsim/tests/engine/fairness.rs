// SPDX-License-Identifier: Apache-2.0
//! Equal flows get equal shares (Jain's index; 1 is equal, 1/n is one flow with all).

use crate::scene::{Dumbbell, jain, newreno};
use slowpath_netsim::tcp::{Algorithm, LossDetection, TcpConfig};

fn index(tcp: TcpConfig, mark: Option<u32>) -> f64 {
    let scene = Dumbbell {
        senders: 8,
        access: 1_000_000_000,
        bottleneck: 100_000_000,
        delay_us: 500,
        buffer: 100,
        mark,
    };
    jain(&scene.long_flows(tcp, 20))
}

#[test]
fn newreno_is_fair() {
    let index = index(newreno(), None);
    assert!(index > 0.95, "{index}");
}

#[test]
fn cubic_is_fair() {
    let tcp = TcpConfig {
        algorithm: Algorithm::Cubic { hystart: false },
        ..newreno()
    };
    let index = index(tcp, None);
    assert!(index > 0.95, "{index}");
}

#[test]
fn dctcp_is_fair() {
    let index = index(TcpConfig::dctcp(), Some(20));
    assert!(index > 0.95, "{index}");
}

/// RACK, probes and all, on a lossy bottleneck.
#[test]
fn linux_is_fair() {
    let tcp = TcpConfig {
        loss_detection: LossDetection::Rack,
        ..TcpConfig::linux()
    };
    let index = index(tcp, None);
    assert!(index > 0.95, "{index}");
}
