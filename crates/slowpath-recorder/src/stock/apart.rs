// SPDX-License-Identifier: Apache-2.0
//! An end whose peer is on another machine: what came is kept by what both ends know of it, and so is what was sent.

use super::event::{Arrived, Found, Name};
use super::live::{LINGER, Live};
use super::request::Request;
use super::settings;
use super::side::Side;
use super::wire::LatePacket;
use super::{Joined, Pair};
use crate::ring::{Joins, Told};
use slowpath_recording::{End, Handler, Moment, OneSided, Packet, Run};
use std::net::SocketAddr;

/// What such an end keeps besides its runs.
#[derive(Clone, Default)]
pub(super) struct Apart {
    /// Packets that came and were not handed out, and how many were.
    pub(super) came: Vec<Packet>,
    told: u32,
    /// Initial sequence numbers: the SYN's and the SYN-ACK's.
    pub(super) initial: [Option<u32>; 2],
}

/// IPv6 has none.
fn identification(name: Name) -> u16 {
    if name.like == 0 { name.id } else { 0 }
}

/// What tells it apart from others without identification.
fn mark(name: Name, acknowledges: u32) -> u32 {
    match (name.like, name.id) {
        (0, 0) => acknowledges,
        (like, _) => like,
    }
}

impl Apart {
    /// Its place among those that came.
    pub(super) fn came(&mut self, packet: Packet) -> u32 {
        self.came.push(packet);
        self.told + self.came.len() as u32 - 1
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

    /// Its name was damaged. Whether it was still here.
    fn forget_last(&mut self) -> bool {
        self.came.pop().is_some()
    }

    /// What can be handed out: all but the last one's company.
    pub(super) fn take(&mut self) -> Vec<Packet> {
        self.told += self.came.len() as u32;
        std::mem::take(&mut self.came)
    }

    pub(super) fn bytes(&self) -> usize {
        self.came.capacity() * size_of::<Packet>()
    }
}

impl Side {
    /// Its peer is not on this machine.
    pub(super) fn is_alone(&self) -> bool {
        self.apart.is_some()
    }

    /// From its first packet on it is known whether its peer is here.
    pub(super) fn met(&mut self, peer_is_here: bool) {
        if self.apart.is_some() {
            return;
        }
        if peer_is_here {
            self.packets.forget();
        } else {
            let initial = [self.packets.first(), None];
            self.apart = Some(Box::new(Apart {
                initial,
                ..Apart::default()
            }));
        }
    }

    /// A packet that came to one that is alone: its number. `None`: its peer is here.
    pub(super) fn came(&mut self, arrived: &Arrived, name: Name) -> Option<u32> {
        let apart = self.apart.as_mut()?;
        let it = &arrived.packet;
        if arrived.syn.is_some() {
            apart.initial[1].get_or_insert(it.begins);
        }
        let packet = Packet {
            id: identification(name),
            begins: it.begins,
            length: it.ends.wrapping_sub(it.begins),
            mark: arrived.syn.unwrap_or_else(|| mark(name, it.acknowledges)),
            ..Packet::default()
        };
        Some(apart.came(packet))
    }

    /// The packet that came last was damaged, and is none. Whether that is so.
    pub(super) fn forget_last(&mut self) -> bool {
        self.apart.as_mut().is_none_or(|apart| apart.forget_last())
    }

    /// Packets that were merged in the backlog into the one that is handled. Whether it is alone.
    pub(super) fn merged_alone(&mut self, names: impl Iterator<Item = Name>) -> bool {
        let place = self.merging.and_then(|place| place.checked_sub(self.told));
        let Some(apart) = &mut self.apart else {
            return false;
        };
        let run = place.and_then(|place| self.runs.get_mut(place));
        if let Some(Handler::Packet { merged, .. }) = run.map(|run| &mut run.handler) {
            for name in names.take(usize::from(u16::MAX - *merged)) {
                apart.merged(name);
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
        Some(self.apart.as_mut()?.came(packet))
    }

    /// The handshake at an end that accepts and is alone.
    pub(super) fn accepts_alone(&mut self, request: &Request) -> Option<Vec<Run>> {
        let apart = self.apart.as_mut()?;
        apart.initial = request.initial;
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
                *number = apart.came(packet(0, id, begins, asks.into(), name.like));
            }
            if let Some(answer) = answer {
                self.packets
                    .answered(packet(before + run, 0, answered, 1, answer));
            }
        }
        Some(runs)
    }

    /// Packets that were not handed out: sent, came. While it lives what may still be merged into another one stays.
    pub(super) fn hand_out(&mut self, all: bool) -> [Vec<Packet>; 2] {
        let came = match (&mut self.apart, self.merging) {
            (Some(apart), None) => apart.take(),
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

    /// Its handshake was seen: both initial sequence numbers are known.
    pub(super) fn is_joinable(&self) -> bool {
        let initial = self.apart.as_ref().map(|apart| apart.initial);
        initial.is_some_and(|both| both.iter().all(Option::is_some))
    }

    /// Who it is, without runs and packets; `None`: the other end was never heard of, or nothing is known of this one.
    pub(super) fn introduce(
        &self,
        addresses: [SocketAddr; 2],
        side: usize,
        hystart: bool,
        hz: u32,
    ) -> Option<OneSided> {
        let apart = self.apart.as_ref()?;
        let found: &Found = self.settings.as_ref()?;
        if !self.is_joinable() {
            return None;
        }
        let [sysctls, socket] = settings::own(found, side, hystart, hz);
        Some(OneSided {
            addresses,
            side,
            initial: apart.initial,
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
    /// Ends that are alone; of the others nothing can be said.
    pub(super) fn apart(&mut self, pair: Pair, untold: bool, hystart: bool) {
        let (addresses, hz) = (pair.addresses, self.recording.origin.hz);
        for (side, end) in pair.ends.into_iter().enumerate() {
            let Some(mut end) = end else { continue };
            let alone = addresses.and_then(|it| end.introduce(it, side, hystart, hz));
            let Some(mut alone) = alone else {
                self.halves += 1;
                continue;
            };
            if untold && !end.gone {
                end.cut();
            }
            (alone.end, [alone.sent, alone.came]) = end.last();
            self.recording.one_sided.push(alone);
        }
    }
}

impl Live {
    /// One that is alone, at that place among the pairs.
    pub(super) fn settle_alone(&mut self, place: usize, now: u64, told: &mut Vec<Told>) {
        let pair = &mut self.joiner.pairs[place];
        let all = pair.ends.iter_mut().enumerate();
        let mut all = all.filter_map(|(side, end)| Some((side, end.as_mut()?)));
        let (Some((side, end)), None, Some(addresses)) = (all.next(), all.next(), pair.addresses)
        else {
            return self.halve(place, told);
        };
        // What was not there at the beginning never comes.
        let hopeless =
            pair.progress.number == 0 && (end.cut || !end.is_joinable() || self.joiner.pairs_only);
        if hopeless {
            return self.halve(place, told);
        }
        if pair.progress.number == 0
            && let Some(hz) = self.joiner.hz
            && let Some(alone) = end.introduce(addresses, side, self.hystart, hz)
        {
            self.last += 1;
            pair.progress.number = self.last;
            self.places.insert(self.last, place);
            let at = end.runs.first().map_or(Moment(now), |run| run.at);
            told.push(Told::OneSided {
                number: self.last,
                alone: Box::new(alone),
                hz,
                at,
            });
        }
        let number = pair.progress.number;
        if number == 0 {
            // Its settings were lost.
            if end.gone {
                self.halve(place, told);
            }
            return;
        }
        let runs = end.settle();
        if !runs.is_empty() {
            let end = side;
            told.push(Told::Runs { number, end, runs });
        }
        let packets = end.hand_out(false);
        if packets.iter().any(|some| !some.is_empty()) {
            told.push(Told::Packets { number, packets });
        }
        if !end.gone {
            return;
        }
        if pair.progress.gone == 0 {
            pair.progress.gone = now.max(1);
        }
        if now.saturating_sub(pair.progress.gone) >= LINGER {
            if let Some((end, packets)) = self.rest_alone(number) {
                told.push(Told::Packets { number, packets });
                let mut ends: [End; 2] = Default::default();
                ends[side] = end;
                told.push(Told::Closed { number, ends });
            }
            self.free(place);
        }
    }
}
