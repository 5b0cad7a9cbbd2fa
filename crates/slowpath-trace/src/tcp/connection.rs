// SPDX-License-Identifier: Apache-2.0
//! One connection, segment by segment.

mod opening;

use super::event::{Event, Events, Ignore, Kind, Marks, Proof, Spurious};
use super::flow::Flow;
use super::options::Parsed;
use super::renumbering::Renumbering;
use super::report::{ConnectionReport, Dropped, Ending, Handshake, Moment, Side};
use super::turns::TurnTaking;
use super::{acking, sending, wireshark};
use crate::segment::{Endpoint, Flags, Segment, Timestamp};
use opening::{answers, opening};
use std::time::Duration;

/// What the analysis compares with and how much it may remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// An ACK later than an immediate one by this is a delayed one. 25 ms: above a busy
    /// host's scheduling, below the shortest delayed-ACK timer in use (Linux: TCP_DELACK_MIN,
    /// 40 ms, include/net/tcp.h).
    pub delayed_ack: Duration,
    /// Nothing in flight and nothing sent for this long is idle. 200 ms: Linux's shortest
    /// RTO (TCP_RTO_MIN), after which RFC 5681 section 4.1 wants slow start again.
    pub idle: Duration,
    /// Outstanding segments remembered a direction.
    pub outstanding: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            delayed_ack: Duration::from_millis(25),
            idle: Duration::from_millis(200),
            outstanding: 1 << 16,
        }
    }
}

/// Outstanding segments remembered while the other side has sent nothing: there may be no
/// ACKs in the capture.
const OUTSTANDING_ONE_SIDED: usize = 64;

/// [`Options`] in the units of the state machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub delayed_ack: i64,
    pub idle: i64,
    pub outstanding: usize,
}

/// One connection while it is followed: feed it its segments in the capture's order.
#[derive(Clone, Debug)]
pub struct Connection {
    client: Endpoint,
    server: Endpoint,
    /// What the client and what the server sent.
    flows: [Flow; 2],
    shared: wireshark::Shared,
    turns: TurnTaking,
    limits: Limits,
    last: Moment,
    previous_time: i64,
    clock_steps_back: u64,
    bad_checksums: u64,
    reset: Option<Side>,
    first: Moment,
    first_sender: Side,
    reused: bool,
    /// The first segment is still to be passed to tshark's rules as one on a reused 4-tuple.
    announce_reuse: bool,
    handshake: Handshake,
    renumbering: Renumbering,
}

/// One segment on its way through the rules.
pub(super) struct Step<'s, 'p> {
    pub s: &'s Segment<'p>,
    pub options: Parsed,
    pub limits: Limits,
    pub now: i64,
    /// Its first number, one past its payload, and one past its FIN.
    pub start: u64,
    pub data_end: u64,
    pub end: u64,
    /// What it acknowledges.
    pub ack: Option<u64>,
    /// Its window, scaled.
    pub window: u64,
    pub side: Side,
    pub kind: Kind,
    pub marks: Marks,
    /// RTT sample of the other side's data.
    pub rtt: Option<i64>,
    pub duplicate: u32,
    /// Payload bytes not observed before.
    pub new_bytes: u64,
    /// Some of its numbers were observed before, or it starts before observed ones and ends before
    /// their end.
    pub not_next: bool,
    /// When data that was sent again, or what jumped over it, was last sent.
    pub sent_before: Option<i64>,
    /// Something was proved spurious: frame and how.
    pub spurious: Option<(u64, Proof)>,
}

impl<'s, 'p> Step<'s, 'p> {
    /// The segment as positions of the direction in which it travels, `fwd`, and of the other.
    #[inline]
    fn new(
        s: &'s Segment<'p>,
        options: Parsed,
        mut limits: Limits,
        side: Side,
        fwd: &mut Flow,
        rev: &mut Flow,
    ) -> Self {
        let syn = s.flags.any(Flags::SYN);
        let start = fwd.send.position(s.sequence, u32::from(!syn));
        let data_end = start + u64::from(s.length) + u64::from(syn);
        let ack = s.flags.any(Flags::ACK).then(|| {
            let position = rev.send.position(s.acknowledgement, 1);
            if !rev.observed {
                rev.send.next = rev.send.next.max(position);
            }
            position
        });
        let window = if syn {
            u64::from(s.window)
        } else if ack.is_some() {
            u64::from(s.window) << fwd.receive.shift
        } else {
            0
        };
        if !rev.observed {
            limits.outstanding = limits.outstanding.min(OUTSTANDING_ONE_SIDED);
        }
        Step {
            s,
            options,
            limits,
            now: s.time.0,
            start,
            data_end,
            end: data_end + u64::from(s.flags.any(Flags::FIN)),
            ack,
            window,
            side,
            kind: Kind::Ack,
            marks: Marks::default(),
            rtt: None,
            duplicate: 0,
            new_bytes: 0,
            not_next: false,
            sent_before: None,
            spurious: None,
        }
    }

    pub(super) fn has(&self, flags: u16) -> bool {
        self.s.flags.any(flags)
    }
}

impl Connection {
    /// A connection whose first captured segment is `first`, which is still to be given to
    /// [`segment`](Self::segment).
    #[must_use]
    pub fn new(first: &Segment<'_>, options: &Options) -> Self {
        let from_server = first.flags.any(Flags::SYN) && first.flags.any(Flags::ACK);
        let (client, server, first_sender) = if from_server {
            (first.destination, first.source, Side::Server)
        } else {
            (first.source, first.destination, Side::Client)
        };
        let nanos = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        let moment = Moment {
            frame: first.frame,
            time: first.time,
        };
        Connection {
            client,
            server,
            flows: Default::default(),
            shared: wireshark::Shared::default(),
            turns: TurnTaking::default(),
            limits: Limits {
                delayed_ack: nanos(options.delayed_ack),
                idle: nanos(options.idle),
                outstanding: options.outstanding.max(1),
            },
            last: moment,
            previous_time: first.time.0,
            clock_steps_back: 0,
            bad_checksums: 0,
            reset: None,
            first: moment,
            first_sender,
            reused: false,
            announce_reuse: false,
            handshake: Handshake::default(),
            renumbering: Renumbering::default(),
        }
    }

    /// The same, on ports that an earlier connection of the capture had.
    #[must_use]
    pub fn on_reused_ports(first: &Segment<'_>, options: &Options) -> Self {
        Connection {
            reused: true,
            announce_reuse: true,
            ..Self::new(first, options)
        }
    }

    /// Who opened it, as far as is known.
    #[must_use]
    pub fn client(&self) -> Endpoint {
        self.client
    }

    /// The other end.
    #[must_use]
    pub fn server(&self) -> Endpoint {
        self.server
    }

    /// The latest time of a segment.
    #[must_use]
    pub fn last_time(&self) -> Timestamp {
        self.last.time
    }

    /// Both sides sent FIN, or one RST: nothing but stragglers can follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.reset.is_some() || self.flows.iter().all(|f| f.fins)
    }

    /// Asks the processor to fetch what the next segments will touch outside of the connection,
    /// for whoever has fetched that.
    #[inline]
    pub fn prefetch_outstanding(&self) {
        for flow in &self.flows {
            flow.ledger.prefetch();
        }
    }

    /// Takes the next segment.
    #[inline]
    pub fn segment(&mut self, s: &Segment<'_>) {
        self.segment_with(s, &mut Ignore);
    }

    /// Takes the next segment and shows what it meant.
    pub fn segment_with<E: Events>(&mut self, s: &Segment<'_>, events: &mut E) {
        let side = if s.source == self.client {
            Side::Client
        } else {
            Side::Server
        };
        self.segment_of(side, s, events);
    }

    /// The same of a segment that `side` sent.
    pub(crate) fn segment_of<E: Events>(&mut self, side: Side, s: &Segment<'_>, events: &mut E) {
        self.clock(s);
        let mut options = Parsed::read(s.options);
        let flags = self.wireshark(s, &options, side);
        let syn = s.flags.any(Flags::SYN);
        let first;
        let s = if syn || self.renumbering.is_there() {
            first = (self.renumbering).first(s, &mut options, side, &mut self.flows);
            &first
        } else {
            s
        };
        let (fwd, rev) = directions(&mut self.flows, side);
        if !flags.is_empty() {
            flags.count(&mut fwd.report().wireshark);
        }

        if syn {
            if answers(s, fwd, rev) {
                self.reset = None;
            }
            opening(s, &options, side, fwd, rev, &mut self.handshake);
        } else if self.handshake.ack.is_none() {
            self.handshake.third(s, side);
        }
        let mut step = Step::new(s, options, self.limits, side, fwd, rev);
        if s.checksum_ok == Some(false) {
            self.bad_checksums += 1;
            step.marks.set(Marks::BAD_CHECKSUM);
        }
        sending::count(&mut step, fwd);
        sending::numbers(&mut step, fwd, rev);
        if step.ack.is_some() {
            acking::acknowledge(&mut step, fwd, rev);
        }
        if step.has(Flags::RST) {
            if step.kind != Kind::HardwareDuplicate {
                step.kind = Kind::Reset;
            }
            self.reset = self.reset.or_else(|| {
                let both = fwd.fins && rev.fins;
                (!both).then_some(side)
            });
        } else {
            acking::advertise(&mut step, fwd, rev);
            sending::outstanding(&mut step, fwd, rev);
        }
        if step.new_bytes > 0 && self.turns.data(side, s, step.new_bytes) {
            step.marks.set(Marks::TURN);
        }
        fwd.observed = true;
        fwd.last.time = step.now;
        if E::WANTED {
            report(&step, flags, fwd, rev, events);
        }
    }

    /// tshark's flags of the segment.
    #[inline]
    fn wireshark(&mut self, s: &Segment<'_>, options: &Parsed, side: Side) -> wireshark::Flags {
        let (fwd, rev) = directions(&mut self.flows, side);
        let mut reused = std::mem::take(&mut self.announce_reuse);
        if s.flags.0 & (Flags::SYN | Flags::ACK) == Flags::SYN
            && fwd.wireshark.base().is_some_and(|base| base != s.sequence)
        {
            // tshark's next connection begins here, whatever the engine says.
            self.shared = wireshark::Shared::default();
            fwd.wireshark = wireshark::Flow::default();
            rev.wireshark = wireshark::Flow::default();
            reused = true;
        }
        let ledger = &fwd.ledger;
        wireshark::segment(
            s,
            options,
            wireshark::Directions {
                fwd: &mut fwd.wireshark,
                rev: &mut rev.wireshark,
                shared: &mut self.shared,
            },
            || ledger.sent_before(s.time.0),
            reused,
        )
    }

    #[inline]
    fn clock(&mut self, s: &Segment<'_>) {
        if s.time.0 < self.previous_time {
            self.clock_steps_back += 1;
        }
        self.previous_time = s.time.0;
        if s.time >= self.last.time {
            self.last = Moment {
                frame: s.frame,
                time: s.time,
            };
        }
        if s.time < self.first.time {
            self.first.time = s.time;
        }
    }

    /// The connection's last segment was observed.
    #[must_use]
    pub fn finish(mut self) -> ConnectionReport {
        let end = self.last.time.0;
        let mut dropped = Dropped::default();
        for flow in &mut self.flows {
            if let Some(rare) = &flow.rare {
                dropped.segments += rare.dropped.segments;
                dropped.ranges += rare.dropped.ranges;
            }
            flow.close(end);
        }
        let ending = self.ending();
        let turns = self.turns.finish();
        let [client, server] = self
            .flows
            .map(|flow| flow.report.map(|r| *r).unwrap_or_default());
        ConnectionReport {
            client: self.client,
            server: self.server,
            first_sender: self.first_sender,
            first: self.first,
            last: self.last,
            reused: self.reused,
            handshake: self.handshake,
            ending,
            from_client: client,
            from_server: server,
            turns,
            clock_steps_back: self.clock_steps_back,
            bad_checksums: self.bad_checksums,
            renumbered: self.renumbering.is_there(),
            dropped,
        }
    }

    fn ending(&self) -> Ending {
        let [client, server] = &self.flows;
        let fins = [client, server].map(|f| f.fins);
        match (self.reset, fins) {
            (Some(Side::Server), _) if client.syn && !server.syn && server.last.data_time == 0 => {
                Ending::Refused
            }
            (Some(side), _) => Ending::Reset(side),
            (None, [true, true]) => Ending::Closed,
            (None, [true, false]) => Ending::HalfClosed(Side::Client),
            (None, [false, true]) => Ending::HalfClosed(Side::Server),
            (None, _) if client.syn && !server.observed && !client.acks_something() => {
                Ending::Unanswered
            }
            (None, _) => Ending::Open,
        }
    }
}

/// The direction in which a segment of `side` travels, and the other.
#[inline]
pub(super) fn directions(flows: &mut [Flow; 2], side: Side) -> (&mut Flow, &mut Flow) {
    let [client, server] = flows;
    match side {
        Side::Client => (client, server),
        Side::Server => (server, client),
    }
}

/// Reports a segment to a sink.
fn report<E: Events>(
    step: &Step<'_, '_>,
    wireshark: wireshark::Flags,
    fwd: &Flow,
    rev: &Flow,
    events: &mut E,
) {
    let s = step.s;
    let mut blocks = [(0, 0); 4];
    let sack = step.options.sack();
    for (block, (left, right)) in blocks.iter_mut().zip(sack) {
        let near = |n| rev.send.relative(super::flow::unwrap(rev.send.next, n));
        *block = (near(*left), near(*right));
    }
    let window = (step.ack.is_some() || s.flags.any(Flags::SYN)).then_some(step.window);
    events.event(&Event {
        frame: s.frame,
        time: s.time,
        side: step.side,
        kind: step.kind,
        marks: step.marks,
        wireshark,
        flags: s.flags,
        sequence: fwd.send.relative(step.start),
        end: fwd.send.relative(step.end),
        length: s.length,
        acknowledgement: step.ack.map(|a| rev.send.relative(a)),
        window,
        window_edge: step
            .ack
            .map(|a| rev.send.relative(a.saturating_add(step.window))),
        flight: fwd.send.flight(),
        rtt: step
            .rtt
            .map(|r| Duration::from_nanos(u64::try_from(r).unwrap_or(0))),
        duplicate: step.duplicate,
        sack: &blocks[..sack.len()],
        missing: s.ip_id.map_or(0, |_| fwd.frames.missing),
        timestamps: step.options.timestamps,
        sent_before: step.sent_before.map(Timestamp),
    });
    if let Some((frame, by)) = step.spurious {
        events.spurious(&Spurious {
            frame,
            side: step.side.peer(),
            proof: s.frame,
            by,
        });
    }
}
