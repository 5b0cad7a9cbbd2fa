// SPDX-License-Identifier: Apache-2.0
//! Reflects STAMP and TWAMP light packets, which come without a connection: from anywhere, with any source.

use super::Shared;
use crate::packet::stamp::{self, FollowUp, StampKey};
use crate::packet::{Protection, Reply, TestPacket, read_test, write_reply};
use crate::session::PathError;
use crate::socket::{Received, SocketOptions, StampedSocket, clock_state};
use crate::time::ErrorEstimate;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sessions that have a count of their own; further ones get their sender's numbers back, as RFC 8762 allows
/// (stateless mode).
const MOST_SESSIONS: usize = 4_096;

/// A session without packets for so long is forgotten, s.
const FORGET: u64 = 60;

/// Packet 0 after so long a pause begins a session anew; a copy of it comes sooner.
const PAUSE: Duration = Duration::from_secs(1);

/// Source ports below are servers': a reply there could be answered, and that again.
const FIRST_CLIENT_PORT: u16 = 1_024;

/// Replies whose stamps are awaited.
const AWAITED: usize = 256;

/// Octets of TWAMP light's reply: shorter packets are not answered.
const LIGHT: usize = 41;

/// A session by address, port and STAMP's identifier.
type SessionKey = (SocketAddr, u16);

#[derive(Debug)]
struct Session {
    next: u32,
    last: Option<FollowUp>,
    at: Instant,
}

/// The reflector of one port.
#[derive(Debug)]
pub(super) struct Reflector {
    socket: StampedSocket,
    shared: Arc<Shared>,
    port: u16,
    key: Option<StampKey>,
    open: bool,
}

impl Reflector {
    pub(super) fn open(address: SocketAddr, shared: Arc<Shared>) -> Result<Self, PathError> {
        let mut options = SocketOptions::on(address.ip());
        options.bind = address;
        let socket =
            StampedSocket::open(&options).map_err(PathError::io("open the port of STAMP"))?;
        let port = socket
            .local()
            .map_err(PathError::io("learn the port of STAMP"))?
            .port();
        let key = shared
            .options
            .secrets
            .first()
            .map(|secret| StampKey::new(&secret.passphrase));
        Ok(Reflector {
            socket,
            port,
            key,
            open: shared.options.modes.has(crate::control::Modes::OPEN),
            shared,
        })
    }

    pub(super) fn local(&self) -> Result<SocketAddr, PathError> {
        self.socket
            .local()
            .map_err(PathError::io("learn the port of STAMP"))
    }

    /// Reflects until the server ends.
    pub(super) fn run(self) {
        let mut buffer = vec![0; 65_536];
        let mut sessions: HashMap<SessionKey, Session> = HashMap::new();
        let mut awaited: Vec<Option<(SessionKey, u32)>> = vec![None; AWAITED];
        let (mut sent, mut packets) = (0u32, 0u64);
        let mut error = clock_state().estimate();
        while !self.shared.stop.load(Ordering::Acquire) {
            let Ok(Some(received)) = self.socket.receive(&mut buffer) else {
                continue;
            };
            packets += 1;
            if packets.is_multiple_of(1_024) {
                error = clock_state().estimate();
            }
            let counters = &self.shared.counters;
            let reply = buffer
                .get_mut(..received.length)
                .and_then(|bytes| self.reflect(bytes, &received, &mut sessions, error));
            let Some((session, sequence)) = reply else {
                counters.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            if self
                .socket
                .send_to(&buffer[..received.length], received.from)
                .is_ok()
            {
                awaited[sent as usize % AWAITED] = Some((session, sequence));
                sent = sent.wrapping_add(1);
                counters.reflected.fetch_add(1, Ordering::Relaxed);
            } else if self.socket.restart_numbers().is_ok() {
                sent = 0;
                awaited.fill(None);
            }
            self.socket.send_stamps(|number, kernel| {
                let Some((session, sequence)) = awaited[number as usize % AWAITED].take() else {
                    return;
                };
                if let Some(session) = sessions.get_mut(&session) {
                    session.last = Some(FollowUp {
                        sequence,
                        sent: self.shared.options.clock.stamp(kernel),
                    });
                }
            });
        }
    }

    /// Turns a packet into its reply, of the same length; `None`: it is not answered.
    fn reflect(
        &self,
        bytes: &mut [u8],
        received: &Received,
        sessions: &mut HashMap<SessionKey, Session>,
        error: ErrorEstimate,
    ) -> Option<(SessionKey, u32)> {
        let peer = received.from;
        let now = Instant::now();
        if peer.port() < FIRST_CLIENT_PORT
            || peer.port() == self.port
            || !self.shared.gate.allows(peer.ip())
        {
            return None;
        }
        let keyed = bytes.len() >= stamp::AUTHENTICATED;
        let key = self
            .key
            .as_ref()
            .filter(|key| keyed && stamp::read_test(bytes, Some(key)).is_ok());
        if key.is_none() && !self.open {
            return None;
        }
        let light = bytes.len() < stamp::OPEN;
        let (packet, identifier): (TestPacket, u16) = match light {
            true if bytes.len() < LIGHT => return None,
            true => (read_test(bytes, &Protection::Open).ok()?, 0),
            false => stamp::read_test(bytes, key).ok()?,
        };
        if !self.shared.gate.may_reflect(peer.ip(), now) {
            return None;
        }
        let session = (peer, identifier);
        let (sequence, last) = count(sessions, session, packet.sequence, now);
        let clock = &self.shared.options.clock;
        let reply = Reply {
            request: packet,
            ttl: received.ttl.unwrap_or(255),
            received: crate::session::arrival(received, clock),
            sequence,
            sent: clock.timestamp(),
            error,
        };
        match light {
            true => write_reply(bytes, &reply, &Protection::Open),
            false => stamp::reflect(bytes, &reply, last, key),
        }
        Some((session, sequence))
    }
}

/// The number of a session's next reply, and when the one before left.
fn count(
    sessions: &mut HashMap<SessionKey, Session>,
    key: SessionKey,
    theirs: u32,
    now: Instant,
) -> (u32, Option<FollowUp>) {
    if !sessions.contains_key(&key) && sessions.len() >= MOST_SESSIONS {
        sessions.retain(|_, session| now.saturating_duration_since(session.at).as_secs() < FORGET);
        if sessions.len() >= MOST_SESSIONS {
            return (theirs, None);
        }
    }
    let session = sessions.entry(key).or_insert(Session {
        next: 0,
        last: None,
        at: now,
    });
    // A sender that begins anew gets a count that does, also one that has its port from an earlier test.
    let silent = now.saturating_duration_since(session.at);
    if silent.as_secs() >= FORGET || theirs == 0 && silent >= PAUSE {
        session.next = 0;
        session.last = None;
    }
    session.at = now;
    let sequence = session.next;
    session.next = session.next.wrapping_add(1);
    (sequence, session.last.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_from_the_port_of_an_earlier_one_has_a_count_of_its_own() {
        let mut sessions = HashMap::new();
        let key = ("192.0.2.1:20000".parse().expect("an address"), 0);
        let began = Instant::now();
        let mut number = |theirs, millis| {
            let now = began + Duration::from_millis(millis);
            count(&mut sessions, key, theirs, now).0
        };
        let first = [number(0, 0), number(1, 100), number(2, 200)];
        assert_eq!(first, [0, 1, 2]);
        // A copy of packet 0 is the next of the same session.
        assert_eq!(number(0, 300), 3);
        // The next test begins after a pause, and so does its count; packet 3 of the same test does not.
        assert_eq!([number(0, 1_400), number(1, 1_500)], [0, 1]);
        assert_eq!(number(3, 3_000), 2);
    }
}
