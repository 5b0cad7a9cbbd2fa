// SPDX-License-Identifier: Apache-2.0
//! Owners in the situations that mislead tools: the right process, or unknown with the right
//! reason; a wrong name in none. In the BPF tier and, where it can command, in the inet_diag
//! tier.

mod closing;
mod locations;
mod passing;
mod processes;
mod sockets;
mod stage;
mod unknown;
