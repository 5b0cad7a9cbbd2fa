// SPDX-License-Identifier: Apache-2.0
//! The receiver of an ideal host: what RFC 5681 section 4.2 and RFC 2018 say, exact timers.

use super::Arrival;
use super::machine::Machine;
use super::policy::Policy;
use crate::tcp::config::TcpConfig;
use crate::tcp::segment::{Ack, SackBlocks};
use slowpath_switch::{Span, Time};

#[derive(Clone, Copy, Debug)]
pub(super) struct Rfc;

impl Policy for Rfc {
    #[inline]
    fn expiry(&self, now: Time, wait: Span) -> Time {
        now + wait
    }

    fn delay(&self, _: &TcpConfig, wait: Span) -> Span {
        wait
    }

    fn first_quick(half_window: u32) -> u32 {
        half_window
    }

    #[inline]
    fn respond(
        receiver: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        arrival: &Arrival,
    ) -> Option<Ack> {
        receiver.pace(config, now);
        // RFC 5681 section 4.2: at once when out of order, or when it fills a gap.
        let at_once = arrival.flipped
            || arrival.duplicate.is_some()
            || arrival.had_early
            || !receiver.early.is_empty();
        if at_once || receiver.owes_ack(config) {
            return Some(receiver.acknowledge(config, now, arrival.duplicate));
        }
        receiver.delay_ack(config, now);
        None
    }

    #[inline]
    fn blocks(
        receiver: &Machine<Self>,
        config: &TcpConfig,
        duplicate: Option<(u64, u64)>,
    ) -> SackBlocks {
        let mut sack = SackBlocks::default();
        if config.sack {
            sack.report_duplicate(duplicate);
            if !receiver.early.is_empty() {
                receiver.early.blocks(&mut sack);
            }
        }
        sack
    }
}
