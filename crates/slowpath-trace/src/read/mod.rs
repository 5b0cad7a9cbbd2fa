// SPDX-License-Identifier: Apache-2.0
//! Captures in: files, compressed or not, standard input, several of them as one.
//!
//! What enters: pcap (microseconds, nanoseconds, both byte orders) and pcapng, plain, gzip or
//! Zstandard, distinguished by their first bytes. Several files count as one capture, in the
//! order of their first frames, as ring-buffer captures leave them.
//!
//! What leaves: one frame after the other, numbered from 1 over all files, and
//! [`Notes`]: comments, interfaces, what the capture lost by its own account, and what could
//! not be read and why.
//!
//! What is promised: damaged input is skipped and counted, never a panic and never an endless
//! loop; memory does not grow with the input.

mod capture;
mod compressed;
mod foreign;
mod inputs;
mod notes;
mod pcap;
mod pcapng;
mod piece;
mod source;
mod walk;

pub use capture::{Capture, Packet, open};
pub use foreign::Foreign;
pub use inputs::{Input, Inputs, ReadError};
pub use notes::{Comment, CommentOn, Gap, Interface, Notes, Skip, SkipReason};
pub use source::{Source, SourceError};

pub(crate) use inputs::Cursor;
pub(crate) use piece::{PIECE, Piece};
