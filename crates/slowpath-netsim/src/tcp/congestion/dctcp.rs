// SPDX-License-Identifier: Apache-2.0
//! DCTCP's estimate of the share of marked segments (RFC 8257 section 3.3; `tcp_dctcp.c`).

/// Alpha's unit: 1.
const ONE: u32 = 1024;
/// g = 1/16, as a shift (section 3.3 recommends 1/16).
const GAIN_SHIFT: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Dctcp {
    /// Of 1024. Begins at 1 (section 3.3; Linux `dctcp_alpha_on_init`).
    alpha: u32,
    delivered: u32,
    marked: u32,
    /// The observation window ends when this offset is acknowledged.
    window_end: u64,
}

impl Dctcp {
    pub fn new() -> Self {
        Dctcp {
            alpha: ONE,
            delivered: 0,
            marked: 0,
            window_end: 0,
        }
    }

    pub fn alpha(&self) -> u32 {
        self.alpha
    }

    #[inline]
    pub fn delivered(&mut self, segments: u32, marked: bool, una: u64, next: u64) {
        self.delivered += segments;
        if marked {
            self.marked += segments;
        }
        if una < self.window_end {
            return;
        }
        // alpha = (1 - g) alpha + g M. Below 16 the shift would leave alpha where it is
        // for good: Linux then takes all of it away.
        let decay = self.alpha >> GAIN_SHIFT;
        self.alpha -= if decay == 0 { self.alpha } else { decay };
        if self.marked > 0 {
            let share = (self.marked << (ONE.ilog2() - GAIN_SHIFT)) / self.delivered.max(1);
            self.alpha = (self.alpha + share).min(ONE);
        }
        self.delivered = 0;
        self.marked = 0;
        self.window_end = next;
    }

    /// cwnd (1 - alpha / 2).
    pub fn reduced(&self, window: u32) -> u32 {
        // At most 2^20 * 2^10.
        window - ((window * self.alpha) >> 11)
    }
}
