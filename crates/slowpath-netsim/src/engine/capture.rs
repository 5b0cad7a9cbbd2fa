// SPDX-License-Identifier: Apache-2.0
//! What hosts send and receive, shown packet by packet while the run goes on.

use super::network::HostId;
use super::packet::{Body, Content, Hop};
use crate::tcp::{SackBlocks, TcpConfig};
use slowpath_switch::{Packet, Time};
use std::cell::RefCell;
use std::rc::Rc;

/// A packet at one end of its way.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// When its first bit left its host.
    pub sent: Time,
    /// When its last bit arrived; `None` while it is being sent.
    pub arrived: Option<Time>,
    /// The same at both ends; from 0 in the order of sending. A copy that a link made has the
    /// number of its original.
    pub number: u64,
    /// Whose: different for every connection of a run.
    pub connection: u64,
    /// The host that sent it.
    pub source: HostId,
    /// The host that it is for.
    pub destination: HostId,
    /// On the wire.
    pub bytes: u16,
    /// Time to live, as it is here.
    pub ttl: u8,
    /// May be marked instead of dropped (RFC 3168).
    pub ecn_capable: bool,
    /// A switch marked it.
    pub marked: bool,
    /// What it carries.
    pub content: Content,
    /// How the ends of its connection behave; of datagrams it says nothing.
    pub config: &'a TcpConfig,
}

/// Takes the packets that hosts send and receive.
pub trait PacketSink {
    /// In the order of time. A packet that a link damaged is sent and does not arrive.
    fn packet(&mut self, packet: &CapturedPacket<'_>);
}

/// For who wants the sink back after the run.
impl<T: PacketSink> PacketSink for Rc<RefCell<T>> {
    fn packet(&mut self, packet: &CapturedPacket<'_>) {
        self.borrow_mut().packet(packet);
    }
}

/// A sink, and the number of each packet in the network, and when it was sent, by the place of its body.
pub(super) struct Capturing {
    sink: Box<dyn PacketSink>,
    packets: Vec<(u64, Time)>,
    next: u64,
}

/// Whose a packet is.
pub(super) struct Owner<'a> {
    pub config: &'a TcpConfig,
    pub source: HostId,
    pub destination: HostId,
    pub place: u32,
    pub generation: u32,
}

impl Capturing {
    pub fn new(sink: Box<dyn PacketSink>) -> Self {
        Capturing {
            sink,
            packets: Vec::new(),
            next: 0,
        }
    }

    /// A host's link took a packet.
    pub fn sent(&mut self, at: Time, hop: &Hop, body: (&Body, SackBlocks), owner: &Owner<'_>) {
        self.note(hop.body(), (self.next, at));
        self.next += 1;
        self.show(None, hop, body, owner);
    }

    /// A packet came to its host.
    pub fn arrived(&mut self, at: Time, hop: &Hop, body: (&Body, SackBlocks), owner: &Owner<'_>) {
        self.show(Some(at), hop, body, owner);
    }

    /// A link copied a packet.
    pub fn copied(&mut self, body: u32, copy: u32) {
        self.note(copy, self.packets[body as usize]);
    }

    fn note(&mut self, body: u32, packet: (u64, Time)) {
        let place = body as usize;
        if place >= self.packets.len() {
            self.packets.resize(place + 1, packet);
        }
        self.packets[place] = packet;
    }

    fn show(
        &mut self,
        arrived: Option<Time>,
        hop: &Hop,
        (body, blocks): (&Body, SackBlocks),
        owner: &Owner<'_>,
    ) {
        let content = body.content(blocks);
        let (number, sent) = self.packets[hop.body() as usize];
        let (source, destination) = match content {
            Content::Ack(_) => (owner.destination, owner.source),
            Content::Segment(_) | Content::Datagram(_) => (owner.source, owner.destination),
        };
        self.sink.packet(&CapturedPacket {
            sent,
            arrived,
            number,
            connection: u64::from(owner.place) << u32::BITS | u64::from(owner.generation),
            source,
            destination,
            bytes: hop.length(),
            ttl: hop.ttl(),
            ecn_capable: hop.is_ecn_capable(),
            marked: hop.is_marked(),
            content,
            config: owner.config,
        });
    }
}
