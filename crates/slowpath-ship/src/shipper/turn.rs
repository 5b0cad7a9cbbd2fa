// SPDX-License-Identifier: Apache-2.0
//! One turn after the other: at most one batch each, live and waiting segments by turns.

use super::report::FailureReport;
use super::{Journal, ShipStatus, ShipperOptions, StopReason, Urgency};
use crate::answers::{self, RefusalKind, SegmentsAnswer, ServerState};
use crate::batch::Encoder;
use crate::client::{Connection, Failure, Policy, ServerAddress, Step, Trust};
use crate::keys::{EnrolmentError, Identity, fetch_bundle, renew};
use crate::queue::{Class, Offer, Queue, Settlement};
use crate::{clock, random};
use std::io;
use std::time::{Duration, Instant, SystemTime};

/// How often a renewal is tried.
const RENEWAL: Duration = Duration::from_secs(3600);
/// How long a turn that cannot read its own files waits.
const OWN_FAULT: Duration = Duration::from_secs(10);

pub(super) struct Ship {
    options: ShipperOptions,
    server: ServerAddress,
    identity: Identity,
    /// When the identity's file was written.
    identity_written: Option<SystemTime>,
    connection: Option<Connection>,
    queue: Queue,
    policy: Policy,
    encoder: Encoder,
    run: u128,
    number: u64,
    /// When live segments are looked at again; nothing is sent before `held_until`.
    next_live: Duration,
    held_until: Duration,
    next_renewal: Duration,
    renew_at: i64,
    /// The last batch was of a live segment: a waiting one is next.
    turn_of_waiting: bool,
    /// The wall clock when nothing was left to send.
    caught_up_us: Option<i64>,
    report: FailureReport,
    journal: Journal,
    status: ShipStatus,
}

impl Ship {
    pub(super) fn new(
        options: ShipperOptions,
        identity: Identity,
        queue: Queue,
        journal: Journal,
    ) -> io::Result<Self> {
        let server = options.server.clone().unwrap_or(identity.server.clone());
        Ok(Ship {
            identity_written: written(&identity),
            renew_at: identity.facts.renew_at(random::fraction()?),
            // From the first request on clients are spread.
            next_live: options.interval.mul_f64(random::fraction()?),
            server,
            identity,
            connection: None,
            queue,
            policy: Policy::default(),
            encoder: Encoder::new()?,
            run: random::number()?,
            number: 0,
            held_until: Duration::ZERO,
            next_renewal: Duration::ZERO,
            turn_of_waiting: false,
            caught_up_us: None,
            report: FailureReport::default(),
            journal,
            status: ShipStatus::default(),
            options,
        })
    }

    pub(super) fn status(&self) -> ShipStatus {
        let now = clock::wall().0;
        let queue = self.queue.status();
        let behind = match (self.caught_up_us, queue.oldest_us) {
            (_, None) => None,
            (Some(caught_up), Some(oldest)) => Some(caught_up.max(oldest)),
            (None, oldest) => oldest,
        };
        ShipStatus {
            at_us: now,
            server: self.server.to_string(),
            host: self.identity.facts.host.to_string(),
            lag_us: behind.map_or(0, |since| u64::try_from(now - since).unwrap_or(0)),
            certificate_days: self.identity.facts.days_left(now / 1_000_000),
            queue,
            ..self.status.clone()
        }
    }

    /// Leaves a status for other processes, which is only for people: one that cannot be written is
    /// missing.
    pub(super) fn write(&self, status: &ShipStatus) {
        let _ = status.write(&self.options.log);
    }

    /// Does what is due, at most one batch; how long to wait before the next turn.
    pub(super) fn turn(&mut self, now: Duration) -> Duration {
        self.look_at_identity();
        self.renew_if_due(now);
        if let Err(error) = self.queue.refresh().and_then(|()| self.queue.make_room()) {
            self.fail(&error.to_string(), false, now);
            return OWN_FAULT;
        }
        if now < self.held_until {
            return self.rest_of_hold(now);
        }
        let live_due = now >= self.next_live;
        let classes: &[Class] = match (live_due, self.turn_of_waiting) {
            (true, false) => &[Class::Live, Class::Waiting],
            (true, true) => &[Class::Waiting, Class::Live],
            (false, _) => &[Class::Waiting],
        };
        for class in classes {
            match self.queue.offer(*class, self.policy.most_bytes(), now) {
                Ok(Some(offer)) => {
                    self.turn_of_waiting = *class == Class::Live;
                    if *class == Class::Live && !offer.more {
                        self.schedule_live(now);
                    }
                    self.exchange(&offer, now);
                    return self.rest_of_hold(now);
                }
                Ok(None) if *class == Class::Live => self.schedule_live(now),
                Ok(None) => {}
                Err(error) => {
                    self.fail(&error.to_string(), false, now);
                    return OWN_FAULT;
                }
            }
        }
        if live_due {
            self.caught_up_us = Some(clock::wall().0);
        }
        self.next_live.saturating_sub(now)
    }

    /// How long nothing is sent, at most until the identity is to be looked at again.
    fn rest_of_hold(&self, now: Duration) -> Duration {
        let rest = self.held_until.saturating_sub(now);
        rest.min(self.options.interval)
    }

    /// What is new is sent once more, as far as one request a class goes and the server answers.
    pub(super) fn last_turn(&mut self, now: Duration) {
        self.next_live = now;
        for _ in 0..2 {
            if self.status.last_error.is_none() {
                self.turn(now);
            }
        }
    }

    fn schedule_live(&mut self, now: Duration) {
        let drawn = 0.5 + random::fraction().unwrap_or(0.5);
        self.next_live = now + self.options.interval.mul_f64(drawn);
    }

    /// Sends one batch and does what its answer asks for.
    fn exchange(&mut self, offer: &Offer, now: Duration) {
        self.number += 1;
        let mut header = offer.header(self.run, self.number, clock::sent_clock());
        header.clock_offset = self.status.clock_offset;
        let items = offer.items.bytes();
        let identity = (items.len() as u32, crc32fast::hash(items));
        let body = match self.encoder.encode(&header, &offer.items) {
            Ok(body) => body,
            Err(error) => return self.wait_after(&error.to_string(), OWN_FAULT, now),
        };
        let sent = header.clock.sent;
        let began = Instant::now();
        let answer = match self.connection() {
            Ok(connection) => connection.batch(&body),
            Err(failure) => Err(failure),
        };
        let elapsed = began.elapsed();
        let draw = random::fraction().unwrap_or(0.5);
        let step = self.policy.react(&answer, identity, draw);
        // What took time counts as waited.
        let now = now + elapsed;
        let result = match step {
            Step::Settle(offset, crc) => {
                self.status.batches += 1;
                self.status.sent_bytes += body.len() as u64;
                self.queue.flushed(offer, (offset, crc), now)
            }
            Step::Rewind(offset, crc) => self.queue.rewind(offer, (offset, crc), now),
            Step::Refuse => {
                let line = format!(
                    "{} cannot read a batch of segment {} at byte {}: it is kept in ship/refused",
                    self.server, offer.segment, offer.offset
                );
                (self.journal)(Urgency::Warning, &line);
                self.queue
                    .refuse(offer, &body, now)
                    .map(|()| Settlement::Advanced)
            }
            Step::HoldNewer => {
                self.queue.hold_newer(offer, now);
                Ok(Settlement::Advanced)
            }
            Step::Halve => Ok(Settlement::Rewound),
            Step::Wait(wait) => {
                self.held_until = now + wait;
                Ok(Settlement::Rewound)
            }
            Step::Stop(reason, wait) => {
                self.stop_for(reason, now + wait);
                Ok(Settlement::Rewound)
            }
        };
        match (&answer, result) {
            (_, Err(error)) => self.wait_after(&error.to_string(), OWN_FAULT, now),
            (Ok(flushed), Ok(settlement)) => {
                self.status.clock_offset = Some(clock::offset_of(sent, elapsed, flushed));
                self.note(settlement, offer);
                // Behind a live batch: what came until it was made is at the server.
                if self.turn_of_waiting && !offer.more && !self.queue.has_waiting(now) {
                    self.caught_up_us = Some(sent.0);
                }
                self.succeed(now);
                let state = flushed.state.clone();
                self.meet(&state, now);
            }
            (Err(failure), Ok(settlement)) => {
                self.note(settlement, offer);
                self.status.failures += 1;
                let stopped = matches!(step, Step::Stop(..) | Step::HoldNewer);
                if !matches!(step, Step::Rewind(..) | Step::Halve) {
                    self.fail(&failure.to_string(), stopped, now);
                }
            }
        }
    }

    /// A server that started anew may have less than it had; one with another bundle of CAs is
    /// asked for it.
    fn meet(&mut self, state: &ServerState, now: Duration) {
        if state.start != self.queue.server_start() {
            let asked = self.queue.inventory();
            let answer = self
                .connection()
                .and_then(|c| c.post::<SegmentsAnswer>(answers::SEGMENTS, &asked));
            match answer {
                Ok(answer) => {
                    if let Err(error) = self.queue.reconcile(&answer, now) {
                        self.wait_after(&error.to_string(), OWN_FAULT, now);
                    }
                }
                // It is asked for again after the next batch.
                Err(failure) => self.fail(&failure.to_string(), false, now),
            }
        }
        if state.ca != self.identity.bundle_hash().to_string()
            && let Some(connection) = self.connection.take()
            && let Err(error) = fetch_bundle(&mut self.identity, &self.server, &connection)
        {
            self.fail(&error.to_string(), false, now);
        }
    }

    fn connection(&mut self) -> Result<&Connection, Failure> {
        if self.connection.is_none() {
            let trust = Trust::Mutual(&self.identity.bundle, &self.identity.pair);
            let connection = Connection::new(&self.server, trust)
                .map_err(|error| Failure::NoAnswer(error.to_string()))?;
            self.connection = Some(connection);
        }
        self.connection
            .as_ref()
            .ok_or_else(|| Failure::NoAnswer("there is no connection".to_owned()))
    }

    /// The server refuses this client: an expired certificate is renewed at once.
    fn stop_for(&mut self, reason: StopReason, until: Duration) {
        self.held_until = until;
        self.status.stopped = Some(reason);
        if reason == RefusalKind::Expired {
            self.renew_at = i64::MIN;
        }
    }

    fn renew_if_due(&mut self, now: Duration) {
        if clock::wall().0 / 1_000_000 < self.renew_at || now < self.next_renewal {
            return;
        }
        let drawn = 0.5 + random::fraction().unwrap_or(0.5);
        self.next_renewal = now + RENEWAL.mul_f64(drawn);
        match renew(&mut self.identity, &self.server) {
            Ok(()) => {
                (self.journal)(
                    Urgency::Notice,
                    &format!(
                        "renewed this host's certificate for {}: valid for {:.0} days",
                        self.server,
                        self.identity.facts.days_left(clock::wall().0 / 1_000_000)
                    ),
                );
                self.take_identity();
            }
            Err(error) => self.renewal_failed(&error, now),
        }
    }

    fn renewal_failed(&mut self, error: &EnrolmentError, now: Duration) {
        let days = self.identity.facts.days_left(clock::wall().0 / 1_000_000);
        let line =
            format!("cannot renew this host's certificate, {days:.1} days are left: {error}");
        (self.journal)(Urgency::Warning, &line);
        self.status.failures += 1;
        self.fail(&error.to_string(), false, now);
    }

    /// A new identity in the directory counts without a restart.
    fn look_at_identity(&mut self) {
        if written(&self.identity) == self.identity_written {
            return;
        }
        // One that cannot be read is looked at again in the next turn.
        if let Ok(identity) = Identity::read(&self.options.identity) {
            self.identity = identity;
            self.server = self
                .options
                .server
                .clone()
                .unwrap_or(self.identity.server.clone());
            self.take_identity();
        }
    }

    fn take_identity(&mut self) {
        self.identity_written = written(&self.identity);
        self.renew_at = self
            .identity
            .facts
            .renew_at(random::fraction().unwrap_or(0.5));
        self.connection = None;
        self.held_until = Duration::ZERO;
        self.status.stopped = None;
    }

    fn note(&mut self, settlement: Settlement, offer: &Offer) {
        if settlement == Settlement::Conflict {
            (self.journal)(
                Urgency::Warning,
                &format!(
                    "{} has other bytes of segment {}: was this machine restored from a copy? It is not \
                 sent, the others are",
                    self.server, offer.segment
                ),
            );
        }
    }

    fn succeed(&mut self, now: Duration) {
        self.status.last_error = None;
        self.status.stopped = None;
        if let Some(line) = self.report.succeeded(now) {
            (self.journal)(Urgency::Notice, &line);
        }
    }

    fn fail(&mut self, error: &str, at_once: bool, now: Duration) {
        let error = format!("{}: {error}", self.server);
        if let Some(line) = self.report.failed(&error, at_once, now) {
            (self.journal)(Urgency::Warning, &line);
        }
        self.status.last_error = Some(error);
    }

    fn wait_after(&mut self, error: &str, wait: Duration, now: Duration) {
        self.held_until = now + wait;
        self.fail(error, false, now);
    }
}

fn written(identity: &Identity) -> Option<SystemTime> {
    let metadata = identity.dir().join("identity.pem").metadata();
    metadata.and_then(|metadata| metadata.modified()).ok()
}
