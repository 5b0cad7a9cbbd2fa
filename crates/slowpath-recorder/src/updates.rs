// SPDX-License-Identifier: Apache-2.0
//! What the ring and the joiners of both recorders share: a joiner takes events and hands out what has become final.

use slowpath_recording::{End, Moment, OneSided, Packet, Run, Settings};
use std::net::SocketAddr;

/// The bytes are cut, or no events of this recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these are no events of the recorder of stock kernels, or they are cut")]
pub struct NotEvents;

/// What makes runs of a recorder's events, as they come.
pub trait Joins {
    /// Takes whole events; returns how many they were.
    ///
    /// # Errors
    /// If the bytes are no whole events of this recorder.
    fn take(&mut self, events: &[u8]) -> Result<u64, NotEvents>;
    /// The sockets that are recorded, by their keys in the events.
    fn sockets(&self) -> Vec<u64> {
        Vec::new()
    }
    /// States how many of a socket's events were lost so far; `None`: it is not recorded any more. After further losses the caller states them before [`Joins::settle`].
    fn lost(&mut self, _socket: u64, _events: Option<u32>) {}
    /// Hands out what is final now. `lost`: events that were lost in all.
    fn settle(&mut self, now: Moment, lost: u64, updates: &mut Vec<Update>);
    /// The runs of both ends that were not reported yet, as if the ends were over now; `None`: the connection is not known any more.
    fn rest(&self, number: u64) -> Option<[End; 2]>;
    /// The same of a one-sided end, with its packets: sent, received.
    fn rest_one_sided(&self, _number: u64) -> Option<(End, [Vec<Packet>; 2])> {
        None
    }
    /// Bytes of memory of a connection that was reported and is not over.
    fn bytes(&self, number: u64) -> usize;
    /// Forgets a connection; returns those of its sockets that are still open.
    fn forget(&mut self, number: u64) -> Vec<u64>;
}

/// What has become known. Connections are numbered once, from 1 on, in the order of opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Both ends of a connection were observed.
    Opened {
        /// Its number.
        number: u64,
        /// Who connected, and to whom.
        addresses: [SocketAddr; 2],
        /// What both ends have that is not the kernel's default.
        settings: Settings,
        /// Ticks a second.
        hz: u32,
        /// When it was opened, as far as that is known now.
        at: Moment,
    },
    /// An end whose other end is on another machine.
    OneSided {
        /// Its number.
        number: u64,
        /// The end, without runs and packets.
        one_sided: Box<OneSided>,
        /// Ticks a second.
        hz: u32,
        /// When it was opened, as far as that is known now.
        at: Moment,
    },
    /// Further packets of a one-sided end.
    Packets {
        /// Its number.
        number: u64,
        /// Sent, and received.
        packets: [Vec<Packet>; 2],
    },
    /// Further runs of one end.
    Runs {
        /// The connection.
        number: u64,
        /// 0: the end that connected; 1: the other.
        end: usize,
        /// Final, with their checks.
        runs: Vec<Run>,
    },
    /// Both ends are over, or the one-sided one (the other is empty): their last runs, and whether something is missing.
    Closed {
        /// The connection.
        number: u64,
        /// Of the runs those that were not reported.
        ends: [End; 2],
    },
    /// A socket whose other end is not here, or whose settings were lost: no further events of it are needed.
    Half {
        /// Its key in the events.
        socket: u64,
        /// It has not closed.
        lives: bool,
    },
}
