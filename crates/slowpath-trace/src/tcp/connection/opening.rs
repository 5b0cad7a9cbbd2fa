// SPDX-License-Identifier: Apache-2.0
//! The SYNs of a connection: what each offers, and what both agree on.

use crate::segment::{Flags, Segment};
use crate::tcp::flow::Flow;
use crate::tcp::options::Parsed;
use crate::tcp::report::{FastOpen, Handshake, Moment, Scaling, Side};

impl Handshake {
    /// A segment without SYN, while the client's ACK is awaited.
    #[inline]
    pub(super) fn third(&mut self, s: &Segment<'_>, side: Side) {
        if side == Side::Client && self.syn_ack.is_some() && s.flags.any(Flags::ACK) {
            self.ack = Some(Moment {
                frame: s.frame,
                time: s.time,
            });
        }
    }
}

/// The first SYN-ACK of a side, which acknowledges the other's SYN: the connection opens, and a
/// reset before it was for another one (`engine/life.rs`).
pub(super) fn answers(s: &Segment<'_>, fwd: &Flow, rev: &Flow) -> bool {
    s.flags.any(Flags::ACK)
        && !fwd.syn
        && rev.syn
        && s.acknowledgement.wrapping_sub(1) == rev.send.origin as u32
}

/// A SYN: what it offers, and what both agree on.
#[cold]
pub(super) fn opening(
    s: &Segment<'_>,
    options: &Parsed,
    side: Side,
    fwd: &mut Flow,
    rev: &mut Flow,
    handshake: &mut Handshake,
) {
    let moment = Some(Moment {
        frame: s.frame,
        time: s.time,
    });
    let acks = s.flags.any(Flags::ACK);
    if acks {
        if handshake.ack.is_none() {
            handshake.syn_ack = moment;
        }
    } else {
        if handshake.syn_ack.is_none() {
            handshake.syn = moment;
        }
        handshake.simultaneous |= rev.syn && side == Side::Server;
    }
    if fwd.send.known && fwd.send.origin as u32 != s.sequence {
        fwd.restart(s.sequence);
    }
    fwd.syn = true;
    let offered = &mut fwd.offered;
    offered.mss = options.mss.or(offered.mss);
    offered.window_scale = options.window_scale.or(offered.window_scale);
    offered.sack |= options.sack_permitted;
    offered.timestamps |= options.timestamps.is_some();
    offered.fast_open |= options.fast_open;
    match (acks, options.fast_open) {
        (false, true) => {
            handshake.fast_open = if s.length > 0 && options.fast_open_cookie {
                FastOpen::Sent
            } else {
                FastOpen::Requested
            };
        }
        (true, _) if handshake.fast_open == FastOpen::Sent => {
            let beyond =
                rev.send.known && s.acknowledgement.wrapping_sub(rev.send.origin as u32) > 1;
            handshake.fast_open = if beyond {
                FastOpen::Accepted
            } else {
                FastOpen::Ignored
            };
        }
        (true, true) if handshake.fast_open == FastOpen::None => {
            handshake.fast_open = FastOpen::Requested;
        }
        _ => {}
    }
    let ecn = s.flags.0 & (Flags::ECE | Flags::CWR | Flags::AE);
    if !acks {
        // Remembered until the SYN-ACK answers (RFC 9768 section 3.1.1, RFC 3168 6.1.1).
        handshake.accurate_ecn = Some(ecn == Flags::ECE | Flags::CWR | Flags::AE);
        handshake.ecn = Some(ecn & (Flags::ECE | Flags::CWR) == Flags::ECE | Flags::CWR);
    } else if rev.syn {
        let agreed = ecn == Flags::ECE;
        handshake.ecn = handshake.ecn.map(|offered| offered && agreed);
        let accurate = ecn & (Flags::AE | Flags::CWR) == Flags::CWR
            || ecn & (Flags::AE | Flags::ECE) == Flags::AE;
        handshake.accurate_ecn = handshake.accurate_ecn.map(|offered| offered && accurate);
    }
    if fwd.syn && rev.syn {
        agree(side, fwd, rev, handshake);
    }
}

/// Both SYNs were observed.
fn agree(side: Side, fwd: &mut Flow, rev: &mut Flow, handshake: &mut Handshake) {
    let (a, b) = (fwd.offered, rev.offered);
    handshake.sack = Some(a.sack && b.sack);
    handshake.timestamps = Some(a.timestamps && b.timestamps);
    handshake.window_scaling = match (a.window_scale, b.window_scale) {
        (Some(a), Some(b)) => {
            // RFC 7323 section 2.3: more than 14 is 14.
            (fwd.receive.shift, rev.receive.shift) = (a.min(14), b.min(14));
            let (client, server) = match side {
                Side::Client => (fwd.receive.shift, rev.receive.shift),
                Side::Server => (rev.receive.shift, fwd.receive.shift),
            };
            Scaling::On { client, server }
        }
        _ => {
            (fwd.receive.shift, rev.receive.shift) = (0, 0);
            Scaling::Off
        }
    };
}
