// SPDX-License-Identifier: Apache-2.0
//! Why a network is not up.

use slowpath_switch::fabric::PlanError;
use std::io;

/// Why a network cannot be brought up, or used.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Network namespaces need a privilege.
    #[error(
        "making network namespaces is not permitted: run as root, or in a user namespace of \
         your own (`unshare --user --map-root-user slowpath lab up ...`), where the kernel allows it"
    )]
    NotPermitted,
    /// TUN devices need a kernel module and a device node.
    #[error(
        "/dev/net/tun cannot be opened ({0}): load the module (`modprobe tun`); in a container, \
         give it the device (`--device /dev/net/tun`) and the capability NET_ADMIN"
    )]
    NoTun(io::Error),
    /// A network too large for one process in real time.
    #[error("{given} hosts are too many for the emulator: at most {most}")]
    TooLarge {
        /// How many the scenario has.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// The network itself is impossible.
    #[error("the network is impossible: {0}")]
    Plan(#[from] PlanError),
    /// A sysctl is not there, or refuses the value.
    #[error("host {host}: cannot set {name} to '{value}': {source}")]
    Sysctl {
        /// Where.
        host: String,
        /// Which.
        name: String,
        /// To what.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// A host's clock cannot be set ahead.
    #[error("host {host}: its clock cannot be shifted: {source}")]
    Clock {
        /// Where.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Another network of this name is up.
    #[error(
        "a network called '{0}' is up already: `slowpath lab down {0}`, or another --name for this one"
    )]
    NameTaken(String),
    /// A name that cannot be one.
    #[error("'{0}' cannot be a network's name: letters, digits, '.', '_' and '-', at most 64")]
    Name(String),
}

impl LabError {
    pub(super) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::System { operation, source }
    }
}
