// SPDX-License-Identifier: Apache-2.0
//! An end whose peer is on another machine: packets that arrived are kept by what both ends know of them, and so are those that were sent.

use super::event::{ArrivedPacket, Name, SocketSettings};
use super::live::{LINGER, Live};
use super::request::Request;
use super::settings;
use super::side::Side;
use super::wire::LatePacket;
use super::{Joined, Pair};
use crate::updates::{Joins, Update};
use slowpath_recording::{End, Handler, Moment, OneSided, Packet, Run};
use std::net::SocketAddr;

/// What a one-sided end keeps besides its runs.
#[derive(Clone, Default)]
pub(super) struct OneSidedState {
    /// Packets that arrived and were not handed out, and how many were.
    pub(super) came: Vec<Packet>,
    handed_out: u32,
    /// Initial sequence numbers: the SYN's and the SYN-ACK's.
    pub(super) initial: [Option<u32>; 2],
}

/// IPv6 has none.
fn identification(name: Name) -> u16 {
    if name.like == 0 { name.id } else { 0 }
}

/// What distinguishes it from others without identification.
fn mark(name: Name, acknowledges: u32) -> u32 {
    match (name.like, name.id) {
        (0, 0) => acknowledges,
        (like, _) => like,
    }
}

impl OneSidedState {
    /// Its place among those that came.
    pub(super) fn came(&mut self, packet: Packet) -> u32 {
        self.came.push(packet);
        self.handed_out + self.came.len() as u32 - 1
    }

    /// One that was merged in the backlog into the packet of that run: all that is known of it is its name.
    pub(super) fn merged(&mut self, name: Name) {
        let Some(head) = self.came.last().copied() else {
            return;
        };
        self.came(Packet {
            id: identification(name),
            length: 0,
            mark: name.like,
            ..head
        });
    }

    /// Drops the last packet, which was damaged. Returns whether it was still here.
    fn forget_last(&mut self) -> bool {
        self.came.pop().is_some()
    }

    /// What can be handed out: all but the last one's company.
    pub(super) fn take(&mut self) -> Vec<Packet> {
        self.handed_out += self.came.len() as u32;
        std::mem::take(&mut self.came)
    }

    pub(super) fn bytes(&self) -> usize {
        self.came.capacity() * size_of::<Packet>()
    }
}

impl Side {
    /// Its peer is not on this machine.
    pub(super) fn is_one_sided(&self) -> bool {
        self.one_sided.is_some()
    }

    /// From its first packet on it is known whether its peer is here.
    pub(super) fn met(&mut self, peer_is_here: bool) {
        if self.one_sided.is_some() {
            return;
        }
        if peer_is_here {
            self.packets.forget();
        } else {
            let initial = [self.packets.first(), None];
            self.one_sided = Some(Box::new(OneSidedState {
                initial,
                ..OneSidedState::default()
            }));
        }
    }

    /// Takes a packet that arrived at a one-sided end; returns its number. `None`: its peer is here.
    pub(super) fn came(&mut self, arrived: &ArrivedPacket, name: Name) -> Option<u32> {
        let one_sided = self.one_sided.as_mut()?;
        let it = &arrived.packet;
        if arrived.syn.is_some() {
            one_sided.initial[1].get_or_insert(it.begins);
        }
        let packet = Packet {
            id: identification(name),
            begins: it.begins,
            length: it.ends.wrapping_sub(it.begins),
            mark: arrived.syn.unwrap_or_else(|| mark(name, it.acknowledges)),
            ..Packet::default()
        };
        Some(one_sided.came(packet))
    }

    /// Drops the packet that arrived last, which was damaged. Returns whether that was possible.
    pub(super) fn forget_last(&mut self) -> bool {
        self.one_sided
            .as_mut()
            .is_none_or(|one_sided| one_sided.forget_last())
    }

    /// Takes packets that were merged in the backlog into the one that is handled. Returns whether the end is one-sided.
    pub(super) fn merged_one_sided(&mut self, names: impl Iterator<Item = Name>) -> bool {
        let Some(one_sided) = &mut self.one_sided else {
            return false;
        };
        let run = self.merging.and_then(|place| self.log.run_at(place));
        if let Some(Handler::Packet { merged, .. }) = run.map(|run| &mut run.handler) {
            for name in names.take(usize::from(u16::MAX - *merged)) {
                one_sided.merged(name);
                *merged += 1;
            }
        }
        true
    }

    /// The same after the socket.
    pub(super) fn came_late(&mut self, late: &LatePacket, name: Name) -> Option<u32> {
        let packet = Packet {
            id: identification(name),
            begins: late.begins,
            mark: mark(name, late.acknowledges),
            ..Packet::default()
        };
        Some(self.one_sided.as_mut()?.came(packet))
    }

    /// The handshake at a one-sided end that accepts.
    pub(super) fn accept_one_sided(&mut self, request: &Request) -> Option<Vec<Run>> {
        let one_sided = self.one_sided.as_mut()?;
        one_sided.initial = request.initial;
        let [asked, answered] = request.initial.map(|it| it.unwrap_or(0));
        let packet = |run, id, begins, length, mark| Packet {
            run,
            id,
            begins,
            length,
            mark,
        };
        let mut runs = request.runs(None);
        let before = self.inherited.len() as u64;
        for (run, handler) in (0..).zip(runs.iter_mut().map(|run| &mut run.handler)) {
            let (name, asks, answer) = request.step(run as usize)?;
            if let Handler::Packet { number, .. } = handler {
                // An ACK begins behind the SYN.
                let begins = asked.wrapping_add(u32::from(!asks));
                let id = identification(name);
                *number = one_sided.came(packet(0, id, begins, asks.into(), name.like));
            }
            if let Some(answer) = answer {
                self.packets
                    .answered(packet(before + run, 0, answered, 1, answer));
            }
        }
        Some(runs)
    }

    /// Packets that were not handed out: sent, received. While the end is open, those that may still be merged into another one stay.
    pub(super) fn hand_out(&mut self, all: bool) -> [Vec<Packet>; 2] {
        let came = match (&mut self.one_sided, self.merging) {
            (Some(one_sided), None) => one_sided.take(),
            _ => Vec::new(),
        };
        [self.packets.take(all), came]
    }

    /// The last runs and packets.
    pub(super) fn last(mut self) -> (End, [Vec<Packet>; 2]) {
        self.merging = None;
        let packets = self.hand_out(true);
        (self.end().0, packets)
    }

    /// Whether its handshake was observed: both initial sequence numbers are known.
    pub(super) fn is_joinable(&self) -> bool {
        let initial = self.one_sided.as_ref().map(|one_sided| one_sided.initial);
        initial.is_some_and(|both| both.iter().all(Option::is_some))
    }

    /// The end, without runs and packets; `None`: no packet of the other end was observed, or nothing is known of this one.
    pub(super) fn introduce(
        &self,
        addresses: [SocketAddr; 2],
        side: usize,
        hystart: bool,
        hz: u32,
    ) -> Option<OneSided> {
        let one_sided = self.one_sided.as_ref()?;
        let found: &SocketSettings = self.settings.as_ref()?;
        if !self.is_joinable() {
            return None;
        }
        let [sysctls, socket] = settings::own(found, side, hystart, hz);
        Some(OneSided {
            addresses,
            side,
            initial: one_sided.initial,
            sysctls,
            socket,
            mtu: found.mtu,
            end: End::default(),
            sent: Vec::new(),
            came: Vec::new(),
        })
    }
}

impl Joined {
    /// Adds a pair's one-sided ends, and counts those of which too little is known.
    pub(super) fn push_one_sided(&mut self, pair: Pair, unattributed: bool, hystart: bool) {
        let (addresses, hz) = (pair.addresses, self.recording.origin.hz);
        for (side, end) in pair.ends.into_iter().enumerate() {
            let Some(mut end) = end else { continue };
            let introduced = addresses.and_then(|it| end.introduce(it, side, hystart, hz));
            let Some(mut one_sided) = introduced else {
                self.halves += 1;
                continue;
            };
            if unattributed && !end.gone {
                end.cut();
            }
            (one_sided.end, [one_sided.sent, one_sided.came]) = end.last();
            self.recording.one_sided.push(one_sided);
        }
    }
}

impl Live {
    /// Reports what is final of a one-sided end, at that place among the pairs.
    pub(super) fn settle_one_sided(&mut self, place: usize, now: u64, updates: &mut Vec<Update>) {
        let pair = &mut self.joiner.pairs[place];
        let all = pair.ends.iter_mut().enumerate();
        let mut all = all.filter_map(|(side, end)| Some((side, end.as_mut()?)));
        let (Some((side, end)), None, Some(addresses)) = (all.next(), all.next(), pair.addresses)
        else {
            return self.halve(place, updates);
        };
        // What was not there at the beginning never comes.
        let hopeless =
            pair.progress.number == 0 && (end.cut || !end.is_joinable() || self.joiner.pairs_only);
        if hopeless {
            return self.halve(place, updates);
        }
        if pair.progress.number == 0
            && let Some(hz) = self.joiner.hz
            && let Some(one_sided) = end.introduce(addresses, side, self.hystart, hz)
        {
            self.last += 1;
            pair.progress.number = self.last;
            self.places.insert(self.last, place);
            let at = end.log.runs.first().map_or(Moment(now), |run| run.at);
            updates.push(Update::OneSided {
                number: self.last,
                one_sided: Box::new(one_sided),
                hz,
                at,
            });
        }
        let number = pair.progress.number;
        if number == 0 {
            // Its settings were lost.
            if end.gone {
                self.halve(place, updates);
            }
            return;
        }
        let runs = end.settle();
        if !runs.is_empty() {
            let end = side;
            updates.push(Update::Runs { number, end, runs });
        }
        let packets = end.hand_out(false);
        if packets.iter().any(|some| !some.is_empty()) {
            updates.push(Update::Packets { number, packets });
        }
        if !end.gone {
            return;
        }
        if pair.progress.gone == 0 {
            pair.progress.gone = now.max(1);
        }
        if now.saturating_sub(pair.progress.gone) >= LINGER {
            if let Some((end, packets)) = self.rest_one_sided(number) {
                updates.push(Update::Packets { number, packets });
                let mut ends: [End; 2] = Default::default();
                ends[side] = end;
                updates.push(Update::Closed { number, ends });
            }
            self.free(place);
        }
    }
}
