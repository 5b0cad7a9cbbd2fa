// SPDX-License-Identifier: Apache-2.0
//! Which routers connections that lose segments pass, so that losses can be charged to links.
//!
//! What enters: connections that lost segments. What leaves: their paths, for the log. [`tracer`]
//! decides and reads answers, [`packet`] has the bytes, [`PathSocket`] sends and receives them: two
//! raw sockets (CAP_NET_RAW) of this process's network namespace, used between polls without a
//! thread. 007 (NSDI 2018) traces likewise; why the connection is not disturbed is in [`packet`].
//!
//! Not traced: IPv6, where the kernel's flow label, which routers hash too, is not known;
//! connections of other namespaces and to this host itself. Where this host's own routes are
//! ECMP, it may choose another one for the probes than for the connection.

mod packet;
mod socket;
mod tracer;

pub(crate) use socket::PathSocket;
pub(crate) use tracer::{LossyConnection, TracedPath};

use slowpath_model::MonoNanos;
use std::io;
use tracer::PathTracer;

/// The traces of an agent and its sockets.
pub(crate) struct Paths {
    tracer: PathTracer,
    socket: PathSocket,
    /// Paths found.
    pub(crate) found: u64,
}

impl Paths {
    /// The most traces in a minute.
    ///
    /// # Errors
    /// Raw sockets cannot be had, for example without CAP_NET_RAW.
    pub(crate) fn open(per_minute: u32, now: MonoNanos) -> io::Result<Self> {
        Ok(Paths {
            tracer: PathTracer::new(per_minute, now),
            socket: PathSocket::open()?,
            found: 0,
        })
    }

    /// Traces of these connections those that may be traced now, and takes answers; gives the paths
    /// whose answers are no longer awaited.
    pub(crate) fn poll(&mut self, lossy: &[LossyConnection], now: MonoNanos) -> Vec<TracedPath> {
        if self.tracer.waits() {
            self.socket.receive(|packet| self.tracer.answered(packet));
        }
        let paths = self.tracer.ended(now);
        self.found += paths.len() as u64;
        for connection in lossy {
            if connection.id.netns != self.socket.netns {
                continue;
            }
            if !self.tracer.waits() {
                // What came meanwhile is about nothing of ours.
                self.socket.receive(|_| {});
            }
            let number = fastrand::u16(..);
            for probe in self.tracer.begin(connection, now, number).iter().flatten() {
                self.socket.send(probe, connection.tuple.remote);
            }
        }
        paths
    }

    /// Connections that were not traced because of a limit.
    pub(crate) fn left_out(&self) -> u64 {
        self.tracer.left_out
    }
}
