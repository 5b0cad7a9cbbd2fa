// SPDX-License-Identifier: Apache-2.0
//! What polls do with which connection: how often they look at it, and whether its calls
//! are logged one by one. Both are written to a table that the event probes read, without
//! a system call; it is kept by the lower bits of the cookie, so two of 262,144 connections
//! opened in succession may share a place and are then both treated as either asked for.

use super::BpfTier;
use super::thin::{RATE_COUNT, Waiting, gaps};
use crate::probes::connection::RATE_SLOTS;
use crate::probes::connection::layouts::thinned::{THINNED_NOTES, THINNED_WALKS};

/// In a place: the connection's calls are logged one by one.
const RATE_SUSPECT: u8 = crate::probes::connection::layouts::rate_flag::RATE_SUSPECT as u8;

/// Connections whose calls are logged.
const MAX_SUSPECTS: usize = 4_096;

/// Where the rate of the connection with this cookie is kept (`rate_of`).
fn place(cookie: u64) -> usize {
    cookie as usize % RATE_SLOTS
}

impl BpfTier {
    /// From now on a poll looks at a changed connection with the probability of its rate,
    /// independently of all others, instead of always. Connections have rate 0 unless
    /// [`BpfTier::set_rate`] says otherwise; a new one is looked at by the next poll, and
    /// one that closes leaves its final record as ever. May be called again with other
    /// probabilities: what waits already waits on.
    pub fn thin(&mut self, probabilities: &[f64; RATE_COUNT]) {
        let table = Box::new(probabilities.map(gaps));
        self.rates.update(|r| {
            // SAFETY: `r` points to the mapped value. An event may read an entry of either
            // table, whatever the order.
            unsafe { (&raw mut (*r).gaps).write_volatile(*table) }
        });
        match &mut self.waiting {
            Some(waiting) => waiting.set_gaps(table),
            None => self.waiting = Some(Waiting::new(4 * self.note_entries as usize, table)),
        }
        let how = if self.by_notes {
            THINNED_NOTES
        } else {
            THINNED_WALKS
        };
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe { (&raw mut (*s).thinned).write_volatile(how) }
        });
    }

    /// Gives a connection a rate, from its next change on.
    pub fn set_rate(&mut self, cookie: u64, rate: u8) {
        let rate = rate % RATE_COUNT as u8;
        self.change_rate(cookie, |old| old & RATE_SUSPECT | rate);
    }

    /// The rate of a connection.
    pub(super) fn rate(&mut self, cookie: u64) -> u8 {
        let mut rate = 0;
        self.change_rate(cookie, |old| {
            rate = old;
            old
        });
        rate % RATE_COUNT as u8
    }

    /// Has the calls on these connections logged one by one, from their next change on, and
    /// on no others; between two looks the first 255 of each connection. At most 4,096
    /// connections; further ones are ignored.
    pub fn suspect(&mut self, cookies: &[u64]) {
        let cookies = &cookies[..cookies.len().min(MAX_SUSPECTS)];
        if self.suspected == cookies {
            return;
        }
        for old in std::mem::take(&mut self.suspected) {
            self.change_rate(old, |rate| rate & !RATE_SUSPECT);
        }
        for cookie in cookies {
            self.change_rate(*cookie, |rate| rate | RATE_SUSPECT);
        }
        self.suspected.extend_from_slice(cookies);
        let count = self.suspected.len() as u32;
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe { (&raw mut (*s).suspects).write_volatile(count) }
        });
    }

    /// Has the calls on this connection logged one by one, from its next change on, or not;
    /// for who calls [`BpfTier::thin`] instead of [`BpfTier::suspect`].
    pub fn set_suspect(&mut self, cookie: u64, suspect: bool) {
        self.change_rate(cookie, |rate| match suspect {
            true => rate | RATE_SUSPECT,
            false => rate & !RATE_SUSPECT,
        });
    }

    fn change_rate(&mut self, cookie: u64, change: impl FnOnce(u8) -> u8) {
        self.rates.update(|r| {
            // SAFETY: `r` points to the mapped value, the slot is within it, and only
            // this process writes it.
            unsafe {
                let slot = (&raw mut (*r).slots).cast::<u8>().add(place(cookie));
                let old = slot.read_volatile();
                let new = change(old);
                if new != old {
                    slot.write_volatile(new);
                }
            }
        });
    }
}
