// SPDX-License-Identifier: Apache-2.0
//! ICMP and ICMPv6 errors about packets of ours, and echo replies: what routers answer.
//!
//! [`parse`] is pure: octets in, an [`IcmpMessage`] out, or nothing where they are damaged or about something else.
//! [`RawIcmp`] reads every such message that comes to this host, with what it quotes (CAP_NET_RAW);
//! [`ErrorQueue`] reads those about one UDP socket, needs no privilege and has no quoted IP header. Both have the
//! kernel's time of arrival.

mod error_queue;
pub mod parse;
mod raw;

pub use error_queue::{ErrorQueue, QueuedError};
pub use parse::{EchoReply, ErrorKind, IcmpError, IcmpMessage, Quoted, QuotedUdp};
pub use raw::{IcmpArrival, RawIcmp};
