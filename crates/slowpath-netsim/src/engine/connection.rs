// SPDX-License-Identifier: Apache-2.0
//! Open connections.

use super::network::HostId;
use super::settings::{Application, FlowSpec, Query, Transport};
use super::timers::WheelPlace;
use crate::results::FlowRecord;
use crate::tcp::{Receiver, Sender, TcpConfig};
use slowpath_switch::{PortId, Time};
use std::collections::VecDeque;

/// A flow that a connection carries.
pub(super) struct Message {
    /// The offset after its last byte.
    pub end: u64,
    pub record: FlowRecord,
    pub query: Option<Query>,
}

/// When the earliest timer event of each end is; `Time::MAX` without one.
pub(super) struct EndTimers {
    pub send: Time,
    pub acknowledge: Time,
    /// When pacing lets the next segment go.
    pub pace: Time,
    /// Of Linux hosts.
    pub send_place: WheelPlace,
    pub acknowledge_place: WheelPlace,
}

impl EndTimers {
    const NONE: Self = EndTimers {
        send: Time::MAX,
        acknowledge: Time::MAX,
        pace: Time::MAX,
        send_place: WheelPlace::NONE,
        acknowledge_place: WheelPlace::NONE,
    };
}

/// What of a Linux sender waits in its host's device.
#[derive(Default)]
pub(super) struct Queued {
    /// Bytes, with `OVERHEAD` for each packet.
    pub bytes: u64,
    /// The sender waits for that to be less, until a packet has left (`TSQ_THROTTLED`).
    pub throttled: bool,
}

/// Both ends of a connection, or of a flow of datagrams.
pub(super) struct Connection {
    pub sender: Sender,
    pub receiver: Receiver,
    pub kind: Transport,
    pub source: HostId,
    pub destination: HostId,
    /// What ECMP hashes for data; for ACKs it is the next number.
    pub key: u32,
    pub class: u8,
    pub label: u8,
    /// In use; otherwise the place waits for another.
    pub open: bool,
    /// Stays when it has nothing to do.
    pub lasting: bool,
    /// Among the ready of its host's interface.
    pub ready: bool,
    /// Counts the connections that had this place.
    pub generation: u32,
    /// Its packets in the network: the place is not free before they are gone.
    pub in_network: u32,
    pub timers: EndTimers,
    pub queued: Queued,
    /// What the application has yet to write.
    pub unwritten: u64,
    pub application: Application,
    /// Retransmissions and timeouts at the end of the flow before.
    pub reported: (u32, u32),
    /// Bytes that arrived, of datagrams.
    pub arrived: u64,
    pub messages: VecDeque<Message>,
}

impl Connection {
    fn new(spec: &FlowSpec, config: &TcpConfig, key: u32) -> Self {
        let mut sender = Sender::new(config, Receiver::offered(config));
        sender.seed(key);
        Connection {
            sender,
            receiver: Receiver::new(config),
            kind: spec.transport,
            source: spec.source,
            destination: spec.destination,
            key,
            class: spec.class,
            label: spec.label,
            open: true,
            lasting: spec.connection.is_some(),
            ready: false,
            generation: 0,
            in_network: 0,
            timers: EndTimers::NONE,
            queued: Queued::default(),
            unwritten: 0,
            application: spec.application,
            reported: (0, 0),
            arrived: 0,
            messages: VecDeque::new(),
        }
    }

    /// Becomes another connection and keeps its memory.
    fn renew(&mut self, spec: &FlowSpec, config: &TcpConfig, key: u32) {
        self.sender.reset(config, Receiver::offered(config));
        self.sender.seed(key);
        self.receiver.reset(config);
        self.kind = spec.transport;
        self.source = spec.source;
        self.destination = spec.destination;
        self.key = key;
        self.class = spec.class;
        self.label = spec.label;
        self.open = true;
        self.lasting = spec.connection.is_some();
        self.generation = self.generation.wrapping_add(1);
        self.timers = EndTimers::NONE;
        self.queued = Queued::default();
        self.unwritten = 0;
        self.application = spec.application;
        self.reported = (0, 0);
        self.arrived = 0;
    }

    /// Notes a flow that begins.
    pub fn begin(&mut self, spec: &FlowSpec, path: Vec<(super::SwitchId, PortId)>) {
        let before = self.messages.back().map_or_else(
            || self.sender.written().max(self.arrived),
            |message| message.end,
        );
        self.messages.push_back(Message {
            end: before + spec.bytes,
            query: spec.query,
            record: FlowRecord {
                id: spec.id,
                label: spec.label,
                query: spec.query.map(|query| query.id),
                source: spec.source,
                destination: spec.destination,
                bytes: spec.bytes,
                arrived: 0,
                start: spec.start,
                finish: None,
                retransmissions: 0,
                timeouts: 0,
                path,
            },
        });
    }

    /// The first flow, if it is complete; with what the connection did for it.
    pub fn take_finished(&mut self, now: Time) -> Option<Message> {
        let arrived = self.receiver.next().max(self.arrived);
        if self.messages.front()?.end > arrived {
            return None;
        }
        let mut message = self.messages.pop_front()?;
        message.record.finish = Some(now);
        message.record.arrived = message.record.bytes;
        self.report(&mut message.record);
        Some(message)
    }

    /// How much of a flow its receiver has in order.
    pub fn arrived_of(&self, message: &Message) -> u64 {
        let arrived = self.receiver.next().max(self.arrived);
        let begins = message.end - message.record.bytes;
        arrived.saturating_sub(begins).min(message.record.bytes)
    }

    /// The first flow, though it is not complete; with how much of it arrived.
    pub fn take_unfinished(&mut self) -> Option<FlowRecord> {
        let mut message = self.messages.pop_front()?;
        message.record.arrived = self.arrived_of(&message);
        self.report(&mut message.record);
        Some(message.record)
    }

    /// Reports what the connection did since the flow before.
    fn report(&mut self, record: &mut FlowRecord) {
        let counts = self.sender.counts();
        record.retransmissions = counts.retransmissions - self.reported.0;
        record.timeouts = counts.timeouts - self.reported.1;
        self.reported = (counts.retransmissions, counts.timeouts);
    }

    /// Whether it has nothing more to do, and nothing of it is under way.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.open
            && !self.lasting
            && self.in_network == 0
            && self.messages.is_empty()
            && self.sender.is_done()
    }
}

/// The connections, in places that are used again.
#[derive(Default)]
pub(super) struct Connections {
    pub places: Vec<Connection>,
    free: Vec<u32>,
}

impl Connections {
    pub fn open(&mut self, spec: &FlowSpec, config: &TcpConfig, key: u32) -> u32 {
        if let Some(at) = self.free.pop() {
            self.places[at as usize].renew(spec, config, key);
            return at;
        }
        self.places.push(Connection::new(spec, config, key));
        (self.places.len() - 1) as u32
    }

    pub fn close(&mut self, at: u32) {
        self.places[at as usize].open = false;
        self.free.push(at);
    }

    pub fn most(&self) -> u64 {
        self.places.len() as u64
    }
}
