// SPDX-License-Identifier: Apache-2.0
//! The receive window.

use super::config::{ReceiveWindow, TcpConfig};
use slowpath_switch::{Span, Time};

/// Linux adds room for 16 segments that may come while it measures (`tcp_rcv_space_adjust`).
const MARGIN_SEGMENTS: u64 = 16;

/// What the receiver offers, and what makes it offer more.
///
/// Linux measures the round trip on the receiver's side by timestamps
/// (`tcp_rcv_rtt_measure_ts`), and how much the application reads in that time
/// (`tcp_rcv_space_adjust`). If that grew, the window becomes twice as much, and the same
/// again in proportion to the growth. Here the application reads at once, and the whole
/// buffer is window (Linux keeps part of it for the overhead of its packets).
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: u32,
    /// Smoothed over 8 samples.
    rtt: Option<Span>,
    /// What was read: when it began, from where, and how much the last time.
    read_start: Time,
    read_from: u64,
    space: u64,
}

impl Window {
    pub fn new(config: &TcpConfig) -> Self {
        let size = match config.receive_window {
            ReceiveWindow::Fixed(bytes) => bytes,
            ReceiveWindow::Autotuned { initial, .. } => initial,
        };
        Window {
            size,
            rtt: None,
            read_start: Time::ZERO,
            read_from: 0,
            space: u64::from(size).min(u64::from(config.mss) * u64::from(config.initial_window)),
        }
    }

    /// In bytes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The stream was read up to `next`; the segment that came echoes the stamp `echo`.
    #[inline]
    pub fn on_read(&mut self, config: &TcpConfig, now: Time, echo: Time, next: u64) {
        if let ReceiveWindow::Autotuned { max, .. } = config.receive_window {
            if echo != Time::ZERO {
                let sample = now.since(echo);
                let smoothed = self
                    .rtt
                    .map_or(sample.0, |rtt| rtt.0 - rtt.0 / 8 + sample.0 / 8);
                self.rtt = Some(Span(smoothed));
            }
            self.adjust(config, now, next, max);
        }
    }

    fn adjust(&mut self, config: &TcpConfig, now: Time, next: u64, max: u32) {
        let Some(rtt) = self.rtt else {
            return;
        };
        if now.since(self.read_start) < rtt {
            return;
        }
        let read = next - self.read_from;
        if read > self.space {
            let mut wanted = 2 * read + MARGIN_SEGMENTS * u64::from(config.mss);
            wanted += 2 * (wanted * (read - self.space) / self.space.max(1));
            // Not above max, which fits.
            self.size = self.size.max(wanted.min(u64::from(max)) as u32);
            self.space = read;
        }
        self.read_start = now;
        self.read_from = next;
    }
}
