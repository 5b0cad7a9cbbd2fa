// SPDX-License-Identifier: Apache-2.0
//! Ships the problem log to a server: batches of the spool's own records over mutual TLS.
//!
//! What enters: segments of the log's spool, a server's address, a token or a key. What leaves:
//! batches, and what the server acknowledged of each segment (`docs/decisions/0044-fleet.md`).
//!
//! - [`batch`]: what travels; encoders and strict readers, pure.
//! - [`answers`]: what the server answers.
//! - [`identity`]: who a host is, and how it is invited; [`keys`]: its key and certificate.
//! - [`queue`]: segments that wait, as they lie in the log.
//! - [`client`]: one request at a time, and what each answer leads to; [`clock`]: whose clock is where.
//! - [`shipper`]: all of it as one thread.
//!
//! What is promised: every record that the log accepted is offered until the server has flushed it,
//! or stands in one gap that says why not, over kills of either half. A reader of bytes from elsewhere
//! is bounded in time and memory, and names the field that it refuses.
//!
//! What it never does: judge, or use an async runtime.

pub mod answers;
pub mod batch;
mod certificate;
pub mod client;
pub mod clock;
pub mod identity;
pub mod keys;
pub mod queue;
mod random;
pub mod shipper;
