// SPDX-License-Identifier: Apache-2.0
//! Packets that arrive at a socket: handled at once, or queued in the backlog, where later ones may be merged into them.

use super::event::{ArrivedPacket, Event, Name, queued_name};
use super::sent::PacketMatch;
use super::side::{MARKED, PeerView, Side};
use super::wire::{self, bit};
use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::{Handler, Outcome, Queue};

/// A packet in the backlog.
#[derive(Clone, Copy)]
pub(super) struct Queued {
    name: Name,
    /// Made part of the one before it.
    merged: bool,
}

impl Side {
    pub(super) fn queued(&mut self, event: &Event, queued: &wire::Queued) {
        self.backlog.push_back(Queued {
            name: queued_name(event.at(), queued),
            merged: queued.bits & bit::MERGED != 0,
        });
        if let Some(current) = &mut self.current {
            current.tick(event.jiffies());
            current.backlog(event.of.backlog);
        }
    }

    pub(super) fn packet(
        &mut self,
        event: &Event,
        arrived: &ArrivedPacket,
        peer: PeerView<'_>,
    ) -> bool {
        let packet = &arrived.packet;
        let first = packet.bits & bit::FIRST != 0;
        if !first {
            self.is_overtaken();
        }
        let name = self.unmerged(event, arrived, peer);
        self.met((peer.sent.is_some() || !peer.request.is_empty()) && !peer.one_sided);
        let came = self.came(arrived, name).map(PacketMatch::whole);
        let came = came.or_else(|| match arrived.syn {
            Some(like) => Some(PacketMatch::whole(peer.request.answer(like, event.at()))),
            None => peer.sent?.packet(name, packet.acknowledges),
        });
        let Some(came) = came else {
            self.current = None;
            // What waits in the backlog was looked at before, as are all that make a socket.
            self.unmatched = !event.owned && !first;
            self.cut = !self.unmatched;
            return self.unmatched;
        };
        let handler = Handler::Packet {
            number: came.number,
            marked: packet.ecn == MARKED,
            backlog: event.owned,
            merged: 1,
            truesize: packet.truesize,
        };
        if first {
            // The child began with its own making.
            if let Some(current) = &mut self.current {
                current.run.handler = handler;
                current.came(came);
            }
            return true;
        }
        if event.owned {
            if self.lock.is_held() && self.current.is_some() {
                let fields = self.lock.drained.unwrap_or(SocketFields::NONE);
                if let Some(current) = &mut self.current {
                    for (queue, field) in [
                        (Queue::Unacknowledged, Field::Queued),
                        (Queue::Unread, Field::Unread),
                    ] {
                        let bytes = fields[field];
                        current.outcome(Outcome::Flush { queue, bytes });
                    }
                }
                self.finish(event, &fields);
                self.lock.interrupted = true;
            }
            self.merging = Some(self.log.count());
        }
        self.begin(event, handler);
        if let Some(current) = &mut self.current {
            current.came(came);
        }
        true
    }

    /// What the packet was known by before others were merged into it. Those ahead of it in the backlog were part of the packet before.
    fn unmerged(&mut self, event: &Event, arrived: &ArrivedPacket, peer: PeerView<'_>) -> Name {
        let name = arrived.name(event.at());
        if !event.owned || arrived.packet.bits & bit::FIRST != 0 {
            return name;
        }
        let own = |queued: &Queued| match name.like {
            0 => queued.name.id == name.id,
            _ => !queued.merged,
        };
        let Some(before) = self.backlog.iter().position(own) else {
            return name;
        };
        self.merged(before, peer);
        let queued = self.backlog.pop_front().map_or(name, |it| it.name);
        match queued.stretch {
            [from, to] if from != to => queued,
            _ => Name {
                stretch: [arrived.packet.begins; 2],
                ..queued
            },
        }
    }

    /// The first `count` of the backlog were part of the packet before them.
    pub(super) fn merged(&mut self, count: usize, peer: PeerView<'_>) {
        let queued: Vec<Queued> = self.backlog.drain(..count).collect();
        if self.merged_one_sided(queued.iter().map(|it| it.name)) {
            return;
        }
        let run = self.merging.and_then(|place| self.log.run_at(place));
        let Some(run) = run else { return };
        let Handler::Packet { number, merged, .. } = &mut run.handler else {
            return;
        };
        let mut more = 0;
        for queued in queued {
            let Some(came) = peer.number(queued.name) else {
                continue;
            };
            let further = came.number.wrapping_sub(*number);
            let follows = further == u32::from(*merged) && *merged < u16::MAX;
            if more == 0 && follows && came.is_whole() {
                *merged += 1;
            } else {
                run.outcomes.push(Outcome::Merged {
                    place: more,
                    further,
                });
                more += 1;
                run.outcomes.extend(came.outcomes(more));
            }
        }
    }
}
