// SPDX-License-Identifier: Apache-2.0
//! The send buffer of a socket: how much of what the application writes is in it, and in which
//! pieces it lies there.
//!
//! Pieces are what Linux calls a `struct sk_buff`: data is appended to the last one until that is
//! as long as a card takes (`tcp_sendmsg_locked`), pieces leave from the front, whole or split
//! (`tcp_write_xmit`), and count until all of them is acknowledged.

use crate::tcp::config::{Algorithm, TcpConfig};
use std::collections::VecDeque;

/// `sk_gso_max_size`: 65,536 less `MAX_TCP_HEADER` and one.
pub(super) const MOST_BYTES: u64 = 65_536 - 321;
/// What a packet or a piece takes in the host beside its payload (`SKB_TRUESIZE`).
pub(crate) const OVERHEAD: u64 = SMALL_HEAD + BUFFER;
/// `SKB_SMALL_HEAD_CACHE_SIZE`, with `skb_shared_info`.
const SMALL_HEAD: u64 = 640;
/// `MAX_TCP_HEADER` and `skb_shared_info`.
const HEAD: u64 = 576;
/// `struct sk_buff`, aligned.
const BUFFER: u64 = 256;
/// A window in a SYN's answer is not scaled.
const UNSCALED: u64 = 65_535;
/// `TCP_INIT_CWND`.
const LEAST_WINDOW: u64 = 10;
/// The third of `tcp_wmem`.
const MOST_SIZE: u64 = 4 << 20;

/// `MAX_SKB_FRAGS`.
const MOST_PAGES: usize = 17;
/// `PAGE_SIZE`.
const PAGE: u64 = 4096;

/// How much a write wants to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// All pieces that may (`__tcp_push_pending_frames`), short ones too (`TCP_NAGLE_PUSH`).
    All,
    /// The same at the end of what the application writes: by Nagle's rules.
    Rest,
    /// The first piece, and even if more might soon leave with it (`tcp_push_one`).
    One,
}

/// What leaves at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// Bytes.
    pub length: u64,
    /// Its end was the end of a write (`tcp_mark_push`).
    pub push: bool,
}

/// The send buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    /// The pieces that did not leave yet.
    pub unsent: VecDeque<Piece>,
    /// Where the pieces end that left, and whether that was the end of a write.
    sent: VecDeque<(u64, bool)>,
    /// `sk_wmem_queued`.
    queued: u64,
    /// `sk_sndbuf`.
    size: u64,
    /// Where what the application has written ends.
    accepted: u64,
    /// What ends there is pushed (`pushed_seq`).
    pushed: u64,
    /// The application waits for space (`SOCK_NOSPACE`).
    full: bool,
    /// The application is about to write.
    writing: bool,
    /// What it writes now has put something there.
    copied: bool,
    acknowledged: u64,
    /// Where the pages of the data begin that did not leave yet: their number in a piece is bounded.
    pages: VecDeque<u64>,
}

impl Buffer {
    /// The application has something to write.
    pub fn wake(&mut self) {
        self.writing = true;
    }

    /// Whether at most one piece is out (`tcp_rtx_queue_empty_or_single_skb`).
    pub fn has_one_out(&self) -> bool {
        self.sent.len() <= 1
    }

    /// What one segment counts (`tcp_sndbuf_expand`).
    fn segment_size(config: &TcpConfig) -> u64 {
        (u64::from(config.mss) + HEAD).next_power_of_two() + BUFFER
    }

    /// `tcp_sndbuf_expand`: two windows fit, of BBR three (`bbr_sndbuf_expand`).
    fn expand(&mut self, config: &TcpConfig, window: u32) {
        let segments = u64::from(window).max(LEAST_WINDOW);
        let windows = if config.algorithm == Algorithm::Bbr {
            3
        } else {
            2
        };
        let size = (windows * segments * Self::segment_size(config)).min(MOST_SIZE);
        self.size = self.size.max(size);
    }

    /// The application writes of `written` what fits, until something should leave.
    /// `offered` is the receiver's window, `window` the congestion window.
    pub fn write(
        &mut self,
        config: &TcpConfig,
        written: u64,
        offered: u64,
        window: u32,
    ) -> Option<Push> {
        if !self.writing {
            return None;
        }
        if self.size == 0 {
            self.expand(config, window);
        }
        let mss = u64::from(config.mss);
        // tcp_bound_to_half_wnd.
        let most = if self.acknowledged == 0 {
            offered.min(UNSCALED)
        } else {
            offered
        };
        let goal = (MOST_BYTES.min(most / 2) / mss).max(1) * mss;
        loop {
            let left = written - self.accepted;
            if left == 0 {
                return self.stop(Push::Rest);
            }
            let tail = self.unsent.back();
            let mut copy = tail.map_or(0, |tail| goal.saturating_sub(tail.length));
            if copy > 0 {
                copy = self.fits(copy.min(left));
                if copy == 0 {
                    // skb_splice_from_iter: no space for another page.
                    self.mark();
                }
            }
            if copy == 0 {
                if self.queued >= self.size {
                    self.full = true;
                    return self.stop(Push::All);
                }
                self.queued += OVERHEAD;
                self.unsent.push_back(Piece::default());
                copy = self.fits(goal.min(left));
            }
            self.copied_pages(copy);
            let tail = self.unsent.back_mut()?;
            tail.length += copy;
            tail.push &= self.copied;
            let filled = tail.length >= goal;
            self.queued += copy;
            self.accepted += copy;
            self.copied = true;
            if self.accepted == written || !filled {
                continue;
            }
            if self.accepted > self.pushed + most / 2 {
                // forced_push.
                self.mark();
                return Some(Push::All);
            }
            if self.unsent.len() == 1 {
                return Some(Push::One);
            }
        }
    }

    /// Where the page ends that holds what is written next: a write begins with a page of its
    /// own.
    fn page_end(&self, at: u64) -> u64 {
        match self.pages.back() {
            Some(&page) if self.copied && at < page + PAGE => page + PAGE,
            _ => at + PAGE,
        }
    }

    /// How many of `bytes` the last piece has pages for.
    fn fits(&self, bytes: u64) -> u64 {
        let length = self.unsent.back().map_or(0, |tail| tail.length);
        let begin = self.accepted - length;
        let inside = self.pages.iter().rev().take_while(|page| **page > begin);
        let mut pages = inside.count() + usize::from(length > 0);
        let mut at = self.accepted;
        let goes_on = self.page_end(at) < at + PAGE;
        let mut end = at;
        if goes_on && length > 0 {
            end = self.page_end(at);
        }
        while end < self.accepted + bytes && pages < MOST_PAGES {
            at = end;
            end = if at == self.accepted {
                self.page_end(at)
            } else {
                at + PAGE
            };
            pages += 1;
        }
        (end - self.accepted).min(bytes)
    }

    /// How many pages what lies between them has, of what did not leave yet.
    fn pages_of(&self, begin: u64, end: u64) -> usize {
        let before_end = self.pages.partition_point(|page| *page < end);
        let at_begin = self.pages.partition_point(|page| *page <= begin);
        before_end - at_begin.saturating_sub(1).min(before_end)
    }

    /// Notes the pages of the `bytes` that are written next.
    fn copied_pages(&mut self, bytes: u64) {
        let end = self.accepted + bytes;
        let mut at = self.accepted;
        let page = self.page_end(at);
        if page == at + PAGE {
            self.pages.push_back(at);
        }
        at = page;
        while at < end {
            self.pages.push_back(at);
            at += PAGE;
        }
    }

    /// The end of a write (`tcp_push`).
    fn stop(&mut self, push: Push) -> Option<Push> {
        self.writing = false;
        core::mem::take(&mut self.copied).then(|| {
            self.mark();
            push
        })
    }

    /// `tcp_mark_push`.
    fn mark(&mut self) {
        if let Some(tail) = self.unsent.back_mut() {
            tail.push = true;
            self.pushed = self.accepted;
        }
    }

    /// The first piece takes from the next until it is so long, if it has pages for that
    /// (`tcp_grow_skb`).
    pub fn grow(&mut self, wanted: u64) {
        let (Some(&first), Some(&second)) = (self.unsent.front(), self.unsent.get(1)) else {
            return;
        };
        let more = wanted.saturating_sub(first.length).min(second.length);
        let unsent: u64 = self.unsent.iter().map(|piece| piece.length).sum();
        let begin = self.accepted - unsent;
        if self.pages_of(begin, begin + first.length + more) > MOST_PAGES {
            return;
        }
        let takes_all = more == second.length;
        self.unsent[0] = Piece {
            length: first.length + more,
            push: first.push || takes_all && second.push,
        };
        if takes_all {
            self.queued -= OVERHEAD;
            self.unsent.remove(1);
        } else {
            self.unsent[1].length -= more;
        }
    }

    /// Splits the first piece (`tso_fragment`).
    pub fn split(&mut self, at: u64) {
        if let Some(first) = self.unsent.front_mut()
            && first.length > at
        {
            let rest = Piece {
                length: first.length - at,
                push: first.push,
            };
            *first = Piece {
                length: at,
                push: false,
            };
            self.unsent.insert(1, rest);
            self.queued += OVERHEAD;
        }
    }

    /// The first piece leaves; it ends there. Whether its end was the end of a write.
    pub fn leave(&mut self, end: u64) -> bool {
        while self.pages.get(1).is_some_and(|page| *page <= end) {
            self.pages.pop_front();
        }
        let push = self.unsent.pop_front().is_some_and(|piece| piece.push);
        self.sent.push_back((end, push));
        push
    }

    /// Where the piece ends that has the byte before `end`, and whether that was the end of a write.
    pub fn sent_piece(&self, end: u64) -> Option<(u64, bool)> {
        let at = self.sent.partition_point(|piece| piece.0 < end);
        self.sent.get(at).copied()
    }

    /// What lies before `una` is acknowledged.
    pub fn acknowledge(&mut self, una: u64) {
        self.queued -= una - self.acknowledged;
        self.acknowledged = una;
        while self.sent.front().is_some_and(|piece| piece.0 <= una) {
            self.sent.pop_front();
            self.queued -= OVERHEAD;
        }
    }

    /// Lets an application that waits for space write again (`tcp_check_space`,
    /// `sk_stream_write_space`) if a third of the buffer is free. The buffer grows unless the
    /// window is full.
    pub fn check_space(&mut self, config: &TcpConfig, window: u32, in_flight: u32) {
        if !self.full {
            return;
        }
        if in_flight < window {
            self.expand(config, window);
        }
        if self.size.saturating_sub(self.queued) >= self.queued / 2 && self.size > self.queued {
            self.full = false;
            self.writing = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TcpConfig {
        TcpConfig::linux()
    }

    /// 1,460 and 576 bytes are 2,048 with what rounds them up, and 256 for `struct sk_buff`:
    /// 2,304; twice ten segments of that are 46,080, as `ss` shows of a socket of Linux 6.12.
    #[test]
    fn the_buffer_holds_two_windows() {
        let mut buffer = Buffer::default();
        buffer.expand(&config(), 10);
        assert_eq!(buffer.size, 46_080);
        buffer.expand(&config(), 14);
        assert_eq!(buffer.size, 64_512);
        buffer.expand(&config(), 10);
        assert_eq!(buffer.size, 64_512);
    }

    /// Half of a window that is not scaled is 22 segments of 1,460 bytes: a short write is one
    /// piece and is pushed.
    #[test]
    fn a_short_write_is_one_piece() {
        let mut buffer = Buffer::default();
        buffer.wake();
        assert_eq!(
            buffer.write(&config(), 20_000, 1 << 24, 10),
            Some(Push::Rest)
        );
        let piece = |length, push| Piece { length, push };
        assert_eq!(buffer.unsent, [piece(20_000, true)]);
        assert_eq!(buffer.write(&config(), 20_000, 1 << 24, 10), None);
        // A split piece counts twice what a piece takes beside its data.
        buffer.split(14_600);
        assert_eq!(buffer.queued, 20_000 + 2 * 896);
        buffer.grow(16_060);
        assert_eq!(buffer.unsent, [piece(16_060, false), piece(3_940, true)]);
        assert!(!buffer.leave(16_060));
        buffer.acknowledge(1_460);
        assert_eq!(buffer.queued, 18_540 + 2 * 896);
        buffer.acknowledge(16_060);
        assert_eq!(buffer.queued, 3_940 + 896);
    }

    /// A piece has 17 pages at most. After 14,600 bytes of a first write of 20,000 have left, 2 pages
    /// of it are there, and the second write begins with a page of its own: of 44 segments from 14,600
    /// on it has 15, the last of them up to 20,000 + 15 x 4,096 = 81,440.
    #[test]
    fn a_piece_that_has_all_its_pages_takes_nothing() {
        let mut buffer = Buffer::default();
        buffer.wake();
        buffer.write(&config(), 20_000, 1 << 24, 10);
        buffer.split(14_600);
        buffer.leave(14_600);
        buffer.acknowledge(14_600);
        buffer.size = 1 << 20;
        buffer.wake();
        while buffer.write(&config(), 200_000, 1 << 24, 20).is_some() {}
        assert_eq!(buffer.unsent[0].length, 64_240);
        buffer.grow(81_440 - 14_600 + 1);
        assert_eq!(buffer.unsent[0].length, 64_240);
        buffer.grow(81_440 - 14_600);
        assert_eq!(buffer.unsent[0].length, 81_440 - 14_600);
    }
}
