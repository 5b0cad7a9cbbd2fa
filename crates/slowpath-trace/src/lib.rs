// SPDX-License-Identifier: Apache-2.0
//! What the packets say: TCP reconstructed from captures.
//!
//! What enters: captures, from files, standard input or an interface. What leaves: what each
//! TCP connection in them did, and totals of everything else.
//!
//! ```no_run
//! let mut capture = slowpath_trace::read::open("ring.pcap")?;
//! while let Some(packet) = capture.next()? {
//!     match packet.segment() {
//!         Ok(segment) => println!("{} {}", segment.frame, segment.length),
//!         Err(other) => println!("{} {other:?}", packet.number()),
//!     }
//! }
//! # Ok::<(), slowpath_trace::read::ReadError>(())
//! ```
//!
//! [`read`] finds the frames, [`decode`] the TCP in them, [`totals`] counts what they are,
//! [`engine`] hands each connection's segments, in order, to who follows it; [`filter`]
//! leaves out frames that are not wanted, and [`live`] captures some.

pub mod decode;
pub mod engine;
pub mod filter;
mod frame;
pub mod live;
pub mod message;
pub mod pair;
pub mod picture;
pub mod read;
pub mod report;
pub mod segment;
pub mod tcp;
pub mod totals;
pub mod verdict;
pub mod write;
