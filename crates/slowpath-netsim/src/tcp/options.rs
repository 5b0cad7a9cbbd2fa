// SPDX-License-Identifier: Apache-2.0
//! What the TCP options of Linux's packets take on the wire (`tcp_syn_options`,
//! `tcp_established_options`). An RFC host's packets have none beyond [`TcpConfig::header`].

use super::config::TcpConfig;
use super::segment::{MAX_SACK_BLOCKS, SACK_BLOCKS};

/// Headers of IP and TCP with timestamps, bytes.
const TIMESTAMPED: u16 = 52;

/// What a SYN takes on the wire, and its answer, bytes. They carry MSS, SACK permitted, window
/// scale, and timestamps if other packets have them.
pub(super) fn syn_bytes(config: &TcpConfig) -> u16 {
    // SACK permitted fills the 2 bytes that pad timestamps.
    let options = if config.header == TIMESTAMPED { 8 } else { 12 };
    config.header + options
}

/// How many SACK blocks fit into an acknowledgment: one more without timestamps.
#[inline]
pub(super) fn sack_blocks(config: &TcpConfig) -> usize {
    if config.header == TIMESTAMPED {
        SACK_BLOCKS
    } else {
        MAX_SACK_BLOCKS
    }
}

/// What an acknowledgment with `blocks` SACK blocks takes on the wire, bytes: 8 a block, and 4
/// before them.
#[inline]
pub(super) fn ack_bytes(config: &TcpConfig, blocks: usize) -> u16 {
    match blocks {
        0 => config.header,
        // At most four.
        blocks => config.header + 4 + 8 * blocks as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9293 and 7323: MSS takes 4 bytes, SACK permitted 2, a window's scale 3, timestamps 10,
    /// all padded to words: 12, and 20 with timestamps, of which 12 every packet has. A SACK
    /// option takes 2 bytes, padded by 2, and 8 a block (RFC 2018).
    #[test]
    fn options_take_bytes_on_the_wire() {
        let plain = TcpConfig::linux();
        assert_eq!((syn_bytes(&plain), ack_bytes(&plain, 0)), (52, 40));
        assert_eq!((ack_bytes(&plain, 1), ack_bytes(&plain, 3)), (52, 68));
        let timestamped = TcpConfig {
            header: TIMESTAMPED,
            ..plain
        };
        assert_eq!(syn_bytes(&timestamped), 60);
        assert_eq!(ack_bytes(&timestamped, 1), 64);
    }
}
