// SPDX-License-Identifier: Apache-2.0
//! What things are called, in output and in tests.

use super::{Decision, Handler, Timer};

impl Handler {
    /// One word.
    pub fn name(&self) -> &'static str {
        match self {
            Handler::Connect => "connect",
            Handler::Accept => "accept",
            Handler::Begin { .. } => "begin",
            Handler::Send { .. } => "send",
            Handler::Receive { .. } => "receive",
            Handler::Resume => "resume",
            Handler::Shutdown { .. } => "shutdown",
            Handler::Close => "close",
            Handler::Option { .. } => "option",
            Handler::Packet { .. } => "packet",
            Handler::Timer { .. } => "timer",
            Handler::SmallQueue => "small-queue",
            Handler::Release { .. } => "release",
        }
    }
}

impl Timer {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Timer::Write => "write",
            Timer::DelayedAck => "delayed-ack",
            Timer::Keepalive => "keepalive",
            Timer::Pacing => "pacing",
            Timer::CompressedAck => "compressed-ack",
            Timer::Request => "request",
        }
    }
}

impl Decision {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Decision::SmallQueue => "small-queue",
            Decision::Autocork => "autocork",
            Decision::HostQueue => "host-queue",
            Decision::DeviceIdle => "device-idle",
            Decision::Random => "random",
            Decision::MemoryPressure => "memory-pressure",
            Decision::Clock => "clock",
            Decision::Ticks => "ticks",
            Decision::DeviceMemory => "device-memory",
            Decision::Flush => "flush",
            Decision::Backlog => "backlog",
            Decision::Merged => "merged",
            Decision::Comparison => "comparison",
            Decision::Order => "order",
            Decision::Observed => "seen",
            Decision::Fragment => "page",
            Decision::Metrics => "metrics",
            Decision::Refused => "refused",
            Decision::Piece => "piece",
            Decision::Joined => "joined",
        }
    }
}
