// SPDX-License-Identifier: Apache-2.0
//! Segmentation offloads, switched off so that a segment is a packet.

use crate::{Namespace, TestbedError};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// linux/ethtool.h
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Turns TSO, GSO and GRO of `interface` off.
pub(crate) fn disable(namespace: &Namespace, interface: &str) -> Result<(), TestbedError> {
    namespace
        .run(|| {
            [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO]
                .into_iter()
                .try_for_each(|command| set_off(interface, command))
        })?
        .map_err(TestbedError::io("turn offloads off on", interface))
}

fn set_off(interface: &str, command: u32) -> io::Result<()> {
    // SAFETY: socket takes three integers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut value = EthtoolValue { command, data: 0 };
    let mut request = interface_request(interface);
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names a NUL-terminated interface and points to a value of the
    // size these commands expect; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // A device that has no such offload has it off already.
            error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            error => Err(error),
        },
    }
}

/// An interface request with that name, cut to the kernel's 15 bytes.
pub(crate) fn interface_request(interface: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}
