// SPDX-License-Identifier: Apache-2.0
//! The modes of the log's files and directories: their owner's only, since they name peers,
//! programs and, if configured so, command lines.

/// Of a file.
pub(crate) const FILE: u32 = 0o600;
/// Of a directory.
pub(crate) const DIRECTORY: u32 = 0o700;
