// SPDX-License-Identifier: Apache-2.0
//! Ships the problem log to a server: batches of the spool's own records over mutual TLS.
//!
//! What enters: segments of the log's spool, a server's address, a token or a key. What leaves:
//! batches, and what the server acknowledged of each segment (`docs/decisions/0044-fleet.md`).
//!
//! What it never does: judge, or use an async runtime.
