// SPDX-License-Identifier: Apache-2.0
//! A connection that carries messages, with a deadline for each.

use super::channel::{Channel, ChannelError, GREETING, Side};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How one read waits before it looks at the deadline and at whether all is to end.
const READ: Duration = Duration::from_millis(20);

/// How long a write may wait: a peer that does not read is sent away.
const WRITE: Duration = Duration::from_secs(10);

/// Octets of one read.
const OCTETS: usize = 4_096;

/// Why no message came.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other end closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// It did not bring a message to its end in time.
    #[error("it did not answer in time")]
    Late,
    /// This end is to end.
    #[error("interrupted")]
    Stopped,
    /// It broke the protocol.
    #[error("it sent {0}")]
    Channel(#[from] ChannelError),
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A connection that carries messages.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    channel: Channel,
}

impl Link {
    /// Over a connection.
    ///
    /// # Errors
    /// The socket refuses an option.
    pub fn new(stream: TcpStream, side: Side) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(READ))?;
        stream.set_write_timeout(Some(WRITE))?;
        stream.set_nodelay(true)?;
        Ok(Link {
            stream,
            channel: Channel::new(side),
        })
    }

    /// Frames of this connection.
    pub fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// The connection, for data: no octet of those was read.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends octets as they are.
    ///
    /// # Errors
    /// The connection broke, or the other end does not read.
    pub fn send_octets(&mut self, octets: &[u8]) -> Result<(), LinkError> {
        Ok(self.stream.write_all(octets)?)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// It is too long, the connection broke, or the other end does not read.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), LinkError> {
        let frame = self.channel.seal(message)?;
        self.send_octets(&frame)
    }

    /// The next octets, as many as `most` and as there are; none: look again.
    fn read(
        &mut self,
        most: usize,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, LinkError> {
        if stop.load(Ordering::Relaxed) {
            return Err(LinkError::Stopped);
        }
        if Instant::now() > deadline {
            return Err(LinkError::Late);
        }
        let mut buffer = [0; OCTETS];
        match self.stream.read(&mut buffer[..most.min(OCTETS)]) {
            Ok(0) => Err(LinkError::Closed),
            Ok(length) => Ok(buffer[..length].to_vec()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(Vec::new())
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                Err(LinkError::Closed)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The server's greeting.
    ///
    /// # Errors
    /// It does not come in time.
    pub fn greeting(
        &mut self,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<[u8; GREETING], LinkError> {
        let mut octets = Vec::new();
        while octets.len() < GREETING {
            octets.extend(self.read(GREETING - octets.len(), deadline, stop)?);
        }
        let mut greeting = [0; GREETING];
        greeting.copy_from_slice(&octets);
        Ok(greeting)
    }

    /// The next message; it must be whole before the deadline, however it trickles.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<T, LinkError> {
        loop {
            if let Some(message) = self.channel.message()? {
                return Ok(message);
            }
            let missing = self.channel.missing()?;
            let octets = self.read(missing.max(1), deadline, stop)?;
            self.channel.feed(&octets);
        }
    }
}
