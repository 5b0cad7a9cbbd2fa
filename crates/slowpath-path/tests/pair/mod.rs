// SPDX-License-Identifier: Apache-2.0
//! Two hosts of the emulator with a router between them, and a server that answers requests.
#![allow(dead_code, reason = "not every test file uses all of it")]

use slowpath_lab::emulator::Lab;
use slowpath_path::serve::{Policy, ServeOptions};
use std::net::SocketAddr;

/// Hosts a and b with router r1 between them, and more lines of TOML; `None`, with the reason, where that is not possible.
pub fn up(test: &str, link: &str, more: &str) -> Option<Lab> {
    let text = format!(
        "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = [\"r1\"]\nlinks = {{ {link} }}\n\
         link = [{{ ends = [\"a\", \"r1\"] }}, {{ ends = [\"r1\", \"b\"] }}]\n[switch]\nbuffer = \"250 packets\"\n{more}"
    );
    // Threads that this one starts, the emulator's and both ends', come before others of the machine: on a loaded one the
    // wait for a processor would be what is measured.
    // SAFETY: three numbers. Refused without privilege, and then the network is too.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    crate::emulated::up(test, &text)
}

/// A server of requests only.
pub fn server(listen: SocketAddr, allow: &str) -> ServeOptions {
    ServeOptions {
        requests: vec![listen],
        policy: Policy {
            allow: vec![allow.parse().expect("a range")],
            ..Policy::default()
        },
        ..ServeOptions::default()
    }
}
