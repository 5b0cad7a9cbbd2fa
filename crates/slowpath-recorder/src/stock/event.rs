// SPDX-License-Identifier: Apache-2.0
//! The recorder's events: twin of `struct event` in `probes/handlers/ring.bpf.h`. Each behind its length, little-endian.

use super::options::SET;
use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::sysctls::{SYSCTLS, WRITE_BUFFERS};
use std::net::IpAddr;

const HEAD: usize = 96;
/// `struct addresses` there, behind the event.
const ADDRESSES: usize = 32;
/// `struct found` there, behind the event, up to what not every version of the recorder told.
const SETTINGS: usize = 68;
/// Words behind those.
const MORE: usize = WRITE_BUFFERS.len() + SYSCTLS.len();
/// Of a packet's identification: both as there.
const SEVERAL: u32 = 1 << 18;
const OWN: u32 = 1 << 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Call,
    CallEnd,
    Lock,
    Release,
    Drain,
    RunEnd,
    Callback,
    CallbackEnd,
    Packet,
    Timer,
    SmallQueue,
    Clock,
    Sent,
    Memory,
    Queued,
    Drained,
    Gone,
    Busy,
    Request,
    Settings,
    TimeWait,
    Window,
    AnsweredByReset,
    Named,
    Options,
    NoRoom,
    OtherCall,
    Metrics,
}

/// In the order of `enum kind` there, from 1 on.
const KINDS: [Kind; 29] = [
    Kind::Open,
    Kind::Call,
    Kind::CallEnd,
    Kind::Lock,
    Kind::Release,
    Kind::Drain,
    Kind::RunEnd,
    Kind::Callback,
    Kind::CallbackEnd,
    Kind::Packet,
    Kind::Timer,
    Kind::SmallQueue,
    Kind::Clock,
    Kind::Sent,
    Kind::Memory,
    Kind::Queued,
    Kind::Drained,
    Kind::Gone,
    Kind::Busy,
    Kind::Request,
    Kind::Settings,
    Kind::TimeWait,
    Kind::Window,
    Kind::AnsweredByReset,
    Kind::Named,
    Kind::Options,
    Kind::NoRoom,
    Kind::OtherCall,
    Kind::Metrics,
];

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub at: u64,
    pub socket: u64,
    pub clock: u64,
    pub jiffies: u32,
    pub task: u32,
    pub kind: Kind,
    pub what: u8,
    pub owned: bool,
    pub end: u8,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub d: u32,
    pub memory: u32,
    pub backlog: u32,
    pub received: u32,
    pub data_sent: u32,
    pub window_changed: u32,
    pub cubic: u32,
    pub delayed_ack: u32,
    pub out_of_window: u32,
    /// Of a packet over IPv6 what it is like; of [`Kind::Lock`] where the page of the task's next data is filled to.
    pub like: u32,
    pub lost: u32,
    /// Among others, with fields: the phase of BBR.
    pub more: u32,
    pub fields: Option<SocketFields>,
    /// Of [`Kind::Settings`].
    pub settings: Option<Found>,
    /// Of [`Kind::Options`].
    pub options: Option<[u32; SET]>,
    /// Own and peer's, of [`Kind::Open`], [`Kind::Request`] and [`Kind::TimeWait`].
    pub addresses: Option<[IpAddr; 2]>,
}

/// A packet, as those who have not sent it know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    /// Its IP identification, over IPv4.
    pub id: u16,
    /// Over IPv6 a number made of its TCP header, and its length.
    pub like: u32,
    /// When it came.
    pub at: u64,
    /// Its sequence numbers, the first and the one behind the last; the same: not known.
    pub stretch: [u32; 2],
    /// It is of several segments.
    pub several: bool,
    /// Of bytes that its sender has not: it was cut or copied on the way.
    pub own: bool,
}

/// What a socket and its namespace are set to, where a replay needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub mtu: u32,
    pub values: [u32; 12],
    pub congestion: String,
    /// [`WRITE_BUFFERS`](slowpath_recording::sysctls::WRITE_BUFFERS), then [`SYSCTLS`](slowpath_recording::sysctls::SYSCTLS); all ones: not known.
    pub more: Vec<u32>,
    /// Whether its device takes packets that are larger than the path does, and the kernel need not cut them.
    pub segments: Option<bool>,
}

impl Found {
    pub(crate) fn read(bytes: &[u8]) -> Option<Found> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let mut values = [0; 12];
        for (place, value) in values.iter_mut().enumerate() {
            *value = word(4 + 4 * place)?;
        }
        let name = bytes.get(52..SETTINGS)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Found {
            mtu: word(0)?,
            values,
            congestion: String::from_utf8_lossy(name).into_owned(),
            more: (0..MORE)
                .map_while(|place| word(SETTINGS + 4 * place))
                .collect(),
            segments: word(SETTINGS + 4 * MORE)
                .filter(|it| *it < 2)
                .map(|it| it == 1),
        })
    }
}

fn addresses(bytes: &[u8]) -> Option<[IpAddr; 2]> {
    let (own, rest) = bytes.split_first_chunk::<16>()?;
    let ends = [own, rest.first_chunk()?];
    Some(ends.map(|bytes| IpAddr::from(*bytes).to_canonical()))
}

impl Event {
    /// The packet that came to what has no socket.
    pub(super) fn stub(&self) -> Name {
        Name {
            id: self.memory as u16,
            like: self.like,
            at: self.at,
            stretch: [self.backlog; 2],
            several: false,
            own: false,
        }
    }

    /// The packet that came, or waits in the backlog.
    pub(super) fn name(&self) -> Name {
        Name {
            id: self.d as u16,
            like: self.like,
            at: self.at,
            stretch: [self.a, self.b],
            several: self.d & SEVERAL != 0,
            own: self.d & OWN != 0,
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Option<(Event, &[u8])> {
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (it, rest) = bytes.get(4..)?.split_at_checked(length)?;
        let long = |at: usize| Some(u64::from_le_bytes(*it.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_le_bytes(*it.get(at..)?.first_chunk()?));
        let mut fields = None;
        let kind = *KINDS.get(usize::from(*it.get(32)?).checked_sub(1)?)?;
        let addressed = matches!(kind, Kind::Open | Kind::Request | Kind::TimeWait);
        let addresses = match it.get(HEAD..HEAD + ADDRESSES) {
            Some(bytes) if addressed => addresses(bytes),
            None if addressed => return None,
            _ => None,
        };
        let mut options = None;
        if let (Kind::Options, Some(words)) = (kind, it.get(HEAD..HEAD + 4 * SET)) {
            let mut all = [0; SET];
            for (word, bytes) in all.iter_mut().zip(words.chunks_exact(4)) {
                *word = u32::from_le_bytes(*bytes.first_chunk()?);
            }
            options = Some(all);
        }
        let settings = (kind == Kind::Settings).then(|| Found::read(it.get(HEAD..)?));
        if let Some(state) = it.get(HEAD..HEAD + 4 * Field::COUNT) {
            let mut all = SocketFields::NONE;
            for (field, bytes) in all.0.iter_mut().zip(state.chunks_exact(4)) {
                *field = u32::from_le_bytes(*bytes.first_chunk()?);
            }
            // Counted before a packet goes into the backlog, where the end of a call may or may not see it.
            all[Field::SegmentsIn] = 0;
            fields = Some(all);
        }
        let event = Event {
            at: long(0)?,
            socket: long(8)?,
            clock: long(16)?,
            jiffies: word(24)?,
            task: word(28)?,
            kind,
            what: *it.get(33)?,
            owned: *it.get(34)? != 0,
            end: *it.get(35)?,
            a: word(36)?,
            b: word(40)?,
            c: word(44)?,
            d: word(48)?,
            memory: word(52)?,
            backlog: word(56)?,
            received: word(60)?,
            data_sent: word(64)?,
            window_changed: word(68)?,
            cubic: word(72)?,
            delayed_ack: word(76)?,
            out_of_window: word(80)?,
            like: word(84)?,
            lost: word(88)?,
            more: word(92)?,
            fields,
            settings: settings.flatten(),
            addresses,
            options,
        };
        Some((event, rest))
    }
}
