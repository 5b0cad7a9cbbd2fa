// SPDX-License-Identifier: Apache-2.0
//! Notices that the reader of standard output has gone, also while nothing is written to it.

use rustix::event::{PollFd, PollFlags, poll};
use std::{io, thread};

/// Calls `then` when no process can read what is written to standard output any more: of a pipe
/// the reading end is closed, of a terminal the line (poll(2): POLLERR, POLLHUP). Other outputs
/// never say so. A thread waits until then, or for the end of the program.
pub fn watch(then: impl FnOnce() + Send + 'static) {
    let waits = move || {
        let out = io::stdout();
        loop {
            // These two are reported without being asked for.
            let mut fds = [PollFd::new(&out, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                // Then the next write finds out.
                Err(_) => return,
                Ok(_) => break,
            }
        }
        then();
    };
    // Without the thread the next write finds out.
    let _ = thread::Builder::new()
        .name("sp-output".to_owned())
        .spawn(waits);
}
