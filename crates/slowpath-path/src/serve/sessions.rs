// SPDX-License-Identifier: Apache-2.0
//! A server's sessions: what was agreed over a control connection, and its threads.

use super::Shared;
use crate::control::{Accept, AcceptSession, Direction, SendStamp, SessionRequest, StoppedSession};
use crate::keys::Block;
use crate::packet::{Protection, Reply, header_length, read_test, reply_length, write_reply};
use crate::record::{Record, SkipRange};
use crate::schedule::{Schedule, Slots};
use crate::session::{
    LONGEST, PathError, Progress, ReceiverPlan, ReceiverReport, SenderPlan, SenderReport, arrival,
    begin_of, lost_records, most_records, run_receiver, run_sender, session_identifier,
};
use crate::socket::{SocketOptions, StampedSocket, WallClock, clock_state, monotonic};
use crate::time::Span;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How far ahead a session may start; more is a clock that is wrong.
const MOST_LEAD: i64 = 600_000_000_000;

/// Octets of IP and UDP headers, for rates.
const HEADERS: u64 = 48;

/// A reflector without packets for so long ends (RFC 5357 section 4.2, REFWAIT).
const REFLECTOR_WAIT: Duration = Duration::from_secs(900);

/// The longest that a reflector goes on after the stop.
const MOST_LINGER: Duration = Duration::from_secs(10);

/// Which end of a session this server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Sender,
    Receiver,
    Reflector,
}

/// What its thread leaves.
#[derive(Debug)]
enum Report {
    Sent(SenderReport),
    Received(ReceiverReport),
    Reflected,
    Failed,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    role: Role,
    request: SessionRequest,
    packets: u32,
    socket: Arc<StampedSocket>,
    protection: Protection,
    flags: Arc<Flags>,
    thread: Option<JoinHandle<Report>>,
    report: Option<Report>,
    /// What the client said of its sending.
    stopped: Option<StoppedSession>,
    /// When the timeout has passed since its last packet, by [`monotonic`].
    timed_out_at: i64,
}

#[derive(Debug, Default)]
struct Flags {
    stop: AtomicBool,
    progress: Progress,
}

/// The two ends of the control connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) local: IpAddr,
    pub(super) peer: IpAddr,
}

/// Whether a session fits the policy beyond the limits that the machine has checked.
pub(super) fn check(request: &SessionRequest, ends: Ends, shared: &Shared) -> Result<(), Accept> {
    let (server_is_sender, packets) = match &request.direction {
        Direction::OneWay {
            server_sends,
            server_receives,
            packets,
            ..
        } if server_sends != server_receives => (*server_sends, Some(*packets)),
        Direction::OneWay { .. } => return Err(Accept::NotSupported),
        Direction::TwoWay { .. } => (false, None),
    };
    let (ours, theirs) = match server_is_sender {
        true => (request.sender, request.receiver),
        false => (request.receiver, request.sender),
    };
    // Packets go to who asked, and come from there: never to or from a third address.
    let is = |address: SocketAddr, end: IpAddr| {
        let address = address.ip().to_canonical();
        address.is_unspecified() || address == end.to_canonical()
    };
    if !is(theirs, ends.peer) || !is(ours, ends.local) || theirs.port() == 0 {
        return Err(Accept::Refused);
    }
    if request.dscp().is_none() {
        return Err(Accept::NotSupported);
    }
    let lead = request.start.nanos_since(shared.options.clock.timestamp());
    if request.start.is_some() && lead > MOST_LEAD {
        return Err(Accept::Refused);
    }
    let slots = Slots::new(request.slots().to_vec());
    if let (Some(packets), Some(slots)) = (packets, slots) {
        let octets = u64::from(request.padding) + 112 + HEADERS;
        let seconds = slots.mean_of(packets).as_duration().as_secs_f64().max(1.0);
        let rate = 8.0 * octets as f64 * f64::from(packets) / seconds;
        if rate > shared.options.policy.rate as f64 {
            return Err(Accept::PermanentLimit);
        }
    }
    Ok(())
}

impl Session {
    /// Opens the port of a session. `protection` makes the packets' protection of the session's identifier.
    pub(super) fn open(
        mut request: SessionRequest,
        ends: Ends,
        shared: &Shared,
        protection: impl FnOnce(&Block) -> Protection,
    ) -> Result<(Self, AcceptSession), PathError> {
        let (role, packets) = match &request.direction {
            Direction::OneWay {
                server_sends: true,
                packets,
                ..
            } => (Role::Sender, *packets),
            Direction::OneWay { packets, .. } => (Role::Receiver, *packets),
            Direction::TwoWay { .. } => (Role::Reflector, 0),
        };
        let their_port = match role {
            Role::Sender => request.receiver.port(),
            _ => request.sender.port(),
        };
        let mut options = SocketOptions::on(ends.local);
        options.dscp = request.dscp().unwrap_or(0);
        options.ports = shared.options.policy.ports;
        // TWAMP's client names a port that it would like.
        let wished = match role {
            Role::Reflector if options.ports.is_none() => request.receiver.port(),
            _ => 0,
        };
        options
            .bind
            .set_port(if wished >= 1_024 { wished } else { 0 });
        let socket = StampedSocket::open(&options)
            .or_else(|_| {
                StampedSocket::open(&SocketOptions {
                    bind: SocketAddr::new(ends.local, 0),
                    ..options
                })
            })
            .map_err(PathError::io("open a port for test packets"))?;
        let theirs = SocketAddr::new(ends.peer, their_port);
        socket
            .connect(theirs)
            .map_err(PathError::io("connect the port for test packets"))?;
        let ours = socket
            .local()
            .map_err(PathError::io("learn the port of test packets"))?;
        match role {
            Role::Sender => (request.sender, request.receiver) = (ours, theirs),
            _ => (request.sender, request.receiver) = (theirs, ours),
        }
        if role != Role::Sender {
            request.session = session_identifier(ends.local, shared.options.clock.timestamp())?;
        }
        let reflected = match request.direction {
            Direction::TwoWay { reflect, .. } => reflect,
            Direction::OneWay { .. } => 0,
        };
        let answer = AcceptSession {
            accept: Accept::Accepted,
            port: ours.port(),
            session: request.session,
            reflected,
            server: 0,
        };
        let session = Session {
            role,
            packets,
            protection: protection(&request.session),
            request,
            socket: Arc::new(socket),
            flags: Arc::default(),
            thread: None,
            report: None,
            stopped: None,
            timed_out_at: 0,
        };
        Ok((session, answer))
    }

    /// Its identifier.
    pub(super) fn id(&self) -> &Block {
        &self.request.session
    }

    /// Starts its thread.
    pub(super) fn start(&mut self, clock: WallClock) -> std::io::Result<()> {
        let (socket, flags) = (Arc::clone(&self.socket), Arc::clone(&self.flags));
        let begin = begin_of(self.request.start, &clock);
        self.timed_out_at = begin.saturating_add(self.length_and_timeout());
        let work: Box<dyn FnOnce() -> Report + Send> = match self.role {
            Role::Sender => {
                let plan = self.sender_plan(&clock);
                Box::new(move || {
                    let report = run_sender(&socket, plan, &clock, &flags.stop);
                    flags.progress.complete.store(true, Ordering::Release);
                    report.map_or(Report::Failed, Report::Sent)
                })
            }
            Role::Receiver => {
                let plan = ReceiverPlan {
                    packets: self.packets,
                    protection: self.protection.clone(),
                    most_records: most_records(self.packets) as usize,
                };
                Box::new(move || {
                    let report = run_receiver(&socket, &plan, &clock, &flags.stop, &flags.progress);
                    flags.progress.complete.store(true, Ordering::Release);
                    report.map_or(Report::Failed, Report::Received)
                })
            }
            Role::Reflector => {
                let protection = self.protection.clone();
                let linger = self.request.timeout.as_duration().min(MOST_LINGER);
                Box::new(move || {
                    reflect(&socket, &protection, &clock, &flags, linger);
                    flags.progress.complete.store(true, Ordering::Release);
                    Report::Reflected
                })
            }
        };
        self.thread = Some(
            thread::Builder::new()
                .name("path-session".to_owned())
                .spawn(work)?,
        );
        Ok(())
    }

    /// From the start to the last packet, and the timeout, ns.
    fn length_and_timeout(&self) -> i64 {
        let Some(slots) = Slots::new(self.request.slots().to_vec()) else {
            return 0;
        };
        let schedule = Schedule::new(slots, self.request.session);
        let last = schedule.take(self.packets as usize).last();
        let nanos = last
            .map_or(0, Span::as_nanos)
            .saturating_add(self.request.timeout.as_nanos());
        i64::try_from(nanos).unwrap_or(i64::MAX)
    }

    /// Whether the timeout has passed since its last packet was to be sent.
    pub(super) fn timed_out(&self) -> bool {
        monotonic() > self.timed_out_at
    }

    fn sender_plan(&self, clock: &WallClock) -> SenderPlan {
        let slots = Slots::new(self.request.slots().to_vec());
        let timeout = i64::try_from(self.request.timeout.as_nanos()).unwrap_or(i64::MAX);
        SenderPlan {
            session: self.request.session,
            slots: slots.expect("requests without slots are malformed"),
            packets: self.packets,
            begin: begin_of(self.request.start, clock),
            padding: u16::try_from(self.request.padding).unwrap_or(u16::MAX),
            protection: self.protection.clone(),
            give_up: timeout.clamp(0, 1_000_000_000),
        }
    }

    /// Whether it has nothing more to do: all was sent, or all has come.
    pub(super) fn complete(&self) -> bool {
        self.flags.progress.complete.load(Ordering::Acquire)
    }

    /// From when on its packets are lost; at most an hour.
    pub(super) fn timeout(&self) -> Duration {
        let most = Duration::from_secs(3_600);
        self.request.timeout.as_duration().min(most)
    }

    /// How long it may take from its start on.
    pub(super) fn longest(&self, clock: &WallClock) -> Duration {
        let lead = self
            .request
            .start
            .nanos_since(clock.timestamp())
            .clamp(0, MOST_LEAD);
        let slots = Slots::new(self.request.slots().to_vec());
        let length = slots.map_or(REFLECTOR_WAIT, |slots| {
            slots.mean_of(self.packets).as_duration() * 2
        });
        let most = Duration::from_secs(7 * 86_400);
        let rest = self.timeout() + Duration::from_secs(60);
        Duration::from_nanos(lead as u64) + length.min(most) + rest
    }

    /// Ends its thread and keeps what it leaves.
    pub(super) fn finish(&mut self) {
        self.flags.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            self.report = Some(thread.join().unwrap_or(Report::Failed));
        }
    }

    /// Notes what the client says of its sending.
    pub(super) fn note(&mut self, stopped: &StoppedSession) {
        if self.role == Role::Receiver && stopped.session == self.request.session {
            self.stopped = Some(stopped.clone());
        }
    }

    /// What this server says of its sending; `None`: it was not the sender.
    pub(super) fn stopped(&self) -> Option<StoppedSession> {
        match &self.report {
            Some(Report::Sent(report)) => Some(StoppedSession {
                session: self.request.session,
                next_sequence: report.next_sequence,
                skips: report.skips.clone(),
            }),
            _ => None,
        }
    }

    /// When its packets left, and how many this host dropped.
    pub(super) fn stamps(&self) -> (&[SendStamp], Option<u32>) {
        match &self.report {
            Some(Report::Sent(report)) => (&report.stamps, None),
            Some(Report::Received(report)) => (&[], Some(report.dropped)),
            _ => (&[], None),
        }
    }

    /// What it received: whether the sender's account is known, its end, skips and all records. `None`: it did not
    /// receive, or goes on.
    pub(super) fn received(&self) -> Option<(bool, u32, &[SkipRange], Vec<Record>)> {
        let Some(Report::Received(report)) = &self.report else {
            return None;
        };
        let stopped = self.stopped.as_ref();
        let skips = stopped.map_or(&[][..], |stopped| &stopped.skips);
        let last = report
            .records
            .iter()
            .map(|record| record.sequence + 1)
            .max();
        let next = stopped.map_or(last.unwrap_or(0), |stopped| {
            stopped.next_sequence.min(self.packets)
        });
        let mut records = report.records.clone();
        // Packets that the sender says it never sent did not come, whatever came (RFC 4656 section 3.8).
        records.retain(|record| record.sequence < next);
        records.extend(lost_records(&self.request, next, skips, &report.records));
        Some((stopped.is_some(), next, skips, records))
    }

    /// Whether this server receives.
    pub(super) fn receives(&self) -> bool {
        self.role == Role::Receiver
    }

    /// The session as it was agreed.
    pub(super) fn request(&self) -> &SessionRequest {
        &self.request
    }
}

/// Reflects a session's packets until it is stopped, and a little longer for those on their way.
fn reflect(
    socket: &StampedSocket,
    protection: &Protection,
    clock: &WallClock,
    flags: &Flags,
    linger: Duration,
) {
    let mut buffer = vec![0; LONGEST];
    let mut sequence = 0u32;
    let error = clock_state().estimate();
    let mut last = Instant::now();
    let mut stopped: Option<Instant> = None;
    loop {
        if flags.stop.load(Ordering::Relaxed) {
            let since = stopped.get_or_insert_with(Instant::now);
            if since.elapsed() >= linger || last.elapsed() >= linger {
                return;
            }
        }
        if last.elapsed() >= REFLECTOR_WAIT {
            return;
        }
        let Ok(Some(received)) = socket.receive(&mut buffer) else {
            continue;
        };
        let Some(bytes) = buffer.get_mut(..received.length) else {
            continue;
        };
        let Ok(packet) = read_test(bytes, protection) else {
            continue;
        };
        last = Instant::now();
        let length = received.length.max(reply_length(protection));
        // Padding comes back as it came (RFC 6038 section 4.2).
        let (from, to) = (header_length(protection), reply_length(protection));
        if received.length > to {
            buffer.copy_within(from..from + received.length - to, to);
        }
        let reply = Reply {
            request: packet,
            ttl: received.ttl.unwrap_or(255),
            received: arrival(&received, clock),
            sequence,
            sent: clock.timestamp(),
            error,
        };
        write_reply(&mut buffer, &reply, protection);
        if socket.send(&buffer[..length]).is_ok() {
            sequence = sequence.wrapping_add(1);
        }
        socket.send_stamps(|_, _| {});
    }
}
