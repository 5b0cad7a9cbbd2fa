// SPDX-License-Identifier: Apache-2.0
//! A connection captured at both ends, as JSON.

use super::super::figures::micros;
use super::super::pairing::{PairedConnection, by};
use crate::pair::{Delays, Paired, Transit};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// One-way delays.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct DelaysOutput {
    count: u64,
    least_us: f64,
    median_us: f64,
    p95_us: f64,
    most_us: f64,
}

/// What became of one side's segments.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct TransitOutput {
    sent: u64,
    arrived: u64,
    /// Of these, joined or cut by segmentation offload.
    rejoined: u64,
    lost: u64,
    lost_bytes: u64,
    /// Lost of sent, 0 to 1.
    loss_rate: f64,
    /// The first lost segments by their packets' numbers.
    lost_frames: Vec<u64>,
    /// Sent before the other capture began or after it ended.
    outside: u64,
    /// In the receiver's capture only.
    receiver_only: u64,
    reordered: u64,
    /// How many overtook the one overtaken by most.
    most_overtaken: u64,
    one_way: Option<DelaysOutput>,
}

/// A connection found in both captures.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct PairedOutput {
    /// Its number in the first capture.
    connection: u64,
    error: (),
    /// By what the two were recognised as one.
    paired_by: &'static str,
    /// The first capture is the client's.
    first_is_client: bool,
    server_clock_ahead_us: f64,
    server_clock_uncertainty_us: f64,
    drift_ppm: f64,
    drift_uncertainty_ppm: f64,
    from_client: TransitOutput,
    from_server: TransitOutput,
}

/// A connection that could not be paired.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct UnpairedOutput {
    /// Its number in the first capture.
    connection: u64,
    /// Why not.
    error: String,
}

/// The result of pairing a connection: `{"type": "pair"}`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub(super) enum PairOutput {
    Paired(Box<PairedOutput>),
    Unpaired(UnpairedOutput),
}

impl From<Delays> for DelaysOutput {
    fn from(delays: Delays) -> Self {
        DelaysOutput {
            count: delays.count,
            least_us: micros(delays.least),
            median_us: micros(delays.median),
            p95_us: micros(delays.high),
            most_us: micros(delays.most),
        }
    }
}

impl TransitOutput {
    fn of(transit: &Transit) -> Self {
        TransitOutput {
            sent: transit.sent,
            arrived: transit.arrived,
            rejoined: transit.rejoined,
            lost: transit.lost_count,
            lost_bytes: transit.lost_bytes,
            loss_rate: transit.loss_rate(),
            lost_frames: transit.lost.iter().map(|l| l.frame).collect(),
            outside: transit.outside,
            receiver_only: transit.unsent,
            reordered: transit.reordered,
            most_overtaken: transit.most_overtaken,
            one_way: transit.delays.map(DelaysOutput::from),
        }
    }
}

impl PairedOutput {
    fn of(number: u64, paired: &Paired) -> Self {
        PairedOutput {
            connection: number,
            error: (),
            paired_by: by(paired.likeness),
            first_is_client: paired.first_is_client,
            server_clock_ahead_us: paired.clock.offset as f64 / 1000.0,
            server_clock_uncertainty_us: micros(paired.clock.uncertainty),
            drift_ppm: paired.clock.drift_ppm,
            drift_uncertainty_ppm: paired.clock.drift_uncertainty_ppm,
            from_client: TransitOutput::of(&paired.from_client),
            from_server: TransitOutput::of(&paired.from_server),
        }
    }
}

impl PairOutput {
    pub(super) fn of(both: &PairedConnection) -> Self {
        match &both.paired {
            Ok(paired) => PairOutput::Paired(Box::new(PairedOutput::of(both.number, paired))),
            Err(error) => PairOutput::Unpaired(UnpairedOutput {
                connection: both.number,
                error: error.to_string(),
            }),
        }
    }
}
