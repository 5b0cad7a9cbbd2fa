// SPDX-License-Identifier: Apache-2.0
//! The client's side of TWAMP, TWAMP light and STAMP: the peer reflects, and each reply has four times.

use super::control::Control;
use super::receiver::{LONGEST, arrival};
use super::sender::{SenderPlan, SenderReport, send_schedule};
use super::{PathError, TestOptions, begin_of, fill_random, random};
use crate::control::{Accept, Direction, Modes, SessionRequest, Stop};
use crate::keys::Block;
use crate::packet::stamp::{self, FollowUp, StampKey};
use crate::packet::{Protection, Reply, TestPacket, read_reply, reply_length, write_test};
use crate::record::SkipRange;
use crate::socket::{SocketOptions, StampedSocket, WallClock, clock_state, monotonic, sleep_until};
use crate::time::{ErrorEstimate, Timestamp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// From the start to the first packet, ns.
const LEAD: i64 = 200_000_000;

/// Which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoWayKind {
    /// With a control connection.
    Twamp,
    /// Without one (RFC 5357 appendix I).
    TwampLight,
    /// STAMP.
    Stamp,
}

/// A packet that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflected {
    /// What it says.
    pub reply: Reply,
    /// When it came.
    pub received: Timestamp,
    /// How wrong that may be.
    pub error: ErrorEstimate,
    /// TTL or hop limit with which it came; 255 where it is not known.
    pub ttl: u8,
}

/// What came of a session.
#[derive(Clone, Debug)]
pub struct TwoWayOutcome {
    /// How it was protected.
    pub mode: Modes,
    /// From where packets went and to where.
    pub ends: (SocketAddr, SocketAddr),
    /// When the schedule began.
    pub start: Timestamp,
    /// Packets that were to be sent.
    pub packets: u32,
    /// One more than the last packet that was sent.
    pub next_sequence: u32,
    /// What was left out.
    pub skips: Vec<SkipRange>,
    /// Each reply, in the order of arrival.
    pub replies: Vec<Reflected>,
    /// When replies really left, by the reflector's number; empty where it does not say.
    pub follow_ups: Vec<FollowUp>,
    /// Our sender's account; its stamps are when packets really left.
    pub sender: SenderReport,
    /// Replies that our full buffer dropped.
    pub dropped: u32,
    /// Datagrams that were none of the session's.
    pub strangers: u64,
    /// A signal ended the session before its time.
    pub interrupted: bool,
}

/// How this session's packets are written and read.
enum Format {
    Twamp(Protection),
    Stamp { session: u16, key: Option<StampKey> },
}

impl Format {
    fn length(&self) -> usize {
        match self {
            Format::Twamp(protection) => reply_length(protection),
            Format::Stamp { key, .. } => {
                let follow_up = if key.is_none() { stamp::FOLLOW_UP } else { 0 };
                stamp::length(key.as_ref()) + follow_up
            }
        }
    }

    fn write(&self, bytes: &mut [u8], packet: &TestPacket) {
        match self {
            Format::Twamp(protection) => write_test(bytes, packet, protection),
            Format::Stamp { session, key } => {
                stamp::write_test(bytes, packet, *session, true, key.as_ref())
            }
        }
    }

    fn read(&self, bytes: &mut [u8]) -> Option<(Reply, Option<FollowUp>)> {
        match self {
            Format::Twamp(protection) => Some((read_reply(bytes, protection).ok()?, None)),
            Format::Stamp { session, key } => {
                let (reply, of, follow_up) = stamp::read_reply(bytes, key.as_ref()).ok()?;
                // A reflector without RFC 8972 returns zeros.
                (of == *session || of == 0).then_some((reply, follow_up))
            }
        }
    }
}

/// A session that is ready to start.
struct Prepared {
    socket: StampedSocket,
    format: Format,
    session: Block,
    ends: (SocketAddr, SocketAddr),
}

/// Measures by reflection. STAMP and TWAMP light go to the UDP port in the peer's address; of STAMP, credentials'
/// passphrase is the key of authenticated mode. A set `interrupted` ends the session early.
///
/// # Errors
/// The peer is not there or refuses.
pub fn measure_two_way(
    options: &TestOptions,
    kind: TwoWayKind,
    interrupted: &AtomicBool,
) -> Result<TwoWayOutcome, PathError> {
    let never = AtomicBool::new(false);
    let mut control = match kind {
        TwoWayKind::Twamp => Some(Control::open(options, true, &never)?),
        _ => None,
    };
    let prepared = match &mut control {
        Some(control) => request(options, control)?,
        None => prepare(options, kind)?,
    };
    if let Some(control) = &mut control {
        control.start()?;
    }
    let mut outcome = run(options, &prepared, interrupted)?;
    if let Some(control) = &mut control {
        let stop = Stop {
            accept: Accept::Accepted,
            sessions: Vec::new(),
        };
        control.stop(&stop, 1)?;
        outcome.mode = control.mode().and(Modes::PROTECTIONS);
    }
    Ok(outcome)
}

fn open(options: &TestOptions, local: IpAddr) -> Result<StampedSocket, PathError> {
    let mut socket = SocketOptions::on(local);
    socket.dscp = options.dscp;
    socket.ports = options.ports;
    socket.receive_buffer = options.receive_buffer;
    StampedSocket::open(&socket).map_err(PathError::io("open a socket for test packets"))
}

/// Agrees on a session of TWAMP.
fn request(options: &TestOptions, control: &mut Control<'_>) -> Result<Prepared, PathError> {
    let local = control.local()?.ip();
    let socket = open(options, local)?;
    let ours = socket
        .local()
        .map_err(PathError::io("learn the port of test packets"))?;
    let symmetrical = control.mode().has(Modes::SYMMETRICAL_SIZE);
    let open_packets = !control
        .mode()
        .has(Modes::AUTHENTICATED.or(Modes::ENCRYPTED));
    // Packets are as long as replies in any case.
    let more = match (symmetrical, open_packets) {
        (true, _) => 0,
        (false, true) => 27,
        (false, false) => 64,
    };
    let wished = 49_152 | u16::from_be_bytes(random()?);
    let request = SessionRequest {
        direction: Direction::TwoWay {
            reflect: 0,
            reflect_padding: 0,
        },
        sender: ours,
        receiver: SocketAddr::new(options.peer.ip(), wished),
        session: [0; 16],
        padding: u32::from(options.padding) + more,
        start: Timestamp::NONE,
        timeout: options.timeout,
        type_p: SessionRequest::type_p_of(options.dscp),
    };
    let answer = control.request(&request)?;
    let theirs = SocketAddr::new(options.peer.ip(), answer.port);
    socket
        .connect(theirs)
        .map_err(PathError::io("connect the socket for test packets"))?;
    Ok(Prepared {
        socket,
        format: Format::Twamp(control.protection(&answer.session)),
        session: answer.session,
        ends: (ours, theirs),
    })
}

/// A session without a control connection.
fn prepare(options: &TestOptions, kind: TwoWayKind) -> Result<Prepared, PathError> {
    let any: IpAddr = match options.peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = open(options, options.local.unwrap_or(any))?;
    socket
        .connect(options.peer)
        .map_err(PathError::io("connect the socket for test packets"))?;
    let session: Block = random()?;
    let format = match kind {
        TwoWayKind::Stamp => Format::Stamp {
            session: u16::from_be_bytes([session[0], session[1]]).max(1),
            key: options
                .credentials
                .as_ref()
                .map(|c| StampKey::new(&c.passphrase)),
        },
        _ => Format::Twamp(Protection::Open),
    };
    Ok(Prepared {
        ends: (
            socket
                .local()
                .map_err(PathError::io("learn the port of test packets"))?,
            options.peer,
        ),
        socket,
        format,
        session,
    })
}

/// Replies as they come.
#[derive(Default)]
struct Replies {
    replies: Vec<Reflected>,
    follow_ups: Vec<FollowUp>,
    dropped: u32,
    strangers: u64,
}

fn run(
    options: &TestOptions,
    prepared: &Prepared,
    interrupted: &AtomicBool,
) -> Result<TwoWayOutcome, PathError> {
    let start = Timestamp::from_unix_nanos(options.clock.now() + LEAD);
    let timeout = i64::try_from(options.timeout.as_nanos()).unwrap_or(i64::MAX);
    let plan = SenderPlan {
        session: prepared.session,
        slots: options.slots.clone(),
        packets: options.packets,
        begin: begin_of(start, &options.clock),
        padding: options.padding,
        protection: Protection::Open,
        give_up: timeout.clamp(0, 1_000_000_000),
    };
    let mut packet = vec![0; prepared.format.length() + usize::from(options.padding)];
    fill_random(&mut packet)?;
    let (stop, complete) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sender, replies) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(options, prepared, &stop, &complete));
        let write = |bytes: &mut [u8], test: &TestPacket| prepared.format.write(bytes, test);
        let sender = send_schedule(
            &prepared.socket,
            &plan,
            (&mut packet, &write),
            &options.clock,
            interrupted,
        );
        let end = monotonic() + timeout;
        while !complete.load(Ordering::Acquire) && monotonic() < end {
            let nap = end.min(monotonic() + 20_000_000);
            if !sleep_until(nap, interrupted) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        (
            sender,
            receiver.join().expect("the receiver does not panic"),
        )
    });
    let replies = replies?;
    Ok(TwoWayOutcome {
        mode: match &prepared.format {
            Format::Stamp { key: Some(_), .. } => Modes::AUTHENTICATED,
            _ => Modes::OPEN,
        },
        ends: prepared.ends,
        start,
        packets: options.packets,
        next_sequence: sender.next_sequence,
        skips: sender.skips.clone(),
        replies: replies.replies,
        follow_ups: replies.follow_ups,
        sender,
        dropped: replies.dropped,
        strangers: replies.strangers,
        interrupted: interrupted.load(Ordering::Relaxed),
    })
}

fn receive(
    options: &TestOptions,
    prepared: &Prepared,
    stop: &AtomicBool,
    complete: &AtomicBool,
) -> Result<Replies, PathError> {
    let clock: WallClock = options.clock;
    let most = super::owamp::most_records(options.packets) as usize;
    let mut replies = Replies::default();
    let mut buffer = vec![0; LONGEST];
    let mut arrived = super::receiver::Arrived::new(options.packets);
    let error = clock_state().estimate();
    while !stop.load(Ordering::Relaxed) {
        let Some(received) = prepared
            .socket
            .receive(&mut buffer)
            .map_err(PathError::io("receive replies"))?
        else {
            continue;
        };
        replies.dropped = replies.dropped.max(received.dropped);
        let read = buffer
            .get_mut(..received.length)
            .and_then(|bytes| prepared.format.read(bytes));
        let known = read.filter(|(reply, _)| {
            reply.request.sequence < options.packets && replies.replies.len() < most
        });
        let Some((reply, follow_up)) = known else {
            replies.strangers += 1;
            continue;
        };
        replies.follow_ups.extend(follow_up);
        replies.replies.push(Reflected {
            reply,
            received: arrival(&received, &clock),
            error,
            ttl: received.ttl.unwrap_or(255),
        });
        if arrived.note(reply.request.sequence) {
            complete.store(true, Ordering::Release);
        }
    }
    replies.dropped = replies.dropped.max(prepared.socket.dropped().unwrap_or(0));
    Ok(replies)
}
