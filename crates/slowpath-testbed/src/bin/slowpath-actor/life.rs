// SPDX-License-Identifier: Apache-2.0
//! An actor ends with its test, whatever it waits for at that moment and whoever its parent
//! is by then: the test holds the only writing end of a pipe, and the kernel sends a signal
//! when that goes (F_SETOWN and O_ASYNC, fcntl(2)).

use crate::calls::check;
use std::io;

extern "C" fn end(_: libc::c_int) {
    // SAFETY: may be called from a signal handler.
    unsafe { libc::_exit(0) }
}

/// From now on this process ends when no process can write to the pipe `life` any more.
pub fn tie(life: i32) -> io::Result<()> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{life}"))?;
    // SAFETY: a path that ends with NUL, numbers, a handler that only exits, and one
    // descriptor in a structure of this function's.
    unsafe {
        // Opened anew: whom to signal belongs to the open file, which forks share. The first
        // process of a pid namespace is not ended by a signal without a handler.
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let fd = check(libc::open(path.as_ptr(), flags).into())? as i32;
        let handler = end as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGIO, handler as libc::sighandler_t);
        check(libc::fcntl(fd, libc::F_SETOWN, libc::getpid()).into())?;
        check(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK).into())?;
        let mut now = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        check(libc::poll(&raw mut now, 1, 0).into())?;
        if now.revents & libc::POLLHUP != 0 {
            libc::_exit(0);
        }
    }
    Ok(())
}
