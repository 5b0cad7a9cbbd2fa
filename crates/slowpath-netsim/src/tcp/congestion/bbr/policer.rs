// SPDX-License-Identifier: Apache-2.0
//! Policers: a rate at which a token bucket drops whatever goes beyond it (`bbr_lt_bw_sampling`). Two
//! stretches in a row that lose a fifth, with the same rate of delivery, show one; for 48 round trips
//! that is the path's rate then.

use super::{MILLION, RATE_UNIT, UNIT};
use crate::tcp::delivery_rate::Totals;

/// `bbr_lt_intvl_min_rtts`: round trips of a stretch, at least.
const LEAST_ROUNDS: u32 = 4;
/// `bbr_lt_loss_thresh`: lost of delivered, of 256.
const LOSSES: u64 = 50;
/// `bbr_lt_bw_max_rtts`.
const MOST_ROUNDS: u32 = 48;
/// `bbr_lt_bw_diff`: bytes a second that are no difference.
const SAME: u64 = 4_000 / 8;

/// What an ACK shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// What was delivered and lost so far.
    pub totals: Totals,
    /// Segments newly taken for lost.
    pub losses: u32,
    /// The application had nothing more to send.
    pub limited: bool,
    /// A round trip begins.
    pub round_start: bool,
    /// BBR probes for the rate.
    pub probes_rate: bool,
    /// Payload of a segment, bytes.
    pub mss: u64,
}

/// A stretch between losses, and what the last one showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Policer {
    sampling: bool,
    rounds: u32,
    rate: Option<u64>,
    /// That rate is the policer's.
    found: bool,
    /// What was delivered and lost when the stretch began.
    since: Totals,
}

impl Policer {
    /// The policer's rate, where one was found.
    pub fn rate(&self) -> Option<u64> {
        self.rate.filter(|_| self.found)
    }

    /// Nothing is known.
    pub fn reset(&mut self, totals: Totals) {
        *self = Policer::default();
        self.begin(totals);
    }

    fn begin(&mut self, totals: Totals) {
        self.since = totals;
        self.rounds = 0;
    }

    /// Takes an ACK; true if the policer's rate has held long enough and the path is probed again.
    pub fn sample(&mut self, report: &Report) -> bool {
        let (totals, since) = (report.totals, self.since);
        if self.found {
            if report.probes_rate && report.round_start {
                self.rounds += 1;
                if self.rounds >= MOST_ROUNDS {
                    self.reset(totals);
                    return true;
                }
            }
            return false;
        }
        if !self.sampling {
            if report.losses == 0 {
                return false;
            }
            self.begin(totals);
            self.sampling = true;
        }
        if report.limited {
            self.reset(totals);
            return false;
        }
        self.rounds += u32::from(report.round_start);
        if self.rounds < LEAST_ROUNDS {
            return false;
        }
        if self.rounds > 4 * LEAST_ROUNDS {
            self.reset(totals);
            return false;
        }
        if report.losses == 0 {
            return false;
        }
        let lost = u64::from(totals.lost.wrapping_sub(since.lost));
        let delivered = u64::from(totals.delivered.wrapping_sub(since.delivered));
        if delivered == 0 || lost * u64::from(UNIT) < LOSSES * delivered {
            return false;
        }
        // Whole milliseconds, as Linux counts them.
        let millis = (totals.delivered_at / 1_000).saturating_sub(since.delivered_at / 1_000);
        if millis == 0 {
            return false;
        }
        let rate = delivered * RATE_UNIT / (millis * 1_000);
        self.end(rate, report);
        false
    }

    /// `bbr_lt_bw_interval_done`.
    fn end(&mut self, rate: u64, report: &Report) {
        if let Some(before) = self.rate {
            let difference = rate.abs_diff(before);
            let bytes =
                u128::from(difference) * u128::from(report.mss * MILLION) / u128::from(RATE_UNIT);
            if difference <= before / 8 || bytes <= u128::from(SAME) {
                self.rate = Some(rate.midpoint(before));
                self.found = true;
                self.rounds = 0;
                return;
            }
        }
        self.rate = Some(rate);
        self.begin(report.totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of one segment in 100 us that drops every third of what comes: after two stretches of four
    /// round trips of 10 ms the rate is known, and is one of 100 us.
    #[test]
    fn a_fifth_lost_at_a_constant_rate_twice_is_a_policer() {
        let mut policer = Policer::default();
        let (mut total, mut lost) = (0, 0);
        let mut found_at = None;
        for ack in 0..2_000u32 {
            total += 1;
            let losses = u32::from(ack % 2 == 0);
            lost += losses;
            policer.sample(&Report {
                totals: Totals {
                    delivered: total,
                    lost,
                    delivered_at: u64::from(ack) * 100,
                },
                losses,
                limited: false,
                round_start: ack % 100 == 0,
                probes_rate: true,
                mss: 1_460,
            });
            if found_at.is_none() && policer.rate().is_some() {
                found_at = Some(ack);
            }
        }
        let rate = policer.rate().expect("a policer");
        assert!(
            rate.abs_diff(RATE_UNIT / 100) <= RATE_UNIT / 1_000,
            "{rate}"
        );
        // Two stretches of four round trips of 100 segments, the first of which began at the first loss.
        let found_at = found_at.expect("when");
        assert!((700..=900).contains(&found_at), "{found_at}");
    }

    #[test]
    fn a_tenth_lost_is_none() {
        let mut policer = Policer::default();
        for ack in 0..5_000u32 {
            policer.sample(&Report {
                totals: Totals {
                    delivered: ack,
                    lost: ack / 10,
                    delivered_at: u64::from(ack) * 100,
                },
                losses: u32::from(ack % 10 == 0),
                limited: false,
                round_start: ack % 100 == 0,
                probes_rate: true,
                mss: 1_460,
            });
            assert_eq!(policer.rate(), None);
        }
    }
}
