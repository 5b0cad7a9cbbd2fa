// SPDX-License-Identifier: Apache-2.0
//! HyStart (Ha and Rhee, Taming the elephants, 2011) with Linux's constants: slow start
//! ends when a round's train of ACKs is as long as half the least round-trip time, or when
//! its first round-trip times have grown.

use super::Growth;
use slowpath_switch::{Span, Time};

/// Below this window slow start is never ended (`hystart_low_window`).
const LOW_WINDOW: u32 = 16;
/// How many round-trip times of a round are judged (`HYSTART_MIN_SAMPLES`).
const SAMPLES: u32 = 8;
/// ACKs closer than this are of one train (`hystart_ack_delta_us`).
const TRAIN_GAP: Span = Span::from_millis(2);
/// The growth that ends slow start is an eighth of the least round-trip time, within these
/// (`HYSTART_DELAY_MIN`, `HYSTART_DELAY_MAX`).
const DELAY_MIN: Span = Span::from_millis(4);
const DELAY_MAX: Span = Span::from_millis(16);

#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    round_end: u64,
    round_start: Time,
    last_ack: Time,
    least: Option<Span>,
    samples: u32,
}

impl HyStart {
    /// An ACK of slow start came; true if slow start ends with it.
    pub fn update(&mut self, window: u32, growth: &Growth, rtt: Span) -> bool {
        let now = growth.now;
        if growth.una > self.round_end {
            self.round_end = growth.next;
            self.round_start = now;
            self.last_ack = now;
            self.least = None;
            self.samples = 0;
        }
        let Some(min) = growth.min_rtt else {
            return false;
        };
        if window < LOW_WINDOW {
            return false;
        }
        if now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = now;
            if now.since(self.round_start).0 > min.0 / 2 {
                return true;
            }
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        self.samples += 1;
        let threshold = (min.0 / 8).clamp(DELAY_MIN.0, DELAY_MAX.0);
        self.samples >= SAMPLES && least.0 > min.0 + threshold
    }
}
