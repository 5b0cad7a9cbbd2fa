// SPDX-License-Identifier: Apache-2.0
//! The edge to the kernel: UDP sockets whose packets are stamped by it, clocks, sleeping to a schedule.

mod batch;
pub mod clock;
mod stamped;
mod timing;

pub use batch::{Datagram, send_batch};
pub use clock::{ClockError, ClockState, WallClock, clock_state};
pub(crate) use stamped::{Message, RX_SOFTWARE, SOFTWARE, int, software_stamp};
pub use stamped::{PortRange, PortRangeError, Received, SocketOptions, StampedSocket};
pub use timing::{monotonic, precise_timers, sleep_until};
