// SPDX-License-Identifier: Apache-2.0
//! Dumps as the kernel gives them, for who saves them.

use super::socket::DiagSocket;
use super::wire::{Attribute, DIAG_HEADER, DiagHeader, Family, attributes};
use super::{OpenError, PollError};

/// One socket as the kernel gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSocket<'a> {
    /// `struct inet_diag_msg`, read.
    pub header: DiagHeader,
    /// `struct inet_diag_msg`, its bytes.
    pub message: &'a [u8],
    /// Every attribute with its `INET_DIAG_*` number, in the kernel's order.
    pub attributes: Vec<(u16, &'a [u8])>,
}

/// Dumps of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct RawDump {
    socket: DiagSocket,
    v6: bool,
}

impl RawDump {
    /// Opens it.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left behind.
    pub fn open() -> Result<Self, OpenError> {
        let mut socket = DiagSocket::open().map_err(OpenError::Socket)?;
        socket.probe().map_err(OpenError::Probe)?;
        Ok(RawDump { socket, v6: true })
    }

    /// Hands every TCP socket to `each`; one that the dump repeats, twice. Gives the number
    /// of those that could not be read.
    ///
    /// # Errors
    /// See [`PollError`].
    pub fn poll(&mut self, mut each: impl FnMut(&RawSocket<'_>)) -> Result<u64, PollError> {
        let mut give = |payload: &[u8]| match read(payload) {
            Some(socket) => {
                each(&socket);
                true
            }
            None => false,
        };
        let mut unreadable = self.socket.dump_raw(Family::V4, &mut give)?.undecodable;
        if self.v6 {
            match self.socket.dump_raw(Family::V6, &mut give) {
                Ok(end) => unreadable += end.undecodable,
                Err(error) if error.is_unsupported() => self.v6 = false,
                Err(error) => return Err(error),
            }
        }
        Ok(unreadable)
    }
}

fn read(payload: &[u8]) -> Option<RawSocket<'_>> {
    let header = DiagHeader::read(payload).ok()?;
    let (message, rest) = payload.split_at_checked(DIAG_HEADER)?;
    let numbered = attributes(rest)
        .map(|attribute| attribute.map(|Attribute { number, value }| (number, value)));
    Some(RawSocket {
        header,
        message,
        attributes: numbered.collect::<Result<_, _>>().ok()?,
    })
}
