// SPDX-License-Identifier: Apache-2.0
//! What the network did besides losing: reordering, marks, openings that were not answered.

use super::{Label, Truth};
use crate::stream::{Sent, Stream};

/// Reordering: a segment reached the receiver behind one that was sent after it, was not sent
/// again meanwhile, and the later one was reported to the sender (SACK) before it was of this.
pub(super) fn reordering(stream: &Stream) -> Truth {
    let (mut events, mut unclear) = (0, 0);
    let arrived = |sent: &Sent| sent.arrived;
    let mut latest: Option<&Sent> = None;
    let mut by_arrival: Vec<&Sent> = stream.sent.iter().filter(|s| s.arrived.is_some()).collect();
    by_arrival.sort_by_key(|sent| arrived(sent));
    for sent in by_arrival {
        match latest {
            Some(later) if later.at > sent.at => {
                // Overtaken: was that reported, and it not sent again?
                let reported = stream.heard.iter().any(|h| {
                    let sacks = h
                        .sack
                        .iter()
                        .any(|b| b.0 <= later.start && later.start < b.1);
                    h.ack <= sent.start && sacks && Some(h.at) > later.arrived
                });
                let copies = stream
                    .sent
                    .iter()
                    .filter(|s| s.start < sent.end && s.end > sent.start);
                if reported && copies.count() == 1 {
                    events += 1;
                } else {
                    unclear += 1;
                }
            }
            _ => latest = Some(sent),
        }
    }
    Truth::counted(events, unclear)
}

/// EcnMarked: data reached the receiver with a CE mark, and that was echoed to the sender.
pub(super) fn marks(stream: &Stream) -> Truth {
    let marked = stream.sent.iter().filter(|s| s.marked).count() as u64;
    let echoed = stream.heard.iter().any(|h| h.echo);
    let mut truth = Truth::counted(marked, 0);
    if marked > 0 && !echoed {
        truth.label = Label::Undecided;
    }
    truth
}

/// SynRetransmit: this end's SYN, or SYN-ACK, was sent more than once.
pub(super) fn opening(stream: &Stream) -> Truth {
    Truth::counted(stream.syns.len().saturating_sub(1) as u64, 0)
}
