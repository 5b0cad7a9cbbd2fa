// SPDX-License-Identifier: Apache-2.0
//! The netlink socket: one question, one answer.

use super::wire::{self, ENTRY, Entry, EntryError, Tuple};
use crate::inet_diag::PollError as ReceiveError;
use crate::inet_diag::socket;
use crate::inet_diag::wire::{Content, WireError, messages};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::netlink::NETFILTER;
use std::io;
use std::os::fd::OwnedFd;
use thiserror::Error;

/// An entry with every attribute, labels and helper included, is below one page.
const BUFFER: usize = 8 * 1024;

/// Why a question got no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The question could not be sent.
    #[error("asking conntrack over netlink: {0}")]
    Send(#[source] io::Error),
    /// The answer could not be received.
    #[error("reading conntrack's answer: {0}")]
    Receive(#[from] ReceiveError),
    /// The kernel refused.
    #[error("conntrack answered: {0}")]
    Kernel(#[source] io::Error),
    /// The answer is cut.
    #[error("reading conntrack's answer: {0}")]
    Malformed(#[from] WireError),
    /// The answer is no entry.
    #[error("reading conntrack's answer: {0}")]
    Entry(#[from] EntryError),
}

impl AskError {
    /// What the kernel said, if it refused.
    pub(super) fn errno(&self) -> Option<Errno> {
        match self {
            AskError::Kernel(error) => Errno::from_io_error(error),
            _ => None,
        }
    }
}

/// A NETLINK_NETFILTER socket, bound to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct ConntrackSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl ConntrackSocket {
    /// Opens a socket.
    pub fn open() -> io::Result<Self> {
        Ok(ConntrackSocket {
            fd: socket::open(NETFILTER)?,
            buffer: vec![0; BUFFER],
            sequence: 0,
        })
    }

    /// The entry one of whose directions is `tuple`; `None` if there is none.
    pub fn ask(&mut self, tuple: &Tuple) -> Result<Option<Entry>, AskError> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = wire::request(tuple, self.sequence);
        rustix::net::send(&self.fd, &request, SendFlags::empty())
            .map_err(|e| AskError::Send(e.into()))?;
        loop {
            let (batch, _) = socket::receive(&self.fd, &mut self.buffer)?;
            for message in messages(batch) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                if message.kind() == ENTRY {
                    return Ok(Some(Entry::read(message.payload)?));
                }
                match message.content()? {
                    Content::Acknowledged | Content::Done(None) => return Ok(None),
                    Content::Error(errno) | Content::Done(Some(errno)) => {
                        let error = io::Error::from_raw_os_error(errno);
                        return match Errno::from_io_error(&error) {
                            Some(Errno::NOENT) => Ok(None),
                            _ => Err(AskError::Kernel(error)),
                        };
                    }
                    _ => {}
                }
            }
        }
    }
}
