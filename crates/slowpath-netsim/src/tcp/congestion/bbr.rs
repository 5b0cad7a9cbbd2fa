// SPDX-License-Identifier: Apache-2.0
//! BBR, version 1, as Linux has it (`tcp_bbr.c`).
//!
//! Cardwell et al., BBR: congestion-based congestion control, ACM Queue 14(5), 2016, and
//! draft-cardwell-iccrg-bbr-congestion-control-00. The model of the path is the highest rate of delivery
//! over ten round trips and the least round trip of ten seconds. The pacing rate and the window are
//! that rate and their product, times gains that depend on what is being probed for. Losses and marks
//! do not reduce it, but for the first round trip of a recovery, and where a policer is found.

mod aggregation;
mod policer;
mod windowed;

use crate::tcp::config::MAX_WINDOW;
use crate::tcp::delivery_rate::{DeliveredRate, RateSample, Totals};
use aggregation::Aggregation;
use policer::Policer;
use windowed::WindowedMax;

/// `BBR_UNIT`: what gains are counted in.
const UNIT: u32 = 256;
/// `BW_UNIT`: rates are segments a microsecond, times that.
const RATE_UNIT: u64 = 1 << 24;
/// `CYCLE_LEN`: phases of a cycle that probes for bandwidth.
const PHASES: u32 = 8;
/// `bbr_bw_rtts`: round trips of which the highest rate counts.
const RATE_ROUNDS: u32 = PHASES + 2;
/// `bbr_min_rtt_win_sec`, microseconds.
const MIN_RTT_WINDOW: u64 = 10_000_000;
/// `bbr_probe_rtt_mode_ms`, microseconds.
const PROBE_RTT_TIME: u64 = 200_000;
/// `bbr_high_gain`: 2/ln 2, the least with which rates double in a round trip.
const HIGH_GAIN: u32 = UNIT * 2885 / 1000 + 1;
/// `bbr_drain_gain`: its inverse.
const DRAIN_GAIN: u32 = UNIT * 1000 / 2885;
/// `bbr_cwnd_gain`.
const WINDOW_GAIN: u32 = UNIT * 2;
/// `bbr_full_bw_thresh`: a rate that grows by less than a quarter is the path's after
/// [`FULL_ROUNDS`] round trips in a row.
const GROWTH: u64 = 5;
const FULL_ROUNDS: u32 = 3;
/// `bbr_cwnd_min_target`.
const LEAST_WINDOW: u32 = 4;
/// `TCP_INIT_CWND`.
const INITIAL_WINDOW: u32 = 10;
/// `bbr_pacing_margin_percent`: how far below the rate it paces, so that queues drain.
const MARGIN: u64 = 1;
/// `bbr_min_tso_rate`, bytes a second: below it one segment leaves at a time.
const SLOW: u64 = 1_200_000 / 8;
/// `sk_pacing_shift`, and the most bytes of a piece less its headers.
const PACING_SHIFT: u32 = 10;
const MOST_BYTES: u64 = 65_536 - 1 - 320;
const MILLION: u64 = 1_000_000;

/// What BBR probes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The rate doubles each round trip.
    Startup,
    /// What that queued drains.
    Drain,
    /// The rate is 5/4, 3/4 and six times 1 of the highest, a round trip each.
    ProbeRate,
    /// At most four segments are out, so that the least round trip shows.
    ProbeRtt,
}

/// What BBR learns from an ACK, after its losses were looked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Report {
    /// Microseconds.
    pub now: u64,
    pub sample: RateSample,
    /// Segments newly delivered, and newly taken for lost.
    pub acked: u32,
    pub losses: u32,
    /// Segments in the network, and how many before this ACK.
    pub in_flight: u32,
    pub prior_in_flight: u32,
    /// The round trip of the last segment that it delivers, microseconds, and whether its receiver may
    /// have waited with it.
    pub rtt: Option<u64>,
    pub delayed: bool,
    /// Smoothed round trip, microseconds.
    pub srtt: Option<u64>,
    /// Microseconds until pacing lets the next segment go.
    pub held: u64,
    /// What is being done about losses.
    pub repair: Repair,
    /// Payload of a segment, bytes.
    pub mss: u64,
}

/// What is being done about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tcp) enum Repair {
    /// Nothing.
    None,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// The least round trip.
#[derive(Clone, Copy, Debug)]
struct MinRtt {
    /// Microseconds; `None` before the first.
    micros: Option<u64>,
    /// When it was measured, in ticks.
    stamp: u64,
    /// When probing for it may end, in ticks; `None` before little enough was out.
    done: Option<u64>,
    /// A round trip has passed since.
    round_done: bool,
}

/// Whether the path's rate is reached.
#[derive(Clone, Copy, Debug, Default)]
struct Full {
    /// The rate that was not passed by a quarter, and for how many round trips.
    rate: u64,
    rounds: u32,
    reached: bool,
}

/// Where in the cycle that probes for bandwidth.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    phase: u32,
    /// When it began, microseconds.
    since: u64,
    /// How often a first phase was drawn.
    draws: u32,
}

/// The state of a connection.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Bbr {
    mode: Mode,
    rates: WindowedMax,
    /// Round trips so far, by packets; whether one ends with this ACK, and how much will have been
    /// delivered when the next ends.
    rounds: u32,
    round_start: bool,
    next_round: u32,
    min_rtt: MinRtt,
    full: Full,
    cycle: Cycle,
    policer: Policer,
    aggregation: Aggregation,
    /// What losses were before this ACK, the window before them, and whether only what arrives is
    /// replaced.
    repair: Repair,
    prior_window: u32,
    conserves: bool,
    /// The application began again after it had nothing to send.
    restarted: bool,
    /// Gains of rate and window.
    gains: (u32, u32),
    /// Bytes a second; 0 before the first.
    rate: u64,
    has_rtt: bool,
    /// Microseconds of a tick of the host's timers.
    tick: u64,
    /// What random numbers follow from.
    seed: u32,
}

impl Bbr {
    /// At the start of a connection; `tick` is that of the host's timers, microseconds.
    pub fn new(tick: u64) -> Self {
        Bbr {
            mode: Mode::Startup,
            rates: WindowedMax::default(),
            rounds: 0,
            round_start: false,
            next_round: 0,
            min_rtt: MinRtt {
                micros: None,
                stamp: 0,
                done: None,
                round_done: false,
            },
            full: Full::default(),
            cycle: Cycle::default(),
            policer: Policer::default(),
            aggregation: Aggregation::default(),
            repair: Repair::None,
            prior_window: 0,
            conserves: false,
            restarted: false,
            gains: (HIGH_GAIN, HIGH_GAIN),
            rate: 0,
            has_rtt: false,
            tick: tick.max(1),
            seed: 0,
        }
    }

    /// What random numbers follow from.
    pub fn seed(&mut self, seed: u32) {
        self.seed = seed;
    }

    /// What it probes for.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The pacing rate, bytes a second. Before the first ACK it is such that the window leaves in a
    /// smoothed round trip, or in 1 ms, times the gain (`bbr_init_pacing_rate_from_rtt`).
    pub fn pacing_rate(&mut self, window: u32, srtt: Option<u64>, mss: u64) -> u64 {
        if self.rate == 0 || !self.has_rtt && srtt.is_some() {
            self.has_rtt |= srtt.is_some();
            let rtt = srtt.unwrap_or(1_000).max(1);
            let rate = u64::from(window) * RATE_UNIT / rtt;
            self.rate = bytes_per_second(rate, HIGH_GAIN, mss);
        }
        self.rate
    }

    /// The least segments of what leaves at once (`bbr_min_tso_segs`).
    pub fn least_segments(&self) -> u64 {
        if self.rate < SLOW { 1 } else { 2 }
    }

    /// The window before losses is kept for after them (`bbr_save_cwnd`).
    pub fn save_window(&mut self, window: u32) {
        self.prior_window = if self.repair < Repair::Recovery && self.mode != Mode::ProbeRtt {
            window
        } else {
            self.prior_window.max(window)
        };
    }

    /// The retransmission timer expired (`bbr_set_state`).
    pub fn on_timeout(&mut self, totals: Totals, mss: u64) {
        self.repair = Repair::Loss;
        self.full.rate = 0;
        self.round_start = true;
        let policer = policer::Report {
            totals,
            losses: 1,
            limited: false,
            round_start: true,
            probes_rate: self.mode == Mode::ProbeRate,
            mss,
        };
        self.sample_policer(&policer);
    }

    /// The losses were none (`bbr_undo_cwnd`).
    pub fn on_undo(&mut self, totals: Totals) {
        self.full.rate = 0;
        self.full.rounds = 0;
        self.policer.reset(totals);
    }

    /// The first segment leaves after nothing was out (`CA_EVENT_TX_START`); `limited` if the
    /// application had nothing to send.
    pub fn on_start(&mut self, now: u64, limited: bool, window: u32, mss: u64) -> u32 {
        if !limited {
            return window;
        }
        self.restarted = true;
        self.aggregation.restart(now);
        match self.mode {
            Mode::ProbeRate => self.set_rate(UNIT, mss),
            Mode::ProbeRtt => return self.end_probe_rtt(now, window),
            Mode::Startup | Mode::Drain => {}
        }
        window
    }

    /// An ACK: the window after it (`bbr_main`).
    pub fn on_ack(&mut self, window: u32, report: &Report) -> u32 {
        let mut window = window;
        let rate = report.sample.rate;
        self.update_rate(report);
        if rate.is_some() {
            self.update_aggregation(report, window);
        }
        self.update_cycle(report);
        self.check_full(rate);
        self.check_drain(report);
        window = self.update_min_rtt(report, window);
        self.update_gains();
        self.pacing_rate(window, report.srtt, report.mss);
        self.set_rate(self.gains.0, report.mss);
        self.set_window(window, report)
    }

    /// Whether few segments are out on purpose, so that their rate is not the path's.
    pub fn limits_itself(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    /// The path's rate: of the policer, if one was found (`bbr_bw`).
    fn path_rate(&self) -> u64 {
        self.policer.rate().unwrap_or(self.rates.max())
    }

    /// `bbr_update_bw`.
    fn update_rate(&mut self, report: &Report) {
        self.round_start = false;
        let sample = &report.sample;
        let Some(rate) = sample.rate else {
            return;
        };
        if (rate.prior.wrapping_sub(self.next_round) as i32) >= 0 {
            self.next_round = sample.totals.delivered;
            self.rounds = self.rounds.wrapping_add(1);
            self.round_start = true;
            self.conserves = false;
        }
        let policer = policer::Report {
            totals: sample.totals,
            losses: report.losses,
            limited: rate.limited,
            round_start: self.round_start,
            probes_rate: self.mode == Mode::ProbeRate,
            mss: report.mss,
        };
        self.sample_policer(&policer);
        let measured = u64::from(rate.segments) * RATE_UNIT / rate.interval;
        if !rate.limited || measured >= self.rates.max() {
            self.rates.take(RATE_ROUNDS, self.rounds, measured);
        }
    }

    fn sample_policer(&mut self, report: &policer::Report) {
        if self.policer.sample(report) {
            self.begin_cycle(report.totals.delivered_at);
        }
    }

    /// `bbr_update_ack_aggregation`.
    fn update_aggregation(&mut self, report: &Report, window: u32) {
        let rate = self.path_rate();
        let delivered_at = report.sample.totals.delivered_at;
        self.aggregation
            .take(self.round_start, delivered_at, rate, report.acked, window);
    }

    /// `bbr_update_cycle_phase`.
    fn update_cycle(&mut self, report: &Report) {
        if self.mode != Mode::ProbeRate {
            return;
        }
        let now = report.sample.totals.delivered_at;
        let since = now.saturating_sub(self.cycle.since);
        let long = self.min_rtt.micros.is_some_and(|min| since > min);
        let highest = self.rates.max();
        let ends = if self.gains.0 == UNIT {
            long
        } else {
            let out = self.at_departure(report.prior_in_flight, report);
            if self.gains.0 > UNIT {
                long && (report.losses > 0
                    || out >= self.inflight(highest, self.gains.0, report.mss))
            } else {
                long || out <= self.inflight(highest, UNIT, report.mss)
            }
        };
        if ends {
            self.next_phase(now);
        }
    }

    fn next_phase(&mut self, delivered_at: u64) {
        self.cycle.phase = (self.cycle.phase + 1) % PHASES;
        self.cycle.since = delivered_at;
    }

    /// `bbr_reset_probe_bw_mode`: any phase but the one that drains is the first.
    fn begin_cycle(&mut self, delivered_at: u64) {
        self.mode = Mode::ProbeRate;
        self.cycle.phase = PHASES - 1 - self.draw(PHASES - 1);
        self.next_phase(delivered_at);
    }

    /// A number below `below`.
    fn draw(&mut self, below: u32) -> u32 {
        self.cycle.draws = self.cycle.draws.wrapping_add(1);
        // SplitMix64's finaliser (Steele, Lea and Flood, 2014).
        let mut z = ((u64::from(self.seed) << 32) | u64::from(self.cycle.draws))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Below `below`.
        (((z >> 32) * u64::from(below)) >> 32) as u32
    }

    /// `bbr_check_full_bw_reached`.
    fn check_full(&mut self, rate: Option<DeliveredRate>) {
        if self.full.reached || !self.round_start || rate.is_some_and(|rate| rate.limited) {
            return;
        }
        if self.rates.max() >= self.full.rate * GROWTH / 4 {
            self.full.rate = self.rates.max();
            self.full.rounds = 0;
            return;
        }
        self.full.rounds += 1;
        self.full.reached = self.full.rounds >= FULL_ROUNDS;
    }

    /// `bbr_check_drain`.
    fn check_drain(&mut self, report: &Report) {
        if self.mode == Mode::Startup && self.full.reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain
            && self.at_departure(report.in_flight, report)
                <= self.inflight(self.rates.max(), UNIT, report.mss)
        {
            self.begin_cycle(report.sample.totals.delivered_at);
        }
    }

    /// `bbr_update_min_rtt`: the window, which probing may give back.
    fn update_min_rtt(&mut self, report: &Report, window: u32) -> u32 {
        let ticks = report.now / self.tick;
        let expired = ticks > self.min_rtt.stamp + MIN_RTT_WINDOW / self.tick;
        let mut window = window;
        if let Some(rtt) = report.rtt
            && (self.min_rtt.micros.is_none_or(|min| rtt < min) || expired && !report.delayed)
        {
            self.min_rtt.micros = Some(rtt.max(1));
            self.min_rtt.stamp = ticks;
        }
        if expired && !self.restarted && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_window(window);
            self.min_rtt.done = None;
        }
        if self.mode == Mode::ProbeRtt {
            if self.min_rtt.done.is_some() {
                self.min_rtt.round_done |= self.round_start;
                if self.min_rtt.round_done {
                    window = self.end_probe_rtt(report.now, window);
                }
            } else if report.in_flight <= LEAST_WINDOW {
                self.min_rtt.done = Some(ticks + PROBE_RTT_TIME.div_ceil(self.tick));
                self.min_rtt.round_done = false;
                self.next_round = report.sample.totals.delivered;
            }
        }
        if report.acked > 0 {
            self.restarted = false;
        }
        window
    }

    /// `bbr_check_probe_rtt_done`.
    fn end_probe_rtt(&mut self, now: u64, window: u32) -> u32 {
        let ticks = now / self.tick;
        if self.min_rtt.done.is_none_or(|done| ticks <= done) {
            return window;
        }
        self.min_rtt.stamp = ticks;
        if self.full.reached {
            self.begin_cycle(now);
        } else {
            self.mode = Mode::Startup;
        }
        window.max(self.prior_window)
    }

    /// `bbr_update_gains`.
    fn update_gains(&mut self) {
        self.gains = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeRate if self.policer.rate().is_some() => (UNIT, WINDOW_GAIN),
            Mode::ProbeRate => {
                let gain = match self.cycle.phase {
                    0 => UNIT * 5 / 4,
                    1 => UNIT * 3 / 4,
                    _ => UNIT,
                };
                (gain, WINDOW_GAIN)
            }
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    /// `bbr_set_pacing_rate`: until the path's rate is reached it only grows.
    fn set_rate(&mut self, gain: u32, mss: u64) {
        let rate = bytes_per_second(self.path_rate(), gain, mss);
        if self.full.reached || rate > self.rate {
            self.rate = rate;
        }
    }

    /// `bbr_set_cwnd`.
    fn set_window(&mut self, window: u32, report: &Report) -> u32 {
        let mut window = window;
        if report.acked > 0 {
            let (repaired, conserved) = self.repair_window(window, report);
            window = repaired;
            if !conserved {
                let rate = self.path_rate();
                let target = self.product(rate, self.gains.1)
                    + self.aggregation.window(self.full.reached, rate);
                let target = self.with_budget(target, report.mss);
                if self.full.reached {
                    window = (window + report.acked).min(target);
                } else if window < target || report.sample.totals.delivered < INITIAL_WINDOW {
                    window += report.acked;
                }
                window = window.max(LEAST_WINDOW);
            }
        }
        let most = if self.mode == Mode::ProbeRtt {
            LEAST_WINDOW
        } else {
            MAX_WINDOW
        };
        window.min(most)
    }

    /// `bbr_set_cwnd_to_recover_or_restore`: the window, and whether it only replaces what arrives.
    fn repair_window(&mut self, window: u32, report: &Report) -> (u32, bool) {
        let before = core::mem::replace(&mut self.repair, report.repair);
        let mut window = window;
        if report.losses > 0 {
            window = window.saturating_sub(report.losses).max(1);
        }
        if report.repair == Repair::Recovery && before != Repair::Recovery {
            self.conserves = true;
            self.next_round = report.sample.totals.delivered;
            window = report.in_flight + report.acked;
        } else if before >= Repair::Recovery && report.repair < Repair::Recovery {
            window = window.max(self.prior_window);
            self.conserves = false;
        }
        if self.conserves {
            (window.max(report.in_flight + report.acked), true)
        } else {
            (window, false)
        }
    }

    /// `bbr_bdp`: segments of that rate and the least round trip, times a gain.
    fn product(&self, rate: u64, gain: u32) -> u32 {
        let Some(min_rtt) = self.min_rtt.micros else {
            return INITIAL_WINDOW;
        };
        let product = u128::from(rate) * u128::from(min_rtt) * u128::from(gain) / u128::from(UNIT);
        let segments = product.div_ceil(u128::from(RATE_UNIT));
        // Below 2^20.
        segments.min(u128::from(MAX_WINDOW)) as u32
    }

    /// `bbr_quantization_budget`: what hosts that send and receive in pieces need besides.
    fn with_budget(&self, window: u32, mss: u64) -> u32 {
        let mut window = window + 3 * self.piece(mss);
        window = (window + 1) & !1;
        if self.mode == Mode::ProbeRate && self.cycle.phase == 0 {
            window += 2;
        }
        window
    }

    fn inflight(&self, rate: u64, gain: u32, mss: u64) -> u32 {
        self.with_budget(self.product(rate, gain), mss)
    }

    /// `bbr_tso_segs_goal`: segments that leave at once.
    fn piece(&self, mss: u64) -> u32 {
        let bytes = (self.rate >> PACING_SHIFT).min(MOST_BYTES);
        // At most 127.
        (bytes / mss).max(self.least_segments()).min(127) as u32
    }

    /// `bbr_packets_in_net_at_edt`: segments in the network when the next may leave.
    fn at_departure(&self, in_flight: u32, report: &Report) -> u32 {
        let rate = u128::from(self.path_rate());
        let delivered = rate * u128::from(report.held) / u128::from(RATE_UNIT);
        let mut out = in_flight;
        if self.gains.0 > UNIT {
            out += self.piece(report.mss);
        }
        // No more than `out`.
        u128::from(out).saturating_sub(delivered) as u32
    }
}

/// Bytes a second of a rate times a gain, less the margin (`bbr_rate_bytes_per_sec`).
fn bytes_per_second(rate: u64, gain: u32, mss: u64) -> u64 {
    let scaled = u128::from(rate) * u128::from(mss) * u128::from(gain) / u128::from(UNIT);
    let rate = scaled * u128::from(MILLION / 100 * (100 - MARGIN)) / u128::from(RATE_UNIT);
    // Far below: 2^20 segments in a microsecond.
    rate.min(u128::from(u64::MAX)) as u64
}
