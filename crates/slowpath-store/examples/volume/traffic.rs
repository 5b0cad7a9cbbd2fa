// SPDX-License-Identifier: Apache-2.0
//! What a connection of the workload carried in its hour.

use crate::workload::{Connection, Random};
use slowpath_model::{Micros, TrafficInterval, WallMicros};

const HOUR: i64 = 3_600_000_000;

/// Since the hour began or the connection opened, if that was later.
pub fn since_the_hour_began(
    random: &mut Random,
    connection: &Connection,
    now: WallMicros,
) -> TrafficInterval {
    let opened = connection.summary.first_observed;
    // The agent's turns are up to a minute after the hour.
    let late = random.exponential(20e6) as i64;
    let began = WallMicros(now.0.div_euclid(HOUR) * HOUR + late).max(opened);
    let duration = (now.0 - began.0).max(1) as u64;
    let bytes = random.lognormal(connection.rate * duration as f64 / 500_000.0, 0.2);
    let sent = (bytes / f64::from(connection.summary.stats.send_mss)) as u64 + 1;
    TrafficInterval {
        connection: connection.summary.connection,
        end: now,
        duration: Micros(duration),
        data_segments_out: Some(sent),
        data_segments_in: Some(random.exponential(sent as f64 / 8.0) as u64),
        retransmitted: Some(random.exponential(sent as f64 / 3_000.0) as u64),
    }
}
