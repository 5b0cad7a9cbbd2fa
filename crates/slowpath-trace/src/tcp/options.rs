// SPDX-License-Identifier: Apache-2.0
//! The options of a TCP header, read once.

/// Option kinds (IANA "TCP Option Kind Numbers").
mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
    pub const FAST_OPEN: u8 = 34;
    pub const EXPERIMENT: u8 = 254;
}

/// Fast open as an experiment (RFC 7413 section 4.1.1 and RFC 6994).
const EXPERIMENT_FAST_OPEN: u16 = 0xf989;

/// The options of one segment. Options of the wrong length are as if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// A fast open option.
    pub fast_open: bool,
    /// It has a cookie.
    pub fast_open_cookie: bool,
    blocks: [(u32, u32); 4],
    block_count: u8,
}

impl Parsed {
    /// SACK blocks, left and right edge.
    pub(super) fn sack(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.block_count)]
    }

    /// Changes the edges of the SACK blocks.
    pub(super) fn map_sack(&mut self, change: impl Fn(u32) -> u32) {
        for (left, right) in &mut self.blocks[..usize::from(self.block_count)] {
            (*left, *right) = (change(*left), change(*right));
        }
    }

    /// Reads what was captured of the options.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Self {
        // Two NOPs and timestamps: what nearly every segment has (RFC 7323 appendix A).
        if let [1, 1, 8, 10, rest @ ..] = bytes
            && rest.len() == 8
        {
            return Parsed {
                timestamps: Some((word(rest), word(&rest[4..]))),
                ..Parsed::default()
            };
        }
        Self::read_all(bytes)
    }

    fn read_all(mut bytes: &[u8]) -> Self {
        let mut parsed = Parsed::default();
        while let [first, rest @ ..] = bytes {
            match *first {
                kind::END => break,
                kind::NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let Some(length) = rest.first().map(|l| usize::from(*l)) else {
                break;
            };
            if length < 2 {
                break;
            }
            let body = &bytes[2.min(bytes.len())..length.min(bytes.len())];
            // Cut by the snap length: only SACK blocks are of use in part.
            if body.len() == length - 2 || *first == kind::SACK {
                parsed.take(*first, body);
            }
            if length >= bytes.len() {
                break;
            }
            bytes = &bytes[length..];
        }
        parsed
    }

    fn take(&mut self, option: u8, body: &[u8]) {
        match (option, body) {
            (kind::MSS, [a, b]) => self.mss = Some(u16::from_be_bytes([*a, *b])),
            (kind::WINDOW_SCALE, [shift]) => self.window_scale = Some(*shift),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::TIMESTAMPS, body) if body.len() == 8 => {
                self.timestamps = Some((word(body), word(&body[4..])));
            }
            (kind::SACK, body) => {
                self.block_count = 0;
                for (block, slot) in body.chunks_exact(8).zip(&mut self.blocks) {
                    *slot = (word(block), word(&block[4..]));
                    self.block_count += 1;
                }
            }
            (kind::FAST_OPEN, cookie) => {
                self.fast_open = true;
                self.fast_open_cookie |= !cookie.is_empty();
            }
            (kind::EXPERIMENT, [a, b, cookie @ ..])
                if u16::from_be_bytes([*a, *b]) == EXPERIMENT_FAST_OPEN =>
            {
                self.fast_open = true;
                self.fast_open_cookie |= !cookie.is_empty();
            }
            _ => {}
        }
    }
}

/// The first four bytes as a number; the caller has checked that they are there.
fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
