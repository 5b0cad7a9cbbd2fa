// SPDX-License-Identifier: Apache-2.0
//! Names of this machine's network namespaces, looked up periodically.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Names are looked up again after this time, and numbers without a name this often at most:
/// a number may come to mean another namespace.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Names {
    names: HashMap<u32, String>,
    read: Option<Instant>,
}

thread_local! {
    static NAMES: RefCell<Names> = RefCell::default();
}

/// The name that `ip netns` gave to the namespace with that inode number.
pub fn namespace_name(inode: u32) -> Option<String> {
    NAMES.with_borrow_mut(|names| {
        if names.read.is_none_or(|at| at.elapsed() >= AGAIN) {
            names.names = slowpath_observe::namespaces::names();
            names.read = Some(Instant::now());
        }
        names.names.get(&inode).cloned()
    })
}
