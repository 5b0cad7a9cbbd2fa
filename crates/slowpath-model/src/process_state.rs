// SPDX-License-Identifier: Apache-2.0
//! What may keep a process from working.

/// What keeps a process of this host from working, and what of it is not judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessState {
    /// It is stopped, by a signal or a debugger.
    pub stopped: bool,
    /// The part of the periods of its cgroup's CPU quota in which that ran out, 0..=1, since the cgroup
    /// was made; `None` without a quota.
    pub throttled: Option<f64>,
    /// Its UDP sockets.
    pub udp_sockets: usize,
    /// Its Unix sockets.
    pub unix_sockets: usize,
}
