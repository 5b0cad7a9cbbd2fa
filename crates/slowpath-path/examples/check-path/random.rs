// SPDX-License-Identifier: Apache-2.0
//! What is drawn, from a seed.

use slowpath_switch::Random;

/// A stream of random numbers of one trial: trials can be repeated one by one.
pub struct Draw(Random);

impl Draw {
    pub fn new(seed: u64, kind: u64, trial: usize) -> Self {
        Draw(Random::stream(seed, (kind << 32) | trial as u64))
    }

    /// From 0 to 1, without 1.
    pub fn share(&mut self) -> f64 {
        // The upper 53 bits are exact in a double.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    /// So that each doubling is as likely as another.
    pub fn by_factor(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.share())
    }

    /// Both ends included.
    pub fn whole(&mut self, least: usize, most: usize) -> usize {
        least + (self.share() * (most - least + 1) as f64) as usize
    }

    pub fn coin(&mut self) -> bool {
        self.share() < 0.5
    }
}
