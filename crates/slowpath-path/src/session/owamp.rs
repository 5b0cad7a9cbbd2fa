// SPDX-License-Identifier: Apache-2.0
//! The client's side of OWAMP: sessions there and back at the same time.

use super::control::{Control, PATIENCE};
use super::{
    PathError, Progress, ReceiverPlan, ReceiverReport, SenderPlan, SenderReport, TestOptions,
    begin_of, run_receiver, run_sender, session_identifier,
};
use crate::control::{
    Accept, ClientEvent, Direction, Modes, SendStamp, SessionRequest, Stop, StoppedSession,
};
use crate::keys::Block;
use crate::record::{Record, SkipRange};
use crate::schedule::{Schedule, Slots};
use crate::socket::{SocketOptions, StampedSocket, WallClock, monotonic};
use crate::time::Timestamp;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// From the request to the first packet.
const LEAD: i64 = 500_000_000;

/// Longer than this after the end of a schedule the peer's packets are not waited for, besides the timeout: its clock
/// may be behind.
const GRACE: Duration = Duration::from_secs(30);

/// One direction, measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The session as it was agreed.
    pub request: SessionRequest,
    /// Packets that were to be sent.
    pub packets: u32,
    /// One more than the last packet that was sent.
    pub next_sequence: u32,
    /// What the sender left out.
    pub skips: Vec<SkipRange>,
    /// Each arrival in order, and what was lost, as the receiver has it.
    pub records: Vec<Record>,
    /// When packets really left, by the sender's kernel; empty where the sender does not say.
    pub stamps: Vec<SendStamp>,
    /// Packets that the receiver's full buffer dropped; `None`: it does not say.
    pub dropped: Option<u32>,
    /// Of our own sender.
    pub sender: Option<SenderReport>,
    /// Datagrams at our receiver that were none of the session's.
    pub strangers: u64,
}

/// Both directions.
#[derive(Clone, Debug)]
pub struct OneWayOutcome {
    /// How the sessions were protected.
    pub mode: Modes,
    /// From here to the peer.
    pub there: Option<Measured>,
    /// From the peer to here.
    pub back: Option<Measured>,
    /// A signal ended the sessions before their time.
    pub interrupted: bool,
}

/// A session that was agreed.
struct Agreed {
    request: SessionRequest,
    socket: StampedSocket,
    session: Block,
}

/// Flags that the threads of a run share.
#[derive(Default)]
struct Flags {
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
    sent: AtomicBool,
    received: Progress,
}

/// Measures by OWAMP. A set `interrupted` ends the sessions early; what came until then is reported.
///
/// # Errors
/// The server is not there or refuses, or the control connection breaks.
pub fn measure(
    options: &TestOptions,
    interrupted: &AtomicBool,
) -> Result<OneWayOutcome, PathError> {
    let never = AtomicBool::new(false);
    let mut control = Control::open(options, false, &never)?;
    let start = Timestamp::from_unix_nanos(options.clock.now() + LEAD);
    let there = match options.there {
        true => Some(agree(options, &mut control, start, true)?),
        false => None,
    };
    let back = match options.back {
        true => Some(agree(options, &mut control, start, false)?),
        false => None,
    };
    control.start()?;
    let begin = begin_of(start, &options.clock);
    let flags = Flags::default();
    let run = Run {
        options,
        begin,
        back_end: begin.saturating_add(back.as_ref().map_or(0, |back| length(options, back))),
        flags: &flags,
        clock: options.clock,
    };
    let run = &run;
    let (sent, received) = thread::scope(|scope| {
        let sender = there.as_ref().map(|there| {
            let protection = control.protection(&there.session);
            scope.spawn(move || run.send(there, protection))
        });
        let receiver = back.as_ref().map(|back| {
            let protection = control.protection(&back.session);
            scope.spawn(move || run.receive(back, protection))
        });
        let stopped = run.watch(&mut control, interrupted);
        flags.stop_sending.store(true, Ordering::Relaxed);
        let sent = sender
            .map(|thread| thread.join().expect("the sender does not panic"))
            .transpose();
        let theirs = stopped.and_then(|stopped| {
            let report = sent.as_ref().ok().and_then(Option::as_ref);
            run.stop(&mut control, there.as_ref(), report, stopped)
        });
        flags.stop_receiving.store(true, Ordering::Relaxed);
        let received = receiver
            .map(|thread| thread.join().expect("the receiver does not panic"))
            .transpose();
        Ok::<_, PathError>((sent?, (received?, theirs?)))
    })?;
    let (received, theirs) = received;
    let there = match (there, sent) {
        (Some(there), Some(report)) => Some(run.fetch(&mut control, there, report)?),
        _ => None,
    };
    let back = match (back, received) {
        (Some(back), Some(report)) => Some(run.arrived(&mut control, back, report, &theirs)?),
        _ => None,
    };
    Ok(OneWayOutcome {
        mode: control.mode(),
        there,
        back,
        interrupted: interrupted.load(Ordering::Relaxed),
    })
}

/// Agrees on a session; `there`: we send.
fn agree(
    options: &TestOptions,
    control: &mut Control<'_>,
    start: Timestamp,
    there: bool,
) -> Result<Agreed, PathError> {
    let local = control.local()?.ip();
    let mut socket_options = SocketOptions::on(local);
    socket_options.dscp = options.dscp;
    socket_options.ports = options.ports;
    socket_options.receive_buffer = options.receive_buffer;
    let socket = StampedSocket::open(&socket_options)
        .map_err(PathError::io("open a socket for test packets"))?;
    let ours = socket
        .local()
        .map_err(PathError::io("learn the port of test packets"))?;
    let theirs = SocketAddr::new(options.peer.ip(), 0);
    let (sender, receiver) = if there {
        (ours, theirs)
    } else {
        (theirs, ours)
    };
    let session = match there {
        true => [0; 16],
        false => session_identifier(local, options.clock.timestamp())?,
    };
    let mut request = SessionRequest {
        direction: Direction::OneWay {
            server_sends: !there,
            server_receives: there,
            packets: options.packets,
            slots: options.slots.as_slice().to_vec(),
        },
        sender,
        receiver,
        session,
        padding: options.padding.into(),
        start,
        timeout: options.timeout,
        type_p: SessionRequest::type_p_of(options.dscp),
    };
    let answer = control.request(&request)?;
    let theirs = SocketAddr::new(options.peer.ip(), answer.port);
    socket
        .connect(theirs)
        .map_err(PathError::io("connect the socket for test packets"))?;
    if there {
        request.session = answer.session;
        request.receiver = theirs;
    } else {
        request.sender = theirs;
    }
    Ok(Agreed {
        session: request.session,
        request,
        socket,
    })
}

/// How long the peer's schedule is, ns.
fn length(options: &TestOptions, back: &Agreed) -> i64 {
    let schedule = Schedule::new(options.slots.clone(), back.session);
    let last = schedule.take(options.packets as usize).last();
    last.map_or(0, |offset| {
        i64::try_from(offset.as_nanos()).unwrap_or(i64::MAX)
    })
}

/// What the parts of a run need.
struct Run<'a> {
    options: &'a TestOptions,
    begin: i64,
    /// When the peer's schedule ends, if its clock is ours, by [`monotonic`].
    back_end: i64,
    flags: &'a Flags,
    clock: WallClock,
}

impl Run<'_> {
    fn send(
        &self,
        there: &Agreed,
        protection: crate::packet::Protection,
    ) -> Result<SenderReport, PathError> {
        let timeout = i64::try_from(self.options.timeout.as_nanos()).unwrap_or(i64::MAX);
        let plan = SenderPlan {
            session: there.session,
            slots: self.options.slots.clone(),
            packets: self.options.packets,
            begin: self.begin,
            padding: self.options.padding,
            protection,
            give_up: timeout.clamp(0, 1_000_000_000),
        };
        let report = run_sender(&there.socket, plan, &self.clock, &self.flags.stop_sending);
        self.flags.sent.store(true, Ordering::Release);
        report
    }

    fn receive(
        &self,
        back: &Agreed,
        protection: crate::packet::Protection,
    ) -> Result<ReceiverReport, PathError> {
        let plan = ReceiverPlan {
            packets: self.options.packets,
            protection,
            most_records: most_records(self.options.packets) as usize,
        };
        let Flags {
            stop_receiving,
            received,
            ..
        } = self.flags;
        let report = run_receiver(&back.socket, &plan, &self.clock, stop_receiving, received);
        received.complete.store(true, Ordering::Release);
        report
    }

    /// Waits until both directions are through: what we sent is out for the timeout, or the server says that
    /// it has all; what the server sends has come, or it said that it is through, and the timeout has passed.
    fn watch(
        &self,
        control: &mut Control<'_>,
        interrupted: &AtomicBool,
    ) -> Result<Option<Stop>, PathError> {
        let timeout = self.options.timeout.as_duration();
        let length = self
            .options
            .slots
            .mean_of(self.options.packets)
            .as_duration();
        let lead = Duration::from_nanos(u64::try_from(self.begin - monotonic()).unwrap_or(0));
        // Exponential schedules vary: twice the mean and a little is far out.
        let deadline = Instant::now() + lead + length * 2 + timeout + GRACE;
        let mut stopped: Option<(Stop, Instant)> = None;
        let mut sent_at = None;
        loop {
            if let Some(event) = control.poll("the sessions")? {
                let ClientEvent::Stopped(stop) = event else {
                    return Err(control.unexpected());
                };
                stopped = Some((stop, Instant::now()));
            }
            if self.flags.sent.load(Ordering::Acquire) && sent_at.is_none() {
                sent_at = Some(Instant::now());
            }
            let sent = !self.options.there
                || sent_at.is_some_and(|at| stopped.is_some() || at.elapsed() >= timeout);
            let received = !self.options.back
                || self.flags.received.complete.load(Ordering::Acquire)
                || self.back_has_ended()
                || stopped
                    .as_ref()
                    .is_some_and(|(_, at)| at.elapsed() >= timeout);
            let late = Instant::now() > deadline || interrupted.load(Ordering::Relaxed);
            if sent && received || late {
                return Ok(stopped.map(|(stop, _)| stop));
            }
        }
    }

    /// Whether packets came, and the schedule's end and the last of them are both further back than the timeout. A peer
    /// whose clock is behind sends for longer.
    fn back_has_ended(&self) -> bool {
        let timeout = i64::try_from(self.options.timeout.as_nanos()).unwrap_or(i64::MAX);
        let last = self.flags.received.last.load(Ordering::Acquire);
        let ended = last.max(self.back_end).saturating_add(timeout);
        last != 0 && monotonic() > ended
    }

    /// Ends the sessions and has the server's account of them.
    fn stop(
        &self,
        control: &mut Control<'_>,
        there: Option<&Agreed>,
        report: Option<&SenderReport>,
        stopped: Option<Stop>,
    ) -> Result<Stop, PathError> {
        let ours = there.zip(report).map(|(there, report)| StoppedSession {
            session: there.session,
            next_sequence: report.next_sequence,
            skips: report.skips.clone(),
        });
        let stop = Stop {
            accept: Accept::Accepted,
            sessions: ours.into_iter().collect(),
        };
        control.stop(&stop, 0)?;
        match stopped {
            Some(stop) => Ok(stop),
            None => match control.wait("the end of sessions", PATIENCE)? {
                ClientEvent::Stopped(stop) => Ok(stop),
                _ => Err(control.unexpected()),
            },
        }
    }

    /// What the server received.
    fn fetch(
        &self,
        control: &mut Control<'_>,
        there: Agreed,
        report: SenderReport,
    ) -> Result<Measured, PathError> {
        let most = most_records(self.options.packets);
        let fetched = control.fetch(there.session, most)?;
        let dropped = match control.gives_stamps() {
            true => control.stamps(&there.session, most)?.1,
            false => None,
        };
        let finished = fetched.finished == 1;
        Ok(Measured {
            request: fetched.request.unwrap_or(there.request),
            packets: self.options.packets,
            next_sequence: if finished {
                fetched.next_sequence
            } else {
                report.next_sequence
            },
            skips: if finished {
                fetched.skips
            } else {
                report.skips.clone()
            },
            records: fetched.records,
            stamps: report.stamps.clone(),
            dropped,
            sender: Some(report),
            strangers: 0,
        })
    }

    /// What came here.
    fn arrived(
        &self,
        control: &mut Control<'_>,
        back: Agreed,
        report: ReceiverReport,
        stop: &Stop,
    ) -> Result<Measured, PathError> {
        let session = stop
            .sessions
            .iter()
            .find(|stopped| stopped.session == back.session);
        let stamps = match control.gives_stamps() {
            true => {
                control
                    .stamps(&back.session, most_records(self.options.packets))?
                    .0
            }
            false => Vec::new(),
        };
        let mut measured = Measured {
            packets: self.options.packets,
            next_sequence: session.map_or(self.options.packets, |s| s.next_sequence),
            skips: session.map(|s| s.skips.clone()).unwrap_or_default(),
            request: back.request,
            records: report.records,
            stamps,
            dropped: Some(report.dropped),
            sender: None,
            strangers: report.strangers,
        };
        add_lost(&mut measured);
        Ok(measured)
    }
}

/// Records that a session may have, with copies.
pub(crate) fn most_records(packets: u32) -> u32 {
    packets.saturating_mul(2).saturating_add(1_000)
}

/// Adds records of the packets that did not come, with the times at which they were to be sent.
pub(crate) fn add_lost(measured: &mut Measured) {
    let next = measured.next_sequence.min(measured.packets);
    let lost = lost_records(&measured.request, next, &measured.skips, &measured.records);
    measured.records.extend(lost);
}

/// Records of packets that were sent and did not come (RFC 4656 section 3.9).
pub(crate) fn lost_records(
    request: &SessionRequest,
    next_sequence: u32,
    skips: &[SkipRange],
    records: &[Record],
) -> Vec<Record> {
    let mut came = vec![false; next_sequence as usize];
    for record in records {
        if let Some(came) = came.get_mut(record.sequence as usize) {
            *came = true;
        }
    }
    for skip in skips {
        let last = skip.last.min(next_sequence.saturating_sub(1));
        for sequence in skip.first..=last {
            if let Some(came) = came.get_mut(sequence as usize) {
                *came = true;
            }
        }
    }
    let Some(slots) = Slots::new(request.slots().to_vec()) else {
        return Vec::new();
    };
    let schedule = Schedule::new(slots, request.session);
    let error = crate::socket::clock_state().estimate();
    let lost = (0u32..).zip(schedule).zip(came).filter(|(_, came)| !came);
    lost.map(|((sequence, offset), _)| Record {
        sequence,
        sent: request.start.after(offset),
        sent_error: error,
        received: Timestamp::NONE,
        received_error: error,
        ttl: 255,
    })
    .collect()
}
