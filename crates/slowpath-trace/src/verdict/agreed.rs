// SPDX-License-Identifier: Apache-2.0
//! What the two SYNs agree on, as far as judges need it.

use super::size::Payloads;
use crate::segment::Segment;
use crate::tcp::Side;

/// Option kinds (IANA "TCP Option Kind Numbers").
const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const SACK_PERMITTED: u8 = 4;
const TIMESTAMPS: u8 = 8;

/// Timestamps in every segment (RFC 7323 appendix A).
const TIMESTAMPS_LENGTH: i64 = 12;

#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    mss: Option<u16>,
    sack: bool,
    timestamps: bool,
    /// The sequence number of the SYN.
    sequence: Option<u32>,
    /// Its timestamp value.
    value: Option<u32>,
}

/// What devices leave of a handshake that translate addresses, or sequence numbers; of client and
/// server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialNumbers {
    /// Sequence numbers: translators of addresses leave them.
    pub sequences: [u32; 2],
    /// Timestamp values, if both use them: those that rewrite sequence numbers leave them.
    pub timestamps: Option<[u32; 2]>,
}

/// What both SYNs said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agreed([Offer; 2]);

impl Agreed {
    /// A SYN of `side`. Once both are known: the payload of full segments of client and
    /// server, less timestamps, and whether there is SACK.
    pub(super) fn syn(&mut self, side: Side, s: &Segment<'_>) -> Option<([Payloads; 2], bool)> {
        let offer = &mut self.0[side as usize];
        offer.sequence = Some(s.sequence);
        let mut rest = s.options;
        while let [kind, tail @ ..] = rest {
            match (*kind, tail) {
                (END, _) => break,
                (NOP, _) => {
                    rest = tail;
                    continue;
                }
                (MSS, [4, high, low, ..]) => offer.mss = Some(u16::from_be_bytes([*high, *low])),
                (SACK_PERMITTED, [2, ..]) => offer.sack = true,
                (TIMESTAMPS, [10, value @ ..]) => {
                    offer.timestamps = true;
                    offer.value = value.first_chunk().map(|v| u32::from_be_bytes(*v));
                }
                _ => {}
            }
            let length = tail.first().map_or(0, |l| usize::from(*l));
            if length < 2 || length > rest.len() {
                break;
            }
            rest = &rest[length..];
        }
        let [client, server] = self.0;
        let options = if client.timestamps && server.timestamps {
            TIMESTAMPS_LENGTH
        } else {
            0
        };
        let [client_takes, server_takes] =
            [client.mss?, server.mss?].map(|mss| (i64::from(mss) - options).max(1));
        let likely = client_takes.min(server_takes);
        let payloads = [server_takes, client_takes].map(|most| Payloads { likely, most });
        Some((payloads, client.sack && server.sack))
    }

    /// The numbers with which both began.
    pub(super) fn initial(&self) -> Option<InitialNumbers> {
        let [client, server] = &self.0;
        Some(InitialNumbers {
            sequences: [client.sequence?, server.sequence?],
            timestamps: client.value.zip(server.value).map(<[u32; 2]>::from),
        })
    }
}
