// SPDX-License-Identifier: Apache-2.0
//! The message that ends all sessions of a connection: read in pieces, as its length is the peer's choice.

use super::ControlError;
use super::channel::Channel;
use super::message::{Accept, STOP_SESSIONS, Stop, StoppedSession, block, word};
use crate::record::SkipRange;

/// Ranges of skipped packets of all sessions of a message.
const MOST_SKIPS: u64 = 1 << 20;

/// Sessions of a message.
const MOST_SESSIONS: u64 = 1 << 10;

/// A message that is being read.
#[derive(Debug)]
pub(super) struct StopReader {
    stop: Stop,
    sessions_left: u32,
    skips_left: u32,
    skips: u64,
    header_read: bool,
    two_way: bool,
}

impl StopReader {
    /// Of a connection of OWAMP or, `two_way`, of TWAMP, whose message has no sessions.
    pub(super) fn new(two_way: bool) -> Self {
        StopReader {
            stop: Stop {
                accept: Accept::Accepted,
                sessions: Vec::new(),
            },
            sessions_left: 0,
            skips_left: 0,
            skips: 0,
            header_read: false,
            two_way,
        }
    }

    /// Goes on reading; the message once it is whole and verified.
    pub(super) fn read(&mut self, channel: &mut Channel) -> Result<Option<Stop>, ControlError> {
        if !self.header_read {
            let Some(header) = channel.read(16) else {
                return Ok(None);
            };
            self.begin(&header)?;
        }
        loop {
            if self.skips_left > 0 {
                let Some(octets) = channel.read(16) else {
                    return Ok(None);
                };
                self.add_skips(&octets)?;
            } else if self.sessions_left > 0 {
                if channel.peek(32).is_none() {
                    return Ok(None);
                }
                let Some(octets) = channel.read(32) else {
                    return Ok(None);
                };
                self.add_session(&octets)?;
            } else {
                break;
            }
        }
        match channel.read_digest() {
            None => Ok(None),
            Some(verified) => {
                verified?;
                let fresh = StopReader::new(self.two_way);
                Ok(Some(std::mem::replace(self, fresh).stop))
            }
        }
    }

    fn begin(&mut self, header: &[u8]) -> Result<(), ControlError> {
        if header[0] != STOP_SESSIONS {
            return Err(ControlError::Malformed("message in place of Stop-Sessions"));
        }
        self.header_read = true;
        self.stop.accept = Accept::from_wire(header[1]);
        self.sessions_left = if self.two_way { 0 } else { word(header, 4) };
        limit(
            "number of sessions",
            self.sessions_left.into(),
            MOST_SESSIONS,
        )
    }

    fn add_session(&mut self, octets: &[u8]) -> Result<(), ControlError> {
        self.sessions_left -= 1;
        self.skips_left = word(octets, 20);
        self.skips += u64::from(self.skips_left);
        limit("number of skipped ranges", self.skips, MOST_SKIPS)?;
        self.stop.sessions.push(StoppedSession {
            session: block(octets, 0),
            next_sequence: word(octets, 16),
            skips: Vec::new(),
        });
        self.add_skips(&octets[24..])
    }

    /// Ranges until the octets or the ranges end; what is left over is padding.
    fn add_skips(&mut self, octets: &[u8]) -> Result<(), ControlError> {
        for chunk in octets.chunks_exact(8) {
            if self.skips_left == 0 {
                break;
            }
            self.skips_left -= 1;
            let range = SkipRange::from_wire(chunk.try_into().expect("eight octets"))
                .ok_or(ControlError::Malformed("skipped range"))?;
            if let Some(session) = self.stop.sessions.last_mut() {
                session.skips.push(range);
            }
        }
        Ok(())
    }
}

fn limit(what: &'static str, found: u64, most: u64) -> Result<(), ControlError> {
    match found > most {
        true => Err(ControlError::OverLimit { what, found, most }),
        false => Ok(()),
    }
}

/// Writes the message.
pub(super) fn write_stop(channel: &mut Channel, stop: &Stop, two_way_sessions: Option<u32>) {
    let count = two_way_sessions.unwrap_or(stop.sessions.len() as u32);
    let mut bytes = vec![0; 16];
    bytes[0] = STOP_SESSIONS;
    bytes[1] = stop.accept.to_wire();
    bytes[4..8].copy_from_slice(&count.to_be_bytes());
    if two_way_sessions.is_none() {
        for session in &stop.sessions {
            bytes.extend_from_slice(&session.session);
            bytes.extend_from_slice(&session.next_sequence.to_be_bytes());
            bytes.extend_from_slice(&(session.skips.len() as u32).to_be_bytes());
            for skip in &session.skips {
                bytes.extend_from_slice(&skip.to_wire());
            }
            bytes.resize(bytes.len().next_multiple_of(16), 0);
        }
    }
    channel.write_message(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stop_arrives_as_it_was_sent(
            skips in proptest::collection::vec(0usize..7, 0..5),
            cut in 1usize..50,
        ) {
            let sessions = skips.iter().enumerate().map(|(n, &skips)| StoppedSession {
                session: [n as u8; 16],
                next_sequence: 100 + n as u32,
                skips: (0..skips as u32)
                    .map(|i| SkipRange { first: 10 * i, last: 10 * i + 3 })
                    .collect(),
            });
            let stop = Stop { accept: Accept::Accepted, sessions: sessions.collect() };
            let (mut from, mut to) = (Channel::default(), Channel::default());
            write_stop(&mut from, &stop, None);
            let mut reader = StopReader::new(false);
            let mut arrived = None;
            for piece in from.output().chunks(cut) {
                prop_assert_eq!(&arrived, &None);
                to.feed(piece);
                arrived = reader.read(&mut to).expect("our own");
            }
            prop_assert_eq!(arrived, Some(stop));
            prop_assert_eq!(to.waiting(), 0);
        }
    }

    #[test]
    fn counts_that_no_session_has_are_refused() {
        let mut channel = Channel::default();
        let mut header = [0xff; 16];
        header[0] = STOP_SESSIONS;
        channel.feed(&header);
        let refused = StopReader::new(false).read(&mut channel);
        assert!(matches!(refused, Err(ControlError::OverLimit { .. })));
    }
}
