// SPDX-License-Identifier: Apache-2.0
//! Real sockets in network namespaces of their own.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::Command;

/// Puts this thread into a fresh network namespace.
pub fn move_on() -> io::Result<()> {
    // SAFETY: changes this thread's namespace only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()?;
    if !up.success() {
        return Err(io::Error::other(format!("ip link set lo up: {up}")));
    }
    Ok(())
}

/// The kernel's cookie of a socket.
pub fn cookie(socket: &TcpStream) -> u64 {
    let mut cookie = 0u64;
    let mut length = 8;
    // SAFETY: the kernel writes at most eight bytes to `cookie`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    assert_eq!(done, 0);
    cookie
}
