// SPDX-License-Identifier: Apache-2.0
//! How a connection was opened: its SYNs, what each offered and what both agreed on.

use super::Moment;
use std::time::Duration;

/// How a connection was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The last SYN before the SYN-ACK.
    pub syn: Option<Moment>,
    /// The last SYN-ACK before the client's ACK.
    pub syn_ack: Option<Moment>,
    /// The client's first ACK of the SYN-ACK.
    pub ack: Option<Moment>,
    /// Both sides sent a SYN without ACK (RFC 9293 figure 7).
    pub simultaneous: bool,
    /// The SYN carried data and a fast open cookie (RFC 7413).
    pub fast_open: FastOpen,
    /// Window scaling, decided by both SYNs (RFC 7323 section 2.2).
    pub window_scaling: Scaling,
    /// Both sides offered selective acknowledgement; `None`: a SYN was not observed.
    pub sack: Option<bool>,
    /// Both sides offered timestamps; `None`: a SYN was not observed.
    pub timestamps: Option<bool>,
    /// Both sides agreed on ECN (RFC 3168 section 6.1.1); `None`: a SYN was not observed.
    pub ecn: Option<bool>,
    /// Both sides agreed on accurate ECN feedback (RFC 9768 section 3.1.1).
    pub accurate_ecn: Option<bool>,
}

impl Handshake {
    /// From the last SYN to the client's ACK: one RTT of the whole path, wherever the
    /// capture was taken. `None` when one of them was not observed.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        let nanos = self.ack?.time.0.checked_sub(self.syn?.time.0)?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}

/// What became of data in the SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastOpen {
    /// Not used, or the SYN was not observed.
    #[default]
    None,
    /// The SYN asked for a cookie, or the SYN-ACK gave one.
    Requested,
    /// The SYN carried data with a cookie; no answer yet.
    Sent,
    /// The SYN-ACK acknowledged the SYN's data.
    Accepted,
    /// The SYN-ACK acknowledged the SYN only.
    Ignored,
}

/// What is known of window scaling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// A SYN was not observed: windows are as sent, perhaps too small.
    #[default]
    Unknown,
    /// One side did not offer it: windows are as sent.
    Off,
    /// Windows are shifted left by these numbers of bits.
    On {
        /// Shift of the client's windows.
        client: u8,
        /// Shift of the server's windows.
        server: u8,
    },
}

/// What a SYN offered. `None` and `false` also when no SYN was observed
/// ([`Control::syns`](super::Control::syns) is 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale as sent; more than 14 is used as 14 (RFC 7323 section 2.3).
    pub window_scale: Option<u8>,
    /// Selective acknowledgement.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
    /// A fast open option, with or without a cookie.
    pub fast_open: bool,
}
